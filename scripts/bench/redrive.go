package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"mailyard.internal/mailyard/functions/deadletter"
	"mailyard.internal/mailyard/shared/event"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

const (
	redrivenLetters = 1000
	redriveRate     = 200 // letters a second
)

// redriveRateKept measures how near a redrive comes to the rate that it was given.
func redriveRateKept(ctx context.Context, y *yard) ([]figure, error) {
	catalogue, err := lane.Load()
	if err != nil {
		return nil, err
	}
	l, _ := catalogue.Lane("message-read")
	if err := y.topic(ctx, l.Topic()); err != nil {
		return nil, err
	}
	letters, err := y.letters(ctx, l, redrivenLetters)
	if err != nil {
		return nil, err
	}
	operator, err := y.app.Operator(ctx)
	if err != nil {
		return nil, err
	}
	var first, last time.Time
	report, err := operator.Redrive(ctx, deadletter.PlanRedrive(deadletter.Filter{}, letters, time.Now()), deadletter.Order{
		Who: "bench", Rate: redriveRate,
		Done: func() {
			if last = time.Now(); first.IsZero() {
				first = last
			}
		},
	})
	if err != nil {
		return nil, err
	}
	if report.Results[deadletter.Redriven] != redrivenLetters {
		return nil, fmt.Errorf("of %d letters it came to %v: %w", redrivenLetters, report.Results, report.Err)
	}
	perSecond := float64(redrivenLetters-1) / last.Sub(first).Seconds()
	return []figure{
		{what: "letters redriven at a rate of 200", value: perSecond, unit: "/s"},
		{what: "ratio to that rate", value: perSecond / redriveRate, bound: atLeast(0.9)},
		{what: "ratio to that rate", value: perSecond / redriveRate, bound: atMost(1.1)},
	}, nil
}

// letters puts dead letters of a lane into the ledger.
func (y *yard) letters(ctx context.Context, l lane.Lane, n int) ([]ledger.Entry, error) {
	entries := make([]ledger.Entry, n)
	var group errgroup.Group
	group.SetLimit(workers)
	for i := range entries {
		group.Go(func() (err error) {
			e := mail.Event{AccountID: "bench", MessageID: fmt.Sprintf("letter%d", i), Lane: l.Key, HistoryID: 7, Time: time.Now()}
			data, attributes, err := event.Encode(e)
			if err != nil {
				return err
			}
			entries[i], err = y.db.Change(ctx, e.ID(), func(read ledger.Entry) (ledger.Entry, bool) {
				read.Consumer, read.Topic, read.Data, read.Attributes = l.EntryPoint, l.Topic(), data, attributes
				read.Subject = ledger.Subject{EventID: e.ID(), Lane: l.Key, AccountID: e.AccountID, MessageID: e.MessageID, HistoryID: e.HistoryID}
				read.Code, read.LastFailedAt = fault.Unknown, time.Now()
				return read.Buried(time.Now()), true
			})
			return err
		})
	}
	return entries, group.Wait()
}
