// Package ledger says what is failing, dead, being redriven or resolved, and how an entry goes from
// one to the next. It does no I/O: each transition is a pure function, and a store repeats it on
// what it reads until its conditional write succeeds. So an attempt is counted exactly once,
// however many copies of one event fail at the same time.
package ledger

import (
	"slices"
	"strings"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mail"
)

// A State is where an entry stands.
type State string

// The states of an entry.
const (
	Retrying  State = "retrying"  // failed, and Pub/Sub will bring it back
	Dead      State = "dead"      // given up on; kept whole as a dead letter
	Redriving State = "redriving" // published again on its own topic, outcome open
	Resolved  State = "resolved"  // done at last, or discarded
)

// KeepResolved is how long a resolved entry is kept.
const KeepResolved = 7 * 24 * time.Hour

// An Entry is one failure, from its first attempt to its end.
type Entry struct {
	ID       string
	State    State
	Consumer string // the function
	Topic    string // short id of the topic it came from

	Subject

	Data        []byte
	DataOmitted bool // too large for a document: kept on the -inspect subscription alone
	Attributes  map[string]string

	Attempts    int // failed runs since the first, or since the last redrive
	Redrives    int
	Code        fault.Code
	Fingerprint string
	Error       string // as fault.Text gives it

	FirstFailedAt time.Time
	LastFailedAt  time.Time
	DeadAt        time.Time
	RedrivenAt    time.Time // when the last redrive set out
	ExpireAt      time.Time // set on a resolved entry
	Revision      string    // of the function that failed
	Trace         string
	Claim         Claim
	Runs          []Run  // the last failed runs, at most keepRuns, the newest last
	Operation     string // the last redrive that was recorded, or of which a run failed

	Heals  int       // redrives that the letter was given by itself since an operator's last
	HealAt time.Time // when a dead letter is redriven by itself; zero where it is not

	Discarded  bool   // resolved by an operator who gave the event up
	EditedFrom string // the entry whose event an operator changed into this one's
	EditedTo   string // the entry that has this one's event, changed by an operator

	// Version marks what the store read, for a write that checks what it replaces.
	Version time.Time
}

// A Subject says what a failure is about, as far as that is known.
type Subject struct {
	EventID   string // the ce-id of a lane's event
	Lane      string
	AccountID string
	MessageID string
	HistoryID mail.HistoryID
}

// A Run is one failed run of a handler.
type Run struct {
	ID        string
	At        time.Time
	Code      fault.Code
	Error     string
	Revision  string
	Operation string // the redrive that brought the event, or empty
}

// A Claim says who works on an entry, so that nobody else does.
type Claim struct {
	Operation string
	Token     string
	At        time.Time
}

// A Failure is one failed run.
type Failure struct {
	// Run names this run, so that it is counted once also where the write's reply was lost.
	Run        string
	Consumer   string
	Topic      string
	Subject    Subject
	Data       []byte
	Attributes map[string]string // the message's own, as OwnAttributes gives them
	Err        error
	At         time.Time
	Revision   string
	Trace      string
	// Operation is the redrive that published the message again, or empty: see [Operation].
	Operation string
}

// MaxData is the size, in bytes, up to which an entry holds its message's data. A document holds
// 1,048,576 bytes in all; the rest is for attributes and error.
const MaxData = 900_000

// Failed counts one failed run. On an entry that does not exist yet, e is the zero Entry. A dead
// entry stays dead, and stays what it died of, unless it was redriven: then its attempts start at 0 again,
// once an operation.
func (e Entry) Failed(f Failure) Entry {
	if slices.ContainsFunc(e.Runs, func(r Run) bool { return r.ID == f.Run }) {
		return e
	}
	run := Run{ID: f.Run, At: f.At, Code: fault.CodeOf(f.Err), Error: fault.Text(f.Err), Revision: f.Revision, Operation: f.Operation}
	e.Runs = append(slices.Clone(e.Runs[max(0, len(e.Runs)-keepRuns+1):]), run)
	redriven := e.State == Dead && f.Operation != "" && f.Operation != e.Operation
	if redriven { // and failed before that was recorded
		e = e.setOut(f.Operation, f.At)
	}
	if e.State == "" || e.State == Resolved || redriven {
		e.Attempts = 0
		e.FirstFailedAt = f.At
		e.DeadAt, e.ExpireAt, e.HealAt = time.Time{}, time.Time{}, time.Time{}
		e.State, e.Discarded = Retrying, false
	}
	e.Attempts++
	if e.State == Dead {
		return e
	}
	e.State = Retrying
	if f.Operation != "" {
		e.Operation = f.Operation
	}
	e.Consumer, e.Topic, e.Subject = f.Consumer, f.Topic, f.Subject
	e.setData(f.Data)
	e.Attributes = f.Attributes
	e.Code, e.Error, e.Revision = run.Code, run.Error, run.Revision
	e.Fingerprint = fault.Fingerprint(e.Consumer, e.Code, e.Error)
	e.LastFailedAt, e.Trace = f.At, f.Trace
	return e
}

// keepRuns is how many runs an entry remembers: more than can fail between a run's write and the
// moment at which its writer, who got no reply, writes it again.
const keepRuns = 20

func (e *Entry) setData(data []byte) {
	e.Data, e.DataOmitted = data, false
	if len(data) > MaxData {
		e.Data, e.DataOmitted = nil, true
	}
}

// Spent reports whether a handler has had all its runs: 1 + maxRetries.
func (e Entry) Spent(maxRetries int) bool { return e.Attempts > maxRetries }

// Buried gives the event up: its dead letter is safe.
func (e Entry) Buried(at time.Time) Entry {
	e.State, e.DeadAt, e.Claim = Dead, at, Claim{}
	e.HealAt = e.nextHeal(at)
	return e
}

// ResolvedAt returns when the entry was resolved, or zero.
func (e Entry) ResolvedAt() time.Time {
	if e.State != Resolved {
		return time.Time{}
	}
	return e.ExpireAt.Add(-KeepResolved)
}

// Settled ends the entry: the event is done. That is never before its last failure, whatever the clock of
// who says so.
func (e Entry) Settled(at time.Time) Entry {
	if at.Before(e.LastFailedAt) {
		at = e.LastFailedAt
	}
	e.State, e.ExpireAt, e.Claim = Resolved, at.Add(KeepResolved), Claim{}
	e.HealAt = time.Time{}
	return e
}

// Discard ends the entry although its event was not applied: an operator has given it up.
func (e Entry) Discard(operation string, at time.Time) Entry {
	e = e.Settled(at)
	e.Discarded, e.Operation = true, operation
	return e
}

// Claimed marks who is about to publish the entry again.
func (e Entry) Claimed(c Claim) Entry {
	e.Claim = c
	return e
}

// ClaimedAfter reports whether somebody claimed the entry after that moment.
func (e Entry) ClaimedAfter(t time.Time) bool { return e.Claim.At.After(t) }

// burial is the operation of a claim to bury an entry, and burialTime how long it keeps other copies
// of the event away: longer than a dead letter takes to be published and recorded.
const (
	burial     = "burial"
	burialTime = 10 * time.Second
)

// BurialClaimed marks who is about to publish the entry's dead letter.
func (e Entry) BurialClaimed(token string, at time.Time) Entry {
	return e.Claimed(Claim{Operation: burial, Token: token, At: at})
}

// BurialFree reports whether nobody else is about to publish the entry's dead letter.
func (e Entry) BurialFree(token string, at time.Time) bool {
	return e.Claim.Operation != burial || e.Claim.Token == token || !e.ClaimedAfter(at.Add(-burialTime))
}

// Redriven says that the letter, which a claim held, was published again: its attempts start at 0. The
// republished event may have been handled before this is recorded; then that outcome stands. It returns
// false where nothing is to be recorded.
func (e Entry) Redriven(c Claim) (Entry, bool) {
	held := e.Claim.Token == c.Token
	if held {
		e.Claim = Claim{}
	}
	recorded := e.Operation == c.Operation
	if recorded || !held && e.State != Resolved {
		return e, held
	}
	e = e.setOut(c.Operation, c.At)
	if e.State == Dead {
		e.State, e.Attempts, e.HealAt = Redriving, 0, time.Time{}
	}
	return e, true
}

// setOut records a redrive: from then on older letters on -inspect are of no use.
func (e Entry) setOut(operation string, at time.Time) Entry {
	if e.Claim.Operation == operation {
		at = e.Claim.At
	}
	e.Operation, e.RedrivenAt = operation, at
	e.Redrives++
	return e
}

// Unresolved are the states in which an event is neither applied nor discarded, in the order of a
// failure's life.
func Unresolved() []State { return []State{Retrying, Dead, Redriving} }

// Unresolved reports whether the event has neither been applied nor been discarded.
func (e Entry) Unresolved() bool { return e.State != Resolved }

// Broken reports whether an entry cannot be what Mailyard wrote: it does not say how it stands, or which
// function failed.
func (e Entry) Broken() bool {
	switch e.State {
	case Retrying, Dead, Redriving, Resolved:
		return e.Consumer == ""
	}
	return true
}

// Attributes that Mailyard and Pub/Sub add to a message beside its own.
const (
	RedriveAttribute = "redrive" // the operation's id
	autopsyPrefix    = "dead-letter-"
	forwardedPrefix  = "CloudPubSubDeadLetterSource" // added by Pub/Sub's own dead-lettering
)

// The autopsy's attributes.
const (
	LetterID            = autopsyPrefix + "id"
	LetterTopic         = autopsyPrefix + "topic"
	LetterConsumer      = autopsyPrefix + "consumer"
	LetterAttempts      = autopsyPrefix + "attempts"
	LetterCode          = autopsyPrefix + "code"
	LetterError         = autopsyPrefix + "error"
	LetterFirstFailedAt = autopsyPrefix + "first-failed-at"
	LetterLastFailedAt  = autopsyPrefix + "last-failed-at"
	LetterRevision      = autopsyPrefix + "revision"
)

// The attributes by which Pub/Sub marks what it forwarded itself.
const (
	ForwardedSubscription = forwardedPrefix + "Subscription"
	ForwardedCount        = forwardedPrefix + "DeliveryCount"
)

// IsLetter reports whether a message carries the autopsy of a dead letter: somebody published the
// letter again as it is.
func IsLetter(attributes map[string]string) bool {
	for name := range attributes {
		if strings.HasPrefix(name, autopsyPrefix) {
			return true
		}
	}
	return false
}

// Operation names the redrive by which a message was published again after it had failed, or is
// empty for one that was not. A dead letter that somebody republished as it is counts as a redrive of
// its own.
func Operation(messageID string, attributes map[string]string) string {
	switch {
	case attributes[RedriveAttribute] != "":
		return attributes[RedriveAttribute]
	case IsLetter(attributes):
		return "republished-" + messageID
	}
	return ""
}

// OwnAttributes returns a message's attributes without those of its failures and redrives.
func OwnAttributes(attributes map[string]string) map[string]string {
	own := make(map[string]string, len(attributes))
	for name, value := range attributes {
		if name != RedriveAttribute && !strings.HasPrefix(name, autopsyPrefix) && !strings.HasPrefix(name, forwardedPrefix) {
			own[name] = value
		}
	}
	return own
}
