package console_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mailyard.internal/mailyard/functions/console"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// A world is all that a console works with, in memory.
type world struct {
	t       *testing.T
	console *console.Console
	now     time.Time

	mu         sync.Mutex
	entries    map[string]ledger.Entry
	standings  []console.Standing
	mirrored   console.Mirrored
	operations map[string]ledger.OperationRecord
	down       error // what every call answers
	listed     int   // entries that were read without being counted
	planned    []time.Time
	done       []console.Plan
	orders     []console.Order
	visits     []console.Visit
}

func newWorld(t *testing.T) *world {
	t.Helper()
	catalogue, err := lane.Load()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, now: noon, entries: map[string]ledger.Entry{}, operations: map[string]ledger.OperationRecord{}}
	w.console = console.New(console.Ports{
		Failures: w, Mailboxes: w, Mirror: w, Operations: w, Operator: w, Routes: catalogue.Routes(), Lanes: catalogue.Lanes,
		Project: "project", Now: func() time.Time { return w.now },
		Report: func(_ *http.Request, v console.Visit, _ time.Duration) { w.visits = append(w.visits, v) },
	})
	return w
}

func (w *world) add(id string, edit func(*ledger.Entry)) ledger.Entry {
	e := ledger.Entry{
		ID: id, State: ledger.Dead, Consumer: "MessageAdded", Topic: "gmail-message-added", Code: fault.BadRequest, Fingerprint: "f1",
		Error: "messages.get of a1/m1: got 400", Attempts: 1, FirstFailedAt: noon.Add(-time.Hour), LastFailedAt: noon.Add(-time.Minute), DeadAt: noon.Add(-time.Minute),
		Subject: ledger.Subject{EventID: id, Lane: "message-added", AccountID: "a1", MessageID: "m1", HistoryID: 7},
		Data:    []byte(`{"accountId":"a1"}`), Attributes: map[string]string{"ce-id": id},
	}
	if edit != nil {
		edit(&e)
	}
	w.entries[e.ID] = e
	return e
}

func (w *world) CountOfConsumer(_ context.Context, consumer string, state ledger.State) (int, error) {
	n := 0
	for _, e := range w.entries {
		if e.Consumer == consumer && e.State == state {
			n++
		}
	}
	return n, w.down
}

func (w *world) OldestDead(_ context.Context, _, consumer string) (ledger.Entry, bool, error) {
	for _, e := range w.entries {
		if e.Consumer == consumer && e.State == ledger.Dead {
			return e, true, w.down
		}
	}
	return ledger.Entry{}, false, w.down
}

func (w *world) Read(_ context.Context, id string) (ledger.Entry, bool, error) {
	if id == "" || strings.Contains(id, "/") {
		w.t.Errorf("an entry %q was asked for, which no document can be", id)
	}
	e, known := w.entries[id]
	return e, known, w.down
}

func (w *world) Entries(_ context.Context, choice console.Choice, after string, limit int) ([]ledger.Entry, error) {
	var some []ledger.Entry
	for _, e := range w.entries {
		if e.ID > after && (choice.Fingerprint == "" || choice.Fingerprint == e.Fingerprint) &&
			(choice.Consumer == "" || choice.Consumer == e.Consumer) && cmp.Or(choice.State, e.State) == e.State {
			e.Data = nil
			some = append(some, e)
		}
	}
	slices.SortFunc(some, func(a, b ledger.Entry) int { return cmp.Compare(a.ID, b.ID) })
	some = some[:min(len(some), limit)]
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed += len(some)
	return some, w.down
}

func (w *world) Standings(_ context.Context, after string, limit int) ([]console.Standing, error) {
	rest := w.standings
	for len(rest) > 0 && rest[0].Account.ID <= after {
		rest = rest[1:]
	}
	return rest[:min(len(rest), limit)], w.down
}

func (w *world) CountAccounts(_ context.Context, status mail.Status) (int, error) {
	n := 0
	for _, s := range w.standings {
		if s.Account.Status == status {
			n++
		}
	}
	return n, w.down
}

func (w *world) Mirrored(context.Context, ledger.Entry) (console.Mirrored, error) {
	return w.mirrored, w.down
}

func (w *world) Operations(context.Context, int) ([]ledger.OperationRecord, error) {
	var all []ledger.OperationRecord
	for _, r := range w.operations {
		all = append(all, r)
	}
	return all, w.down
}

func (w *world) Operation(_ context.Context, id string) (ledger.OperationRecord, bool, error) {
	r, known := w.operations[id]
	return r, known, w.down
}

func (w *world) Plan(_ ledger.Deed, entries []ledger.Entry, failedBefore time.Time, limit int) console.Plan {
	w.planned = append(w.planned, failedBefore)
	var p console.Plan
	passed := map[string]int{}
	for _, e := range entries {
		switch {
		case e.LastFailedAt.After(failedBefore):
		case e.State != ledger.Dead:
			passed[string(e.State)]++
		case len(p.Eligible) == limit:
			passed["over_limit"]++
		default:
			p.Eligible = append(p.Eligible, e.ID)
		}
	}
	for _, reason := range []string{"retrying", "redriving", "resolved", "over_limit"} {
		p.PassedOver = append(p.PassedOver, console.Passed{Reason: reason, Count: passed[reason]})
	}
	return p
}

func (w *world) Do(_ context.Context, deed ledger.Deed, plan console.Plan, order console.Order) (console.Outcome, error) {
	if w.down != nil {
		return console.Outcome{}, w.down
	}
	w.done, w.orders = append(w.done, plan), append(w.orders, order)
	id := fmt.Sprintf("%s-%d", deed, len(w.done))
	r := ledger.OperationRecord{ID: id, Deed: deed, Who: order.Who, Reason: order.Reason, Filter: order.Filter, Outcomes: map[string]string{}, StartedAt: w.now, FinishedAt: w.now}
	for _, letter := range plan.Eligible {
		e := w.entries[letter]
		e.State = ledger.Redriving
		w.entries[letter] = e
		r.Outcomes[letter] = "redriven"
	}
	r.Counts = map[string]int{"letters": len(plan.Eligible), "redriven": len(plan.Eligible)}
	w.operations[id] = r
	return console.Outcome{Operation: id, Done: len(plan.Eligible)}, nil
}

// get opens a page, which must have the status.
func (w *world) get(query string, status int) string {
	w.t.Helper()
	return w.serve(httptest.NewRequest(http.MethodGet, "/Console"+query, nil), status).Body.String()
}

// post sends a form from a page of the console.
func (w *world) post(form url.Values, status int, edit ...func(*http.Request)) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/Console?page=plan", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, f := range edit {
		f(r)
	}
	return w.serve(r, status)
}

func (w *world) serve(r *http.Request, status int) *httptest.ResponseRecorder {
	w.t.Helper()
	answer := httptest.NewRecorder()
	w.console.ServeHTTP(answer, r)
	if answer.Code != status {
		w.t.Fatalf("%s %s was answered %d, want %d: %s", r.Method, r.URL, answer.Code, status, mainOf(answer.Body.String()))
	}
	return answer
}

func contains(t *testing.T, body string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q; it has\n%s", want, mainOf(body))
		}
	}
}

// mainOf is what a page says, without what stands around it.
func mainOf(body string) string {
	_, rest, _ := strings.Cut(body, "<main")
	said, _, _ := strings.Cut(rest, "<script>")
	return said
}

func lacks(t *testing.T, body string, unwanted ...string) {
	t.Helper()
	for _, not := range unwanted {
		if strings.Contains(body, not) {
			t.Errorf("the page has %q", not)
		}
	}
}

func request(t *testing.T, query string) *http.Request {
	t.Helper()
	return httptest.NewRequest(http.MethodGet, "/Console"+query, nil)
}

// hashOf is what a policy calls a style or script.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
