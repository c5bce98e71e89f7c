package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

type removal struct {
	AccountID string         `json:"accountId"`
	Removed   map[string]int `json:"removed"`
	Left      map[string]int `json:"left"`
}

// letTimePass moves the clock on when the account is gone, so that nothing has to be waited for.
func (p *prog) letTimePass(account string) {
	go func() {
		for p.t.Context().Err() == nil {
			if _, err := p.DB.Account(p.t.Context(), account); fault.Is(err, fault.AccountGone) {
				p.Clock.Advance(time.Minute)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
}

func TestRemove(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	p.Env["MAILYARD_PUSH_AUTH"] = "off" // the functions run in this test as well
	p.Start()
	box := p.box("kim@example.com", "secret-of-kim")
	id := p.add("kim@example.com", "secret-of-kim")
	p.Settle()
	p.letter("m1", 5, func(e *ledger.Entry) { e.ID, e.AccountID = id+".x", id })

	if r := p.run(1, "account", "remove", id); !strings.Contains(r.stderr, "Unlink kim@example.com and delete its mirror of 0 messages? [y/N]") || !strings.Contains(r.stderr, "nothing was changed") {
		t.Errorf("asked %q", r.stderr)
	}
	if r := p.run(1, "account", "remove", "--verify", id); !strings.Contains(r.stdout, "1 in account, 1 in credential, 1 in failures, 1 in resyncs") || !strings.Contains(r.stderr, "something is left") {
		t.Errorf("counted %q, %q", r.stdout, r.stderr)
	}
	p.letTimePass(id)
	got := read[removal](p, "account", "remove", id, "--yes")
	if got.AccountID != id || got.Removed["failures"] != 1 || len(got.Left) != 0 || got.Left == nil {
		t.Errorf("removed %+v", got)
	}
	if topic, _ := box.Watch(); topic != "" {
		t.Error("the mailbox is still watched")
	}
	if r := p.run(0, "account", "remove", "--verify", id); r.stdout != "left of account "+id+": nothing\n" {
		t.Errorf("counted %q", r.stdout)
	}
	if r := p.run(0, "account", "remove", id, "--yes"); !strings.Contains(r.stdout, "deleted nothing; left: nothing") {
		t.Errorf("again: %q", r.stdout)
	}
	for _, nobody := range []string{"0123456789abcdef0123", "a/b", ".."} {
		if r := p.run(1, "account", "remove", nobody, "--yes"); !strings.Contains(r.stderr, "there is no account") {
			t.Errorf("%s: %q", nobody, r.stderr)
		}
	}
	if r := p.run(1, "account", "status", id); !strings.Contains(r.stderr, "there is no account") {
		t.Errorf("status: %q", r.stderr)
	}
}

func TestLink(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	r := p.run(0, "account", "link", "--owner", "u-17", "--return-to", "https://app.example.com/x")
	if want := p.Functions.URL + "/Connect?ticket="; !strings.HasPrefix(r.stdout, want) || strings.Count(r.stdout, "\n") != 1 || strings.Contains(r.stdout, apptest.ConnectKey) {
		t.Errorf("printed %q", r.stdout)
	}
	got := read[struct {
		Link      string    `json:"link"`
		ExpiresAt time.Time `json:"expiresAt"`
	}](p, "account", "link", "--owner", "u-17", "--expires", "1h")
	if left := got.ExpiresAt.Sub(p.Clock.Now()); left < 59*time.Minute || left > time.Hour {
		t.Errorf("good for %v", left)
	}
	if r := p.run(1, "account", "link", "--owner", "u", "--return-to", "https://evil.example.com"); !strings.Contains(r.stderr, "MAILYARD_CONNECT_ORIGINS") {
		t.Errorf("elsewhere: %q", r.stderr)
	}
	delete(p.Env, "MAILYARD_CONNECT_KEY")
	delete(p.Env, "MAILYARD_PUBLIC_URL")
	if r := p.run(1, "account", "link", "--owner", "u"); !strings.Contains(r.stderr, "MAILYARD_CONNECT_KEY is not set") || !strings.Contains(r.stderr, "MAILYARD_PUBLIC_URL is not set") {
		t.Errorf("without a key: %q", r.stderr)
	}
}

type addedFile struct {
	Linked []addressLine `json:"linked"`
	Failed []addressLine `json:"failed"`
}

func TestAddDelegated(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	p.Gmail.Delegate(apptest.DelegationServiceAccount, "example.com")
	for _, name := range []string{"ann", "bo", "cy"} {
		p.box(name+"@example.com", "secret-of-"+name)
	}
	id := read[added](p, "account", "add", "--delegated", "--owner", "acme", "--email", "ann@example.com").AccountID
	if c, err := p.DB.Credential(t.Context(), id); err != nil || c.Kind != mail.CredentialDelegated || id != mail.AccountID("acme", "ann@example.com") {
		t.Errorf("account %s: %+v, %v", id, c, err)
	}
	if r := p.run(1, "account", "add", "--delegated", "--email", "nobody@example.com"); !strings.Contains(r.stderr, "delegated the scope gmail.readonly") {
		t.Errorf("nobody: %q", r.stderr)
	}

	file := filepath.Join(t.TempDir(), "addresses.txt")
	text := "\ufeff# our people\r\nann@example.com\r\n\nbo@example.com\nBO@example.com\nnot an address\nnobody@example.com\n cy@example.com"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := p.run(1, "account", "add", "--delegated", "--owner", "acme", "--file", file, "--json")
	got := decode[addedFile](t, r.stdout)
	if len(got.Linked) != 3 || len(got.Failed) != 2 || got.Failed[0].Line != 6 || got.Failed[1].Line != 7 ||
		!strings.Contains(got.Failed[0].Error, "not a mail address") || !strings.Contains(got.Failed[1].Error, "may not act for this address") {
		t.Errorf("%+v", got)
	}
	if accounts, err := p.DB.Accounts(t.Context()); err != nil || len(accounts) != 3 {
		t.Errorf("%d accounts, %v", len(accounts), err)
	}
	if r := p.run(1, "account", "add", "--delegated", "--owner", "acme", "--file", file); r.stdout != "3 mailboxes are linked\n" ||
		!strings.Contains(r.stderr, "line 6: not a mail address") || !strings.Contains(r.stderr, "2 lines are not linked") {
		t.Errorf("%q, %q", r.stdout, r.stderr)
	}
	in := p.check(0, p.do(t.Context(), strings.NewReader("bo@example.com\n"), "account", "add", "--delegated", "--owner", "acme", "--file", "-"), nil)
	if in.stdout != "1 mailbox is linked\n" {
		t.Errorf("from standard input: %q", in.stdout)
	}
	if r := p.run(1, "account", "add", "--delegated", "--file", "-"); !strings.Contains(r.stderr, "names no mailbox") {
		t.Errorf("an empty file: %q", r.stderr)
	}
	if r := p.run(1, "account", "add", "--delegated", "--file", file+"x"); !strings.Contains(r.stderr, "no such file") {
		t.Errorf("no file: %q", r.stderr)
	}
	delete(p.Env, "MAILYARD_DELEGATION_SERVICE_ACCOUNT")
	if r := p.run(1, "account", "add", "--delegated", "--file", file); !strings.Contains(r.stderr, "MAILYARD_DELEGATION_SERVICE_ACCOUNT is not set") {
		t.Errorf("without a service account: %q", r.stderr)
	}
}

func TestKeysetNew(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	if r := p.run(1, "keyset", "new"); !strings.Contains(r.stderr, "MAILYARD_KMS_KEY does not name the key") {
		t.Errorf("without a key: %q", r.stderr)
	}
}
