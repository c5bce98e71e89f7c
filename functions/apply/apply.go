// Package apply turns one event into one guarded write.
//
// Delivery is at least once and in any order; applying an event twice, or late, changes nothing. A
// flag or a deletion costs one read (account and message together) and one conditional write, and no
// Gmail call; an added message one messages.get more. Writers of one message don't wait for each
// other: who finds that another came first reads again.
package apply

import (
	"context"
	"fmt"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

// A mirror holds accounts and their messages.
type mirror interface {
	// Message reads an account and one of its messages in one round trip. A message that is not
	// mirrored comes with its id alone; an account that does not exist is a fault.AccountGone.
	Message(ctx context.Context, account, message string) (mail.Account, mail.Message, error)
	// SaveMessage replaces what was read by what it became, body included, in one commit. It returns
	// false where another write came first.
	SaveMessage(ctx context.Context, account string, read, become mail.Message) (bool, error)
	// DropMessage removes what was read. It returns false where another write came first.
	DropMessage(ctx context.Context, account string, read mail.Message) (bool, error)
}

// A publisher puts events on their way.
type publisher interface {
	// PublishEvents publishes each event on its own lane's topic.
	PublishEvents(ctx context.Context, events ...mail.Event) error
	// PublishChange tells the app that an event has been applied.
	PublishChange(ctx context.Context, event mail.Event) error
}

// A Handler applies the events of every lane.
type Handler struct {
	catalogue *lane.Catalogue
	mirror    mirror
	publisher publisher
	gmail     gmail
	now       func() time.Time
}

// New returns a handler. Gmail is called for the fetch lane only.
func New(catalogue *lane.Catalogue, mirror mirror, publisher publisher, gmail gmail, now func() time.Time) *Handler {
	return &Handler{catalogue, mirror, publisher, gmail, now}
}

// Lane returns the handling of one lane's events, as its effect says.
func (h *Handler) Lane(l lane.Lane) func(context.Context, mail.Event) (mail.Outcome, error) {
	switch l.Effect.Kind {
	case lane.Fetch:
		return h.fetch
	case lane.Delete:
		return func(ctx context.Context, e mail.Event) (mail.Outcome, error) { return h.delete(ctx, e, l.Change(e)) }
	default:
		return func(ctx context.Context, e mail.Event) (mail.Outcome, error) { return h.state(ctx, e, l.Change(e)) }
	}
}

// state makes a change that needs no Gmail call, and asks for the content of what is only a stub.
func (h *Handler) state(ctx context.Context, e mail.Event, c mail.Change) (mail.Outcome, error) {
	m, outcome, err := h.apply(ctx, e, c)
	if err != nil {
		return "", err
	}
	if m.NeedsContent() {
		ask := e
		ask.Lane, ask.Time, ask.Labels = h.catalogue.FetchLane().Key, h.now(), nil
		if err := h.publisher.PublishEvents(ctx, ask); err != nil {
			return "", fmt.Errorf("ask for the content of %s/%s: %w", e.AccountID, e.MessageID, err)
		}
	}
	return outcome, h.publisher.PublishChange(ctx, e)
}

func (h *Handler) delete(ctx context.Context, e mail.Event, c mail.Change) (mail.Outcome, error) {
	m, outcome, err := h.apply(ctx, e, c)
	if err != nil || !m.EverMirrored() {
		return outcome, err
	}
	return outcome, h.publisher.PublishChange(ctx, e)
}

// apply makes one change and returns the message as it then stands.
func (h *Handler) apply(ctx context.Context, e mail.Event, c mail.Change) (mail.Message, mail.Outcome, error) {
	_, read, err := h.mirror.Message(ctx, e.AccountID, e.MessageID)
	if err != nil {
		return mail.Message{}, "", err
	}
	return h.save(ctx, e, read, func(m mail.Message) mail.Message { return mail.Apply(m, c) })
}

// save makes of a message what become says, however many others write it at the same time. read is
// what is known of it so far.
func (h *Handler) save(ctx context.Context, e mail.Event, read mail.Message, become func(mail.Message) mail.Message) (mail.Message, mail.Outcome, error) {
	for range maxWrites {
		next := become(read)
		if !h.catalogue.KeepsLabels() {
			next = mail.ForgetLabels(next)
		}
		if !read.Version.IsZero() && !mail.Differ(read, next) {
			return read, mail.Unchanged, nil
		}
		saved, err := h.mirror.SaveMessage(ctx, e.AccountID, read, next)
		if err != nil {
			return mail.Message{}, "", err
		}
		if saved {
			return next, mail.Applied, nil
		}
		if _, read, err = h.mirror.Message(ctx, e.AccountID, e.MessageID); err != nil {
			return mail.Message{}, "", err
		}
	}
	return mail.Message{}, "", errContended(e)
}

func errContended(e mail.Event) error {
	return fault.Transient(fault.Conflict,
		fmt.Errorf("message %s/%s kept changing under %d writes", e.AccountID, e.MessageID, maxWrites))
}

// maxWrites is how often a write is tried before the event is left to a later delivery. Each try
// that fails means that another writer of the same message got through.
const maxWrites = 20
