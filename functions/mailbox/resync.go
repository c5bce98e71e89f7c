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
	// OpenResyncs returns an account's resyncs that have not ended, the oldest first.
	OpenResyncs(ctx context.Context, account string) ([]mail.Resync, error)
	// SaveResync replaces the record that was read, the zero Resync for none. It returns false where
	// another write came first.
	SaveResync(ctx context.Context, read, become mail.Resync) (bool, error)
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

// A ResyncRequest is the data of a message on mailbox-resync. Where the record says how far the resync
// is, it asks to go on.
type ResyncRequest struct {
	AccountID string `json:"accountId"`
	ResyncID  string `json:"resyncId"`
	Reason    string `json:"reason,omitempty"`
}

// DecodeResyncRequest reads the data of a message on mailbox-resync.
func DecodeResyncRequest(data []byte) (ResyncRequest, error) {
	var r ResyncRequest
	if err := json.Unmarshal(data, &r); err != nil {
		return ResyncRequest{}, fmt.Errorf("not the JSON of a resync request: %w", err)
	}
	for _, id := range []string{r.AccountID, r.ResyncID} {
		if !mail.PlainID(id) {
			return ResyncRequest{}, fmt.Errorf("accountId and resyncId must be 1 to 128 letters, digits, - or _")
		}
	}
	return r, nil
}

// RequestResync asks for a resync and records it. Of one id it asks once; a request that finds another
// resync open joins that one. The record comes after the request, so a crash between the two asks
// again, and never leaves a resync that nobody was asked for.
func (r *Resyncs) RequestResync(ctx context.Context, account, id, reason string) error {
	_, known, err := r.store.Resync(ctx, account, id)
	if err != nil || known {
		return err
	}
	open, err := r.store.OpenResyncs(ctx, account)
	if err != nil {
		return err
	}
	if len(open) > 0 {
		return r.Continue(ctx, open[0])
	}
	resync := mail.Resync{
		ID: id, AccountID: account, State: mail.ResyncListing, Reason: reason,
		StartedAt: r.now(), DueAt: r.now().Add(resumeAfter),
	}
	if err := r.Continue(ctx, resync); err != nil {
		return err
	}
	_, err = r.store.SaveResync(ctx, mail.Resync{}, resync) // false: its first step has recorded it already
	return err
}

// Continue asks for a resync's next step.
func (r *Resyncs) Continue(ctx context.Context, resync mail.Resync) error {
	data, err := json.Marshal(ResyncRequest{resync.AccountID, resync.ID, resync.Reason})
	if err != nil {
		return fmt.Errorf("encode the resync request %s of account %s: %w", resync.ID, resync.AccountID, err)
	}
	if err := r.publisher.PublishRaw(ctx, lane.ResyncTopic, data, nil); err != nil {
		return fmt.Errorf("ask for the resync %s of account %s: %w", resync.ID, resync.AccountID, err)
	}
	return nil
}
