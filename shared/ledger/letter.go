package ledger

import (
	"maps"
	"strconv"
	"time"
	"unicode/utf8"

	"mailyard.internal/mailyard/shared/fault"
)

// Letter returns the attributes of the entry's dead letter: the message's own, and the autopsy. So
// what the Cloud Console shows explains itself, and the letter can be published again as it is.
func (e Entry) Letter() map[string]string {
	attributes := maps.Clone(e.Attributes)
	if attributes == nil {
		attributes = map[string]string{}
	}
	for name, value := range map[string]string{
		LetterID:            e.ID,
		LetterTopic:         e.Topic,
		LetterConsumer:      e.Consumer,
		LetterAttempts:      strconv.Itoa(e.Attempts),
		LetterCode:          string(e.Code),
		LetterError:         e.Error,
		LetterFirstFailedAt: e.FirstFailedAt.UTC().Format(time.RFC3339),
		LetterLastFailedAt:  e.LastFailedAt.UTC().Format(time.RFC3339),
		LetterRevision:      e.Revision,
	} {
		attributes[name] = value
	}
	return attributes
}

// FromLetter reads a dead letter. subject is what its own attributes say it is about. A letter that
// Pub/Sub forwarded itself has no autopsy: its handler crashed or was never reached.
func FromLetter(id, topic, consumer string, subject Subject, data []byte, attributes map[string]string, at time.Time) Entry {
	e := Entry{ID: id, State: Dead, Consumer: consumer, Topic: topic, Subject: subject, DeadAt: at}
	e.Operation = attributes[RedriveAttribute] // of what Pub/Sub forwarded after a redrive
	e.setData(data)
	e.Attributes = OwnAttributes(attributes)
	if IsLetter(attributes) {
		e.Attempts = number(attributes[LetterAttempts])
		e.Code = fault.Code(text(attributes[LetterCode], 64))
		e.Error = text(attributes[LetterError], fault.MaxText)
		e.FirstFailedAt = moment(attributes[LetterFirstFailedAt], at)
		e.LastFailedAt = moment(attributes[LetterLastFailedAt], at)
		e.Revision = text(attributes[LetterRevision], 256)
	} else {
		e.Attempts = number(attributes[ForwardedCount])
		e.Code = Unanswered
		e.Error = "Pub/Sub gave up: the function crashed, timed out or was never reached"
		e.FirstFailedAt, e.LastFailedAt = at, at
	}
	e.Fingerprint = fault.Fingerprint(e.Consumer, e.Code, e.Error)
	return e
}

// Unanswered is the code of a letter that Pub/Sub forwarded itself.
const Unanswered fault.Code = "unanswered"

// Received merges a letter into the entry that the ledger has (the zero Entry where it has none).
// What happened after the letter's last failure is newer than the letter and stays. While an entry is
// redriving that is every letter but the one that its own redrive ended in, unanswered.
func (e Entry) Received(letter Entry) Entry {
	switch {
	case e.State == "":
		letter.HealAt = letter.nextHeal(letter.DeadAt)
		return letter
	case e.State == Resolved && !e.ResolvedAt().Before(letter.LastFailedAt.Truncate(time.Second)):
		return e
	case e.State == Redriving && (letter.Operation == "" || letter.Operation != e.Operation):
		return e
	case e.State == Dead:
		return e
	case e.LastFailedAt.After(letter.LastFailedAt.Add(time.Second)):
		return e // it has been published again, and failed again, since
	}
	// A letter that Pub/Sub forwarded knows less than the entry: it adds only that this is the end.
	if e.State == Retrying {
		if letter.Code == Unanswered && e.Code != "" {
			letter.Code, letter.Error, letter.Fingerprint = e.Code, e.Error, e.Fingerprint
			letter.Attempts = max(letter.Attempts, e.Attempts)
			letter.Revision = e.Revision
			letter.LastFailedAt = e.LastFailedAt
		}
		letter.FirstFailedAt = e.FirstFailedAt
		letter.Trace = e.Trace
	}
	if letter.Operation == "" {
		letter.Operation = e.Operation
	}
	letter.Redrives, letter.RedrivenAt, letter.Heals = e.Redrives, e.RedrivenAt, e.Heals
	letter.Runs, letter.EditedFrom, letter.Version = e.Runs, e.EditedFrom, e.Version
	letter.HealAt = letter.nextHeal(letter.DeadAt)
	return letter
}

// clocks is how far clocks may be apart, and a letter's publication from the record of its death.
const clocks = 30 * time.Second

// Closes reports whether nobody has to see that letter on its -inspect subscription any more: what it
// is about was done, discarded, or published again after the letter was.
func (e Entry) Closes(letter Entry, published time.Time) bool {
	switch {
	case e.State == Resolved:
		return e.Received(letter).State == Resolved
	case e.DataOmitted: // the letter alone holds the data
		return false
	case e.State == Dead && published.After(e.DeadAt.Add(-clocks)):
		return false // the letter of this very death, whatever the clock says of who redrove
	}
	return published.Before(e.RedrivenAt)
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

func text(s string, max int) string {
	if !utf8.ValidString(s) {
		return ""
	}
	return fault.Cut(s, max)
}

func moment(s string, otherwise time.Time) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return otherwise
	}
	return t
}
