package app_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/mail"
)

func setAccount(t *testing.T, y *apptest.Yard, id string, change func(*mail.Account)) {
	t.Helper()
	if err := y.DB.ChangeAccount(t.Context(), id, func(a mail.Account) (mail.Account, bool) {
		change(&a)
		return a, true
	}); err != nil {
		t.Fatal(err)
	}
}

// Of many watches those that end soonest are renewed first, each for itself; the failed ones are named,
// and no cursor moves.
func TestRenewsSoonestFirst(t *testing.T) {
	t.Parallel()
	const due, notDue = 600, 5
	y := apptest.New(t, apptest.Options{})
	ends := map[string]time.Time{} // by mailbox
	ids := map[string]string{}
	failing := map[string]bool{}
	var mu sync.Mutex
	var wait sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i := range due + notDue {
		address := fmt.Sprintf("m%d@example.com", i)
		box := addMailbox(t, y, address, "refresh-"+address)
		end := y.Clock.Now().Add(time.Duration(1+(i*37)%due) * 10 * time.Minute)
		if i >= due {
			end = y.Clock.Now().Add(6*24*time.Hour + time.Hour)
		}
		if i < due && i%50 == 3 {
			failing[address] = true
			if _, err := y.Gmail.AddFault(gmailsim.Fault{Method: "watch", Mailbox: address, Status: 500}); err != nil {
				t.Fatal(err)
			}
		}
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			account := y.Link(box, "refresh-"+address, 77)
			setAccount(t, y, account.ID, func(a *mail.Account) { a.WatchExpiresAt, a.LastNotifiedAt = end, y.Clock.Now() })
			mu.Lock()
			defer mu.Unlock()
			ends[address], ids[address] = end, account.ID
		})
	}
	wait.Wait()
	if status := y.PostBody("Renew", nil, nil); status != http.StatusInternalServerError {
		t.Errorf("Renew answered %d, though some could not be renewed", status)
	}
	var order []string
	for _, call := range y.Gmail.Calls("watch") {
		order = append(order, call.Mailbox)
	}
	if len(order) != due {
		t.Fatalf("%d watches were asked for, want %d", len(order), due)
	}
	want := slices.Clone(order)
	slices.SortFunc(want, func(a, b string) int { return cmp.Or(ends[a].Compare(ends[b]), strings.Compare(ids[a], ids[b])) })
	for i, address := range order {
		if at := slices.Index(want, address); at < i-16 || at > i+16 { // eight at once
			t.Errorf("%s was renewed as number %d, its turn was %d", address, i, at)
		}
	}
	alerts, warnings := "", ""
	for line := range strings.Lines(y.Log.String()) {
		switch {
		case strings.Contains(line, `"outcome":"watch_about_to_lapse"`) && strings.Contains(line, `"severity":"ERROR"`):
			alerts += line
		case strings.Contains(line, `"outcome":"watch_not_renewed"`) && strings.Contains(line, `"severity":"WARNING"`):
			warnings += line
		}
	}
	for address, id := range ids {
		a := y.Account(id)
		renewed := a.WatchExpiresAt.After(y.Clock.Now().Add(6*24*time.Hour + 2*time.Hour))
		isDue := ends[address].Before(y.Clock.Now().Add(6 * 24 * time.Hour))
		if renewed != (isDue && !failing[address]) || a.HistoryID != 77 {
			t.Errorf("%s: renewed %v, due %v, failing %v, cursor %d", address, renewed, isDue, failing[address], a.HistoryID)
		}
		soon := ends[address].Before(y.Clock.Now().Add(48 * time.Hour))
		named := `"account":"` + id + `"`
		if alerted := strings.Contains(alerts, named); alerted != (failing[address] && soon) {
			t.Errorf("%s: about to lapse was logged %v", address, alerted)
		}
		if warned := strings.Contains(warnings, named); warned != (failing[address] && !soon) {
			t.Errorf("%s: not renewed was logged %v", address, warned)
		}
	}
	if log := alerts + warnings; strings.Count(log, `"code":"gmail_unavailable"`) != len(failing) {
		t.Errorf("the failures' codes are in %s", log)
	}
	if log := y.Log.String(); !strings.Contains(log, fmt.Sprintf(`"renewed":%d,`, due-len(failing))) || !strings.Contains(log, fmt.Sprintf(`"not_renewed":%d,`, len(failing))) {
		t.Error("the counts in the log are not those")
	}
	checkSecrets(t, y)
}

// A mailbox whose watch has ended, or that has been silent, is listed again. The notification that Gmail
// sends on a watch may get lost.
func TestRenewListsWhatMayHaveBeenMissed(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	y.Start()
	lapsed := addMailbox(t, y, "lapsed@example.com", "refresh-lapsed")
	silent := addMailbox(t, y, "silent@example.com", "refresh-silent")
	accounts := map[*gmailsim.Mailbox]mail.Account{}
	for _, box := range []*gmailsim.Mailbox{lapsed, silent} {
		box.LoseNotifications(1000)
		accounts[box] = y.LinkAndWatch(box, "refresh-"+strings.TrimSuffix(box.Address(), "@example.com"))
		deliverMany(t, box, 3)
	}
	y.Settle()
	setAccount(t, y, accounts[lapsed].ID, func(a *mail.Account) {
		a.WatchExpiresAt, a.LastNotifiedAt = y.Clock.Now().Add(-time.Hour), y.Clock.Now()
	})
	setAccount(t, y, accounts[silent].ID, func(a *mail.Account) {
		a.WatchExpiresAt, a.LastNotifiedAt = y.Clock.Now().Add(5*24*time.Hour), y.Clock.Now().Add(-25*time.Hour)
	})
	if status := y.PostBody("Renew", nil, nil); status != http.StatusNoContent {
		t.Fatalf("Renew answered %d: %s", status, y.Log)
	}
	y.Settle()
	for box, account := range accounts {
		y.AssertMirror(account.ID, box)
	}
}

// Tick renews what lapses between two hours, and has it listed.
func TestTickRenewsLapsedWatch(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	box.LoseNotifications(1000)
	account := y.LinkAndWatch(box, "refresh")
	deliverMany(t, box, 2)
	setAccount(t, y, account.ID, func(a *mail.Account) {
		a.WatchExpiresAt, a.LastNotifiedAt = y.Clock.Now().Add(-time.Minute), y.Clock.Now()
	})
	y.Tick()
	if a := y.Account(account.ID); !a.WatchExpiresAt.After(y.Clock.Now()) {
		t.Errorf("the watch still ends at %v", a.WatchExpiresAt)
	}
	y.Start()
	y.Settle()
	y.AssertMirror(account.ID, box)
}

// The audit reports drift as a line that a metric counts, of the mailbox that has waited longest.
func TestRenewAuditsInTurn(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	deliverMany(t, box, 4)
	account := y.LinkAndWatch(box, "refresh")
	setAccount(t, y, account.ID, func(a *mail.Account) { a.AuditedAt = y.Clock.Now().Add(-time.Hour) })
	if status := y.PostBody("Renew", nil, nil); status != http.StatusNoContent {
		t.Fatalf("Renew answered %d: %s", status, y.Log)
	}
	if log := y.Log.String(); !strings.Contains(log, `"message":"Audit drifted"`) || !strings.Contains(log, `"drift":4`) {
		t.Errorf("the log says %s", log)
	}
	if a := y.Account(account.ID); a.AuditedAt.Before(y.Clock.Now().Add(-time.Minute)) {
		t.Error("the audit was not recorded")
	}
}
