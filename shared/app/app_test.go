package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mailyard.internal/mailyard/scripts/local/courier"
	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// A mailbox's whole life goes through every lane, shuffled and repeated, and the mirror is the mailbox.
func TestMirrorEqualsMailbox(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{Courier: courier.Options{Shuffle: 100 * time.Millisecond, Repeat: 0.3, Seed: 7}})
	box := addMailbox(t, y, "ann.lee@gmail.com", "refresh-ann")
	account := y.LinkAndWatch(box, "refresh-ann")
	changes := y.Tap(lane.MailboxChangesTopic)
	y.Start()
	ctx := t.Context()
	var ids []string
	for i := range 20 {
		id, err := box.Deliver(ctx, gmailsim.Mail{From: "Bo <bo@example.org>", To: "ann.lee@gmail.com", Subject: fmt.Sprint("SECRET-SUBJECT ", i), Text: "SECRET-BODY"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	for i, id := range ids {
		var steps []func() error
		read, unread := func() error { return box.Read(ctx, id) }, func() error { return box.Unread(ctx, id) }
		trash, untrash := func() error { return box.Trash(ctx, id) }, func() error { return box.Untrash(ctx, id) }
		switch i % 5 {
		case 0:
			steps = append(steps, read, unread, read)
		case 1:
			steps = append(steps, trash, untrash)
		case 2:
			steps = append(steps, read, trash)
		case 3:
			steps = append(steps, trash, func() error { return box.Delete(ctx, id) })
		}
		for _, step := range steps {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
	}
	y.Settle()
	y.AssertMirror(account.ID, box)
	if entries := y.Entries(); len(entries) != 0 {
		t.Errorf("the ledger has %d entries, such as %+v", len(entries), entries[0])
	}
	if after := y.Account(account.ID).HistoryID; uint64(after) != box.HistoryID() {
		t.Errorf("the cursor is %d, the mailbox at %d", after, box.HistoryID())
	}
	told := map[string]bool{}
	for _, m := range y.Pull(changes) {
		told[m.Attributes["ce-subject"]] = true
	}
	if len(told) != len(ids) {
		t.Errorf("the app was told of %d messages, want %d", len(told), len(ids))
	}
	checkLog(t, y, "refresh-ann")
}

// checkLog reads everything a run logged: one line a delivery, as Cloud Logging reads it, and nothing
// in it that may not be there.
func checkLog(t *testing.T, y *apptest.Yard, secrets ...string) {
	t.Helper()
	checkSecrets(t, y, secrets...)
	log := y.Log.String()
	lines, traced := 0, 0
	for line := range strings.Lines(log) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("not one JSON object a line: %s", line)
		}
		labels, _ := entry["logging.googleapis.com/labels"].(map[string]any)
		if entry["severity"] == nil || entry["message"] == nil || labels["outcome"] == nil {
			t.Errorf("a line without severity, message or outcome: %s", line)
		}
		if labels["consumer"] == "Tick" {
			continue
		}
		lines++
		if trace, _ := entry["logging.googleapis.com/trace"].(string); strings.HasPrefix(trace, "projects/"+y.Project+"/traces/") {
			traced++
		}
	}
	deliveries := 0
	for _, r := range append(y.Catalogue.Routes(), y.Catalogue.MonitorRoutes()[0]) {
		deliveries += len(y.Deliveries(r.EntryPoint))
	}
	if lines != deliveries || traced != lines {
		t.Errorf("%d lines, of which %d with a trace, for %d deliveries", lines, traced, deliveries)
	}
}

// checkSecrets fails for mail content, addresses and tokens in the log.
func checkSecrets(t *testing.T, y *apptest.Yard, secrets ...string) {
	t.Helper()
	log := y.Log.String()
	for _, secret := range append(secrets, "SECRET", "@", "ya29", "Bearer", "eyJ", "client-secret") {
		if at := strings.Index(log, secret); at >= 0 {
			t.Errorf("the log says %q: …%s…", secret, log[max(0, at-80):min(len(log), at+80)])
		}
	}
}

// The trace of a push is that of every event it brought, down to the write.
func TestTraceTravelsFromPushToWrite(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := y.Link(box, "refresh", mail.HistoryID(box.HistoryID()))
	if _, err := box.Deliver(t.Context(), gmailsim.Mail{From: "a@example.com", Subject: "x"}); err != nil {
		t.Fatal(err)
	}
	const trace = "0af7651916cd43dd8448eb211c80319c"
	status := y.Post("Ingest", apptest.Push{
		Data: notification(box), Attempt: 1, MessageID: "1",
		Header: http.Header{"Traceparent": {"00-" + trace + "-b7ad6b7169203331-01"}},
	})
	if status != http.StatusNoContent {
		t.Fatalf("Ingest answered %d: %s", status, y.Log)
	}
	y.Start()
	y.Settle()
	y.AssertMirror(account.ID, box)
	log := y.Log.String()
	for _, function := range []string{"Ingest", "MessageAdded"} {
		found := false
		for line := range strings.Lines(log) {
			found = found || strings.Contains(line, `"message":"`+function+" ") && strings.Contains(line, "traces/"+trace)
		}
		if !found {
			t.Errorf("no line of %s has the push's trace:\n%s", function, log)
		}
	}
}

// A lane more is an entry more: from a Gmail record to a Firestore field without a line of Go.
func TestStarredLaneByDataAlone(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../lane/catalogue.json")
	if err != nil {
		t.Fatal(err)
	}
	const delivery = `"delivery": {"instances": 1, "concurrency": 5, "maxRetries": 3, "minBackoffSeconds": 30, "maxBackoffSeconds": 300, "ackDeadlineSeconds": 30, "maxDeliveryAttempts": 100}`
	starred := `{"lanes": [
		{"key": "message-starred", "entryPoint": "MessageStarred", "match": [{"history": "labelsAdded", "label": "STARRED"}], "effect": {"kind": "flag", "field": "starred", "value": true}, ` + delivery + `},
		{"key": "message-unstarred", "entryPoint": "MessageUnstarred", "match": [{"history": "labelsRemoved", "label": "STARRED"}], "effect": {"kind": "flag", "field": "starred", "value": false}, ` + delivery + `},`
	catalogue, err := lane.Parse([]byte(strings.Replace(string(data), `{
  "lanes": [`, starred, 1)))
	if err != nil {
		t.Fatal(err)
	}
	y := apptest.New(t, apptest.Options{Catalogue: catalogue})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := y.LinkAndWatch(box, "refresh")
	y.Start()
	ctx := t.Context()
	var ids []string
	for range 2 {
		id, err := box.Deliver(ctx, gmailsim.Mail{From: "a@example.com", Subject: "x"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
		if err := box.Star(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := box.Unstar(ctx, ids[1]); err != nil {
		t.Fatal(err)
	}
	y.Settle()
	for i, want := range []bool{true, false} {
		m := y.Message(account.ID, ids[i])
		if got, known := m.Flags["starred"]; got != want || !known || !m.HasContent {
			t.Errorf("starred is %v (known %v), want %v", got, known, want)
		}
	}
}

// What each event costs is promised, and counted here.
func TestCostOfAnEvent(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := y.Link(box, "refresh", mail.HistoryID(box.HistoryID()))
	id, err := box.Deliver(t.Context(), gmailsim.Mail{From: "a@example.com", Subject: "x", Text: "y"})
	if err != nil {
		t.Fatal(err)
	}
	post := func(lane, entryPoint string, at mail.HistoryID) {
		t.Helper()
		data, attributes := y.Encode(mail.Event{AccountID: account.ID, MessageID: id, Lane: lane, HistoryID: at})
		if status := y.Post(entryPoint, apptest.Push{Data: data, Attributes: attributes, Attempt: 1, MessageID: "m"}); status != http.StatusNoContent {
			t.Fatalf("%s answered %d: %s", entryPoint, status, y.Log)
		}
	}
	expect := func(consumer string, want map[string]int) {
		t.Helper()
		got := map[string]int{}
		for _, method := range []string{"BatchGetDocuments", "RunQuery", "BeginTransaction", "Commit", "Rollback"} {
			if n := y.Meter.Calls(consumer, method); n > 0 {
				got[method] = n
			}
		}
		for _, method := range []string{"history.list", "messages.get"} {
			if n := len(y.Gmail.Calls(method)); n > 0 {
				got[method] = n
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", consumer, diff)
		}
		y.Meter.Reset()
		y.Gmail.ResetStats()
	}
	// The first Gmail call of an instance also reads the account's token, and keeps it.
	if gmail, err := y.App.Gmail(t.Context()); err != nil {
		t.Fatal(err)
	} else if _, err := gmail.Profile(t.Context(), account.ID); err != nil {
		t.Fatal(err)
	}
	y.Meter.Reset()
	y.Gmail.ResetStats()

	post("message-added", "MessageAdded", mail.HistoryID(box.HistoryID()))
	// An atomic write of two documents is a transaction: it is begun, then committed once.
	expect("MessageAdded", map[string]int{"BatchGetDocuments": 1, "BeginTransaction": 1, "Commit": 1, "messages.get": 1})
	for i, l := range []string{"read", "unread", "trashed", "restored", "permanently-deleted"} {
		entry, _ := y.Catalogue.Lane("message-" + l)
		post(entry.Key, entry.EntryPoint, mail.HistoryID(box.HistoryID())+mail.HistoryID(i)+1)
		want := map[string]int{"BatchGetDocuments": 1, "Commit": 1}
		if l == "permanently-deleted" {
			want["BeginTransaction"] = 1 // message and body go together
		}
		expect(entry.EntryPoint, want)
	}
	// A redelivery that finds its guard set reads, and writes nothing.
	post("message-read", "MessageRead", 1)
	expect("MessageRead", map[string]int{"BatchGetDocuments": 1})
}

// A push with k changes costs one listing for each 500 records.
func TestListingCostsOneCallFor500Records(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := y.Link(box, "refresh", mail.HistoryID(box.HistoryID()))
	for range 1100 {
		if _, err := box.Deliver(t.Context(), gmailsim.Mail{From: "a@example.com", Subject: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	tap := y.Tap("gmail-message-added")
	if status := y.Post("Ingest", apptest.Push{Data: notification(box), Attempt: 1, MessageID: "1"}); status != http.StatusNoContent {
		t.Fatalf("Ingest answered %d: %s", status, y.Log)
	}
	if n := len(y.Gmail.Calls("history.list")); n != 3 {
		t.Errorf("%d listings for 1,100 records, want 3", n)
	}
	if n := len(y.Pull(tap)); n != 1100 {
		t.Errorf("%d events, want 1100", n)
	}
	if after := y.Account(account.ID).HistoryID; uint64(after) != box.HistoryID() {
		t.Errorf("the cursor is %d, the mailbox at %d", after, box.HistoryID())
	}
}

// A handler runs 1 + maxRetries times, however Pub/Sub counts, and then there is one dead letter that
// explains itself, and that can be brought back.
func TestSpentRetriesBecomeOneDeadLetter(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := y.LinkAndWatch(box, "refresh")
	fault, err := y.Gmail.AddFault(gmailsim.Fault{Method: "messages.get", Status: 500, Message: "no luck for kim@example.com with ya29.abc"})
	if err != nil {
		t.Fatal(err)
	}
	y.Start()
	id, err := box.Deliver(t.Context(), gmailsim.Mail{From: "a@example.com", Subject: "SECRET"})
	if err != nil {
		t.Fatal(err)
	}
	y.Settle()
	added, _ := y.Catalogue.Lane("message-added")
	if n, want := len(y.Gmail.Calls("messages.get")), 1+added.Delivery.MaxRetries; n != want {
		t.Errorf("the handler ran %d times, want %d", n, want)
	}
	letters := y.Pull(added.Route().InspectSubscription())
	entries := y.Entries()
	if len(letters) != 1 || len(entries) != 1 {
		t.Fatalf("%d letters and %d entries, want one of each", len(letters), len(entries))
	}
	entry, letter := entries[0], letters[0]
	if entry.State != ledger.Dead || entry.Attempts != 1+added.Delivery.MaxRetries || entry.DeadAt.IsZero() || entry.ID != letter.Attributes["ce-id"] {
		t.Errorf("the entry is %+v", entry)
	}
	for name, want := range map[string]string{
		"dead-letter-id": entry.ID, "dead-letter-topic": "gmail-message-added", "dead-letter-consumer": "MessageAdded",
		"dead-letter-attempts": "4", "dead-letter-code": "gmail_unavailable", "ce-subject": id,
	} {
		if letter.Attributes[name] != want {
			t.Errorf("the letter's %s is %q, want %q", name, letter.Attributes[name], want)
		}
	}
	if text := letter.Attributes["dead-letter-error"]; text == "" || strings.Contains(text, "@") || strings.Contains(text, "ya29") {
		t.Errorf("the letter's error is %q", text)
	}

	// The cause is mended; a letter published again as it is finds its entry, and its success ends it.
	y.Gmail.RemoveFault(fault)
	y.Publish("gmail-message-added", letter.Data, letter.Attributes)
	y.Settle()
	y.AssertMirror(account.ID, box)
	if entry := y.Entries()[0]; entry.State != ledger.Resolved || entry.ExpireAt.IsZero() {
		t.Errorf("after the redrive the entry is %+v", entry)
	}
	checkLog(t, y)
}

// Copies of one event that fail at the same time share the count of its attempts.
func TestCopiesShareTheCount(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := y.Link(box, "refresh", 1000)
	if _, err := y.Gmail.AddFault(gmailsim.Fault{Method: "messages.get", Status: 500}); err != nil {
		t.Fatal(err)
	}
	e := mail.Event{AccountID: account.ID, MessageID: "abc", Lane: "message-added", HistoryID: 1001}
	for range 12 {
		y.PublishEvent(e)
	}
	y.Start()
	y.Settle()
	added, _ := y.Catalogue.Lane("message-added")
	if n := len(y.Pull(added.Route().InspectSubscription())); n != 1 {
		t.Errorf("%d dead letters, want 1", n)
	}
	if entries := y.Entries(); len(entries) != 1 || entries[0].State != ledger.Dead {
		t.Errorf("the ledger has %+v", entries)
	}
}

// What nobody returns to, Tick does.
func TestTickReturnsToLostRetries(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := y.Link(box, "refresh", 1000)
	if _, err := y.Gmail.AddFault(gmailsim.Fault{Method: "messages.get", Status: 500, Times: 1}); err != nil {
		t.Fatal(err)
	}
	id, err := box.Deliver(t.Context(), gmailsim.Mail{From: "a@example.com", Subject: "x"})
	if err != nil {
		t.Fatal(err)
	}
	data, attributes := y.Encode(mail.Event{AccountID: account.ID, MessageID: id, Lane: "message-added", HistoryID: mail.HistoryID(box.HistoryID())})
	// Pushed by hand, so that nothing brings it back.
	if status := y.Post("MessageAdded", apptest.Push{Data: data, Attributes: attributes, Attempt: 1}); status != http.StatusServiceUnavailable {
		t.Fatalf("MessageAdded answered %d", status)
	}
	y.Start()
	y.Tick()
	y.Settle()
	if y.Message(account.ID, id).HasContent {
		t.Error("Tick did not wait for Pub/Sub's own retries")
	}
	y.Clock.Advance(time.Hour)
	y.Tick()
	y.Settle()
	y.AssertMirror(account.ID, box)
	if entry := y.Entries()[0]; entry.State != ledger.Resolved {
		t.Errorf("the entry is %+v", entry)
	}
}

// Gmail's index may show a change only after it was pushed.
func TestLaggingIndexIsListedAgain(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := y.LinkAndWatch(box, "refresh")
	y.Start()
	y.Settle()
	box.LagIndex(1, 0)
	if _, err := box.Deliver(t.Context(), gmailsim.Mail{From: "a@example.com", Subject: "late"}); err != nil {
		t.Fatal(err)
	}
	y.Settle()
	if a := y.Account(account.ID); a.RecheckFrom == 0 || a.RecheckAt.IsZero() {
		t.Fatalf("the account is not due to be listed again: %+v", a)
	}
	box.LagIndex(0, 0)
	y.Clock.Advance(2 * time.Minute)
	y.Tick()
	y.Settle()
	y.AssertMirror(account.ID, box)
	if a := y.Account(account.ID); a.RecheckFrom != 0 || !a.RecheckAt.IsZero() {
		t.Errorf("the account is still due: %+v", a)
	}
}

// A revoked grant stops Gmail calls, not the flags, and floods nobody with dead letters.
func TestRevokedGrant(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := y.LinkAndWatch(box, "refresh")
	box.Revoke()
	box.ExpireAccessTokens()
	y.Start()
	for _, l := range []string{"message-added", "message-trashed"} {
		y.PublishEvent(mail.Event{AccountID: account.ID, MessageID: "abc", Lane: l, HistoryID: 5000})
	}
	y.Settle()
	if status := y.Account(account.ID).Status; status != mail.StatusReauthRequired {
		t.Errorf("the account is %s", status)
	}
	if m := y.Message(account.ID, "abc"); m.HasContent || !m.Flags["trashed"] || !m.FetchDueAt.IsZero() {
		t.Errorf("the message is %+v", m)
	}
	if entries := y.Entries(); len(entries) != 0 {
		t.Errorf("the ledger has %+v", entries)
	}
	if status := y.Post("Ingest", apptest.Push{Data: notification(box), Attempt: 1}); status != http.StatusNoContent {
		t.Errorf("its push was answered %d", status)
	}
}

func addMailbox(t *testing.T, y *apptest.Yard, address, token string) *gmailsim.Mailbox {
	t.Helper()
	box, err := y.Gmail.AddMailbox(address, token)
	if err != nil {
		t.Fatal(err)
	}
	return box
}

func notification(box *gmailsim.Mailbox) []byte {
	return fmt.Appendf(nil, `{"emailAddress":%q,"historyId":%d}`, box.Address(), box.HistoryID())
}

func routeOf(t *testing.T, y *apptest.Yard, entryPoint string) lane.Route {
	t.Helper()
	for _, r := range y.Catalogue.Routes() {
		if r.EntryPoint == entryPoint {
			return r
		}
	}
	t.Fatalf("no route leads to %s", entryPoint)
	return lane.Route{}
}
