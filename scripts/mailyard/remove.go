package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mail"
)

func accountRemoveCommand(t *tool) *cobra.Command {
	var yes, verify, asJSON bool
	cmd := &cobra.Command{
		Use:   "remove ACCOUNT",
		Short: "Unlink a mailbox and delete everything that is kept of it",
		Long: "The account goes first, so that what is in flight finds none. Watch and grant are ended at Google,\n" +
			"unless another account holds the mailbox. Mirror, resyncs, ledger entries and credential are deleted,\n" +
			"again and again until nothing that was in flight can still come: half a minute at least, some two\n" +
			"minutes if a resync was running. In the end it counts what is left, and fails if that is anything.\n\n" +
			"If it was stopped, run it again: it goes on. With --verify it only counts.",
		Args: arguments(1, 1, "account's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !mail.PlainID(args[0]) {
				return noAccount(args[0])
			}
			var removed map[string]int
			if !verify {
				var err error
				if removed, err = t.removeAccount(cmd.Context(), args[0], yes); err != nil {
					return err
				}
			}
			return t.reportLeft(cmd.Context(), args[0], removed, asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&verify, "verify", false, "delete nothing, only count what is left of the account")
	return cmd
}

func noAccount(id string) error {
	return fmt.Errorf("there is no account %s, and nothing is left of one; mailyard account list shows those there are", printable(id))
}

func (t *tool) removeAccount(ctx context.Context, id string, yes bool) (map[string]int, error) {
	db, err := t.app.DB(ctx)
	if err != nil {
		return nil, err
	}
	account, err := db.Account(ctx, id)
	if err != nil && !fault.Is(err, fault.AccountGone) {
		return nil, err
	}
	total, err := db.CountMessages(ctx, id)
	if err != nil {
		return nil, err
	}
	question := "Delete what is left of account " + id + "?"
	if account.ID != "" {
		question = fmt.Sprintf("Unlink %s and delete its mirror of %s?", printable(account.Email), counted(total, "message", "messages"))
	}
	if !yes && !t.confirm(ctx, question) {
		return nil, errors.New("nothing was changed: the answer was not yes; answer y, or give --yes")
	}
	unlinker, err := t.app.Unlinker(ctx)
	if err != nil {
		return nil, err
	}
	bar := t.progress(max(total, 1), "deleting")
	done := 0
	removed, err := unlinker.Unlink(ctx, id, func(n int) {
		done += n
		bar.ChangeMax(max(total, done))
		_ = bar.Set(done)
	})
	_ = bar.Finish()
	if fault.Is(err, fault.AccountGone) && len(removed) == 0 {
		return nil, noAccount(id)
	}
	return removed, err
}

// reportLeft counts what is left of the account, and fails if that is anything.
func (t *tool) reportLeft(ctx context.Context, id string, removed map[string]int, asJSON bool) error {
	unlinker, err := t.app.Unlinker(ctx)
	if err != nil {
		return err
	}
	left, err := unlinker.Leftovers(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case asJSON && removed == nil:
		err = t.writeJSON(map[string]any{"accountId": id, "left": left})
	case asJSON:
		err = t.writeJSON(map[string]any{"accountId": id, "removed": removed, "left": left})
	case len(left) > 0 || removed == nil:
		_, err = fmt.Fprintf(t.stdout, "left of account %s: %s\n", id, kinds(left))
	default:
		_, err = fmt.Fprintf(t.stdout, "account %s is unlinked: deleted %s; left: %s\n", id, kinds(removed), kinds(left))
	}
	if err == nil && len(left) > 0 {
		return fmt.Errorf("something is left of account %s; mailyard account remove %s deletes it", id, id)
	}
	return err
}

// kinds says how many there are of each kind.
func kinds(counts map[string]int) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d in %s", counts[kind], kind))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
