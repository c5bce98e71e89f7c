package app_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"mailyard.internal/mailyard/functions/deadletter"
	"mailyard.internal/mailyard/scripts/local/courier"
	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

func deliverMany(t *testing.T, box *gmailsim.Mailbox, n int) []string {
	t.Helper()
	ids := make([]string, n)
	for i := range ids {
		var err error
		if ids[i], err = box.Deliver(t.Context(), gmailsim.Mail{From: "a@example.com", Subject: fmt.Sprint("mail ", i), Text: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

func askForResync(t *testing.T, y *apptest.Yard, account, id string) {
	t.Helper()
	resyncs, err := y.App.Resyncs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := resyncs.RequestResync(t.Context(), account, id, "a test asks"); err != nil {
		t.Fatal(err)
	}
}

func resyncOf(t *testing.T, y *apptest.Yard, account, id string) mail.Resync {
	t.Helper()
	r, known, err := y.DB.Resync(t.Context(), account, id)
	if err != nil || !known {
		t.Fatalf("resync %s: known %v, %v", id, known, err)
	}
	return r
}

// A first import mirrors everything that is there, spam and trash included, and no draft.
func TestFirstImport(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	ids := deliverMany(t, box, 120)
	ctx := t.Context()
	for i, id := range ids {
		var err error
		switch i % 6 {
		case 0:
			err = box.Read(ctx, id)
		case 1:
			err = box.Trash(ctx, id)
		case 2:
			err = box.Spam(ctx, id)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := box.Draft(ctx, gmailsim.Mail{To: "a@example.com", Subject: "not yet"}); err != nil {
		t.Fatal(err)
	}
	account := y.LinkAndWatch(box, "refresh")
	y.Start()
	askForResync(t, y, account.ID, "first")
	askForResync(t, y, account.ID, "second") // joins the first
	y.Settle()
	y.AssertMirror(account.ID, box)
	r := resyncOf(t, y, account.ID, "first")
	if r.State != mail.ResyncDone || r.Total != 120 || r.Done != 120 || r.Missing != 120 || r.FinishedAt.IsZero() {
		t.Errorf("the resync is %+v", r)
	}
	if n := len(y.Gmail.Calls("messages.get")); n != 120 {
		t.Errorf("%d messages were fetched, want each once", n)
	}
	if _, known, _ := y.DB.Resync(ctx, account.ID, "second"); known {
		t.Error("the second request did not join the first")
	}
	if total := y.Gmail.Stats().Units["messages.list"]; total > 5*5 {
		t.Errorf("%d units of listing", total)
	}
}

// What is nearly right costs a listing, and 20 units for each difference.
func TestResyncMendsDifferencesAlone(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	ids := deliverMany(t, box, 100)
	account := y.LinkAndWatch(box, "refresh")
	y.Start()
	askForResync(t, y, account.ID, "first")
	y.Settle()
	ctx := t.Context()
	for _, id := range ids[:7] { // missing
		m := y.Message(account.ID, id)
		if dropped, err := y.DB.DropMessage(ctx, account.ID, m); err != nil || !dropped {
			t.Fatal(dropped, err)
		}
	}
	for i := range 5 { // too many
		become := mail.Apply(mail.Message{ID: fmt.Sprintf("feed%012d", i)}, mail.Fetched{HistoryID: 1, Flags: map[string]bool{"unread": true, "trashed": false}})
		if saved, err := y.DB.SaveMessage(ctx, account.ID, mail.Message{ID: become.ID}, become); err != nil || !saved {
			t.Fatal(saved, err)
		}
	}
	for _, id := range ids[20:29] { // a wrong flag
		m := y.Message(account.ID, id)
		wrong := mail.Apply(m, mail.Flag{Field: "trashed", Value: true, HistoryID: m.Guards["trashed"] + 1})
		wrong.Guards["trashed"] = 1
		if saved, err := y.DB.SaveMessage(ctx, account.ID, m, wrong); err != nil || !saved {
			t.Fatal(saved, err)
		}
	}
	y.Gmail.ResetStats()
	askForResync(t, y, account.ID, "again")
	y.Settle()
	y.AssertMirror(account.ID, box)
	r := resyncOf(t, y, account.ID, "again")
	if r.State != mail.ResyncDone || r.Missing != 7 || r.Extra != 5 || r.Flags["trashed"] != 9 || r.Flags["unread"] != 0 || r.Done != r.Total || r.Total != 100 {
		t.Errorf("the resync is %+v", r)
	}
	if n := len(y.Gmail.Calls("messages.get")); n != 7+5+9 {
		t.Errorf("%d fetches for 21 differences", n)
	}
}

// An expired cursor moves to the baseline, and nothing of what lies between is lost.
func TestExpiredCursorIsResynced(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := y.LinkAndWatch(box, "refresh")
	y.Start()
	y.Settle()
	box.LoseNotifications(1000)
	ids := deliverMany(t, box, 30)
	if err := box.Delete(t.Context(), ids[3]); err != nil {
		t.Fatal(err)
	}
	box.ExpireHistory(box.HistoryID())
	box.LoseNotifications(0)
	if err := box.Read(t.Context(), ids[5]); err != nil {
		t.Fatal(err)
	}
	y.Settle()
	y.AssertMirror(account.ID, box)
	if a := y.Account(account.ID); uint64(a.HistoryID) != box.HistoryID() {
		t.Errorf("the cursor is %d, the mailbox at %d", a.HistoryID, box.HistoryID())
	}
	deliverMany(t, box, 3)
	y.Settle()
	y.AssertMirror(account.ID, box)
}

// A listing that lags costs fetches, and removes nothing.
func TestLaggingListingRemovesNothing(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	deliverMany(t, box, 80)
	account := y.LinkAndWatch(box, "refresh")
	y.Start()
	askForResync(t, y, account.ID, "first")
	y.Settle()
	box.LagIndex(50, 0)
	y.Gmail.ResetStats()
	askForResync(t, y, account.ID, "lagging")
	y.Settle()
	box.LagIndex(0, 0)
	y.AssertMirror(account.ID, box)
	if n := len(y.Gmail.Calls("messages.get")); n != 50 {
		t.Errorf("%d fetches for 50 messages that were not listed", n)
	}
}

// Mail that arrives, is read and is deleted while a resync lists is right at the end.
func TestLiveMailDuringResync(t *testing.T) {
	t.Parallel()
	const interleavings, mailboxes = 200, 20
	y := apptest.New(t, apptest.Options{Courier: courier.Options{Shuffle: 20 * time.Millisecond, Seed: 3}})
	y.Start()
	random := rand.New(rand.NewPCG(11, 12))
	type linked struct {
		box     *gmailsim.Mailbox
		account mail.Account
		ids     []string
	}
	all := make([]linked, mailboxes)
	for i := range all {
		box := addMailbox(t, y, fmt.Sprintf("m%d@example.com", i), fmt.Sprint("refresh", i))
		ids := deliverMany(t, box, 10)
		all[i] = linked{box, y.LinkAndWatch(box, fmt.Sprint("refresh", i)), ids}
	}
	for round := range interleavings / mailboxes {
		for i := range all {
			m := &all[i]
			askForResync(t, y, m.account.ID, fmt.Sprint("round-", round))
			for range 4 {
				id := m.ids[random.IntN(len(m.ids))]
				var err error
				switch random.IntN(6) {
				case 0:
					m.ids = append(m.ids, deliverMany(t, m.box, 1)...)
				case 1:
					err = m.box.Read(t.Context(), id)
				case 2:
					err = m.box.Unread(t.Context(), id)
				case 3:
					err = m.box.Trash(t.Context(), id)
				case 4:
					err = m.box.Untrash(t.Context(), id)
				case 5:
					err = m.box.Delete(t.Context(), id)
					m.ids = append(m.ids, deliverMany(t, m.box, 1)...)
				}
				_ = err // a message that has been deleted cannot be changed any more
			}
		}
		y.Settle()
		// A new message may have been looked for before it was there, or after it was gone.
		y.Clock.Advance(3 * time.Minute)
		y.Tick()
		y.Settle()
		for _, m := range all {
			y.AssertMirror(m.account.ID, m.box)
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

// An audit counts what a resync would mend, and changes nothing.
func TestAuditChangesNothing(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	ids := deliverMany(t, box, 30)
	account := y.LinkAndWatch(box, "refresh")
	y.Start()
	askForResync(t, y, account.ID, "first")
	y.Settle()
	auditor, err := y.App.Auditor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d, err := auditor.Audit(t.Context(), account.ID, nil); err != nil || d.Missing+d.Extra+d.Flags["unread"]+d.Flags["trashed"] != 0 {
		t.Errorf("a true mirror was found to differ: %+v, %v", d, err)
	}
	dropped := y.Message(account.ID, ids[0])
	if ok, err := y.DB.DropMessage(t.Context(), account.ID, dropped); err != nil || !ok {
		t.Fatal(ok, err)
	}
	wrong := y.Message(account.ID, ids[1])
	become := mail.Apply(wrong, mail.Flag{Field: "unread", Value: false, HistoryID: 1 << 40})
	if ok, err := y.DB.SaveMessage(t.Context(), account.ID, wrong, become); err != nil || !ok {
		t.Fatal(ok, err)
	}
	y.Gmail.ResetStats()
	d, err := auditor.Audit(t.Context(), account.ID, nil)
	if err != nil || d.Missing != 1 || d.Extra != 0 || d.Flags["unread"] != 1 || d.Flags["trashed"] != 0 {
		t.Errorf("the audit found %+v, %v", d, err)
	}
	if n := len(y.Gmail.Calls("messages.get")); n != 0 {
		t.Errorf("the audit fetched %d messages", n)
	}
	if m := y.Message(account.ID, ids[0]); !m.Version.IsZero() {
		t.Error("the audit changed the mirror")
	}
}

// Messages that Gmail does not give, while it gives all others, hold no import up: each becomes a dead letter
// of its own, and can be redriven.
func TestPoisonedMessagesDoNotHoldAnImportUp(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	ids := deliverMany(t, box, 120)
	poisoned := map[string]bool{}
	for i, fault := range []gmailsim.Fault{{Status: 400}, {Status: 500}, {Status: 503}, {Drop: true}} {
		fault.Method, fault.MessageID = "messages.get", ids[i*29+5]
		if _, err := y.Gmail.AddFault(fault); err != nil {
			t.Fatal(err)
		}
		poisoned[fault.MessageID] = true
	}
	account := y.LinkAndWatch(box, "refresh")
	y.Start()
	askForResync(t, y, account.ID, "first")
	y.Settle()
	if r := resyncOf(t, y, account.ID, "first"); r.State != mail.ResyncDone || r.Done != 120 {
		t.Errorf("the resync is %+v", r)
	}
	for _, e := range y.Entries() {
		if e.State != ledger.Dead || e.Consumer != "MessageAdded" || !poisoned[e.MessageID] {
			t.Errorf("the ledger has %s of %s, %s: %s", e.ID, e.Consumer, e.State, e.Error)
		}
		delete(poisoned, e.MessageID)
	}
	if len(poisoned) > 0 {
		t.Errorf("no letter tells of %v", poisoned)
	}
	y.Gmail.ClearFaults()
	operator, err := y.App.Operator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operator.Redrive(t.Context(), deadletter.PlanRedrive(deadletter.Filter{}, y.Entries(), y.Clock.Now()), deadletter.Order{}); err != nil {
		t.Fatal(err)
	}
	y.Settle()
	y.AssertMirror(account.ID, box)
}
