// Package alerts tells people, through a webhook, what needs them.
//
// [Teller.Letter] and [Teller.Notice] return when the alert is safe: sent, recorded as due, or told
// before. They fail only where it cannot be recorded. [Teller.Due], called once a minute, sends what could
// not be sent, what a window has counted, and reminders. Without a webhook nothing is recorded.
package alerts

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"mailyard.internal/mailyard/shared/alert"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
)

// A store keeps alerts.
type store interface {
	// ChangeAlert replaces an alert by what next makes of it; see the ledger's Change.
	ChangeAlert(ctx context.Context, key string, next func(alert.Alert) (alert.Alert, bool)) (alert.Alert, error)
	// RemoveAlert removes an alert, if it is resting and stays so until then.
	RemoveAlert(ctx context.Context, key string) error
	// AlertsDue returns the keys of alerts whose DueAt has come, the longest due first.
	AlertsDue(ctx context.Context, now time.Time, limit int) ([]string, error)
}

// letters is the ledger, as far as alerts speak of it.
type letters interface {
	// CountDead counts the letters of a fingerprint that are dead and died after one moment, and not after
	// the other; the zero time is no bound.
	CountDead(ctx context.Context, fingerprint string, after, until time.Time) (int, error)
	// OldestDead returns the dead letter that has been dead for longest, or false where there is none.
	OldestDead(ctx context.Context, fingerprint, consumer string) (ledger.Entry, bool, error)
}

// A poster sends a message to people. Its error may say when to try again, as [fault.RetryAt] reads it.
type poster interface {
	Post(ctx context.Context, m alert.Message) error
}

// A Teller tells people.
type Teller struct {
	store   store
	letters letters
	poster  poster // nil where there is nobody to tell
	project string
	now     func() time.Time
}

// New returns a teller for the letters of a project. Without a poster it tells nobody.
func New(store store, letters letters, poster poster, project string, now func() time.Time) *Teller {
	return &Teller{store, letters, poster, project, now}
}

// Letter tells of a letter that is dead: at once where it is the first of its cause, and else together
// with others.
func (t *Teller) Letter(ctx context.Context, e ledger.Entry) error {
	cause := alert.Cause{
		Fingerprint: e.Fingerprint, Consumer: e.Consumer, Lane: e.Lane, Code: string(e.Code), Topic: e.Topic,
		HealsItself: e.HealsItself(), GivenUp: e.GivenUp(),
	}
	key := e.Fingerprint
	if cause.GivenUp {
		key += ".given-up" // news, however lately the letter was told of
	}
	return t.change(ctx, key, func(a alert.Alert, now time.Time, claim string) (alert.Alert, bool) {
		return a.LetterDied(cause, e.DeadAt, now, claim)
	})
}

// Notice tells of something else than letters, once a day at most for each key. A key is one path
// segment, as "digest-2026-03-01".
func (t *Teller) Notice(ctx context.Context, key, title string, lines ...string) error {
	return t.change(ctx, key, func(a alert.Alert, now time.Time, claim string) (alert.Alert, bool) {
		return a.Noticed(title, lines, now, claim)
	})
}

// dueAtOnce bounds what one call of Due returns to; the rest is a minute later.
const dueAtOnce = 50

// Due returns to every alert that is due, and returns how many messages were sent. After one that the
// webhook does not take, the others wait too.
func (t *Teller) Due(ctx context.Context) (int, error) {
	if t.poster == nil {
		return 0, nil
	}
	keys, err := t.store.AlertsDue(ctx, t.now(), dueAtOnce)
	if err != nil {
		return 0, fmt.Errorf("find the alerts that are due: %w", err)
	}
	sent := 0
	for _, key := range keys {
		claim := rand.Text()
		a, mine, err := t.claim(ctx, key, claim, func(a alert.Alert) (alert.Alert, bool) {
			return a.Returned(t.now(), claim)
		})
		if err != nil {
			return sent, err
		}
		if !mine {
			continue
		}
		told, err := t.tell(ctx, a, claim)
		if err != nil {
			return sent, err
		}
		if told {
			sent++
		}
	}
	return sent, nil
}

// change takes something into account, and tells of it at once where next says so.
func (t *Teller) change(ctx context.Context, key string, next func(alert.Alert, time.Time, string) (alert.Alert, bool)) error {
	if t.poster == nil {
		return nil
	}
	claim := rand.Text()
	a, mine, err := t.claim(ctx, key, claim, func(a alert.Alert) (alert.Alert, bool) { return next(a, t.now(), claim) })
	if err != nil || !mine {
		return err
	}
	if _, err := t.tell(ctx, a, claim); err != nil {
		var unsent *notSent
		if errors.As(err, &unsent) {
			return nil // it is recorded as due
		}
		return err
	}
	return nil
}

// claim changes an alert on behalf of whom the claim names, and reports whether that is who sends. The
// claim is read back, since a write whose reply was lost looks like another's.
func (t *Teller) claim(ctx context.Context, key, claim string, next func(alert.Alert) (alert.Alert, bool)) (alert.Alert, bool, error) {
	mine := false
	a, err := t.store.ChangeAlert(ctx, key, func(a alert.Alert) (alert.Alert, bool) {
		if a.Claim == claim {
			mine = true
			return a, false
		}
		a, mine = next(a)
		return a, mine
	})
	if err != nil {
		return a, false, fmt.Errorf("record the alert %s: %w", key, err)
	}
	return a, mine, nil
}

// notSent is the error of an alert that is recorded as due.
type notSent struct{ error }

func (e *notSent) Unwrap() error { return e.error }

// tell sends what an alert that is claimed needs to have told, and records what came of it.
func (t *Teller) tell(ctx context.Context, a alert.Alert, claim string) (sent bool, err error) {
	c, err := t.count(ctx, a)
	if err != nil {
		return false, err
	}
	need, fresh := a.Need(c)
	if need == alert.Nothing {
		return false, t.rest(ctx, a, c, claim)
	}
	err = t.post(ctx, a.Message(need, fresh, c, t.project))
	record := func(a alert.Alert) alert.Alert { return a.Sent(c) }
	if err != nil {
		retryAt, _ := fault.RetryAt(err)
		record = func(a alert.Alert) alert.Alert { return a.NotSent(t.now(), retryAt) }
	}
	_, recordErr := t.store.ChangeAlert(context.WithoutCancel(ctx), a.Key, func(a alert.Alert) (alert.Alert, bool) {
		return record(a), a.Claim == claim
	})
	switch {
	case recordErr != nil && err == nil:
		return true, nil // it is due again in a minute, and comes twice: better than not at all
	case err != nil:
		return false, &notSent{fmt.Errorf("send the alert %s: %w", a.Key, err)}
	}
	return true, nil
}

// post sends a message, unless the webhook has said that it wants none for now: then that holds for every
// alert.
func (t *Teller) post(ctx context.Context, m alert.Message) error {
	keep := func(a alert.Alert) (alert.Alert, bool) { return a, false }
	hold, err := t.store.ChangeAlert(ctx, alert.HoldKey, keep)
	if err != nil {
		return err
	}
	if hold.OpenUntil.After(t.now()) {
		return fault.ThrottledUntil(fault.Throttled, hold.OpenUntil, errors.New("the webhook wants to be called less often"))
	}
	err = t.poster.Post(ctx, m)
	if retryAt, said := fault.RetryAt(err); said {
		_, holdErr := t.store.ChangeAlert(context.WithoutCancel(ctx), alert.HoldKey, func(a alert.Alert) (alert.Alert, bool) {
			return a.Held(retryAt), true
		})
		err = errors.Join(err, holdErr)
	}
	return err
}

// rest puts an alert to rest that has nothing to tell, for a day or for good. Letters that count on it are
// counted once more when nobody can count on it any longer, so that none is forgotten with it.
func (t *Teller) rest(ctx context.Context, a alert.Alert, c alert.Counted, claim string) error {
	needed := true
	a, err := t.store.ChangeAlert(ctx, a.Key, func(a alert.Alert) (alert.Alert, bool) {
		mine := a.Claim == claim
		a, needed = a.Quiet(c)
		return a, mine
	})
	if err != nil || needed {
		return err
	}
	if c, err = t.count(ctx, a); err != nil {
		return err
	}
	if need, _ := a.Need(c); need != alert.Nothing {
		return nil // it is due again
	}
	return t.store.RemoveAlert(ctx, a.Key)
}

func (t *Teller) count(ctx context.Context, a alert.Alert) (alert.Counted, error) {
	c := alert.Counted{At: t.now()}
	if !a.Letters {
		return c, nil
	}
	oldest, some, err := t.letters.OldestDead(ctx, a.Fingerprint, "")
	if err != nil || !some {
		return c, err
	}
	c.Oldest = oldest.DeadAt
	for _, n := range []struct {
		of           *int
		after, until time.Time
		unless       bool
	}{
		{of: &c.Late, after: alert.CountAfter(c.At)},
		{of: &c.Before, after: a.Since, until: a.SentAt, unless: a.SentAt.IsZero()},
		{of: &c.Since, after: a.Since},
		{of: &c.Open},
	} {
		if n.unless {
			continue
		}
		if *n.of, err = t.letters.CountDead(ctx, a.Fingerprint, n.after, n.until); err != nil {
			return c, err
		}
	}
	return c, nil
}
