package digest

import (
	"context"
	"fmt"
	"time"

	"mailyard.internal/mailyard/shared/mailing"
)

// report adds up what became of everybody, tells people, and ends the run. What was sent is counted as it
// stands, not as it was meant.
func (w *Worker) report(ctx context.Context, r mailing.Run) (func(*mailing.Run), error) {
	outcomes, err := w.Mailings.CountMailings(ctx, r.Day)
	if err != nil {
		return nil, err
	}
	read := r.Counts
	r.Counts = outcomes
	r.Counts = r.Counts.Add(read)
	r.FinishedAt = w.Now()
	title, lines := Summary(r)
	w.announce(ctx, title, lines...)
	return func(run *mailing.Run) {
		run.Counts, run.FinishedAt, run.Phase, run.After = r.Counts, r.FinishedAt, mailing.Finished, ""
	}, nil
}

// Summary tells of a run that has ended in a title and a few lines. It holds counts alone.
func Summary(r mailing.Run) (title string, lines []string) {
	c := r.Counts
	title = fmt.Sprintf("digests of %s: %d sent", r.Day, c.Sent)
	if c.Failed+c.Processing > 0 {
		title += fmt.Sprintf(", %d failed, %d uncertain", c.Failed, c.Processing)
	}
	lines = []string{
		fmt.Sprintf("%d subscribers read, %d filtered, %d busy; %d daily and %d weekly digests made", c.Read, c.Filtered, c.Busy, c.Daily, c.Weekly),
		fmt.Sprintf("%d sent, %d failed, %d left processing, %d unsubscribed meanwhile, %d left for a later run, %d retried", c.Sent, c.Failed, c.Processing, c.Unsubscribed, c.Left, c.Retried),
		fmt.Sprintf("took %s", r.FinishedAt.Sub(r.StartedAt).Round(time.Second)),
	}
	if wrong := c.Differences(); len(wrong) > 0 {
		title = "DIGESTS OF " + string(r.Day) + " DO NOT ADD UP"
		lines = append(wrong, lines...)
	}
	if c.Processing > 0 {
		lines = append(lines, "mailyard digest resolve lists those left processing")
	}
	return title, lines
}
