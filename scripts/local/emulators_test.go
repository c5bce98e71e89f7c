package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mailyard.internal/mailyard/scripts/local/emulator"
)

// programEnv makes the test binary the program itself.
const programEnv = "MAILYARD_LOCAL_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		os.Unsetenv(programEnv)
		main()
	}
	os.Exit(m.Run())
}

func program(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), programEnv+"=1")
	return cmd
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"emulators"}, {"emulators", "--nonsense"}, {"nonsense"}} {
		cmd := program(args...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 2 {
			t.Errorf("local %v: exit status %d, want 2: %s", args, code, out)
		}
	}
}

func TestEmulators(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the emulators, which -short leaves out")
	}
	// Without an emulator that runs already, these start and stop their own.
	e, err := emulator.Start(t.Context(), emulator.Options{})
	if err != nil {
		t.Skipf("needs the emulators: %v", err)
	}
	defer e.Stop()
	using := func(args ...string) *exec.Cmd {
		cmd := program(append([]string{"emulators", "--"}, args...)...)
		cmd.Env = append(cmd.Env, e.Env()...)
		return cmd
	}

	cmd := using("sh", "-c", "echo $PUBSUB_EMULATOR_HOST $FIRESTORE_EMULATOR_HOST $GOOGLE_CLOUD_PROJECT; exit 7")
	out, _ := cmd.CombinedOutput()
	if want := e.PubSubHost + " " + e.FirestoreHost + " mailyard-local\n"; string(out) != want || cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("exit status %d, output %q, want 7 and %q", cmd.ProcessState.ExitCode(), out, want)
	}

	cmd = using("sh", "-c", "kill -9 $$")
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 137 {
		t.Errorf("a killed command gave exit status %d, want 137: %s", cmd.ProcessState.ExitCode(), out)
	}

	cmd = using(filepath.Join(t.TempDir(), "absent"))
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("an absent command gave exit status %d, want 1: %s", cmd.ProcessState.ExitCode(), out)
	}
}

func TestEmulatorsForwardsAndCleansUp(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the emulators, which -short leaves out")
	}
	t.Setenv("PUBSUB_EMULATOR_HOST", "")
	t.Setenv("FIRESTORE_EMULATOR_HOST", "")
	probe, err := emulator.Start(t.Context(), emulator.Options{})
	if err != nil {
		t.Skipf("needs the emulators: %v", err)
	}
	probe.Stop()

	cmd := program("emulators", "--", "sh", "-c", `trap 'echo told; exit 5' TERM; echo $PUBSUB_EMULATOR_HOST; while :; do sleep 0.05; done`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	n, _ := out.Read(buffer)
	host := strings.TrimSpace(string(buffer[:n]))
	if conn, err := net.Dial("tcp", host); err != nil {
		t.Errorf("no emulator at %q: %v", host, err)
	} else {
		conn.Close()
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	n, _ = out.Read(buffer)
	_ = cmd.Wait()
	if string(buffer[:n]) != "told\n" || cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("the command said %q, exit status %d, want 5: %s", buffer[:n], cmd.ProcessState.ExitCode(), &complaints)
	}
	if conn, err := net.Dial("tcp", host); err == nil {
		conn.Close()
		t.Errorf("an emulator is still at %s", host)
	}
}
