package mail

import "time"

// A Resync compares a whole mailbox with its mirror and mends the difference.
type Resync struct {
	ID        string
	AccountID string
	State     ResyncState
	Reason    string
	// Baseline is the mailbox's historyId when the resync began; zero before.
	Baseline    HistoryID
	Done, Total int // messages without drafts
	StartedAt   time.Time
}

// A ResyncState is where a resync stands.
type ResyncState string

// The states of a resync.
const (
	ResyncListing ResyncState = "listing" // recorded; listing, or about to
	ResyncMending ResyncState = "mending" // the differences are being fetched
	ResyncDone    ResyncState = "done"
	ResyncFailed  ResyncState = "failed"
)

// Open reports whether the resync is still to end.
func (r Resync) Open() bool { return r.State == ResyncListing || r.State == ResyncMending }
