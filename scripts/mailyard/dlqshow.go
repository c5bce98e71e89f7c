package main

import (
	"context"

	"github.com/spf13/cobra"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

func dlqShowCommand(t *tool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one failure: its autopsy, every attempt, its event, the message in the mirror, and what a redrive would change",
		Args:  arguments(1, 1, "entry's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := t.entry(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			m, mirrored, err := t.mirror(cmd.Context(), e)
			if err != nil {
				return err
			}
			foreseen, err := t.foresee(cmd.Context(), e, m, mirrored)
			if err != nil {
				return err
			}
			shown := shownJSON{entryOf(e), each(e.Runs, runOf), eventOf(e), mirrorOf(m), foreseen}
			if asJSON {
				return t.writeJSON(shown)
			}
			return t.writePairs(shown.pairs(mirrored))
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// accountGone is what the mirror holds of a message whose account is not there.
const accountGone = "the account is gone"

// mirror reads what the mirror holds of the message that an entry is about, and says it in a word.
func (t *tool) mirror(ctx context.Context, e ledger.Entry) (mail.Message, string, error) {
	if e.AccountID == "" || e.MessageID == "" {
		return mail.Message{}, "", nil
	}
	db, err := t.app.DB(ctx)
	if err != nil {
		return mail.Message{}, "", err
	}
	_, m, err := db.Message(ctx, e.AccountID, e.MessageID)
	switch {
	case fault.Is(err, fault.AccountGone):
		return mail.Message{}, accountGone, nil
	case err != nil:
		return mail.Message{}, "", err
	case m.Version.IsZero():
		return m, "the message is not mirrored", nil
	}
	return m, "the message is mirrored", nil
}

// foresee says what a redrive would change: empty where there is nothing to redrive.
func (t *tool) foresee(ctx context.Context, e ledger.Entry, m mail.Message, mirrored string) (string, error) {
	switch {
	case e.State == ledger.Resolved:
		return "", nil
	case mirrored == accountGone:
		return "nothing: there is no such account any more", nil
	}
	operator, err := t.app.Operator(ctx)
	if err != nil {
		return "", err
	}
	catalogue, err := t.app.Catalogue()
	if err != nil {
		return "", err
	}
	return operator.Foresee(catalogue, e, m), nil
}
