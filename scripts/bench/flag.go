package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"mailyard.internal/mailyard/shared/mail"
)

// flagLane compares MessageRead with a bare function. Each event finds a mirrored message and changes
// it: every turn writes the same documents with a greater historyId.
func flagLane(ctx context.Context, y *yard) ([]figure, error) {
	box, err := y.mailbox("flag@example.com")
	if err != nil {
		return nil, err
	}
	function, err := y.function("MessageRead")
	if err != nil {
		return nil, err
	}
	ours, err := y.reader(ctx, function, func() (string, error) { return y.link(ctx, box, "mailyard") })
	if err != nil {
		return nil, err
	}
	bare, err := y.reader(ctx, http.HandlerFunc(y.bare.Flag), func() (string, error) { return y.link(ctx, box, "bare") })
	if err != nil {
		return nil, err
	}
	return compare(ours, bare)
}

// reader fills an account's mirror and returns a turn in which each of its messages is read.
func (y *yard) reader(ctx context.Context, function http.Handler, link func() (string, error)) (func(int) (float64, error), error) {
	account, err := link()
	if err != nil {
		return nil, err
	}
	for i := range perTurn {
		if err := y.mirror(ctx, account, messageID(i)); err != nil {
			return nil, err
		}
	}
	return func(turn int) (float64, error) {
		e := mail.Event{AccountID: account, ThreadID: "t", Lane: "message-read", HistoryID: mail.HistoryID(1000 + turn)}
		bodies := make([][]byte, perTurn)
		for i := range bodies {
			e.MessageID = messageID(i)
			if bodies[i], err = y.push(e); err != nil {
				return 0, err
			}
		}
		rate, err := eventsPerSecond(ctx, function, bodies)
		if err != nil {
			return 0, err
		}
		return rate, y.demand(ctx, account, e.MessageID, "unread", e.HistoryID)
	}, nil
}

func messageID(i int) string { return fmt.Sprintf("m%04d", i) }

// mirror writes a message with content, as if it had been fetched at historyId 1.
func (y *yard) mirror(ctx context.Context, account, id string) error {
	fetched := mail.Apply(mail.Message{ID: id}, mail.Fetched{
		HistoryID: 1, ThreadID: "t", Flags: map[string]bool{"unread": true, "trashed": false},
		Summary: mail.Summary{
			From: "Sam Sender <sam@example.com>", To: []string{"Kim <kim@example.com>"}, Subject: "Minutes of the meeting",
			Snippet: strings.Repeat("What was said, and by whom. ", 7), SizeEstimate: 24_000,
		},
	})
	saved, err := y.db.SaveMessage(ctx, account, mail.Message{ID: id}, fetched)
	if err == nil && !saved {
		err = fmt.Errorf("message %s/%s was there already", account, id)
	}
	return err
}

// demand fails unless a message's facet has been set at that historyId or later.
func (y *yard) demand(ctx context.Context, account, id, facet string, from mail.HistoryID) error {
	_, m, err := y.db.Message(ctx, account, id)
	if err == nil && m.Guards[facet] < from {
		err = fmt.Errorf("%s of message %s/%s was not written", facet, account, id)
	}
	return err
}
