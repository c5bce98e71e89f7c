// Package digest sends digests of mailboxes by mail, at most once each.
//
// A run is the mailings of one day. It travels in steps on digest-send, one chunk each, through its
// phases: generate makes the mailings, send sends them, advance moves their subscribers on, report adds
// everything up. A phase is over when a query finds nothing of it open. What a step has done is recorded
// before the next begins, so that a run of any size survives time-outs and the end of any process; a
// message that comes twice, late or out of order finds the run elsewhere, and has nothing to do.
//
// Sending cannot be undone, and whether an interrupted call sent cannot be known. So each mailing is
// taken by a claim, in a commit of its own, before the first mail of its batch is sent, and from then on
// it is never sent again by itself: better a mail missed than a mail twice.
package digest

import (
	"context"
	"time"

	"mailyard.internal/mailyard/shared/mail"
	"mailyard.internal/mailyard/shared/mailing"
)

// runStore keeps the record of runs.
type runStore interface {
	// Run returns the run of a day, or false where there is none.
	Run(ctx context.Context, day mailing.Day) (mailing.Run, bool, error)
	// NewestRun returns the run of the latest day, or false where there has been none.
	NewestRun(ctx context.Context) (mailing.Run, bool, error)
	// OpenRuns returns the runs that have not ended, the earliest day first.
	OpenRuns(ctx context.Context) ([]mailing.Run, error)
	// SaveRun replaces the record that was read, the zero Run for none. It returns false where another
	// write came first.
	SaveRun(ctx context.Context, read, become mailing.Run) (bool, error)
}

// subscriberStore keeps who gets digests.
type subscriberStore interface {
	// SubscribersAfter returns up to limit subscribers, deleted ones too, in the order of their ids.
	SubscribersAfter(ctx context.Context, after string, limit int) ([]mailing.Subscriber, error)
	// Subscribers returns those of these ids that there are, by id.
	Subscribers(ctx context.Context, ids []string) (map[string]mailing.Subscriber, error)
}

// mailingStore keeps mailings.
type mailingStore interface {
	// Mailings returns those of these ids that there are, by id.
	Mailings(ctx context.Context, ids []string) (map[string]mailing.Mailing, error)
	// MailingsAwaiting returns up to limit of a run's mailings that await a phase, in the order of their ids.
	MailingsAwaiting(ctx context.Context, run mailing.Day, what mailing.Awaits, after string, limit int) ([]mailing.Mailing, error)
	// SaveMailings replaces mailings and subscribers in one commit: all of them, or none where another
	// write of one came first, which it answers with false.
	SaveMailings(ctx context.Context, mailings []mailing.Changed[mailing.Mailing], subscribers []mailing.Changed[mailing.Subscriber]) (bool, error)
	// ChangeMailing replaces a mailing by what next makes of it; where next returns false nothing is written.
	ChangeMailing(ctx context.Context, id string, next func(mailing.Mailing) (mailing.Mailing, bool)) (mailing.Mailing, error)
	// CountMailings counts what became of a run's mailings.
	CountMailings(ctx context.Context, run mailing.Day) (mailing.Counts, error)
}

// mirror is what a digest tells of.
type mirror interface {
	// Account returns one account; one that does not exist is a fault.AccountGone.
	Account(ctx context.Context, id string) (mail.Account, error)
	UnreadMessages(ctx context.Context, account string) (int, error)
	// MessagesBetween returns sender and subject of the newest messages between two moments, and how many
	// there are of all.
	MessagesBetween(ctx context.Context, account string, since, until time.Time, limit int) ([]mail.Summary, int, error)
	UnresolvedEntries(ctx context.Context, account string) (int, error)
}

// publisher publishes a message; nil means that Pub/Sub has confirmed it.
type publisher interface {
	PublishRaw(ctx context.Context, topic string, data []byte, attributes map[string]string) error
}

// announcer tells people, who may be asleep. What it is told holds neither mail content, address nor token.
type announcer interface {
	Announce(ctx context.Context, title string, lines ...string) error
}

const (
	// ChunkSize is how many subscribers or mailings one step works on.
	ChunkSize = 100
	// batchSize is how many mailings are claimed together: so many at most are left uncertain by the end
	// of a process.
	batchSize = 20
	// stepTime is how long a step sends, well within the route's ack deadline.
	stepTime = 5 * time.Minute
	// claimTime is how long a step may be silent before another takes over; a batch takes less.
	claimTime = 5 * time.Minute
	// resumeAfter is when Tick looks after a run whose next step should have come.
	resumeAfter = 2 * time.Minute
	// maxWrites is how often a write is tried while others write the same.
	maxWrites = 20
)
