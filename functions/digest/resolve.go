package digest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mailyard.internal/mailyard/shared/mailing"
)

// A Resolver has operators say what became of mailings whose outcome is not known.
type Resolver struct {
	store     resolveStore
	publisher publisher
	now       func() time.Time
}

// resolveStore keeps mailings and their runs.
type resolveStore interface {
	runStore
	ChangeMailing(ctx context.Context, id string, next func(mailing.Mailing) (mailing.Mailing, bool)) (mailing.Mailing, error)
}

// NewResolver returns a resolver.
func NewResolver(s resolveStore, p publisher, now func() time.Time) *Resolver {
	return &Resolver{s, p, now}
}

// Why a mailing cannot be resolved.
var (
	ErrNotUncertain = errors.New("its outcome is known; nothing was changed")
	ErrNoMailing    = errors.New("there is no such mailing; mailyard digest resolve lists those whose outcome is not known")
	ErrInHand       = errors.New("it may be being sent at this moment; wait ten minutes")
)

// inHand is longer than a batch takes, with its writes.
const inHand = 10 * time.Minute

// Resolve writes down what an operator says of a mailing, with who and why. To send it again reopens its
// run; said again where that did not come through, it does so once more.
func (r *Resolver) Resolve(ctx context.Context, id string, said mailing.Resolution) (mailing.Mailing, error) {
	said.At = r.now()
	resolved, busy := false, false
	m, err := r.store.ChangeMailing(ctx, id, func(m mailing.Mailing) (mailing.Mailing, bool) {
		if busy = m.Status == mailing.Processing && r.now().Sub(m.ClaimedAt) < inHand; busy {
			return m, false
		}
		var become mailing.Mailing
		become, resolved = m.Resolved(said)
		return become, resolved
	})
	waits := m.Status == mailing.Pending && m.Awaits == mailing.AwaitsSend && len(m.Resolutions) > 0
	switch {
	case err != nil:
		return m, err
	case m.Version.IsZero():
		return m, ErrNoMailing
	case busy:
		return m, ErrInHand
	case !resolved && !(said.As == mailing.AsAgain && waits):
		return m, ErrNotUncertain
	case said.As != mailing.AsAgain:
		return m, nil
	}
	run, err := changeRun(ctx, r.store, m.Run, func(run mailing.Run) (mailing.Run, bool) {
		become := run.Reopened(r.now())
		return become, become.At() != run.At()
	})
	if err != nil {
		return m, fmt.Errorf("reopen run %s: %w", m.Run, err)
	}
	return m, ask(ctx, r.publisher, run)
}
