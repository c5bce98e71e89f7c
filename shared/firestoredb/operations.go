package firestoredb

import (
	"context"
	"maps"
	"time"

	"cloud.google.com/go/firestore"

	"mailyard.internal/mailyard/shared/ledger"
)

// SaveOperation writes the record of an operation, over the one that it wrote before. Only the operation
// itself writes it, so there is nothing to check.
func (db *DB) SaveOperation(ctx context.Context, r ledger.OperationRecord) error {
	f := fields{"deed": string(r.Deed), "who": r.Who, "reason": r.Reason, "startedAt": r.StartedAt}
	filter, counts, outcomes := map[string]any{}, map[string]any{}, map[string]any{}
	for name, value := range r.Filter {
		filter[name] = value
	}
	for result, n := range r.Counts {
		counts[result] = int64(n)
	}
	for id, outcome := range r.Outcomes {
		outcomes[id] = outcome
	}
	f["filter"], f["counts"], f["outcomes"] = filter, counts, outcomes
	f.set("finishedAt", r.FinishedAt)
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	if _, err := db.operationRef(r.ID).Set(ctx, map[string]any(f)); err != nil {
		return failed(err, "record the operation %s", r.ID)
	}
	return nil
}

// recordTimeout is longer than that of other calls: a record of thousands of letters is a large document.
const recordTimeout = 10 * time.Second

func (db *DB) operationRef(id string) *firestore.DocumentRef {
	return db.client.Collection("redrives").Doc(id)
}

// Operation returns the record of an operation, or false where there is none.
func (db *DB) Operation(ctx context.Context, id string) (ledger.OperationRecord, bool, error) {
	snapshot, err := db.get(ctx, db.operationRef(id))
	if err != nil || snapshot == nil {
		return ledger.OperationRecord{}, false, err
	}
	return decodeOperation(snapshot), true, nil
}

// Operations returns the newest operations, without what became of each letter.
func (db *DB) Operations(ctx context.Context, limit int) ([]ledger.OperationRecord, error) {
	q := db.client.Collection("redrives").OrderBy("startedAt", firestore.Desc).Limit(limit).
		Select("deed", "who", "reason", "filter", "counts", "startedAt", "finishedAt")
	snapshots, err := db.query(ctx, q, "operations")
	records := make([]ledger.OperationRecord, len(snapshots))
	for i, snapshot := range snapshots {
		records[i] = decodeOperation(snapshot)
	}
	return records, err
}

func decodeOperation(snapshot *firestore.DocumentSnapshot) ledger.OperationRecord {
	f := fields(snapshot.Data())
	r := ledger.OperationRecord{
		ID: snapshot.Ref.ID, Deed: ledger.Deed(f.text("deed")), Who: f.text("who"), Reason: f.text("reason"),
		Filter: map[string]string{}, Counts: map[string]int{}, Outcomes: map[string]string{},
		StartedAt: f.moment("startedAt"), FinishedAt: f.moment("finishedAt"),
	}
	filter, counts, outcomes := f.group("filter"), f.group("counts"), f.group("outcomes")
	for name := range maps.Keys(filter) {
		r.Filter[name] = filter.text(name)
	}
	for result := range maps.Keys(counts) {
		r.Counts[result] = int(counts.number(result))
	}
	for id := range maps.Keys(outcomes) {
		r.Outcomes[id] = outcomes.text(id)
	}
	return r
}
