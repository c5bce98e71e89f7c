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
)

func deadLetterCommand(t *tool) *cobra.Command {
	return group("dlq", "See what has failed, and bring dead letters back",
		dlqListCommand(t), dlqShowCommand(t), dlqPlanCommand(t), dlqRedriveCommand(t),
		dlqEditCommand(t), dlqDiscardCommand(t), dlqLogCommand(t))
}

// filterFlags are the flags that choose entries.
type filterFlags struct {
	ids                        []string
	lane, account, code, print string
	olderThan                  time.Duration
	limit                      int
	states                     []string
	everyState                 bool
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
var states = append(ledger.Unresolved(), ledger.Resolved)

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
		if word == "all" { // also those of entries that are broken
			f.everyState = true
			continue
		}
		if !isState(state) {
			return filter, misused("--state %q is no state; write one of retrying, dead, redriving, resolved, all", word)
		}
		filter.States = append(filter.States, state)
	}
	if f.everyState {
		filter.States = nil
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

// given says which filters were given, by name, for the record of an operation, whose outcomes name the
// ids.
func (f *filterFlags) given() map[string]string {
	given := map[string]string{}
	for name, value := range map[string]string{
		"lane": f.lane, "account": f.account, "code": f.code, "fingerprint": f.print,
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
	stored := firestoredb.EntryFilter{
		Lane: f.Lane, Account: f.Account, Code: string(f.Code), Fingerprint: f.Fingerprint, States: f.States, WithoutData: !withData,
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
