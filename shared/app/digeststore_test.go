package app_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/mailing"
)

// filled fails the test where a field was forgotten, so that a new one cannot be lost unseen.
func filled(t *testing.T, v any, but ...string) {
	t.Helper()
	value := reflect.ValueOf(v)
fields:
	for i := range value.NumField() {
		name := value.Type().Field(i).Name
		for _, b := range but {
			if name == b {
				continue fields
			}
		}
		if value.Field(i).IsZero() {
			t.Errorf("the test gives no value to %T.%s", v, name)
		}
	}
}

// What digests keep comes back as it was, and each write checks what it replaces.
func TestDigestStore(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	at := time.Date(2026, 11, 30, 7, 0, 0, 123000, time.UTC)
	ctx := t.Context()

	s := mailing.Subscriber{
		ID: "sub", AccountID: "acc", Email: "kim@example.com", Frequency: mailing.Weekly, Weekday: time.Friday, Timezone: "Asia/Tokyo",
		Sequence: 7, DigestedDay: "2026-11-27", DigestedUntil: at, CreatedAt: at.Add(1e6), DeletedAt: at.Add(2e6),
	}
	filled(t, s, "Version")
	if _, err := y.DB.ChangeSubscriber(ctx, s.ID, func(mailing.Subscriber) (mailing.Subscriber, bool) { return s, true }); err != nil {
		t.Fatal(err)
	}
	read := y.Subscriber(s.ID)
	s.Version = read.Version
	if d := cmp.Diff(s, read); d != "" || s.Version.IsZero() {
		t.Errorf("a subscriber changed on its way: %s", d)
	}

	m := mailing.Mailing{
		ID: "sub.7", SubscriberID: "sub", AccountID: "acc", Sequence: 7, Run: "2026-11-30", Frequency: mailing.Weekly,
		Status: mailing.Processing, Awaits: mailing.AwaitsAdvance, Claim: "claim", Attempts: 2, Retried: true, Error: "no_answer",
		Payload: mailing.Payload{
			Mailbox: "box@example.com", Since: at, Until: at.Add(1e6), Unread: 3, New: 4, Others: 1, DeadLetters: 2,
			Senders: []mailing.SenderNews{{From: "Ann", Count: 3, Subjects: []string{"one", "two"}}},
		},
		Resolutions: []mailing.Resolution{{Who: "op", As: mailing.AsAgain, Reason: "r", At: at}},
		CreatedAt:   at, ClaimedAt: at.Add(1e6), SentAt: at.Add(2e6), AlertAt: at.Add(3e6), ExpireAt: at.Add(4e6),
	}
	filled(t, m, "Version")
	filled(t, m.Payload)
	change := func(read, become mailing.Mailing) []mailing.Changed[mailing.Mailing] {
		return []mailing.Changed[mailing.Mailing]{{Read: read, Become: become}}
	}
	if saved, err := y.DB.SaveMailings(ctx, change(mailing.Mailing{}, m), nil); err != nil || !saved {
		t.Fatal(saved, err)
	}
	back := y.Mailing("sub", 7)
	m.Version = back.Version
	if d := cmp.Diff(m, back); d != "" {
		t.Errorf("a mailing changed on its way: %s", d)
	}
	if saved, err := y.DB.SaveMailings(ctx, change(mailing.Mailing{}, m), nil); err != nil || saved {
		t.Errorf("made twice: %v, %v", saved, err)
	}
	moved := read
	moved.Sequence = 8
	if saved, err := y.DB.SaveMailings(ctx, change(back, back.Sent(at)), []mailing.Changed[mailing.Subscriber]{{Read: read, Become: moved}}); err != nil || !saved {
		t.Fatal(saved, err)
	}
	moved.Sequence = 9
	other := mailing.Make(mailing.Subscriber{ID: "other", Sequence: 1}, "2026-11-30", mailing.Payload{}, at)
	if saved, err := y.DB.SaveMailings(ctx, change(mailing.Mailing{}, other), []mailing.Changed[mailing.Subscriber]{{Read: read, Become: moved}}); err != nil || saved {
		t.Errorf("written over a later write: %v, %v", saved, err)
	}
	if _, found, err := y.DB.Mailing(ctx, other.ID); err != nil || found || y.Subscriber("sub").Sequence != 8 {
		t.Errorf("half of a commit was made: %v, %v", found, err)
	}

	r := mailing.Run{
		Day: "2026-11-30", Phase: mailing.Send, After: "sub.7", HandedTo: "2026-12-01",
		Counts:    mailing.Counts{Read: 1, Filtered: 2, Daily: 3, Weekly: 4, Busy: 5, Sent: 6, Failed: 7, Processing: 8, Unsubscribed: 9, Left: 10, Retried: 11},
		StartedAt: at, FinishedAt: at.Add(1e6), InARow: 1, Pauses: 2, PausedUntil: at.Add(2e6), PaceUntil: at.Add(3e6), Claim: "c", DueAt: at.Add(4e6),
	}
	filled(t, r, "Version")
	filled(t, r.Counts)
	if saved, err := y.DB.SaveRun(ctx, mailing.Run{}, r); err != nil || !saved {
		t.Fatal(saved, err)
	}
	run := y.Run(r.Day)
	r.Version = run.Version
	if d := cmp.Diff(r, run); d != "" {
		t.Errorf("a run changed on its way: %s", d)
	}
	if saved, err := y.DB.SaveRun(ctx, mailing.Run{}, r); err != nil || saved {
		t.Errorf("a second run of a day: %v, %v", saved, err)
	}
}

// Queries find what they say, in order, page by page, and count it.
func TestDigestQueries(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	ctx, at := t.Context(), time.Date(2026, 11, 30, 7, 0, 0, 0, time.UTC)
	var made []mailing.Changed[mailing.Mailing]
	add := func(run mailing.Day, id string, change func(mailing.Mailing) mailing.Mailing) {
		m := mailing.Make(mailing.Subscriber{ID: id, Sequence: 1}, run, mailing.Payload{}, at)
		made = append(made, mailing.Changed[mailing.Mailing]{Become: change(m)})
	}
	as := func(m mailing.Mailing) mailing.Mailing { return m }
	for i := range 5 {
		add("2026-11-30", fmt.Sprintf("p%d", i), as)
	}
	add("2026-11-29", "earlier", as)
	claimed := func(m mailing.Mailing) mailing.Mailing { return m.Claimed("c", at) }
	add("2026-11-30", "x", claimed)
	add("2026-11-30", "d", func(m mailing.Mailing) mailing.Mailing { m = claimed(m).Sent(at); m.Retried = true; return m })
	add("2026-11-30", "f", func(m mailing.Mailing) mailing.Mailing { return claimed(m).NotSent("bad_request") })
	add("2026-11-30", "u", func(m mailing.Mailing) mailing.Mailing { return m.Dropped() })
	if saved, err := y.DB.SaveMailings(ctx, made, nil); err != nil || !saved {
		t.Fatal(saved, err)
	}
	ids := func(list []mailing.Mailing, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		all := ""
		for _, m := range list {
			all += m.SubscriberID + " "
		}
		return all
	}
	for name, c := range map[string]struct{ got, want string }{
		"what is to be sent":    {ids(y.DB.MailingsAwaiting(ctx, "2026-11-30", mailing.AwaitsSend, "", 3)), "p0 p1 p2 "},
		"the next page of that": {ids(y.DB.MailingsAwaiting(ctx, "2026-11-30", mailing.AwaitsSend, "p2.1", 3)), "p3 p4 "},
		"what is to advance":    {ids(y.DB.MailingsAwaiting(ctx, "2026-11-30", mailing.AwaitsAdvance, "", 10)), "d f u x "},
		"what nobody knows of":  {ids(y.DB.MailingsProcessing(ctx, "", 10)), "x "},
		"nobody is told yet":    {ids(y.DB.MailingsToTell(ctx, at.Add(time.Hour-time.Second), 10)), ""},
		"who is to be told of":  {ids(y.DB.MailingsToTell(ctx, at.Add(time.Hour), 10)), "x "},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", name, c.got, c.want)
		}
	}
	counts, err := y.DB.CountMailings(ctx, "2026-11-30")
	if want := (mailing.Counts{Sent: 1, Failed: 1, Processing: 1, Unsubscribed: 1, Left: 5, Retried: 1}); err != nil || counts != want {
		t.Errorf("counted %+v, %v", counts, err)
	}

	for _, r := range []mailing.Run{
		{Day: "2026-11-29", Phase: mailing.Finished}, {Day: "2026-12-01", Phase: mailing.Generate, DueAt: at.Add(time.Minute)},
		{Day: "2026-11-30", Phase: mailing.Advance, DueAt: at},
	} {
		if saved, err := y.DB.SaveRun(ctx, mailing.Run{}, r); err != nil || !saved {
			t.Fatal(saved, err)
		}
	}
	days := func(list []mailing.Run, err error) (all string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			all += string(r.Day) + " "
		}
		return all
	}
	newest, found, err := y.DB.NewestRun(ctx)
	if err != nil || !found || newest.Day != "2026-12-01" {
		t.Errorf("the newest run is %+v, %v", newest, err)
	}
	if got := days(y.DB.OpenRuns(ctx)); got != "2026-11-30 2026-12-01 " {
		t.Errorf("open are %s", got)
	}
	if got := days(y.DB.RunsDue(ctx, at)); got != "2026-11-30 " {
		t.Errorf("due are %s", got)
	}
}
