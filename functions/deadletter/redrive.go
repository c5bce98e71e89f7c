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
	NoData   Result = "no_data"  // too large for the ledger: it is on its -inspect subscription alone
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
	return r.republish(ctx, operation, id, ledger.Dead, claimFor)
}

// Return publishes an entry again that is retrying, and that Pub/Sub has not brought back. Its
// attempts go on counting. An entry that was returned less than patience ago is left alone.
func (r *Redriver) Return(ctx context.Context, operation, id string, patience time.Duration) (returned bool, err error) {
	result, err := r.republish(ctx, operation, id, ledger.Retrying, patience)
	return result == Redriven, err
}

func (r *Redriver) republish(ctx context.Context, operation, id string, from ledger.State, alone time.Duration) (Result, error) {
	claim := ledger.Claim{Operation: operation, Token: rand.Text(), At: r.now()}
	refusal := Result("")
	e, err := r.store.Change(ctx, id, func(e ledger.Entry) (ledger.Entry, bool) {
		refusal = ""
		switch {
		case e.State != from:
			refusal = Moved
		case e.DataOmitted:
			refusal = NoData
		case e.Claim.Token != claim.Token && e.ClaimedAfter(r.now().Add(-alone)):
			refusal = Busy
		}
		return e.Claimed(claim), refusal == ""
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
	if err := r.publisher.PublishRaw(ctx, e.Topic, e.Data, attributes); err != nil {
		return "", fmt.Errorf("publish %s on %s: %w", id, e.Topic, err)
	}
	if from != ledger.Dead {
		return Redriven, nil
	}
	_, err = r.store.Change(ctx, id, func(e ledger.Entry) (ledger.Entry, bool) {
		return e.Redriven(), e.Claim.Token == claim.Token
	})
	if err != nil {
		return "", fmt.Errorf("mark %s as redriving: %w", id, err)
	}
	return Redriven, nil
}
