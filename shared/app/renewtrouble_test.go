package app_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"mailyard.internal/mailyard/shared/app"
	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/mail"
)

// noPublish makes every publish fail.
func noPublish() app.Option {
	return app.WithGRPC(grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if strings.HasSuffix(method, "/Publish") {
			return errors.New("no publish")
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}))
}

// A renewal that could not have the mailbox listed is not done: the next one does both.
func TestRenewalThatCouldNotListIsRepeated(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	box.LoseNotifications(1000)
	account := y.LinkAndWatch(box, "refresh")
	deliverMany(t, box, 3)
	setAccount(t, y, account.ID, func(a *mail.Account) {
		a.Email = "old-address@example.com"
		a.WatchExpiresAt, a.LastNotifiedAt = y.Clock.Now().Add(-time.Hour), y.Clock.Now()
	})
	if status := y.PostTo(y.Instance(noPublish()), "Renew", nil, nil); status != http.StatusInternalServerError {
		t.Errorf("Renew answered %d, though it could not publish", status)
	}
	if a := y.Account(account.ID); a.WatchExpiresAt.After(y.Clock.Now()) || a.HistoryID != account.HistoryID {
		t.Fatalf("the account is %+v", a)
	}
	if status := y.PostBody("Renew", nil, nil); status != http.StatusNoContent {
		t.Fatalf("Renew answered %d: %s", status, y.Log)
	}
	y.Start()
	y.Settle()
	y.AssertMirror(account.ID, box)
}

// A changed address alone has the mailbox listed: what was notified under the new one found nobody.
func TestRenewListsAfterTheAddressChanged(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	box.LoseNotifications(1000)
	account := y.LinkAndWatch(box, "refresh")
	deliverMany(t, box, 3)
	setAccount(t, y, account.ID, func(a *mail.Account) {
		a.Email = "old-address@example.com"
		a.WatchExpiresAt, a.LastNotifiedAt = y.Clock.Now().Add(5*24*time.Hour), y.Clock.Now()
	})
	if status := y.PostBody("Renew", nil, nil); status != http.StatusNoContent {
		t.Fatalf("Renew answered %d: %s", status, y.Log)
	}
	y.Start()
	y.Settle()
	y.AssertMirror(account.ID, box)
	if a := y.Account(account.ID); a.Email != "kim@example.com" || a.ID != account.ID {
		t.Errorf("the account is %+v", a)
	}
}

// Accounts that may not call Gmail are passed over, and are no failures; one whose grant turns out to be
// lost is marked. One without a cursor gets it by the ordinary way.
func TestRenewPassesOverWhatMayNotBeCalled(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	accounts := map[string]mail.Account{}
	boxes := map[string]*gmailsim.Mailbox{}
	for _, name := range []string{"paused", "reauth", "blocked", "revoked", "begins"} {
		boxes[name] = addMailbox(t, y, name+"@example.com", "refresh-"+name)
		deliverMany(t, boxes[name], 2)
		accounts[name] = y.Link(boxes[name], "refresh-"+name, 0)
		setAccount(t, y, accounts[name].ID, func(a *mail.Account) {
			a.WatchExpiresAt = y.Clock.Now().Add(-time.Hour)
			switch name {
			case "paused":
				a.Status = mail.StatusPaused
			case "reauth":
				a.Status = mail.StatusReauthRequired
			case "blocked":
				a.GmailBlockedUntil = y.Clock.Now().Add(time.Hour)
			}
		})
	}
	boxes["revoked"].Revoke()
	if status := y.PostBody("Renew", nil, nil); status != http.StatusNoContent {
		t.Fatalf("Renew answered %d: %s", status, y.Log)
	}
	if log := y.Log.String(); !strings.Contains(log, `"renewed":1,"listed_again":1,"not_renewed":0,`) {
		t.Errorf("the log says %s", log)
	}
	for name, account := range accounts {
		if n := callsFor(y, boxes[name]); n != 0 && name != "begins" {
			t.Errorf("%s: %d Gmail calls", name, n)
		}
		a := y.Account(account.ID)
		if renewed := a.WatchExpiresAt.After(y.Clock.Now()); renewed != (name == "begins") || a.HistoryID != 0 {
			t.Errorf("%s: renewed %v, cursor %d", name, renewed, a.HistoryID)
		}
		if lost := a.Status == mail.StatusReauthRequired; lost != (name == "reauth" || name == "revoked") {
			t.Errorf("%s is %s", name, a.Status)
		}
	}
	y.Start()
	y.Settle()
	y.AssertMirror(accounts["begins"].ID, boxes["begins"])
}

// Names of labels that cannot be had do not keep a watch from being renewed, nor a mailbox from being
// listed.
func TestRenewalWithoutLabelNames(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{Env: map[string]string{"MAILYARD_LANES": "message-labeled"}})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	box.LoseNotifications(1000)
	account := y.LinkAndWatch(box, "refresh")
	deliverMany(t, box, 3)
	setAccount(t, y, account.ID, func(a *mail.Account) { a.WatchExpiresAt = y.Clock.Now().Add(-time.Minute) })
	if _, err := y.Gmail.AddFault(gmailsim.Fault{Method: "labels.list", Status: 500, Times: 1}); err != nil {
		t.Fatal(err)
	}
	if status := y.PostBody("Renew", nil, nil); status != http.StatusInternalServerError {
		t.Errorf("Renew answered %d, though label names could not be had", status)
	}
	if log := y.Log.String(); !strings.Contains(log, `"renewed":1,"listed_again":1,"not_renewed":0,`) || !strings.Contains(log, "refresh the label names of account "+account.ID) || strings.Contains(log, "watch_") {
		t.Errorf("the log says %s", log)
	}
	y.Start()
	y.Settle()
	y.AssertMirror(account.ID, box)
}

// When the project's quota is used up, no account fares better than the first: the run ends, and does
// not raise an alarm for each.
func TestRenewEndsAtTheProjectsLimit(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	for i := range 40 {
		address := fmt.Sprintf("m%d@example.com", i)
		account := y.Link(addMailbox(t, y, address, "refresh-"+address), "refresh-"+address, 77)
		setAccount(t, y, account.ID, func(a *mail.Account) { a.WatchExpiresAt = y.Clock.Now().Add(time.Hour) })
	}
	if _, err := y.Gmail.AddFault(gmailsim.Fault{
		Method: "watch", Status: 403, Reason: "rateLimitExceeded", RetryAfter: 5 * time.Minute,
		Message: "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service 'gmail.googleapis.com' for consumer 'project_number:1'.",
	}); err != nil {
		t.Fatal(err)
	}
	if status := y.PostBody("Renew", nil, nil); status != http.StatusInternalServerError {
		t.Errorf("Renew answered %d", status)
	}
	if n := len(y.Gmail.Calls("watch", "getProfile", "messages.list")); n > 8 { // at once
		t.Errorf("%d Gmail calls", n)
	}
	if n := strings.Count(y.Log.String(), `"outcome":"watch_about_to_lapse","code":"project_throttled"`); n == 0 || n > 8 {
		t.Errorf("%d alarms", n)
	}
	accounts, err := y.DB.Accounts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range accounts {
		if !a.GmailBlockedUntil.IsZero() {
			t.Errorf("account %s is blocked until %v", a.ID, a.GmailBlockedUntil)
		}
	}
	y.Gmail.ClearFaults()
	y.Clock.Advance(6 * time.Minute)
	if status := y.PostBody("Renew", nil, nil); status != http.StatusNoContent || len(y.Gmail.Calls("getProfile")) != 40 {
		t.Errorf("when the gate is open again Renew answered %d", status)
	}
}
