package app_test

import (
	"context"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"mailyard.internal/mailyard/functions/mailbox"
	"mailyard.internal/mailyard/scripts/local/courier"
	"mailyard.internal/mailyard/scripts/local/mailboxview"
	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// A visitor opens pages and sends their forms, as a browser without JavaScript does.
type visitor struct {
	t    *testing.T
	base string
}

func (v visitor) get(query string, status int) string {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, v.base+query, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	return v.do(r, status)
}

// send sends a form, and returns the page to which that leads.
func (v visitor) send(query string, form url.Values, status int) string {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, v.base+query, strings.NewReader(form.Encode()))
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://"+r.URL.Host)
	r.Header.Set("X-Goog-Authenticated-User-Email", "accounts.google.com:kim@example.com")
	return v.do(r, status)
}

func (v visitor) do(r *http.Request, status int) string {
	v.t.Helper()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	if answer.StatusCode != status {
		v.t.Fatalf("%s %s was answered %d, want %d: %s", r.Method, r.URL, answer.StatusCode, status, said(string(body)))
	}
	return string(body)
}

// said is what a page says, without what stands around it.
func said(body string) string {
	_, rest, _ := strings.Cut(body, "<main")
	main, _, _ := strings.Cut(rest, "<script>")
	return main
}

// formOf reads a page's hidden fields.
func formOf(body string) url.Values {
	form := url.Values{}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`).FindAllStringSubmatch(body, -1) {
		form.Set(m[1], html.UnescapeString(m[2]))
	}
	return form
}

// serveMailboxes serves the view of a Yard's mailboxes, from which they can be linked.
func serveMailboxes(t *testing.T, y *apptest.Yard) string {
	t.Helper()
	server := httptest.NewServer(&mailboxview.View{
		Sim: y.Gmail, Console: y.Functions.URL + "/Console", Now: y.Clock.Now,
		Link: func(ctx context.Context, address, token string) error {
			linker, err := y.App.Linker(ctx)
			if err == nil {
				_, err = linker.Link(ctx, mailbox.Grant{Owner: "me", Email: address, RefreshToken: token})
			}
			return err
		},
	})
	t.Cleanup(server.Close)
	return server.URL
}

// Words of a mail that no page may show.
const (
	secretSubject = "Unutterable-subject"
	secretText    = "Unutterable-text"
	secretSender  = "unutterable-sender"
)

// The whole way without a line of JavaScript: from a poisoned message to its redrive, on every page; and on
// none of them is a word of the mail.
func TestConsoleWithoutJavaScript(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	y.Start()
	gmail := visitor{t, serveMailboxes(t, y)}
	console := visitor{t, y.Functions.URL + "/Console"}
	seen := map[string]string{}
	see := func(query string, wanted ...string) string {
		t.Helper()
		body := console.get(query, http.StatusOK)
		seen[query] = body
		for _, want := range wanted {
			if !strings.Contains(body, want) {
				t.Errorf("%s lacks %q; it says %s", query, want, said(body))
			}
		}
		return body
	}
	see("", "No mailbox is linked yet.", "0 dead letters, 0 retrying, 0 redriving; 0 mailboxes linked, 0 active.")
	gmail.send("", url.Values{"do": {"link"}, "mailbox": {"ann@example.com"}}, http.StatusOK)
	y.Settle() // its resync must not meet what is poisoned
	deliver := url.Values{"do": {"deliver"}, "mailbox": {"ann@example.com"}, "from": {secretSender + "@example.org"}, "subject": {secretSubject}, "text": {secretText}, "count": {"2"}}
	gmail.send("", deliver, http.StatusOK)
	deliver.Set("status", "400")
	poisoned := gmail.send("", deliver, http.StatusOK)
	if !strings.Contains(poisoned, secretSubject) {
		t.Fatal("the mail is not in the mailbox, so nothing is tested")
	}
	y.Settle()

	see("", "2 dead letters, 0 retrying, 0 redriving; 1 mailbox linked, 1 active.", "behind", "waits for you")
	see("?page=mailboxes", "ann@example.com")
	groups := see("?page=groups", "2 letters of 1 cause.", "bad_request")
	fingerprint := regexp.MustCompile(`fingerprint=([0-9a-f]+)`).FindStringSubmatch(groups)[1]
	letters := see("?page=letters&fingerprint="+fingerprint, "2 letters here.")
	id := html.UnescapeString(regexp.MustCompile(`id=([^"&]*)&amp;page=letter"`).FindStringSubmatch(letters)[1])
	see("?page=letter&id="+id, "The message is not mirrored.", "the message would be fetched from Gmail", "messages.get")
	seen["plan"] = see("?page=plan&deed=redrive&fingerprint="+fingerprint, "2 letters</p>")

	form := formOf(seen["plan"])
	form.Set("reason", "Gmail gives it out again")
	gmail.send("", url.Values{"do": {"mend-all"}, "mailbox": {"ann@example.com"}}, http.StatusOK)
	seen["operation"] = console.send("?page=plan", form, http.StatusOK)
	for _, want := range []string{"Gmail gives it out again", "kim@example.com", "2 letters, 2 redriven", id} {
		if !strings.Contains(seen["operation"], want) {
			t.Errorf("the operation lacks %q: %s", want, said(seen["operation"]))
		}
	}
	y.Settle()
	see("", "0 dead letters, 0 retrying, 0 redriving; 1 mailbox linked, 1 active.")
	see("?page=groups", "Nothing is open here.")
	see("?page=letters&state=resolved", id)
	see("?page=letter&id="+id, "The message is mirrored.", "guard of content", "It is resolved")
	see("?page=operations", "kim@example.com", "2 redriven")

	if m := y.Message(y.Entries()[0].AccountID, y.Entries()[0].MessageID); m.Subject == "" {
		t.Fatal("the redriven message has no content, so nothing is tested")
	}
	for query, body := range seen {
		for _, word := range []string{secretSubject, secretText, secretSender} {
			if strings.Contains(body, word) {
				t.Errorf("%s shows %s, which is of the mail", query, word)
			}
		}
	}
	if log := y.Log.String(); !strings.Contains(log, `"Console redrive"`) || strings.Contains(log, secretSubject) {
		t.Errorf("the log says %s", log)
	}
}

// A discard from the page is a discard: the event is not applied, and who gave it up is on record.
func TestConsoleDiscards(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	console := visitor{t, y.Functions.URL + "/Console"}
	e := ledger.Entry{}.Failed(ledger.Failure{
		Run: "r1", Consumer: "MessageRead", Topic: "gmail-message-read", Err: fault.Permanent(fault.Malformed, io.ErrUnexpectedEOF), At: y.Clock.Now(),
		Subject: ledger.Subject{Lane: "message-read", EventID: "e1"}, Data: []byte("{}"), Attributes: map[string]string{"ce-id": "e1"},
	}).Buried(y.Clock.Now())
	if _, err := y.DB.Change(t.Context(), "e1", func(ledger.Entry) (ledger.Entry, bool) { return e, true }); err != nil {
		t.Fatal(err)
	}
	form := formOf(console.get("?page=plan&deed=discard&id=e1", http.StatusOK))
	console.send("?page=plan", form, http.StatusConflict) // without a reason
	form.Set("reason", "it never was one")
	if body := console.send("?page=plan", form, http.StatusOK); !strings.Contains(body, "1 letter, 1 discarded") {
		t.Errorf("the operation says %s", said(body))
	}
	if got := y.Entries()[0]; !got.Discarded || got.State != ledger.Resolved {
		t.Errorf("the entry is %+v", got)
	}
	console.send("?page=plan", form, http.StatusConflict) // a second time
	if operations, err := y.DB.Operations(t.Context(), 10); err != nil || len(operations) != 1 || operations[0].Who != "kim@example.com" {
		t.Errorf("the record has %+v, %v", operations, err)
	}
}

// Mailboxes are read page by page, each with how far it is in step.
func TestConsoleShowsStandings(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	console := visitor{t, y.Functions.URL + "/Console"}
	var accounts []mail.Account
	for _, name := range []string{"ann", "bo", "kim"} {
		accounts = append(accounts, y.Link(addMailbox(t, y, name+"@example.com", name), name, 100))
	}
	slices.SortFunc(accounts, func(a, b mail.Account) int { return strings.Compare(a.ID, b.ID) })
	last := accounts[2]
	if _, err := y.DB.SaveResync(t.Context(), mail.Resync{}, mail.Resync{
		ID: "r1", AccountID: last.ID, State: mail.ResyncMending, Baseline: 60, Done: 30, Total: 120, StartedAt: y.Clock.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	e := ledger.Entry{}.Failed(ledger.Failure{
		Run: "r1", Consumer: "MessageRead", Topic: "gmail-message-read", Err: io.ErrUnexpectedEOF, At: y.Clock.Now(),
		Subject: ledger.Subject{Lane: "message-read", EventID: "e1", AccountID: last.ID, HistoryID: 41},
	})
	if _, err := y.DB.Change(t.Context(), "e1", func(ledger.Entry) (ledger.Entry, bool) { return e, true }); err != nil {
		t.Fatal(err)
	}
	body := said(console.get("?page=mailboxes&after="+accounts[0].ID, http.StatusOK))
	for _, want := range []string{accounts[1].Email, last.Email, ">40<small>60 behind</small>", "30 of 120", "mending", "in step"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q; it says %s", want, body)
		}
	}
	if strings.Contains(body, accounts[0].Email) {
		t.Error("the second page begins with the first's account")
	}
	overview := said(console.get("", http.StatusOK))
	if !strings.Contains(overview, "3 mailboxes linked, 3 active") || !strings.Contains(overview, "1 retrying") {
		t.Errorf("the overview says %s", overview)
	}
}

// With Firestore out of reach each page is a sentence, and comes in time.
func TestConsoleWithoutFirestore(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{Env: map[string]string{"FIRESTORE_EMULATOR_HOST": "127.0.0.1:1"}, Courier: courier.Options{}})
	console := visitor{t, y.Functions.URL + "/Console"}
	for _, query := range []string{"", "?page=groups", "?page=letter&id=x", "?page=operations"} {
		began := time.Now()
		if body := console.get(query, http.StatusServiceUnavailable); !strings.Contains(body, "Firestore did not answer.") {
			t.Errorf("%s says %s", query, said(body))
		}
		if took := time.Since(began); took > 25*time.Second {
			t.Errorf("%s took %s", query, took)
		}
	}
	if !strings.Contains(y.Log.String(), `"Console failed"`) {
		t.Error("the log does not say so")
	}
}
