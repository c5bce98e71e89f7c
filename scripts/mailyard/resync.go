package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"mailyard.internal/mailyard/shared/mail"
)

func accountResyncCommand(t *tool) *cobra.Command {
	var asJSON, noWait bool
	cmd := &cobra.Command{
		Use:   "resync ACCOUNT",
		Short: "Compare the whole mailbox with its mirror, and mend the difference",
		Long: "The resync is done by the function Resync, in steps; one that runs already is joined. The command\n" +
			"shows its progress until it ends; ending the command does not end the resync.",
		Args: arguments(1, 1, "account's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := t.requestResync(cmd.Context(), args[0])
			if err == nil && !noWait {
				r, err = t.followResync(cmd.Context(), r)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return t.writeJSON(map[string]any{"resyncId": r.ID, "state": r.State, "done": r.Done, "total": r.Total})
			}
			_, err = fmt.Fprintf(t.stdout, "resync %s is %s: %d of %d messages are right\n", r.ID, r.State, r.Done, r.Total)
			return err
		},
	}
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "ask for it and end")
	return cmd
}

// requestResync asks for a resync and returns it, or the one that it joined.
func (t *tool) requestResync(ctx context.Context, id string) (mail.Resync, error) {
	accounts, err := t.accounts(ctx, id)
	if err != nil {
		return mail.Resync{}, err
	}
	if err := callable(accounts[0]); err != nil {
		return mail.Resync{}, err
	}
	resyncs, err := t.app.Resyncs(ctx)
	if err != nil {
		return mail.Resync{}, err
	}
	asked := "asked-" + strconv.FormatInt(t.now().UnixMilli(), 10)
	if err := resyncs.RequestResync(ctx, id, asked, "an operator asked for it"); err != nil {
		return mail.Resync{}, err
	}
	db, err := t.app.DB(ctx)
	if err != nil {
		return mail.Resync{}, err
	}
	open, err := db.OpenResyncs(ctx, id)
	if err != nil {
		return mail.Resync{}, err
	}
	if len(open) > 0 {
		return open[0], nil
	}
	r, _, err := db.Resync(ctx, id, asked) // over already
	return r, err
}

// followEvery is how often a resync is looked at.
const followEvery = 500 * time.Millisecond

// followResync shows a resync's progress until it ends.
func (t *tool) followResync(ctx context.Context, r mail.Resync) (mail.Resync, error) {
	db, err := t.app.DB(ctx)
	if err != nil {
		return r, err
	}
	bar := t.progress(-1, "listing")
	defer func() { _ = bar.Finish() }()
	look := time.NewTicker(followEvery)
	defer look.Stop()
	for r.Open() {
		if r.Total > 0 {
			bar.Describe("messages that are right")
			bar.ChangeMax(r.Total)
		}
		_ = bar.Set(r.Done)
		select {
		case <-look.C:
		case <-ctx.Done():
			return r, fmt.Errorf("the resync %s goes on without this command", r.ID)
		}
		known := false
		if r, known, err = db.Resync(ctx, r.AccountID, r.ID); err != nil || !known {
			return r, err
		}
	}
	return r, nil
}

func accountAuditCommand(t *tool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "audit ACCOUNT",
		Short: "Count the differences between a mailbox and its mirror, changing nothing",
		Long: "missing are listed by Gmail but not mirrored, extra are mirrored but not listed, and of each flag it\n" +
			"counts the wrong values. What is on its way while it runs counts too.",
		Args: arguments(1, 1, "account's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			counts, err := t.audit(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return t.writeJSON(counts)
			}
			var rows [][]string
			for _, name := range slices.Sorted(maps.Keys(counts)) {
				rows = append(rows, []string{name, fmt.Sprint(counts[name])})
			}
			return t.writeTable([]string{"DIFFERENCE", "MESSAGES"}, rows)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// callable refuses an account for which Gmail is not called until somebody does something about it.
func callable(a mail.Account) error {
	if a.Callable() {
		return nil
	}
	return fmt.Errorf("account %s is %s, and Gmail is not called for it; link it again with mailyard account add", a.ID, a.Status)
}

// mayCallGmail refuses an account for which Gmail may not be called now.
func (t *tool) mayCallGmail(a mail.Account) error {
	if until := a.GmailBlockedUntil; a.Callable() && until.After(t.now()) {
		return fmt.Errorf("account %s may not call Gmail before %s, as Gmail asked; try again then", a.ID, until.UTC().Format(time.RFC3339))
	}
	return callable(a)
}

func (t *tool) audit(ctx context.Context, id string) (map[string]int, error) {
	accounts, err := t.accounts(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := t.mayCallGmail(accounts[0]); err != nil {
		return nil, err
	}
	auditor, err := t.app.Auditor(ctx)
	if err != nil {
		return nil, err
	}
	bar := t.progress(-1, "listing")
	differences, err := auditor.Audit(ctx, id, func(listed int) { _ = bar.Set(listed) })
	_ = bar.Finish()
	if err != nil {
		return nil, fmt.Errorf("audit account %s: %w", id, err)
	}
	counts := map[string]int{"missing": differences.Missing, "extra": differences.Extra}
	maps.Copy(counts, differences.Flags)
	return counts, nil
}
