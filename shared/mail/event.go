package mail

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// An Event says that one message changed in one way. It is what travels on a lane.
type Event struct {
	AccountID string
	MessageID string
	ThreadID  string
	Lane      string    // the lane's key in the catalogue
	HistoryID HistoryID // of the history record it came from

	// Labels are what an event of a lane that keeps labels says of each; no other lane's has any.
	Labels []LabelChange

	// Time is when the change was listed; the fetch lane judges by it whether a 404 may be early.
	Time time.Time
	// Traceparent is the W3C trace context of the push that brought the change, or empty.
	Traceparent string
}

// A LabelChange says that a label was added to a message, or removed.
type LabelChange struct {
	Label     string
	Carried   bool
	HistoryID HistoryID // of the record that says so
}

// ID names the event: the same change always has the same id, and a person can read it. It is a
// legal Firestore document id, since none of its parts holds a slash.
func (e Event) ID() string {
	return e.AccountID + "." + e.Lane + "." + e.MessageID + "." + e.HistoryID.String()
}

// Check refuses an event that could not be stored or named.
func (e Event) Check() error {
	for _, part := range []struct{ name, value string }{
		{"accountId", e.AccountID}, {"messageId", e.MessageID}, {"lane", e.Lane},
	} {
		if !PlainID(part.value) {
			return fmt.Errorf("%s must be 1 to 128 letters, digits, - or _", part.name)
		}
	}
	if e.ThreadID != "" && !PlainID(e.ThreadID) {
		return fmt.Errorf("threadId must be at most 128 letters, digits, - or _")
	}
	if e.HistoryID == 0 || e.HistoryID > MaxHistoryID {
		return fmt.Errorf("historyId must be between 1 and %d", MaxHistoryID)
	}
	for _, c := range e.Labels {
		if c.Label == "" || len(c.Label) > maxLabel || !utf8.ValidString(c.Label) || c.HistoryID == 0 || c.HistoryID > e.HistoryID {
			return fmt.Errorf("each label needs an id of 1 to %d bytes, and a historyId up to the event's", maxLabel)
		}
	}
	return nil
}

// maxLabel is how long a label's id may be, in bytes. Gmail's are words, or Label_ and a number.
const maxLabel = 200

// PlainID reports whether s can be an id: 1 to 128 letters, digits, hyphens and underscores.
func PlainID(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// A Notification is what Gmail pushes: something changed in this mailbox, up to this historyId.
type Notification struct {
	Email       string // as NormalizeAddress gives it
	HistoryID   HistoryID
	Traceparent string
}

// An Outcome says in one word what the handling of an event came to, for the log and the metrics.
type Outcome string

const (
	// Applied means the event's one write was made.
	Applied Outcome = "applied"
	// Unchanged means the mirror already held the change, or a newer one: a late or repeated event.
	Unchanged Outcome = "unchanged"
	// Deferred means the work was put off to a known moment; Tick returns to it.
	Deferred Outcome = "deferred"
	// Stubbed means the message is mirrored without content until its account is active again.
	Stubbed Outcome = "stubbed"
	// Tombstoned means the message was found to be gone from Gmail.
	Tombstoned Outcome = "tombstoned"
	// Dropped means the message is a draft, which is not mirrored.
	Dropped Outcome = "dropped"
	// Listed means a notification's history was listed and its events published.
	Listed Outcome = "listed"
	// Stale means a notification was older than the cursor.
	Stale Outcome = "stale"
	// NoAccount means no active account holds the notified mailbox.
	NoAccount Outcome = "no_account"
	// ResyncRequested means the cursor had expired, or there was none, and a resync was asked for.
	ResyncRequested Outcome = "resync_requested"
	// Recorded means a dead letter is in the ledger.
	Recorded Outcome = "recorded"
)
