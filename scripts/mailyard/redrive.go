package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mailyard.internal/mailyard/functions/deadletter"
	"mailyard.internal/mailyard/shared/ledger"
)

const (
	defaultRate = 50  // letters a second
	maxReason   = 500 // bytes
)

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

// text is the plan of a redrive as a person reads it.
func (p planJSON) text(perSecond float64) string {
	what := "to redrive"
	if p.Eligible > 0 {
		what += fmt.Sprintf(", at %g a second in about %s", perSecond, age(time.Duration(float64(p.Eligible)/perSecond*float64(time.Second))+time.Second))
	}
	return p.phrase(what)
}

// phrase says what is to be done to how many letters, and what is passed over.
func (p planJSON) phrase(what string) string {
	text := counted(p.Eligible, "letter", "letters") + " " + what
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
		filter.States = ledger.Unresolved()
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
			order, err := t.order(reason, flags.given())
			if err != nil {
				return err
			}
			plan, err := t.plan(cmd.Context(), &flags, perSecond)
			if err != nil {
				return err
			}
			order.Rate = perSecond
			return t.operate(cmd.Context(), plan, order, operation{
				say: planOf(plan).text(perSecond), ask: "Redrive " + counted(len(plan.Eligible), "letter", "letters") + "?",
				yes: yes, asJSON: asJSON, doing: "redriving", done: deadletter.Redriven, filtered: len(order.Filter)+len(flags.ids) > 0,
				do: (*deadletter.Operator).Redrive,
			})
		},
	}
	flags.add(cmd)
	rateFlag(cmd, &perSecond)
	reasonFlag(cmd, &reason)
	yesFlag(cmd, &yes)
	jsonFlag(cmd, &asJSON)
	return cmd
}
