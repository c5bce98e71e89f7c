package emulator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// helperEnv makes the test binary a program that starts the emulators and waits to be killed.
const helperEnv = "MAILYARD_EMULATOR_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		e, err := Start(context.Background(), Options{})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(e.processes[0].os.Pid, e.processes[1].os.Pid)
		select {}
	}
	os.Exit(m.Run())
}

// needInstallation skips where the emulators cannot be started, and hides any that run already.
func needInstallation(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts the emulators, which -short leaves out")
	}
	if _, err := findInstallation(t.Context()); err != nil {
		t.Skipf("needs the emulators: %v", err)
	}
	t.Setenv(pubsubEnv, "")
	t.Setenv(firestoreEnv, "")
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// awaitGone waits until no process has that id.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); alive(pid); {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there", pid)
		}
		runtime.Gosched()
	}
}

func TestStartAndStop(t *testing.T) {
	needInstallation(t)
	logs := filepath.Join(t.TempDir(), "logs")
	begin := time.Now()
	e, err := Start(t.Context(), Options{LogDir: logs})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Stop()
	t.Logf("both up in %v", time.Since(begin))

	conn, err := grpc.NewClient(e.PubSubHost, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := pubsubReady(t.Context(), conn); err != nil {
		t.Error(err)
	}
	if want := pubsubEnv + "=" + e.PubSubHost; e.Env()[0] != want {
		t.Errorf("Env is %q, want %q first", e.Env(), want)
	}
	if log := tail(filepath.Join(logs, "pubsub-emulator.log")); !strings.Contains(log, "listening") {
		t.Errorf("the log has no line of the emulator's: %q", log)
	}

	// A second Start takes what the environment names, and its Stop leaves that alone.
	t.Setenv(pubsubEnv, e.PubSubHost)
	t.Setenv(firestoreEnv, e.FirestoreHost)
	second, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	second.Stop()
	for _, p := range e.processes {
		if !alive(p.os.Pid) {
			t.Error("Stop ended an emulator that it had not started")
		}
	}

	e.Stop()
	for _, p := range e.processes {
		if alive(p.os.Pid) {
			t.Errorf("process %d outlived Stop", p.os.Pid)
		}
	}
}

func TestStartFailsWhole(t *testing.T) {
	needInstallation(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = Start(t.Context(), Options{PubSubAddr: taken.Addr().String(), Timeout: 20 * time.Second})
	if err == nil || !strings.Contains(err.Error(), "Pub/Sub emulator did not start") || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a taken port gave %v, want the emulator's own words", err)
	}
}

func TestStartedEmulatorsEndWithTheirParent(t *testing.T) {
	needInstallation(t)
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a child whose parent was killed")
	}
	helper := exec.Command(os.Args[0])
	helper.Env = append(os.Environ(), helperEnv+"=1")
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	_ = helper.Process.Kill()
	_ = helper.Wait()
	var first, second int
	if _, err := fmt.Sscan(line, &first, &second); err != nil {
		t.Fatalf("the helper said %q", line)
	}
	awaitGone(t, first)
	awaitGone(t, second)
}

func TestNothingAnswersWhereTheEnvironmentPoints(t *testing.T) {
	free, _, err := listenAddr("")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(pubsubEnv, free)
	t.Setenv(firestoreEnv, free)
	_, err = Start(t.Context(), Options{Timeout: 100 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "PUBSUB_EMULATOR_HOST is "+free) {
		t.Errorf("got %v", err)
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	root := t.TempDir()
	touch := func(parts ...string) {
		path := filepath.Join(append([]string{root}, parts...)...)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	says := func(err error, words string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one sentence with %q", err, words)
		}
	}
	_, err := findJars([]string{root})
	says(err, "Google Cloud CLI is not installed")
	touch("bin", "gcloud")
	_, err = findJars([]string{root})
	says(err, "gcloud components install pubsub-emulator cloud-firestore-emulator")
	touch("platform", "pubsub-emulator", "lib", "cloud-pubsub-emulator-0.8.20-all.jar")
	_, err = findJars([]string{root})
	says(err, "has no Firestore emulator")
	touch("platform", "cloud-firestore-emulator", "cloud-firestore-emulator.jar")
	if _, err = findJars([]string{root}); err != nil {
		t.Error(err)
	}

	bin := t.TempDir()
	t.Setenv("PATH", bin)
	_, err = findJava(t.Context())
	says(err, "no java on PATH")
	for _, java := range []struct{ script, says string }{
		{"#!/bin/sh\necho 'No Java runtime present' >&2\nexit 1\n", "does not run"},
		{"#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n", "is version 11"},
	} {
		if err := os.WriteFile(filepath.Join(bin, "java"), []byte(java.script), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err = findJava(t.Context())
		says(err, java.says)
	}
}
