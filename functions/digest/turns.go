package digest

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// turns keep one process's sends apart. What a process before it has claimed, the run's record says.
type turns struct {
	limiter *rate.Limiter
	pace    time.Duration
}

// newTurns gives a turn in every pace, and none in advance, so that no minute has more than its share.
func newTurns(pace time.Duration) *turns { return &turns{rate.NewLimiter(rate.Every(pace), 1), pace} }

// take waits for the next turn.
func (t *turns) take(ctx context.Context) error { return t.limiter.Wait(ctx) }

// until is when so many turns from now on are used up.
func (t *turns) until(now time.Time, turns int) time.Time {
	return now.Add(time.Duration(turns) * t.pace)
}

// pause waits, and returns an error where the context ends first.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
