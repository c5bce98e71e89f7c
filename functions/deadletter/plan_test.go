package deadletter_test

import (
	"slices"
	"testing"
	"time"

	"mailyard.internal/mailyard/functions/deadletter"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func letter(id string, minutesAgo int, edit func(*ledger.Entry)) ledger.Entry {
	e := ledger.Entry{
		ID: id, State: ledger.Dead, Consumer: "MessageRead", Topic: "gmail-message-read", Code: fault.Timeout, Fingerprint: "f1", LastFailedAt: noon.Add(-time.Duration(minutesAgo) * time.Minute),
		Subject: ledger.Subject{Lane: "message-read", AccountID: "a1"},
	}
	if edit != nil {
		edit(&e)
	}
	return e
}

func TestChoose(t *testing.T) {
	t.Parallel()
	entries := []ledger.Entry{
		letter("new", 1, nil),
		letter("old", 60, nil),
		letter("as-old", 60, nil),
		letter("added", 5, func(e *ledger.Entry) {
			e.Lane, e.AccountID, e.Code, e.Fingerprint = "message-added", "a2", fault.Unknown, "f2"
		}),
		letter("retrying", 5, func(e *ledger.Entry) { e.State = ledger.Retrying }),
	}
	for name, c := range map[string]struct {
		filter deadletter.Filter
		want   []string
	}{
		"everything":  {deadletter.Filter{}, []string{"as-old", "old", "added", "retrying", "new"}},
		"a limit":     {deadletter.Filter{Limit: 2}, []string{"as-old", "old"}},
		"ids":         {deadletter.Filter{IDs: []string{"new", "old", "none"}}, []string{"old", "new"}},
		"a state":     {deadletter.Filter{States: []ledger.State{ledger.Retrying}}, []string{"retrying"}},
		"a lane":      {deadletter.Filter{Lane: "message-added"}, []string{"added"}},
		"an account":  {deadletter.Filter{Account: "a2"}, []string{"added"}},
		"a code":      {deadletter.Filter{Code: fault.Unknown}, []string{"added"}},
		"a print":     {deadletter.Filter{Fingerprint: "f2"}, []string{"added"}},
		"an age":      {deadletter.Filter{FailedBefore: noon.Add(-5 * time.Minute)}, []string{"as-old", "old", "added", "retrying"}},
		"all at once": {deadletter.Filter{Lane: "message-read", Account: "a2"}, nil},
	} {
		var got []string
		for _, e := range c.filter.Choose(entries) {
			got = append(got, e.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestPlanRedrive(t *testing.T) {
	t.Parallel()
	claimed := func(at time.Time) func(*ledger.Entry) {
		return func(e *ledger.Entry) { e.Claim = ledger.Claim{Operation: "o", Token: "t", At: at} }
	}
	in := func(s ledger.State) func(*ledger.Entry) { return func(e *ledger.Entry) { e.State = s } }
	entries := []ledger.Entry{
		letter("dead", 1, nil),
		letter("older", 9, nil),
		letter("oldest", 10, nil),
		letter("retrying", 1, in(ledger.Retrying)),
		letter("redriving", 1, in(ledger.Redriving)),
		letter("resolved", 1, in(ledger.Resolved)),
		letter("unread", 1, func(e *ledger.Entry) { e.Topic = "" }),
		letter("broken", 1, func(e *ledger.Entry) { e.State = "undead" }),
		letter("busy", 1, claimed(noon.Add(-time.Minute))),
		letter("left", 20, claimed(noon.Add(-time.Hour))), // by an operation that died
	}
	p := deadletter.PlanRedrive(deadletter.Filter{Limit: 3}, entries, noon)
	if want := []string{"left", "oldest", "older"}; !slices.Equal(p.Eligible, want) {
		t.Errorf("eligible %v, want %v", p.Eligible, want)
	}
	for reason, want := range map[deadletter.Reason]string{
		deadletter.IsRetrying: "retrying", deadletter.IsRedriving: "redriving", deadletter.IsResolved: "resolved",
		deadletter.HasNoTopic: "unread", deadletter.IsBroken: "broken", deadletter.IsBusy: "busy", deadletter.OverLimit: "dead",
	} {
		if got := p.PassedOver[reason]; len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v, want %s", reason, got, want)
		}
	}
	if len(p.PassedOver) != len(deadletter.Reasons()) {
		t.Errorf("passed over %v", p.PassedOver)
	}
}
