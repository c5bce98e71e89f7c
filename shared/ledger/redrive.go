package ledger

import "time"

// A Redrive is the record of one operation that published dead letters again.
type Redrive struct {
	ID     string
	Who    string
	Reason string
	// Filter is what chose the letters, by the filter's names.
	Filter map[string]string
	// Counts says of how many letters what became.
	Counts map[string]int
	// Outcomes says what became of each letter, by id.
	Outcomes   map[string]string
	StartedAt  time.Time
	FinishedAt time.Time // zero while it runs, and where it was cut off
}

// MaxOutcomes is of how many letters a record says what became of each; of more it keeps the counts
// alone, as a document holds 1,048,576 bytes.
const MaxOutcomes = 4_000
