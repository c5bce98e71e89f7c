package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"mailyard.internal/mailyard/shared/app"
	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// A result is what one run of the program came to.
type result struct {
	status         int
	stdout, stderr string
}

// A prog runs the program in a Mailyard of the test's own.
type prog struct {
	*apptest.Yard
	t *testing.T

	options []app.Option // of the next runs

	mu      sync.Mutex
	outputs []string
}

func newProg(t *testing.T) *prog {
	p := &prog{Yard: apptest.New(t, apptest.Options{}), t: t}
	// No secret is in any output of any test.
	t.Cleanup(func() {
		for _, output := range p.outputs {
			for _, secret := range []string{"secret-of-", "ya29.", "1//", "client-secret"} {
				if strings.Contains(output, secret) {
					t.Errorf("a secret was written: %s", output)
				}
			}
		}
	})
	// The environment of an operator's shell, which takes no pushes.
	delete(p.Env, "MAILYARD_PUSH_AUTH")
	return p
}

func (p *prog) do(ctx context.Context, stdin io.Reader, args ...string) result {
	p.t.Helper()
	var stdout, stderr bytes.Buffer
	status := run(ctx, surroundings{
		lookup: p.Lookup, stdin: stdin, stdout: &stdout, stderr: &stderr, now: p.Clock.Now, who: "tester",
		options: append([]app.Option{app.WithIAM(p.Env["MAILYARD_GMAIL_ENDPOINT"])}, p.options...),
	}, args)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outputs = append(p.outputs, stdout.String(), stderr.String())
	return result{status, stdout.String(), stderr.String()}
}

// run runs the program with nothing on standard input and fails the test unless it ends with that
// status.
func (p *prog) run(status int, args ...string) result {
	p.t.Helper()
	return p.check(status, p.do(p.t.Context(), strings.NewReader(""), args...), args)
}

func (p *prog) check(status int, r result, args []string) result {
	p.t.Helper()
	if r.status != status {
		p.t.Fatalf("mailyard %s: exit status %d, want %d: %s%s", strings.Join(args, " "), r.status, status, r.stdout, r.stderr)
	}
	if status != 0 && (r.stderr == "" || strings.Contains(r.stderr, "Usage:")) {
		p.t.Errorf("mailyard %s: want a sentence, got %q", strings.Join(args, " "), r.stderr)
	}
	return r
}

// read runs the program and decodes its JSON, which must hold no field that the test does not know.
func read[T any](p *prog, args ...string) T {
	p.t.Helper()
	r := p.run(0, append(args, "--json")...)
	return decode[T](p.t, r.stdout)
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Fatalf("more than one document: %s", text)
	}
	return v
}

// letter puts an entry of a dead event into the ledger, changed as the test likes.
func (p *prog) letter(message string, historyID mail.HistoryID, edit func(*ledger.Entry)) string {
	p.t.Helper()
	e := mail.Event{AccountID: "acc1", MessageID: message, ThreadID: "t1", Lane: "message-read", HistoryID: historyID}
	data, attributes := p.Encode(e)
	entry := ledger.Entry{
		ID: e.ID(), State: ledger.Dead, Consumer: "MessageRead", Topic: "gmail-message-read",
		Subject: ledger.Subject{EventID: e.ID(), Lane: e.Lane, AccountID: e.AccountID, MessageID: e.MessageID, HistoryID: e.HistoryID},
		Data:    data, Attributes: attributes, Attempts: 4, Code: fault.GmailUnavailable, Fingerprint: "0123456789ab",
		Error: "Gmail answered 503", FirstFailedAt: p.Clock.Now().Add(-2 * time.Hour), LastFailedAt: p.Clock.Now().Add(-time.Hour),
		DeadAt: p.Clock.Now().Add(-time.Hour), Revision: "r1",
	}
	if edit != nil {
		edit(&entry)
	}
	if _, err := p.DB.Change(p.t.Context(), entry.ID, func(read ledger.Entry) (ledger.Entry, bool) {
		entry.Version = read.Version
		return entry, true
	}); err != nil {
		p.t.Fatal(err)
	}
	return entry.ID
}

func (p *prog) entry(id string) ledger.Entry {
	p.t.Helper()
	e, ok, err := p.DB.Read(p.t.Context(), id)
	if err != nil || !ok {
		p.t.Fatalf("read %s: %v, %v", id, ok, err)
	}
	return e
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	env := map[string]string{"GOOGLE_CLOUD_PROJECT": "p"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"nonsense"}, "account, dlq"},
		{[]string{"account", "nonsense"}, "add, list, status"},
		{[]string{"dlq", "list", "--nonsense"}, "unknown flag"},
		{[]string{"dlq", "list", "stray"}, "takes no arguments"},
		{[]string{"dlq", "show"}, "needs one argument: the entry's id"},
		{[]string{"dlq", "list", "--groups", "--entries"}, "leave one of them out"},
		{[]string{"dlq", "discard"}, "the entry's id, of one or more"},
		{[]string{"dlq", "discard", "a"}, "--reason is not given"},
		{[]string{"dlq", "edit", "a"}, "--set is not given"},
		{[]string{"dlq", "edit", "a", "--set", "historyId=1"}, "--reason is not given"},
		{[]string{"dlq", "log", "a", "b"}, "one operation's id and no more"},
		{[]string{"dlq", "show", "a", "b"}, "one entry's id and no more"},
		{[]string{"account", "status", "a", "b"}, "one account's id and no more"},
		{[]string{"dlq", "list", "--lane", "message-eaten"}, "message-added, message-read"},
		{[]string{"dlq", "plan", "--lane", "message-eaten"}, "message-added, message-read"},
		{[]string{"dlq", "list", "--state", "lost"}, "retrying, dead, redriving, resolved"},
		{[]string{"dlq", "list", "--limit", "-1"}, "--limit is negative"},
		{[]string{"dlq", "list", "--older-than", "-1h"}, "--older-than is negative"},
		{[]string{"dlq", "list", "--older-than", "yesterday"}, "invalid argument"},
		{[]string{"dlq", "plan", "--rate", "0"}, "--rate must be more than 0"},
		{[]string{"dlq", "redrive", "--rate", "NaN"}, "--rate must be more than 0"},
		{[]string{"account", "add", "--refresh-token", "T"}, "--email is not given"},
		{[]string{"account", "add", "--email", "kim", "--refresh-token", "T"}, "--email is not a mail address"},
		{[]string{"account", "add", "--email", "kim@example.com"}, "the refresh token is empty"},
		{[]string{"account", "add", "--email", "kim@example.com", "--delegated", "--refresh-token", "1//secret"}, "two ways of being let in"},
		{[]string{"account", "add", "--file", "x.txt"}, "--file is for delegated mailboxes"},
		{[]string{"account", "add", "--delegated", "--file", "x.txt", "--email", "kim@example.com"}, "without --email"},
		{[]string{"account", "link"}, "--owner is not given"},
		{[]string{"account", "link", "--owner", "u", "--expires", "0s"}, "--expires must be more than 0"},
		{[]string{"account", "link", "--owner", "u", "--expires", "1000h"}, "at most 168h"},
		{[]string{"account", "remove"}, "needs one argument: the account's id"},
		{[]string{"keyset", "old"}, "write one of new"},
		{[]string{"account", "add", "--email", "kim@example.com", "--refresh-token", "-"}, "the refresh token is empty"},
		{[]string{"account", "add", "--email", "kim@example.com", "--refresh-token=", "1//secret"}, "takes no arguments, only flags"},
	} {
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), surroundings{lookup: lookup, stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, now: time.Now}, c.args)
		if status != 2 || !strings.Contains(stderr.String(), c.want) || strings.Count(stderr.String(), "\n") != 1 || stdout.Len() > 0 {
			t.Errorf("mailyard %v: exit status %d, %q, %q; want 2 and one line with %q", c.args, status, &stdout, &stderr, c.want)
		}
		if strings.Contains(stderr.String(), "1//secret") {
			t.Errorf("mailyard %v repeats a token: %s", c.args, &stderr)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--help"}, {"account"}, {"account", "add", "--help"}, {"dlq", "redrive", "-h"}} {
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), surroundings{lookup: func(string) (string, bool) { return "", false }, stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, now: time.Now}, args)
		if status != 0 || stdout.Len() == 0 || stderr.Len() > 0 {
			t.Errorf("mailyard %v: exit status %d, %q, %q", args, status, &stdout, &stderr)
		}
	}
}

// Every mistake of the environment is told at once, and none about pushes.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	env := map[string]string{"MAILYARD_GMAIL_ENDPOINT": "nonsense"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	s := surroundings{lookup: lookup, stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, now: time.Now}
	if status := run(t.Context(), s, []string{"account", "list"}); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	got := stderr.String()
	if !strings.Contains(got, "GOOGLE_CLOUD_PROJECT is not set") || !strings.Contains(got, "MAILYARD_GMAIL_ENDPOINT is not") ||
		strings.Contains(got, "PUSH") || strings.Count(got, "\n") != 2 {
		t.Errorf("wrote %q", got)
	}
}

// A database that is down is a sentence, soon.
func TestDatabaseDown(t *testing.T) {
	apptest.NeedEmulators(t)
	t.Setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
	lookup := func(name string) (string, bool) {
		if name == "GOOGLE_CLOUD_PROJECT" {
			return "p", true
		}
		return "", false
	}
	for _, args := range [][]string{{"account", "status"}, {"dlq", "list"}, {"dlq", "redrive", "--yes"}, {"dlq", "show", "x"}} {
		var stdout, stderr bytes.Buffer
		began := time.Now()
		status := run(t.Context(), surroundings{lookup: lookup, stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, now: time.Now}, args)
		if status != 1 || !strings.HasPrefix(stderr.String(), "mailyard: Firestore cannot be reached") || strings.Count(stderr.String(), "\n") != 1 || stdout.Len() > 0 {
			t.Errorf("mailyard %v: exit status %d, %q, %q", args, status, &stdout, &stderr)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("mailyard %v took %v", args, took)
		}
	}
}
