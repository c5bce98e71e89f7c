package gmailapi

import (
	"testing"
	"time"

	"mailyard.internal/mailyard/shared/fault"
)

// A process never spends more than a user's quota in a minute, and an import never more than half; what
// has to wait too long is told when to come back.
func TestQuotaOfAMinute(t *testing.T) {
	t.Parallel()
	for _, imports := range []bool{false, true} {
		now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
		allowed := 6000
		if imports {
			allowed = 3000
		}
		q := newQuotas(unitsPerUser, func() time.Time { return now })
		l := q.of("a").all
		if imports {
			l = q.of("a").imports
		}
		spent := 0
		for range 60_000 { // a minute, in milliseconds
			for l.AllowN(now, unitsGet) {
				spent += unitsGet
			}
			now = now.Add(time.Millisecond)
		}
		if spent > allowed || spent < allowed*95/100 {
			t.Errorf("imports %v: %d units in a minute, allowed are %d", imports, spent, allowed)
		}
	}
}

func TestWhatWouldWaitTooLongIsNotCalled(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	q := newQuotas(600, func() time.Time { return now }) // a burst of 100, then 8.3 a second
	if err := q.take(t.Context(), "a", unitsWatch, false); err != nil {
		t.Fatal(err)
	}
	err := q.take(t.Context(), "a", unitsWatch, false)
	at, named := fault.RetryAt(err)
	if !fault.Is(err, fault.Throttled) || !named || at.Sub(now) < 11*time.Second || at.Sub(now) > 13*time.Second {
		t.Errorf("the error is %v, to come back in %v", err, at.Sub(now))
	}
	if err := q.take(t.Context(), "b", unitsWatch, false); err != nil {
		t.Errorf("another user's units are used up: %v", err)
	}
	now = at
	if err := q.take(t.Context(), "a", unitsWatch, false); err != nil {
		t.Errorf("at the moment that was named: %v", err)
	}
}

func TestProjectGate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	q := newQuotas(unitsPerUser, func() time.Time { return now })
	until := now.Add(time.Minute)
	q.closeProject(until)
	q.closeProject(now) // an earlier moment does not open it
	if at, _ := fault.RetryAt(q.take(t.Context(), "a", 1, false)); !at.Equal(until) {
		t.Errorf("closed until %v, want %v", at, until)
	}
	now = until
	if err := q.take(t.Context(), "a", 1, false); err != nil {
		t.Errorf("after it opened: %v", err)
	}
}

func TestIdleLimitersAreDropped(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	q := newQuotas(unitsPerUser, func() time.Time { return now })
	for i := range maxLimited {
		q.of(string(rune(i + 1)))
	}
	now = now.Add(idleFor + time.Second)
	q.of("one more")
	if len(q.users) != 1 {
		t.Errorf("%d accounts are limited, want 1", len(q.users))
	}
}
