package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mailyard.internal/mailyard/functions/deadletter"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
)

// A memory holds ledger and records; the emulator holds them in the tests of the command.
type memory struct {
	mu      sync.Mutex
	entries map[string]ledger.Entry
	records map[string]ledger.OperationRecord
	saves   int
	fails   func(id string) error
	skew    time.Duration
}

func (m *memory) Change(_ context.Context, id string, next func(ledger.Entry) (ledger.Entry, bool)) (ledger.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails != nil {
		if err := m.fails(id); err != nil {
			return ledger.Entry{}, err
		}
	}
	e, write := next(m.entries[id])
	if !write {
		return m.entries[id], nil
	}
	m.entries[id] = e
	return e, nil
}

func (m *memory) SaveOperation(_ context.Context, r ledger.OperationRecord) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records[r.ID] = r
	m.saves++
	return nil
}

func (m *memory) Skew(context.Context) (time.Duration, error) { return m.skew, nil }

func (m *memory) EntriesByID(context.Context, []string) (map[string]ledger.Entry, error) {
	return nil, nil
}
func (m *memory) Unlinked(context.Context, string) (bool, error)                      { return false, nil }
func (m *memory) PublishRaw(context.Context, string, []byte, map[string]string) error { return nil }
func (m *memory) Pull(context.Context, string, int) ([]ledger.Held, error)            { return nil, nil }
func (m *memory) Acknowledge(context.Context, string, []ledger.Held) error            { return nil }
func (m *memory) GiveBack(context.Context, string, []ledger.Held) error               { return nil }

func newOperator(letters int) (*memory, *deadletter.Operator, deadletter.Plan) {
	m := &memory{entries: map[string]ledger.Entry{}, records: map[string]ledger.OperationRecord{}}
	var plan deadletter.Plan
	for i := range letters {
		e := letter(fmt.Sprintf("m%05d", i), 1, nil)
		m.entries[e.ID] = e
		plan.Eligible = append(plan.Eligible, e.ID)
	}
	now := func() time.Time { return noon }
	return m, deadletter.NewOperator(deadletter.OperatorPorts{
		Store: m, Redriver: deadletter.NewRedriver(m, m, now), Records: m, Now: now,
		Inspector: deadletter.NewInspector(m, m, m, nil, func(lane.Route, ledger.Held) ledger.Entry { return ledger.Entry{} }),
	}), plan
}

// An operation on more letters than a record holds has several records, each whole, each recorded before
// its first letter.
func TestLongOperations(t *testing.T) {
	t.Parallel()
	const letters = 2*ledger.MaxOutcomes + 10
	m, o, plan := newOperator(letters)
	done := 0
	report, err := o.Redrive(t.Context(), plan, deadletter.Order{Who: "kim", Reason: "r", Done: func() { done++ }})
	if err != nil || report.Err != nil || report.Left != 0 || report.Results[deadletter.Redriven] != letters || done != letters {
		t.Fatalf("%+v, %v, %d done", report, err, done)
	}
	var sizes []int
	seen := map[string]string{}
	for _, id := range []string{report.Operation, report.Operation + ".2", report.Operation + ".3"} {
		r := m.records[id]
		sizes = append(sizes, len(r.Outcomes))
		for letter, outcome := range r.Outcomes {
			seen[letter] += outcome
		}
		if r.Who != "kim" || r.FinishedAt.IsZero() || r.Deed != ledger.DeedRedrive || r.Counts["letters"] != len(r.Outcomes) || r.Counts["redriven"] != len(r.Outcomes) {
			t.Errorf("the record %s is %+v", id, r.Counts)
		}
	}
	if !slices.Equal(sizes, []int{ledger.MaxOutcomes, ledger.MaxOutcomes, 10}) || len(m.records) != 3 || len(seen) != letters {
		t.Errorf("%d records, of %v letters", len(m.records), sizes)
	}
	for letter, outcome := range seen {
		if outcome != "redriven" || m.entries[letter].State != ledger.Redriving {
			t.Fatalf("%s: %s on record, %s in the ledger", letter, outcome, m.entries[letter].State)
		}
	}
}

// What fails early is told in the end, and failures in a row end an operation for good, also where a
// letter that was under way then succeeds.
func TestFailuresOfAnOperation(t *testing.T) {
	t.Parallel()
	m, o, plan := newOperator(ledger.MaxOutcomes + 10)
	broken := fault.Transient(fault.FirestoreUnavailable, errors.New("down"))
	m.fails = func(id string) error {
		if id == "m00003" {
			return broken
		}
		return nil
	}
	report, err := o.Discard(t.Context(), plan, deadletter.Order{})
	if err != nil || !errors.Is(report.Err, broken) || report.Hopeless || report.Results[deadletter.Failed] != 1 || report.Left != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if outcome := m.records[report.Operation].Outcomes["m00003"]; outcome != "failed: firestore_unavailable" {
		t.Errorf("on record is %q", outcome)
	}

	m, o, plan = newOperator(ledger.MaxOutcomes + 10)
	failing := 0
	m.fails = func(string) error {
		if failing++; failing > 200 && failing <= 215 {
			return broken
		}
		return nil
	}
	report, err = o.Discard(t.Context(), plan, deadletter.Order{})
	if err != nil || !report.Hopeless || report.Left < 3000 || len(m.records) != 1 {
		t.Errorf("%+v, %v, %d records", report, err, len(m.records))
	}
	pending := 0
	for _, outcome := range m.records[report.Operation].Outcomes {
		if outcome == ledger.Pending {
			pending++
		}
	}
	if want := report.Left - 10; pending != want {
		t.Errorf("%d letters are on record as pending, want %d", pending, want)
	}
}

// A clock that is off makes claims that keep nobody away: then nothing is begun.
func TestWrongClock(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{7 * time.Minute, -2 * time.Minute} {
		m, o, plan := newOperator(3)
		m.skew = skew
		_, err := o.Redrive(t.Context(), plan, deadletter.Order{})
		if err == nil || !strings.Contains(err.Error(), "set the clock") || m.saves != 0 || m.entries["m00001"].Claim != (ledger.Claim{}) {
			t.Errorf("%v off: %v", skew, err)
		}
	}
}
