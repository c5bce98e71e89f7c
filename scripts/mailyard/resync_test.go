package main

import (
	"strings"
	"testing"
	"time"

	"mailyard.internal/mailyard/shared/mail"
)

// No command calls Gmail for an account that is paused, has lost its grant, or that Gmail asked to be
// patient about; and each says what to do.
func TestNoGmailCallForAnAccountThatMayNot(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	p.box("kim@example.com", "secret-of-kim")
	id := p.add("kim@example.com", "secret-of-kim", "--no-resync")
	set := func(status mail.Status, blockedUntil time.Time) {
		t.Helper()
		if err := p.DB.ChangeAccount(t.Context(), id, func(a mail.Account) (mail.Account, bool) {
			a.Status, a.GmailBlockedUntil = status, blockedUntil
			return a, true
		}); err != nil {
			t.Fatal(err)
		}
		p.Gmail.ResetStats()
	}
	refused := func(want string, args ...string) {
		t.Helper()
		if r := p.run(1, args...); !strings.Contains(r.stderr, want) {
			t.Errorf("%v: %q, want %q in it", args, r.stderr, want)
		}
		if calls := p.Gmail.Calls(); len(calls) != 0 {
			t.Errorf("%v made %d calls: %+v", args, len(calls), calls)
		}
	}
	for _, status := range []mail.Status{mail.StatusPaused, mail.StatusReauthRequired} {
		set(status, time.Time{})
		refused("link it again", "account", "audit", id)
		refused("link it again", "account", "resync", id)
	}
	set(mail.StatusActive, p.Clock.Now().Add(time.Hour))
	refused("try again then", "account", "audit", id)

	set(mail.StatusActive, time.Time{})
	counts := read[map[string]int](p, "account", "audit", id)
	if len(counts) != 4 || counts["missing"] != 0 || counts["extra"] != 0 || counts["unread"] != 0 || counts["trashed"] != 0 {
		t.Errorf("the audit of an empty mailbox says %v", counts)
	}
}
