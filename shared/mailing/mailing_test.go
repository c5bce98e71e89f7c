package mailing

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"mailyard.internal/mailyard/shared/mail"
)

var start = time.Date(2026, 11, 30, 6, 0, 0, 0, time.UTC)

// Whatever workers, later runs and operators do to a mailing, in any order: it is sent at most once for
// each time that nobody, or an operator with a reason, had it in hand.
func TestLawAtMostOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := start
		s := Subscriber{ID: "s", AccountID: "a", Frequency: Daily, Sequence: 1, Version: start}
		m := Make(s, DayOf(start, time.UTC), Payload{}, now)
		days := 0
		type hand struct {
			claim string
			sent  bool
		}
		var hands []hand // every claim that ever got hold of it
		reallySent, again := 0, 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Minute)
			pick := 0
			if len(hands) > 0 {
				pick = rapid.IntRange(0, len(hands)-1).Draw(t, "hand")
			}
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0: // a worker claims what it may send
				if m.Sendable(m.Run) {
					claim := string(rune('a' + len(hands)))
					m = m.Claimed(claim, now)
					hands = append(hands, hand{claim: claim})
				}
			case 1: // whoever holds it sends it, and may be killed before it is written down
				if len(hands) > 0 && m.HeldBy(hands[pick].claim) && !hands[pick].sent {
					hands[pick].sent = true
					reallySent++
				}
			case 2:
				if len(hands) > 0 && m.HeldBy(hands[pick].claim) && hands[pick].sent {
					m = m.Sent(now)
				}
			case 3: // certainly not sent
				if len(hands) > 0 && m.HeldBy(hands[pick].claim) && !hands[pick].sent {
					m = m.NotSent("throttled")
				}
			case 4: // given back without a call
				if len(hands) > 0 && m.HeldBy(hands[pick].claim) && !hands[pick].sent {
					m = m.Released()
				}
			case 5: // the subscriber moves on
				if m.Awaits == AwaitsAdvance {
					m.Awaits = ""
					s, _ = m.Advance(s)
				}
			case 6: // the next day's run
				days++
				if day := DayOf(start.AddDate(0, 0, days), time.UTC); m.Free(day) && s.Sequence == m.Sequence {
					m = m.TakenOver(s, day, Payload{}, now)
				}
			case 7:
				as := rapid.SampledFrom([]ResolvedAs{AsSent, AsFailed, AsAgain}).Draw(t, "as")
				become, open := m.Resolved(Resolution{Who: "op", As: as, Reason: "r", At: now})
				if open != (m.Status == Processing) {
					t.Fatalf("an operator may resolve %s: %v", m.Status, open)
				}
				if open && as == AsAgain {
					again++
				}
				m = become
			}
			if m.Status == Processing && m.Sendable(m.Run) {
				t.Fatal("what is being processed may be sent")
			}
			if m.Status == Done && (m.Sendable(m.Run) || m.Free("9")) {
				t.Fatal("what is sent may be sent")
			}
			failedByOperator := 0
			for _, r := range m.Resolutions {
				if r.As == AsFailed {
					failedByOperator++
				}
			}
			if reallySent > 1+again+failedByOperator {
				t.Fatalf("sent %d times, with %d operators who wanted it again", reallySent, again)
			}
			if s.Sequence > 2 {
				t.Fatalf("one mailing moved its subscriber to %d", s.Sequence)
			}
		}
	})
}

func TestAdvanceFromExactlyTheNumber(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		status   Status
		attempts int
		sequence int64 // the subscriber's; the mailing's is 5
		want     int64
	}{
		{"sent", Done, 1, 5, 6},
		{"may have been sent", Processing, 1, 5, 6},
		{"failed, to be tried again", Failed, 1, 5, 5},
		{"failed for the last time", Failed, MaxAttempts, 5, 6},
		{"not sent yet", Pending, 0, 5, 5},
		{"sent, but the subscriber has moved on", Done, 1, 6, 6},
		{"sent, but the subscriber is not there yet", Done, 1, 4, 4},
	} {
		s := Subscriber{ID: "s", Sequence: c.sequence, Version: start}
		m := Mailing{Status: c.status, Attempts: c.attempts, Sequence: 5, Run: "2026-11-30", Payload: Payload{Until: start}}
		got, moved := m.Advance(s)
		if got.Sequence != c.want || moved != (c.want != c.sequence) {
			t.Errorf("%s: %d, %v", c.name, got.Sequence, moved)
		}
		if told := c.status != Failed && moved; told == got.DigestedUntil.IsZero() {
			t.Errorf("%s: the next digest tells from %v on", c.name, got.DigestedUntil)
		}
	}
	if _, moved := (Mailing{Status: Done, Sequence: 0}).Advance(Subscriber{}); moved {
		t.Error("a subscriber that is gone was moved")
	}
}

func TestSubscriptionCheck(t *testing.T) {
	t.Parallel()
	good := Subscription{Account: "abc", Email: "kim@example.com"}
	with := func(change func(*Subscription)) Subscription { s := good; change(&s); return s }
	for _, c := range []struct {
		name  string
		s     Subscription
		wrong string // "" for none
	}{
		{"the least", good, ""},
		{"weekly", with(func(s *Subscription) { s.Frequency, s.Weekday, s.Timezone = "Weekly", "Friday", "Europe/Zurich" }), ""},
		{"weekly without a day is on monday", with(func(s *Subscription) { s.Frequency = "weekly" }), ""},
		{"unknown frequency", with(func(s *Subscription) { s.Frequency = "hourly" }), `the frequency "hourly" is unknown; write daily or weekly`},
		{"impossible timezone", with(func(s *Subscription) { s.Timezone = "Mars/Olympus" }), `the timezone "Mars/Olympus" is none`},
		{"the machine's own timezone", with(func(s *Subscription) { s.Timezone = "Local" }), "is none"},
		{"no weekday", with(func(s *Subscription) { s.Frequency, s.Weekday = "weekly", "someday" }), `"someday" is no weekday`},
		{"a weekday for daily", with(func(s *Subscription) { s.Weekday = "monday" }), "a weekday is for weekly digests"},
		{"no address", with(func(s *Subscription) { s.Email = "kim" }), "is not a mail address"},
		{"an address with a header in it", with(func(s *Subscription) { s.Email = "kim@example.com\r\nBcc: all@example.com" }), "is not a mail address"},
		{"no account", with(func(s *Subscription) { s.Account = "a/b" }), "is not an account's id"},
	} {
		got, err := c.s.Check()
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", c.name, err, c.wrong)
		}
		if err != nil && strings.Contains(err.Error(), "kim") {
			t.Errorf("%s: the sentence repeats the address: %v", c.name, err)
		}
		if c.wrong == "" && (got.Sequence != 1 || got.ID != SubscriberID("abc", "KIM@example.com") || got.Timezone == "") {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	_, err := Subscription{Frequency: "x", Timezone: "y"}.Check()
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("every mistake has its sentence: %v", err)
	}
}

func TestRenewedKeepsTheNumbers(t *testing.T) {
	t.Parallel()
	wanted, err := Subscription{Account: "abc", Email: "kim@example.com", Frequency: "weekly"}.Check()
	if err != nil {
		t.Fatal(err)
	}
	there := Subscriber{ID: wanted.ID, Sequence: 7, CreatedAt: start, DeletedAt: start.Add(time.Hour), Version: start}
	got := there.Renewed(wanted, start.Add(2*time.Hour))
	if got.Sequence != 7 || got.Deleted() || got.Frequency != Weekly || !got.CreatedAt.Equal(start.Add(2*time.Hour)) {
		t.Errorf("%+v", got)
	}
}

func TestDue(t *testing.T) {
	t.Parallel()
	monday := Day("2026-11-30")
	created := start.AddDate(0, -1, 0)
	for _, c := range []struct {
		name string
		s    Subscriber
		day  Day
		want bool
	}{
		{"daily", Subscriber{Frequency: Daily, CreatedAt: created}, monday, true},
		{"daily, has today's", Subscriber{Frequency: Daily, CreatedAt: created, DigestedDay: monday}, monday, false},
		{"weekly, on its day", Subscriber{Frequency: Weekly, Weekday: time.Monday, CreatedAt: created, DigestedDay: "2026-11-23"}, monday, true},
		{"weekly, on another day", Subscriber{Frequency: Weekly, Weekday: time.Sunday, CreatedAt: created, DigestedDay: "2026-11-29"}, monday, false},
		{"weekly, its run was missed", Subscriber{Frequency: Weekly, Weekday: time.Saturday, CreatedAt: created, DigestedDay: "2026-11-21"}, monday, true},
		{"weekly, made up for", Subscriber{Frequency: Weekly, Weekday: time.Saturday, CreatedAt: created, DigestedDay: monday}, "2026-12-01", false},
		{"weekly, missed for weeks: once", Subscriber{Frequency: Weekly, Weekday: time.Saturday, CreatedAt: created, DigestedDay: "2026-11-01"}, monday, true},
		{"weekly, subscribed since its day", Subscriber{Frequency: Weekly, Weekday: time.Saturday, CreatedAt: start}, monday, false},
		{"weekly, subscribed on its day", Subscriber{Frequency: Weekly, Weekday: time.Monday, CreatedAt: start}, monday, true},
	} {
		if got := c.s.Due(c.day, time.UTC); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// However often, and on whichever days, runs take place, a weekly subscriber gets one digest for a week
// in which any did on or after its day.
func TestLawWeeklyOnceAWeek(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := Subscriber{Frequency: Weekly, Weekday: time.Weekday(rapid.IntRange(0, 6).Draw(t, "weekday")), CreatedAt: start.AddDate(0, 0, -30)}
		weeks := map[Day]int{}
		date := start
		for range rapid.IntRange(1, 40).Draw(t, "runs") {
			date = date.AddDate(0, 0, rapid.IntRange(0, 10).Draw(t, "days"))
			day := DayOf(date, time.UTC)
			week := day.Last(s.Weekday)
			if s.Due(day, time.UTC) {
				weeks[week]++
				s.DigestedDay = day
			}
			if weeks[week] != 1 {
				t.Fatalf("on %s, %d digests for the week of %s", day, weeks[week], week)
			}
		}
	})
}

func TestNewsOf(t *testing.T) {
	t.Parallel()
	var messages []mail.Summary
	for i := range 30 {
		messages = append(messages, mail.Summary{From: "sender " + string(rune('a'+i%15)), Subject: "hello"})
	}
	messages = append(messages, mail.Summary{From: "sender b", Subject: ""})
	senders, others := NewsOf(messages, 500)
	if len(senders) != maxSenders || senders[0].From != "sender b" || senders[0].Count != 3 {
		t.Errorf("%+v", senders)
	}
	sum := others
	for _, s := range senders {
		sum += s.Count
	}
	if sum != 500 || !slices.Contains(senders[0].Subjects, "(no subject)") {
		t.Errorf("%d messages are told of: %+v", sum, senders[0])
	}
}

func TestLawLine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text") + rapid.SampledFrom([]string{"", "\r\nBcc: x", "\u202Egnp.exe", "\x00", "\u2028"}).Draw(t, "more")
		n := rapid.IntRange(1, 50).Draw(t, "characters")
		line := Line(text, n)
		if len([]rune(line)) > n || strings.ContainsAny(line, "\r\n\x00\u2028\u2029\u202E\u2066") {
			t.Fatalf("%q becomes %q", text, line)
		}
		if Line(line, n) != line {
			t.Fatalf("%q is not stable", line)
		}
	})
}

func TestDecodeRequest(t *testing.T) {
	t.Parallel()
	want := Request{"2026-11-30", Send, "abc.1"}
	data, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if string(data) != `{"run":"2026-11-30","phase":"send","after":"abc.1"}` {
		t.Errorf("on the wire it is %s", data)
	}
	if got, err := DecodeRequest(data); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{``, `[]`, `{"run":"today","phase":"send"}`, `{"run":"2026-11-31","phase":"send"}`, `{"run":"2026-11-30","phase":"done"}`} {
		if _, err := DecodeRequest([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	right := Counts{Read: 10, Filtered: 3, Daily: 4, Weekly: 2, Busy: 1, Sent: 2, Failed: 1, Processing: 1, Unsubscribed: 1, Left: 1}
	if wrong := right.Differences(); len(wrong) != 0 {
		t.Errorf("%v", wrong)
	}
	one, both := right, right
	one.Sent--
	both.Sent--
	both.Read++
	if len(one.Differences()) != 1 || len(both.Differences()) != 2 {
		t.Errorf("%v; %v", one.Differences(), both.Differences())
	}
}
