//go:build linux

package app_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"mailyard.internal/mailyard/shared/app"
	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/delivery"
)

// killAtEnv makes the test binary an instance of every function. Its value is the step of a function
// at which the instance kills itself.
const killAtEnv = "MAILYARD_TEST_KILL_AT"

const killNever = "nowhere"

// takeOverAheadEnv is how far the clock of the instance that takes over is ahead; without it, not at all.
const takeOverAheadEnv = "MAILYARD_TEST_TAKE_OVER_AHEAD"

func killAtStep(function string, step int) string { return fmt.Sprint(function, " ", step) }

func TestMain(m *testing.M) {
	if at := os.Getenv(killAtEnv); at != "" {
		fmt.Fprintln(os.Stderr, serveUntil(at))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// startInstances runs one instance at a time, the first with a kill; the next takes over
// when one is gone. They share the listener, so that what comes in between waits. The channel is
// closed when the first one has been killed.
func startInstances(t *testing.T, y *apptest.Yard, listener net.Listener, at string) <-chan struct{} {
	t.Helper()
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	takenOver, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		// Linux ends the child when the thread that started it ends, so this goroutine keeps its own.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := runInstance(ctx, y, file, at)
		if killed(err) && ctx.Err() == nil {
			close(takenOver)
			err = runInstance(ctx, y, file, killNever)
		}
		if ctx.Err() != nil {
			err = nil
		}
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("an instance ended: %v", err)
		}
		file.Close()
	})
	return takenOver
}

func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL
}

// runInstance runs an instance to its end, which ctx brings at the latest.
func runInstance(ctx context.Context, y *apptest.Yard, listener *os.File, at string) error {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), killAtEnv+"="+at)
	for name, value := range y.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = y.Log, y.Log, []*os.File{listener}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}

// killedMark begins the last line of an instance that kills itself.
const killedMark = "killed "

// steps counts what each function does outwards.
type steps struct {
	at string

	mu   sync.Mutex
	done map[string]int
}

// step is one moment at which an instance can be killed.
func (s *steps) step(function, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[function]++
	if killAtStep(function, s.done[function]) != s.at {
		return
	}
	fmt.Fprintf(os.Stderr, "%s%s\n", killedMark, what)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // not one step more of any function, until the kernel has done it
}

// serveUntil serves every function on the listener that it was started with, and returns only where it
// cannot. A function works on one push at a time, so that its steps are the same ones in every run.
func serveUntil(at string) error {
	s := &steps{at: at, done: map[string]int{}}
	http.DefaultTransport = &countedTransport{s, http.DefaultTransport}
	now := time.Now
	if ahead, err := time.ParseDuration(os.Getenv(takeOverAheadEnv)); err == nil && at == killNever {
		now = func() time.Time { return time.Now().Add(ahead) }
	}
	a := app.New(os.LookupEnv, os.Stderr, app.WithClock(now), app.WithGmailQuota(apptest.NoQuota), app.WithGRPC(
		grpc.WithChainUnaryInterceptor(s.unary), grpc.WithChainStreamInterceptor(s.stream)))
	entryPoints, err := a.EntryPoints()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	for _, e := range entryPoints {
		var turn sync.Mutex
		mux.HandleFunc("/"+e.Name, func(w http.ResponseWriter, r *http.Request) {
			turn.Lock()
			defer turn.Unlock()
			e.Handler(countedAnswer{w, sync.OnceFunc(func() { s.step(e.Name, "before its answer") })}, r)
		})
	}
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	return http.Serve(listener, mux)
}

func (s *steps) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	function, call := callOf(ctx, method)
	s.step(function, "before "+call)
	err := invoke(ctx, method, req, reply, cc, opts...)
	s.step(function, "after "+call)
	return err
}

func (s *steps) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	function, call := callOf(ctx, method)
	s.step(function, "before "+call)
	stream, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	answered := sync.OnceFunc(func() { s.step(function, "after "+call) })
	return &countedStream{stream, answered}, nil
}

// callOf names a call without its service, and the function that makes it.
func callOf(ctx context.Context, method string) (function, call string) {
	return delivery.PurposeOf(ctx).Consumer, method[strings.LastIndexByte(method, '/')+1:]
}

// A countedStream is answered when its first message comes, or its end.
type countedStream struct {
	grpc.ClientStream
	answered func()
}

func (c *countedStream) RecvMsg(m any) error {
	err := c.ClientStream.RecvMsg(m)
	c.answered()
	return err
}

type countedTransport struct {
	steps *steps
	base  http.RoundTripper
}

func (c *countedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	function, call := callOf(r.Context(), r.URL.Path)
	if path.Base(path.Dir(r.URL.Path)) == "messages" {
		call = "messages.get"
	}
	c.steps.step(function, "before "+call)
	response, err := c.base.RoundTrip(r)
	c.steps.step(function, "after "+call)
	return response, err
}

// A countedAnswer is a step before it is begun.
type countedAnswer struct {
	http.ResponseWriter
	begin func()
}

func (c countedAnswer) WriteHeader(status int) {
	c.begin()
	c.ResponseWriter.WriteHeader(status)
}

func (c countedAnswer) Write(data []byte) (int, error) {
	c.begin()
	return c.ResponseWriter.Write(data)
}
