package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"mailyard.internal/mailyard/functions/deadletter"
)

func reasonFlag(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "why, for the record of the operation")
}

func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask")
}

// order is what the person who works here asks for.
func (t *tool) order(reason string, filter map[string]string) (deadletter.Order, error) {
	if reason = strings.TrimSpace(reason); len(reason) > maxReason {
		return deadletter.Order{}, misused("--reason is too long; write at most %d characters", maxReason)
	}
	return deadletter.Order{Who: t.who, Reason: reason, Filter: filter}, nil
}

// An operation is what is done to a plan's letters, and how it is spoken of.
type operation struct {
	say, ask    string // the plan; the question
	yes, asJSON bool
	doing       string            // for the progress bar
	done        deadletter.Result // what a letter becomes when all goes well
	filtered    bool              // something was chosen, so that to find nothing is a mistake
	do          func(*deadletter.Operator, context.Context, deadletter.Plan, deadletter.Order) (deadletter.Report, error)
}

// outcomeJSON is what an operation did, as programs read it.
type outcomeJSON struct {
	Operation string                    `json:"operation"` // empty where nothing was to do
	Plan      planJSON                  `json:"plan"`
	Results   map[deadletter.Result]int `json:"results"`
	Left      int                       `json:"left"` // not begun, because the operation was stopped
}

// operate says what would be done, asks, does it, and reports.
func (t *tool) operate(ctx context.Context, plan deadletter.Plan, order deadletter.Order, o operation) error {
	told := t.stdout
	if o.asJSON {
		told = t.stderr // standard output holds one JSON document
	}
	if _, err := fmt.Fprintln(told, o.say); err != nil {
		return err
	}
	if len(plan.Eligible) == 0 {
		return errors.Join(t.report(o, plan, deadletter.Report{}), nothingToDo(o, plan))
	}
	if !o.yes && !t.confirm(ctx, o.ask) {
		return errors.New("nothing was changed: the answer was not yes; answer y, or give --yes")
	}
	operator, err := t.app.Operator(ctx)
	if err != nil {
		return err
	}
	bar := t.progress(len(plan.Eligible), o.doing)
	order.Done = func() { _ = bar.Add(1) }
	report, err := o.do(operator, ctx, plan, order)
	_ = bar.Finish()
	if report.Untidy != nil {
		fmt.Fprintf(t.stderr, "mailyard: letters that are no longer open may still be on -inspect subscriptions, until Tick takes them away: %s\n", explain(report.Untidy)[0])
	}
	if err == nil {
		err = verdict(ctx, plan, report)
	}
	return errors.Join(t.report(o, plan, report), err)
}

// nothingToDo is the error of an operation that has nothing to do because of a mistake.
func nothingToDo(o operation, plan deadletter.Plan) error {
	over := 0
	for _, ids := range plan.PassedOver {
		over += len(ids)
	}
	switch broken := plan.PassedOver[deadletter.IsBroken]; {
	case len(broken) > 0:
		return fmt.Errorf("nothing was changed: the entry %s is broken; look at it with mailyard dlq show, and mend or delete its document in the collection failures", broken[0])
	case o.filtered && over == 0:
		return errors.New("nothing was changed: no entry fits; mailyard dlq list --state all shows those there are")
	}
	return nil
}

// report writes what was done.
func (t *tool) report(o operation, plan deadletter.Plan, r deadletter.Report) error {
	outcome := outcomeJSON{r.Operation, planOf(plan), map[deadletter.Result]int{}, r.Left}
	for _, result := range []deadletter.Result{o.done, deadletter.Busy, deadletter.Moved, deadletter.NoData, deadletter.Failed} {
		outcome.Results[result] = r.Results[result]
	}
	if o.asJSON {
		return t.writeJSON(outcome)
	}
	if r.Operation == "" {
		return nil // the plan has said it
	}
	parts := []string{strconv.Itoa(r.Results[o.done]) + " " + string(o.done)}
	for _, result := range slices.Sorted(maps.Keys(outcome.Results)) {
		if n := outcome.Results[result]; n > 0 && result != o.done {
			parts = append(parts, strconv.Itoa(n)+" "+strings.ReplaceAll(string(result), "_", " "))
		}
	}
	return t.writeLine("%s: %s", r.Operation, strings.Join(parts, ", "))
}

// verdict is the error of an operation that did not do all it was to.
func verdict(ctx context.Context, plan deadletter.Plan, r deadletter.Report) error {
	again := int(deadletter.BusyFor.Minutes())
	switch {
	case r.Hopeless && ctx.Err() == nil:
		return fmt.Errorf("stopped by failures in a row, %d in all, with %d letters left; mend the cause and run it again in %d minutes, when the failed ones are free again: %w",
			r.Results[deadletter.Failed], r.Left, again, r.Err)
	case r.Err != nil:
		return fmt.Errorf("%s failed; run it again in %d minutes, when they are free again: %w",
			counted(r.Results[deadletter.Failed], "letter", "letters"), again, r.Err)
	case r.Left > 0:
		return fmt.Errorf("%d of %d letters were done; run it again for the rest", len(plan.Eligible)-r.Left, len(plan.Eligible))
	case r.Results[deadletter.NoData] > 0:
		return fmt.Errorf("%s too large for the ledger, and not on the -inspect subscription at the moment: look there, and run it again",
			counted(r.Results[deadletter.NoData], "letter is", "letters are"))
	}
	return nil
}
