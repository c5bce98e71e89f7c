package delivery

import (
	"context"

	"mailyard.internal/mailyard/shared/event"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// Events decodes the messages of one lane for a handler.
func Events(l lane.Lane, handle func(context.Context, mail.Event) (mail.Outcome, error)) Decode {
	return func(m Message) (ledger.Subject, Work, error) {
		e, err := event.Decode(l.Key, m.Data, m.Attributes)
		if err != nil {
			return ledger.Subject{Lane: l.Key}, nil, err
		}
		e.Traceparent = m.Traceparent
		return SubjectOf(e), func(ctx context.Context) (mail.Outcome, error) { return handle(ctx, e) }, nil
	}
}

// SubjectOf says what a failure of the event is about.
func SubjectOf(e mail.Event) ledger.Subject {
	return ledger.Subject{EventID: e.ID(), Lane: e.Lane, AccountID: e.AccountID, MessageID: e.MessageID, HistoryID: e.HistoryID}
}

// Notifications decodes Gmail's notifications for a handler.
func Notifications(handle func(context.Context, mail.Notification) (mail.Outcome, error)) Decode {
	return func(m Message) (ledger.Subject, Work, error) {
		n, err := DecodeNotification(m.Data)
		if err != nil {
			return ledger.Subject{}, nil, err
		}
		n.Traceparent = m.Traceparent
		subject := ledger.Subject{HistoryID: min(n.HistoryID, mail.MaxHistoryID)}
		return subject, func(ctx context.Context) (mail.Outcome, error) { return handle(ctx, n) }, nil
	}
}
