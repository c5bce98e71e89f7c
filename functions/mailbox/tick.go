// Package mailbox keeps mailboxes true by itself: it returns to what was left for later.
package mailbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

// due finds what somebody must return to, earliest first.
type due interface {
	// AccountsToRecheck returns accounts whose RecheckAt has come.
	AccountsToRecheck(ctx context.Context, now time.Time, limit int) ([]mail.Account, error)
	// FetchesDue returns the messages whose FetchDueAt has come, each as the event that asks for it.
	FetchesDue(ctx context.Context, now time.Time, limit int) ([]mail.Event, error)
	// StrandedSince returns the ids of ledger entries that are retrying and have last failed, or are
	// redriving and were redriven, before that moment.
	StrandedSince(ctx context.Context, before time.Time, limit int) ([]string, error)
	// ResyncsDue returns open resyncs that nobody works on and whose next step is overdue.
	ResyncsDue(ctx context.Context, now time.Time, limit int) ([]mail.Resync, error)
}

// lister lists a mailbox again.
type lister interface {
	Recheck(ctx context.Context, a mail.Account) error
}

// fetches asks the lane that fetches.
type fetches interface {
	PublishEvents(ctx context.Context, events ...mail.Event) error
}

// deferrals keeps when a fetch is due.
type deferrals interface {
	// PostponeFetch moves a due fetch to a later moment, unless the message has changed since.
	PostponeFetch(ctx context.Context, e mail.Event, to time.Time) error
}

// returner publishes a failing event again that Pub/Sub has not brought back.
type returner interface {
	Return(ctx context.Context, operation, id string, patience time.Duration) (returned bool, err error)
}

// A Chore is something else that is done at every tick.
type Chore struct {
	Counts string // the log's name for what Do returns
	Do     func(context.Context) (int, error)
}

// TickPorts are what a Tick works with.
type TickPorts struct {
	Catalogue *lane.Catalogue
	Due       due
	Lister    lister
	Publisher fetches
	Deferrals deferrals
	Returner  returner
	Resyncs   *Resyncs
	Renew     *Renew
	Chores    []Chore
	Now       func() time.Time
}

// A Tick looks after what is due, once a minute. Each item stands for itself: one that fails is left
// for the next tick, and named in the error.
type Tick struct{ TickPorts }

// NewTick returns a tick.
func NewTick(p TickPorts) *Tick { return &Tick{p} }

const (
	// tickBatch bounds what one tick takes on of each kind; the rest is a minute later.
	tickBatch = 200
	// tickParallel is how many items are worked on at once.
	tickParallel = 8
	// fetchAgainAfter is when a fetch that was published is due again, should it come to nothing.
	fetchAgainAfter = 10 * time.Minute
	// lapsedWithin is how far back a tick looks for watches that have ended: what could not be renewed by
	// then is Renew's, hourly.
	lapsedWithin = 5 * time.Minute
)

// Run does what is due and returns counts for the log. All of it goes on at once: what waits for Gmail, or
// for a webhook, keeps nothing else from its turn.
func (t *Tick) Run(ctx context.Context) ([]slog.Attr, error) {
	chores := append([]Chore{
		{"accounts_rechecked", t.recheck},
		{"fetches_published", t.fetch},
		{"entries_returned", t.giveBack},
		{"resyncs_resumed", t.resume},
		{"lapsed_watches_renewed", func(ctx context.Context) (int, error) { return t.Renew.Lapsed(ctx, lapsedWithin) }},
	}, t.Chores...)
	counts := make([]slog.Attr, len(chores))
	errs := make([]error, len(chores))
	var wait sync.WaitGroup
	for i, c := range chores {
		wait.Go(func() {
			done, err := c.Do(ctx)
			counts[i], errs[i] = slog.Int(c.Counts, done), err
		})
	}
	wait.Wait()
	return counts, errors.Join(errs...)
}

func (t *Tick) recheck(ctx context.Context) (int, error) {
	accounts, err := t.Due.AccountsToRecheck(ctx, t.Now(), tickBatch)
	if err != nil {
		return 0, fmt.Errorf("find the accounts to list again: %w", err)
	}
	return each(accounts, func(a mail.Account) (bool, error) {
		if err := t.Lister.Recheck(ctx, a); err != nil {
			return false, fmt.Errorf("list account %s again: %w", a.ID, err)
		}
		return true, nil
	})
}

func (t *Tick) fetch(ctx context.Context) (int, error) {
	events, err := t.Due.FetchesDue(ctx, t.Now(), tickBatch)
	if err != nil {
		return 0, fmt.Errorf("find the fetches that are due: %w", err)
	}
	return each(events, func(e mail.Event) (bool, error) {
		e.Lane, e.Time = t.Catalogue.FetchLane().Key, t.Now()
		if err := t.Publisher.PublishEvents(ctx, e); err != nil {
			return false, fmt.Errorf("publish the fetch %s: %w", e.ID(), err)
		}
		if err := t.Deferrals.PostponeFetch(ctx, e, t.Now().Add(fetchAgainAfter)); err != nil {
			return false, fmt.Errorf("postpone the fetch %s: %w", e.ID(), err)
		}
		return true, nil
	})
}

// giveBack publishes again what is retrying or redriving but has not come back for much longer than the
// longest back-off: its message is lost to Pub/Sub.
func (t *Tick) giveBack(ctx context.Context) (int, error) {
	now, patience := t.Now(), t.patience()
	ids, err := t.Due.StrandedSince(ctx, now.Add(-patience), tickBatch)
	if err != nil {
		return 0, fmt.Errorf("find the entries nobody returns to: %w", err)
	}
	operation := fmt.Sprintf("tick-%d", now.Unix())
	return each(ids, func(id string) (bool, error) {
		return t.Returner.Return(ctx, operation, id, patience)
	})
}

// resume asks for the next step of resyncs that stopped on their way, or that slept.
func (t *Tick) resume(ctx context.Context) (int, error) {
	resyncs, err := t.Due.ResyncsDue(ctx, t.Now(), tickBatch)
	if err != nil {
		return 0, fmt.Errorf("find the resyncs to go on with: %w", err)
	}
	return each(resyncs, func(r mail.Resync) (bool, error) { return true, t.Resyncs.Continue(ctx, r) })
}

func (t *Tick) patience() time.Duration {
	var longest time.Duration
	for _, r := range t.Catalogue.Routes() {
		longest = max(longest, r.Delivery.MaxBackoff())
	}
	return 3 * longest
}

// each works on all items, a few at a time, and counts those for which do returned true.
func each[T any](items []T, do func(T) (bool, error)) (int, error) {
	done := make([]bool, len(items))
	errs := make([]error, len(items))
	slots := make(chan struct{}, tickParallel)
	var wait sync.WaitGroup
	for i, item := range items {
		slots <- struct{}{}
		wait.Go(func() {
			done[i], errs[i] = do(item)
			<-slots
		})
	}
	wait.Wait()
	count := 0
	for _, d := range done {
		if d {
			count++
		}
	}
	return count, errors.Join(errs...)
}
