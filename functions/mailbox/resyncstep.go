package mailbox

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

// importer calls Gmail for resyncs, with at most half of a mailbox's quota.
type importer interface {
	CurrentHistoryID(ctx context.Context, account string) (mail.HistoryID, error)
	History(ctx context.Context, account string, start mail.HistoryID, pageToken string) (lane.Page, error)
	// ListMessages gets a page of ids under a label, all messages for an empty one, newest first.
	ListMessages(ctx context.Context, account, label, pageToken string) (ids []string, next string, err error)
	FetchMessage(ctx context.Context, account, message string) (mail.Fetch, error)
	labelLister
}

// work keeps what a resync has listed and nominated, between its steps.
type work interface {
	resyncStore
	mirroredMessages
	// SaveListed keeps a part of a listing.
	SaveListed(ctx context.Context, r mail.Resync, part int, label string, ids []string) error
	// EachListed calls visit for every part that was kept, in order.
	EachListed(ctx context.Context, r mail.Resync, visit func(label string, ids []string)) error
	// SaveNominations keeps one chunk.
	SaveNominations(ctx context.Context, r mail.Resync, chunk int, nominations []mail.Nomination) error
	// Nominations returns one chunk, and how many of it have been mended.
	Nominations(ctx context.Context, r mail.Resync, chunk int) (nominations []mail.Nomination, mended int, err error)
	// SaveMended saves what became of a message together with how many of the chunk are mended, in one
	// commit; a nil become leaves the message alone, one without an id drops it. It returns false where
	// another write of the message came first.
	SaveMended(ctx context.Context, r mail.Resync, chunk, mended int, read mail.Message, become *mail.Message) (bool, error)
	// ClearResync removes what was kept for the resync's steps.
	ClearResync(ctx context.Context, r mail.Resync) error
}

// messages reads the mirror.
type messages interface {
	Message(ctx context.Context, account, message string) (mail.Account, mail.Message, error)
}

// cursors keeps those of the accounts.
type cursors interface {
	Account(ctx context.Context, id string) (mail.Account, error)
	ChangeAccount(ctx context.Context, id string, next func(mail.Account) (mail.Account, bool)) error
}

const (
	// stepTime is how long one delivery goes on, well within the route's ack deadline.
	stepTime = time.Minute
	// claimTime is how long a step may be silent before another takes over.
	claimTime = 2 * time.Minute
	// resumeAfter is when Tick looks after a resync whose next step should have come.
	resumeAfter = 2 * time.Minute
	// asleepFor is when a resync of an account that may not call Gmail is looked at again.
	asleepFor = 10 * time.Minute
	// partPages is how many pages of a listing are kept at once: 10,000 ids, about 170 KB.
	partPages = 20
	// chunkSize is how many nominations are kept together.
	chunkSize = 50
	// maxWrites is how often a message's write is tried while others write it too.
	maxWrites = 20
)

// ResyncPorts are what a resync works with.
type ResyncPorts struct {
	Catalogue *lane.Catalogue
	Accounts  cursors
	Messages  messages
	Work      work
	Gmail     importer
	Resyncs   *Resyncs
	Publisher fetches
	Now       func() time.Time
}

// A Resyncer carries resyncs out, a step at a time.
//
// Baseline first, then the listings, then the comparison, which only nominates: each nominated message
// is fetched, and the fetch decides. What a step has done is recorded before the next begins, so that a
// resync survives the end of any process, and no message is fetched twice. One worker is at a resync at
// a time; a request that finds it taken has nothing to do. A single message that Gmail does not give, while
// it answers otherwise, holds nothing up: it is handed over to the lane that fetches.
type Resyncer struct{ ResyncPorts }

// NewResyncer returns a resyncer.
func NewResyncer(p ResyncPorts) *Resyncer { return &Resyncer{p} }

// Handle works on a resync for up to a minute, then asks for the next step.
func (s *Resyncer) Handle(ctx context.Context, request ResyncRequest) (mail.Outcome, error) {
	account, err := s.Accounts.Account(ctx, request.AccountID)
	if fault.Is(err, fault.AccountGone) {
		return mail.NoAccount, nil // unlinked meanwhile
	}
	if err != nil {
		return "", err
	}
	r, mine, err := s.claim(ctx, request)
	if err != nil || !mine {
		return mail.Unchanged, err
	}
	switch until := account.GmailBlockedUntil; {
	case !account.Callable():
		return s.sleep(ctx, r, s.Now().Add(asleepFor))
	case until.After(s.Now()):
		return s.sleep(ctx, r, until)
	}
	for end := s.Now().Add(stepTime); r.Open(); {
		r, err = s.step(ctx, r)
		if fault.IsThrottled(err) {
			return s.sleep(ctx, r, fault.RetryAtOr(err, s.Now().Add(time.Minute)))
		}
		if fault.Is(err, fault.ReauthRequired) {
			return s.sleep(ctx, r, s.Now().Add(asleepFor))
		}
		if err != nil {
			return "", s.abandon(ctx, r, err)
		}
		if !s.Now().Before(end) {
			break
		}
	}
	if !r.Open() {
		return mail.Applied, nil
	}
	if _, err := s.save(ctx, r, func(r *mail.Resync) { r.Claim, r.DueAt = "", s.Now().Add(resumeAfter) }); err != nil {
		return "", err
	}
	return mail.Applied, s.Resyncs.Continue(ctx, r)
}

// claim takes the resync over, recording it where the request came before its record. It is not ours
// where another works on it, where it has ended, or where an older one of the account is open: that is
// the one to go on with, and this one joins it.
func (s *Resyncer) claim(ctx context.Context, request ResyncRequest) (mail.Resync, bool, error) {
	read, known, err := s.Work.Resync(ctx, request.AccountID, request.ResyncID)
	if err != nil {
		return mail.Resync{}, false, err
	}
	r := read
	if !known {
		r = mail.Resync{ID: request.ResyncID, AccountID: request.AccountID, State: mail.ResyncListing, Reason: request.Reason, StartedAt: s.Now()}
	}
	if !r.Open() || !r.Free(s.Now()) {
		return r, false, nil
	}
	open, err := s.Work.OpenResyncs(ctx, request.AccountID)
	if err != nil {
		return mail.Resync{}, false, err
	}
	if len(open) > 0 && open[0].ID != r.ID {
		r.State, r.FinishedAt = mail.ResyncDone, s.Now()
		if _, err := s.Work.SaveResync(ctx, read, r); err != nil {
			return mail.Resync{}, false, err
		}
		return r, false, s.Resyncs.Continue(ctx, open[0])
	}
	r.Claim, r.DueAt = rand.Text(), s.Now().Add(claimTime)
	saved, err := s.Work.SaveResync(ctx, read, r)
	if err != nil || !saved {
		return r, false, err
	}
	return s.reread(ctx, r)
}

// reread returns the record with the version by which its next write is checked.
func (s *Resyncer) reread(ctx context.Context, r mail.Resync) (mail.Resync, bool, error) {
	now, known, err := s.Work.Resync(ctx, r.AccountID, r.ID)
	return now, known && now.Claim == r.Claim, err
}

// errTaken says that another worker has taken the resync over.
var errTaken = fault.Wait(fault.Conflict, fmt.Errorf("another worker has taken the resync over"))

// save records progress, and holds the claim.
func (s *Resyncer) save(ctx context.Context, r mail.Resync, progress func(*mail.Resync)) (mail.Resync, error) {
	become := r
	become.DueAt = s.Now().Add(claimTime)
	progress(&become)
	saved, err := s.Work.SaveResync(ctx, r, become)
	if err != nil {
		return r, fmt.Errorf("record the resync %s of account %s: %w", r.ID, r.AccountID, err)
	}
	now, mine, err := s.reread(ctx, become)
	switch {
	case err != nil:
		return r, err
	case !saved && !mine:
		return r, errTaken
	case !saved: // our own write, whose reply was lost, or one that did not come through
		return s.save(ctx, now, progress)
	}
	return now, nil
}

// sleep leaves the resync to Tick.
func (s *Resyncer) sleep(ctx context.Context, r mail.Resync, until time.Time) (mail.Outcome, error) {
	_, err := s.save(ctx, r, func(r *mail.Resync) { r.Claim, r.DueAt = "", until })
	return mail.Deferred, err
}

// abandon gives the claim back after a failure, so that the redelivery can go on.
func (s *Resyncer) abandon(ctx context.Context, r mail.Resync, failure error) error {
	if fault.IsWaiting(failure) {
		return failure
	}
	if _, err := s.save(ctx, r, func(r *mail.Resync) { r.Claim, r.DueAt = "", s.Now().Add(resumeAfter) }); err != nil {
		return fmt.Errorf("%w (and its claim stays until it runs out: %w)", failure, err)
	}
	return failure
}

// step does the next piece of work.
func (s *Resyncer) step(ctx context.Context, r mail.Resync) (mail.Resync, error) {
	switch {
	case r.Baseline == 0:
		return s.begin(ctx, r)
	case r.State == mail.ResyncListing && r.LabelsListed < len(r.Labels):
		return s.list(ctx, r)
	case r.State == mail.ResyncListing:
		return s.compare(ctx, r)
	case r.Chunk < r.Chunks:
		return s.mend(ctx, r)
	}
	return s.finish(ctx, r)
}

// begin sets the baseline, before anything is listed. Where the cursor has expired it moves there:
// what lies before is the resync's.
func (s *Resyncer) begin(ctx context.Context, r mail.Resync) (mail.Resync, error) {
	baseline, err := s.Gmail.CurrentHistoryID(ctx, r.AccountID)
	if err != nil {
		return r, err
	}
	account, err := s.Accounts.Account(ctx, r.AccountID)
	if err != nil {
		return r, err
	}
	expired := account.HistoryID == 0
	if !expired {
		_, err := s.Gmail.History(ctx, r.AccountID, account.HistoryID, "")
		if expired = fault.Is(err, fault.HistoryExpired); err != nil && !expired {
			return r, err
		}
	}
	labels, err := labelsToList(ctx, s.Catalogue, s.Gmail, r.AccountID)
	if err != nil {
		return r, err
	}
	r, err = s.save(ctx, r, func(r *mail.Resync) { r.Baseline, r.Labels = baseline, labels })
	if err != nil || !expired {
		return r, err
	}
	return r, s.Accounts.ChangeAccount(ctx, r.AccountID, func(a mail.Account) (mail.Account, bool) {
		a.HistoryID = max(a.HistoryID, baseline)
		a.RecheckFrom, a.RecheckAt = 0, time.Time{}
		return a, true
	})
}

// list keeps the next pages of the current label.
func (s *Resyncer) list(ctx context.Context, r mail.Resync) (mail.Resync, error) {
	label := r.Labels[r.LabelsListed]
	var ids []string
	token := r.PageToken
	for range partPages {
		page, next, err := s.Gmail.ListMessages(ctx, r.AccountID, label, token)
		if err != nil {
			return r, err
		}
		ids = append(ids, page...)
		if token = next; token == "" {
			break
		}
	}
	if err := s.Work.SaveListed(ctx, r, r.Parts, label, ids); err != nil {
		return r, err
	}
	return s.save(ctx, r, func(r *mail.Resync) {
		r.Parts++
		r.PageToken = token
		if token == "" {
			r.LabelsListed++
		}
	})
}

// compare nominates what may be wrong.
func (s *Resyncer) compare(ctx context.Context, r mail.Resync) (mail.Resync, error) {
	l := newListing(s.Catalogue, r.Labels)
	if err := s.Work.EachListed(ctx, r, l.add); err != nil {
		return r, err
	}
	nominations, differences, err := l.compare(ctx, s.Work, r.AccountID)
	if err != nil {
		return r, err
	}
	chunks := 0
	for begin := 0; begin < len(nominations); begin += chunkSize {
		chunk := nominations[begin:min(begin+chunkSize, len(nominations))]
		if err := s.Work.SaveNominations(ctx, r, chunks, chunk); err != nil {
			return r, err
		}
		chunks++
	}
	wrong := 0 // of those that were listed
	for _, n := range nominations {
		if n.Why != mail.Extra {
			wrong++
		}
	}
	return s.save(ctx, r, func(r *mail.Resync) {
		r.State, r.Chunks = mail.ResyncMending, chunks
		r.Total = l.messages()
		r.Done = r.Total - wrong
		r.Missing, r.Extra, r.Flags = differences.Missing, differences.Extra, differences.Flags
	})
}

// mend fetches what one chunk nominates.
func (s *Resyncer) mend(ctx context.Context, r mail.Resync) (mail.Resync, error) {
	nominations, mended, err := s.Work.Nominations(ctx, r, r.Chunk)
	if err != nil {
		return r, err
	}
	handedOver := 0
	for ; mended < len(nominations); mended++ {
		handed, err := s.mendOne(ctx, r, nominations[mended], mended+1, handedOver < maxHandedOver)
		if err != nil {
			return r, err
		}
		if handed {
			handedOver++
		}
		if r.DueAt.Sub(s.Now()) < claimTime/2 {
			if r, err = s.save(ctx, r, func(*mail.Resync) {}); err != nil {
				return r, err
			}
		}
	}
	return s.save(ctx, r, func(r *mail.Resync) {
		r.Chunk++
		for _, n := range nominations {
			if n.Why != mail.Extra {
				r.Done++
			}
		}
	})
}

// maxHandedOver is how many messages of a chunk are handed over before it is not the messages that are at
// fault.
const maxHandedOver = 5

// mendOne lets a fetch decide, and records that it has. It reports whether the message was handed over.
func (s *Resyncer) mendOne(ctx context.Context, r mail.Resync, n mail.Nomination, mended int, mayHandOver bool) (handed bool, err error) {
	_, read, err := s.Messages.Message(ctx, r.AccountID, n.MessageID)
	if err != nil {
		return false, err
	}
	change := func(mail.Message) *mail.Message { return nil }
	if n.StillStands(read) {
		decided, err := s.decide(ctx, r, n)
		switch {
		case err == nil:
			change = decided
		case mayHandOver && s.ofThisMessageAlone(ctx, r, err):
			if err := s.handOver(ctx, r, n); err != nil {
				return false, err
			}
			handed = true
		default:
			return false, err
		}
	}
	for range maxWrites {
		saved, err := s.Work.SaveMended(ctx, r, r.Chunk, mended, read, change(read))
		if err != nil || saved {
			return handed, err
		}
		if _, read, err = s.Messages.Message(ctx, r.AccountID, n.MessageID); err != nil {
			return false, err
		}
	}
	return false, fault.Transient(fault.Conflict, fmt.Errorf("message %s/%s kept changing under %d writes", r.AccountID, n.MessageID, maxWrites))
}

// ofThisMessageAlone reports whether Gmail fails for one message, and answers otherwise.
func (s *Resyncer) ofThisMessageAlone(ctx context.Context, r mail.Resync, failure error) bool {
	if fault.Is(failure, fault.BadRequest) {
		return true
	}
	if !fault.Is(failure, fault.GmailUnavailable) {
		return false
	}
	_, err := s.Gmail.CurrentHistoryID(ctx, r.AccountID)
	return err == nil
}

// handOver asks the lane that fetches for a message: there it has attempts of its own, and becomes a dead
// letter of its own, if need be.
func (s *Resyncer) handOver(ctx context.Context, r mail.Resync, n mail.Nomination) error {
	e := mail.Event{
		AccountID: r.AccountID, MessageID: n.MessageID, Lane: s.Catalogue.FetchLane().Key, HistoryID: r.Baseline, Time: s.Now(),
	}
	if err := s.Publisher.PublishEvents(ctx, e); err != nil {
		return fmt.Errorf("hand message %s/%s over: %w", r.AccountID, n.MessageID, err)
	}
	return nil
}

// decide fetches the message, and says what is to become of its mirror: nil leaves it as it is.
func (s *Resyncer) decide(ctx context.Context, r mail.Resync, n mail.Nomination) (func(mail.Message) *mail.Message, error) {
	fetched, err := s.Gmail.FetchMessage(ctx, r.AccountID, n.MessageID)
	switch {
	case fault.Is(err, fault.NotFound):
		return func(m mail.Message) *mail.Message {
			if m.Version.IsZero() {
				return nil // never mirrored, and gone
			}
			return unlessSame(m, mail.Apply(m, mail.Deletion{HistoryID: r.Baseline}))
		}, nil
	case err != nil:
		return nil, err
	case mail.IsDraft(fetched.Labels):
		return func(m mail.Message) *mail.Message {
			if m.Version.IsZero() || !m.NeedsContent() {
				return nil
			}
			return &mail.Message{} // the stub of a draft goes
		}, nil
	}
	change := mail.Fetched{
		HistoryID: mail.FetchGuard(fetched.HistoryID, r.Baseline), ThreadID: fetched.ThreadID,
		Flags: s.Catalogue.FlagsOf(fetched.Labels), Labels: s.Catalogue.LabelsOf(fetched.Labels),
		Summary: fetched.Summary, Body: fetched.Body,
	}
	return func(m mail.Message) *mail.Message { return unlessSame(m, mail.Apply(m, change)) }, nil
}

func unlessSame(read, become mail.Message) *mail.Message {
	if !read.Version.IsZero() && !mail.Differ(read, become) {
		return nil
	}
	return &become
}

// finish ends the resync: what was listed is mirrored.
func (s *Resyncer) finish(ctx context.Context, r mail.Resync) (mail.Resync, error) {
	if err := s.Work.ClearResync(ctx, r); err != nil {
		return r, err
	}
	return s.save(ctx, r, func(r *mail.Resync) {
		r.State, r.FinishedAt = mail.ResyncDone, s.Now()
		r.Claim, r.DueAt = "", time.Time{}
	})
}
