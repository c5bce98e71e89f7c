package firestoredb

import (
	"context"
	"time"

	"cloud.google.com/go/firestore"

	"mailyard.internal/mailyard/shared/mailing"
)

// batchTimeout bounds a read or a commit of a hundred documents, which only a digest's own steps wait for.
const batchTimeout = 15 * time.Second

const subscribersCollection = "subscribers"

func (db *DB) subscriberRef(id string) *firestore.DocumentRef {
	return db.client.Collection(subscribersCollection).Doc(id)
}

func encodeSubscriber(s mailing.Subscriber) fields {
	if s.ID == "" {
		return fields{}
	}
	f := fields{
		"accountId": s.AccountID, "email": s.Email, "frequency": string(s.Frequency), "timezone": s.Timezone,
		"sequence": s.Sequence,
	}
	if s.Frequency == mailing.Weekly {
		f["weekday"] = mailing.WeekdayName(s.Weekday)
	}
	f.set("digestedDay", string(s.DigestedDay))
	f.set("digestedUntil", s.DigestedUntil)
	f.set("createdAt", s.CreatedAt)
	f.set("deletedAt", s.DeletedAt)
	return f
}

func decodeSubscriber(snapshot *firestore.DocumentSnapshot) mailing.Subscriber {
	f := fields(snapshot.Data())
	return mailing.Subscriber{
		ID: snapshot.Ref.ID, AccountID: f.text("accountId"), Email: f.text("email"),
		Frequency: mailing.Frequency(f.text("frequency")), Weekday: mailing.ParseWeekday(f.text("weekday")), Timezone: f.text("timezone"),
		Sequence: f.number("sequence"), DigestedDay: mailing.Day(f.text("digestedDay")), DigestedUntil: f.moment("digestedUntil"),
		CreatedAt: f.moment("createdAt"), DeletedAt: f.moment("deletedAt"), Version: snapshot.UpdateTime,
	}
}

// Subscriber returns a subscriber, deleted ones too, or false where there is none of that id.
func (db *DB) Subscriber(ctx context.Context, id string) (mailing.Subscriber, bool, error) {
	snapshot, err := db.get(ctx, db.subscriberRef(id))
	if err != nil || snapshot == nil {
		return mailing.Subscriber{}, false, err
	}
	return decodeSubscriber(snapshot), true, nil
}

// Subscribers returns those of these ids that there are, deleted ones too, by id.
func (db *DB) Subscribers(ctx context.Context, ids []string) (map[string]mailing.Subscriber, error) {
	return readAll(ctx, db, ids, db.subscriberRef, decodeSubscriber, "subscribers")
}

// readAll reads documents of these ids in one round trip; those that are not there are left out.
func readAll[T any](
	ctx context.Context, db *DB, ids []string, ref func(string) *firestore.DocumentRef,
	decode func(*firestore.DocumentSnapshot) T, what string,
) (map[string]T, error) {
	found := make(map[string]T, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	refs := make([]*firestore.DocumentRef, len(ids))
	for i, id := range ids {
		refs[i] = ref(id)
	}
	snapshots, err := db.client.GetAll(ctx, refs)
	if err != nil {
		return nil, failed(err, "read %s", what)
	}
	for _, snapshot := range snapshots {
		if snapshot.Exists() {
			found[snapshot.Ref.ID] = decode(snapshot)
		}
	}
	return found, nil
}

// SubscribersAfter returns up to limit subscribers, deleted ones too, in the order of their ids, beginning
// after that id; "" begins with the first.
func (db *DB) SubscribersAfter(ctx context.Context, after string, limit int) ([]mailing.Subscriber, error) {
	q := db.client.Collection(subscribersCollection).OrderBy(firestore.DocumentID, firestore.Asc).Limit(limit)
	if after != "" {
		q = q.StartAfter(after)
	}
	snapshots, err := db.queryWithin(ctx, batchTimeout, q, "subscribers")
	subscribers := make([]mailing.Subscriber, len(snapshots))
	for i, snapshot := range snapshots {
		subscribers[i] = decodeSubscriber(snapshot)
	}
	return subscribers, err
}

// ChangeSubscriber replaces a subscriber by what next makes of it, and returns it as it then stands. next
// sees one with its id alone where there is none; it may be called again when others write at the same
// time; where it returns false nothing is written.
func (db *DB) ChangeSubscriber(ctx context.Context, id string, next func(mailing.Subscriber) (mailing.Subscriber, bool)) (mailing.Subscriber, error) {
	return change(ctx,
		func() (mailing.Subscriber, error) {
			s, _, err := db.Subscriber(ctx, id)
			s.ID = id
			return s, err
		},
		next,
		func(read, become mailing.Subscriber) (bool, error) {
			return db.replace(ctx, db.subscriberRef(id), read.Version, encodeSubscriber(read), encodeSubscriber(become))
		},
		"subscriber "+id)
}
