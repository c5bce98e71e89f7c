package app_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc"

	"mailyard.internal/mailyard/functions/mailbox"
	"mailyard.internal/mailyard/shared/app"
	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
	"mailyard.internal/mailyard/shared/mailing"
)

// quiet is more than unlinking waits for what was in flight.
const quiet = time.Minute

// linkTo links a mailbox to an owner, as a person or an operator does.
func linkTo(t *testing.T, y *apptest.Yard, owner, refreshToken string) mail.Account {
	t.Helper()
	linker, err := y.App.Linker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	account, err := linker.Link(t.Context(), mailbox.Grant{Owner: owner, RefreshToken: refreshToken})
	if err != nil {
		t.Fatal(err)
	}
	return account
}

// unlink unlinks an account, and lets the time that it waits for pass when ready returns.
func unlink(t *testing.T, y *apptest.Yard, account string, ready func()) (map[string]int, error) {
	t.Helper()
	unlinker, err := y.App.Unlinker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		for gone := false; !gone && t.Context().Err() == nil; time.Sleep(10 * time.Millisecond) {
			_, err := y.DB.Account(t.Context(), account)
			gone = fault.Is(err, fault.AccountGone)
		}
		if ready != nil {
			ready()
		}
		y.Clock.Advance(quiet)
	}()
	removed, err := unlinker.Unlink(t.Context(), account, func(int) {})
	<-passed
	return removed, err
}

// assertGone fails the test if anything of the account is left, but the record that it was unlinked.
func assertGone(t *testing.T, y *apptest.Yard, account string) {
	t.Helper()
	left, err := y.DB.Leftovers(t.Context(), account)
	if err != nil || len(left) > 0 {
		t.Errorf("left of account %s: %v, %v", account, left, err)
	}
	for path, text := range documents(t, y.Project, "") {
		record := strings.HasSuffix(path, "/removals/"+account)
		if !record && strings.Contains(path+text, account) || strings.Contains(text, "kim@example.com") {
			t.Errorf("left: %s: %s", path, text)
		}
	}
}

func TestUnlink(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{Env: map[string]string{"MAILYARD_LANES": "message-labeled"}})
	y.Start()
	box := addMailbox(t, y, "kim@example.com", "refresh")
	deliverMany(t, box, 40)
	account := linkTo(t, y, "u-17", "refresh")
	y.Settle()
	y.AssertMirror(account.ID, box)
	if err := y.DB.SaveLabels(t.Context(), account.ID, []mail.Label{{ID: "Label_1", Name: "Work"}}); err != nil {
		t.Fatal(err)
	}
	// Something that fails, dies, and a resync that was never carried out.
	fetchFault, err := y.Gmail.AddFault(gmailsim.Fault{Method: "messages.get", Status: 500})
	if err != nil {
		t.Fatal(err)
	}
	deliverMany(t, box, 1)
	y.Settle()
	y.Gmail.RemoveFault(fetchFault)
	if _, err := y.DB.SaveResync(t.Context(), mail.Resync{}, mail.Resync{ID: "open", AccountID: account.ID, State: mail.ResyncListing, StartedAt: y.Clock.Now()}); err != nil {
		t.Fatal(err)
	}
	if err := y.DB.SaveListed(t.Context(), mail.Resync{ID: "open", AccountID: account.ID}, 0, "", []string{"m"}); err != nil {
		t.Fatal(err)
	}
	if err := y.DB.SaveListed(t.Context(), mail.Resync{ID: "orphaned", AccountID: account.ID}, 0, "", []string{"m"}); err != nil {
		t.Fatal(err)
	}
	if len(y.Entries()) == 0 {
		t.Fatal("nothing has failed")
	}
	// A subscriber, and a mailing that nobody can send.
	y.Subscribe(mailing.Subscription{Account: account.ID, Email: "kim@example.com"})
	y.Digest(y.Clock.Now())
	y.Settle()

	removed, err := unlink(t, y, account.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	if removed["messages"] < 40 || removed["failures"] == 0 || removed["resyncs"] == 0 || removed["listed"] != 2 || removed["labels"] != 1 ||
		removed["subscribers"] != 1 || removed["mailings"] != 1 {
		t.Errorf("removed %v", removed)
	}
	assertGone(t, y, account.ID)
	if topic, _ := box.Watch(); topic != "" {
		t.Error("the mailbox is still watched")
	}
	if n := y.Gmail.Stats().Calls["revoke"]; n != 1 {
		t.Errorf("the grant was revoked %d times", n)
	}
	// Again: nothing to do. One that never was: told so.
	if removed, err := unlink(t, y, account.ID, nil); err != nil || len(removed) > 0 {
		t.Errorf("again: %v, %v", removed, err)
	}
	if _, err := unlink(t, y, "0000000000", nil); !fault.Is(err, fault.AccountGone) {
		t.Errorf("one that never was: %v", err)
	}

	// Linked anew it is an account like any other.
	if _, err := y.Gmail.AddMailbox("kim@example.com", "refresh-2"); err != nil {
		t.Fatal(err)
	}
	again := linkTo(t, y, "u-17", "refresh-2")
	y.Settle()
	if again.ID != account.ID {
		t.Errorf("linked anew as %s, before as %s", again.ID, account.ID)
	}
	y.AssertMirror(again.ID, box)
}

// Events in flight find no account: they are acknowledged, make no dead letter, and leave nothing.
func TestUnlinkWithEventsInFlight(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	y.Start()
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := linkTo(t, y, "u-17", "refresh")
	y.Settle()
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	busy.Go(func() { // mail that comes, is read, and goes
		for ctx.Err() == nil {
			ids := deliverMany(t, box, 5)
			for i, id := range ids {
				err := box.Read(t.Context(), id)
				if i%2 == 0 {
					err = errors.Join(err, box.Delete(t.Context(), id))
				}
				if err != nil {
					t.Error(err)
				}
			}
		}
	})
	time.Sleep(500 * time.Millisecond) // so that something of everything is on its way
	_, err := unlink(t, y, account.ID, func() {
		stop()
		busy.Wait()
		// And what Pub/Sub brings long after, or again.
		for _, l := range y.Catalogue.Lanes {
			y.PublishEvent(mail.Event{AccountID: account.ID, MessageID: "late", ThreadID: "t", Lane: l.Key, HistoryID: 1 << 40})
		}
		data := []byte(`{"accountId":"` + account.ID + `","resyncId":"late","reason":"r"}`)
		y.Publish(lane.ResyncTopic, data, nil)
		y.Settle()
	})
	if err != nil {
		t.Fatal(err)
	}
	y.Settle()
	assertGone(t, y, account.ID)
	for _, l := range y.Catalogue.Lanes {
		if letters := y.Pull(l.Route().InspectSubscription()); len(letters) > 0 {
			t.Errorf("%s: %d dead letters: %v", l.Key, len(letters), letters[0].Attributes)
		}
	}
	if !strings.Contains(y.Log.String(), `"outcome":"no_account"`) {
		t.Error("no event was in flight")
	}
	// A dead letter that comes late is not kept either.
	e := mail.Event{AccountID: account.ID, MessageID: "m", ThreadID: "t", Lane: "message-read", HistoryID: 7}
	data, attributes := y.Encode(e)
	maps.Copy(attributes, map[string]string{"dead-letter-id": e.ID(), "dead-letter-topic": "gmail-message-read", "dead-letter-consumer": "MessageRead"})
	y.Publish("gmail-message-read-dead-letter", data, attributes)
	y.Settle()
	assertGone(t, y, account.ID)
}

// A holdUp lets a function write a new message only when it is told to.
type holdUp struct {
	held    chan struct{} // closed when a write is held up
	release chan struct{}
	once    sync.Once
}

func (h *holdUp) unary(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if commit, ok := request.(*firestorepb.CommitRequest); ok {
		for _, w := range commit.Writes {
			if strings.Contains(w.GetUpdate().GetName(), "/messages/") {
				h.once.Do(func() { close(h.held) })
				<-h.release
			}
		}
	}
	return invoke(ctx, method, request, reply, conn, options...)
}

// Who has read the account just before it goes may write after everything was swept; that is swept too.
func TestUnlinkSweepsWhatComesLate(t *testing.T) {
	t.Parallel()
	h := &holdUp{held: make(chan struct{}), release: make(chan struct{})}
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := linkTo(t, y, "u-17", "refresh")
	id := deliverMany(t, box, 1)[0]
	held := y.Instance(app.WithGRPC(grpc.WithChainUnaryInterceptor(h.unary)))
	answered := make(chan int, 1)
	go func() {
		data, attributes := y.Encode(mail.Event{AccountID: account.ID, MessageID: id, ThreadID: "t", Lane: "message-read", HistoryID: account.HistoryID + 1})
		answered <- y.PostTo(held, "MessageRead", y.Body(apptest.Push{Data: data, Attributes: attributes, MessageID: "1", Attempt: 1}), nil)
	}()
	<-h.held
	unlinker, err := y.App.Unlinker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		removed map[string]int
		err     error
	}
	ended := make(chan result, 1)
	go func() {
		removed, err := unlinker.Unlink(t.Context(), account.ID, func(int) {})
		ended <- result{removed, err}
	}()
	time.Sleep(time.Second) // the first sweep is over
	close(h.release)
	if status := <-answered; status != 204 {
		t.Fatalf("the push was answered %d", status)
	}
	y.Clock.Advance(quiet)
	if r := <-ended; r.err != nil || r.removed["messages"] != 1 {
		t.Errorf("removed %v, %v; want the message that came late", r.removed, r.err)
	}
	assertGone(t, y, account.ID)
}

// Watch and grant are the mailbox's: of two owners one unlinks, and the other keeps receiving.
func TestTwoOwnersOneUnlinks(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	y.Start()
	box := addMailbox(t, y, "kim@example.com", "refresh-1")
	if _, err := y.Gmail.AddMailbox("kim@example.com", "refresh-2"); err != nil {
		t.Fatal(err)
	}
	one, two := linkTo(t, y, "u-1", "refresh-1"), linkTo(t, y, "u-2", "refresh-2")
	deliverMany(t, box, 3)
	y.Settle()
	if _, err := unlink(t, y, one.ID, nil); err != nil {
		t.Fatal(err)
	}
	deliverMany(t, box, 3)
	y.Settle()
	y.AssertMirror(two.ID, box)
	left, err := y.DB.Leftovers(t.Context(), one.ID)
	if err != nil || len(left) > 0 {
		t.Errorf("left of the first: %v, %v", left, err)
	}
	if calls := y.Gmail.Stats().Calls; calls["stop"] != 0 || calls["revoke"] != 0 {
		t.Errorf("called %v", calls)
	}
	if _, err := unlink(t, y, two.ID, nil); err != nil {
		t.Fatal(err)
	}
	if calls := y.Gmail.Stats().Calls; calls["stop"] != 1 || calls["revoke"] != 1 {
		t.Errorf("after the last owner called %v", calls)
	}
	assertGone(t, y, two.ID)
}

// Stopped at any point, and with Google down, unlinking goes on where it was.
func TestUnlinkGoesOn(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	y.Start()
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := linkTo(t, y, "u-17", "refresh")
	deliverMany(t, box, 5)
	y.Settle()
	unlinker, err := y.App.Unlinker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	down, err := y.Gmail.AddFault(gmailsim.Fault{Method: "revoke", Status: 503})
	if err != nil {
		t.Fatal(err)
	}
	stopped, stop := context.WithCancel(t.Context())
	if _, err := unlinker.Unlink(stopped, account.ID, func(int) { stop() }); err == nil {
		t.Fatal("it went on after it was stopped")
	}
	linker, err := y.App.Linker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := linker.Link(t.Context(), mailbox.Grant{Owner: "u-17", RefreshToken: "refresh"}); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "being unlinked") {
		t.Errorf("linked while it is being unlinked: %v", err)
	}
	if _, err := unlink(t, y, account.ID, nil); err == nil || !strings.Contains(err.Error(), "credential") {
		t.Errorf("with Google down: %v", err)
	}
	left, err := y.DB.Leftovers(t.Context(), account.ID)
	if err != nil || len(left) != 1 || left["credential"] != 1 {
		t.Errorf("with Google down left %v, %v", left, err)
	}
	y.Gmail.RemoveFault(down)
	if _, err := unlink(t, y, account.ID, nil); err != nil {
		t.Fatal(err)
	}
	assertGone(t, y, account.ID)
	// What somebody else has taken away by half is swept as well.
	if err := y.DB.SaveLabels(t.Context(), account.ID, []mail.Label{{ID: "x", Name: "x"}}); err != nil {
		t.Fatal(err)
	}
	if removed, err := unlink(t, y, account.ID, nil); err != nil || removed["labels"] != 1 {
		t.Errorf("removed %v, %v", removed, err)
	}
	assertGone(t, y, account.ID)
}
