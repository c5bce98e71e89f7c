package deadletter

import (
	"context"
	"fmt"
	"time"

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

// A teller tells people of letters.
type teller interface {
	// Letter makes sure that somebody is told of the letter, now or soon, whatever becomes of this process.
	Letter(ctx context.Context, letter ledger.Entry) error
}

// A Recorder writes letters into the ledger, and has people told.
type Recorder struct {
	store  letterStore
	teller teller
	now    func() time.Time
}

// NewRecorder returns a recorder.
func NewRecorder(store letterStore, teller teller, now func() time.Time) *Recorder {
	return &Recorder{store, teller, now}
}

// Record makes sure that the ledger knows the letter and that people are told of it. It may be called
// again for the same letter, which then changes nothing.
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
	letter.DeadAt = r.now() // to the ledger; the letter may have been under way for long
	outcome := mail.Recorded
	entry, err := r.store.Change(ctx, letter.ID, func(e ledger.Entry) (ledger.Entry, bool) {
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
	if outcome == mail.Recorded {
		if err := r.teller.Letter(ctx, entry); err != nil {
			return "", fmt.Errorf("tell of the dead letter %s: %w", letter.ID, err)
		}
	}
	return outcome, nil
}
