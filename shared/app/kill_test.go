//go:build linux

package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"

	"mailyard.internal/mailyard/scripts/local/courier"
	"mailyard.internal/mailyard/scripts/local/mirror"
	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

const (
	killers   = 3    // runs at once
	killBound = 1000 // more steps than a function can have in a run
)

// An instance is killed at every step of everything it does, one step a run: before a call goes out,
// after its answer has come, and before a push is answered. Another takes over, and however much of
// the first one's work was half done, in the end everything is there, and once.
func TestKilledAtAnyStep(t *testing.T) {
	t.Parallel()
	apptest.NeedEmulators(t)
	began := time.Now()
	functions := killedFunctions(t)
	every := 1
	if testing.Short() {
		every = 10
	}
	var workers sync.WaitGroup
	for first := range killers {
		workers.Go(func() {
			// Each worker begins with another function, and helps with those that are left.
			for i := range functions {
				f := functions[(first+i)%len(functions)]
				// How many steps there are differs a little with what happens at the same time, so one
				// run that had fewer is not taken for the end.
				for f.spared.Load() < 2 {
					at := int(f.next.Add(1)-1)*every + 1
					if at > killBound {
						break
					}
					t.Run(fmt.Sprintf("%s at step %d", f.name, at), func(t *testing.T) {
						if point := killAt(t, f.name, at); point != "" {
							f.killedAt(point)
						} else {
							f.spared.Add(1)
						}
					})
				}
			}
		})
	}
	workers.Wait()
	total := 0
	for _, f := range functions {
		n := 0
		for _, point := range slices.Sorted(maps.Keys(f.points)) {
			t.Logf("%4d × %s %s", f.points[point], f.name, point)
			n += f.points[point]
		}
		if n > 0 && f.spared.Load() == 0 {
			t.Errorf("%s: no run had fewer than %d steps", f.name, killBound)
		}
		total += n
	}
	t.Logf("killed at %d points in %.0f s", total, time.Since(began).Seconds())
}

// A killedFunction counts the runs in which one function is killed.
type killedFunction struct {
	name         string
	next, spared atomic.Int64

	mu     sync.Mutex
	points map[string]int
}

func (f *killedFunction) killedAt(point string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.points[point]++
}

// killedFunctions are Ingest and those of every lane.
func killedFunctions(t *testing.T) []*killedFunction {
	t.Helper()
	catalogue, err := lane.Load()
	if err != nil {
		t.Fatal(err)
	}
	functions := []*killedFunction{{name: lane.IngestRoute.EntryPoint, points: map[string]int{}}}
	for _, l := range catalogue.Lanes {
		functions = append(functions, &killedFunction{name: l.EntryPoint, points: map[string]int{}})
	}
	return functions
}

// killAt runs the scenario with a kill at one step of a function. It returns the point in words, or
// nothing where the function had fewer steps.
func killAt(t *testing.T, function string, at int) (point string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	y := apptest.New(t, apptest.Options{Courier: courier.Options{Base: "http://" + listener.Addr().String(), RetryScale: 0.0005}})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the instances said:\n%s", y.Log)
		}
	})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := y.LinkAndWatch(box, "refresh")
	box.ExpireAccessTokens() // so that the instance has to get one
	changes := y.Tap(lane.MailboxChangesTopic)
	takenOver := startInstances(t, y, listener, killAtStep(function, at))
	y.Start()

	s := &story{t: t, y: y, box: box, account: account.ID}
	s.waitForMirror()
	// Only the last change of each turn is notified: no later push makes up for one that went wrong.
	box.LoseNotifications(2)
	s.deliver("a", "b", "c")
	s.waitForMirror()
	box.LoseNotifications(5)
	s.do("a", "message-read", box.Read)
	s.do("a", "message-trashed", box.Trash)
	s.do("a", "message-restored", box.Untrash)
	s.do("b", "message-permanently-deleted", box.Delete)
	s.do("c", "message-read", box.Read)
	s.do("c", "message-unread", box.Unread)
	s.waitForMirror()
	y.Settle()
	for range 3 {
		if a := y.Account(account.ID); a.RecheckAt.IsZero() {
			break
		}
		y.Clock.Advance(3 * time.Minute)
		y.Tick()
		y.Settle()
	}
	s.checkDocuments()
	s.checkDeliveries()
	s.checkTold(y.Pull(changes))
	select {
	case <-takenOver:
		_, point, _ = strings.Cut(y.Log.String(), killedMark)
		point, _, _ = strings.Cut(point, "\n")
	default:
	}
	return point
}

// A story is what happened in a mailbox, and the events it must make.
type story struct {
	t       *testing.T
	y       *apptest.Yard
	box     *gmailsim.Mailbox
	account string
	ids     map[string]string // of messages, by subject
	events  []mail.Event
}

func (s *story) deliver(subjects ...string) {
	s.t.Helper()
	s.ids = map[string]string{}
	for _, subject := range subjects {
		id, err := s.box.Deliver(s.t.Context(), gmailsim.Mail{From: "bo@example.org", Subject: subject, Text: "text of " + subject})
		if err != nil {
			s.t.Fatal(err)
		}
		s.ids[subject] = id
		s.expect(id, "message-added")
	}
}

func (s *story) do(subject, lane string, operation func(context.Context, string) error) {
	s.t.Helper()
	if err := operation(s.t.Context(), s.ids[subject]); err != nil {
		s.t.Fatal(err)
	}
	s.expect(s.ids[subject], lane)
}

// expect adds the event of the mailbox's newest record.
func (s *story) expect(message, lane string) {
	s.events = append(s.events, mail.Event{AccountID: s.account, MessageID: message, Lane: lane, HistoryID: mail.HistoryID(s.box.HistoryID())})
}

// at returns the historyId of the newest event of a message on one of the lanes.
func (s *story) at(subject string, lanes ...string) mail.HistoryID {
	var at mail.HistoryID
	for _, e := range s.events {
		if e.MessageID == s.ids[subject] && slices.Contains(lanes, e.Lane) {
			at = max(at, e.HistoryID)
		}
	}
	return at
}

// waitForMirror waits until a notification has been worked on and the mirror is the mailbox: what comes
// next must not overtake it.
func (s *story) waitForMirror() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	look := time.NewTicker(15 * time.Millisecond)
	defer look.Stop()
	for {
		mirrored, err := s.y.DB.Messages(ctx, s.account)
		differences := mirror.Differences(s.y.Catalogue.FlagsOf, s.box.Snapshot(), mirrored)
		if err == nil && len(differences) == 0 && !s.y.Account(s.account).LastNotifiedAt.IsZero() {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			s.t.Fatalf("the mirror did not become the mailbox: %v, %q; the cursor is %d, the mailbox at %d",
				err, differences, s.y.Account(s.account).HistoryID, s.box.HistoryID())
		}
	}
}

// A document is what the mirror must hold of a message.
type document struct {
	HasContent, Deleted bool
	Flags               map[string]bool
	Guards              map[string]mail.HistoryID
	Subject, Text       string
}

// checkDocuments holds cursor, ledger, and every document of the mirror against the story.
func (s *story) checkDocuments() {
	t, y := s.t, s.y
	t.Helper()
	want := map[string]document{}
	for subject, id := range s.ids {
		added, deleted := s.at(subject, "message-added"), s.at(subject, "message-permanently-deleted")
		d := document{
			HasContent: deleted == 0, Deleted: deleted != 0,
			Flags: map[string]bool{"unread": s.at(subject, "message-read") <= s.at(subject, "message-added", "message-unread"), "trashed": false},
			Guards: map[string]mail.HistoryID{
				mail.FacetContent: added, mail.FacetDeleted: max(added, deleted),
				"unread":  s.at(subject, "message-added", "message-read", "message-unread"),
				"trashed": s.at(subject, "message-added", "message-trashed", "message-restored"),
			},
		}
		if d.HasContent {
			d.Subject, d.Text = subject, "text of "+subject
		}
		want[id] = d
	}
	mirrored, err := y.DB.Messages(t.Context(), s.account)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]document{}
	for _, m := range mirrored {
		body, err := y.DB.Body(t.Context(), s.account, m.ID)
		if err != nil {
			t.Fatal(err)
		}
		got[m.ID] = document{m.HasContent, m.Deleted, m.Flags, m.Guards, m.Subject, strings.TrimSpace(body.Text)}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the mirror (-want +got):\n%s", diff)
	}
	if at := y.Account(s.account).HistoryID; uint64(at) != s.box.HistoryID() {
		t.Errorf("the cursor is %d, the mailbox at %d", at, s.box.HistoryID())
	}
	for _, e := range y.Entries() {
		if e.Unresolved() {
			t.Errorf("%s is %s: %s", e.ID, e.State, e.Error)
		}
	}
	if letters := y.Deliveries("DeadLetter"); len(letters) > 0 {
		t.Errorf("%d dead letters, such as %v", len(letters), letters[0].Attributes)
	}
}

// checkDeliveries fails unless every event was delivered and acknowledged, under the one id that its
// change has, however often it was published, and nothing else was.
func (s *story) checkDeliveries() {
	s.t.Helper()
	missing := map[string]bool{}
	possible := map[string]bool{}
	for _, e := range s.events {
		missing[e.ID()] = true
		possible[e.ID()] = true
		e.Lane = "message-added" // what finds no content asks for it
		possible[e.ID()] = true
	}
	for _, l := range s.y.Catalogue.Lanes {
		for _, d := range s.y.Deliveries(l.EntryPoint) {
			var data struct{ AccountID, MessageID, Lane, HistoryID string }
			if err := json.Unmarshal(d.Data, &data); err != nil {
				s.t.Fatal(err)
			}
			id := d.Attributes["ce-id"]
			if change := strings.Join([]string{data.AccountID, data.Lane, data.MessageID, data.HistoryID}, "."); id != change {
				s.t.Errorf("the change %s has the ce-id %s", change, id)
			}
			if !possible[id] {
				s.t.Errorf("%s was delivered, which never happened", id)
			}
			if d.Acknowledged() {
				delete(missing, id)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(missing)) {
		s.t.Errorf("%s was never applied", id)
	}
}

// checkTold fails unless the app was told of every event, and of nothing else.
func (s *story) checkTold(messages []*pubsubpb.PubsubMessage) {
	s.t.Helper()
	told := map[string]bool{}
	for _, m := range messages {
		told[m.Attributes["ce-id"]] = true
	}
	for _, e := range s.events {
		if !told[e.ID()] {
			s.t.Errorf("the app was not told of %s", e.ID())
		}
	}
}
