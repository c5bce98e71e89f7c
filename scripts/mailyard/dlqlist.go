package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
)

// groupJSON is a group as programs read it.
type groupJSON struct {
	Fingerprint   string               `json:"fingerprint"`
	Lane          string               `json:"lane"`
	Consumer      string               `json:"consumer"`
	Code          string               `json:"code"`
	Error         string               `json:"error"` // with a # for each id and number
	Count         int                  `json:"count"`
	States        map[ledger.State]int `json:"states"`
	Accounts      int                  `json:"accounts"`
	FirstFailedAt *time.Time           `json:"firstFailedAt"`
	LastFailedAt  *time.Time           `json:"lastFailedAt"`
	Example       string               `json:"example"`
}

func groupOf(g ledger.Group) groupJSON {
	return groupJSON{
		Fingerprint: g.Fingerprint, Lane: g.Lane, Consumer: g.Consumer, Code: string(g.Code), Error: g.Error, Count: g.Count,
		States: g.States, Accounts: g.Accounts, FirstFailedAt: moment(g.First), LastFailedAt: moment(g.Last), Example: g.Example,
	}
}

func dlqListCommand(t *tool) *cobra.Command {
	var flags filterFlags
	var asJSON, asGroups, asEntries bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what is failing, dead or being redriven",
		Long: "Lists groups of one cause: a fingerprint is made of the function, the code, and the error without its\n" +
			"ids and numbers. With --fingerprint, --id or --entries it lists the single entries, and so does --json,\n" +
			"unless --groups is given.",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asGroups && asEntries {
				return misused("--groups and --entries are both given; leave one of them out")
			}
			filter, err := flags.filter(t)
			if err != nil {
				return err
			}
			if len(filter.States) == 0 && len(filter.IDs) == 0 && !flags.everyState {
				filter.States = ledger.Unresolved()
			}
			grouped := asGroups || !asEntries && !asJSON && flags.print == "" && len(flags.ids) == 0
			entries, err := t.entries(cmd.Context(), filter, asJSON && !grouped)
			if err != nil {
				return err
			}
			entries = filter.Choose(entries)
			switch {
			case grouped && asJSON:
				return t.writeJSON(each(ledger.Groups(entries), groupOf))
			case grouped:
				return t.writeGroups(ledger.Groups(entries))
			case asJSON:
				return t.writeJSON(each(entries, entryOf))
			}
			return t.writeEntries(entries)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringSliceVar(&flags.states, "state", nil, "in these states: retrying, dead, redriving, resolved, or all (default all but resolved)")
	cmd.Flags().BoolVar(&asGroups, "groups", false, "list groups of one cause, also as JSON")
	cmd.Flags().BoolVar(&asEntries, "entries", false, "list the single entries")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// each makes a list that is an empty one, and not null, where there is nothing.
func each[T, J any](items []T, of func(T) J) []J {
	list := make([]J, len(items))
	for i, item := range items {
		list[i] = of(item)
	}
	return list
}

func (t *tool) writeGroups(groups []ledger.Group) error {
	if len(groups) == 0 {
		return t.writeLine("0 entries")
	}
	rows := make([][]string, len(groups))
	for i, g := range groups {
		rows[i] = []string{
			g.Fingerprint, from(g.Lane, g.Consumer), string(g.Code), strconv.Itoa(g.Count),
			strconv.Itoa(g.States[ledger.Dead]), strconv.Itoa(g.Accounts),
			age(t.now().Sub(g.First)), age(t.now().Sub(g.Last)), g.Example, shorten(g.Error, 80),
		}
	}
	return t.writeTable([]string{"FINGERPRINT", "LANE", "CODE", "COUNT", "DEAD", "MAILBOXES", "FIRST", "LAST", "EXAMPLE", "ERROR"}, rows)
}

func (t *tool) writeEntries(entries []ledger.Entry) error {
	if len(entries) == 0 {
		return t.writeLine("0 entries")
	}
	rows := make([][]string, len(entries))
	for i, e := range entries {
		rows[i] = []string{
			e.ID, string(e.State), from(e.Lane, e.Consumer), string(e.Code), strconv.Itoa(e.Attempts), strconv.Itoa(e.Redrives),
			age(t.now().Sub(e.LastFailedAt)), shorten(e.Error, 80),
		}
	}
	return t.writeTable([]string{"ID", "STATE", "LANE", "CODE", "ATTEMPTS", "REDRIVES", "AGE", "ERROR"}, rows)
}

// from is where something failed: on its lane, or in the function that has none.
func from(lane, consumer string) string {
	if lane != "" {
		return lane
	}
	return consumer
}

// shorten cuts a text for a table.
func shorten(s string, bytes int) string {
	if len(s) <= bytes {
		return s
	}
	return fault.Cut(s, bytes) + "…"
}
