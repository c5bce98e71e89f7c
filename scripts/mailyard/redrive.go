package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/time/rate"

	"mailyard.internal/mailyard/functions/deadletter"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
)

const (
	defaultRate = 50 // letters a second
	// redriveParallel is how many letters are under way at once: one takes a few round trips.
	redriveParallel = 16
	// giveUpAfter is how many failures in a row end an operation: what it needs is down, and every
	// letter that it still claims would be kept from the next one for minutes.
	giveUpAfter = 10
	maxReason   = 500 // bytes
)

// failed is what became of a letter that could not be redriven, beside deadletter's results.
const failed deadletter.Result = "failed"

// planJSON is a plan as programs read it.
type planJSON struct {
	Eligible   int                       `json:"eligible"`
	PassedOver map[deadletter.Reason]int `json:"passedOver"`
}

func planOf(p deadletter.Plan) planJSON {
	j := planJSON{len(p.Eligible), map[deadletter.Reason]int{}}
	for _, reason := range deadletter.Reasons() {
		j.PassedOver[reason] = len(p.PassedOver[reason])
	}
	return j
}

// text is the plan as a person reads it.
func (p planJSON) text(perSecond float64) string {
	text := counted(p.Eligible, "letter", "letters") + " to redrive"
	if p.Eligible > 0 {
		text += fmt.Sprintf(", at %g a second in about %s", perSecond, age(time.Duration(float64(p.Eligible)/perSecond*float64(time.Second))+time.Second))
	}
	var over []string
	for _, reason := range deadletter.Reasons() {
		if n := p.PassedOver[reason]; n > 0 {
			over = append(over, fmt.Sprintf("%d %s", n, strings.ReplaceAll(string(reason), "_", " ")))
		}
	}
	if len(over) > 0 {
		text += "; passed over: " + strings.Join(over, ", ")
	}
	return text
}

func dlqPlanCommand(t *tool) *cobra.Command {
	var flags filterFlags
	var perSecond float64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Count what a redrive with the same flags would do, and do nothing",
		Args:  arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := t.plan(cmd.Context(), &flags, perSecond)
			if err != nil {
				return err
			}
			if asJSON {
				return t.writeJSON(planOf(plan))
			}
			_, err = fmt.Fprintln(t.stdout, planOf(plan).text(perSecond))
			return err
		},
	}
	flags.add(cmd)
	rateFlag(cmd, &perSecond)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func rateFlag(cmd *cobra.Command, perSecond *float64) {
	cmd.Flags().Float64Var(perSecond, "rate", defaultRate, "letters a second")
}

// plan reads the ledger once. What it returns is frozen: letters that die later are not in it.
func (t *tool) plan(ctx context.Context, flags *filterFlags, perSecond float64) (deadletter.Plan, error) {
	if !(perSecond > 0 && perSecond <= 10_000) {
		return deadletter.Plan{}, misused("--rate must be more than 0 and at most 10000 letters a second")
	}
	filter, err := flags.filter(t)
	if err != nil {
		return deadletter.Plan{}, err
	}
	if len(filter.IDs) == 0 { // of what was named, also the resolved are told
		filter.States = deadletter.Unresolved()
	}
	entries, err := t.entries(ctx, filter, false)
	if err != nil {
		return deadletter.Plan{}, err
	}
	return deadletter.PlanRedrive(filter, entries, t.now()), nil
}

func dlqRedriveCommand(t *tool) *cobra.Command {
	var flags filterFlags
	var perSecond float64
	var asJSON, yes bool
	var reason string
	cmd := &cobra.Command{
		Use:   "redrive",
		Short: "Publish dead letters again, each on the topic it came from",
		Long: "Prints the plan and asks before it acts, unless --yes is given; no answer is a no. What is retrying,\n" +
			"redriving or resolved is passed over. Ctrl-C stops it between two letters; run it again to go on.",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := t.plan(cmd.Context(), &flags, perSecond)
			if err != nil {
				return err
			}
			if reason = strings.TrimSpace(reason); len(reason) > maxReason {
				return misused("--reason is too long; write at most %d characters", maxReason)
			}
			o := operation{
				tool: t, plan: plan, perSecond: perSecond, asJSON: asJSON, done: map[string]string{}, counts: map[deadletter.Result]int{},
				record: ledger.Redrive{Who: t.who, Reason: reason, Filter: flags.given()},
			}
			return o.run(cmd.Context(), yes)
		},
	}
	flags.add(cmd)
	rateFlag(cmd, &perSecond)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record of the operation")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// An operation redrives a frozen list of letters.
type operation struct {
	*tool
	plan      deadletter.Plan
	perSecond float64
	asJSON    bool
	record    ledger.Redrive

	mu       sync.Mutex
	counts   map[deadletter.Result]int
	done     map[string]string // outcome by id
	inARow   int               // failures
	lastFail error
}

// outcomeJSON is what a redrive did, as programs read it.
type outcomeJSON struct {
	Operation string                    `json:"operation"` // empty where nothing was to do
	Plan      planJSON                  `json:"plan"`
	Results   map[deadletter.Result]int `json:"results"`
	Left      int                       `json:"left"` // not tried, because the operation was stopped
}

func (o *operation) run(ctx context.Context, yes bool) error {
	plan := planOf(o.plan)
	told := o.stdout
	if o.asJSON {
		told = o.stderr // standard output holds one JSON document
	}
	if _, err := fmt.Fprintln(told, plan.text(o.perSecond)); err != nil {
		return err
	}
	if plan.Eligible == 0 {
		return o.report("")
	}
	if !yes && !o.confirm(ctx, "Redrive "+counted(plan.Eligible, "letter", "letters")+"?") {
		return errors.New("nothing was changed: the answer was not yes; answer y, or give --yes")
	}
	redriver, err := o.app.Redriver(ctx)
	if err != nil {
		return err
	}
	db, err := o.app.DB(ctx)
	if err != nil {
		return err
	}
	began := o.now()
	o.record.ID = "redrive-" + began.UTC().Format("20060102T150405") + "-" + strings.ToLower(rand.Text()[:4])
	o.record.StartedAt = began
	o.record.Counts = map[string]int{"eligible": plan.Eligible}
	if err := db.SaveRedrive(ctx, o.record); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	o.publish(ctx, redriver)

	o.record.FinishedAt, o.record.Outcomes = o.now(), o.done
	for result, n := range o.counts {
		o.record.Counts[string(result)] = n
	}
	recordErr := db.SaveRedrive(context.WithoutCancel(ctx), o.record)
	return errors.Join(o.report(o.record.ID), o.verdict(ctx), recordErr)
}

// publish redrives the letters at the rate, and returns when none is under way any more. It stops
// between two letters when ctx ends, or when failure follows failure.
func (o *operation) publish(ctx context.Context, redriver *deadletter.Redriver) {
	bar := o.progress(len(o.plan.Eligible), "redriving")
	limiter := rate.NewLimiter(rate.Limit(o.perSecond), 1)
	slots := make(chan struct{}, redriveParallel)
	var wait sync.WaitGroup
	for _, id := range o.plan.Eligible {
		slots <- struct{}{}
		if limiter.Wait(ctx) != nil || o.hopeless() {
			break
		}
		wait.Go(func() {
			defer func() { <-slots }()
			// A letter that was begun is brought to its end, so that none stays claimed.
			result, err := redriver.Redrive(context.WithoutCancel(ctx), o.record.ID, id)
			o.count(id, result, err)
			_ = bar.Add(1)
		})
	}
	wait.Wait()
	_ = bar.Finish()
}

func (o *operation) count(id string, result deadletter.Result, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.counts[result]++
		o.done[id] = string(result)
		o.inARow = 0
		return
	}
	o.counts[failed]++
	o.done[id] = string(failed) + ": " + string(fault.CodeOf(err))
	o.inARow++
	o.lastFail = err
}

func (o *operation) hopeless() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.inARow >= giveUpAfter
}

// report writes what was done.
func (o *operation) report(id string) error {
	outcome := outcomeJSON{id, planOf(o.plan), map[deadletter.Result]int{}, len(o.plan.Eligible) - len(o.done)}
	for _, result := range []deadletter.Result{deadletter.Redriven, deadletter.Busy, deadletter.Moved, deadletter.NoData, failed} {
		outcome.Results[result] = o.counts[result]
	}
	if o.asJSON {
		return o.writeJSON(outcome)
	}
	if id == "" {
		return nil // the plan has said it
	}
	var parts []string
	for _, result := range slices.Sorted(maps.Keys(outcome.Results)) {
		if n := outcome.Results[result]; n > 0 && result != deadletter.Redriven {
			parts = append(parts, strconv.Itoa(n)+" "+strings.ReplaceAll(string(result), "_", " "))
		}
	}
	parts = append([]string{strconv.Itoa(outcome.Results[deadletter.Redriven]) + " redriven"}, parts...)
	_, err := fmt.Fprintf(o.stdout, "%s: %s\n", id, strings.Join(parts, ", "))
	return err
}

// verdict is the error of an operation that did not do all it was to.
func (o *operation) verdict(ctx context.Context) error {
	left := len(o.plan.Eligible) - len(o.done)
	switch {
	case o.lastFail != nil && left > 0 && ctx.Err() == nil:
		return fmt.Errorf("stopped after %d failures in a row with %d letters left; mend the cause and run it again in %d minutes, when the failed ones are free again: %w",
			giveUpAfter, left, int(deadletter.BusyFor.Minutes()), o.lastFail)
	case o.lastFail != nil:
		return fmt.Errorf("%s could not be redriven; run it again in %d minutes, when they are free again: %w",
			counted(o.counts[failed], "letter", "letters"), int(deadletter.BusyFor.Minutes()), o.lastFail)
	case left > 0:
		return fmt.Errorf("%d of %d letters were done; run it again for the rest", len(o.done), len(o.plan.Eligible))
	}
	return nil
}
