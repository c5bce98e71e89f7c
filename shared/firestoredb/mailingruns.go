package firestoredb

import (
	"cmp"
	"context"
	"slices"
	"time"

	"cloud.google.com/go/firestore"

	"mailyard.internal/mailyard/shared/mailing"
)

const runsCollection = "mailingRuns"

func (db *DB) runRef(day mailing.Day) *firestore.DocumentRef {
	return db.client.Collection(runsCollection).Doc(string(day))
}

// countFields are a run's counts, by the names they have in its document.
func countFields(c *mailing.Counts) map[string]*int {
	return map[string]*int{
		"read": &c.Read, "filtered": &c.Filtered, "daily": &c.Daily, "weekly": &c.Weekly, "busy": &c.Busy,
		"sent": &c.Sent, "failed": &c.Failed, "processing": &c.Processing, "unsubscribed": &c.Unsubscribed,
		"left": &c.Left, "retried": &c.Retried,
	}
}

func encodeRun(r mailing.Run) fields {
	if r.Day == "" {
		return fields{}
	}
	f := fields{"day": string(r.Day), "phase": string(r.Phase)}
	for name, n := range countFields(&r.Counts) {
		f[name] = int64(*n)
	}
	f.set("after", r.After)
	f.set("handedTo", string(r.HandedTo))
	f.set("startedAt", r.StartedAt)
	f.set("finishedAt", r.FinishedAt)
	f.set("inARow", int64(r.InARow))
	f.set("pauses", int64(r.Pauses))
	f.set("pausedUntil", r.PausedUntil)
	f.set("paceUntil", r.PaceUntil)
	f.set("claim", r.Claim)
	f.set("dueAt", r.DueAt)
	return f
}

func decodeRun(snapshot *firestore.DocumentSnapshot) mailing.Run {
	f := fields(snapshot.Data())
	r := mailing.Run{
		Day: mailing.Day(snapshot.Ref.ID), Phase: mailing.Phase(f.text("phase")), After: f.text("after"),
		HandedTo: mailing.Day(f.text("handedTo")), StartedAt: f.moment("startedAt"), FinishedAt: f.moment("finishedAt"),
		InARow: int(f.number("inARow")), Pauses: int(f.number("pauses")), PausedUntil: f.moment("pausedUntil"), PaceUntil: f.moment("paceUntil"),
		Claim: f.text("claim"), DueAt: f.moment("dueAt"), Version: snapshot.UpdateTime,
	}
	for name, n := range countFields(&r.Counts) {
		*n = int(f.number(name))
	}
	return r
}

// Run returns the run of a day, or false where there is none.
func (db *DB) Run(ctx context.Context, day mailing.Day) (mailing.Run, bool, error) {
	snapshot, err := db.get(ctx, db.runRef(day))
	if err != nil || snapshot == nil {
		return mailing.Run{}, false, err
	}
	return decodeRun(snapshot), true, nil
}

// SaveRun replaces the record that was read, the zero Run for none. It returns false where another write
// came first.
func (db *DB) SaveRun(ctx context.Context, read, become mailing.Run) (bool, error) {
	return db.replace(ctx, db.runRef(become.Day), read.Version, encodeRun(read), encodeRun(become))
}

// NewestRun returns the run of the latest day, or false where there has been none.
func (db *DB) NewestRun(ctx context.Context) (mailing.Run, bool, error) {
	runs, err := db.runs(ctx, db.client.Collection(runsCollection).OrderBy("day", firestore.Desc).Limit(1), "the newest run")
	if err != nil || len(runs) == 0 {
		return mailing.Run{}, false, err
	}
	return runs[0], true, nil
}

// openRuns bounds how many runs can be open: each later one closes those before it.
const openRuns = 50

// OpenRuns returns the runs that have not ended, the earliest day first.
func (db *DB) OpenRuns(ctx context.Context) ([]mailing.Run, error) {
	phases := []string{string(mailing.Generate), string(mailing.Send), string(mailing.Advance), string(mailing.Report)}
	q := db.client.Collection(runsCollection).Where("phase", "in", phases).Limit(openRuns)
	return db.runs(ctx, q, "open runs")
}

// RunsDue returns open runs that nobody works on and whose next step is overdue.
func (db *DB) RunsDue(ctx context.Context, now time.Time) ([]mailing.Run, error) {
	q := db.client.Collection(runsCollection).Where("dueAt", "<=", now).OrderBy("dueAt", firestore.Asc).Limit(openRuns)
	return db.runs(ctx, q, "runs that are due")
}

func (db *DB) runs(ctx context.Context, q firestore.Query, what string) ([]mailing.Run, error) {
	snapshots, err := db.query(ctx, q, what)
	runs := make([]mailing.Run, len(snapshots))
	for i, snapshot := range snapshots {
		runs[i] = decodeRun(snapshot)
	}
	slices.SortFunc(runs, func(a, b mailing.Run) int { return cmp.Compare(a.Day, b.Day) })
	return runs, err
}
