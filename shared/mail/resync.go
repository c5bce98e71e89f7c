package mail

import (
	"maps"
	"slices"
	"time"
)

// A Label is one of a mailbox's labels.
type Label struct {
	ID   string // as messages carry it: a word for Gmail's own, Label_ and a number for a user's
	Name string // as its owner reads it
}

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

	// Progress within the listing: the labels to list, how many of them are, the next page of the current
	// one, and in how many parts the ids are kept.
	Labels       []string
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
	// Labels are those it was listed under, where the catalogue keeps labels; nil where not.
	Labels []string
}

// Wrong returns the fields in which a mirrored message differs from what was listed, in their order.
func (n Nomination) Wrong(m Message) []string {
	var wrong []string
	for _, field := range slices.Sorted(maps.Keys(n.Listed)) {
		if m.Flags[field] != n.Listed[field] {
			wrong = append(wrong, field)
		}
	}
	if n.Labels == nil {
		return wrong
	}
	same := len(n.Labels) == len(m.Labels)
	for _, label := range n.Labels {
		same = same && m.Labels[label]
	}
	if !same {
		wrong = append(wrong, "labelIds")
	}
	return wrong
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
	return m.Deleted || !m.HasContent || len(n.Wrong(m)) > 0
}
