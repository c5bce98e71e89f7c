package alert_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"mailyard.internal/mailyard/shared/alert"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var cause = alert.Cause{Fingerprint: "f1", Consumer: "MessageAdded", Lane: "message-added", Code: "gmail_unavailable", Topic: "gmail-message-added"}

// counted are letters that all died just now.
func counted(open, since int, now time.Time) alert.Counted {
	return alert.Counted{Open: open, Since: since, Before: since, Oldest: noon, Late: since, At: now}
}

func TestTheLifeOfAnAlert(t *testing.T) {
	t.Parallel()
	a, tell := alert.Alert{Key: "f1"}.LetterDied(cause, noon, noon, "one")
	if need, fresh := a.Need(counted(1, 1, noon)); !tell || need != alert.First || fresh != 1 {
		t.Fatalf("the first letter: told at once is %t, as %s of %d", tell, need, fresh)
	}
	if _, tell := a.LetterDied(cause, noon, noon, "two"); tell {
		t.Error("two tell of the same letter at once")
	}
	a = a.Sent(counted(1, 1, noon))
	if _, tell := a.LetterDied(cause, noon, noon.Add(9*time.Minute), "two"); tell {
		t.Error("a letter within the window is told at once")
	}
	if _, mine := a.Returned(noon.Add(9*time.Minute), "tick"); mine {
		t.Error("somebody returns to it before the window ends")
	}

	later := noon.Add(alert.Window)
	a, mine := a.Returned(later, "tick")
	if need, fresh := a.Need(alert.Counted{Open: 5000, Since: 5000, Before: 1, Oldest: noon, At: later}); !mine || need != alert.More || fresh != 4999 {
		t.Fatalf("at the window's end: %t, %s of %d", mine, need, fresh)
	}
	if _, tell := a.LetterDied(cause, later, later, "two"); !tell {
		t.Error("a letter that dies while the window is counted is lost")
	}
	a = a.Sent(alert.Counted{Open: 5000, Since: 5000, Late: 0, At: later})

	later = later.Add(alert.Window)
	a, _ = a.Returned(later, "tick")
	if need, _ := a.Need(counted(5000, 0, later)); need != alert.Nothing {
		t.Fatalf("nothing is new, and %s is told", need)
	}
	a, needed := a.Quiet(counted(5000, 0, later))
	if !needed {
		t.Fatal("forgotten while letters are open")
	}
	if _, tell := a.LetterDied(cause, later.Add(time.Hour), later.Add(time.Hour), "three"); !tell {
		t.Error("the first of a new window is not told at once")
	}

	later = a.SentAt.Add(alert.RemindAfter)
	a, mine = a.Returned(later, "tick")
	if need, _ := a.Need(counted(3, 0, later)); !mine || need != alert.Reminder {
		t.Fatalf("after a day %s is told, by us %t", need, mine)
	}
	a = a.Sent(counted(3, 0, later))
	a, _ = a.Returned(later.Add(alert.Window), "tick")
	if need, _ := a.Need(counted(0, 0, later)); need != alert.Nothing {
		t.Errorf("none is open, and %s is told", need)
	}
	if _, needed := a.Quiet(counted(0, 0, later)); needed {
		t.Error("kept with no letter open")
	}
}

// What cannot be sent stays due, ever more seldom, never before the webhook wants it, and is not lost.
func TestNotSent(t *testing.T) {
	t.Parallel()
	a, _ := alert.Alert{Key: "f1"}.LetterDied(cause, noon, noon, "one")
	now, last := noon, time.Duration(0)
	for range 12 {
		a = a.NotSent(now, time.Time{})
		pause := a.DueAt.Sub(now)
		if pause < last || pause > time.Hour || !a.Unsent {
			t.Fatalf("after %v it waits %v", last, pause)
		}
		now, last = a.DueAt, pause
		if _, mine := a.Returned(now.Add(-time.Second), "x"); mine {
			t.Fatal("returned to before it is due")
		}
		a, _ = a.Returned(now, "tick")
	}
	if last != time.Hour {
		t.Errorf("in the end it waits %v", last)
	}
	if a = a.NotSent(now, now.Add(3*time.Hour)); !a.DueAt.Equal(now.Add(3 * time.Hour)) {
		t.Errorf("the webhook said 3 h, it is due after %v", a.DueAt.Sub(now))
	}
	a, _ = a.Returned(a.DueAt, "tick")
	if need, fresh := a.Need(counted(7, 7, now)); need != alert.First || fresh != 7 {
		t.Errorf("in the end %s of %d is told", need, fresh)
	}
}

func TestNoticesComeOnceADay(t *testing.T) {
	t.Parallel()
	a, tell := alert.Alert{Key: "watch-a1"}.Noticed("A watch is about to lapse", []string{"of account a1"}, noon, "one")
	c := alert.Counted{At: noon}
	if need, _ := a.Need(c); !tell || need != alert.Notice {
		t.Fatalf("%t, %s", tell, need)
	}
	if m := a.Message(alert.Notice, 0, c, "p"); m.Title != "A watch is about to lapse" || len(m.Lines) != 1 || m.Link != "" {
		t.Errorf("the message is %+v", m)
	}
	a = a.Sent(c)
	if _, tell := a.Noticed("again", nil, noon.Add(23*time.Hour), "two"); tell {
		t.Error("told twice within a day")
	}
	if _, tell := a.Noticed("again", nil, noon.Add(24*time.Hour), "two"); !tell {
		t.Error("not told the next day")
	}
	a, _ = a.Returned(a.DueAt, "tick")
	if need, _ := a.Need(c); need != alert.Nothing {
		t.Errorf("after a day %s is told", need)
	}
	if _, needed := a.Quiet(c); needed {
		t.Error("kept for ever")
	}
}

// A letter that was told of is told of no more when it comes to the monitor again, by whatever way.
func TestOldLettersAreNoNews(t *testing.T) {
	t.Parallel()
	a, _ := alert.Alert{Key: "f1"}.LetterDied(cause, noon, noon, "one")
	a = a.Sent(counted(1, 1, noon))
	a, _ = a.Returned(noon.Add(alert.Window), "tick")
	a, _ = a.Quiet(counted(1, 0, noon.Add(alert.Window)))
	hour := noon.Add(time.Hour)
	if next, tell := a.LetterDied(cause, noon, hour, "two"); tell {
		if need, _ := next.Need(alert.Counted{Open: 1, Since: 1, Before: 1, Oldest: noon, At: hour}); need != alert.Nothing {
			t.Errorf("a letter that was told is told again as %s", need)
		}
	}
	if _, tell := a.LetterDied(cause, noon.Add(-2*time.Minute), hour, "two"); tell {
		t.Error("one that died long before is told again")
	}
}

func TestHold(t *testing.T) {
	t.Parallel()
	a := alert.Alert{Key: alert.HoldKey}.Held(noon.Add(time.Hour)).Held(noon.Add(time.Minute))
	if !a.OpenUntil.Equal(noon.Add(time.Hour)) || !a.DueAt.Equal(a.OpenUntil) {
		t.Errorf("held until %v", a.OpenUntil)
	}
	a, mine := a.Returned(noon.Add(time.Hour), "tick")
	if need, _ := a.Need(alert.Counted{At: noon.Add(time.Hour)}); !mine || need != alert.Nothing {
		t.Errorf("%t, %s", mine, need)
	}
	if a, needed := a.Quiet(alert.Counted{At: noon.Add(time.Hour)}); needed || !a.Resting() {
		t.Errorf("it stays as %+v", a)
	}
}

// However letters come, die again and are resolved, and whoever returns, every death is counted once, the
// first at once, and no window has more than two messages in it.
func TestEveryLetterIsTold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now, a := noon, alert.Alert{Key: "f1"}
		var dead []time.Time // when each letter that is dead now died
		deaths, gone, told, sent := 0, 0, 0, []time.Time{}
		count := func() alert.Counted {
			c := alert.Counted{Open: len(dead), At: now}
			for _, d := range dead {
				if d.After(a.Since) {
					c.Since++
					if !a.SentAt.IsZero() && !d.After(a.SentAt) {
						c.Before++
					}
				}
				if d.After(alert.CountAfter(now)) {
					c.Late++
				}
				c.Oldest = dead[0]
			}
			return c
		}
		send := func() {
			c := count()
			need, fresh := a.Need(c)
			if need == alert.Nothing {
				var needed bool
				if a, needed = a.Quiet(c); !needed {
					a = alert.Alert{Key: "f1"}
				}
				return
			}
			told += fresh
			if need != alert.Reminder {
				sent = append(sent, now)
			}
			a = a.Sent(c)
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second)
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				dead = append(dead, now)
				deaths++
				if next, tell := a.LetterDied(cause, now, now, "monitor"); tell {
					a = next
					send()
				}
			case 2: // a letter is resolved, or redriven, to die again perhaps
				if len(dead) > 0 {
					i := rapid.IntRange(0, len(dead)-1).Draw(t, "letter")
					if a.SentAt.IsZero() || dead[i].After(a.SentAt) {
						gone++ // before anybody was told
					}
					dead = append(dead[:i:i], dead[i+1:]...)
				}
			case 3:
				if next, mine := a.Returned(now, "tick"); mine && a.Letters {
					a = next
					send()
				}
			}
		}
		now = now.Add(alert.Window)
		if next, mine := a.Returned(now, "tick"); mine && a.Letters {
			a = next
			send()
		}
		if told != deaths-gone {
			t.Fatalf("%d letters died and stayed until somebody looked, %d were told", deaths-gone, told)
		}
		for i := 2; i < len(sent); i++ {
			if sent[i].Sub(sent[i-2]) < alert.Window {
				t.Fatalf("three messages within a window: %v", sent)
			}
		}
	})
}

func TestMessages(t *testing.T) {
	t.Parallel()
	c := alert.Counted{Open: 12, Oldest: noon.Add(-26 * time.Hour), At: noon}
	for _, test := range []struct {
		name  string
		cause func(*alert.Cause)
		need  alert.Need
		fresh int
		want  []string
	}{
		{"one", nil, alert.First, 1, []string{"1 dead letter of message-added (gmail_unavailable)", "Open: 12, the oldest for 1 d 2 h"}},
		{"more", nil, alert.More, 11, []string{"11 dead letters of message-added"}},
		{"reminder", nil, alert.Reminder, 0, []string{"Still open: 12 dead letters"}},
		{"no lane", func(c *alert.Cause) { c.Lane, c.Consumer = "", "Ingest" }, alert.First, 1, []string{"1 dead letter of Ingest"}},
		{"heals", func(c *alert.Cause) { c.HealsItself = true }, alert.First, 1, []string{"redriven by itself, when"}},
		{"given up", func(c *alert.Cause) { c.GivenUp = true }, alert.First, 1, []string{"waits for you"}},
	} {
		a := alert.Alert{Letters: true, Cause: cause}
		if test.cause != nil {
			test.cause(&a.Cause)
		}
		m := a.Message(test.need, test.fresh, c, "my-project")
		text := m.Title + "\n" + strings.Join(m.Lines, "\n")
		for _, want := range test.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: there is no %q in %q", test.name, want, text)
			}
		}
		if !strings.Contains(m.Link, "gmail-message-added-dead-letter-inspect?project=my-project") || !strings.HasSuffix(m.Typed, "dlq list --fingerprint f1") {
			t.Errorf("%s: %q, %q", test.name, m.Link, m.Typed)
		}
	}
}
