package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"cloud.google.com/go/firestore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"mailyard.internal/mailyard/functions/deadletter"
	"mailyard.internal/mailyard/shared/app"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
)

func TestDiscard(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	one, two := p.letter("m1", 1, nil), p.letter("m2", 2, func(e *ledger.Entry) { e.Topic = "" }) // which could not be read
	retrying := p.letter("m3", 3, func(e *ledger.Entry) { e.State = ledger.Retrying })
	p.Publish("gmail-message-read-dead-letter", p.entry(one).Data, p.entry(one).Letter())

	p.run(2, "dlq", "discard", one)
	p.run(2, "dlq", "discard", "--reason", "x", "--yes")
	p.run(1, "dlq", "discard", one, "nobody", "--reason", "x", "--yes")
	p.run(1, "dlq", "discard", one, "--reason", "x")
	if e := p.entry(one); e.State != ledger.Dead || e.Claim != (ledger.Claim{}) {
		t.Fatalf("something was changed: %+v", e)
	}
	o := read[outcomeJSON](p, "dlq", "discard", one, two, retrying, "--reason", "of no use", "--yes")
	if o.Results[deadletter.Discarded] != 2 || o.Plan.PassedOver[deadletter.IsRetrying] != 1 {
		t.Errorf("the outcome is %+v", o)
	}
	for _, id := range []string{one, two} {
		if e := p.entry(id); e.State != ledger.Resolved || !e.Discarded || e.Operation != o.Operation || e.ExpireAt.IsZero() {
			t.Errorf("the entry is %+v", e)
		}
	}
	if e := p.entry(retrying); e.State != ledger.Retrying {
		t.Errorf("what is retrying became %+v", e)
	}
	if left := p.Pull("gmail-message-read-dead-letter-inspect"); len(left) != 0 {
		t.Errorf("on -inspect there still is %v", left)
	}
	if log := read[operationJSON](p, "dlq", "log", o.Operation); log.Deed != ledger.DeedDiscard || log.Reason != "of no use" || log.Outcomes[one] != "discarded" {
		t.Errorf("on record is %+v", log)
	}
	if r := p.run(0, "dlq", "show", one); !strings.Contains(r.stdout, "discarded") {
		t.Errorf("shown is %s", r.stdout)
	}
	p.run(1, "dlq", "log", "nothing")
	p.run(1, "dlq", "log", "a/b")
	p.run(2, "dlq", "log", "--limit", "0")
}

func TestEdit(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	id := p.letter("m1", 11, nil)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--set is not given"},
		{[]string{"--set", "historyId"}, "not FIELD=VALUE"},
		{[]string{"--set", "historyId=1", "--set", "historyId=2"}, "not FIELD=VALUE"},
	} {
		if r := p.run(2, append([]string{"dlq", "edit", id, "--reason", "x", "--yes"}, c.args...)...); !strings.Contains(r.stderr, c.want) {
			t.Errorf("%v: %q", c.args, r.stderr)
		}
	}
	p.run(2, "dlq", "edit", id, "--set", "historyId=12", "--yes")
	broken := p.letter("m5", 5, func(e *ledger.Entry) { e.Data = []byte("not JSON") })
	foreign := p.letter("m6", 5, func(e *ledger.Entry) { e.AccountID = "another" })
	ingest := p.letter("m7", 5, func(e *ledger.Entry) { e.Topic, e.Consumer = "gmail-notifications", "Ingest" })
	for _, c := range []struct{ id, set, want string }{
		{id, "accountId=other", "cannot be changed"},
		{id, "lane=message-unread", "cannot be changed"},
		{id, "historyId=-1", "would not be valid"},
		{id, "historyId=99999999999999999999", "would not be valid"},
		{id, "historyId=9223372036854775808", "would not be valid"},
		{id, "messageId=a/b", "would not be valid"},
		{id, "messageId=", "would not be valid"},
		{id, "historyId=11", "the same as before"},
		{id, "threadId=t9", "the same as before"},
		{broken, "historyId=12", "can only be discarded"},
		{foreign, "historyId=12", "cannot be changed"},
		{ingest, "historyId=12", "is no lane"},
		{"nobody", "historyId=12", "has no entry nobody"},
	} {
		r := p.run(1, "dlq", "edit", c.id, "--set", c.set, "--reason", "x", "--yes")
		if !strings.Contains(r.stderr, c.want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: %q", c.set, r.stderr)
		}
	}
	if e := p.entry(id); e.State != ledger.Dead || len(p.Entries()) != 4 {
		t.Fatalf("something was changed: %+v", e)
	}
	p.run(1, "dlq", "edit", id, "--set", "historyId=12", "--reason", "x") // no answer is a no

	edited := read[editedJSON](p, "dlq", "edit", id, "--set", "historyId=12", "--set", "threadId=t9", "--reason", "wrong id", "--yes")
	if edited.From != id || edited.To != "acc1.message-read.m1.12" {
		t.Fatalf("%+v", edited)
	}
	old, become := p.entry(id), p.entry(edited.To)
	if old.State != ledger.Resolved || !old.Discarded || old.EditedTo != become.ID {
		t.Errorf("the old one is %+v", old)
	}
	if become.State != ledger.Dead || become.EditedFrom != id || become.HistoryID != 12 || become.Attributes["ce-id"] != become.ID || become.Attempts != 0 ||
		!strings.Contains(string(become.Data), `"threadId":"t9"`) || !strings.Contains(string(become.Data), `"historyId":"12"`) {
		t.Errorf("the new one is %+v with %s", become, become.Data)
	}
	p.run(1, "dlq", "edit", id, "--set", "historyId=13", "--reason", "x", "--yes")

	// The new one is an event like any other.
	tap := p.Tap("gmail-message-read")
	p.run(0, "dlq", "redrive", "--id", become.ID, "--yes")
	if published := p.Pull(tap); len(published) != 1 || published[0].Attributes["ce-id"] != become.ID || string(published[0].Data) != string(become.Data) {
		t.Errorf("published was %v", published)
	}
	// Nor does an edit write over an event that is there already.
	other := p.letter("m2", 20, nil)
	target := p.letter("m2", 21, nil)
	if r := p.run(1, "dlq", "edit", other, "--set", "historyId=21", "--reason", "x", "--yes"); !strings.Contains(r.stderr, "an entry "+target+" already") {
		t.Errorf("wrote %q", r.stderr)
	}
	if p.entry(other).State != ledger.Dead || p.entry(target).EditedFrom != "" {
		t.Error("something was changed")
	}
}

// Of several who make the same edit at once each has made it, and the event is there once.
func TestTwoEditsAtOnce(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	for i := range 5 {
		id := p.letter(fmt.Sprintf("m%d", i), 11, nil)
		var both sync.WaitGroup
		for range 3 {
			both.Go(func() {
				r := p.do(t.Context(), strings.NewReader(""), "dlq", "edit", id, "--set", "historyId=12", "--reason", "x", "--yes")
				if r.status != 0 && !strings.Contains(r.stderr, "only a dead letter can be edited") {
					t.Errorf("exit status %d: %s", r.status, r.stderr)
				}
			})
		}
		both.Wait()
		old, become := p.entry(id), p.entry(fmt.Sprintf("acc1.message-read.m%d.12", i))
		if old.State != ledger.Resolved || old.EditedTo != become.ID || become.State != ledger.Dead || become.HealsItself() {
			t.Errorf("the old one is %s, edited to %q; the new one %s", old.State, old.EditedTo, become.State)
		}
	}
}

func TestShowTellsEveryAttemptAndWhatARedriveWouldChange(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	p.box("kim@example.com", "secret-of-kim")
	account := p.add("kim@example.com", "secret-of-kim", "--no-resync")
	id := p.letter("m1", 11, func(e *ledger.Entry) {
		e.AccountID = account
		e.Runs = []ledger.Run{
			{ID: "r1", At: p.Clock.Now(), Code: fault.Timeout, Error: "took too long"}, {ID: "r2", At: p.Clock.Now(), Code: fault.Panicked, Error: "index out of range", Operation: "redrive-1"},
		}
	})
	shown := read[shownJSON](p, "dlq", "show", id)
	if len(shown.Runs) != 2 || shown.Runs[1].Code != "panicked" || shown.Runs[1].Operation != "redrive-1" || shown.Runs[0].At == nil || shown.Redrive == "" {
		t.Errorf("shown is %+v", shown)
	}
	r := p.run(0, "dlq", "show", id)
	for _, want := range []string{"took too long", "run 2 of the last 2", "index out of range", "it would become a stub"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("there is no %q in %s", want, r.stdout)
		}
	}
}

// A filter that fits nothing, a broken entry and a missing permission are a sentence each, and nothing
// is changed.
func TestRedriveOfNothing(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	p.letter("m1", 1, nil)
	for _, filter := range [][]string{{"--fingerprint", "ffff"}, {"--account", "nobody"}, {"--code", "typo"}, {"--lane", "message-added"}} {
		r := p.run(1, append([]string{"dlq", "redrive", "--yes"}, filter...)...)
		if !strings.Contains(r.stderr, "no entry fits; mailyard dlq list --state all shows") {
			t.Errorf("%v: %q", filter, r.stderr)
		}
	}
	client, err := firestore.NewClient(t.Context(), p.Project)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Collection("failures").Doc("broken").Set(t.Context(), map[string]any{"state": 7, "attributes": "none", "runs": "x", "lastFailedAt": "yesterday"}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"redrive", "--id", "broken", "--yes"}, {"discard", "broken", "--reason", "x", "--yes"}} {
		if r := p.run(1, append([]string{"dlq"}, args...)...); !strings.Contains(r.stderr, "the entry broken is broken; look at it with mailyard dlq show") {
			t.Errorf("%v: %q", args, r.stderr)
		}
	}
	p.run(0, "dlq", "show", "broken")
	p.run(0, "dlq", "list", "--state", "all")
	if operations := read[[]operationJSON](p, "dlq", "log"); len(operations) != 0 {
		t.Errorf("on record is %+v", operations)
	}
	if e := p.entry(p.letter("m1", 1, nil)); e.State != ledger.Dead {
		t.Errorf("the letter is %+v", e)
	}
}

func TestNotPermitted(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	id := p.letter("m1", 1, nil)
	for service, want := range map[string]string{"google.firestore": "Firestore cannot be reached or does not let you in", "google.pubsub.v1.Publisher": "Pub/Sub cannot be reached or does not let you in"} {
		p.options = []app.Option{app.WithGRPC(grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if strings.Contains(method, service) && !strings.HasSuffix(method, "/BatchGetDocuments") {
				return status.Error(codes.PermissionDenied, "missing or insufficient permissions")
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}))}
		if r := p.run(1, "dlq", "redrive", "--id", id, "--yes"); !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %q", service, r.stderr)
		}
		p.Clock.Advance(deadletter.BusyFor) // one that was claimed is free again
	}
	if e := p.entry(id); e.State != ledger.Dead {
		t.Errorf("the letter is %s", e.State)
	}
}
