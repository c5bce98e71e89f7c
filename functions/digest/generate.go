package digest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mail"
	"mailyard.internal/mailyard/shared/mailing"
)

const (
	// newestMessages bounds what is read of a mailbox's new messages; of more there is a count alone.
	newestMessages = 100
	// mailboxesAtOnce is how many mailboxes are read at a time.
	mailboxesAtOnce = 8
)

// generate makes the mailings of one page of subscribers. A page that is done twice makes each mailing
// once, as it has one id, and counts each once, as the counts go with the place in one write.
func (w *Worker) generate(ctx context.Context, r mailing.Run) (func(*mailing.Run), error) {
	page, err := w.Subscribers.SubscribersAfter(ctx, r.After, w.Chunk)
	if err != nil {
		return nil, err
	}
	if len(page) == 0 {
		return func(r *mailing.Run) { r.Phase, r.After = mailing.Send, "" }, nil
	}
	counts, err := w.makePage(ctx, r, page)
	if err != nil {
		return nil, err
	}
	return func(r *mailing.Run) { r.Counts, r.After = r.Counts.Add(counts), page[len(page)-1].ID }, nil
}

func (w *Worker) makePage(ctx context.Context, r mailing.Run, page []mailing.Subscriber) (mailing.Counts, error) {
	counts := mailing.Counts{Read: len(page)}
	due := make([]mailing.Subscriber, 0, len(page))
	for _, s := range page {
		if !s.Deleted() && s.CreatedAt.Before(r.StartedAt) && s.Due(r.Day, w.Zone) {
			due = append(due, s)
		}
	}
	drafts, err := w.drafts(ctx, r, due)
	if err != nil {
		return counts, err
	}
	made, err := w.makeAll(ctx, r.Day, drafts)
	if err != nil {
		return counts, err
	}
	counts.Filtered = len(page) - len(drafts)
	for _, m := range made {
		switch {
		case m.Run != r.Day:
			counts.Busy++
		case m.Frequency == mailing.Weekly:
			counts.Weekly++
		default:
			counts.Daily++
		}
	}
	return counts, nil
}

// A draft is a subscriber's next mailing, if nobody has made it yet.
type draft struct {
	subscriber mailing.Subscriber
	mailing    mailing.Mailing
}

// builders gives each frequency what builds its payload: from when on messages are new to who has not
// had a digest yet.
var builders = map[mailing.Frequency]func(until time.Time) (since time.Time){
	mailing.Daily:  func(until time.Time) time.Time { return until.AddDate(0, 0, -1) },
	mailing.Weekly: func(until time.Time) time.Time { return until.AddDate(0, 0, -7) },
}

// drafts builds the payloads; who is told of a mailbox that is gone gets none.
func (w *Worker) drafts(ctx context.Context, r mailing.Run, due []mailing.Subscriber) ([]draft, error) {
	payloads := newPayloads(w.Mirror, r.StartedAt)
	drafts := make([]*draft, len(due))
	errs := make([]error, len(due))
	slots := make(chan struct{}, mailboxesAtOnce)
	var wait sync.WaitGroup
	for i, s := range due {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			since := s.DigestedUntil
			if since.IsZero() {
				since = builders[s.Frequency](r.StartedAt)
			}
			p, err := payloads.of(ctx, s.AccountID, since)
			switch {
			case fault.Is(err, fault.AccountGone):
			case err != nil:
				errs[i] = fmt.Errorf("build the digest of account %s for subscriber %s: %w", s.AccountID, s.ID, err)
			default:
				drafts[i] = &draft{s, mailing.Make(s, r.Day, p, w.Now())}
			}
		})
	}
	wait.Wait()
	var made []draft
	for _, d := range drafts {
		if d != nil {
			made = append(made, *d)
		}
	}
	return made, errors.Join(errs...)
}

// makeAll makes the mailings that there are not yet, takes over those that an earlier run has left, and
// returns all of them as they then stand.
func (w *Worker) makeAll(ctx context.Context, run mailing.Day, drafts []draft) ([]mailing.Mailing, error) {
	there := map[string]mailing.Mailing{} // none is, in most runs: the first try reads nothing
	for range maxWrites {
		var changes []mailing.Changed[mailing.Mailing]
		stand := make([]mailing.Mailing, len(drafts))
		for i, d := range drafts {
			read, made := there[d.mailing.ID]
			stand[i] = read
			switch {
			case !made:
				stand[i] = d.mailing
			case read.Free(run):
				stand[i] = read.TakenOver(d.subscriber, run, d.mailing.Payload, w.Now())
			default:
				continue
			}
			changes = append(changes, mailing.Changed[mailing.Mailing]{Read: read, Become: stand[i]})
		}
		if len(changes) == 0 {
			return stand, nil
		}
		saved, err := w.Mailings.SaveMailings(ctx, changes, nil)
		if err != nil {
			return nil, fmt.Errorf("make mailings of run %s: %w", run, err)
		}
		if saved {
			return stand, nil
		}
		ids := make([]string, len(drafts))
		for i, d := range drafts {
			ids[i] = d.mailing.ID
		}
		if there, err = w.Mailings.Mailings(ctx, ids); err != nil {
			return nil, err
		}
	}
	return nil, fault.Transient(fault.Conflict, fmt.Errorf("mailings of run %s kept changing", run))
}

// payloads builds each mailbox's payload once a page, however many subscribers it has.
type payloads struct {
	mirror mirror
	until  time.Time
	mu     sync.Mutex
	built  map[payloadKey]func() (mailing.Payload, error)
}

type payloadKey struct {
	account string
	since   int64
}

func newPayloads(m mirror, until time.Time) *payloads {
	return &payloads{mirror: m, until: until, built: map[payloadKey]func() (mailing.Payload, error){}}
}

func (p *payloads) of(ctx context.Context, account string, since time.Time) (mailing.Payload, error) {
	key := payloadKey{account, since.UnixMicro()}
	p.mu.Lock()
	build, known := p.built[key]
	if !known {
		build = sync.OnceValues(func() (mailing.Payload, error) { return p.build(ctx, account, since) })
		p.built[key] = build
	}
	p.mu.Unlock()
	return build()
}

func (p *payloads) build(ctx context.Context, id string, since time.Time) (mailing.Payload, error) {
	account, err := p.mirror.Account(ctx, id)
	if err != nil {
		return mailing.Payload{}, err
	}
	unread, err := p.mirror.UnreadMessages(ctx, id)
	if err != nil {
		return mailing.Payload{}, err
	}
	var newest []mail.Summary
	all := 0
	if since.Before(p.until) {
		if newest, all, err = p.mirror.MessagesBetween(ctx, id, since, p.until, newestMessages); err != nil {
			return mailing.Payload{}, err
		}
	}
	open, err := p.mirror.UnresolvedEntries(ctx, id)
	if err != nil {
		return mailing.Payload{}, err
	}
	payload := mailing.Payload{Mailbox: account.Email, Since: since, Until: p.until, Unread: unread, New: all, DeadLetters: open}
	payload.Senders, payload.Others = mailing.NewsOf(newest, all)
	return payload, nil
}
