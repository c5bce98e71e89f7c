package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mailyard.internal/mailyard/functions/deadletter"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
)

// programEnv makes the test binary the program itself, so that it can be killed.
const programEnv = "MAILYARD_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, surroundings{lookup: os.LookupEnv, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, now: time.Now, who: "tester"}, os.Args[1:]))
}

// program starts the program as a process of its own.
func (p *prog) program(args ...string) (*exec.Cmd, *bytes.Buffer) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), programEnv+"=1")
	for name, value := range p.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	return cmd, &out
}

// thousand puts a thousand letters of three causes into the ledger.
func thousand(p *prog) []string {
	p.t.Helper()
	ids := make([]string, 1000)
	slots := make(chan struct{}, 16)
	var wait sync.WaitGroup
	for i := range ids {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			ids[i] = p.letter(fmt.Sprintf("m%d", i), 7, func(e *ledger.Entry) {
				e.AccountID = fmt.Sprintf("acc%d", i%7)
				switch {
				case i < 600:
				case i < 900:
					e.Code, e.Error = fault.Timeout, fmt.Sprintf("message m%d took 30 s", i)
				default:
					e.Code, e.Error = fault.NotPermitted, "insufficient scope"
				}
				e.Fingerprint = fault.Fingerprint(e.Consumer, e.Code, e.Error)
			})
		})
	}
	wait.Wait()
	return ids
}

// once fails the test unless each of the letters was published exactly once.
func once(t *testing.T, published []string, ids []string) {
	t.Helper()
	times := map[string]int{}
	for _, id := range published {
		times[id]++
	}
	for _, id := range ids {
		if times[id] != 1 {
			t.Errorf("%s was published %d times", id, times[id])
		}
	}
	if len(times) != len(ids) {
		t.Errorf("%d letters were published, of %d", len(times), len(ids))
	}
}

func (p *prog) published(tap string) []string {
	p.t.Helper()
	var ids []string
	for _, m := range p.Pull(tap) {
		ids = append(ids, m.Attributes["ce-id"])
	}
	return ids
}

// A thousand letters in three groups: the plan is right, and the rate is kept. It does not run beside
// other tests of this package, which would have it measure them.
func TestRedriveKeepsTheRate(t *testing.T) {
	p := newProg(t)
	ids := thousand(p)
	groups := read[[]groupJSON](p, "dlq", "list", "--groups")
	if len(groups) != 3 || groups[0].Count != 600 || groups[1].Count != 300 || groups[2].Count != 100 || groups[0].Accounts != 7 ||
		groups[1].Error != "message # took # s" {
		t.Fatalf("the groups are %+v", groups)
	}
	if r := p.run(0, "dlq", "list"); strings.Count(r.stdout, "\n") != 4 || !strings.Contains(r.stdout, groups[1].Fingerprint) {
		t.Errorf("the table is %s", r.stdout)
	}
	if letters := read[[]entryJSON](p, "dlq", "list", "--fingerprint", groups[2].Fingerprint); len(letters) != 100 {
		t.Errorf("the third group has %d letters", len(letters))
	}
	for fingerprint, want := range map[string]int{groups[0].Fingerprint: 600, groups[1].Fingerprint: 300, groups[2].Fingerprint: 100} {
		if plan := read[planJSON](p, "dlq", "plan", "--fingerprint", fingerprint); plan.Eligible != want {
			t.Errorf("the plan is %+v, want %d", plan, want)
		}
	}
	if plan := read[planJSON](p, "dlq", "plan", "--rate", "200"); plan.Eligible != 1000 {
		t.Errorf("the plan is %+v", plan)
	}
	tap := p.Tap("gmail-message-read")
	r := p.run(0, "dlq", "redrive", "--yes", "--rate", "200", "--json")
	if o := decode[outcomeJSON](t, r.stdout); o.Results[deadletter.Redriven] != 1000 || o.Left != 0 {
		t.Errorf("the outcome is %+v", o)
	}
	var times []time.Time
	var published []string
	for _, m := range p.Pull(tap) {
		times = append(times, m.PublishTime.AsTime())
		published = append(published, m.Attributes["ce-id"])
	}
	once(t, published, ids)
	slices.SortFunc(times, time.Time.Compare)
	took := times[len(times)-1].Sub(times[0])
	perSecond := float64(len(times)-1) / took.Seconds()
	// A machine that is busy with other tests may not be able to do 200 a second: what it can is measured
	// with the same letters and no limit to speak of. make bench holds the rate alone.
	for _, id := range ids {
		if _, err := p.DB.Change(t.Context(), id, func(e ledger.Entry) (ledger.Entry, bool) { return e.Buried(p.Clock.Now()), true }); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	p.run(0, "dlq", "redrive", "--yes", "--rate", "10000")
	can := float64(len(ids)) / time.Since(began).Seconds()
	t.Logf("%.1f a second, where %.0f can be done", perSecond, can)
	if perSecond < min(180, 0.7*can) || perSecond > 220 {
		t.Errorf("%.1f were published a second, want 200 within 10 %%, where %.0f can be done", perSecond, can)
	}
	// Everything an operator does is on record.
	operations := read[[]operationJSON](p, "dlq", "log")
	if len(operations) != 2 {
		t.Fatalf("the log is %+v", operations)
	}
	if operations = operations[1:]; operations[0].Counts["redriven"] != 1000 || operations[0].Counts["letters"] != 1000 || operations[0].FinishedAt == nil || operations[0].Who != "tester" {
		t.Fatalf("the log is %+v", operations)
	}
	one := read[operationJSON](p, "dlq", "log", operations[0].ID)
	for _, id := range ids {
		if one.Outcomes[id] != "redriven" {
			t.Errorf("%s: %q is on record", id, one.Outcomes[id])
		}
	}
	if r := p.run(0, "dlq", "log", operations[0].ID); strings.Count(r.stdout, "\n") < 1000 || !strings.Contains(r.stdout, "not finished") && !strings.Contains(r.stdout, "finished") {
		t.Errorf("the log of one operation is %.300s", r.stdout)
	}
}

// Of two redrives that begin at once, each letter is published by one.
func TestTwoRedrivesAtOnce(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	ids := thousand(p)
	tap := p.Tap("gmail-message-read")
	outcomes := make([]outcomeJSON, 2)
	var both sync.WaitGroup
	for i := range outcomes {
		both.Go(func() {
			r := p.do(t.Context(), strings.NewReader(""), "dlq", "redrive", "--yes", "--rate", "1000", "--json")
			outcomes[i] = decode[outcomeJSON](t, r.stdout)
		})
	}
	both.Wait()
	once(t, p.published(tap), ids)
	redriven := 0
	for _, o := range outcomes {
		redriven += o.Results[deadletter.Redriven]
		sum := o.Left
		for _, n := range o.Results {
			sum += n
		}
		if sum != o.Plan.Eligible || o.Results[deadletter.Failed] > 0 {
			t.Errorf("an outcome is %+v", o)
		}
	}
	if redriven != len(ids) {
		t.Errorf("redriven were %d", redriven)
	}
}

// A redrive is killed in the middle. A second run does the rest, and once the claims of the first have
// lapsed a third finds what that one left behind: nothing is lost, and nothing doubled.
func TestRedriveIsKilled(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	ids := thousand(p)
	tap := p.Tap("gmail-message-read")
	cmd, out := p.program("dlq", "redrive", "--yes", "--rate", "300")
	redriving := func() int {
		n, err := p.DB.CountOfConsumer(t.Context(), "MessageRead", ledger.Redriving)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for deadline := time.Now().Add(30 * time.Second); redriving() < 200; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the redrive does not begin: %s", out)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	done := redriving()
	if done >= len(ids) {
		t.Fatal("it was killed too late")
	}
	first := p.published(tap)
	// What was published, and not recorded before the kill, is what its lane does by then.
	for _, id := range first {
		if e := p.entry(id); e.State == ledger.Dead {
			if err := p.DB.Resolve(t.Context(), id, p.Clock.Now()); err != nil {
				t.Fatal(err)
			}
		}
	}
	second := read[outcomeJSON](p, "dlq", "redrive", "--yes", "--rate", "1000")
	p.Clock.Advance(deadletter.BusyFor + time.Minute)
	third := read[outcomeJSON](p, "dlq", "redrive", "--yes", "--rate", "1000")
	t.Logf("%d before the kill, then %d with %d claimed, then %d", len(first), second.Results[deadletter.Redriven],
		second.Plan.PassedOver[deadletter.IsBusy], third.Results[deadletter.Redriven])
	once(t, append(first, p.published(tap)...), ids)
	for _, e := range p.Entries() {
		if e.State != ledger.Redriving && e.State != ledger.Resolved {
			t.Errorf("%s is %s", e.ID, e.State)
		}
	}
	unfinished := 0
	for _, o := range read[[]operationJSON](p, "dlq", "log") {
		if o.FinishedAt == nil {
			unfinished++
			if one := read[operationJSON](p, "dlq", "log", o.ID); len(one.Outcomes) != len(ids) {
				t.Errorf("the killed operation has %d letters on record", len(one.Outcomes))
			}
		}
	}
	if unfinished != 1 {
		t.Errorf("%d operations are unfinished", unfinished)
	}
}

// Ctrl-C ends the process between two letters, with what was begun brought to its end.
func TestInterruptedRedrive(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	for i := range 40 {
		p.letter(fmt.Sprintf("m%d", i), 7, nil)
	}
	cmd, out := p.program("dlq", "redrive", "--yes", "--rate", "5")
	for deadline := time.Now().Add(30 * time.Second); ; {
		if operations := read[[]operationJSON](p, "dlq", "log"); len(operations) == 1 || time.Now().After(deadline) {
			break
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(out.String(), "run it again for the rest") {
		t.Errorf("%v: %s", err, out)
	}
	for _, e := range p.Entries() {
		if e.Claim != (ledger.Claim{}) {
			t.Errorf("%s was left claimed", e.ID)
		}
	}
	if o := read[[]operationJSON](p, "dlq", "log")[0]; o.FinishedAt == nil {
		t.Error("the operation's end is not on record")
	}
}
