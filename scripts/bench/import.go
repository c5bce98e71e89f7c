package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

const (
	importedMessages = 20_000
	liveMessages     = 150 // applied without and with the import
	ownMessages      = 20  // of the mailbox that is being imported
)

// importBesideLive measures how long a live message takes to be applied while a mailbox is imported by
// another process, within Gmail's quota: of another mailbox against the same without the import, and of
// the same mailbox.
func importBesideLive(ctx context.Context, y *yard) ([]figure, error) {
	big, err := y.mailbox("import@example.com")
	if err != nil {
		return nil, err
	}
	for range importedMessages {
		if _, err := big.Deliver(ctx, gmailsim.Mail{From: "a@example.com", Subject: "mail", Text: "text"}); err != nil {
			return nil, err
		}
	}
	other, err := y.mailbox("live@example.com")
	if err != nil {
		return nil, err
	}
	imported, err := y.link(ctx, big, "bench")
	if err != nil {
		return nil, err
	}
	live, err := y.link(ctx, other, "bench")
	if err != nil {
		return nil, err
	}
	program, err := y.build(ctx, "mailyard")
	if err != nil {
		return nil, err
	}
	if err := y.topic(ctx, lane.ResyncTopic); err != nil {
		return nil, err
	}
	if _, err := y.applyLive(ctx, other, live, ownMessages); err != nil { // a warm-up
		return nil, err
	}
	without, err := y.applyLive(ctx, other, live, liveMessages)
	if err != nil {
		return nil, err
	}
	process, url, err := y.serve(ctx, program, "Resync")
	if err != nil {
		return nil, err
	}
	stop, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := y.resync(stop, url, imported, process.Stderr.(*bytes.Buffer))
		ended <- err
	}()
	defer func() {
		cancel()
		_ = process.Process.Kill()
		_ = process.Wait()
		<-ended
	}()
	if err := y.mending(ctx, imported); err != nil {
		return nil, err
	}
	with, err := y.applyLive(ctx, other, live, liveMessages)
	if err != nil {
		return nil, err
	}
	own, err := y.applyLive(ctx, big, imported, ownMessages)
	if err != nil {
		return nil, err
	}
	r, _, err := y.db.Resync(ctx, imported, "bench")
	if err != nil || !r.Open() {
		return nil, fmt.Errorf("the import was over before it was measured beside: %+v, %w", r, err)
	}
	return []figure{
		milliseconds("a live message of another mailbox, without the import", median(without)),
		milliseconds("the same, while 20,000 messages are imported", median(with)),
		{what: "with ÷ without the import", value: over(median(with), median(without)), bound: atMost(1.2)},
		{what: "slowest live message of the imported mailbox", value: slices.Max(own).Seconds(), unit: "s", bound: atMost(1)},
	}, nil
}

// mending waits until the import fetches.
func (y *yard) mending(ctx context.Context, account string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		r, known, err := y.db.Resync(ctx, account, "bench")
		if err != nil {
			return err
		}
		if known && r.State == mail.ResyncMending {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait for the import to fetch: %w", ctx.Err())
		}
	}
}

// applyLive delivers messages to a mailbox, one after the other, and returns how long the function of
// the fetch lane took to apply each.
func (y *yard) applyLive(ctx context.Context, box *gmailsim.Mailbox, account string, n int) ([]time.Duration, error) {
	added, err := y.function("MessageAdded")
	if err != nil {
		return nil, err
	}
	took := make([]time.Duration, n)
	for i := range took {
		id, err := box.Deliver(ctx, gmailsim.Mail{From: "a@example.com", Subject: "live", Text: "text"})
		if err != nil {
			return nil, err
		}
		body, err := y.push(mail.Event{AccountID: account, MessageID: id, Lane: "message-added", HistoryID: mail.HistoryID(box.HistoryID())})
		if err != nil {
			return nil, err
		}
		began := time.Now()
		answer := httptest.NewRecorder()
		added(answer, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(body)))
		took[i] = time.Since(began)
		if answer.Code != http.StatusNoContent {
			return nil, fmt.Errorf("a live message was answered %d", answer.Code)
		}
	}
	return took, nil
}
