package ledger_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }

var subject = ledger.Subject{EventID: "a1.message-added.m1.110", Lane: "message-added", AccountID: "a1", MessageID: "m1", HistoryID: 110}

// failure is one failed run; each has its own name.
func failure(run string, minute int, operation string) ledger.Failure {
	return ledger.Failure{
		Run: run, Consumer: "MessageAdded", Topic: "gmail-message-added", Subject: subject,
		Data: []byte("{}"), Attributes: map[string]string{"ce-id": subject.EventID},
		Err: fault.Transient(fault.GmailUnavailable, errors.New("503 from Gmail")), At: at(minute),
		Revision: "message-added-00007", Trace: "00-1", Operation: operation,
	}
}

func fresh() ledger.Entry { return ledger.Entry{ID: subject.EventID} }

func retrying() ledger.Entry { return fresh().Failed(failure("r1", 0, "")) }

func dead() ledger.Entry { return retrying().Buried(at(1)) }

func redriving() ledger.Entry {
	return redriven(dead().Claimed(ledger.Claim{Operation: "op1", Token: "x", At: at(2)}))
}

// redriven records that the letter was published, as who holds its claim does.
func redriven(e ledger.Entry) ledger.Entry {
	e, _ = e.Redriven(e.Claim)
	return e
}

func resolved() ledger.Entry { return retrying().Settled(at(5)) }

func TestFirstFailure(t *testing.T) {
	t.Parallel()
	want := ledger.Entry{
		ID: subject.EventID, State: ledger.Retrying, Consumer: "MessageAdded", Topic: "gmail-message-added", Subject: subject,
		Data: []byte("{}"), Attributes: map[string]string{"ce-id": subject.EventID},
		Attempts: 1, Code: fault.GmailUnavailable, Error: "503 from Gmail",
		Fingerprint:   fault.Fingerprint("MessageAdded", fault.GmailUnavailable, "503 from Gmail"),
		FirstFailedAt: at(0), LastFailedAt: at(0), Revision: "message-added-00007", Trace: "00-1",
		Runs: []ledger.Run{{ID: "r1", At: at(0), Code: fault.GmailUnavailable, Error: "503 from Gmail", Revision: "message-added-00007"}},
	}
	if d := cmp.Diff(want, retrying()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestTransitions(t *testing.T) {
	t.Parallel()
	claim := ledger.Claim{Operation: "op2", Token: "y", At: at(9)}
	for _, c := range []struct {
		name     string
		entry    ledger.Entry
		state    ledger.State
		attempts int
		first    int // minute of the first failure
	}{
		{"a second failure", retrying().Failed(failure("r2", 3, "")), ledger.Retrying, 2, 0},
		{"the same run again", retrying().Failed(failure("r1", 3, "")), ledger.Retrying, 1, 0},
		{"the same run again, after another", retrying().Failed(failure("r2", 3, "")).Failed(failure("r1", 0, "")), ledger.Retrying, 2, 0},
		{"given up", dead(), ledger.Dead, 1, 0},
		{"a copy that fails after it was given up", dead().Failed(failure("r2", 3, "")), ledger.Dead, 2, 0},
		{"redriven", redriving(), ledger.Redriving, 0, 0},
		{"a redriven one fails", redriving().Failed(failure("r2", 3, "op1")), ledger.Retrying, 1, 0},
		{"a redriven one fails twice", redriving().Failed(failure("r2", 3, "op1")).Failed(failure("r3", 4, "op1")), ledger.Retrying, 2, 0},
		{"a redriven one fails before its redrive is recorded", dead().Failed(failure("r2", 3, "op1")), ledger.Retrying, 1, 3},
		{"a redriven one is given up", redriving().Failed(failure("r2", 3, "op1")).Buried(at(4)), ledger.Dead, 1, 0},
		{"a copy of it fails after that", redriving().Failed(failure("r2", 3, "op1")).Buried(at(4)).Failed(failure("r3", 5, "op1")), ledger.Dead, 2, 0},
		{"redriven anew, it fails", redriving().Failed(failure("r2", 3, "op1")).Buried(at(4)).Failed(failure("r3", 5, "op2")), ledger.Retrying, 1, 5},
		{"redriven anew, it fails twice", redriving().Failed(failure("r2", 3, "op1")).Buried(at(4)).Failed(failure("r3", 5, "op2")).Failed(failure("r4", 6, "op2")), ledger.Retrying, 2, 5},
		{"an entry that is returned goes on counting", retrying().Failed(failure("r2", 3, "tick-1")).Failed(failure("r3", 4, "tick-1")), ledger.Retrying, 3, 0},
		{"done", resolved(), ledger.Resolved, 1, 0},
		{"done, and failing again", resolved().Failed(failure("r2", 6, "")), ledger.Retrying, 1, 6},
		{"discarded when dead", dead().Settled(at(5)), ledger.Resolved, 1, 0},
		{"recorded as redriven when it has failed already", redriven(dead().Claimed(claim).Failed(failure("r2", 10, "op2"))), ledger.Retrying, 1, 10},
		{"recorded as redriven when it has been given up again already", redriven(dead().Failed(failure("r2", 10, "op2")).Buried(at(11)).Claimed(claim)), ledger.Dead, 1, 10},
		{"recorded as redriven when it is done already", func() ledger.Entry {
			e := dead().Claimed(claim).Settled(at(10))
			e.Claim = claim
			return redriven(e)
		}(), ledger.Resolved, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := c.entry
			if e.State != c.state || e.Attempts != c.attempts || !e.FirstFailedAt.Equal(at(c.first)) {
				t.Errorf("%s after %d attempts since %v, want %s after %d since %v",
					e.State, e.Attempts, e.FirstFailedAt, c.state, c.attempts, at(c.first))
			}
			if (e.State == ledger.Resolved) == e.ExpireAt.IsZero() {
				t.Errorf("it is %s, to expire at %v", e.State, e.ExpireAt)
			}
			if e.Unresolved() != (c.state != ledger.Resolved) {
				t.Errorf("unresolved is %t", e.Unresolved())
			}
		})
	}
}

func TestSpent(t *testing.T) {
	t.Parallel()
	e := fresh()
	for run := 1; run <= 4; run++ {
		e = e.Failed(failure(fmt.Sprint(run), run, ""))
		if got, want := e.Spent(3), run == 4; got != want {
			t.Errorf("after run %d of 1 + 3, spent is %t", run, got)
		}
	}
	if !retrying().Spent(0) {
		t.Error("a handler without retries has more than one run")
	}
	if fresh().Spent(0) || redriving().Spent(0) {
		t.Error("spent without a run")
	}
}

func TestFailedRedactsAndKeepsTheLast(t *testing.T) {
	t.Parallel()
	f := failure("r2", 3, "")
	f.Err = fault.Permanent(fault.NotPermitted, errors.New("kim@example.com\nmay not"))
	f.Data, f.Revision = []byte("{2}"), "message-added-00008"
	e := retrying().Failed(f)
	if e.Error != "<address> may not" || e.Code != fault.NotPermitted || e.Revision != f.Revision || string(e.Data) != "{2}" {
		t.Errorf("the entry is %+v", e)
	}
	if !e.LastFailedAt.Equal(at(3)) {
		t.Errorf("last failed at %v", e.LastFailedAt)
	}
}

func TestDataTooLargeIsLeftOut(t *testing.T) {
	t.Parallel()
	for size, omitted := range map[int]bool{0: false, ledger.MaxData: false, ledger.MaxData + 1: true} {
		f := failure("r1", 0, "")
		f.Data = bytes.Repeat([]byte("x"), size)
		e := fresh().Failed(f)
		if e.DataOmitted != omitted || omitted != (e.Data == nil) {
			t.Errorf("of %d bytes %d are kept, omitted is %t", size, len(e.Data), e.DataOmitted)
		}
	}
}

func TestSettled(t *testing.T) {
	t.Parallel()
	e := dead().Claimed(ledger.Claim{Operation: "op1", Token: "x", At: at(2)}).Settled(at(5))
	if !e.ExpireAt.Equal(at(5).Add(7*24*time.Hour)) || !e.ResolvedAt().Equal(at(5)) || e.Claim != (ledger.Claim{}) {
		t.Errorf("resolved at %v, to expire at %v, claimed by %+v", e.ResolvedAt(), e.ExpireAt, e.Claim)
	}
	if !dead().ResolvedAt().IsZero() {
		t.Error("an entry that is dead was resolved at some time")
	}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	e := dead().Claimed(ledger.Claim{Operation: "op1", Token: "x", At: at(2)})
	if !e.ClaimedAfter(at(1)) || e.ClaimedAfter(at(2)) || dead().ClaimedAfter(at(-100)) {
		t.Error("the claim is not of the moment it was made")
	}
	if done := redriven(e); done.Claim != (ledger.Claim{}) || done.Redrives != 1 {
		t.Errorf("after the redrive it is claimed by %+v and was redriven %d times", done.Claim, done.Redrives)
	}
}

// A redrive counts as one, and makes the letters before it old, also where it has failed, was given up or
// is done before it is recorded, and where it is recorded twice.
func TestEveryRedriveIsCounted(t *testing.T) {
	t.Parallel()
	claim := ledger.Claim{Operation: "op1", Token: "x", At: at(2)}
	record := func(e ledger.Entry) ledger.Entry { e, _ = e.Redriven(claim); return e }
	failed := dead().Claimed(claim).Failed(failure("r2", 3, "op1"))
	buried := failed.BurialClaimed("y", at(3)).Buried(at(3))
	done := dead().Claimed(claim).Settled(at(3))
	for name, e := range map[string]ledger.Entry{
		"in order": record(dead().Claimed(claim)), "twice": record(record(dead().Claimed(claim))),
		"failed before, not recorded": failed, "failed before": record(failed), "given up before": record(buried),
		"given up before, not recorded": buried, "done before": record(done), "done before, twice": record(record(done)),
	} {
		if e.Redrives != 1 || !e.RedrivenAt.Equal(at(2)) || e.Operation != "op1" {
			t.Errorf("%s: redriven %d times, by %q at %v", name, e.Redrives, e.Operation, e.RedrivenAt)
		}
	}
	if _, ok := dead().Redriven(claim); ok {
		t.Error("a redrive is recorded by one who does not hold the claim")
	}
}

// A copy that fails after its event was given up does not change what people were told of.
func TestADeadEntryStaysWhatItDiedOf(t *testing.T) {
	t.Parallel()
	f := failure("r9", 9, "")
	f.Err = fault.Permanent(fault.NotPermitted, errors.New("another text"))
	e := dead().Failed(f)
	if want := dead(); e.State != ledger.Dead || e.Code != want.Code || e.Fingerprint != want.Fingerprint || e.Error != want.Error || !e.HealAt.Equal(want.HealAt) {
		t.Errorf("it is now %+v", e)
	}
	if len(e.Runs) != 2 || e.Runs[1].Code != fault.NotPermitted || e.Attempts != 2 {
		t.Errorf("the run is not kept: %+v", e.Runs)
	}
}

// A transition leaves the entry it was made from as it was: a store may make it again.
func TestTransitionsArePure(t *testing.T) {
	t.Parallel()
	e, same := dead(), dead()
	letter := ledger.FromLetter(e.ID, e.Topic, e.Consumer, subject, e.Data, e.Letter(), at(3))
	e.Failed(failure("r9", 9, "op9"))
	e.Settled(at(9))
	e.Claimed(ledger.Claim{Token: "z"})
	e.Redriven(e.Claim)
	e.Received(letter)
	e.Letter()["ce-id"] = "changed"
	if d := cmp.Diff(same, e); d != "" {
		t.Errorf("(-before +after):\n%s", d)
	}
}

// However the copies of one event interleave, and however often a write is made again whose reply
// was lost, the attempts are the runs.
func TestAttemptsAreTheRuns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		copies, runs := rapid.IntRange(1, 4).Draw(t, "copies"), rapid.IntRange(1, 5).Draw(t, "runs of each")
		var writes []ledger.Failure
		for c := range copies {
			for r := range runs {
				f := failure(fmt.Sprintf("copy%d-run%d", c, r), r, "")
				for range rapid.IntRange(1, 3).Draw(t, "writes") {
					writes = append(writes, f)
				}
			}
		}
		writes = rapid.Permutation(writes).Draw(t, "order")
		buried := rapid.IntRange(0, len(writes)).Draw(t, "given up after")
		e, seen := fresh(), []string{}
		for i, f := range writes {
			if i == buried && e.State == ledger.Retrying {
				e = e.Buried(at(99))
			}
			e = e.Failed(f)
			if !slices.Contains(seen, f.Run) {
				seen = append(seen, f.Run)
			}
			if e.Attempts != len(seen) {
				t.Fatalf("%d attempts after the runs %v", e.Attempts, seen)
			}
			if i >= buried && buried > 0 && e.State != ledger.Dead {
				t.Fatalf("a dead entry became %s without a redrive", e.State)
			}
		}
	})
}

// Whatever happens, a redrive starts the attempts at 0 once, and an entry's fields fit its state.
func TestAnyStory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e, restarts, run := fresh(), map[string]int{}, 0
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			run++
			before := e
			operation := rapid.SampledFrom([]string{"", "op1", "op2"}).Draw(t, "operation")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1, 2:
				e = e.Failed(failure(fmt.Sprint("r", run), run, operation))
				if before.State == ledger.Dead && e.State == ledger.Retrying {
					restarts[operation]++
				}
			case 3:
				if e.State == ledger.Retrying {
					e = e.Buried(at(run))
				}
			case 4:
				if e.State == ledger.Dead && operation != "" && restarts[operation] == 0 {
					e = redriven(e.Claimed(ledger.Claim{Operation: operation, Token: "x", At: at(run)}))
				}
			case 5:
				if e.State != "" && rapid.Bool().Draw(t, "done") {
					e = e.Settled(at(run))
				}
			}
			switch {
			case restarts[""] > 0:
				t.Fatal("a dead entry came back to life without a redrive")
			case (e.State == ledger.Resolved) == e.ExpireAt.IsZero():
				t.Fatalf("it is %s and expires at %v", e.State, e.ExpireAt)
			case e.State == ledger.Dead && e.DeadAt.IsZero():
				t.Fatal("it is dead since never")
			case e.State == ledger.Retrying && (e.Attempts < 1 || e.FirstFailedAt.After(e.LastFailedAt)):
				t.Fatalf("it is retrying after %d attempts, from %v to %v", e.Attempts, e.FirstFailedAt, e.LastFailedAt)
			}
		}
	})
}
