// Package deadletter keeps the ledger of dead letters, and brings them back.
//
// A letter is in the ledger before it is acknowledged. A late copy of one that has been redriven or
// resolved since changes nothing, and one of an account that was unlinked is not kept.
package deadletter

import (
	"context"
	"fmt"

	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// A store keeps the ledger.
type store interface {
	// Change replaces an entry by what next makes of it, and returns it as it then stands. next sees
	// the zero Entry where there is none; it may be called again when others write at the same time;
	// where it returns false nothing is written.
	Change(ctx context.Context, id string, next func(ledger.Entry) (ledger.Entry, bool)) (ledger.Entry, error)
}

// A letterStore knows besides whose letters are kept.
type letterStore interface {
	store
	// Unlinked reports whether the account is gone because it was unlinked.
	Unlinked(ctx context.Context, account string) (bool, error)
}

// A Recorder writes letters into the ledger.
type Recorder struct{ store letterStore }

// NewRecorder returns a recorder.
func NewRecorder(store letterStore) *Recorder { return &Recorder{store} }

// Record makes sure that the ledger knows the letter.
func (r *Recorder) Record(ctx context.Context, letter ledger.Entry) (mail.Outcome, error) {
	if mail.PlainID(letter.AccountID) {
		unlinked, err := r.store.Unlinked(ctx, letter.AccountID)
		switch {
		case err != nil:
			return "", fmt.Errorf("record the dead letter %s: %w", letter.ID, err)
		case unlinked:
			return mail.NoAccount, nil
		}
	}
	outcome := mail.Recorded
	_, err := r.store.Change(ctx, letter.ID, func(e ledger.Entry) (ledger.Entry, bool) {
		// An entry that is dead already was recorded by the function that gave the event up.
		known := e.State == ledger.Dead
		next := e.Received(letter)
		changed := next.State == ledger.Dead && !known
		outcome = mail.Recorded
		if !changed && !known {
			outcome = mail.Unchanged
		}
		return next, changed
	})
	if err != nil {
		return "", fmt.Errorf("record the dead letter %s: %w", letter.ID, err)
	}
	return outcome, nil
}
