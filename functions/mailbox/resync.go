package mailbox

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

// resyncStore keeps the record of resyncs.
type resyncStore interface {
	// Resync returns a resync that was recorded, or false where there is none of that id.
	Resync(ctx context.Context, account, id string) (mail.Resync, bool, error)
	// CreateResync records a resync, unless one of that id is there.
	CreateResync(ctx context.Context, r mail.Resync) error
}

// rawPublisher publishes a message; nil means that Pub/Sub has confirmed it.
type rawPublisher interface {
	PublishRaw(ctx context.Context, topic string, data []byte, attributes map[string]string) error
}

// Resyncs asks for resyncs.
type Resyncs struct {
	store     resyncStore
	publisher rawPublisher
	now       func() time.Time
}

// NewResyncs returns what asks for resyncs.
func NewResyncs(store resyncStore, publisher rawPublisher, now func() time.Time) *Resyncs {
	return &Resyncs{store, publisher, now}
}

// A ResyncRequest is the data of a message on mailbox-resync.
type ResyncRequest struct {
	AccountID string `json:"accountId"`
	ResyncID  string `json:"resyncId"`
}

// RequestResync asks for a resync and records it. Of one id it asks once: the record comes after the
// request, so a crash between the two asks again, and never leaves a resync that nobody was asked for.
func (r *Resyncs) RequestResync(ctx context.Context, account, id, reason string) error {
	_, known, err := r.store.Resync(ctx, account, id)
	if err != nil || known {
		return err
	}
	data, err := json.Marshal(ResyncRequest{account, id})
	if err != nil {
		return fmt.Errorf("encode the resync request %s of account %s: %w", id, account, err)
	}
	if err := r.publisher.PublishRaw(ctx, lane.ResyncTopic, data, map[string]string{"account": account}); err != nil {
		return fmt.Errorf("ask for the resync %s of account %s: %w", id, account, err)
	}
	return r.store.CreateResync(ctx, mail.Resync{
		ID: id, AccountID: account, State: mail.ResyncListing, Reason: reason, StartedAt: r.now(),
	})
}
