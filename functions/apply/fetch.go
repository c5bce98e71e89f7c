package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mail"
)

// gmail gets messages from Gmail.
type gmail interface {
	// FetchMessage gets a message: 20 quota units. The account's gate is closed by the adapter when
	// Gmail throttles it, and its grant marked as lost when Gmail says so.
	FetchMessage(ctx context.Context, account, message string) (mail.Fetch, error)
}

const (
	// lookAgainAfter: self-sent mail has been seen to answer 404 for about 3 s.
	lookAgainAfter = 3 * time.Second
	// youngFor is how long a 404 may mean that the message is not there yet.
	youngFor = 2 * time.Minute
	// throttledFor is how long a fetch is put off where Gmail names no moment: its quotas are counted
	// by the minute.
	throttledFor = time.Minute
)

// fetch brings a message's content, and every flag with it.
func (h *Handler) fetch(ctx context.Context, e mail.Event) (mail.Outcome, error) {
	account, read, err := h.mirror.Message(ctx, e.AccountID, e.MessageID)
	if err != nil {
		return "", err
	}
	switch {
	case read.Guards[mail.FacetContent] >= e.HistoryID:
		return mail.Unchanged, h.publisher.PublishChange(ctx, e)
	case !account.Callable():
		return h.stub(ctx, e, read)
	case account.GmailBlockedUntil.After(h.now()):
		return h.putOff(ctx, e, read, account.GmailBlockedUntil)
	}
	fetched, err := h.look(ctx, e, read)
	switch {
	case err == nil && mail.IsDraft(fetched.Labels):
		return h.drop(ctx, e, read)
	case err == nil:
		return h.fill(ctx, e, read, fetched)
	case fault.CodeOf(err) == fault.NotFound:
		return h.bury(ctx, e, read)
	case fault.IsThrottled(err):
		return h.putOff(ctx, e, read, fault.RetryAtOr(err, h.now().Add(throttledFor)))
	case fault.CodeOf(err) == fault.ReauthRequired:
		return h.stub(ctx, e, read)
	}
	return "", err
}

// look fetches the message. While the event is young a 404 may only mean that the message is not
// there yet, unless its deletion is known: it is looked at once more now, and again with each
// redelivery.
func (h *Handler) look(ctx context.Context, e mail.Event, read mail.Message) (mail.Fetch, error) {
	gone := read.Deleted && read.Guards[mail.FacetDeleted] >= e.HistoryID
	young := !gone && h.now().Sub(e.Time) < youngFor
	fetched, err := h.gmail.FetchMessage(ctx, e.AccountID, e.MessageID)
	if !young || !fault.Is(err, fault.NotFound) {
		return fetched, err
	}
	select {
	case <-time.After(lookAgainAfter):
	case <-ctx.Done():
		return mail.Fetch{}, errors.Join(ctx.Err(), err)
	}
	fetched, err = h.gmail.FetchMessage(ctx, e.AccountID, e.MessageID)
	if fault.Is(err, fault.NotFound) {
		return mail.Fetch{}, fault.Wait(fault.NotFoundYet, fmt.Errorf("message %s/%s is not there yet", e.AccountID, e.MessageID))
	}
	return fetched, err
}

func (h *Handler) fill(ctx context.Context, e mail.Event, read mail.Message, f mail.Fetch) (mail.Outcome, error) {
	change := mail.Fetched{
		HistoryID: mail.FetchGuard(f.HistoryID, e.HistoryID),
		ThreadID:  f.ThreadID,
		Flags:     h.catalogue.FlagsOf(f.Labels),
		Labels:    h.catalogue.LabelsOf(f.Labels),
		Summary:   f.Summary,
		Body:      f.Body,
	}
	_, outcome, err := h.save(ctx, e, read, func(m mail.Message) mail.Message { return mail.Apply(m, change) })
	if err != nil {
		return "", err
	}
	return outcome, h.publisher.PublishChange(ctx, e)
}

// bury makes a tombstone of a message that Gmail does not have.
func (h *Handler) bury(ctx context.Context, e mail.Event, read mail.Message) (mail.Outcome, error) {
	change := mail.Deletion{HistoryID: e.HistoryID, ThreadID: e.ThreadID}
	m, _, err := h.save(ctx, e, read, func(m mail.Message) mail.Message { return mail.Apply(m, change) })
	if err != nil || !m.EverMirrored() {
		return mail.Tombstoned, err
	}
	return mail.Tombstoned, h.publisher.PublishChange(ctx, e)
}

// putOff leaves the fetch to Tick, so that one throttled mailbox does not slow the lane for others.
func (h *Handler) putOff(ctx context.Context, e mail.Event, read mail.Message, due time.Time) (mail.Outcome, error) {
	_, _, err := h.save(ctx, e, read, func(m mail.Message) mail.Message { return mail.Defer(m, e, due) })
	return mail.Deferred, err
}

// stub leaves the fetch to the resync that follows when the account is linked or resumed again.
func (h *Handler) stub(ctx context.Context, e mail.Event, read mail.Message) (mail.Outcome, error) {
	_, _, err := h.save(ctx, e, read, func(m mail.Message) mail.Message { return mail.Stub(m, e) })
	return mail.Stubbed, err
}

// drop removes the stub of a draft: a draft is not a message yet.
func (h *Handler) drop(ctx context.Context, e mail.Event, read mail.Message) (mail.Outcome, error) {
	for range maxWrites {
		if read.Version.IsZero() || !read.NeedsContent() {
			return mail.Dropped, nil
		}
		dropped, err := h.mirror.DropMessage(ctx, e.AccountID, read)
		if err != nil || dropped {
			return mail.Dropped, err
		}
		if _, read, err = h.mirror.Message(ctx, e.AccountID, e.MessageID); err != nil {
			return "", err
		}
	}
	return "", errContended(e)
}
