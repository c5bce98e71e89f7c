package gmailapi

import (
	"context"
	"strconv"
	"testing"
	"time"

	"golang.org/x/time/rate"

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
	q.project.close(until)
	q.project.close(now) // an earlier moment does not open it
	if at, _ := fault.RetryAt(q.take(t.Context(), "a", 1, false)); !at.Equal(until) {
		t.Errorf("closed until %v, want %v", at, until)
	}
	now = until
	if err := q.take(t.Context(), "a", 1, false); err != nil {
		t.Errorf("after it opened: %v", err)
	}
}

func TestAccountGate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	q := newQuotas(unitsPerUser, func() time.Time { return now })
	until := now.Add(time.Hour)
	q.close("a", until)
	q.close("a", now.Add(time.Minute))
	err := q.take(t.Context(), "a", 1, false)
	if at, _ := fault.RetryAt(err); !fault.Is(err, fault.Throttled) || !at.Equal(until) {
		t.Errorf("closed until %v, want %v: %v", at, until, err)
	}
	if err := q.take(t.Context(), "b", 1, false); err != nil {
		t.Errorf("another account is kept back: %v", err)
	}
	now = now.Add(2 * idleFor)
	q.of("one more") // a closed gate is not forgotten
	if err := q.take(t.Context(), "a", 1, false); !fault.Is(err, fault.Throttled) {
		t.Errorf("the gate was forgotten: %v", err)
	}
	now = until
	if err := q.take(t.Context(), "a", 1, false); err != nil {
		t.Errorf("after it opened: %v", err)
	}
}

// A call whose deadline comes before its units is not made, and spends none.
func TestWaitsNoLongerThanTheDeadline(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	q := newQuotas(unitsPerUser, func() time.Time { return now }) // 83 units a second
	spend(t, q.of("a").all, now, 1000)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := q.take(ctx, "a", unitsWatch, false) // 1.2 s
	if at, named := fault.RetryAt(err); !fault.Is(err, fault.Throttled) || !named || at.Sub(now) != 1200*time.Millisecond {
		t.Errorf("to come back in %v: %v", at.Sub(now), err)
	}
	now = now.Add(1200 * time.Millisecond)
	if err := q.take(ctx, "a", unitsWatch, false); err != nil {
		t.Errorf("units were spent on a call that was not made: %v", err)
	}
}

// An import that has spent its half waits; live calls go on. An import that waits for what is left over
// does not stand before a live call.
func TestLiveCallsDoNotWaitForImports(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	q := newQuotas(unitsPerUser, func() time.Time { return now })
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) // nobody waits
	defer cancel()
	calls := 0
	for ; q.take(ctx, "a", unitsGet, true) == nil; calls++ {
	}
	if calls*unitsGet != 500 {
		t.Errorf("an import spent %d units at once, want 500", calls*unitsGet)
	}
	for range 500 / unitsGet {
		if err := q.take(ctx, "a", unitsGet, false); err != nil {
			t.Fatalf("a live call after an import: %v", err)
		}
	}
	now = now.Add(time.Minute)
	u := q.of("a")
	spend(t, u.all, now, 1000) // by live calls
	ended, stop := context.WithCancel(t.Context())
	stop()
	for range 10 { // ten imports that come, wait for what is left over, and give up
		_ = q.wait(ended, u.all, unitsGet, importPatience, true)
	}
	if delay := u.all.ReserveN(now, unitsGet).DelayFrom(now); delay > 240*time.Millisecond {
		t.Errorf("a live call waits %v behind imports", delay)
	}
}

func TestQuotaIsEnoughForAWatch(t *testing.T) {
	t.Parallel()
	q := newQuotas(1, time.Now)
	if err := q.take(t.Context(), "a", unitsWatch, false); err != nil {
		t.Error(err)
	}
	if err := q.take(t.Context(), "a", unitsGet, true); !fault.Is(err, fault.Throttled) && err != nil {
		t.Error(err)
	}
}

func TestIdleLimitersAreDropped(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	q := newQuotas(unitsPerUser, func() time.Time { return now })
	for i := range 1000 {
		q.of(strconv.Itoa(i))
	}
	now = now.Add(idleFor + time.Second)
	q.of("one more")
	if len(q.users) != 1 {
		t.Errorf("%d accounts are limited, want 1", len(q.users))
	}
}

// What was dropped would have been full: dropping it gives nobody more than a minute's units.
func TestWhatIsDroppedIsFull(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for name, l := range map[string]*rate.Limiter{"all": limiter(unitsPerUser), "imports": limiter(unitsPerUser / 2)} {
		spend(t, l, now, l.Burst())
		owed := int(float64(l.Limit()) * importPatience.Seconds())
		for ; owed > 0; owed -= unitsGet {
			l.ReserveN(now, unitsGet)
		}
		if has := l.TokensAt(now.Add(idleFor)); has < float64(l.Burst()) {
			t.Errorf("%s: has %v of %d when it is dropped", name, has, l.Burst())
		}
	}
}

func spend(t *testing.T, l *rate.Limiter, now time.Time, units int) {
	t.Helper()
	if !l.AllowN(now, units) {
		t.Fatalf("%d units cannot be spent at once", units)
	}
}
