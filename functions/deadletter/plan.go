package deadletter

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
)

// A Filter chooses entries of the ledger; what is empty chooses all.
type Filter struct {
	IDs         []string
	States      []ledger.State
	Lane        string
	Account     string
	Code        fault.Code
	Fingerprint string
	// FailedBefore chooses what has last failed at that moment or before.
	FailedBefore time.Time
	// Limit is how many are chosen at most, those that failed longest ago; 0 is no limit.
	Limit int
}

// Chooses reports whether the filter, apart from its limit, chooses the entry.
func (f Filter) Chooses(e ledger.Entry) bool {
	return (len(f.IDs) == 0 || slices.Contains(f.IDs, e.ID)) &&
		(len(f.States) == 0 || slices.Contains(f.States, e.State)) &&
		(f.Lane == "" || f.Lane == e.Lane) &&
		(f.Account == "" || f.Account == e.AccountID) &&
		(f.Code == "" || f.Code == e.Code) &&
		(f.Fingerprint == "" || f.Fingerprint == e.Fingerprint) &&
		(f.FailedBefore.IsZero() || !e.LastFailedAt.After(f.FailedBefore))
}

// Choose returns the entries that the filter chooses, the one that failed longest ago first.
func (f Filter) Choose(entries []ledger.Entry) []ledger.Entry {
	chosen := f.chooseAll(entries)
	if f.Limit > 0 && len(chosen) > f.Limit {
		chosen = chosen[:f.Limit]
	}
	return chosen
}

func (f Filter) chooseAll(entries []ledger.Entry) []ledger.Entry {
	var chosen []ledger.Entry
	for _, e := range entries {
		if f.Chooses(e) {
			chosen = append(chosen, e)
		}
	}
	slices.SortFunc(chosen, func(a, b ledger.Entry) int {
		return cmp.Or(a.LastFailedAt.Compare(b.LastFailedAt), cmp.Compare(a.ID, b.ID))
	})
	return slices.CompactFunc(chosen, func(a, b ledger.Entry) bool { return a.ID == b.ID })
}

// A Reason says why a redrive passes an entry over.
type Reason string

// The reasons for passing over.
const (
	IsRetrying  Reason = "retrying"   // Pub/Sub will bring it back by itself
	IsRedriving Reason = "redriving"  // published again already, outcome open
	IsResolved  Reason = "resolved"   // done
	IsBroken    Reason = "broken"     // its document does not say how it stands
	HasNoTopic  Reason = "no_topic"   // a letter that could not be read: nobody knows where it came from
	IsBusy      Reason = "busy"       // another operation is about to publish it
	OverLimit   Reason = "over_limit" // the filter's limit is reached
)

// BusyFor is how long a letter stays busy that an operation was about to publish, and did not.
const BusyFor = claimFor

// Reasons returns every reason, in the order in which they are told.
func Reasons() []Reason {
	return []Reason{IsRetrying, IsRedriving, IsResolved, IsBroken, HasNoTopic, IsBusy, OverLimit}
}

// A Plan says which letters a redrive would publish, as a frozen list, and which it would pass over.
// What happens to a letter afterwards is [Redriver.Redrive]'s to see.
type Plan struct {
	Eligible   []string // ids, the one that failed longest ago first
	Topics     []string // of what is eligible, in the order of the alphabet
	PassedOver map[Reason][]string
}

// PlanRedrive sorts the entries that the filter chooses. The limit counts only what is eligible.
func PlanRedrive(f Filter, entries []ledger.Entry, now time.Time) Plan {
	return plan(f, entries, func(e ledger.Entry) Reason {
		reason := whyNot(e, now)
		if reason == "" && e.Topic == "" {
			reason = HasNoTopic
		}
		return reason
	})
}

// PlanDiscard says likewise which letters can be given up.
func PlanDiscard(f Filter, entries []ledger.Entry, now time.Time) Plan {
	return plan(f, entries, func(e ledger.Entry) Reason { return whyNot(e, now) })
}

func plan(f Filter, entries []ledger.Entry, whyNot func(ledger.Entry) Reason) Plan {
	p := Plan{PassedOver: map[Reason][]string{}}
	topics := map[string]bool{}
	for _, e := range f.chooseAll(entries) {
		reason := whyNot(e)
		if reason == "" && f.Limit > 0 && len(p.Eligible) >= f.Limit {
			reason = OverLimit
		}
		if reason == "" {
			p.Eligible = append(p.Eligible, e.ID)
			if e.Topic != "" {
				topics[e.Topic] = true
			}
		} else {
			p.PassedOver[reason] = append(p.PassedOver[reason], e.ID)
		}
	}
	p.Topics = slices.Sorted(maps.Keys(topics))
	return p
}

func whyNot(e ledger.Entry, now time.Time) Reason {
	switch {
	case e.Broken():
		return IsBroken
	case e.State == ledger.Retrying:
		return IsRetrying
	case e.State == ledger.Redriving:
		return IsRedriving
	case e.State != ledger.Dead:
		return IsResolved
	case e.ClaimedAfter(now.Add(-BusyFor)):
		return IsBusy
	}
	return ""
}
