package firestoredb

import (
	"context"

	"mailyard.internal/mailyard/shared/ledger"
)

// SaveRedrive writes the record of an operation, over the one that it wrote before. Only the operation
// itself writes it, so there is nothing to check.
func (db *DB) SaveRedrive(ctx context.Context, r ledger.Redrive) error {
	f := fields{"who": r.Who, "reason": r.Reason, "startedAt": r.StartedAt}
	filter, counts, outcomes := map[string]any{}, map[string]any{}, map[string]any{}
	for name, value := range r.Filter {
		filter[name] = value
	}
	for result, n := range r.Counts {
		counts[result] = int64(n)
	}
	if len(r.Outcomes) <= ledger.MaxOutcomes {
		for id, outcome := range r.Outcomes {
			outcomes[id] = outcome
		}
	}
	f["filter"], f["counts"], f["outcomes"] = filter, counts, outcomes
	f.set("outcomesOmitted", len(r.Outcomes) > ledger.MaxOutcomes)
	f.set("finishedAt", r.FinishedAt)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := db.client.Collection("redrives").Doc(r.ID).Set(ctx, map[string]any(f)); err != nil {
		return failed(err, "record the operation %s", r.ID)
	}
	return nil
}
