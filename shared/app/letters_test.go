package app_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"mailyard.internal/mailyard/functions/deadletter"
	"mailyard.internal/mailyard/shared/app"
	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// gmailDown is Gmail that answers nothing but 503.
var gmailDown = gmailsim.Fault{Status: http.StatusServiceUnavailable}

// Gmail is down for twenty minutes, over 500 events on all lanes. Afterwards every event is applied and no
// letter is open, and no operator has done anything.
func TestGmailOutageHeals(t *testing.T) {
	t.Parallel()
	c := newChat(t)
	y := apptest.New(t, apptest.Options{Env: c.env()})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := y.LinkAndWatch(box, "refresh")
	y.Start()
	events := 0
	do := func(what string, operation func(context.Context, string) error, ids []string) {
		t.Helper()
		for _, id := range ids {
			events++
			if err := operation(t.Context(), id); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	deliver := func(n int) (ids []string) {
		t.Helper()
		for i := range n {
			events++
			id, err := box.Deliver(t.Context(), gmailsim.Mail{From: "a@example.com", Subject: fmt.Sprint(i)})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		return ids
	}
	old := deliver(60)
	y.Settle()
	y.AssertMirror(account.ID, box)
	events = 0

	// At first what was listed still comes; then nothing does.
	half, err := y.Gmail.AddFault(gmailsim.Fault{Method: "messages.get", Status: http.StatusServiceUnavailable})
	if err != nil {
		t.Fatal(err)
	}
	ids := append(deliver(90), old...)
	do("read", box.Read, ids)
	do("trash", box.Trash, ids[:60])
	do("untrash", box.Untrash, ids[:30])
	do("delete", box.Delete, ids[120:])
	y.Settle()
	y.Gmail.RemoveFault(half)
	whole, err := y.Gmail.AddFault(gmailDown)
	if err != nil {
		t.Fatal(err)
	}
	do("unread", box.Unread, ids[:100])
	deliver(40)
	for range 4 {
		y.Clock.Advance(5 * time.Minute)
		y.PostBody("Tick", nil, nil) // which fails where it needs Gmail
		y.Settle()
	}
	letters := map[string]int{}
	for _, e := range y.Entries() {
		if e.State == ledger.Dead {
			letters[e.Consumer]++
		}
	}
	if events < 500 || letters["MessageAdded"] < 80 || letters["Ingest"] == 0 {
		t.Fatalf("the outage made %v letters of %d events: it is no test", letters, events)
	}
	t.Logf("%d events, letters of %v", events, letters)

	y.Gmail.RemoveFault(whole)
	passed := time.Duration(0)
	for open := 1; open > 0 && passed < 8*time.Hour; passed += 5 * time.Minute {
		y.Clock.Advance(5 * time.Minute)
		y.Tick()
		y.Settle()
		open = 0
		for _, e := range y.Entries() {
			if e.Unresolved() {
				open++
			}
		}
	}
	t.Logf("healed within %v", passed)
	for _, e := range y.Entries() {
		if e.Unresolved() {
			t.Errorf("%s is %s after %d heals: %s", e.ID, e.State, e.Heals, e.Error)
		}
	}
	y.AssertMirror(account.ID, box)
	if said := strings.Join(c.said(), "\n"); !strings.Contains(said, "It will be redriven by itself") {
		t.Errorf("the alerts say %q", said)
	}
	operations, err := y.DB.Operations(t.Context(), 100)
	if err != nil || len(operations) == 0 {
		t.Fatalf("operations %v, %v", operations, err)
	}
	for _, o := range operations {
		if o.Deed != ledger.DeedHeal || o.Who != "Tick" || o.FinishedAt.IsZero() {
			t.Errorf("the operation is %+v", o)
		}
	}
	// One letter goes ahead in an outage: it costs the many none of their few times.
	spent := 0
	for _, e := range y.Entries() {
		spent += max(0, e.Heals-1)
	}
	if spent > 10 {
		t.Errorf("%d redrives were spent on the outage", spent)
	}
	checkSecrets(t, y, "/chat")
}

// A cause that does not mend is given up in the end, and that is told.
func TestHealingIsGivenUp(t *testing.T) {
	t.Parallel()
	c := newChat(t)
	y := apptest.New(t, apptest.Options{Env: c.env()})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	y.LinkAndWatch(box, "refresh")
	y.Start()
	y.Settle()
	if _, err := y.Gmail.AddFault(gmailsim.Fault{Method: "messages.get", Status: 500}); err != nil {
		t.Fatal(err)
	}
	if _, err := box.Deliver(t.Context(), gmailsim.Mail{From: "a@example.com", Subject: "x"}); err != nil {
		t.Fatal(err)
	}
	y.Settle()
	for range 10 {
		y.Clock.Advance(73 * time.Hour)
		y.Tick()
		y.Settle()
	}
	e := y.Entries()[0]
	if e.State != ledger.Dead || e.Heals != 5 || e.Redrives != 5 || !e.GivenUp() {
		t.Errorf("the entry is %+v", e)
	}
	given := 0
	for _, s := range c.said() {
		if strings.Contains(s, "it now waits for you") && !strings.Contains(s, "Still open") {
			given++
		}
	}
	if given != 1 {
		t.Errorf("that it was given up was told %d times: %q", given, c.said())
	}
	if n := len(y.Gmail.Calls("messages.get")); n != 6*4 {
		t.Errorf("Gmail was called %d times, want 6 × 4", n)
	}
}

// A function that always crashes answers nothing: Pub/Sub forwards the letter by itself. It is listed,
// explained and redriven as the others.
func TestForwardedLetters(t *testing.T) {
	t.Parallel()
	catalogue, err := lane.Load()
	if err != nil {
		t.Fatal(err)
	}
	for i := range catalogue.Lanes {
		catalogue.Lanes[i].Delivery.MaxDeliveryAttempts = 5
	}
	var crashing atomic.Bool
	crashing.Store(true)
	var functions http.Handler
	front := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if crashing.Load() && r.URL.Path == "/MessageRead" {
			panic(http.ErrAbortHandler) // as a process that ends: no answer
		}
		functions.ServeHTTP(w, r)
	})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := newChat(t)
	o := apptest.Options{Catalogue: catalogue, Env: c.env()}
	o.Courier.Base = "http://" + listener.Addr().String()
	y := apptest.New(t, o)
	functions = y.Functions.Config.Handler
	go func() { _ = front.Serve(listener) }()
	t.Cleanup(func() { _ = front.Close() })

	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := y.LinkAndWatch(box, "refresh")
	id, err := box.Deliver(t.Context(), gmailsim.Mail{From: "a@example.com", Subject: "x"})
	if err != nil {
		t.Fatal(err)
	}
	y.Start()
	y.Settle()
	if err := box.Read(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	y.Settle()
	entries := y.Entries()
	if len(entries) != 1 {
		t.Fatalf("the ledger has %+v", entries)
	}
	e := entries[0]
	if e.State != ledger.Dead || e.Code != ledger.Unanswered || e.Lane != "message-read" || e.AccountID != account.ID || e.MessageID != id || e.Consumer != "MessageRead" || e.Attempts < 5 {
		t.Errorf("the entry is %+v", e)
	}
	if said := c.said(); len(said) != 1 || !strings.Contains(said[0], "message-read (unanswered)") {
		t.Errorf("told was %q", said)
	}

	// On -inspect the letter gets its autopsy.
	operator, err := y.App.Operator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := operator.Inspector.Tidy(t.Context(), e.Topic); err != nil || n != 1 {
		t.Fatalf("tidied %d, %v", n, err)
	}
	y.Settle()
	if n, err := operator.Inspector.Tidy(t.Context(), e.Topic); err != nil || n != 0 {
		t.Errorf("tidied again: %d, %v", n, err)
	}
	letter, found, err := operator.Inspector.Find(t.Context(), e.ID)
	if err != nil || !found || letter.Attributes[ledger.LetterID] != e.ID || letter.Attributes[ledger.LetterCode] != "unanswered" ||
		letter.Attributes[ledger.LetterConsumer] != "MessageRead" || letter.Attributes[ledger.ForwardedSubscription] == "" {
		t.Errorf("the letter is %+v, %t, %v", letter, found, err)
	}
	if said := c.said(); len(said) != 1 {
		t.Errorf("the completed letter was told again: %q", said)
	}

	crashing.Store(false)
	report, err := operator.Redrive(t.Context(), deadletter.PlanRedrive(deadletter.Filter{}, y.Entries(), y.Clock.Now()), deadletter.Order{Who: "tester"})
	if err != nil || report.Err != nil || report.Untidy != nil || report.Results[deadletter.Redriven] != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	y.Settle()
	y.AssertMirror(account.ID, box)
	if e := y.Entries()[0]; e.State != ledger.Resolved || e.Redrives != 1 {
		t.Errorf("after the redrive the entry is %+v", e)
	}
	if left := y.Pull(e.Topic + "-dead-letter-inspect"); len(left) != 0 {
		t.Errorf("on -inspect there still is %+v", left)
	}
}

// A cuttable network is cut as when a server stops: connections break, and new ones are refused.
type network struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (n *network) option(host string) app.Option {
	return app.WithGRPC(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.cut && strings.HasSuffix(address, host) {
			return nil, fmt.Errorf("dial %s: connection refused", address)
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil && strings.HasSuffix(address, host) {
			n.conns = append(n.conns, conn)
		}
		return conn, err
	}))
}

func (n *network) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
	for _, conn := range n.conns {
		conn.Close()
	}
	n.conns = nil
}

// While dead letters cannot be published, nothing is acknowledged and nothing is lost: each push comes back
// until its letter is safe, without running its handler more often than it may.
func TestDeadLetterTopicDown(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := y.Link(box, "refresh", mail.HistoryID(box.HistoryID()))
	id, err := box.Deliver(t.Context(), gmailsim.Mail{From: "a@example.com", Subject: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := y.Gmail.AddFault(gmailsim.Fault{Method: "messages.get", Status: 500}); err != nil {
		t.Fatal(err)
	}
	var n network
	instance := y.Instance(n.option(y.Env["PUBSUB_EMULATOR_HOST"]))
	spent := y.Body(event(y, mail.Event{AccountID: account.ID, MessageID: id, Lane: "message-added", HistoryID: 5}))
	hopeless := y.Body(event(y, mail.Event{AccountID: "nobody", MessageID: "m1", Lane: "message-read", HistoryID: 6}))
	unreadable := []byte(`{"message":{"data":"%"}}`)
	n.setCut(true)
	for attempt := 1; attempt <= 6; attempt++ {
		var posts sync.WaitGroup
		for entryPoint, body := range map[string][]byte{"MessageAdded": spent, "MessageRead": hopeless, "MessageTrashed": unreadable} {
			posts.Go(func() {
				if status := y.PostTo(instance, entryPoint, body, nil); status != http.StatusServiceUnavailable {
					t.Errorf("attempt %d: %s was answered %d while its letter is not safe", attempt, entryPoint, status)
				}
			})
		}
		posts.Wait()
		y.Clock.Advance(time.Minute)
	}
	for _, e := range y.Entries() {
		if e.State != ledger.Retrying {
			t.Errorf("%s is %s", e.ID, e.State)
		}
	}
	n.setCut(false)
	pending := map[string][]byte{"MessageAdded": spent, "MessageRead": hopeless, "MessageTrashed": unreadable}
	for range 20 {
		for entryPoint, body := range pending {
			if status := y.PostTo(instance, entryPoint, body, nil); status == http.StatusNoContent {
				delete(pending, entryPoint)
			}
		}
		y.Clock.Advance(time.Minute)
		if len(pending) > 0 {
			time.Sleep(200 * time.Millisecond) // the connection comes back in its own time
		}
	}
	if len(pending) > 0 {
		t.Errorf("%d pushes never became letters", len(pending))
	}
	letters := 0
	for _, r := range y.Catalogue.Routes() {
		letters += len(y.Pull(r.InspectSubscription()))
	}
	if letters != 3 {
		t.Errorf("there are %d letters, want 3", letters)
	}
	for _, e := range y.Entries() {
		if e.State != ledger.Dead {
			t.Errorf("%s is %s", e.ID, e.State)
		}
	}
}

// event is the push of an event, of which Pub/Sub says that it came before.
func event(y *apptest.Yard, e mail.Event) apptest.Push {
	data, attributes := y.Encode(e)
	return apptest.Push{Data: data, Attributes: attributes, Attempt: 2}
}

// A redrive that fails for good at once counts as one, and leaves one letter on -inspect: the new one.
func TestRedriveThatFailsAtOnce(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	y.Start()
	y.PublishEvent(mail.Event{AccountID: "nobody", MessageID: "m1", Lane: "message-read", HistoryID: 5})
	y.Settle()
	operator, err := y.App.Operator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		y.Clock.Advance(time.Minute)
		plan := deadletter.PlanRedrive(deadletter.Filter{}, y.Entries(), y.Clock.Now())
		if report, err := operator.Redrive(t.Context(), plan, deadletter.Order{Who: "tester"}); err != nil || report.Err != nil || report.Results[deadletter.Redriven] != 1 {
			t.Fatalf("%+v, %v", report, err)
		}
		y.Settle()
		if e := y.Entries()[0]; e.State != ledger.Dead || e.Redrives != i+1 || e.Attempts != 1 {
			t.Errorf("after redrive %d the entry is %+v", i+1, e)
		}
	}
	// The clock of this test runs ahead of Pub/Sub's, so that every letter is taken for an old one but for
	// that of the last death.
	if _, err := operator.Inspector.Tidy(t.Context(), "gmail-message-read"); err != nil {
		t.Fatal(err)
	}
	if letters := y.Pull("gmail-message-read-dead-letter-inspect"); len(letters) > 1 {
		t.Errorf("on -inspect are %d letters", len(letters))
	}
}

// Data that is too large for the ledger is on -inspect alone, and a redrive takes it from there.
func TestRedriveTakesLargeDataFromInspect(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	large := make([]byte, ledger.MaxData+1)
	if status := y.Post("MessageRead", apptest.Push{Data: large, MessageID: "17", Attempt: 1}); status != http.StatusNoContent {
		t.Fatalf("answered %d", status)
	}
	if status := y.Post("MessageRead", apptest.Push{Data: []byte("small"), MessageID: "18", Attempt: 1}); status != http.StatusNoContent {
		t.Fatalf("answered %d", status)
	}
	tap := y.Tap("gmail-message-read")
	operator, err := y.App.Operator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plan := deadletter.PlanRedrive(deadletter.Filter{}, y.Entries(), y.Clock.Now())
	report, err := operator.Redrive(t.Context(), plan, deadletter.Order{Who: "tester"})
	if err != nil || report.Err != nil || report.Untidy != nil || report.Results[deadletter.Redriven] != 2 {
		t.Fatalf("%+v, %v", report, err)
	}
	sizes := map[int]bool{}
	for _, m := range y.Pull(tap) {
		sizes[len(m.Data)] = true
		if m.Attributes[ledger.RedriveAttribute] != report.Operation {
			t.Errorf("published with %v", m.Attributes)
		}
	}
	if !sizes[len(large)] || !sizes[len("small")] || len(sizes) != 2 {
		t.Errorf("published were messages of %v bytes", sizes)
	}
	// Until it is done, the letter alone holds the large data; the other one is not needed any more.
	letter, found, err := operator.Inspector.Find(t.Context(), "gmail-message-read-apply.17")
	if err != nil || !found || len(letter.Data) != len(large) {
		t.Errorf("on -inspect there is %d bytes, %t, %v", len(letter.Data), found, err)
	}
	for _, e := range y.Entries() {
		if err := y.DB.Resolve(t.Context(), e.ID, y.Clock.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := operator.Inspector.Tidy(t.Context(), "gmail-message-read"); err != nil || n != 1 {
		t.Errorf("when all was done %d letters were taken away, %v", n, err)
	}
	if left := y.Pull("gmail-message-read-dead-letter-inspect"); len(left) != 0 {
		t.Errorf("on -inspect there still are %d letters", len(left))
	}
}

// When a mailbox is unlinked its letters, which are the ids of its messages, do not stay for a month where
// operators look. Another mailbox's do.
func TestLettersOfAnUnlinkedMailboxAreTakenAway(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	leaving := y.Link(addMailbox(t, y, "kim@example.com", "refresh"), "refresh", 1000)
	staying := y.Link(addMailbox(t, y, "lee@example.com", "refresh-2"), "refresh-2", 1000)
	if _, err := y.Gmail.AddFault(gmailsim.Fault{Method: "messages.get", Status: 403, Reason: "insufficientPermissions"}); err != nil {
		t.Fatal(err)
	}
	for _, account := range []string{leaving.ID, staying.ID} {
		push := event(y, mail.Event{AccountID: account, MessageID: "m1", Lane: "message-added", HistoryID: 1001})
		if status := y.Post("MessageAdded", push); status != http.StatusNoContent {
			t.Fatalf("answered %d", status)
		}
	}
	if _, err := unlink(t, y, leaving.ID, nil); err != nil {
		t.Fatal(err)
	}
	for range len(y.Catalogue.Routes()) { // Tick sees to one subscription after the other
		y.Tick()
		y.Clock.Advance(time.Minute)
	}
	letters := y.Pull("gmail-message-added-dead-letter-inspect")
	if len(letters) != 1 || !strings.Contains(letters[0].Attributes["ce-id"], staying.ID) {
		t.Errorf("on -inspect are %+v", letters)
	}
}
