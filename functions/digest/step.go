package digest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mail"
	"mailyard.internal/mailyard/shared/mailing"
)

// Ports are what a Worker works with.
type Ports struct {
	Runs        runStore
	Subscribers subscriberStore
	Mailings    mailingStore
	Mirror      mirror
	Sender      sender
	Composer    *Composer
	Publisher   publisher
	Announcer   announcer
	// Reported is told of each run that has ended, and Unannounced of what people could not be told.
	Reported    func(mailing.Run)
	Unannounced func(error)
	Zone        *time.Location
	// Pace is the time between two sends, and Backoff the first pause before a send is tried again.
	Pace, Backoff time.Duration
	// Chunk is how many subscribers or mailings a step works on: ChunkSize, but where a query costs more
	// than what it finds.
	Chunk int
	Now   func() time.Time
}

// A Worker carries runs out, a step at a time. One worker is at a run at a time, and one run at a time is
// worked on, the earliest day first: all of them have one sender.
type Worker struct {
	Ports
	turns *turns
}

// NewWorker returns a worker.
func NewWorker(p Ports) *Worker { return &Worker{p, newTurns(p.Pace)} }

// Handle does the step that a message asks for, and asks for the next.
func (w *Worker) Handle(ctx context.Context, request mailing.Request) (mail.Outcome, error) {
	r, mine, err := w.claim(ctx, request)
	if err != nil || !mine {
		return mail.Unchanged, err
	}
	r, progress, err := w.step(ctx, r)
	if err != nil {
		return "", w.abandon(ctx, r, err)
	}
	r, err = w.save(ctx, r, func(r *mailing.Run) {
		r.Claim, r.DueAt = "", w.Now().Add(resumeAfter)
		progress(r)
		if !r.Open() {
			r.DueAt = time.Time{}
		}
	})
	switch {
	case err != nil:
		return "", err
	case r.Open() && r.PausedUntil.After(w.Now()): // Tick returns to it
		return mail.Deferred, nil
	case r.Open():
		return mail.Applied, ask(ctx, w.Publisher, r)
	}
	w.Reported(r)
	return mail.Applied, w.askNext(ctx)
}

// step does the piece of work at which the run is, and returns what it has changed in the run.
func (w *Worker) step(ctx context.Context, r mailing.Run) (mailing.Run, func(*mailing.Run), error) {
	switch r.Phase {
	case mailing.Generate:
		progress, err := w.generate(ctx, r)
		return r, progress, err
	case mailing.Send:
		return w.send(ctx, r)
	case mailing.Advance:
		progress, err := w.advance(ctx, r)
		return r, progress, err
	}
	progress, err := w.report(ctx, r)
	return r, progress, err
}

// nextPass goes on with a phase that has found nothing more. Where it has not looked from the beginning
// it does so once more; where it has, the phase is over.
func nextPass(r mailing.Run, next mailing.Phase) func(*mailing.Run) {
	over := r.After == ""
	return func(r *mailing.Run) {
		r.After = ""
		if over {
			r.Phase = next
		}
	}
}

// claim takes the run over. It is not ours where the run is elsewhere than the message says, where
// somebody works on it, where it is to wait, or where a run of an earlier day is open: that one is first.
func (w *Worker) claim(ctx context.Context, request mailing.Request) (mailing.Run, bool, error) {
	read, found, err := w.Runs.Run(ctx, request.Run)
	if err != nil || !found || read.At() != request || !read.Open() || !read.Free(w.Now()) {
		return read, false, err
	}
	open, err := w.Runs.OpenRuns(ctx)
	if err != nil {
		return read, false, err
	}
	if len(open) > 0 && open[0].Day < read.Day {
		become := read
		become.DueAt = w.Now().Add(resumeAfter)
		if _, err := w.Runs.SaveRun(ctx, read, become); err != nil {
			return read, false, err
		}
		return read, false, ask(ctx, w.Publisher, open[0])
	}
	become := read
	become.Claim, become.DueAt = rand.Text(), w.Now().Add(claimTime)
	if _, err := w.Runs.SaveRun(ctx, read, become); err != nil {
		return read, false, err
	}
	return w.reread(ctx, become) // the client may repeat a write whose reply was lost, and call it a conflict
}

// reread returns the record with the version by which its next write is checked, and whether the claim
// still holds it.
func (w *Worker) reread(ctx context.Context, r mailing.Run) (mailing.Run, bool, error) {
	now, found, err := w.Runs.Run(ctx, r.Day)
	return now, found && now.Claim == r.Claim, err
}

// errTaken says that another worker, or a later run, has taken the run over.
var errTaken = fault.Wait(fault.Conflict, errors.New("another worker has taken the run over"))

// save records progress, and holds the claim unless progress gives it back.
func (w *Worker) save(ctx context.Context, r mailing.Run, progress func(*mailing.Run)) (mailing.Run, error) {
	for range maxWrites {
		become := r
		become.DueAt = w.Now().Add(claimTime)
		progress(&become)
		saved, err := w.Runs.SaveRun(ctx, r, become)
		if err != nil {
			return r, fmt.Errorf("record run %s: %w", r.Day, err)
		}
		now, found, err := w.Runs.Run(ctx, r.Day)
		switch {
		case err != nil:
			return r, err
		case saved && found && now.Claim == become.Claim:
			return now, nil
		case !saved && found && now.Claim == r.Claim && now.Version.Equal(r.Version):
			continue // it did not come through
		case !saved && found && now.At() == become.At() && now.Claim == become.Claim && now.DueAt.Equal(become.DueAt.Truncate(time.Microsecond)):
			return now, nil // our own write, whose reply was lost
		}
		return r, errTaken
	}
	return r, fault.Transient(fault.Conflict, fmt.Errorf("run %s could not be recorded", r.Day))
}

// abandon gives the claim back after a failure, so that the redelivery can go on.
func (w *Worker) abandon(ctx context.Context, r mailing.Run, failure error) error {
	if fault.IsWaiting(failure) {
		return failure
	}
	ctx, cancel := afterwards(ctx)
	defer cancel()
	if _, err := w.save(ctx, r, func(r *mailing.Run) { r.Claim, r.DueAt = "", w.Now().Add(resumeAfter) }); err != nil {
		return fmt.Errorf("%w (and its claim stays until it runs out: %w)", failure, err)
	}
	return failure
}

// askNext asks for the run that has waited for this one.
func (w *Worker) askNext(ctx context.Context) error {
	open, err := w.Runs.OpenRuns(ctx)
	if err != nil || len(open) == 0 {
		return err
	}
	return ask(ctx, w.Publisher, open[0])
}

// afterwards is for what must be written down though the time is up.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), settleTime)
}

// settleTime is within what the delivery keeps back for the ledger.
const settleTime = 5 * time.Second

// announce tells people; that it cannot is no reason to stop.
func (w *Worker) announce(ctx context.Context, title string, lines ...string) {
	if err := w.Announcer.Announce(ctx, title, lines...); err != nil {
		w.Unannounced(err)
	}
}
