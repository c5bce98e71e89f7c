package gmailapi

import (
	"context"
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
)

const (
	// patience is how long a call waits for its units; one that would wait longer is not made.
	patience       = 4 * time.Second
	importPatience = 20 * time.Second
	// idleFor is when an account's limiters are dropped; by then they are full again.
	idleFor    = 10 * time.Minute
	maxLimited = 10_000 // accounts, above which idle ones are looked for
)

// quotas keep one process within Gmail's quota of each user, and imports within half of it, so that
// live mail never waits for an import. A project-wide limit closes the process's one gate.
type quotas struct {
	perMinute float64
	now       func() time.Time

	mu      sync.Mutex
	users   map[string]*userQuota
	project time.Time // no call before that moment
}

type userQuota struct {
	all, imports *rate.Limiter
	used         time.Time
}

func newQuotas(perMinute float64, now func() time.Time) *quotas {
	return &quotas{perMinute: perMinute, now: now, users: map[string]*userQuota{}}
}

// limiter gives out at most that many units in any minute.
func limiter(perMinute float64) *rate.Limiter {
	burst := perMinute / burstFraction
	return rate.NewLimiter(rate.Limit((perMinute-burst)/60), int(burst))
}

func (q *quotas) of(account string) *userQuota {
	q.mu.Lock()
	defer q.mu.Unlock()
	u, ok := q.users[account]
	if !ok {
		if len(q.users) >= maxLimited {
			q.dropIdle()
		}
		u = &userQuota{all: limiter(q.perMinute), imports: limiter(q.perMinute / 2)}
		q.users[account] = u
	}
	u.used = q.now()
	return u
}

func (q *quotas) dropIdle() {
	for account, u := range q.users {
		if q.now().Sub(u.used) > idleFor {
			delete(q.users, account)
		}
	}
}

// take waits until a call's units may be spent. It returns a fault.Throttled that names the moment where
// that would be too long, and a fault.ProjectThrottled while the project's gate is closed.
func (q *quotas) take(ctx context.Context, account string, units int, forImport bool) error {
	q.mu.Lock()
	project := q.project
	q.mu.Unlock()
	if project.After(q.now()) {
		return fault.ThrottledUntil(fault.ProjectThrottled, project, fmt.Errorf("the project's quota is used up"))
	}
	u, wait := q.of(account), patience
	limiters := []*rate.Limiter{u.all}
	if forImport {
		limiters, wait = []*rate.Limiter{u.imports, u.all}, importPatience
	}
	for _, l := range limiters {
		reserved := l.ReserveN(q.now(), units)
		delay := reserved.DelayFrom(q.now())
		if !reserved.OK() || delay > wait {
			reserved.CancelAt(q.now())
			return fault.ThrottledUntil(fault.Throttled, q.now().Add(delay), fmt.Errorf("the mailbox's units of this minute are used up"))
		}
		if delay == 0 {
			continue
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// closeProject keeps every call of this process back until that moment.
func (q *quotas) closeProject(until time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if until.After(q.project) {
		q.project = until
	}
}
