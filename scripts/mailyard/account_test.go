package main

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"mailyard.internal/mailyard/functions/mailbox"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

type added struct {
	AccountID string `json:"accountId"`
}

func (p *prog) box(address, token string) *gmailsim.Mailbox {
	p.t.Helper()
	box, err := p.Gmail.AddMailbox(address, token)
	if err != nil {
		p.t.Fatal(err)
	}
	return box
}

func (p *prog) add(address, token string, flags ...string) string {
	p.t.Helper()
	return read[added](p, append([]string{"account", "add", "--email", address, "--refresh-token", token}, flags...)...).AccountID
}

// secret is the refresh token that an account's stored credential holds.
func (p *prog) secret(account string) string {
	p.t.Helper()
	c, err := p.DB.Credential(p.t.Context(), account)
	if err != nil {
		p.t.Fatal(err)
	}
	keys, err := p.App.Keyset()
	if err != nil {
		p.t.Fatal(err)
	}
	secret, err := keys.Open(c.Secret, account)
	if err != nil {
		p.t.Fatal(err)
	}
	return secret
}

// nothing fails the test unless there is no account and no credential.
func (p *prog) nothing(owner, email string) {
	p.t.Helper()
	if accounts, err := p.DB.Accounts(p.t.Context()); err != nil || len(accounts) > 0 {
		p.t.Errorf("left behind: %+v, %v", accounts, err)
	}
	if _, err := p.DB.Credential(p.t.Context(), mail.AccountID(owner, email)); !fault.Is(err, fault.ReauthRequired) {
		p.t.Errorf("a credential was left behind: %v", err)
	}
}

// requests are the resyncs that were asked for since the last call.
func (p *prog) requests(tap string) []mailbox.ResyncRequest {
	p.t.Helper()
	var requests []mailbox.ResyncRequest
	for _, m := range p.Pull(tap) {
		var r mailbox.ResyncRequest
		if err := json.Unmarshal(m.Data, &r); err != nil {
			p.t.Fatal(err)
		}
		requests = append(requests, r)
	}
	return requests
}

func TestAdd(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	box := p.box("kim.lee+x@gmail.com", "secret-of-kim")
	box.RaiseHistory(1<<53 + 1) // beyond what a float holds
	tap := p.Tap(lane.ResyncTopic)

	id := p.add("K.Im.Lee@googlemail.com", "secret-of-kim", "--owner", "o1")
	if want := mail.AccountID("o1", "kimlee@gmail.com"); id != want {
		t.Fatalf("account %s, want %s", id, want)
	}
	topic, expires := box.Watch()
	if topic != "projects/"+p.Project+"/topics/gmail-notifications" {
		t.Errorf("watches %q", topic)
	}
	a := p.Account(id)
	if a.Email != "kimlee@gmail.com" || a.Owner != "o1" || a.Status != mail.StatusActive || a.HistoryID != mail.HistoryID(box.HistoryID()) ||
		!a.WatchExpiresAt.Equal(expires.Truncate(time.Millisecond)) || a.CreatedAt.IsZero() || !a.RecheckAt.IsZero() {
		t.Errorf("account %+v", a)
	}
	if p.secret(id) != "secret-of-kim" {
		t.Error("another credential is stored")
	}
	if c, _ := p.DB.Credential(t.Context(), id); strings.Contains(string(c.Secret), "secret") {
		t.Error("the credential is not encrypted")
	}
	requests := p.requests(tap)
	if len(requests) != 1 || requests[0].AccountID != id || !strings.HasPrefix(requests[0].ResyncID, "linked-") {
		t.Errorf("resyncs asked for: %+v", requests)
	}
	if open, err := p.DB.OpenResyncs(t.Context(), id); err != nil || len(open) != 1 || open[0].ID != requests[0].ResyncID {
		t.Errorf("resyncs recorded: %+v, %v", open, err)
	}

	status := read[[]accountJSON](p, "account", "status", id)
	if len(status) != 1 || status[0].HistoryID != int64(box.HistoryID()) || status[0].InStepTo != status[0].HistoryID ||
		status[0].Resync == nil || status[0].Resync.State != "listing" || status[0].WatchExpiresAt == nil {
		t.Errorf("status %+v", status)
	}
}

func TestAddAgain(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	box := p.box("kim@example.com", "secret-of-kim")
	tap := p.Tap(lane.ResyncTopic)
	id := p.add("kim@example.com", "secret-of-kim", "--no-resync")
	first := p.Account(id)
	if len(p.requests(tap)) != 0 {
		t.Error("asked for a resync nevertheless")
	}
	if err := p.DB.RequireReauth(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := box.Deliver(t.Context(), gmailsim.Mail{From: "a@example.com", Subject: "s"}); err != nil {
		t.Fatal(err)
	}
	p.box("kim@example.com", "secret-of-kim-2")
	p.Clock.Advance(time.Hour)

	// On standard input, with the line's end that an editor leaves.
	r := p.do(t.Context(), strings.NewReader("secret-of-kim-2\n"), "account", "add", "--email", "kim@example.com", "--refresh-token", "-", "--no-resync", "--json")
	p.check(0, r, nil)
	if decode[added](t, r.stdout).AccountID != id {
		t.Fatalf("another account: %s", r.stdout)
	}
	again := p.Account(id)
	if again.HistoryID != first.HistoryID || again.Status != mail.StatusActive || !again.CreatedAt.Equal(first.CreatedAt) || !again.WatchExpiresAt.After(first.WatchExpiresAt) {
		t.Errorf("account %+v, was %+v", again, first)
	}
	if p.secret(id) != "secret-of-kim-2" {
		t.Error("the credential is not renewed")
	}
	// What came while the account was not active is listed, though no resync was wanted.
	if again.RecheckFrom != first.HistoryID || again.RecheckAt.IsZero() {
		t.Errorf("account %+v is not to be listed", again)
	}

	p.add("kim@example.com", "secret-of-kim-2")
	if requests := p.requests(tap); len(requests) != 1 {
		t.Errorf("resyncs asked for: %+v", requests)
	}
	if r := p.run(0, "account", "list"); strings.Count(r.stdout, "\n") != 2 || !strings.Contains(r.stdout, "kim@example.com") {
		t.Errorf("list: %s", r.stdout)
	}
}

// What is no good leaves nothing behind, and what was there as it was.
func TestAddRefused(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	box := p.box("kim@example.com", "secret-of-kim")
	p.box("ann@example.com", "secret-of-ann")
	add := func(want, email, token string) {
		t.Helper()
		r := p.run(1, "account", "add", "--email", email, "--refresh-token", token, "--json")
		if !strings.Contains(r.stderr, want) || strings.Count(r.stderr, "\n") != 1 || r.stdout != "" {
			t.Errorf("wrote %q, %q; want %q", r.stdout, r.stderr, want)
		}
	}

	add("of another mailbox", "kim@example.com", "secret-of-ann")
	p.nothing("", "kim@example.com")
	p.nothing("", "ann@example.com")
	add("revoked, expired or not of this OAuth client", "kim@example.com", "secret-of-nobody")
	p.nothing("", "kim@example.com")
	for _, fault := range []struct {
		gmailsim.Fault
		want string
	}{
		{gmailsim.Fault{Method: "token", Status: 401, Reason: "invalid_client", Message: "secret-of-kim"}, "MAILYARD_OAUTH_CLIENT_ID"},
		{gmailsim.Fault{Method: "token", Drop: true}, "MAILYARD_OAUTH_TOKEN_URL"},
		{gmailsim.Fault{Method: "watch", Status: 403}, "may publish on it|right to publish"},
		{gmailsim.Fault{Method: "watch", Status: 400}, "see that the topic exists"},
		{gmailsim.Fault{Method: "watch", Status: 429}, "try again in a minute"},
		{gmailsim.Fault{Method: "watch", Status: 500}, "try again later"},
	} {
		f, err := p.Gmail.AddFault(fault.Fault)
		if err != nil {
			t.Fatal(err)
		}
		add(strings.Split(fault.want, "|")[len(strings.Split(fault.want, "|"))-1], "kim@example.com", "secret-of-kim")
		p.Gmail.RemoveFault(f)
		p.nothing("", "kim@example.com")
	}

	id := p.add("kim@example.com", "secret-of-kim")
	before := p.Account(id)
	add("of another mailbox", "kim@example.com", "secret-of-ann")
	add("revoked", "kim@example.com", "secret-of-nobody")
	if after := p.Account(id); after != before {
		t.Errorf("account %+v, was %+v", after, before)
	}
	if p.secret(id) != "secret-of-kim" {
		t.Error("the credential was replaced")
	}

	// Google may hand out a new refresh token, and then the tried one is no longer good.
	box.RotateRefreshTokens(true)
	p.add("kim@example.com", "secret-of-kim")
	if secret := p.secret(id); !strings.HasPrefix(secret, "1//sim-") {
		t.Errorf("stored %s, which is no longer good", secret)
	}
}

// The account is linked, and what was left undone is told.
func TestAddWithoutResyncTopic(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	p.box("kim@example.com", "secret-of-kim")
	topic := "projects/" + p.Project + "/topics/" + lane.ResyncTopic
	if err := p.PubSub.TopicAdminClient.DeleteTopic(t.Context(), &pubsubpb.DeleteTopicRequest{Topic: topic}); err != nil {
		t.Fatal(err)
	}
	args := []string{"account", "add", "--email", "kim@example.com", "--refresh-token", "secret-of-kim", "--json"}
	r := p.run(1, args...)
	id := mail.AccountID("", "kim@example.com")
	if !strings.Contains(r.stderr, "account "+id+" is linked") || !strings.Contains(r.stderr, "run the same command again") || r.stdout != "" {
		t.Errorf("wrote %q, %q", r.stdout, r.stderr)
	}
	if p.Account(id).Status != mail.StatusActive {
		t.Error("the account is not linked")
	}
	if _, err := p.PubSub.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}); err != nil {
		t.Fatal(err)
	}
	p.run(0, args...)
	if open, err := p.DB.OpenResyncs(t.Context(), id); err != nil || len(open) != 1 {
		t.Errorf("resyncs %+v, %v", open, err)
	}
}

func TestAddAtOnce(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	p.box("kim@example.com", "secret-of-kim")
	const runs = 4
	var wait sync.WaitGroup
	for range runs {
		wait.Go(func() {
			r := p.do(t.Context(), strings.NewReader(""), "account", "add", "--email", "kim@example.com", "--refresh-token", "secret-of-kim", "--json")
			if r.status != 0 {
				t.Errorf("exit status %d: %s", r.status, r.stderr)
			}
		})
	}
	wait.Wait()
	list := read[[]accountJSON](p, "account", "list")
	if len(list) != 1 || list[0].Status != "active" || p.secret(list[0].AccountID) != "secret-of-kim" {
		t.Errorf("accounts %+v", list)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	if r := p.run(0, "account", "status", "--json"); r.stdout != "[]\n" {
		t.Errorf("status of nothing: %q", r.stdout)
	}
	box := p.box("kim@example.com", "secret-of-kim")
	box.RaiseHistory(1<<53 + 1)
	id := p.add("kim@example.com", "secret-of-kim", "--no-resync")
	cursor := int64(box.HistoryID())
	status := func() accountJSON {
		t.Helper()
		list := read[[]accountJSON](p, "account", "status")
		if len(list) != 1 || list[0].AccountID != id || list[0].HistoryID != cursor {
			t.Fatalf("status %+v", list)
		}
		return list[0]
	}
	if s := status(); s.InStepTo != cursor || s.Failures != 0 || s.Resync != nil {
		t.Errorf("status %+v", s)
	}

	mine := func(e *ledger.Entry) { e.AccountID = id }
	p.letter("m1", mail.HistoryID(cursor-10), func(e *ledger.Entry) { mine(e); e.State = ledger.Retrying })
	p.letter("m2", mail.HistoryID(cursor-20), func(e *ledger.Entry) { mine(e); e.State = ledger.Resolved })
	p.letter("m3", mail.HistoryID(cursor-30), nil) // of another account
	if s := status(); s.InStepTo != cursor-11 || s.Failures != 1 {
		t.Errorf("status %+v, want in step to %d", s, cursor-11)
	}
	if _, err := p.DB.SaveResync(t.Context(), mail.Resync{}, mail.Resync{ID: "r", AccountID: id, State: mail.ResyncListing, StartedAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if s := status(); s.Resync == nil || *s.Resync != (resyncJSON{"listing", 0, 0}) || s.InStepTo != cursor-11 {
		t.Errorf("status %+v", s)
	}
	err := p.DB.ChangeAccount(t.Context(), id, func(a mail.Account) (mail.Account, bool) {
		a.RecheckFrom, a.RecheckAt = mail.HistoryID(cursor-100), time.Now()
		return a, true
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := status(); s.InStepTo != cursor-100 {
		t.Errorf("status %+v", s)
	}
	if r := p.run(0, "account", "status", id); !strings.Contains(r.stdout, "IN STEP TO") || !strings.Contains(r.stdout, "listing 0/0") {
		t.Errorf("table %s", r.stdout)
	}
	for _, unknown := range []string{"nobody", "a/b"} {
		if r := p.run(1, "account", "status", unknown, "--json"); !strings.Contains(r.stderr, "there is no account") || r.stdout != "" {
			t.Errorf("wrote %q, %q", r.stdout, r.stderr)
		}
	}

	// As programs read it, field by field.
	var raw []map[string]any
	if err := json.Unmarshal([]byte(p.run(0, "account", "status", "--json").stdout), &raw); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"accountId", "email", "status", "historyId", "inStepTo", "watchExpiresAt", "failures", "resync"} {
		if _, there := raw[0][field]; !there {
			t.Errorf("there is no %s", field)
		}
	}
}
