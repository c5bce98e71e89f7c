package main

import (
	"context"
	"fmt"
	"testing"

	"mailyard.internal/mailyard/shared/mail"
)

// apply measures the rule by which a message changes. It has no bound: beside one read from Firestore
// any of these is nothing.
func apply(ctx context.Context, _ *yard) ([]figure, error) {
	message := mail.Apply(mail.Message{ID: "m"}, mail.Fetched{
		HistoryID: 1, Flags: map[string]bool{"unread": true, "trashed": false},
		Summary: mail.Summary{From: "sam@example.com", To: []string{"kim@example.com"}, Subject: "Minutes"},
	})
	var figures []figure
	for _, c := range []struct {
		what   string
		change mail.Change
	}{
		{"a flag", mail.Flag{Field: "unread", HistoryID: 2}},
		{"a late flag, which changes nothing", mail.Flag{Field: "unread", HistoryID: 1}},
		{"a fetch", mail.Fetched{HistoryID: 2, Flags: map[string]bool{"unread": true, "trashed": false}}},
		{"a deletion", mail.Deletion{HistoryID: 2}},
	} {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		result := testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				mail.Apply(message, c.change)
			}
		})
		figures = append(figures, figure{
			what: c.what, value: float64(result.NsPerOp()),
			unit: fmt.Sprintf("ns, %d allocations of %d bytes", result.AllocsPerOp(), result.AllocedBytesPerOp()),
		})
	}
	return figures, nil
}
