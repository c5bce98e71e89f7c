package ledger_test

import (
	"errors"
	"testing"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
)

// A letter that died of a dependency is redriven by itself five times, each time later, and then waits
// for an operator, whose redrive gives it as many times again.
func TestHealsAFewTimes(t *testing.T) {
	t.Parallel()
	e := retrying().Buried(at(0))
	now := at(0)
	for i, pause := range []time.Duration{10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 72 * time.Hour} {
		if want := now.Add(pause); !e.HealAt.Equal(want) || e.GivenUp() {
			t.Fatalf("time %d: due at %v, want %v; given up is %t", i+1, e.HealAt, want, e.GivenUp())
		}
		now = e.HealAt
		e = redriven(e.HealClaimed(ledger.Claim{Operation: "heal-" + string(rune('a'+i)), Token: "t", At: now}))
		if e.State != ledger.Redriving || e.HealsItself() || !e.RedrivenAt.Equal(now) {
			t.Fatalf("time %d: %+v", i+1, e)
		}
		now = now.Add(time.Minute)
		e = e.Failed(failure(string(rune('p'+i)), 0, e.Operation)).Buried(now)
	}
	if e.HealsItself() || !e.GivenUp() || e.Redrives != 5 {
		t.Fatalf("after five times: %+v", e)
	}
	e = redriven(e.RedriveClaimed(ledger.Claim{Operation: "redrive-1", Token: "t", At: now}))
	if e = e.Failed(failure("z", 0, "redrive-1")).Buried(now); !e.HealsItself() || e.GivenUp() {
		t.Errorf("after an operator's redrive: %+v", e)
	}
}

func TestOnlyADependencyHeals(t *testing.T) {
	t.Parallel()
	for _, code := range []fault.Code{fault.Malformed, fault.NotPermitted, fault.Panicked, fault.Unknown, fault.Conflict, ledger.Unanswered} {
		f := failure("r1", 0, "")
		f.Err = fault.Transient(code, errors.New("x"))
		if e := fresh().Failed(f).Buried(at(1)); e.HealsItself() || e.GivenUp() {
			t.Errorf("%s heals", code)
		}
	}
	f := failure("r1", 0, "")
	f.Data = make([]byte, ledger.MaxData+1)
	if e := fresh().Failed(f).Buried(at(1)); e.HealsItself() {
		t.Error("a letter whose data the ledger does not hold heals")
	}
	for name, e := range map[string]ledger.Entry{
		"resolved": dead().Settled(at(5)), "discarded": dead().Discard("o", at(5)), "failing again": dead().Failed(failure("r9", 9, "redrive-1")),
	} {
		if e.HealsItself() {
			t.Errorf("one that is %s heals", name)
		}
	}
	// Also a letter of which the ledger heard from the monitor first.
	letter := ledger.FromLetter("x", "gmail-message-added", "MessageAdded", subject, nil, dead().Letter(), at(3))
	if e := fresh().Received(letter); !e.HealAt.Equal(at(13)) {
		t.Errorf("a received letter heals at %v", e.HealAt)
	}
}

// A letter is closed when what it is about was done, discarded or published again since, and only then.
func TestCloses(t *testing.T) {
	t.Parallel()
	letter := func(e ledger.Entry, minute int) ledger.Entry {
		return ledger.FromLetter(e.ID, e.Topic, e.Consumer, e.Subject, e.Data, e.Letter(), at(minute))
	}
	omitted := redriving()
	omitted.Data, omitted.DataOmitted = nil, true
	ahead := redriven(dead().Claimed(ledger.Claim{Operation: "op1", Token: "x", At: at(6)})).Failed(failure("r2", 5, "op1")).Buried(at(5))
	again := redriving().Failed(failure("r2", 4, "op1")).Buried(at(5))
	for _, c := range []struct {
		name      string
		entry     ledger.Entry
		letter    ledger.Entry
		published int
		closed    bool
	}{
		{"redriven by one whose clock is ahead, and dead again at once: the new letter", ahead, letter(ahead, 5), 5, false},
		{"redriven by one whose clock is ahead, and dead again at once: the old letter", ahead, letter(dead(), 1), 1, true},
		{"redriving, and the letter alone holds the data", omitted, letter(omitted, 1), 1, false},
		{"done, and the letter alone held the data", omitted.Settled(at(9)), letter(omitted, 1), 1, true},
		{"open", dead(), letter(dead(), 1), 1, false},
		{"not recorded as dead yet", retrying(), letter(dead(), 1), 1, false},
		{"done since", dead().Settled(at(5)), letter(dead(), 1), 1, true},
		{"discarded since", dead().Discard("op", at(5)), letter(dead(), 1), 1, true},
		{"redriving", redriving(), letter(dead(), 1), 1, true},
		{"redriven, and dead again: the old letter", again, letter(dead(), 1), 1, true},
		{"redriven, and dead again: the new letter", again, letter(again, 5), 5, false},
		{"done, and dead again, which the ledger does not know yet", dead().Settled(at(5)),
			letter(retrying().Failed(failure("r7", 7, "")), 8), 8, false},
	} {
		if got := c.entry.Closes(c.letter, at(c.published)); got != c.closed {
			t.Errorf("%s: closed is %t, want %t", c.name, got, c.closed)
		}
	}
}

func TestRunsAreKept(t *testing.T) {
	t.Parallel()
	e := fresh()
	for i := range 30 {
		f := failure(string(rune('A'+i)), i, "")
		f.Revision = string(rune('A' + i))
		e = e.Failed(f)
	}
	if n := len(e.Runs); n != 20 || e.Attempts != 30 {
		t.Fatalf("%d runs are kept of %d", n, e.Attempts)
	}
	if first, last := e.Runs[0], e.Runs[19]; first.Revision != "K" || last.Revision != "^" || !last.At.Equal(at(29)) || last.Error != "503 from Gmail" {
		t.Errorf("kept from %+v to %+v", first, last)
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	of := func(id, account, text string, minute int, end func(ledger.Entry) ledger.Entry) ledger.Entry {
		f := failure("r", minute, "")
		f.Subject.AccountID, f.Err = account, fault.Transient(fault.GmailUnavailable, errors.New(text))
		return end(ledger.Entry{ID: id}.Failed(f))
	}
	bury := func(e ledger.Entry) ledger.Entry { return e.Buried(at(9)) }
	stay := func(e ledger.Entry) ledger.Entry { return e }
	groups := ledger.Groups([]ledger.Entry{
		of("e1", "a1", "message m17 answered 503", 1, bury), of("e2", "a2", "message m4 answered 503", 7, stay),
		of("e3", "a1", "message m5 answered 503", 3, bury), of("e4", "", "connection refused", 2, bury),
	})
	if len(groups) != 2 {
		t.Fatalf("%d groups: %+v", len(groups), groups)
	}
	g := groups[0]
	if g.Count != 3 || g.Accounts != 2 || g.States[ledger.Dead] != 2 || g.States[ledger.Retrying] != 1 || g.Example != "e2" ||
		!g.First.Equal(at(1)) || !g.Last.Equal(at(7)) || g.Error != "message # answered #" || g.Lane != "message-added" {
		t.Errorf("the group is %+v", g)
	}
	if groups[1].Count != 1 || groups[1].Accounts != 0 || groups[1].Fingerprint == g.Fingerprint {
		t.Errorf("the other is %+v", groups[1])
	}
	if none := ledger.Groups(nil); len(none) != 0 {
		t.Errorf("of nothing there are %v", none)
	}
}
