package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mailyard.internal/mailyard/functions/deadletter"
)

func dlqDiscardCommand(t *tool) *cobra.Command {
	var yes, asJSON bool
	var reason string
	cmd := &cobra.Command{
		Use:   "discard ID...",
		Short: "Give dead letters up: their events are not applied",
		Long: "What a discarded event would have changed stays as it is. account audit tells whether the mirror differs\n" +
			"from the mailbox, and account resync mends it.",
		Args: atLeastOne("entry's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			order, err := t.order(reason, nil) // its outcomes name the letters
			if err != nil {
				return err
			}
			if order.Reason == "" {
				return misused("--reason is not given; write why the letters are given up, for the record")
			}
			plan, err := t.planDiscard(cmd.Context(), args)
			if err != nil {
				return err
			}
			return t.operate(cmd.Context(), plan, order, operation{
				say: planOf(plan).phrase("to discard"), ask: "Discard " + counted(len(plan.Eligible), "letter", "letters") + "?",
				yes: yes, asJSON: asJSON, doing: "discarding", done: deadletter.Discarded, filtered: true,
				do: (*deadletter.Operator).Discard,
			})
		},
	}
	reasonFlag(cmd, &reason)
	yesFlag(cmd, &yes)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// planDiscard plans for entries that are named, each of which there must be.
func (t *tool) planDiscard(ctx context.Context, ids []string) (deadletter.Plan, error) {
	filter := deadletter.Filter{IDs: ids}
	entries, err := t.entries(ctx, filter, false)
	if err != nil {
		return deadletter.Plan{}, err
	}
	return deadletter.PlanDiscard(filter, entries, t.now()), nil
}

// atLeastOne takes one argument or more.
func atLeastOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return misused("%s needs an argument: the %s, of one or more", cmd.CommandPath(), what)
		}
		return nil
	}
}

// editedJSON is what an edit did, as programs read it.
type editedJSON struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func dlqEditCommand(t *tool) *cobra.Command {
	var yes, asJSON bool
	var reason string
	var set []string
	fields := strings.Join(deadletter.Editable(), ", ")
	cmd := &cobra.Command{
		Use:   "edit ID --set FIELD=VALUE",
		Short: "Change a field of a dead letter's event",
		Long: "Makes a new dead letter with the changed event, under the new event's id, and discards the old one; each\n" +
			"names the other. Nothing is published: redrive the new one when it is right. The fields are " + fields + ".\n" +
			"The account cannot be changed, nor the lane.",
		Args: arguments(1, 1, "entry's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			changes, err := changesOf(set)
			if err != nil {
				return err
			}
			order, err := t.order(reason, map[string]string{"id": args[0], "set": strings.Join(set, " ")})
			if err != nil {
				return err
			}
			if order.Reason == "" {
				return misused("--reason is not given; write why the event is changed, for the record")
			}
			if _, err := t.entry(cmd.Context(), args[0]); err != nil {
				return err
			}
			if !yes && !t.confirm(cmd.Context(), fmt.Sprintf("Change %s of %s?", strings.Join(set, ", "), printable(args[0]))) {
				return errors.New("nothing was changed: the answer was not yes; answer y, or give --yes")
			}
			operator, err := t.app.Operator(cmd.Context())
			if err != nil {
				return err
			}
			edited, err := operator.Edit(cmd.Context(), args[0], changes, order)
			if err != nil {
				return err
			}
			if asJSON {
				return t.writeJSON(editedJSON{args[0], edited.ID})
			}
			return t.writeLine("%s is discarded; the changed event is the dead letter %s: redrive it with mailyard dlq redrive --id %s", args[0], edited.ID, edited.ID)
		},
	}
	cmd.Flags().StringArrayVar(&set, "set", nil, "a field and its new value, as historyId=4711; may be given again")
	reasonFlag(cmd, &reason)
	yesFlag(cmd, &yes)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func changesOf(set []string) (map[string]string, error) {
	if len(set) == 0 {
		return nil, misused("--set is not given; write FIELD=VALUE with a field of %s", strings.Join(deadletter.Editable(), ", "))
	}
	changes := map[string]string{}
	for _, s := range set {
		name, value, ok := strings.Cut(s, "=")
		if _, twice := changes[name]; !ok || twice {
			return nil, misused("--set %q is not FIELD=VALUE, or names a field again", s)
		}
		changes[name] = value
	}
	return changes, nil
}
