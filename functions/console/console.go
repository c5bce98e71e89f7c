// Package console is the operators' page: it shows mailboxes, lanes and dead letters as they stand, and
// lets a person redrive and discard letters, with a plan before and a record after.
//
// GET shows and changes nothing; POST alone acts, and only where it was sent from a page of this site.
// Every page is whole without JavaScript. It is served on one path, with the page in the query, so that it
// works wherever the function is mounted. Who may come in is not decided here: IAM or IAP stand before it.
//
// No page holds mail content: what a mailbox's owner reads is not even in what these pages are made of.
// Addresses of mailboxes, ids and redacted errors are.
//
// A deed is bounded so that it ends within the request: see [MaxLetters]. Letters that failed after their
// plan was shown are not touched by it. Doing the same twice, at once or later, does it once.
package console

import (
	"context"
	"net/http"
	"time"

	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// failures is what the ledger tells.
type failures interface {
	// CountOfConsumer counts the entries of a function in a state.
	CountOfConsumer(ctx context.Context, consumer string, state ledger.State) (int, error)
	// OldestDead returns the letter of a function that has been dead for longest, or false.
	OldestDead(ctx context.Context, fingerprint, consumer string) (ledger.Entry, bool, error)
	// Read returns an entry with its data, or false.
	Read(ctx context.Context, id string) (ledger.Entry, bool, error)
	// Entries returns up to limit entries without data, in the order of their ids, beginning after an id.
	Entries(ctx context.Context, choice Choice, after string, limit int) ([]ledger.Entry, error)
}

// mailboxes is what there is to know of accounts.
type mailboxes interface {
	// Standings returns up to limit accounts in the order of their ids, beginning after an id.
	Standings(ctx context.Context, after string, limit int) ([]Standing, error)
	// CountAccounts counts the accounts of a status.
	CountAccounts(ctx context.Context, status mail.Status) (int, error)
}

// A mirror says what it holds of the message that an entry is about.
type mirror interface {
	Mirrored(ctx context.Context, e ledger.Entry) (Mirrored, error)
}

// operations is the record of what was done.
type operations interface {
	Operations(ctx context.Context, limit int) ([]ledger.OperationRecord, error)
	Operation(ctx context.Context, id string) (ledger.OperationRecord, bool, error)
}

// An operator does to letters what a person asks for, and records it.
type operator interface {
	// Plan says what of the entries the deed would be done to. The limit counts only what is eligible.
	Plan(deed ledger.Deed, entries []ledger.Entry, failedBefore time.Time, limit int) Plan
	// Do does the deed to a plan's letters, at so many a second, until ctx ends.
	Do(ctx context.Context, deed ledger.Deed, plan Plan, order Order) (Outcome, error)
}

// Ports are what a Console works with.
type Ports struct {
	Failures   failures
	Mailboxes  mailboxes
	Mirror     mirror
	Operations operations
	Operator   operator
	// Routes are the ways to the functions whose failures there are; Lanes names those of a lane.
	Routes []lane.Route
	Lanes  []lane.Lane
	// Project is where the subscriptions and logs are, for links.
	Project string
	// Report is told of each deed and each failure, for the log; it must not fail.
	Report func(r *http.Request, v Visit, took time.Duration)
	Now    func() time.Time
}

// A Console serves the operators' page.
type Console struct{ Ports }

// New returns a console.
func New(p Ports) *Console { return &Console{p} }

// A Visit is what became of a request that acted or failed.
type Visit struct {
	Page      string // one of those there are, or "unknown"
	Deed      ledger.Deed
	Who       string
	Operation string
	Letters   int // that the deed was done to
	Status    int
	Err       error
}

// A Standing is where an account's mirror stands.
type Standing struct {
	Account  mail.Account
	InStepTo mail.HistoryID
	Failures int // unresolved
	// Bounded says that there are more failures than were read, so that it may be in step to less.
	Bounded bool
	Resync  *mail.Resync // the open one; nil where none is
}

// Mirrored is what the mirror holds of a message, without any of its content.
type Mirrored struct {
	There       bool
	AccountGone bool
	HasContent  bool
	Deleted     bool
	Flags       map[string]bool
	Guards      map[string]mail.HistoryID
	FetchDueAt  time.Time
	UpdatedAt   time.Time
	// Redrive says what a redrive would change; empty where that is not known.
	Redrive string
}

// A Plan says what a deed would be done to, and what it would pass over, and why.
type Plan struct {
	Eligible   []string
	Topics     []string
	PassedOver []Passed // in the order in which it is told
}

// Passed counts what is passed over for one reason.
type Passed struct {
	Reason string
	Count  int
}

// An Order is who asks for what, and why.
type Order struct {
	Who, Reason string
	Filter      map[string]string
	Rate        float64 // letters a second
}

// An Outcome is what an operation did.
type Outcome struct {
	Operation string // its record's id; empty where nothing was to do
	Done      int
	Err       error // the last failure of a letter
}
