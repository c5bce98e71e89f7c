package app_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/mail"
)

// cases.json holds inputs that made real mail-sync programs fail, made small and neutral.
//
//go:embed testdata/cases.json
var casesJSON []byte

type fieldCase struct {
	Name  string
	Given struct {
		C              *string
		Email          string
		WatchExpiresAt string
		Accounts       *[]string
		Mirror         map[string]struct {
			Unread bool
			Guards map[string]mail.HistoryID
		}
	}
	Gmail  json.RawMessage
	Pushes []struct {
		EmailAddress string
		HistoryID    json.RawMessage
		Event        string
		Concurrent   bool
		Renew        bool
	}
	Want struct {
		Push                   string
		Resync                 string
		C                      string
		EventsPublished        json.RawMessage
		EventsPublishedOf      map[string]int
		NeverListedFrom        []string
		GmailCalls             *int
		SameStartIDOnBothPages bool
		Mirror                 map[string]map[string]json.RawMessage
		Body                   map[string]json.RawMessage
		Executions             map[string]int
		DeadLetters            *int
		Failures               *int
		Account                struct{ Status mail.Status }
		CredentialKept         bool
	}
}

// elsewhere are the cases of what is not built yet, or is not Go's.
var elsewhere = map[string]string{
	"dead-letter rights missing": "terraform/tests has a run of that name",
}

func TestCases(t *testing.T) {
	t.Parallel()
	var file struct{ Cases []fieldCase }
	if err := json.Unmarshal(casesJSON, &file); err != nil {
		t.Fatal(err)
	}
	for _, c := range file.Cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if why, ok := elsewhere[c.Name]; ok {
				t.Skip(why)
			}
			runCase(t, c)
		})
	}
}

func runCase(t *testing.T, c fieldCase) {
	y := apptest.New(t, apptest.Options{})
	email := "kim@example.com"
	if c.Given.Email != "" {
		email = c.Given.Email
	}
	box, err := y.Gmail.AddMailbox(email, "refresh-token")
	if err != nil {
		t.Fatal(err)
	}
	if err := box.ScriptCase(c.Gmail); err != nil {
		t.Fatal(err)
	}
	account := mail.Account{ID: "nobody"}
	if c.Given.Accounts == nil {
		cursor := mail.HistoryID(0)
		if c.Given.C != nil {
			cursor = historyID(t, *c.Given.C)
		}
		account = y.Link(box, "refresh-token", cursor)
	}
	if ago, ok := strings.CutPrefix(c.Given.WatchExpiresAt, "now-"); ok {
		before, err := time.ParseDuration(ago)
		if err != nil {
			t.Fatal(err)
		}
		setAccount(t, y, account.ID, func(a *mail.Account) { a.WatchExpiresAt = y.Clock.Now().Add(-before) })
	}
	for id, m := range c.Given.Mirror {
		become := mail.Message{ID: id, HasContent: true, Flags: map[string]bool{"unread": m.Unread}, Guards: m.Guards, Body: &mail.Body{}}
		if _, err := y.DB.SaveMessage(t.Context(), account.ID, mail.Message{ID: id}, become); err != nil {
			t.Fatal(err)
		}
	}
	taps := map[string]string{}
	for _, l := range y.Catalogue.Lanes {
		taps[l.Key] = y.Tap(l.Topic())
	}
	resyncs := y.Tap("mailbox-resync")

	pushCase(t, y, c, email, account.ID)
	published := map[string][]string{}
	for _, l := range y.Catalogue.Lanes {
		for _, m := range y.Pull(taps[l.Key]) {
			published[l.Key] = append(published[l.Key], eventName(m.Attributes))
		}
	}
	// A message that is not there is looked for again while its event is young; a throttled one is
	// fetched when it is due.
	y.Clock.Advance(3 * time.Minute)
	y.Start()
	y.Settle()
	for range 4 {
		y.Clock.Advance(3 * time.Minute)
		y.Tick()
		y.Settle()
	}

	checkPublished(t, c, published)
	want := c.Want
	if want.C != "" {
		got := y.Account(account.ID).HistoryID
		least, isLeast := strings.CutPrefix(want.C, ">= ")
		if w := historyID(t, least); got < w || !isLeast && got != w {
			t.Errorf("the cursor is %d, want %s", got, want.C)
		}
	}
	if n := len(y.Pull(resyncs)); want.Resync == "requested once" && n != 1 {
		t.Errorf("%d resyncs were asked for, want 1", n)
	}
	if want.GmailCalls != nil {
		if n := len(y.Gmail.Calls("history.list", "messages.get", "getProfile")); n != *want.GmailCalls {
			t.Errorf("%d Gmail calls, want %d", n, *want.GmailCalls)
		}
	}
	checkListings(t, y, c)
	checkMirror(t, y, c, account.ID)
	for id, n := range want.Executions {
		runs := 0
		for _, d := range y.Deliveries("MessageAdded") {
			if d.Attributes["ce-subject"] == id {
				runs++
			}
		}
		if runs != n {
			t.Errorf("%s was worked on %d times, want %d", id, runs, n)
		}
	}
	if want.DeadLetters != nil {
		letters := 0
		for _, r := range y.Catalogue.Routes() {
			letters += len(y.Pull(r.InspectSubscription()))
		}
		if letters != *want.DeadLetters {
			t.Errorf("%d dead letters, want %d", letters, *want.DeadLetters)
		}
	}
	if want.Failures != nil {
		for _, e := range y.Entries() {
			if e.Unresolved() {
				t.Errorf("%s is %s: %s", e.ID, e.State, e.Error)
			}
		}
	}
	if want.Account.Status != "" && y.Account(account.ID).Status != want.Account.Status {
		t.Errorf("the account is %s, want %s", y.Account(account.ID).Status, want.Account.Status)
	}
	if want.CredentialKept {
		if credential, err := y.DB.Credential(t.Context(), account.ID); err != nil || len(credential.Secret) == 0 {
			t.Errorf("the credential is gone: %v", err)
		}
	}
}

// pushCase posts the case's pushes: events go on their lanes, notifications to Ingest, each again
// until it is acknowledged. A concurrent one goes to another instance at the same time.
func pushCase(t *testing.T, y *apptest.Yard, c fieldCase, email, account string) {
	t.Helper()
	var wait sync.WaitGroup
	defer wait.Wait()
	for i, push := range c.Pushes {
		if push.Event != "" {
			var e mail.Event
			if _, err := fmt.Sscan(push.Event, &e.Lane, &e.MessageID, &e.HistoryID); err != nil {
				t.Fatal(err)
			}
			e.AccountID = account
			y.PublishEvent(e)
			continue
		}
		if push.Renew {
			if status := y.PostBody("Renew", nil, nil); status != http.StatusNoContent {
				t.Errorf("Renew answered %d: %s", status, y.Log)
			}
			continue
		}
		address := email
		if push.EmailAddress != "" {
			address = push.EmailAddress
		}
		data := fmt.Appendf(nil, `{"emailAddress":%q,"historyId":%s}`, address, push.HistoryID)
		instance := y.Functions.URL
		if push.Concurrent {
			instance = y.Instance()
		}
		deliver := func() {
			for attempt := 1; ; attempt++ {
				body := y.Body(apptest.Push{Data: data, MessageID: fmt.Sprint("n", i), Attempt: attempt})
				status := y.PostTo(instance, "Ingest", body, nil)
				if status == http.StatusNoContent {
					return
				}
				if attempt == 4 {
					t.Errorf("push %d was answered %d; the log says %s", i, status, y.Log)
					return
				}
			}
		}
		if i+1 < len(c.Pushes) && c.Pushes[i+1].Concurrent || push.Concurrent {
			wait.Go(deliver)
		} else {
			deliver()
		}
	}
}

func checkPublished(t *testing.T, c fieldCase, published map[string][]string) {
	t.Helper()
	var all []string
	for _, names := range published {
		all = append(all, names...)
	}
	slices.Sort(all)
	switch text := string(c.Want.EventsPublished); {
	case text == "":
	case text == "0":
		if len(all) != 0 {
			t.Errorf("published %v, want nothing", all)
		}
	default:
		var want []string
		if err := json.Unmarshal(c.Want.EventsPublished, &want); err != nil {
			t.Fatal(err)
		}
		slices.Sort(want)
		// A push that is delivered again may publish again, with the same ids.
		if diff := cmp.Diff(want, slices.Compact(all)); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}
	}
	for lane, n := range c.Want.EventsPublishedOf {
		if len(published[lane]) != n {
			t.Errorf("published %v, want %d", published[lane], n)
		}
	}
}

func checkListings(t *testing.T, y *apptest.Yard, c fieldCase) {
	t.Helper()
	starts := map[string]bool{}
	for _, call := range y.Gmail.Calls("history.list") {
		start := fmt.Sprint(call.StartHistoryID)
		starts[start] = true
		if slices.Contains(c.Want.NeverListedFrom, start) {
			t.Errorf("listed from %s", start)
		}
	}
	if c.Want.SameStartIDOnBothPages {
		pages := y.Gmail.Calls("history.list")[:2]
		if pages[0].StartHistoryID != pages[1].StartHistoryID || pages[1].PageToken == "" {
			t.Errorf("the pages were asked for as %+v", pages)
		}
	}
}

func checkMirror(t *testing.T, y *apptest.Yard, c fieldCase, account string) {
	t.Helper()
	for id, want := range c.Want.Mirror {
		m := y.Message(account, id)
		got := map[string]any{
			"hasContent": m.HasContent, "unread": m.Flags["unread"], "trashed": m.Flags["trashed"],
			"subject": m.Subject, "to": m.To, "guards": m.Guards,
		}
		for name, value := range want {
			if name == "fromContains" {
				var part string
				_ = json.Unmarshal(value, &part)
				if part == "" || !strings.Contains(m.From, part) {
					t.Errorf("%s is from %q, want %s in it", id, m.From, value)
				}
				continue
			}
			if diff := diffJSON(t, value, got[name]); diff != "" {
				t.Errorf("%s.%s (-want +got):\n%s", id, name, diff)
			}
		}
	}
	if c.Want.Body == nil {
		return
	}
	body, err := y.DB.Body(t.Context(), account, "m1")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range c.Want.Body {
		var diff string
		switch name {
		case "text":
			diff = diffJSON(t, value, body.Text)
		case "truncated":
			diff = diffJSON(t, value, body.Truncated)
		case "textIsValidUTF8":
			diff = diffJSON(t, value, body.Text != "" && utf8.ValidString(body.Text))
		case "attachments":
			type attachment struct {
				Filename string `json:"filename"`
				Size     int64  `json:"size"`
			}
			var got []attachment
			for _, a := range body.Attachments {
				got = append(got, attachment{a.Filename, a.Size})
			}
			diff = diffJSON(t, value, got)
		default:
			t.Errorf("the case wants %s of the body, which is not looked at", name)
		}
		if diff != "" {
			t.Errorf("body.%s (-want +got):\n%s", name, diff)
		}
	}
}

// diffJSON compares a value with what a case wants of it.
func diffJSON(t *testing.T, want json.RawMessage, got any) string {
	t.Helper()
	encoded, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var w, g any
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(encoded, &g); err != nil {
		t.Fatal(err)
	}
	return cmp.Diff(w, g)
}

func eventName(attributes map[string]string) string {
	parts := strings.Split(attributes["ce-id"], ".") // account, lane, message, historyId
	return parts[1] + " " + parts[2] + " " + parts[3]
}

func historyID(t *testing.T, s string) mail.HistoryID {
	t.Helper()
	id, err := mail.ParseHistoryID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
