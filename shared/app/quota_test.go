package app_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/mail"
)

// One mailbox's throttling never delays another's: it is put off to the moment that Gmail names, in the
// header or only in the text, and until then nobody calls Gmail for it.
func TestThrottledMailboxDelaysNobody(t *testing.T) {
	t.Parallel()
	for _, how := range []struct {
		name  string
		fault func(y *apptest.Yard) gmailsim.Fault
	}{
		{"403 with Retry-After", func(*apptest.Yard) gmailsim.Fault {
			return gmailsim.Fault{Status: 403, Reason: "rateLimitExceeded", RetryAfter: 5 * time.Minute}
		}},
		{"429 with the moment in its text", func(y *apptest.Yard) gmailsim.Fault {
			at := y.Clock.Now().Add(5 * time.Minute).UTC().Format("2006-01-02T15:04:05.000Z")
			return gmailsim.Fault{Status: 429, Reason: "userRateLimitExceeded", Message: "User-rate limit exceeded.  Retry after " + at}
		}},
		{"403 that names no moment", func(*apptest.Yard) gmailsim.Fault {
			return gmailsim.Fault{Status: 403, Reason: "userRateLimitExceeded"}
		}},
	} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			y := apptest.New(t, apptest.Options{})
			throttled, other := addMailbox(t, y, "a@example.com", "refresh-a"), addMailbox(t, y, "b@example.com", "refresh-b")
			accountA, accountB := y.LinkAndWatch(throttled, "refresh-a"), y.LinkAndWatch(other, "refresh-b")
			y.Start()
			y.Settle()
			fault := how.fault(y)
			fault.Method, fault.Mailbox = "messages.get", throttled.Address()
			id, err := y.Gmail.AddFault(fault)
			if err != nil {
				t.Fatal(err)
			}
			deliverMany(t, throttled, 12)
			deliverMany(t, other, 12)
			y.Settle()
			y.AssertMirror(accountB.ID, other)
			blocked := y.Account(accountA.ID).GmailBlockedUntil
			if !blocked.After(y.Clock.Now()) {
				t.Fatalf("the gate is closed until %v", blocked)
			}
			if entries := y.Entries(); len(entries) != 0 {
				t.Errorf("the ledger has %+v", entries)
			}
			before := callsFor(y, throttled)
			deliverMany(t, throttled, 2) // notified while the gate is closed
			y.Tick()
			y.Settle()
			if after := callsFor(y, throttled); after != before {
				t.Errorf("%d Gmail calls while the gate was closed", after-before)
			}
			y.Gmail.RemoveFault(id)
			for range 3 {
				y.Clock.Advance(6 * time.Minute)
				y.Tick()
				y.Settle()
			}
			y.AssertMirror(accountA.ID, throttled)
		})
	}
}

func callsFor(y *apptest.Yard, box *gmailsim.Mailbox) int {
	n := 0
	for _, call := range y.Gmail.Calls("history.list", "messages.get", "watch", "getProfile") {
		if call.Mailbox == box.Address() {
			n++
		}
	}
	return n
}

// A project-wide limit is another gate: the process makes no call at all until it opens, and no account
// is marked.
func TestProjectLimitIsAnotherGate(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box, other := addMailbox(t, y, "a@example.com", "refresh-a"), addMailbox(t, y, "b@example.com", "refresh-b")
	accountA, accountB := y.LinkAndWatch(box, "refresh-a"), y.LinkAndWatch(other, "refresh-b")
	y.Start()
	y.Settle()
	if _, err := y.Gmail.AddFault(gmailsim.Fault{Method: "history.list", Status: 403, Reason: "dailyLimitExceeded", RetryAfter: 10 * time.Minute, Times: 1}); err != nil {
		t.Fatal(err)
	}
	if status := y.Post("Ingest", apptest.Push{Data: notification(box), Attempt: 1}); status != http.StatusNoContent {
		t.Errorf("the push was answered %d", status)
	}
	before := callsFor(y, box) + callsFor(y, other)
	deliverMany(t, box, 2)
	deliverMany(t, other, 2)
	y.Settle()
	if after := callsFor(y, box) + callsFor(y, other); after != before {
		t.Errorf("%d Gmail calls while the project's gate was closed", after-before)
	}
	for _, a := range []mail.Account{y.Account(accountA.ID), y.Account(accountB.ID)} {
		if !a.GmailBlockedUntil.IsZero() || a.RecheckAt.IsZero() {
			t.Errorf("the account is %+v", a)
		}
	}
	y.Clock.Advance(11 * time.Minute)
	y.Tick()
	y.Settle()
	y.AssertMirror(accountA.ID, box)
	y.AssertMirror(accountB.ID, other)
}

// An account without a cursor is not begun while its gate is closed.
func TestNoCursorYetWhileTheGateIsClosed(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	deliverMany(t, box, 2)
	account := y.Link(box, "refresh", 0)
	setAccount(t, y, account.ID, func(a *mail.Account) { a.GmailBlockedUntil = y.Clock.Now().Add(5 * time.Minute) })
	if status := y.Post("Ingest", apptest.Push{Data: notification(box), Attempt: 1}); status != http.StatusNoContent {
		t.Errorf("the push was answered %d", status)
	}
	y.Tick()
	if n := callsFor(y, box); n != 0 {
		t.Errorf("%d Gmail calls while the gate was closed", n)
	}
	y.Start()
	y.Clock.Advance(6 * time.Minute)
	y.Tick()
	y.Settle()
	y.AssertMirror(account.ID, box)
}

// However many accounts wait that may not call Gmail, a tick comes to those that may.
func TestSleepingAccountsHoldNobodyUp(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	const sleeping = 205 // more than a tick takes on
	sleeper := addMailbox(t, y, "sleeper@example.com", "refresh-sleeper")
	for i := range sleeping {
		id := mail.AccountID(fmt.Sprint("owner ", i), sleeper.Address())
		if _, err := y.DB.EnsureAccount(t.Context(), id, func(a mail.Account) mail.Account {
			a.Email, a.HistoryID, a.Status = sleeper.Address(), 9, mail.StatusReauthRequired
			if i%2 == 0 {
				a.Status, a.GmailBlockedUntil = mail.StatusActive, y.Clock.Now().Add(time.Hour)
			}
			a.RecheckFrom, a.RecheckAt = 7, y.Clock.Now().Add(-time.Hour)
			return a
		}); err != nil {
			t.Fatal(err)
		}
	}
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := y.LinkAndWatch(box, "refresh")
	box.LoseNotifications(1000)
	deliverMany(t, box, 2)
	setAccount(t, y, account.ID, func(a *mail.Account) { a.RecheckFrom, a.RecheckAt = a.HistoryID, y.Clock.Now() })
	y.Start()
	y.Tick()
	y.Tick()
	y.Settle()
	y.AssertMirror(account.ID, box)
	if n := callsFor(y, sleeper); n != 0 {
		t.Errorf("%d Gmail calls for those that may not", n)
	}
	accounts, err := y.DB.AccountsOf(t.Context(), sleeper.Address())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range accounts {
		if a.RecheckFrom != 7 || a.RecheckAt.Before(y.Clock.Now()) {
			t.Fatalf("what is to be listed was forgotten, or is due for ever: %+v", a)
		}
	}
}
