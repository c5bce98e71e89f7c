package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/firestoredb"
	"mailyard.internal/mailyard/shared/ledger"
)

// operationJSON is the record of an operation as programs read it.
type operationJSON struct {
	ID         string            `json:"id"`
	Deed       ledger.Deed       `json:"deed"`
	Who        string            `json:"who"`
	Reason     string            `json:"reason"`
	Filter     map[string]string `json:"filter"`
	Counts     map[string]int    `json:"counts"`
	StartedAt  *time.Time        `json:"startedAt"`
	FinishedAt *time.Time        `json:"finishedAt"` // null while it runs, and where it was cut off
	Outcomes   map[string]string `json:"outcomes"`   // of one operation alone
}

func operationOf(r ledger.OperationRecord) operationJSON {
	return operationJSON{r.ID, r.Deed, r.Who, r.Reason, r.Filter, r.Counts, moment(r.StartedAt), moment(r.FinishedAt), r.Outcomes}
}

// maxOperations is how many operations can be listed.
const maxOperations = 1000

func dlqLogCommand(t *tool) *cobra.Command {
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use:   "log [OPERATION]",
		Short: "Print what operators did, and what Tick redrove by itself; of one operation each letter's outcome",
		Args:  arguments(0, 1, "operation's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > maxOperations {
				return misused("--limit must be 1 to %d operations", maxOperations)
			}
			db, err := t.app.DB(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return t.showOperation(cmd.Context(), db, args[0], asJSON)
			}
			records, err := db.Operations(cmd.Context(), limit)
			if err != nil {
				return err
			}
			if asJSON {
				return t.writeJSON(each(records, operationOf))
			}
			return t.writeOperations(records)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "at most so many, the newest")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (t *tool) writeOperations(records []ledger.OperationRecord) error {
	if len(records) == 0 {
		return t.writeLine("0 operations")
	}
	rows := make([][]string, len(records))
	for i, r := range records {
		finished := clock(r.FinishedAt)
		if finished == "" {
			finished = "not finished"
		}
		rows[i] = []string{r.ID, r.Who, clock(r.StartedAt), finished, countsOf(r.Counts), wordsOf(r.Filter), shorten(r.Reason, 60)}
	}
	return t.writeTable([]string{"OPERATION", "WHO", "STARTED", "FINISHED", "LETTERS", "FILTER", "REASON"}, rows)
}

func countsOf(counts map[string]int) string {
	parts := []string{fmt.Sprint(counts["letters"])}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if name != "letters" && counts[name] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[name], strings.ReplaceAll(name, "_", " ")))
		}
	}
	return strings.Join(parts, ", ")
}

func wordsOf(filter map[string]string) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(filter)) {
		words = append(words, name+"="+shorten(filter[name], 60))
	}
	return strings.Join(words, " ")
}

func (t *tool) showOperation(ctx context.Context, db *firestoredb.DB, id string, asJSON bool) error {
	var r ledger.OperationRecord
	known := false
	if id != "" && !strings.Contains(id, "/") { // a slash would make it another document's path
		var err error
		if r, known, err = db.Operation(ctx, id); err != nil {
			return err
		}
	}
	if !known {
		return fmt.Errorf("there is no operation %s; mailyard dlq log shows those there are", printable(fault.Cut(id, 200)))
	}
	if asJSON {
		return t.writeJSON(operationOf(r))
	}
	if err := t.writePairs([][2]string{
		{"operation", r.ID}, {"who", r.Who}, {"reason", r.Reason}, {"filter", wordsOf(r.Filter)},
		{"started", clock(r.StartedAt)}, {"finished", clock(r.FinishedAt)}, {"letters", countsOf(r.Counts)},
	}); err != nil {
		return err
	}
	rows := make([][]string, 0, len(r.Outcomes))
	for _, id := range slices.Sorted(maps.Keys(r.Outcomes)) {
		rows = append(rows, []string{id, r.Outcomes[id]})
	}
	return t.writeTable([]string{"LETTER", "OUTCOME"}, rows)
}
