package firestoredb

import (
	"context"
	"time"

	"cloud.google.com/go/firestore"

	"mailyard.internal/mailyard/shared/mail"
)

func (db *DB) connectRef(id string) *firestore.DocumentRef {
	return db.client.Collection("connects").Doc(id)
}

// ticketRef is where a ticket is spent, beside the ways that it opened.
func (db *DB) ticketRef(ticket string) *firestore.DocumentRef {
	return db.connectRef("ticket-" + ticket)
}

// keepConnects is how long a way is known after it has ended, to tell who comes twice from who comes
// with what never was.
const keepConnects = time.Hour

func encodeConnect(c mail.Connect) fields {
	f := fields{
		"owner": c.Owner, "browser": c.Browser, "ticket": c.Ticket,
		"ticketExpiresAt": c.TicketExpiresAt, "expiresAt": c.ExpiresAt, "expireAt": c.ExpiresAt.Add(keepConnects),
	}
	f.set("returnTo", c.ReturnTo)
	f.set("sender", c.Sender)
	f.set("usedBy", c.UsedBy)
	return f
}

// StartConnect records that a person has set out.
func (db *DB) StartConnect(ctx context.Context, c mail.Connect) error {
	return db.put(ctx, db.connectRef(c.ID), encodeConnect(c))
}

// Connect returns a way that was recorded, or false where there is none of that id.
func (db *DB) Connect(ctx context.Context, id string) (mail.Connect, bool, error) {
	snapshot, err := db.get(ctx, db.connectRef(id))
	if err != nil || snapshot == nil {
		return mail.Connect{}, false, err
	}
	f := fields(snapshot.Data())
	return mail.Connect{
		ID: snapshot.Ref.ID, Owner: f.text("owner"), Browser: f.text("browser"), ReturnTo: f.text("returnTo"),
		Ticket: f.text("ticket"), TicketExpiresAt: f.moment("ticketExpiresAt"), ExpiresAt: f.moment("expiresAt"),
		Sender: f.flag("sender"), UsedBy: f.text("usedBy"), Version: snapshot.UpdateTime,
	}, true, nil
}

// UseConnect gives the way that was read to one callback. It returns false where another came first.
func (db *DB) UseConnect(ctx context.Context, read mail.Connect, by string) (bool, error) {
	become := read
	become.UsedBy = by
	saved, err := db.replace(ctx, db.connectRef(read.ID), read.Version, encodeConnect(read), encodeConnect(become))
	if err != nil || saved {
		return saved, err
	}
	now, known, err := db.Connect(ctx, read.ID) // it may be our own write, whose reply was lost
	return known && now.UsedBy == by, err
}

// SpendTicket gives a ticket to one callback. It returns false where another has it.
func (db *DB) SpendTicket(ctx context.Context, c mail.Connect, by string) (bool, error) {
	ref := db.ticketRef(c.Ticket)
	spent := fields{"usedBy": by, "expireAt": c.TicketExpiresAt.Add(keepConnects)}
	created, err := db.replace(ctx, ref, time.Time{}, nil, spent)
	if err != nil || created {
		return created, err
	}
	snapshot, err := db.get(ctx, ref)
	return snapshot != nil && fields(snapshot.Data()).text("usedBy") == by, err
}

// TicketSpent reports whether a callback has the ticket.
func (db *DB) TicketSpent(ctx context.Context, ticket string) (bool, error) {
	snapshot, err := db.get(ctx, db.ticketRef(ticket))
	return snapshot != nil, err
}

// ReturnTicket lets a ticket be used again by which nothing was linked.
func (db *DB) ReturnTicket(ctx context.Context, ticket string) error {
	return db.remove(ctx, db.ticketRef(ticket))
}
