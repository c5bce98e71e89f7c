package digest

import (
	"context"
	"fmt"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mailing"
)

// advance moves the subscribers of one chunk of mailings on, each in one commit with its mailing.
func (w *Worker) advance(ctx context.Context, r mailing.Run) (func(*mailing.Run), error) {
	for range maxWrites {
		chunk, err := w.Mailings.MailingsAwaiting(ctx, r.Day, mailing.AwaitsAdvance, r.After, w.Chunk)
		if err != nil {
			return nil, err
		}
		if len(chunk) == 0 {
			return nextPass(r, mailing.Report), nil
		}
		ids := make([]string, len(chunk))
		for i, m := range chunk {
			ids[i] = m.SubscriberID
		}
		subscribers, err := w.Subscribers.Subscribers(ctx, ids)
		if err != nil {
			return nil, err
		}
		mailings := make([]mailing.Changed[mailing.Mailing], len(chunk))
		var moved []mailing.Changed[mailing.Subscriber]
		for i, m := range chunk {
			become := m
			become.Awaits = ""
			mailings[i] = mailing.Changed[mailing.Mailing]{Read: m, Become: become}
			if s, moves := m.Advance(subscribers[m.SubscriberID]); moves {
				moved = append(moved, mailing.Changed[mailing.Subscriber]{Read: subscribers[m.SubscriberID], Become: s})
			}
		}
		saved, err := w.Mailings.SaveMailings(ctx, mailings, moved)
		if err != nil {
			return nil, fmt.Errorf("advance subscribers of run %s: %w", r.Day, err)
		}
		if saved {
			return func(r *mailing.Run) { r.After = chunk[len(chunk)-1].ID }, nil
		}
		// Others wrote one of them, as who unsubscribes does, or it is our own write, whose reply was lost.
	}
	return nil, fault.Transient(fault.Conflict, fmt.Errorf("subscribers of run %s kept changing", r.Day))
}
