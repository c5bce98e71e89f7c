package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/firestore"

	"mailyard.internal/mailyard/functions/deadletter"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

func ids(list []entryJSON) []string {
	ids := []string{}
	for _, e := range list {
		ids = append(ids, e.ID)
	}
	return ids
}

func TestList(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	if r := p.run(0, "dlq", "list", "--json"); r.stdout != "[]\n" {
		t.Errorf("list of nothing: %q", r.stdout)
	}
	if r := p.run(0, "dlq", "list"); r.stdout != "0 entries\n" {
		t.Errorf("list of nothing: %q", r.stdout)
	}
	dead := p.letter("m1", 1<<53+1, nil)
	retrying := p.letter("m2", 12, func(e *ledger.Entry) {
		e.State, e.Code, e.LastFailedAt, e.Fingerprint = ledger.Retrying, fault.Timeout, p.Clock.Now(), "ffff"
	})
	resolved := p.letter("m3", 13, func(e *ledger.Entry) { e.State = ledger.Resolved })
	other := p.letter("m4", 14, func(e *ledger.Entry) {
		e.AccountID, e.Lane, e.LastFailedAt = "acc2", "message-added", p.Clock.Now().Add(-30*time.Minute)
	})

	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, []string{dead, other, retrying}},
		{[]string{"--state", "resolved"}, []string{resolved}},
		{[]string{"--state", "dead,retrying", "--lane", "message-read"}, []string{dead, retrying}},
		{[]string{"--state", "all", "--account", "acc1"}, []string{dead, resolved, retrying}},
		{[]string{"--code", "timeout"}, []string{retrying}},
		{[]string{"--fingerprint", "ffff"}, []string{retrying}},
		{[]string{"--older-than", "45m"}, []string{dead}},
		{[]string{"--older-than", "20m", "--limit", "1"}, []string{dead}},
		{[]string{"--limit", "2"}, []string{dead, other}},
		{[]string{"--id", resolved, "--id", other}, []string{resolved, other}},
		{[]string{"--account", "nobody"}, []string{}},
	} {
		got := ids(read[[]entryJSON](p, append([]string{"dlq", "list"}, c.args...)...))
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("dlq list %v: %v, want %v", c.args, got, c.want)
		}
	}

	e := read[[]entryJSON](p, "dlq", "list", "--id", dead)[0]
	stored := p.entry(dead)
	if e.HistoryID != 1<<53+1 || string(e.Data) != string(stored.Data) || e.Attributes["ce-id"] != dead || e.Code != "gmail_unavailable" || e.LastFailedAt == nil {
		t.Errorf("entry %+v", e)
	}
	if r := p.run(0, "dlq", "list", "--entries"); !strings.Contains(r.stdout, dead) || !strings.Contains(r.stdout, "1h0m") || !strings.Contains(r.stdout, "Gmail answered 503") {
		t.Errorf("table %s", r.stdout)
	}
	if r := p.run(1, "dlq", "list", "--id", dead, "--id", "nobody"); !strings.Contains(r.stderr, "the ledger has no entry nobody") || r.stdout != "" {
		t.Errorf("wrote %q, %q", r.stdout, r.stderr)
	}
}

// More than one page, read whole.
func TestListPages(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	var wait sync.WaitGroup
	slots := make(chan struct{}, 8)
	const many = pageSize + 3
	for i := range many {
		slots <- struct{}{}
		wait.Go(func() { p.letter(fmt.Sprintf("m%d", i), 7, nil); <-slots })
	}
	wait.Wait()
	if got := len(read[[]entryJSON](p, "dlq", "list")); got != many {
		t.Errorf("%d entries, want %d", got, many)
	}
	if plan := read[planJSON](p, "dlq", "plan", "--limit", "5"); plan.Eligible != 5 || plan.PassedOver[deadletter.OverLimit] != many-5 {
		t.Errorf("plan %+v", plan)
	}
}

func TestShow(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	p.box("kim@example.com", "secret-of-kim")
	account := p.add("kim@example.com", "secret-of-kim", "--no-resync")
	id := p.letter("m1", 11, func(e *ledger.Entry) { e.AccountID = account })

	shown := read[shownJSON](p, "dlq", "show", id)
	var event struct{ MessageID, HistoryID string }
	if err := json.Unmarshal(shown.Event, &event); err != nil || event.MessageID != "m1" || event.HistoryID != "11" || shown.Mirror != nil || shown.ID != id {
		t.Errorf("shown %+v, %+v, %v", shown, event, err)
	}
	read1 := mail.Message{ID: "m1"}
	become := mail.Apply(read1, mail.Fetched{HistoryID: 9, Flags: map[string]bool{"unread": true}, Summary: mail.Summary{Subject: "private matter"}})
	if ok, err := p.DB.SaveMessage(t.Context(), account, read1, become); err != nil || !ok {
		t.Fatal(ok, err)
	}
	shown = read[shownJSON](p, "dlq", "show", id)
	if m := shown.Mirror; m == nil || !m.HasContent || !m.Flags["unread"] || m.Guards["content"] != 9 {
		t.Errorf("mirror %+v", shown.Mirror)
	}
	r := p.run(0, "dlq", "show", id)
	for _, want := range []string{"gmail_unavailable", "Gmail answered 503", `"messageId":"m1"`, "the message is mirrored", "guard of content"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("there is no %q in %s", want, r.stdout)
		}
	}
	if strings.Contains(r.stdout, "private matter") {
		t.Error("content is shown")
	}
	gone := p.letter("m9", 11, nil)
	if r := p.run(0, "dlq", "show", gone); !strings.Contains(r.stdout, "the account is gone") {
		t.Errorf("wrote %s", r.stdout)
	}
	for _, unknown := range []string{"nobody", "a/b", ""} {
		p.run(1, "dlq", "show", unknown)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	if r := p.run(0, "dlq", "plan"); !strings.HasPrefix(r.stdout, "0 letters") {
		t.Errorf("wrote %q", r.stdout)
	}
	p.letter("m1", 1, nil)
	p.letter("m2", 2, nil)
	p.letter("m3", 3, func(e *ledger.Entry) { e.State = ledger.Retrying })
	p.letter("m4", 4, func(e *ledger.Entry) { e.State = ledger.Redriving })
	p.letter("m5", 5, func(e *ledger.Entry) { e.Topic = "" })
	p.letter("m8", 8, func(e *ledger.Entry) { e.Consumer = "" })
	p.letter("m6", 6, func(e *ledger.Entry) { e.Claim = ledger.Claim{Operation: "o", Token: "t", At: p.Clock.Now()} })
	resolved := p.letter("m7", 7, func(e *ledger.Entry) { e.State = ledger.Resolved })
	plan := read[planJSON](p, "dlq", "plan", "--rate", "2")
	for reason, want := range map[deadletter.Reason]int{"retrying": 1, "redriving": 1, "broken": 1, "no_topic": 1, "busy": 1, "resolved": 0, "over_limit": 0} {
		if got, there := plan.PassedOver[reason]; got != want || !there {
			t.Errorf("%d passed over as %s, want %d", got, reason, want)
		}
	}
	if plan.Eligible != 2 {
		t.Errorf("plan %+v", plan)
	}
	if plan := read[planJSON](p, "dlq", "plan", "--id", resolved); plan.Eligible != 0 || plan.PassedOver["resolved"] != 1 {
		t.Errorf("plan %+v", plan)
	}
	if r := p.run(0, "dlq", "plan"); !strings.Contains(r.stdout, "2 letters to redrive") || !strings.Contains(r.stdout, "1 no topic") {
		t.Errorf("wrote %q", r.stdout)
	}
	p.run(1, "dlq", "plan", "--id", "nobody")
}

func TestRedrive(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	tap := p.Tap("gmail-message-read")
	if r := p.run(0, "dlq", "redrive"); !strings.HasPrefix(r.stdout, "0 letters") {
		t.Errorf("wrote %q", r.stdout)
	}
	if o := read[outcomeJSON](p, "dlq", "redrive", "--yes"); o.Operation != "" || o.Plan.Eligible != 0 {
		t.Errorf("outcome %+v", o)
	}
	first := p.letter("m1", 1, func(e *ledger.Entry) { e.LastFailedAt = p.Clock.Now().Add(-3 * time.Hour) })
	second := p.letter("m2", 2, nil)
	p.letter("m3", 3, func(e *ledger.Entry) { e.State = ledger.Redriving })

	for _, answer := range []string{"", "\n", "n\n", "yesterday\n", "no\ny\n"} {
		r := p.do(t.Context(), strings.NewReader(answer), "dlq", "redrive")
		p.check(1, r, []string{"dlq", "redrive"})
		if !strings.Contains(r.stderr, "nothing was changed") || !strings.Contains(r.stderr, "Redrive 2 letters?") || !strings.Contains(r.stdout, "2 letters to redrive") {
			t.Errorf("answer %q: wrote %q, %q", answer, r.stdout, r.stderr)
		}
	}
	if e := p.entry(first); e.State != ledger.Dead || e.Claim != (ledger.Claim{}) || len(p.Pull(tap)) != 0 {
		t.Errorf("something was changed: %+v", e)
	}

	r := p.do(t.Context(), strings.NewReader("Yes\n"), "dlq", "redrive", "--limit", "1", "--reason", "Gmail is back", "--json")
	p.check(0, r, nil)
	o := decode[outcomeJSON](t, r.stdout)
	if o.Results["redriven"] != 1 || o.Left != 0 || o.Plan.PassedOver["over_limit"] != 1 || o.Plan.PassedOver["redriving"] != 1 {
		t.Errorf("outcome %+v", o)
	}
	published := p.Pull(tap)
	stored := p.entry(first)
	if len(published) != 1 || string(published[0].Data) != string(stored.Data) || published[0].Attributes["redrive"] != o.Operation || published[0].Attributes["ce-id"] != first {
		t.Errorf("published %+v", published)
	}
	if stored.State != ledger.Redriving || p.entry(second).State != ledger.Dead {
		t.Errorf("entry %+v", stored)
	}
	if !strings.HasPrefix(o.Operation, "redrive-20") || len(o.Operation) != len("redrive-20261130T120000-abcd") {
		t.Errorf("operation %q", o.Operation)
	}

	client, err := firestore.NewClient(t.Context(), p.Project)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	record, err := client.Collection("redrives").Doc(o.Operation).Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	outcome, _ := record.DataAtPath(firestore.FieldPath{"outcomes", first})
	counts, _ := record.DataAtPath(firestore.FieldPath{"counts", "redriven"})
	limit, _ := record.DataAtPath(firestore.FieldPath{"filter", "limit"})
	if d := record.Data(); d["who"] != "tester" || d["reason"] != "Gmail is back" || outcome != "redriven" || counts != int64(1) || limit != "1" || d["finishedAt"] == nil {
		t.Errorf("recorded %v", d)
	}

	r = p.run(0, "dlq", "redrive", "--yes")
	if !strings.Contains(r.stdout, ": 1 redriven\n") || strings.Contains(r.stderr, "[y/N]") {
		t.Errorf("wrote %q, %q", r.stdout, r.stderr)
	}
	if len(p.Pull(tap)) != 1 {
		t.Error("not published once")
	}
	if r = p.run(0, "dlq", "redrive", "--yes"); !strings.Contains(r.stdout, "0 letters to redrive; passed over: 3 redriving") {
		t.Errorf("wrote %q", r.stdout)
	}
}

func TestRedriveFails(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	p.letter("m1", 1, nil)
	p.letter("m2", 2, func(e *ledger.Entry) { e.Topic = "no-such-topic" })
	r := p.run(1, "dlq", "redrive", "--yes", "--json")
	o := decode[outcomeJSON](t, r.stdout)
	if o.Results["redriven"] != 1 || o.Results["failed"] != 1 || o.Left != 0 {
		t.Errorf("outcome %+v", o)
	}
	if !strings.Contains(r.stderr, "1 letter failed; run it again in 5 minutes") {
		t.Errorf("wrote %q", r.stderr)
	}
}

// Failure after failure ends the operation, before it has claimed every letter.
func TestRedriveGivesUp(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	const letters = 200
	for i := range letters {
		p.letter(fmt.Sprintf("m%d", i), 1, func(e *ledger.Entry) { e.Topic = "no-such-topic" })
	}
	r := p.run(1, "dlq", "redrive", "--yes", "--json", "--rate", "1000")
	o := decode[outcomeJSON](t, r.stdout)
	if o.Left < letters/2 || o.Left+o.Results["failed"] != letters || !strings.Contains(r.stderr, "failures in a row") {
		t.Errorf("outcome %+v, wrote %s", o, r.stderr)
	}
}

// The context ends, as with Ctrl-C, when the first letter is on its way.
func TestRedriveStops(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	tap := p.Tap("gmail-message-read")
	var letters []string
	for i := range 12 {
		letters = append(letters, p.letter(fmt.Sprintf("m%d", i), 1, nil))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for ctx.Err() == nil {
			if e, _, _ := p.DB.Read(context.Background(), letters[0]); e.State == ledger.Redriving {
				stop()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	r := p.do(ctx, strings.NewReader(""), "dlq", "redrive", "--yes", "--rate", "2", "--json")
	p.check(1, r, nil)
	o := decode[outcomeJSON](t, r.stdout)
	done := o.Results["redriven"]
	if done == 0 || done == len(letters) || o.Left != len(letters)-done {
		t.Errorf("outcome %+v", o)
	}
	if want := fmt.Sprintf("%d of %d letters were done; run it again for the rest", done, len(letters)); !strings.Contains(r.stderr, want) {
		t.Errorf("wrote %q, want %q", r.stderr, want)
	}
	redriving := 0
	for _, id := range letters {
		e := p.entry(id)
		if e.Claim != (ledger.Claim{}) {
			t.Errorf("%s was left claimed", id)
		}
		if e.State == ledger.Redriving {
			redriving++
		}
	}
	if redriving != done || len(p.Pull(tap)) != done {
		t.Errorf("%d are redriving, %d were told", redriving, done)
	}

	// Ctrl-C at the question is a no.
	soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	silent, _ := io.Pipe()
	r = p.do(soon, silent, "dlq", "redrive")
	p.check(1, r, nil)
}
