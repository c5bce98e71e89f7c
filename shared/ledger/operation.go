package ledger

import "time"

// A Deed is what an operation does to letters.
type Deed string

// The deeds.
const (
	DeedRedrive Deed = "redrive" // publishes letters again
	DeedDiscard Deed = "discard" // gives them up
	DeedEdit    Deed = "edit"    // changes the event of one
	DeedHeal    Deed = "heal"    // redrives them without an operator
)

// An OperationRecord says who did what to which letters, when, and what came of it.
type OperationRecord struct {
	ID     string
	Deed   Deed
	Who    string
	Reason string
	// Filter is what chose the letters, by the filter's names.
	Filter map[string]string
	// Counts says of how many letters what became.
	Counts map[string]int
	// Outcomes says what became of each letter, by id: [Pending] before anything did.
	Outcomes   map[string]string
	StartedAt  time.Time
	FinishedAt time.Time // zero while it runs, and where it was cut off
}

// Pending is the outcome of a letter whose turn has not come, or of which nothing was recorded before
// the operation was cut off.
const Pending = "pending"

// MaxOutcomes is how many letters one record holds, as a document holds 1,048,576 bytes. An operation
// on more has several records.
const MaxOutcomes = 4_000
