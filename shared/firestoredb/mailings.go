package firestoredb

import (
	"context"
	"time"

	"cloud.google.com/go/firestore"

	"mailyard.internal/mailyard/shared/mailing"
)

const mailingsCollection = "mailings"

func (db *DB) mailingRef(id string) *firestore.DocumentRef {
	return db.client.Collection(mailingsCollection).Doc(id)
}

func encodeMailing(m mailing.Mailing) fields {
	f := fields{
		"subscriberId": m.SubscriberID, "accountId": m.AccountID, "sequence": m.Sequence, "run": string(m.Run),
		"frequency": string(m.Frequency), "status": string(m.Status), "attempts": int64(m.Attempts),
		"payload": map[string]any(encodePayload(m.Payload)),
	}
	f.set("awaits", string(m.Awaits))
	f.set("claim", m.Claim)
	f.set("retried", m.Retried)
	f.set("error", string(m.Error))
	f.set("createdAt", m.CreatedAt)
	f.set("claimedAt", m.ClaimedAt)
	f.set("sentAt", m.SentAt)
	f.set("alertAt", m.AlertAt)
	f.set("expireAt", m.ExpireAt)
	var resolutions []any
	for _, r := range m.Resolutions {
		resolutions = append(resolutions, map[string]any{"who": r.Who, "as": string(r.As), "reason": r.Reason, "at": r.At})
	}
	f.set("resolutions", resolutions)
	return f
}

func decodeMailing(snapshot *firestore.DocumentSnapshot) mailing.Mailing {
	f := fields(snapshot.Data())
	m := mailing.Mailing{
		ID: snapshot.Ref.ID, SubscriberID: f.text("subscriberId"), AccountID: f.text("accountId"), Sequence: f.number("sequence"),
		Run: mailing.Day(f.text("run")), Frequency: mailing.Frequency(f.text("frequency")),
		Status: mailing.Status(f.text("status")), Awaits: mailing.Awaits(f.text("awaits")), Claim: f.text("claim"),
		Attempts: int(f.number("attempts")), Retried: f.flag("retried"), Error: mailing.Reason(f.text("error")),
		Payload:   decodePayload(f.group("payload")),
		CreatedAt: f.moment("createdAt"), ClaimedAt: f.moment("claimedAt"), SentAt: f.moment("sentAt"),
		AlertAt: f.moment("alertAt"), ExpireAt: f.moment("expireAt"), Version: snapshot.UpdateTime,
	}
	for _, r := range f.groups("resolutions") {
		m.Resolutions = append(m.Resolutions, mailing.Resolution{
			Who: r.text("who"), As: mailing.ResolvedAs(r.text("as")), Reason: r.text("reason"), At: r.moment("at"),
		})
	}
	return m
}

func encodePayload(p mailing.Payload) fields {
	f := fields{
		"mailbox": p.Mailbox, "since": p.Since, "until": p.Until, "unread": int64(p.Unread), "new": int64(p.New),
		"others": int64(p.Others), "deadLetters": int64(p.DeadLetters),
	}
	var senders []any
	for _, s := range p.Senders {
		senders = append(senders, map[string]any{"from": s.From, "count": int64(s.Count), "subjects": list(s.Subjects)})
	}
	f.set("senders", senders)
	return f
}

func decodePayload(f fields) mailing.Payload {
	p := mailing.Payload{
		Mailbox: f.text("mailbox"), Since: f.moment("since"), Until: f.moment("until"), Unread: int(f.number("unread")),
		New: int(f.number("new")), Others: int(f.number("others")), DeadLetters: int(f.number("deadLetters")),
	}
	for _, s := range f.groups("senders") {
		p.Senders = append(p.Senders, mailing.SenderNews{From: s.text("from"), Count: int(s.number("count")), Subjects: s.texts("subjects")})
	}
	return p
}

// groups is a list of maps.
func (f fields) groups(name string) []fields {
	list, _ := f[name].([]any)
	var groups []fields
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			groups = append(groups, m)
		}
	}
	return groups
}

// Mailing returns a mailing, or false where there is none of that id.
func (db *DB) Mailing(ctx context.Context, id string) (mailing.Mailing, bool, error) {
	snapshot, err := db.get(ctx, db.mailingRef(id))
	if err != nil || snapshot == nil {
		return mailing.Mailing{}, false, err
	}
	return decodeMailing(snapshot), true, nil
}

// Mailings returns those of these ids that there are, by id.
func (db *DB) Mailings(ctx context.Context, ids []string) (map[string]mailing.Mailing, error) {
	return readAll(ctx, db, ids, db.mailingRef, decodeMailing, "mailings")
}

// MailingsAwaiting returns up to limit of a run's mailings that await a phase, in the order of their ids,
// beginning after that id; "" begins with the first.
func (db *DB) MailingsAwaiting(ctx context.Context, run mailing.Day, what mailing.Awaits, after string, limit int) ([]mailing.Mailing, error) {
	q := db.client.Collection(mailingsCollection).Where("run", "==", string(run)).Where("awaits", "==", string(what)).
		OrderBy(firestore.DocumentID, firestore.Asc).Limit(limit)
	if after != "" {
		q = q.StartAfter(after)
	}
	return db.mailings(ctx, q, "mailings of run "+string(run))
}

// MailingsProcessing returns the mailings whose outcome is not known, in the order of their ids, beginning
// after that id; "" begins with the first.
func (db *DB) MailingsProcessing(ctx context.Context, after string, limit int) ([]mailing.Mailing, error) {
	q := db.client.Collection(mailingsCollection).Where("status", "==", string(mailing.Processing)).
		OrderBy(firestore.DocumentID, firestore.Asc).Limit(limit)
	if after != "" {
		q = q.StartAfter(after)
	}
	return db.mailings(ctx, q, "mailings whose outcome is not known")
}

// MailingsToTell returns mailings whose outcome people are to be told is not known, the oldest first.
func (db *DB) MailingsToTell(ctx context.Context, now time.Time, limit int) ([]mailing.Mailing, error) {
	q := db.client.Collection(mailingsCollection).Where("alertAt", "<=", now).OrderBy("alertAt", firestore.Asc).Limit(limit)
	return db.mailings(ctx, q, "mailings that people are to be told of")
}

func (db *DB) mailings(ctx context.Context, q firestore.Query, what string) ([]mailing.Mailing, error) {
	snapshots, err := db.queryWithin(ctx, batchTimeout, q, what)
	mailings := make([]mailing.Mailing, len(snapshots))
	for i, snapshot := range snapshots {
		mailings[i] = decodeMailing(snapshot)
	}
	return mailings, err
}

// SaveMailings replaces mailings that were read, and subscribers, by what they became, in one commit: all
// of them, or none where another write of one came first, which it answers with false. What was not read
// is created.
func (db *DB) SaveMailings(ctx context.Context, mailings []mailing.Changed[mailing.Mailing], subscribers []mailing.Changed[mailing.Subscriber]) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	err := db.client.RunTransaction(ctx, func(_ context.Context, tx *firestore.Transaction) error {
		for _, m := range mailings {
			if err := replaceInto(tx, db.mailingRef(m.Become.ID), m.Read.Version, encodeMailing(m.Read), encodeMailing(m.Become)); err != nil {
				return err
			}
		}
		for _, s := range subscribers {
			if err := replaceInto(tx, db.subscriberRef(s.Become.ID), s.Read.Version, encodeSubscriber(s.Read), encodeSubscriber(s.Become)); err != nil {
				return err
			}
		}
		return nil
	}, firestore.MaxAttempts(1))
	return written(err, "write %d mailings", len(mailings))
}

// replaceInto adds the conditional write of one document to a commit.
func replaceInto(tx *firestore.Transaction, ref *firestore.DocumentRef, version time.Time, read, become fields) error {
	if version.IsZero() {
		return tx.Create(ref, map[string]any(become))
	}
	if updates := read.changes(become); len(updates) > 0 {
		return tx.Update(ref, updates, firestore.LastUpdateTime(version))
	}
	return nil
}

// ChangeMailing replaces a mailing by what next makes of it, and returns it as it then stands. next sees
// one with its id alone where there is none; where it returns false nothing is written.
func (db *DB) ChangeMailing(ctx context.Context, id string, next func(mailing.Mailing) (mailing.Mailing, bool)) (mailing.Mailing, error) {
	return change(ctx,
		func() (mailing.Mailing, error) {
			m, _, err := db.Mailing(ctx, id)
			m.ID = id
			return m, err
		},
		next,
		func(read, become mailing.Mailing) (bool, error) {
			return db.replace(ctx, db.mailingRef(id), read.Version, encodeMailing(read), encodeMailing(become))
		},
		"mailing "+id)
}

// CountMailings counts what became of a run's mailings, as far as Sent, Failed, Processing, Unsubscribed,
// Left and Retried go.
func (db *DB) CountMailings(ctx context.Context, run mailing.Day) (mailing.Counts, error) {
	of := db.client.Collection(mailingsCollection).Where("run", "==", string(run))
	var c mailing.Counts
	failed := 0
	for _, one := range []struct {
		q    firestore.Query
		into *int
	}{
		{of.Where("status", "==", string(mailing.Done)), &c.Sent},
		{of.Where("status", "==", string(mailing.Failed)), &failed},
		{of.Where("status", "==", string(mailing.Failed)).Where("error", "==", string(mailing.Unsubscribed)), &c.Unsubscribed},
		{of.Where("status", "==", string(mailing.Processing)), &c.Processing},
		{of.Where("status", "==", string(mailing.Pending)), &c.Left},
		{of.Where("retried", "==", true), &c.Retried},
	} {
		n, err := db.count(ctx, batchTimeout, one.q, "mailings of run "+string(run))
		if err != nil {
			return c, err
		}
		*one.into = n
	}
	c.Failed = failed - c.Unsubscribed
	return c, nil
}
