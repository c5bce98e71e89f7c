package console_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"mailyard.internal/mailyard/functions/console"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// The overview counts: however many letters there are, it reads none of them but the oldest.
func TestOverviewReadsNoLetters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 300 {
		w.add(fmt.Sprintf("letter-%03d", i), func(e *ledger.Entry) { e.HealAt = noon.Add(10 * time.Minute) })
	}
	w.standings = []console.Standing{
		{Account: mail.Account{ID: "a1", Email: "ann@example.com", Status: mail.StatusActive, HistoryID: 100}, InStepTo: 100},
		{Account: mail.Account{ID: "a2", Email: "bo@example.com", Status: mail.StatusReauthRequired, HistoryID: 90}, InStepTo: 40, Failures: 200, Bounded: true,
			Resync: &mail.Resync{State: mail.ResyncMending, Done: 30, Total: 120}},
	}
	body := w.get("", http.StatusOK)
	contains(t, body, "300 dead letters, 0 retrying, 0 redriving; 2 mailboxes linked, 1 active.",
		"heals by itself, from 12:10 UTC on", "in step", "reauth_required", "at most 40", "50 behind", "200&#43;", "30 of 120", "message-permanently-deleted", "Resync")
	if w.listed > 0 {
		t.Errorf("the overview read %d letters", w.listed)
	}
}

func TestMailboxesGoOnAfterAHundred(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 120 {
		w.standings = append(w.standings, console.Standing{Account: mail.Account{ID: fmt.Sprintf("a%03d", i), Email: fmt.Sprintf("box%03d@example.com", i), Status: mail.StatusActive}})
	}
	contains(t, w.get("", http.StatusOK), "All mailboxes", "box024@")
	lacks(t, w.get("", http.StatusOK), "box025@")
	contains(t, w.get("?page=mailboxes", http.StatusOK), "box099@", "after=a099")
	second := w.get("?page=mailboxes&after=a099", http.StatusOK)
	contains(t, second, "box100@", "box119@")
	lacks(t, second, "box099@", "Next page")
}

func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 5_300 {
		w.add(fmt.Sprintf("letter-%04d", i), func(e *ledger.Entry) { e.Fingerprint = fmt.Sprintf("f%d", i%3) })
	}
	body := w.get("?page=groups", http.StatusOK)
	contains(t, body, "5000 letters of 3 causes.", "There are more than the first 5000 letters", "deed=redrive&amp;fingerprint=f0")
	if w.listed != 5_000 {
		t.Errorf("%d letters were read", w.listed)
	}
}

func TestLettersGoOnAfterAHundred(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 130 {
		w.add(fmt.Sprintf("letter-%03d", i), nil)
	}
	contains(t, w.get("?page=letters&fingerprint=f1", http.StatusOK), "letter-099", "after=letter-099", "fingerprint=f1", "100 or more letters")
	second := w.get("?page=letters&fingerprint=f1&after=letter-099", http.StatusOK)
	contains(t, second, "letter-129")
	lacks(t, second, "letter-099", "Next page")
}

func TestLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mirrored = console.Mirrored{
		There: true, HasContent: true, Flags: map[string]bool{"unread": true}, Guards: map[string]mail.HistoryID{"content": 5}, Redrive: "unread would become false",
	}
	w.add("letter", func(e *ledger.Entry) {
		e.Trace, e.Operation = "0af7", "redrive-1"
		e.Runs = []ledger.Run{{ID: "r1", At: noon.Add(-time.Hour), Code: fault.Timeout, Error: "first"}, {ID: "r2", At: noon, Code: fault.BadRequest, Error: "second", Operation: "redrive-1"}}
	})
	body := w.get("?page=letter&id=letter", http.StatusOK)
	contains(t, body, "unread would become false", "guard of content", "2026-12-01 11:00:00 UTC", "first", "second",
		"gmail-message-added-dead-letter-inspect?project=project&amp;tab=messages", "traces%2F0af7", "&#34;accountId&#34;: &#34;a1&#34;", "It is dead, after 1 attempt and 0 redrives.")
	if strings.Index(body, "second") > strings.Index(body, ">first<") {
		t.Error("the runs don't begin with the newest")
	}
}

func TestWhatALetterHolds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		edit func(*ledger.Entry)
		want string
	}{
		{"JSON", nil, "18 bytes of JSON"},
		{"text", func(e *ledger.Entry) { e.Data = []byte("no json </pre>") }, "no json &lt;/pre&gt;"},
		{"bytes", func(e *ledger.Entry) { e.Data = []byte{0xff, 0xfe, '<', 'b'} }, "ff fe 3c 62"},
		{"many bytes", func(e *ledger.Entry) { e.Data = make([]byte, 800_000); e.Data[0] = 0xff }, "800000 bytes of bytes, of which the first are shown"},
		{"long text", func(e *ledger.Entry) { e.Data = []byte(strings.Repeat("가", 100_000)) }, "300000 bytes of text, of which the first are shown"},
		{"nothing", func(e *ledger.Entry) { e.Data = nil }, "It is empty."},
		{"what is too large", func(e *ledger.Entry) { e.Data, e.DataOmitted = nil, true }, "too large for the ledger"},
		{"an entry that is nothing", func(e *ledger.Entry) { *e = ledger.Entry{ID: e.ID} }, "broken: its document does not say how it stands"},
		{"one that was discarded", func(e *ledger.Entry) { *e = e.Discard("discard-1", noon) }, "It is discarded"},
		{"an id with everything", func(e *ledger.Entry) { e.ID = `a&b=c#d?e"f'<g> %2f 가` }, "a&amp;b=c#d?e&#34;f&#39;&lt;g&gt; %2f 가"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			e := w.add("letter", c.edit)
			body := w.get("?"+url.Values{"page": {"letter"}, "id": {e.ID}}.Encode(), http.StatusOK)
			contains(t, body, c.want)
			if len(body) > 200_000 {
				t.Errorf("the page has %d bytes", len(body))
			}
		})
	}
}

// Between the plan and its button letters may fail again: those are for another plan.
func TestDeedIsThePlans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("old", nil)
	w.add("retrying", func(e *ledger.Entry) { e.State = ledger.Retrying })
	plan := w.get("?page=plan&deed=redrive&fingerprint=f1", http.StatusOK)
	contains(t, plan, "1 letter</p>", "retrying: Pub/Sub brings it back by itself", "dlq redrive --fingerprint f1", `name="before" value="2026-12-01T12:00:00Z"`)
	w.now = noon.Add(time.Minute)
	w.add("new", func(e *ledger.Entry) { e.LastFailedAt = noon.Add(time.Second) })
	form := url.Values{"deed": {"redrive"}, "fingerprint": {"f1"}, "before": {"2026-12-01T12:00:00Z"}, "reason": {" the cause is mended "}}
	answer := w.post(form, http.StatusSeeOther, func(r *http.Request) {
		r.Header.Set("X-Goog-Authenticated-User-Email", "accounts.google.com:kim@example.com")
	})
	if to := answer.Header().Get("Location"); to != "?id=redrive-1&page=operation" {
		t.Errorf("it goes to %s", to)
	}
	if len(w.done) != 1 || len(w.done[0].Eligible) != 1 || w.done[0].Eligible[0] != "old" {
		t.Fatalf("it was done to %+v", w.done)
	}
	if o := w.orders[0]; o.Who != "kim@example.com" || o.Reason != "the cause is mended" || o.Filter["fingerprint"] != "f1" || o.Rate != 50 {
		t.Errorf("the order is %+v", o)
	}
	contains(t, w.get("?page=operation&id=redrive-1", http.StatusOK), "kim@example.com", "the cause is mended", "old", "1 letter, 1 redriven")
	contains(t, w.get("?page=operations", http.StatusOK), "redrive-1")
	// The same once more finds nothing to do.
	contains(t, w.post(form, http.StatusConflict).Body.String(), "Nothing was changed")
	if len(w.done) != 1 {
		t.Error("it was done again")
	}
	if v := w.visits[0]; v.Operation != "redrive-1" || v.Letters != 1 || v.Who != "kim@example.com" {
		t.Errorf("reported was %+v", v)
	}
}

func TestPageDoesNotDoTooMuch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range console.MaxLetters + 40 {
		w.add(fmt.Sprintf("letter-%04d", i), nil)
	}
	contains(t, w.get("?page=plan&deed=redrive&function=MessageAdded", http.StatusOK), "1000 letters</p>", "40 would be left", "dlq redrive --lane message-added", "in about 21 s")
	w.post(url.Values{"deed": {"redrive"}, "function": {"MessageAdded"}, "before": {"2026-12-01T12:00:00Z"}}, http.StatusSeeOther)
	if len(w.done[0].Eligible) != console.MaxLetters {
		t.Errorf("%d letters were redriven", len(w.done[0].Eligible))
	}
}

func TestDiscardNeedsAReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("letter", nil)
	contains(t, w.get("?page=plan&deed=discard&id=letter", http.StatusOK), "would be given up", "Why (needed)", "required")
	form := url.Values{"deed": {"discard"}, "id": {"letter"}, "before": {"2026-12-01T12:00:00Z"}, "reason": {"  "}}
	contains(t, w.post(form, http.StatusConflict).Body.String(), "Write why")
	form.Set("reason", strings.Repeat("x", 501))
	contains(t, w.post(form, http.StatusConflict).Body.String(), "too long")
	form.Set("reason", "never was")
	w.post(form, http.StatusSeeOther)
	if len(w.done) != 1 || w.orders[0].Reason != "never was" || w.orders[0].Who != "console" {
		t.Errorf("it was done as %+v", w.orders)
	}
}

func TestForgeryIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("letter", nil)
	form := url.Values{"deed": {"redrive"}, "id": {"letter"}, "before": {"2026-12-01T12:00:00Z"}}
	for name, edit := range map[string]func(*http.Request){
		"another site":      func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"a sibling site":    func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"another origin":    func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "https://evil.example") },
		"without an origin": func(r *http.Request) { r.Header.Del("Sec-Fetch-Site") },
	} {
		contains(t, w.post(form, http.StatusForbidden, edit).Body.String(), "was not sent from a page of this console")
		if len(w.done) > 0 {
			t.Fatalf("%s: it was done", name)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		w.serve(httptest.NewRequest(method, "/Console?"+form.Encode()+"&page=plan", nil), http.StatusOK)
	}
	w.serve(httptest.NewRequest(http.MethodPut, "/Console", nil), http.StatusMethodNotAllowed)
	if len(w.done) > 0 {
		t.Fatal("a GET acted")
	}
}

func TestWhatCannotBeShown(t *testing.T) {
	t.Parallel()
	for query, status := range map[string]int{
		"?page=nothing":                  http.StatusNotFound,
		"?page=letter":                   http.StatusNotFound,
		"?page=letter&id=none":           http.StatusNotFound,
		"?page=letter&id=a/b":            http.StatusNotFound,
		"?page=letter&id=../x":           http.StatusNotFound,
		"?page=letter&id=%ff":            http.StatusNotFound,
		"?page=letter&id=__x__":          http.StatusNotFound,
		"?page=operation&id=a/b":         http.StatusNotFound,
		"?page=operation&id=none":        http.StatusNotFound,
		"?page=plan&deed=redrive":        http.StatusBadRequest,
		"?page=plan&deed=edit&id=x":      http.StatusBadRequest,
		"?page=plan&deed=redrive&id=a/b": http.StatusNotFound,
		"?page=letters&after=a/b":        http.StatusOK,
		"?page=mailboxes&after=%ff":      http.StatusOK,
		"?page=letters&code=%ff%00":      http.StatusOK,
	} {
		w := newWorld(t)
		body := w.get(query, status)
		contains(t, body, "<h1>", "</html>")
	}
	w := newWorld(t)
	for _, form := range []url.Values{
		{}, {"deed": {"redrive"}}, {"deed": {"redrive"}, "id": {"x"}}, {"deed": {"edit"}, "id": {"x"}, "before": {"2026-12-01T12:00:00Z"}},
	} {
		w.post(form, http.StatusBadRequest)
	}
	w.post(url.Values{"deed": {"redrive"}, "reason": {strings.Repeat("x", 70<<10)}}, http.StatusBadRequest)
}

func TestWhenFirestoreIsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("letter", nil)
	w.down = fault.Transient(fault.FirestoreUnavailable, errors.New("read the ledger for ann@example.com: no answer"))
	for _, page := range []string{"overview", "mailboxes", "groups", "letters", "letter&id=letter", "plan&deed=redrive&id=letter", "operations", "operation&id=x"} {
		body := w.get("?page="+page, http.StatusServiceUnavailable)
		contains(t, body, "Firestore did not answer.", "firestore_unavailable")
		lacks(t, body, "ann@example.com")
	}
	w.post(url.Values{"deed": {"redrive"}, "id": {"letter"}, "before": {"2026-12-01T12:00:00Z"}}, http.StatusServiceUnavailable)
	if len(w.visits) != 9 || w.visits[0].Err == nil {
		t.Errorf("reported were %+v", w.visits)
	}
}

func TestServedOnAnyPath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{"/", "/Console", "/a/b/c"} {
		body := w.serve(httptest.NewRequest(http.MethodGet, path+"?page=operations", nil), http.StatusOK).Body.String()
		contains(t, body, "<h1>Operations</h1>", `href="?page=overview"`)
		lacks(t, body, `href="/`, `action="/`)
	}
}

// A header that holds what no address does must not get into records and logs.
func TestWho(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"":                                    "console",
		"accounts.google.com:kim@example.com": "kim@example.com",
		"  kim\x00\u202e@example.com ":        "kim@example.com",
		"accounts.google.com:":                "console",
		strings.Repeat("k", 300):              strings.Repeat("k", 200),
	} {
		w := newWorld(t)
		w.add("letter", nil)
		w.post(url.Values{"deed": {"redrive"}, "id": {"letter"}, "before": {"2026-12-01T12:00:00Z"}}, http.StatusSeeOther,
			func(r *http.Request) { r.Header["X-Goog-Authenticated-User-Email"] = []string{header} })
		if w.orders[0].Who != want {
			t.Errorf("%q is recorded as %q, want %q", header, w.orders[0].Who, want)
		}
	}
}

func TestOperationSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.operations["o1"] = ledger.OperationRecord{
		ID: "o1", Deed: ledger.DeedRedrive, StartedAt: noon, FinishedAt: noon,
		Counts:   map[string]int{"letters": 4, "redriven": 1, "failed": 1, "no_data": 1},
		Outcomes: map[string]string{"a": "redriven", "b": "failed: timeout", "c": "no_data", "d": "pending"},
	}
	w.operations["o2"] = ledger.OperationRecord{ID: "o2", StartedAt: noon.Add(-time.Minute), Counts: map[string]int{"letters": 4}}
	w.operations["o3"] = ledger.OperationRecord{ID: "o3", StartedAt: noon.Add(-48 * time.Hour), Counts: map[string]int{"letters": 4}}
	body := w.get("?page=operation&id=o1", http.StatusOK)
	contains(t, body, "1 letter failed", "1 letter is too large", "1 letter was not begun", `data-every="0"`)
	if strings.Index(body, ">a</a>") < strings.Index(body, ">b</a>") {
		t.Error("what went wrong does not come first")
	}
	contains(t, w.get("?page=operation&id=o2", http.StatusOK), "running", `data-every="2"`)
	contains(t, w.get("?page=operation&id=o3", http.StatusOK), "cut off")
}
