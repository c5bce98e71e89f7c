package app_test

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mailyard.internal/mailyard/scripts/package/archive"
	"mailyard.internal/mailyard/shared/app"
	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/mail"
)

// Google's build takes the package of the root directory for the function's, and generates its main
// only where that package imports the framework itself.
func TestRootIsWhatTheBuildLooksFor(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(moduleRoot, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 1 || filepath.Base(files[0]) != "function.go" {
		t.Fatalf("the root directory has %v, want function.go alone: any other Go file, a test too, breaks the build", files)
	}
	file, err := parser.ParseFile(token.NewFileSet(), files[0], nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range file.Imports {
		if spec.Path.Value == `"`+framework+`/functions"` {
			return
		}
	}
	t.Errorf("function.go does not import %s/functions, by which the build knows what to generate", framework)
}

const framework = "github.com/GoogleCloudPlatform/functions-framework-go"

// generatedMain is what Google's build puts at functions.local/app/main.go, inside the module.
const generatedMain = `package main

import (
	"log"
	"os"

	"` + framework + `/funcframework"

	_ "` + module + `"
)

func main() {
	if err := funcframework.Start(os.Getenv("PORT")); err != nil {
		log.Fatalf("funcframework.Start: %v\n", err)
	}
}
`

// The program that Google's build makes of what is deployed answers at every entry point.
func TestDeployedProgram(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a program, which -short leaves out")
	}
	y := apptest.New(t, apptest.Options{})
	program := buildDeployed(t)
	entryPoints, err := app.New(y.Lookup, io.Discard).EntryPoints()
	if err != nil {
		t.Fatal(err)
	}
	pushed := map[string]bool{"DeadLetter": true}
	for _, r := range y.Catalogue.Routes() {
		pushed[r.EntryPoint] = true
	}
	guarded := map[string]string{"MAILYARD_PUSH_AUTH": "iam", "MAILYARD_PUSH_SERVICE_ACCOUNT": "push@project.iam.gserviceaccount.com"}
	// expect holds the answers of one function at a URL, with push tokens wanted, against the contract.
	expect := func(t *testing.T, name, url string) {
		t.Helper()
		switch get := ask(t, http.MethodGet, url, nil); {
		case pushed[name] || name == "Tick":
			if get != http.StatusMethodNotAllowed {
				t.Errorf("GET %s was answered %d", name, get)
			}
		case get == http.StatusNotFound || get >= http.StatusInternalServerError:
			t.Errorf("GET %s was answered %d", name, get)
		}
		if !pushed[name] {
			return
		}
		if post := ask(t, http.MethodPost, url, []byte(`{"message":{"data":"aGk="}}`)); post != http.StatusUnauthorized {
			t.Errorf("%s, pushed without a token, was answered %d", name, post)
		}
	}

	for _, e := range entryPoints {
		t.Run(e.Name, func(t *testing.T) {
			expect(t, e.Name, serve(t, program, y.Env, guarded, map[string]string{"FUNCTION_TARGET": e.Name})+"/")
		})
	}
	t.Run("all in one process", func(t *testing.T) {
		base := serve(t, program, y.Env, guarded)
		for _, e := range entryPoints {
			expect(t, e.Name, base+"/"+e.Name)
		}
		for _, elsewhere := range []string{"/", "/Nothing"} {
			if status := ask(t, http.MethodGet, base+elsewhere, nil); status != http.StatusNotFound {
				t.Errorf("GET %s was answered %d", elsewhere, status)
			}
		}
	})
	t.Run("an event becomes a document", func(t *testing.T) {
		account := y.Link(addMailbox(t, y, "kim@example.com", "refresh"), "refresh", 1)
		data, attributes := y.Encode(mail.Event{AccountID: account.ID, MessageID: "m1", ThreadID: "t1", Lane: "message-read", HistoryID: 7})
		base := serve(t, program, y.Env, map[string]string{"FUNCTION_TARGET": "MessageRead"})
		push := y.Body(apptest.Push{Data: data, Attributes: attributes, MessageID: "1", Attempt: 1})
		if status := ask(t, http.MethodPost, base+"/", push); status != http.StatusNoContent {
			t.Fatalf("the event was answered %d", status)
		}
		m := y.Message(account.ID, "m1")
		if unread, known := m.Flags["unread"]; unread || !known || m.Guards["unread"] != 7 {
			t.Errorf("the message is %+v", m)
		}
	})
}

// buildDeployed builds the archive of a deployment as Google's build does: unpacked, with the generated
// main, tidied, built. It returns the program.
func buildDeployed(t *testing.T) string {
	t.Helper()
	files, err := archive.Files(t.Context(), moduleRoot)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	if err := archive.Write(&packed, files); err != nil {
		t.Fatal(err)
	}
	source := t.TempDir()
	unpack(t, packed.Bytes(), source)
	writeFile(t, filepath.Join(source, "functions.local/app/main.go"), []byte(generatedMain))
	program := filepath.Join(t.TempDir(), "main")
	for _, args := range [][]string{{"mod", "tidy"}, {"build", "-o", program, "./functions.local/app"}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = source
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return program
}

func unpack(t *testing.T, packed []byte, into string) {
	t.Helper()
	r, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.File {
		data, err := fs.ReadFile(r, f.Name)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(into, f.Name), data)
	}
}

func writeFile(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// serve starts the program with an environment and nothing else, and returns where it answers. It
// ends with the test.
func serve(t *testing.T, program string, env ...map[string]string) string {
	t.Helper()
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	all := map[string]string{"PORT": fmt.Sprint(port)}
	for _, e := range env {
		maps.Copy(all, e)
	}
	cmd := exec.Command(program)
	for name, value := range all {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var log apptest.Log
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // how it ended tells nothing: it is killed
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // by its process id, unless it has ended
		<-ended
		if t.Failed() {
			t.Logf("the program said:\n%s", &log)
		}
	})

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	address := fmt.Sprintf("localhost:%d", port)
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			conn.Close()
			return "http://" + address
		}
		select {
		case <-look.C:
		case <-ended:
			t.Fatalf("the program has ended")
		case <-ctx.Done():
			t.Fatalf("the program does not listen: %v", err)
		}
	}
}

// ask makes one request and returns the answer's status.
func ask(t *testing.T, method, url string, body []byte) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}
