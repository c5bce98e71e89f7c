package mail_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mailyard.internal/mailyard/shared/mail"
)

var (
	soon  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later = soon.Add(time.Minute)
)

func TestDefer(t *testing.T) {
	t.Parallel()
	event := func(id mail.HistoryID) mail.Event { return mail.Event{HistoryID: id, ThreadID: "t"} }
	fetched := func(id mail.HistoryID) mail.Fetched { return mail.Fetched{HistoryID: id} }
	for _, c := range []struct {
		name    string
		message mail.Message
		due     time.Time
		fetch   mail.HistoryID
	}{
		{"a message not known yet", mail.Defer(mail.Message{}, event(5), soon), soon, 5},
		{"a greater event after", mail.Defer(mail.Defer(mail.Message{}, event(5), soon), event(7), later), later, 7},
		{"a smaller event after", mail.Defer(mail.Defer(mail.Message{}, event(7), soon), event(5), later), later, 7},
		{"fetched already, for this event", mail.Defer(mail.Apply(mail.Message{}, fetched(5)), event(5), soon), time.Time{}, 0},
		{"fetched already, for an older one", mail.Defer(mail.Apply(mail.Message{}, fetched(4)), event(5), soon), soon, 5},
		{"deleted already", mail.Defer(mail.Apply(mail.Message{}, mail.Deletion{HistoryID: 6}), event(5), soon), time.Time{}, 0},
		{"thought deleted before", mail.Defer(mail.Apply(mail.Message{}, mail.Deletion{HistoryID: 4}), event(5), soon), soon, 5},
		{"fetched after", mail.Apply(mail.Defer(mail.Message{}, event(5), soon), fetched(5)), time.Time{}, 0},
		{"fetched after, under an older id", mail.Apply(mail.Defer(mail.Apply(mail.Message{}, fetched(4)), event(5), soon), fetched(3)), time.Time{}, 0},
		{"deleted after", mail.Apply(mail.Defer(mail.Message{}, event(5), soon), mail.Deletion{HistoryID: 6}), time.Time{}, 0},
		{"a flag after", mail.Apply(mail.Defer(mail.Message{}, event(5), soon), mail.Flag{Field: "unread", HistoryID: 6}), soon, 5},
		{"made a stub after", mail.Stub(mail.Defer(mail.Message{}, event(5), soon), event(5)), time.Time{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if !c.message.FetchDueAt.Equal(c.due) || c.message.FetchHistoryID != c.fetch {
				t.Errorf("due at %v for %d, want %v for %d", c.message.FetchDueAt, c.message.FetchHistoryID, c.due, c.fetch)
			}
		})
	}
}

func TestStubAndDeferLeaveTheRestAlone(t *testing.T) {
	t.Parallel()
	read := mail.Apply(mail.Message{ID: "m"}, mail.Flag{Field: "unread", Value: true, HistoryID: 5})
	for name, got := range map[string]mail.Message{
		"Defer": mail.Defer(read, mail.Event{HistoryID: 6, ThreadID: "t"}, soon),
		"Stub":  mail.Stub(read, mail.Event{HistoryID: 6, ThreadID: "t"}),
	} {
		want := read
		want.ThreadID = "t"
		ignore := cmpopts.IgnoreFields(mail.Message{}, "FetchDueAt", "FetchHistoryID")
		if d := cmp.Diff(want, got, ignore); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if !got.NeedsContent() {
			t.Errorf("%s: the message no longer needs its content", name)
		}
	}
	if read.ThreadID != "" || !read.FetchDueAt.IsZero() {
		t.Error("the message that was read has changed")
	}
}

func TestDiffer(t *testing.T) {
	t.Parallel()
	read := applyAll(mail.Message{ID: "m"}, mail.Fetched{HistoryID: 5, ThreadID: "t", Flags: map[string]bool{"unread": true}})
	for _, c := range []struct {
		name   string
		become mail.Message
		want   bool
	}{
		{"the same", read, false},
		{"a late change", mail.Apply(read, mail.Flag{Field: "unread", Value: false, HistoryID: 4}), false},
		{"a guard alone", mail.Apply(read, mail.Flag{Field: "unread", Value: true, HistoryID: 6}), true},
		{"a flag", mail.Apply(read, mail.Flag{Field: "unread", Value: false, HistoryID: 5}), true},
		{"a new facet", mail.Apply(read, mail.Flag{Field: "starred", Value: false, HistoryID: 6}), true},
		{"a deletion", mail.Apply(read, mail.Deletion{HistoryID: 6}), true},
		{"newer content", mail.Apply(read, mail.Fetched{HistoryID: 6, Flags: map[string]bool{"unread": true}}), true},
		{"a fetch put off", mail.Defer(read, mail.Event{HistoryID: 6}, soon), true},
		{"the moment in another zone", func() mail.Message {
			m := read
			m.FetchDueAt = time.Time{}.In(time.FixedZone("", 3600))
			return m
		}(), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := mail.Differ(read, c.become); got != c.want {
				t.Errorf("Differ is %t, want %t", got, c.want)
			}
		})
	}
	thread := mail.Stub(mail.Message{ID: "m"}, mail.Event{ThreadID: "t"})
	if !mail.Differ(mail.Message{ID: "m"}, thread) {
		t.Error("a thread that became known is not written")
	}
}
