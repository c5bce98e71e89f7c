package deadletter

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"time"

	"mailyard.internal/mailyard/shared/ledger"
)

// A publisher publishes a message as it is; nil means that Pub/Sub has confirmed it.
type publisher interface {
	PublishRaw(ctx context.Context, topic string, data []byte, attributes map[string]string) error
}

// A Result says what became of one entry in an operation.
type Result string

// The results of republishing.
const (
	Redriven Result = "redriven" // published again on its own topic
	Busy     Result = "busy"     // another operation is about to
	Moved    Result = "moved"    // no longer in the state that was asked for
	NoData   Result = "no_data"  // too large for the ledger, and not on its -inspect subscription at the moment
)

// claimFor is how long a claim keeps others away from an entry: longer than a publish can take.
const claimFor = 5 * time.Minute

// A Redriver publishes entries of the ledger again on the topics they came from.
type Redriver struct {
	store     store
	publisher publisher
	now       func() time.Time
}

// NewRedriver returns a redriver.
func NewRedriver(store store, publisher publisher, now func() time.Time) *Redriver {
	return &Redriver{store, publisher, now}
}

// Redrive publishes a dead letter again, with its original data and attributes and the operation's
// id. The letter is claimed before, so that of two operations one publishes it; it counts as
// redriving only after Pub/Sub has confirmed it.
func (r *Redriver) Redrive(ctx context.Context, operation, id string) (Result, error) {
	return r.republish(ctx, operation, id, turn{from: ledger.Dead, alone: claimFor, claim: ledger.Entry.RedriveClaimed})
}

// RedriveHeld redrives a letter whose data is too large for the ledger, with the data of the letter
// itself.
func (r *Redriver) RedriveHeld(ctx context.Context, operation, id string, letter ledger.Held) (Result, error) {
	return r.republish(ctx, operation, id, turn{
		from: ledger.Dead, alone: claimFor, claim: ledger.Entry.RedriveClaimed, data: letter.Data,
	})
}

// Heal redrives a letter without an operator, if that is due.
func (r *Redriver) Heal(ctx context.Context, operation, id string) (Result, error) {
	return r.republish(ctx, operation, id, turn{
		from: ledger.Dead, alone: claimFor, claim: ledger.Entry.HealClaimed,
		unless: func(e ledger.Entry) bool { return !e.HealsItself() || e.HealAt.After(r.now()) },
	})
}

// Return publishes an entry again that is retrying or redriving, and that Pub/Sub has not brought back.
// Its attempts go on counting. An entry that was returned less than patience ago is left alone.
func (r *Redriver) Return(ctx context.Context, operation, id string, patience time.Duration) (returned bool, err error) {
	for _, from := range []ledger.State{ledger.Retrying, ledger.Redriving} {
		result, err := r.republish(ctx, operation, id, turn{from: from, alone: patience, claim: ledger.Entry.Claimed})
		if err != nil || result != Moved {
			return result == Redriven, err
		}
	}
	return false, nil
}

// A turn is how an entry is published again.
type turn struct {
	from   ledger.State
	alone  time.Duration // how long another's claim keeps this one away
	claim  func(ledger.Entry, ledger.Claim) ledger.Entry
	unless func(ledger.Entry) bool // or nil
	data   []byte                  // where the ledger has none
}

func (t turn) refuses(e ledger.Entry, claim ledger.Claim) Result {
	switch {
	case e.State != t.from, t.unless != nil && e.Claim.Token != claim.Token && t.unless(e):
		return Moved
	case e.DataOmitted && t.data == nil:
		return NoData
	case e.Claim.Token != claim.Token && e.ClaimedAfter(claim.At.Add(-t.alone)):
		return Busy
	}
	return ""
}

func (r *Redriver) republish(ctx context.Context, operation, id string, t turn) (Result, error) {
	claim := ledger.Claim{Operation: operation, Token: rand.Text(), At: r.now()}
	var refusal Result
	e, err := r.store.Change(ctx, id, func(e ledger.Entry) (ledger.Entry, bool) {
		refusal = t.refuses(e, claim)
		if refusal != "" || e.Claim.Token == claim.Token {
			return e, false // of a write whose reply was lost, the token is what was written
		}
		return t.claim(e, claim), true
	})
	if err != nil {
		return "", fmt.Errorf("claim %s: %w", id, err)
	}
	if refusal != "" {
		return refusal, nil
	}
	attributes := maps.Clone(e.Attributes)
	if attributes == nil {
		attributes = map[string]string{}
	}
	attributes[ledger.RedriveAttribute] = operation
	if e.EventID == "" {
		attributes[ledger.LetterID] = id // nothing else in the message names its entry
	}
	data := e.Data
	if e.DataOmitted {
		data = t.data
	}
	if err := r.publisher.PublishRaw(ctx, e.Topic, data, attributes); err != nil {
		return "", fmt.Errorf("publish %s on %s: %w", id, e.Topic, err)
	}
	if t.from != ledger.Dead {
		return Redriven, nil
	}
	_, err = r.store.Change(ctx, id, func(e ledger.Entry) (ledger.Entry, bool) { return e.Redriven(claim) })
	if err != nil {
		return "", fmt.Errorf("mark %s as redriving: %w", id, err)
	}
	return Redriven, nil
}
