package mail_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"mailyard.internal/mailyard/shared/mail"
)

// A history is the true story of one message. Record 0 is where it begins: it was added, or it is
// from before the mailbox was linked and has no event.
type history struct {
	ids     []mail.HistoryID
	labels  []map[string]bool // after each record
	events  []mailEvent
	deleted bool // by the last record, for good
}

// A mailEvent is a delivery on a lane: a fetch, a flag's new value, or a deletion.
type mailEvent struct {
	record int
	kind   string // "fetch", "flag", "delete"
	field  string
	value  bool
}

func (h history) String() string {
	var b strings.Builder
	for i, id := range h.ids {
		fmt.Fprintf(&b, "%d%v ", id, h.labels[i])
	}
	return fmt.Sprintf("%sdeleted at the end: %t, events %+v", b.String(), h.deleted, h.events)
}

func drawHistory(t *rapid.T) history {
	var h history
	id, now := mail.HistoryID(100), map[string]bool{}
	record := func() int {
		id += mail.HistoryID(rapid.IntRange(1, 3).Draw(t, "gap"))
		h.ids = append(h.ids, id)
		h.labels = append(h.labels, map[string]bool{"unread": now["unread"], "trashed": now["trashed"]})
		return len(h.ids) - 1
	}
	for _, field := range fields {
		now[field] = rapid.Bool().Draw(t, field)
	}
	record()
	if rapid.IntRange(0, 3).Draw(t, "linked before it came") > 0 {
		h.events = append(h.events, mailEvent{kind: "fetch"})
	}
	for range rapid.IntRange(1, 6).Draw(t, "changes") {
		// One record may change both, or only labels that no lane follows.
		changed := []string{}
		for _, field := range fields {
			if rapid.IntRange(0, 2).Draw(t, "change "+field) > 0 {
				now[field] = !now[field]
				changed = append(changed, field)
			}
		}
		i := record()
		for _, field := range changed {
			h.events = append(h.events, mailEvent{i, "flag", field, now[field]})
		}
	}
	h.deleted = rapid.IntRange(0, 3).Draw(t, "end") == 0
	if h.deleted {
		h.events = append(h.events, mailEvent{record: record(), kind: "delete"})
	}
	return h
}

// A schedule is one way in which the events of a history may come, and what each fetch happens to see.
type schedule struct {
	history
	random  *rand.Rand
	guard   func(message, event mail.HistoryID) mail.HistoryID
	m       mail.Message
	pending []func()
	trouble int // how many more fetches are throttled, or find nothing where there is something
	writes  []mail.Change
}

func (s *schedule) later(do func()) { s.pending = append(s.pending, do) }

func (s *schedule) write(c mail.Change) {
	s.writes = append(s.writes, c)
	s.m = mail.Apply(s.m, c)
}

func (s *schedule) deliver(e mailEvent) {
	id := s.ids[e.record]
	switch e.kind {
	case "fetch":
		s.fetch(e)
	case "delete":
		s.write(mail.Deletion{HistoryID: id, ThreadID: "t"})
	case "flag":
		s.write(mail.Flag{Field: e.field, Value: e.value, HistoryID: id, ThreadID: "t"})
		if s.m.NeedsContent() {
			s.later(func() { s.deliver(mailEvent{record: e.record, kind: "fetch"}) })
		}
	}
}

// fetch looks at Gmail now and writes later: others may write in between.
func (s *schedule) fetch(e mailEvent) {
	id, last := s.ids[e.record], len(s.ids)-1
	if s.m.Guards[mail.FacetContent] >= id {
		return
	}
	moment := e.record + s.random.IntN(last-e.record+1)
	gone := s.deleted && moment == last
	if s.trouble > 0 && s.random.IntN(3) == 0 {
		s.trouble--
		if s.random.IntN(2) == 0 {
			s.later(func() { s.m = mail.Defer(s.m, mail.Event{HistoryID: id, ThreadID: "t"}, time.Unix(1, 0)) })
			return
		}
		// The index lags: nothing is found yet, and a tombstone is concluded. That heals as long as
		// a copy of the event finds the message; it does not wait for this one's write.
		if !gone {
			s.later(func() { s.see(e, moment, e.record+s.random.IntN(moment-e.record+1)) })
		}
		gone = true
	}
	if gone {
		s.later(func() { s.write(mail.Deletion{HistoryID: id, ThreadID: "t"}) })
		return
	}
	reported := s.random.IntN(moment+2) - 1 // which record the message's own id is of; -1: it has none
	s.later(func() { s.see(e, moment, reported) })
}

// see writes what a fetch at that moment showed. Its labels may be newer or older than the id that
// the message reports. They miss at most the record that the guard is of: what Gmail has listed, it
// shows, and only that one record may not have arrived everywhere yet.
func (s *schedule) see(e mailEvent, moment, reported int) {
	own, oldest := mail.HistoryID(0), e.record
	if reported >= 0 {
		own, oldest = s.ids[reported], min(reported, e.record)
	}
	oldest = max(oldest-1, 0)
	s.write(mail.Fetched{
		HistoryID: s.guard(own, s.ids[e.record]),
		ThreadID:  "t",
		Flags:     s.labels[oldest+s.random.IntN(moment-oldest+1)],
		Summary:   mail.Summary{Subject: "hello"},
	})
}

// run delivers every event one to three times, in any order, and what follows from them; then it
// does as Tick does until no fetch is due. It returns how the end differs from the truth.
func (s *schedule) run() string {
	s.m = mail.Message{ID: "m"}
	for _, e := range s.events {
		for range 1 + s.random.IntN(3) {
			s.later(func() { s.deliver(e) })
		}
	}
	for ticks := 0; len(s.pending) > 0; {
		i := s.random.IntN(len(s.pending))
		next := s.pending[i]
		s.pending = slices.Delete(s.pending, i, i+1)
		next()
		if len(s.pending) == 0 && !s.m.FetchDueAt.IsZero() {
			if ticks++; ticks > 10 {
				return fmt.Sprintf("a fetch is due again and again: %+v", s.m)
			}
			record := slices.Index(s.ids, s.m.FetchHistoryID)
			s.later(func() { s.deliver(mailEvent{record: record, kind: "fetch"}) })
		}
	}
	if len(s.events) == 0 {
		return "" // nothing was ever said of it
	}
	if s.deleted {
		if !s.m.Deleted || s.m.HasContent {
			return fmt.Sprintf("it is deleted, and the mirror has %+v", s.m)
		}
		return ""
	}
	if s.m.Deleted || !s.m.HasContent || s.m.Subject != "hello" || s.m.ThreadID != "t" {
		return fmt.Sprintf("it is there, and the mirror has %+v", s.m)
	}
	if want := s.labels[len(s.labels)-1]; !maps.Equal(want, s.m.Flags) {
		return fmt.Sprintf("its flags are %v, and the mirror has %v", want, s.m.Flags)
	}
	return ""
}

const schedulesPerHistory = 1_000

// However late, often and in whatever order the events come, and whatever a fetch sees of labels and
// ids that don't belong together: once all have arrived the mirror is what the mailbox is.
func TestEveryScheduleEndsInTheTruth(t *testing.T) {
	t.Parallel()
	var tried atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		h, seed := drawHistory(t), rapid.Uint64().Draw(t, "seed")
		for n := range uint64(schedulesPerHistory) {
			s := schedule{history: h, random: rand.New(rand.NewPCG(seed, n)), guard: mail.FetchGuard, trouble: int(n % 4)}
			if wrong := s.run(); wrong != "" {
				t.Fatalf("%s\nhistory %v\nwrites %+v", wrong, h, s.writes)
			}
			tried.Add(1)
		}
	})
	t.Logf("%d schedules, each ending in the truth", tried.Load())
}

// The simulation can tell a guard that is too high: the message's own id ends wrong where its labels
// are older than that id.
func TestGuardOfTheMessagesOwnIDWouldEndWrong(t *testing.T) {
	t.Parallel()
	own := func(message, event mail.HistoryID) mail.HistoryID {
		if message == 0 {
			return event
		}
		return message
	}
	wrong, tried := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		h, seed := drawHistory(t), rapid.Uint64().Draw(t, "seed")
		for n := range uint64(schedulesPerHistory / 10) {
			s := schedule{history: h, random: rand.New(rand.NewPCG(seed, n)), guard: own}
			if tried++; s.run() != "" {
				wrong++
			}
		}
	})
	if wrong == 0 {
		t.Fatalf("none of %d schedules ended wrong: the simulation could not tell a wrong guard", tried)
	}
	t.Logf("%d of %d schedules would end wrong (%.1f %%)", wrong, tried, 100*float64(wrong)/float64(tried))
}
