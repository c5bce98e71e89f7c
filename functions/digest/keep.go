package digest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"mailyard.internal/mailyard/shared/mailing"
)

// keepStore finds what somebody must return to.
type keepStore interface {
	// RunsDue returns open runs that nobody works on and whose next step is overdue.
	RunsDue(ctx context.Context, now time.Time) ([]mailing.Run, error)
	// MailingsToTell returns mailings whose outcome people are to be told is not known.
	MailingsToTell(ctx context.Context, now time.Time, limit int) ([]mailing.Mailing, error)
	ChangeMailing(ctx context.Context, id string, next func(mailing.Mailing) (mailing.Mailing, bool)) (mailing.Mailing, error)
}

// A Keeper looks after runs that stopped on their way, or that waited, and after mailings whose outcome
// has not been known for an hour. Both are called once a minute.
type Keeper struct {
	store     keepStore
	publisher publisher
	announcer announcer
	now       func() time.Time
}

// NewKeeper returns a keeper.
func NewKeeper(s keepStore, p publisher, a announcer, now func() time.Time) *Keeper {
	return &Keeper{s, p, a, now}
}

// tellAtOnce bounds how many mailings one call tells of; the rest is a minute later.
const tellAtOnce = 200

// Resume asks for the next step of runs that stopped on their way, or that waited.
func (k *Keeper) Resume(ctx context.Context) (int, error) {
	runs, err := k.store.RunsDue(ctx, k.now())
	if err != nil {
		return 0, fmt.Errorf("find the runs to go on with: %w", err)
	}
	var errs []error
	for _, r := range runs {
		errs = append(errs, ask(ctx, k.publisher, r))
	}
	return len(runs), errors.Join(errs...)
}

// Tell tells once of each mailing, all of them together. Told first and noted after, so that a crash tells
// twice and never not at all.
func (k *Keeper) Tell(ctx context.Context) (int, error) {
	uncertain, err := k.store.MailingsToTell(ctx, k.now(), tellAtOnce)
	if err != nil || len(uncertain) == 0 {
		return 0, err
	}
	byRun := map[mailing.Day]int{}
	for _, m := range uncertain {
		byRun[m.Run]++
	}
	lines := []string{"Whether they were sent is not known, and they are not sent again by themselves. mailyard digest resolve lists them."}
	for _, day := range slices.Sorted(maps.Keys(byRun)) {
		lines = append(lines, fmt.Sprintf("run %s: %d", day, byRun[day]))
	}
	title := fmt.Sprintf("%d digests have been uncertain for an hour", len(uncertain))
	if err := k.announcer.Announce(ctx, title, lines...); err != nil {
		return 0, fmt.Errorf("tell of mailings whose outcome is not known: %w", err)
	}
	var errs []error
	for _, m := range uncertain {
		_, err := k.store.ChangeMailing(ctx, m.ID, func(m mailing.Mailing) (mailing.Mailing, bool) {
			told := !m.AlertAt.IsZero()
			m.AlertAt = time.Time{}
			return m, told
		})
		errs = append(errs, err)
	}
	return len(uncertain), errors.Join(errs...)
}
