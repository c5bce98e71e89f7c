package mail

import "time"

// A Resync compares a whole mailbox with its mirror and mends the difference. It goes in steps, and
// its record is all that a step needs to go on where the last one stopped.
type Resync struct {
	ID        string
	AccountID string
	State     ResyncState
	Reason    string
	// Baseline is the mailbox's historyId when the resync began; zero before.
	Baseline HistoryID

	Done, Total int            // messages without drafts: those that are right, and all that were listed
	Missing     int            // listed, but not mirrored
	Extra       int            // mirrored, but not listed
	Flags       map[string]int // wrong values by field

	StartedAt  time.Time
	FinishedAt time.Time

	// Progress within the listing: how many labels are listed, the next page of the current one, and in
	// how many parts the ids are kept.
	LabelsListed int
	PageToken    string
	Parts        int
	// Progress within the mending: how many chunks of nominations there are, and which is next.
	Chunks, Chunk int

	// Claim names who works on the resync now, until DueAt. From DueAt on anybody may go on with it.
	Claim string
	DueAt time.Time

	// Version marks what the store read, for a write that checks what it replaces.
	Version time.Time
}

// A ResyncState is where a resync stands.
type ResyncState string

// The states of a resync.
const (
	ResyncListing ResyncState = "listing" // recorded; listing, or about to
	ResyncMending ResyncState = "mending" // the differences are being fetched
	ResyncDone    ResyncState = "done"
	ResyncFailed  ResyncState = "failed" // given up; whoever needs it asks for another
)

// Open reports whether the resync is still to end.
func (r Resync) Open() bool { return r.State == ResyncListing || r.State == ResyncMending }

// Free reports whether nobody works on the resync at that moment.
func (r Resync) Free(at time.Time) bool { return r.Claim == "" || !r.DueAt.After(at) }

// A Nomination is a message whose mirror may be wrong. A fetch decides.
type Nomination struct {
	MessageID string
	Why       Why
	// Listed are the flags that the listing says, for a message that was listed.
	Listed map[string]bool
}

// A Why is what a comparison found.
type Why string

// What a comparison finds.
const (
	Missing Why = "missing" // listed, but mirrored without content, as deleted, or not at all
	Extra   Why = "extra"   // mirrored, but not listed
	Flagged Why = "flags"   // a flag differs
)

// StillStands reports whether the nomination is still one, for the message as the mirror has it now: a
// live event may have mended it meanwhile.
func (n Nomination) StillStands(m Message) bool {
	switch n.Why {
	case Missing:
		return !m.HasContent
	case Extra:
		return !m.Version.IsZero() && !m.Deleted
	}
	if m.Deleted || !m.HasContent {
		return true
	}
	for field, value := range n.Listed {
		if m.Flags[field] != value {
			return true
		}
	}
	return false
}
