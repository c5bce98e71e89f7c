package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"time"

	"mailyard.internal/mailyard/shared/mail"
)

const (
	// starts is how often each program is started.
	starts = 30
	// startTimeout is how long a program may take to answer.
	startTimeout = 20 * time.Second
	// knock is the pause between two attempts to connect, which is as exact as the figures are.
	knock = 200 * time.Microsecond
)

// coldStart compares the time from a process's start to its first answer: of the program that Google's
// build makes of this module, and of a function that only says 204. The program's first answer is a
// refusal, which needs nothing. Its first applied event needs Firestore and Pub/Sub, and stands beside
// that of a bare function; the same bare program shows, by only saying 204 too, what it costs merely to
// have the libraries of both in it.
func coldStart(ctx context.Context, y *yard) ([]figure, error) {
	program := map[string]string{}
	for _, name := range []string{"hello", "bare", "mailyard"} {
		var err error
		if program[name], err = y.build(ctx, name); err != nil {
			return nil, err
		}
	}
	box, err := y.mailbox("start@example.com")
	if err != nil {
		return nil, err
	}
	account, err := y.link(ctx, box, "mailyard")
	if err != nil {
		return nil, err
	}
	e := mail.Event{AccountID: account, MessageID: "m", ThreadID: "t", Lane: "message-read", HistoryID: 1}
	if err := y.mirror(ctx, account, e.MessageID); err != nil {
		return nil, err
	}
	answers := func(name, target string, status int) func(int) (time.Duration, error) {
		return func(int) (time.Duration, error) {
			return y.start(ctx, program[name], target, http.MethodGet, nil, status)
		}
	}
	applies := func(name, target string) func(int) (time.Duration, error) {
		return func(int) (time.Duration, error) {
			e.HistoryID++
			body, err := y.push(e)
			if err != nil {
				return 0, err
			}
			took, err := y.start(ctx, program[name], target, http.MethodPost, body, http.StatusNoContent)
			if err != nil {
				return 0, err
			}
			return took, y.demand(ctx, account, e.MessageID, "unread", e.HistoryID)
		}
	}
	times, err := inTurns(starts,
		answers("hello", "Hello", http.StatusNoContent),
		answers("bare", "Hello", http.StatusNoContent),
		answers("mailyard", "MessageRead", http.StatusMethodNotAllowed),
		applies("bare", "Flag"),
		applies("mailyard", "MessageRead"))
	if err != nil {
		return nil, err
	}
	hello, libraries, answer, bare, event := times[0], times[1], times[2], times[3], times[4]
	return []figure{
		milliseconds("hello world, to its first answer", hello),
		milliseconds("hello world with the client libraries in it, likewise", libraries),
		milliseconds("Mailyard, to its first answer", answer),
		milliseconds("bare function, to its first written event", bare),
		milliseconds("Mailyard, to its first applied event", event),
		// Merely having Firestore's and Pub/Sub's libraries in a program costs more than half of a hello
		// world's start, and Go initialises what is linked: the bounds are held against that.
		{what: "first answer ÷ hello world with the libraries", value: over(answer, libraries), bound: atMost(1.5)},
		{what: "first applied event ÷ bare function", value: over(event, bare), bound: atMost(1.5)},
		{what: "first answer ÷ hello world", value: over(answer, hello)},
		{what: "hello world with the libraries ÷ hello world", value: over(libraries, hello)},
		{what: "first applied event ÷ hello world", value: over(event, hello)},
	}, nil
}

// build makes one of the programs under start, and returns its path.
func (y *yard) build(ctx context.Context, name string) (string, error) {
	path := filepath.Join(y.dir, name)
	command := exec.CommandContext(ctx, "go", "build", "-o", path, "mailyard.internal/mailyard/scripts/bench/start/"+name)
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", name, err, bytes.TrimSpace(output))
	}
	return path, nil
}

// start starts a function's program, asks it for one answer, and stops it. It returns the time from
// before the start to the end of the answer, which must have that status.
func (y *yard) start(ctx context.Context, path, target, method string, body []byte, status int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	address, err := freeAddress()
	if err != nil {
		return 0, err
	}
	_, port, _ := net.SplitHostPort(address)
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+"/", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	var said bytes.Buffer
	process := exec.CommandContext(ctx, path)
	process.Stdout, process.Stderr = &said, &said
	process.Env = []string{"PORT=" + port, "FUNCTION_TARGET=" + target}
	for name, value := range y.env {
		process.Env = append(process.Env, name+"="+value)
	}
	began := time.Now()
	if err := process.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", filepath.Base(path), err)
	}
	got, err := firstAnswer(ctx, address, request)
	took := time.Since(began)
	cancel() // which kills the process
	_ = process.Wait()
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s gave no answer: %w; it said %s", filepath.Base(path), err, said.Bytes())
	case got != status:
		return 0, fmt.Errorf("%s answered %d, not %d; it said %s", filepath.Base(path), got, status, said.Bytes())
	}
	return took, nil
}

// firstAnswer connects as soon as somebody listens, sends the request and returns the answer's status.
func firstAnswer(ctx context.Context, address string, request *http.Request) (int, error) {
	for {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			if ctx.Err() != nil {
				return 0, errors.Join(ctx.Err(), err)
			}
			time.Sleep(knock)
			continue
		}
		defer connection.Close()
		deadline, _ := ctx.Deadline()
		if err := connection.SetDeadline(deadline); err != nil {
			return 0, err
		}
		if err := request.Write(connection); err != nil {
			return 0, err
		}
		response, err := http.ReadResponse(bufio.NewReader(connection), request)
		if err != nil {
			return 0, err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return response.StatusCode, err
	}
}

// freeAddress is a port of this machine that nobody listens on.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}
