package digest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mailing"
)

// sender sends mails as the digests' sender.
type sender interface {
	// Ready finds the account that sends. Where there is none that may, its error is an [ErrNoSender].
	Ready(ctx context.Context) error
	// Send makes one attempt to send a whole message. Its errors are a [CallError], or the context's
	// where nothing was called.
	Send(ctx context.Context, raw []byte) error
}

// ErrNoSender says that no account may send.
var ErrNoSender = errors.New("no linked account that may call Gmail holds the mailbox of MAILYARD_DIGEST_SENDER")

const (
	// tries is how often a send is tried in a row that is certainly not sent and worth another try.
	tries = 3
	// longestWait is how long a batch waits where Gmail asks for patience, before it gives its mails back.
	longestWait = 20 * time.Second
	// batchTime is how long a batch sends; what it has not sent by then it gives back.
	batchTime = 2 * time.Minute
)

// send sends one chunk, batch by batch.
func (w *Worker) send(ctx context.Context, r mailing.Run) (mailing.Run, func(*mailing.Run), error) {
	chunk, err := w.Mailings.MailingsAwaiting(ctx, r.Day, mailing.AwaitsSend, r.After, w.Chunk)
	if err != nil {
		return r, nil, err
	}
	if len(chunk) == 0 {
		return r, nextPass(r, mailing.Advance), nil
	}
	switch err := w.Sender.Ready(ctx); {
	case errors.Is(err, ErrNoSender):
		return w.rest(ctx, r, r.After, fault.Text(err))
	case err != nil:
		return r, nil, err
	}
	if wait := r.PaceUntil.Sub(w.Now()); wait > 0 { // of a process that has ended
		if err := pause(ctx, min(wait, batchSize*w.Pace)); err != nil {
			return r, nil, err
		}
	}
	after := r.After
	end := w.Now().Add(stepTime)
	for batch := range slices.Chunk(chunk, batchSize) {
		if !w.Now().Before(end) {
			break
		}
		b := batchOf(w, r)
		if r, err = w.save(ctx, r, func(r *mailing.Run) { r.PaceUntil = w.turns.until(w.Now(), len(batch)) }); err != nil {
			return r, nil, err
		}
		if err := b.run(ctx, batch); err != nil {
			return r, nil, err
		}
		r.InARow, r.Pauses = b.inARow, b.pauses
		if b.broken != "" {
			return w.rest(ctx, r, after, b.broken)
		}
		after = batch[len(batch)-1].ID
	}
	inARow, pauses := r.InARow, r.Pauses
	return r, func(r *mailing.Run) { r.After, r.InARow, r.Pauses = after, inARow, pauses }, nil
}

// rest pauses the run and tells people why.
func (w *Worker) rest(ctx context.Context, r mailing.Run, after, why string) (mailing.Run, func(*mailing.Run), error) {
	paused := r.Paused(w.Now())
	w.announce(ctx, "digests of "+string(r.Day)+" are paused until "+paused.PausedUntil.UTC().Format("15:04 MST"), why,
		"nothing is lost: what was not sent is sent when the run goes on")
	return r, func(r *mailing.Run) {
		r.After, r.InARow, r.Pauses, r.PausedUntil, r.DueAt = after, paused.InARow, paused.Pauses, paused.PausedUntil, paused.DueAt
	}, nil
}

// A batch is a few mailings that are claimed together.
type batch struct {
	*Worker
	day            mailing.Day
	inARow, pauses int
	broken         string // why the run is to be paused; empty where it is not
}

func batchOf(w *Worker, r mailing.Run) *batch {
	return &batch{Worker: w, day: r.Day, inARow: r.InARow, pauses: r.Pauses}
}

// run claims the mailings, in a commit of its own, sends those that it holds, and records what became of
// them in bulk.
func (b *batch) run(ctx context.Context, mailings []mailing.Mailing) error {
	held, subscribers, err := b.claim(ctx, mailings)
	if err != nil || len(held) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, batchTime)
	defer cancel()
	outcomes := make([]mailing.Mailing, len(held))
	for i, m := range held {
		outcomes[i] = b.sendOne(ctx, m, subscribers[m.SubscriberID])
	}
	return b.record(ctx, held, outcomes)
}

// claim takes the mailings, each by a random claim, for subscribers that are read again now. It returns
// those that it then finds to be its own: the client may repeat a commit whose reply was lost, and a
// commit may come through of which we were told that it failed.
func (b *batch) claim(ctx context.Context, mailings []mailing.Mailing) ([]mailing.Mailing, map[string]mailing.Subscriber, error) {
	ids, of := make([]string, len(mailings)), make([]string, len(mailings))
	for i, m := range mailings {
		ids[i], of[i] = m.ID, m.SubscriberID
	}
	subscribers, err := b.Subscribers.Subscribers(ctx, of)
	if err != nil {
		return nil, nil, err
	}
	claims := map[string]string{}
	var changes []mailing.Changed[mailing.Mailing]
	for _, m := range mailings {
		if !m.Sendable(b.day) {
			continue
		}
		become := m.Dropped()
		if s, there := subscribers[m.SubscriberID]; there && !s.Deleted() {
			claims[m.ID] = rand.Text()
			become = m.Claimed(claims[m.ID], b.Now())
		}
		changes = append(changes, mailing.Changed[mailing.Mailing]{Read: m, Become: become})
	}
	_, saveErr := b.Mailings.SaveMailings(ctx, changes, nil)
	now, err := b.Mailings.Mailings(ctx, ids)
	if err != nil {
		return nil, nil, errors.Join(saveErr, err)
	}
	var held []mailing.Mailing
	for _, id := range ids {
		if claim := claims[id]; claim != "" && now[id].HeldBy(claim) {
			held = append(held, now[id])
		}
	}
	if len(held) == 0 && saveErr != nil {
		return nil, nil, fmt.Errorf("claim mailings of run %s: %w", b.day, saveErr)
	}
	return held, subscribers, nil
}

// sendOne sends a mailing that is held, and returns what became of it.
func (b *batch) sendOne(ctx context.Context, m mailing.Mailing, s mailing.Subscriber) mailing.Mailing {
	if b.broken != "" {
		return m.Released()
	}
	raw, err := b.Composer.Compose(m, s)
	for try := 1; err == nil; try++ {
		if b.turns.take(ctx) != nil {
			return m.Released() // the batch's time is up, and no try so far has sent it
		}
		m.Retried = m.Retried || try > 1
		if err = b.Sender.Send(ctx, raw); err == nil {
			b.inARow, b.pauses = 0, 0
			return m.Sent(b.Now())
		}
		if verdict, _ := judge(err); verdict != again || try == tries || b.patience(ctx, try, err) != nil {
			break
		}
		err = nil
	}
	verdict, why := judge(err)
	if verdict == again && ctx.Err() != nil {
		return m.Released()
	}
	return b.notSent(m, verdict, why, err)
}

// patience waits before a send is tried again: for what Gmail asks, or twice as long each time.
func (b *batch) patience(ctx context.Context, try int, err error) error {
	wait := b.Backoff << (try - 1)
	if at, named := fault.RetryAt(err); named {
		wait = max(wait, at.Sub(b.Now()))
	}
	if wait > longestWait {
		b.broken = "Gmail wants no mail from the sender for a while"
		return err
	}
	return pause(ctx, wait)
}

func (b *batch) notSent(m mailing.Mailing, v verdict, why mailing.Reason, err error) mailing.Mailing {
	if v == stopped {
		b.broken = "the sender may not send; link it again with the permission to send: " + fault.Text(err)
	}
	if b.broken != "" && (v == stopped || v == again) {
		return m.Released()
	}
	if b.inARow++; b.inARow >= mailing.BreakAfter {
		b.broken = fmt.Sprintf("%d sends failed in a row, the last one by %s", b.inARow, why)
	}
	if v == unknown {
		return m.Uncertain(why)
	}
	return m.NotSent(why)
}

// record writes what became of the mailings, in one commit. Where that does not come through each is
// written for itself, as long as it is still held.
func (b *batch) record(ctx context.Context, held, outcomes []mailing.Mailing) error {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	changes := make([]mailing.Changed[mailing.Mailing], len(held))
	for i := range held {
		changes[i] = mailing.Changed[mailing.Mailing]{Read: held[i], Become: outcomes[i]}
	}
	saved, err := b.Mailings.SaveMailings(ctx, changes, nil)
	if err == nil && saved {
		return nil
	}
	errs := []error{err}
	for i, m := range held {
		become := outcomes[i]
		_, err := b.Mailings.ChangeMailing(ctx, m.ID, func(now mailing.Mailing) (mailing.Mailing, bool) {
			become.Version, become.Resolutions = now.Version, now.Resolutions
			if become.Awaits != mailing.AwaitsSend {
				become.Awaits = now.Awaits // it may have been advanced meanwhile
			}
			return become, now.HeldBy(m.Claim)
		})
		errs = append(errs, err)
	}
	if err := errors.Join(errs[1:]...); err != nil {
		return fmt.Errorf("record what became of mailings of run %s: %w", b.day, err)
	}
	return nil
}
