package ledger

import (
	"cmp"
	"slices"
	"time"

	"mailyard.internal/mailyard/shared/fault"
)

// A Group is what has one fingerprint: one consumer, one code, and one error but for its ids and numbers.
type Group struct {
	Fingerprint string
	Consumer    string
	Lane        string // empty where the consumer is no lane's
	Code        fault.Code
	Error       string // with a # for each id and number
	Count       int
	States      map[State]int
	Accounts    int       // mailboxes touched
	First, Last time.Time // failures
	Example     string    // the id of the entry that failed last
}

// Groups sorts entries by fingerprint, the largest group first.
func Groups(entries []Entry) []Group {
	groups := map[string]*Group{}
	accounts := map[string]map[string]bool{}
	for _, e := range entries {
		g := groups[e.Fingerprint]
		if g == nil {
			g = &Group{
				Fingerprint: e.Fingerprint, Consumer: e.Consumer, Lane: e.Lane, Code: e.Code,
				Error: fault.Pattern(e.Error), States: map[State]int{}, First: e.FirstFailedAt,
			}
			groups[e.Fingerprint], accounts[e.Fingerprint] = g, map[string]bool{}
		}
		g.Count++
		g.States[e.State]++
		if e.AccountID != "" {
			accounts[e.Fingerprint][e.AccountID] = true
		}
		if e.FirstFailedAt.Before(g.First) {
			g.First = e.FirstFailedAt
		}
		if g.Example == "" || e.LastFailedAt.After(g.Last) {
			g.Last, g.Example = e.LastFailedAt, e.ID
		}
	}
	sorted := make([]Group, 0, len(groups))
	for fingerprint, g := range groups {
		g.Accounts = len(accounts[fingerprint])
		sorted = append(sorted, *g)
	}
	slices.SortFunc(sorted, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return sorted
}
