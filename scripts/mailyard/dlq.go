package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mailyard.internal/mailyard/functions/deadletter"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/firestoredb"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

func deadLetterCommand(t *tool) *cobra.Command {
	return group("dlq", "See what has failed, and bring dead letters back",
		dlqListCommand(t), dlqShowCommand(t), dlqPlanCommand(t), dlqRedriveCommand(t))
}

// filterFlags are the flags that choose entries.
type filterFlags struct {
	ids                        []string
	lane, account, code, print string
	olderThan                  time.Duration
	limit                      int
	states                     []string
}

func (f *filterFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.ids, "id", nil, "the entry with this id; may be given again")
	cmd.Flags().StringVar(&f.lane, "lane", "", "events of this lane, by its key")
	cmd.Flags().StringVar(&f.account, "account", "", "what is about this account, by its id")
	cmd.Flags().StringVar(&f.code, "code", "", "what failed with this code")
	cmd.Flags().StringVar(&f.print, "fingerprint", "", "what failed of this one cause")
	cmd.Flags().DurationVar(&f.olderThan, "older-than", 0, "what last failed at least so long ago, as 90s, 15m or 24h")
	cmd.Flags().IntVar(&f.limit, "limit", 0, "at most so many, those that failed longest ago (default all)")
}

// states are all there are, in the order of a failure's life.
var states = append(deadletter.Unresolved(), ledger.Resolved)

func (f *filterFlags) filter(t *tool) (deadletter.Filter, error) {
	filter := deadletter.Filter{
		IDs: f.ids, Lane: f.lane, Account: f.account, Code: fault.Code(f.code), Fingerprint: f.print, Limit: f.limit,
	}
	if f.olderThan < 0 {
		return filter, misused("--older-than is negative; write how long ago, as 15m or 24h")
	}
	if f.limit < 0 {
		return filter, misused("--limit is negative; write how many, or leave it out for all")
	}
	if f.olderThan > 0 {
		filter.FailedBefore = t.now().Add(-f.olderThan)
	}
	catalogue, err := t.app.Catalogue()
	if err != nil {
		return filter, err
	}
	if _, known := catalogue.Lane(f.lane); f.lane != "" && !known {
		keys := make([]string, len(catalogue.Lanes))
		for i, l := range catalogue.Lanes {
			keys[i] = l.Key
		}
		return filter, misused("--lane %q is no lane; write one of %s", f.lane, strings.Join(keys, ", "))
	}
	for _, word := range f.states {
		state := ledger.State(word)
		if word == "all" {
			filter.States = append(filter.States, states...)
			continue
		}
		if !isState(state) {
			return filter, misused("--state %q is no state; write one of retrying, dead, redriving, resolved, all", word)
		}
		filter.States = append(filter.States, state)
	}
	return filter, nil
}

func isState(state ledger.State) bool {
	for _, s := range states {
		if s == state {
			return true
		}
	}
	return false
}

// given says which filters were given, by name, for the record of an operation.
func (f *filterFlags) given() map[string]string {
	given := map[string]string{}
	for name, value := range map[string]string{
		"id": strings.Join(f.ids, " "), "lane": f.lane, "account": f.account, "code": f.code, "fingerprint": f.print,
	} {
		if value != "" {
			given[name] = value
		}
	}
	if f.olderThan > 0 {
		given["older-than"] = f.olderThan.String()
	}
	if f.limit > 0 {
		given["limit"] = strconv.Itoa(f.limit)
	}
	return given
}

// pageSize is how many entries one call reads.
const pageSize = 200

// entries reads what the filter chooses apart from its limit, in no order; withData also its data. An
// id that there is not is an error.
func (t *tool) entries(ctx context.Context, f deadletter.Filter, withData bool) ([]ledger.Entry, error) {
	db, err := t.app.DB(ctx)
	if err != nil {
		return nil, err
	}
	var found []ledger.Entry
	add := func(e ledger.Entry) {
		if !withData {
			e.Data = nil
		}
		if f.Chooses(e) {
			found = append(found, e)
		}
	}
	if len(f.IDs) > 0 {
		for _, id := range f.IDs {
			e, err := t.entry(ctx, id)
			if err != nil {
				return nil, err
			}
			add(e)
		}
		return found, nil
	}
	stored := firestoredb.EntryFilter{Lane: f.Lane, Account: f.Account, Code: string(f.Code), Fingerprint: f.Fingerprint}
	for _, s := range f.States {
		stored.States = append(stored.States, string(s))
	}
	for after := ""; ; {
		page, err := db.EntriesAfter(ctx, stored, after, pageSize)
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			add(e)
		}
		if len(page) < pageSize {
			return found, nil
		}
		after = page[len(page)-1].ID
	}
}

// entry reads one entry of the ledger; one that there is not is an error.
func (t *tool) entry(ctx context.Context, id string) (ledger.Entry, error) {
	db, err := t.app.DB(ctx)
	if err != nil {
		return ledger.Entry{}, err
	}
	known := false
	var e ledger.Entry
	if id != "" && !strings.Contains(id, "/") { // a slash would make it another document's path
		if e, known, err = db.Read(ctx, id); err != nil {
			return ledger.Entry{}, err
		}
	}
	if !known {
		return ledger.Entry{}, fmt.Errorf("the ledger has no entry %s; mailyard dlq list --state all shows those there are", fault.Cut(id, 200))
	}
	return e, nil
}

func dlqListCommand(t *tool) *cobra.Command {
	var flags filterFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what is failing, dead or being redriven",
		Args:  arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := flags.filter(t)
			if err != nil {
				return err
			}
			if len(filter.States) == 0 && len(filter.IDs) == 0 {
				filter.States = deadletter.Unresolved()
			}
			entries, err := t.entries(cmd.Context(), filter, asJSON)
			if err != nil {
				return err
			}
			entries = filter.Choose(entries)
			if asJSON {
				list := make([]entryJSON, len(entries))
				for i, e := range entries {
					list[i] = entryOf(e)
				}
				return t.writeJSON(list)
			}
			return t.writeEntries(entries)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringSliceVar(&flags.states, "state", nil, "in these states: retrying, dead, redriving, resolved, or all (default all but resolved)")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (t *tool) writeEntries(entries []ledger.Entry) error {
	if len(entries) == 0 {
		_, err := fmt.Fprintln(t.stdout, "0 entries")
		return err
	}
	rows := make([][]string, len(entries))
	for i, e := range entries {
		from := e.Lane
		if from == "" {
			from = e.Consumer
		}
		rows[i] = []string{
			e.ID, string(e.State), from, string(e.Code), strconv.Itoa(e.Attempts), strconv.Itoa(e.Redrives),
			age(t.now().Sub(e.LastFailedAt)), shorten(e.Error, 80),
		}
	}
	return t.writeTable([]string{"ID", "STATE", "LANE", "CODE", "ATTEMPTS", "REDRIVES", "AGE", "ERROR"}, rows)
}

// shorten cuts a text for a table.
func shorten(s string, bytes int) string {
	if len(s) <= bytes {
		return s
	}
	return fault.Cut(s, bytes) + "…"
}

func dlqShowCommand(t *tool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one failure: its autopsy, its event, and what the mirror holds of the message",
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
			shown := shownJSON{entryOf(e), eventOf(e), mirrorOf(m)}
			if asJSON {
				return t.writeJSON(shown)
			}
			return t.writePairs(shown.pairs(mirrored))
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

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
		return mail.Message{}, "the account is gone", nil
	case err != nil:
		return mail.Message{}, "", err
	case m.Version.IsZero():
		return m, "the message is not mirrored", nil
	}
	return m, "the message is mirrored", nil
}
