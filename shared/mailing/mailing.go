package mailing

import (
	"strconv"
	"time"
)

// A Status is where a mailing stands.
type Status string

// The statuses of a mailing.
const (
	Pending    Status = "PENDING"    // made, not sent yet
	Processing Status = "PROCESSING" // taken by a claim; whether it was sent is known to that claim alone
	Done       Status = "DONE"       // sent
	Failed     Status = "FAILED"     // certainly not sent
)

// An Awaits says which phase of its run has still to work on a mailing; empty for none.
type Awaits string

// What a mailing can await.
const (
	AwaitsSend    Awaits = "send"
	AwaitsAdvance Awaits = "advance"
)

// MaxAttempts is how many runs try to send a mailing. The next digest goes on after that.
const MaxAttempts = 3

const (
	// alertAfter is how long a mailing may be uncertain before people are told.
	alertAfter = time.Hour
	// keepMailings is how long a mailing is kept.
	keepMailings = 30 * 24 * time.Hour
)

// A Reason says in a word why a mailing was not sent, or why that is not known.
type Reason string

// Reasons of this package; those of a call are the caller's.
const (
	Unsubscribed Reason = "unsubscribed" // between making and sending
	ByOperator   Reason = "operator"     // an operator says so
)

// A Mailing is one digest for one subscriber.
type Mailing struct {
	ID           string // as MailingID gives it
	SubscriberID string
	AccountID    string
	Sequence     int64
	Run          Day
	Frequency    Frequency
	Status       Status
	Awaits       Awaits
	Claim        string // of who took it
	Attempts     int    // how many runs have tried to send it
	Retried      bool   // more than one call was made for it
	Error        Reason
	Payload      Payload
	Resolutions  []Resolution

	CreatedAt time.Time
	ClaimedAt time.Time
	SentAt    time.Time
	AlertAt   time.Time // from when on people are to be told that its outcome is not known
	ExpireAt  time.Time

	// Version marks what the store read, for a write that checks what it replaces.
	Version time.Time
}

// MailingID names a subscriber's mailing of a number: however often it is made, it is one.
func MailingID(subscriber string, sequence int64) string {
	return subscriber + "." + strconv.FormatInt(sequence, 10)
}

// Make makes a subscriber's next mailing.
func Make(s Subscriber, run Day, p Payload, now time.Time) Mailing {
	return Mailing{
		ID: MailingID(s.ID, s.Sequence), SubscriberID: s.ID, AccountID: s.AccountID, Sequence: s.Sequence,
		Run: run, Frequency: s.Frequency, Status: Pending, Awaits: AwaitsSend, Payload: p,
		CreatedAt: now, ExpireAt: now.Add(keepMailings),
	}
}

// Free reports whether a later run may take the mailing over: it has not been sent, and is in nobody's hands.
func (m Mailing) Free(run Day) bool {
	return m.Run < run && (m.Status == Pending || m.Status == Failed) && m.Attempts < MaxAttempts
}

// TakenOver is the mailing in a later run, which tells what is new by then.
func (m Mailing) TakenOver(s Subscriber, run Day, p Payload, now time.Time) Mailing {
	m.Run, m.Frequency, m.Payload, m.Awaits, m.Error = run, s.Frequency, p, AwaitsSend, ""
	m.ExpireAt = now.Add(keepMailings)
	return m
}

// Sendable reports whether a run may send the mailing. One that is being processed never is.
func (m Mailing) Sendable(run Day) bool {
	return m.Run == run && m.Awaits == AwaitsSend && (m.Status == Pending || m.Status == Failed)
}

// Claimed is the mailing in the hands of one claim.
func (m Mailing) Claimed(claim string, now time.Time) Mailing {
	m.Status, m.Claim, m.ClaimedAt, m.AlertAt = Processing, claim, now, now.Add(alertAfter)
	m.Retried = m.Retried || m.Attempts > 0
	m.Attempts++
	m.Awaits = AwaitsAdvance // whatever becomes of it, it is not to be sent again by itself
	m.Error = ""
	return m
}

// HeldBy reports whether that claim has the mailing.
func (m Mailing) HeldBy(claim string) bool { return m.Status == Processing && m.Claim == claim }

// Sent is the mailing after it has been sent.
func (m Mailing) Sent(now time.Time) Mailing {
	m.Status, m.SentAt, m.AlertAt, m.Error = Done, now, time.Time{}, ""
	return m
}

// NotSent is the mailing of which it is certain that it was not sent.
func (m Mailing) NotSent(why Reason) Mailing {
	m.Status, m.Error, m.AlertAt = Failed, why, time.Time{}
	return m
}

// Uncertain is the mailing of which nobody can know whether it was sent.
func (m Mailing) Uncertain(why Reason) Mailing {
	m.Error = why
	return m
}

// Released is the mailing given back by its claim, without a call having been made for it.
func (m Mailing) Released() Mailing {
	m.Status, m.Awaits, m.Claim = Pending, AwaitsSend, ""
	m.ClaimedAt, m.AlertAt = time.Time{}, time.Time{}
	m.Attempts = max(m.Attempts-1, 0)
	return m
}

// Dropped is the mailing whose subscriber has gone before it was sent.
func (m Mailing) Dropped() Mailing {
	m = m.NotSent(Unsubscribed)
	m.Awaits = AwaitsAdvance
	return m
}

// Advance moves the subscriber on past the mailing: from exactly its number, where it was sent, where it
// may have been sent, and where no run will try it again. It returns false where the subscriber stays.
func (m Mailing) Advance(s Subscriber) (Subscriber, bool) {
	sent := m.Status == Done || m.Status == Processing
	spent := m.Status == Failed && m.Attempts >= MaxAttempts
	if s.Version.IsZero() || s.Sequence != m.Sequence || !sent && !spent {
		return s, false
	}
	s.Sequence++
	s.DigestedDay = max(s.DigestedDay, m.Run)
	if sent && m.Payload.Until.After(s.DigestedUntil) {
		s.DigestedUntil = m.Payload.Until // what a digest that was not sent would have told, the next one tells
	}
	return s, true
}

// A Resolution is what an operator said of a mailing whose outcome was not known.
type Resolution struct {
	Who    string
	As     ResolvedAs
	Reason string
	At     time.Time
}

// A ResolvedAs is what an operator can say.
type ResolvedAs string

// What an operator can say.
const (
	AsSent   ResolvedAs = "sent"
	AsFailed ResolvedAs = "failed"
	AsAgain  ResolvedAs = "again" // to be sent again
)

// Resolved is the mailing as an operator says. It returns false where it is none whose outcome is open.
func (m Mailing) Resolved(r Resolution) (Mailing, bool) {
	if m.Status != Processing {
		return m, false
	}
	switch r.As {
	case AsSent:
		m = m.Sent(m.ClaimedAt)
	case AsFailed:
		m = m.NotSent(ByOperator)
	case AsAgain:
		attempts := m.Attempts
		m = m.Released()
		m.Attempts, m.Retried, m.Error = min(attempts, MaxAttempts-1), true, ""
	default:
		return m, false
	}
	m.Resolutions = append(m.Resolutions[:len(m.Resolutions):len(m.Resolutions)], r)
	return m, true
}
