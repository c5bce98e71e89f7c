package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/mail"
)

// fetchLane compares MessageAdded with a bare function. Each event brings a message that is not
// mirrored yet: every turn fetches the same messages for another account of the same mailbox.
func fetchLane(ctx context.Context, y *yard) ([]figure, error) {
	box, err := y.mailbox("fetch@example.com")
	if err != nil {
		return nil, err
	}
	ids := make([]string, perTurn+1)
	for i := range ids {
		if ids[i], err = box.Deliver(ctx, letter(i)); err != nil {
			return nil, err
		}
	}
	if y.bare.Token, err = y.accessToken(box); err != nil {
		return nil, err
	}
	function, err := y.function("MessageAdded")
	if err != nil {
		return nil, err
	}
	return compare(
		y.fetcher(ctx, function, box, "mailyard", ids),
		y.fetcher(ctx, http.HandlerFunc(y.bare.Fetch), box, "bare", ids))
}

// fetcher returns a turn in which each of the mailbox's messages comes into an empty mirror. The first
// is not counted: with it a new account gets its access token.
func (y *yard) fetcher(ctx context.Context, function http.Handler, box *gmailsim.Mailbox, owner string, ids []string) func(int) (float64, error) {
	return func(turn int) (float64, error) {
		account, err := y.link(ctx, box, fmt.Sprintf("%s-%d", owner, turn))
		if err != nil {
			return 0, err
		}
		e := mail.Event{AccountID: account, Lane: "message-added", HistoryID: mail.HistoryID(box.HistoryID())}
		bodies := make([][]byte, len(ids))
		for i, id := range ids {
			e.MessageID = id
			if bodies[i], err = y.push(e); err != nil {
				return 0, err
			}
		}
		if _, err := eventsPerSecond(ctx, function, bodies[:1]); err != nil {
			return 0, err
		}
		rate, err := eventsPerSecond(ctx, function, bodies[1:])
		if err != nil {
			return 0, err
		}
		return rate, y.demand(ctx, account, e.MessageID, mail.FacetContent, 1)
	}
}

// letter is a mail of a usual size in both forms: 2 kB of text and 12 kB of HTML.
func letter(i int) gmailsim.Mail {
	return gmailsim.Mail{
		To: "Kim <kim@example.com>", Subject: fmt.Sprintf("Minutes of meeting %d", i),
		Text: strings.Repeat("What was said, and by whom, and what is to be done.\r\n", 40),
		HTML: "<html><body>" + strings.Repeat(`<p style="margin:0 0 12px;font-family:Arial">What was said, and by whom.</p>`, 160) + "</body></html>",
	}
}
