package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"google.golang.org/api/gmail/v1"

	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

// records is how many history records Gmail puts on a page at most.
const records = 500

// classify compares the classifier with the decoding of the response that it classifies, the same page
// for both.
func classify(ctx context.Context, y *yard) ([]figure, error) {
	box, err := y.mailbox("classify@example.com")
	if err != nil {
		return nil, err
	}
	start := box.HistoryID()
	if err := live(ctx, box); err != nil {
		return nil, err
	}
	response, err := y.history(ctx, box, start)
	if err != nil {
		return nil, err
	}
	account, err := y.link(ctx, box, "mailyard")
	if err != nil {
		return nil, err
	}
	client, err := y.app.Gmail(ctx)
	if err != nil {
		return nil, err
	}
	page, err := client.History(ctx, account, mail.HistoryID(start), "")
	if err != nil {
		return nil, err
	}
	if len(page.Records) != records {
		return nil, fmt.Errorf("the page has %d records, not %d", len(page.Records), records)
	}
	catalogue, err := lane.Load()
	if err != nil {
		return nil, err
	}
	events := len(catalogue.NewListing(account).Page(page.Records))
	times, err := inTurns(5,
		func(int) (time.Duration, error) {
			return perRun(ctx, func() error {
				if n := len(catalogue.NewListing(account).Page(page.Records)); n != events {
					return fmt.Errorf("%d events, then %d", events, n)
				}
				return nil
			})
		},
		func(int) (time.Duration, error) {
			return perRun(ctx, func() error {
				var answer gmail.ListHistoryResponse
				return json.Unmarshal(response, &answer)
			})
		})
	if err != nil {
		return nil, err
	}
	return []figure{
		microseconds(fmt.Sprintf("classify %d records into %d events", records, events), times[0]),
		microseconds(fmt.Sprintf("decode them with encoding/json, %d kB", len(response)/1000), times[1]),
		{what: "ratio", value: over(times[0], times[1]), bound: atMost(0.1)},
	}, nil
}

// live makes at least a page of history: mail that comes, is read, goes, comes back and goes for good.
func live(ctx context.Context, box *gmailsim.Mailbox) error {
	for i := range records / 5 {
		id, err := box.Deliver(ctx, letter(i))
		if err != nil {
			return err
		}
		for _, happens := range []func(context.Context, string) error{box.Read, box.Trash, box.Untrash, box.Unread, box.Delete} {
			if err := happens(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// history gets the first page of what changed since start, as it goes over the wire.
func (y *yard) history(ctx context.Context, box *gmailsim.Mailbox, start uint64) ([]byte, error) {
	token, err := y.accessToken(box)
	if err != nil {
		return nil, err
	}
	at := fmt.Sprintf("%s/gmail/v1/users/me/history?startHistoryId=%d&maxResults=%d", y.env["MAILYARD_GMAIL_ENDPOINT"], start, records)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

// perRun is the time of one run of f, over about a second.
func perRun(ctx context.Context, f func() error) (time.Duration, error) {
	var failure error
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if failure = errors.Join(f(), ctx.Err()); failure != nil {
				return
			}
		}
	})
	return time.Duration(result.NsPerOp()), failure
}
