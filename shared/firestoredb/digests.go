package firestoredb

import (
	"context"
	"time"

	"cloud.google.com/go/firestore"

	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// UnreadMessages counts an account's unread messages, without those in the trash: a read for every
// thousand.
func (db *DB) UnreadMessages(ctx context.Context, account string) (int, error) {
	q := db.accountRef(account).Collection(messagesCollection).Where("unread", "==", true).
		Where("trashed", "==", false).Where("deleted", "==", false)
	return db.count(ctx, batchTimeout, q, "unread messages of account "+account)
}

// MessagesBetween returns sender and subject of an account's messages between two moments, the newest
// first and at most limit, without those in the trash, and how many there are of all.
func (db *DB) MessagesBetween(ctx context.Context, account string, since, until time.Time, limit int) ([]mail.Summary, int, error) {
	messages := db.accountRef(account).Collection(messagesCollection)
	q := messages.Where("date", ">", since).Where("date", "<=", until)
	snapshots, err := db.queryWithin(ctx, batchTimeout, q.OrderBy("date", firestore.Desc).Limit(limit).Select("from", "subject", "trashed", "deleted"),
		"new messages of account "+account)
	if err != nil {
		return nil, 0, err
	}
	var found []mail.Summary
	for _, snapshot := range snapshots {
		if f := fields(snapshot.Data()); !f.flag("trashed") && !f.flag("deleted") {
			found = append(found, mail.Summary{From: f.text("from"), Subject: f.text("subject")})
		}
	}
	if len(snapshots) < limit {
		return found, len(found), nil
	}
	all, err := db.count(ctx, batchTimeout, q, "new messages of account "+account)
	return found, all, err
}

// UnresolvedEntries counts an account's entries that are neither applied nor discarded.
func (db *DB) UnresolvedEntries(ctx context.Context, account string) (int, error) {
	return db.count(ctx, batchTimeout, db.chosen(EntryFilter{Account: account, States: ledger.Unresolved()}), "open failures of account "+account)
}
