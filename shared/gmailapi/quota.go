package gmailapi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"mailyard.internal/mailyard/shared/fault"
)

// Quota units of each method: developers.google.com/workspace/gmail/api/reference/quota, since
// 2026-05-01.
const (
	unitsProfile  = 1
	unitsLabels   = 1
	unitsHistory  = 2
	unitsListing  = 5
	unitsGet      = 20
	unitsWatch    = 100
	unitsPerUser  = 6000 // a minute and user
	burstFraction = 6    // of a minute's units at once; the rest spread over the minute
	// leastPerUser lets the dearest call fit in a burst.
	leastPerUser = burstFraction * unitsWatch
)

const (
	// patience is how long a call waits for its units; one that would wait longer is not made.
	patience       = 4 * time.Second
	importPatience = 20 * time.Second
	// idleFor is when an account's limiters may be dropped: the emptiest is full again in 12 seconds, and
	// what is owed in patience's time more.
	idleFor = time.Minute
)

// quotas keep one process within Gmail's quota of each user, and imports within half of it, so that
// live mail never waits for an import: live calls queue for their units, imports take what is left over.
type quotas struct {
	perMinute float64
	now       func() time.Time
	project   *ProjectGate

	mu    sync.Mutex
	users map[string]*userQuota
	swept time.Time
}

type userQuota struct {
	all, imports *rate.Limiter
	used         time.Time
	closed       time.Time // Gmail wants no call before that moment
}

func newQuotas(perMinute float64, now func() time.Time) *quotas {
	return &quotas{
		perMinute: max(perMinute, leastPerUser), now: now, project: new(ProjectGate),
		users: map[string]*userQuota{}, swept: now(),
	}
}

// limiter gives out at most that many units in any minute.
func limiter(perMinute float64) *rate.Limiter {
	burst := perMinute / burstFraction
	return rate.NewLimiter(rate.Limit((perMinute-burst)/60), int(burst))
}

// of returns an account's quota. Accounts that have been idle are dropped as others come, so there are
// never more than were called within twice idleFor.
func (q *quotas) of(account string) *userQuota {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	u, ok := q.users[account]
	if !ok {
		if now.Sub(q.swept) > idleFor {
			q.dropIdle(now)
		}
		u = &userQuota{all: limiter(q.perMinute), imports: limiter(q.perMinute / 2)}
		q.users[account] = u
	}
	u.used = now
	return u
}

func (q *quotas) dropIdle(now time.Time) {
	for account, u := range q.users {
		if now.Sub(u.used) > idleFor && !u.closed.After(now) {
			delete(q.users, account)
		}
	}
	q.swept = now
}

// take waits until a call's units may be spent, never beyond the context's deadline. Where that would be
// too long it spends none and returns a fault.Throttled that names the moment; where a gate is closed, a
// fault.Throttled or fault.ProjectThrottled that names when it opens.
func (q *quotas) take(ctx context.Context, account string, units int, forImport bool) error {
	u := q.of(account)
	if err := q.open(u); err != nil {
		return err
	}
	if forImport {
		if err := q.wait(ctx, u.imports, units, importPatience, false); err != nil {
			return err
		}
	}
	if err := q.wait(ctx, u.all, units, patience, forImport); err != nil {
		return err
	}
	return q.open(u) // a gate may have closed meanwhile
}

// wait takes units. A call that takes only what is left over does not queue: whoever comes while it
// waits goes first.
func (q *quotas) wait(ctx context.Context, l *rate.Limiter, units int, patience time.Duration, leftOver bool) error {
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline))
	}
	for {
		now := q.now()
		reserved := l.ReserveN(now, units)
		if !reserved.OK() {
			return fmt.Errorf("%d units are more than may be spent at once", units)
		}
		delay := reserved.DelayFrom(now)
		if delay == 0 {
			return nil
		}
		if delay > patience {
			reserved.CancelAt(now)
			return fault.ThrottledUntil(fault.Throttled, now.Add(delay), errors.New("the mailbox's units of this minute are used up"))
		}
		if leftOver {
			reserved.CancelAt(now)
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			if !leftOver {
				reserved.CancelAt(q.now())
			}
			return ctx.Err()
		}
		if !leftOver {
			return nil
		}
		patience -= delay
	}
}

// open returns an error while the project's gate or the account's is closed.
func (q *quotas) open(u *userQuota) error {
	now := q.now()
	if until := q.project.closedUntil(); until.After(now) {
		return fault.ThrottledUntil(fault.ProjectThrottled, until, errors.New("the project's quota is used up"))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if u.closed.After(now) {
		return fault.ThrottledUntil(fault.Throttled, u.closed, errors.New("the mailbox's gate is closed: Gmail wants no calls for it now"))
	}
	return nil
}

// close keeps this process's calls for the account back until that moment, also those of handlers that
// read the account while its gate was open.
func (q *quotas) close(account string, until time.Time) {
	u := q.of(account)
	q.mu.Lock()
	defer q.mu.Unlock()
	if until.After(u.closed) {
		u.closed = until
	}
}

// A ProjectGate keeps every client that shares it from calling Gmail while the whole project's quota is
// used up. Its zero value is open.
type ProjectGate struct {
	mu    sync.Mutex
	until time.Time
}

// close keeps every call back until that moment; an earlier one does not open the gate.
func (g *ProjectGate) close(until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until.After(g.until) {
		g.until = until
	}
}

func (g *ProjectGate) closedUntil() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until
}
