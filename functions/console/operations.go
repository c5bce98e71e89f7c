package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/page"
)

// operationsContent is what was done, the newest first.
type operationsContent struct{ Rows []operationRow }

type operationRow struct {
	ID, To, Deed, Who, Reason, Counts string
	Filter                            []field
	Started                           page.Moment
	State                             string
}

// maxOperations is how many operations are listed.
const maxOperations = 50

func (c *Console) operations(ctx context.Context, _ url.Values) (view, error) {
	records, err := c.Operations.Operations(ctx, maxOperations)
	if err != nil {
		return view{}, err
	}
	var content operationsContent
	for _, r := range records {
		content.Rows = append(content.Rows, c.operationRow(r))
	}
	return view{
		template: "operations.html", title: "Operations", every: 5, content: content,
		summary: "What operators did to letters, and what was redriven by itself; the newest " + fmt.Sprint(maxOperations) + ".",
	}, nil
}

func (c *Console) operationRow(r ledger.OperationRecord) operationRow {
	row := operationRow{
		ID: r.ID, To: link("operation", field{"id", r.ID}), Deed: string(r.Deed), Who: r.Who, Reason: r.Reason, Counts: countsOf(r.Counts),
		Filter: fieldsOf(r.Filter), Started: page.At(c.Now(), r.StartedAt), State: stateOf(r, c.Now()),
	}
	for i := range row.Filter {
		row.Filter[i].Value = shorten(row.Filter[i].Value, 80)
	}
	return row
}

func shorten(s string, bytes int) string {
	if len(s) <= bytes {
		return s
	}
	return fault.Cut(s, bytes) + "…"
}

// operationContent is one operation, with what became of each letter.
type operationContent struct {
	operationRow
	Facts    []fact
	Says     string
	Outcomes []outcomeRow
	Left     int // outcomes that are not shown
}

type outcomeRow struct{ ID, To, Outcome, Class string }

// maxOutcomes is how many letters' outcomes one page shows; those that went wrong come first.
const maxOutcomes = 500

func (c *Console) operation(ctx context.Context, q url.Values) (view, error) {
	id, known := q.Get("id"), false
	var r ledger.OperationRecord
	if canBeID(id) {
		var err error
		if r, known, err = c.Operations.Operation(ctx, id); err != nil {
			return view{}, err
		}
	}
	if !known {
		return view{}, notFound("No such operation", "Operations lists those there are.")
	}
	content := operationContent{operationRow: c.operationRow(r), Says: saysOf(r)}
	content.Facts = slices.DeleteFunc([]fact{
		{Name: "Who", Text: r.Who}, {Name: "Reason", Text: r.Reason}, {Name: "Started", Moment: page.At(c.Now(), r.StartedAt)},
		{Name: "Finished", Moment: page.At(c.Now(), r.FinishedAt)}, {Name: "Letters", Text: content.Counts},
	}, func(f fact) bool { return f.Text == "" && f.Moment.Text == "" })
	for id, outcome := range r.Outcomes {
		class, _, _ := strings.Cut(outcome, ":")
		if class == "moved" {
			class = "moved-on"
		}
		content.Outcomes = append(content.Outcomes, outcomeRow{id, link("letter", field{"id", id}), strings.ReplaceAll(outcome, "_", " "), class})
	}
	good := func(o outcomeRow) int {
		switch o.Outcome {
		case "redriven", "discarded", "edited":
			return 1
		}
		return 0
	}
	slices.SortFunc(content.Outcomes, func(a, b outcomeRow) int {
		return cmp.Or(good(a)-good(b), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.ID, b.ID))
	})
	if n := len(content.Outcomes); n > maxOutcomes {
		content.Outcomes, content.Left = content.Outcomes[:maxOutcomes], n-maxOutcomes
	}
	every := 0
	if content.State == running {
		every = 2
	}
	return view{
		template: "operation.html", title: "Operation " + r.ID, every: every, content: content,
		summary: fmt.Sprintf("%s, %s: %s.", r.Deed, content.State, content.Counts),
	}, nil
}

// The states of an operation.
const (
	running  = "running"
	cutOff   = "cut off"
	finished = "finished"
)

// silentFor is how long an operation that is not finished may be running: a long redrive takes hours.
const silentFor = 24 * time.Hour

func stateOf(r ledger.OperationRecord, now time.Time) string {
	switch {
	case !r.FinishedAt.IsZero():
		return finished
	case now.Sub(r.StartedAt) > silentFor:
		return cutOff
	}
	return running
}

// saysOf says what there is still to do.
func saysOf(r ledger.OperationRecord) string {
	var says []string
	if n := r.Counts["failed"]; n > 0 {
		says = append(says, fmt.Sprintf("%s failed: mend the cause, and plan again in 5 minutes, when no claim holds them.", counted(n, "letter", "letters")))
	}
	if n := r.Counts["no_data"]; n > 0 {
		says = append(says, fmt.Sprintf("%s too large for the ledger, and not to be had from -inspect just now: plan again.", counted(n, "letter is", "letters are")))
	}
	if pending := r.Counts["letters"] - doneOf(r.Counts); pending > 0 && !r.FinishedAt.IsZero() {
		says = append(says, fmt.Sprintf("%s not begun: plan again for the rest.", counted(pending, "letter was", "letters were")))
	}
	return strings.Join(says, " ")
}

func doneOf(counts map[string]int) int {
	sum := 0
	for name, n := range counts {
		if name != "letters" {
			sum += n
		}
	}
	return sum
}

func countsOf(counts map[string]int) string {
	parts := []string{counted(counts["letters"], "letter", "letters")}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if name != "letters" && counts[name] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[name], strings.ReplaceAll(name, "_", " ")))
		}
	}
	return strings.Join(parts, ", ")
}

func fieldsOf(m map[string]string) []field {
	var fields []field
	for _, name := range slices.Sorted(maps.Keys(m)) {
		fields = append(fields, field{name, m[name]})
	}
	return fields
}
