package mail

import "time"

// A Connect is one person's way through Google's consent page, from the link that the app's backend
// signed to the callback. It holds no secret: those that it stands for are kept as digests.
type Connect struct {
	ID       string // a digest of the state that goes through Google and comes back
	Browser  string // a digest of the cookie of the browser that set out
	Owner    string // whose account it is to be, as the ticket says
	ReturnTo string // where the person goes in the end; empty for nowhere
	Sender   bool   // whether it is to be the digests' sender
	// Ticket is a digest of the ticket's nonce, by which a ticket is spent once.
	Ticket string
	// TicketExpiresAt is when the ticket is refused anyway.
	TicketExpiresAt time.Time
	ExpiresAt       time.Time
	// UsedBy names the one callback that the state is good for; empty before it comes.
	UsedBy string

	// Version marks what the store read, for a write that checks what it replaces.
	Version time.Time
}

// A Removal is the record of an account's unlinking. When the removal has ended it holds no address
// any more, and stays for as long as an event of the account could still arrive.
type Removal struct {
	AccountID string
	Email     string // of the mailbox, until the removal has ended
	StartedAt time.Time
	// QuietAt is when nobody is left who has read the account before it went.
	QuietAt time.Time
	EndedAt time.Time // zero while it lasts
}

// Open reports whether the removal is still to end.
func (r Removal) Open() bool { return r.EndedAt.IsZero() }
