package firestoredb

import (
	"context"
	"time"

	"cloud.google.com/go/firestore"

	"mailyard.internal/mailyard/shared/alert"
)

func (db *DB) alertRef(key string) *firestore.DocumentRef {
	return db.client.Collection("alerts").Doc(key)
}

func encodeAlert(a alert.Alert) fields {
	f := fields{"dueAt": a.DueAt}
	f.set("letters", a.Letters)
	f.set("fingerprint", a.Fingerprint)
	f.set("consumer", a.Consumer)
	f.set("lane", a.Lane)
	f.set("code", a.Code)
	f.set("topic", a.Topic)
	f.set("healsItself", a.HealsItself)
	f.set("givenUp", a.GivenUp)
	f.set("title", a.Title)
	f.set("lines", list(a.Lines))
	f.set("unsent", a.Unsent)
	f.set("openUntil", a.OpenUntil)
	f.set("sentAt", a.SentAt)
	f.set("failures", int64(a.Failures))
	f.set("since", a.Since)
	f.set("told", int64(a.Told))
	f.set("claim", a.Claim)
	return f
}

func decodeAlert(key string, snapshot *firestore.DocumentSnapshot) alert.Alert {
	if snapshot == nil {
		return alert.Alert{Key: key}
	}
	f := fields(snapshot.Data())
	return alert.Alert{
		Key: key, Letters: f.flag("letters"),
		Cause: alert.Cause{
			Fingerprint: f.text("fingerprint"), Consumer: f.text("consumer"), Lane: f.text("lane"), Code: f.text("code"),
			Topic: f.text("topic"), HealsItself: f.flag("healsItself"), GivenUp: f.flag("givenUp"),
		},
		Title: f.text("title"), Lines: f.texts("lines"),
		Unsent: f.flag("unsent"), OpenUntil: f.moment("openUntil"), SentAt: f.moment("sentAt"), DueAt: f.moment("dueAt"),
		Failures: int(f.number("failures")), Since: f.moment("since"), Told: int(f.number("told")), Claim: f.text("claim"),
		Version: snapshot.UpdateTime,
	}
}

// ChangeAlert replaces an alert by what next makes of it, and returns it as it then stands. next sees an
// alert with its key alone where there is none; it may be called again when others write at the same
// time; where it returns false nothing is written.
func (db *DB) ChangeAlert(ctx context.Context, key string, next func(alert.Alert) (alert.Alert, bool)) (alert.Alert, error) {
	return change(ctx,
		func() (alert.Alert, error) {
			snapshot, err := db.get(ctx, db.alertRef(key))
			return decodeAlert(key, snapshot), err
		},
		next,
		func(read, become alert.Alert) (bool, error) {
			return db.replace(ctx, db.alertRef(key), read.Version, encodeAlert(read), encodeAlert(become))
		},
		"alert "+key)
}

// RemoveAlert removes an alert, if it is resting and stays so until then.
func (db *DB) RemoveAlert(ctx context.Context, key string) error {
	snapshot, err := db.get(ctx, db.alertRef(key))
	if err != nil || snapshot == nil || !decodeAlert(key, snapshot).Resting() {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = db.alertRef(key).Delete(ctx, firestore.LastUpdateTime(snapshot.UpdateTime))
	_, err = written(err, "remove the alert %s", key)
	return err
}

// AlertsDue returns the keys of alerts whose DueAt has come, the longest due first.
func (db *DB) AlertsDue(ctx context.Context, now time.Time, limit int) ([]string, error) {
	q := db.client.Collection("alerts").Where("dueAt", "<=", now).OrderBy("dueAt", firestore.Asc).Limit(limit).Select()
	snapshots, err := db.query(ctx, q, "alerts that are due")
	keys := make([]string, len(snapshots))
	for i, snapshot := range snapshots {
		keys[i] = snapshot.Ref.ID
	}
	return keys, err
}
