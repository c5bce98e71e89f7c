package mailboxview_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"mailyard.internal/mailyard/scripts/local/mailboxview"
	"mailyard.internal/mailyard/shared/gmailsim"
)

type bench struct {
	t      *testing.T
	sim    *gmailsim.Sim
	view   *mailboxview.View
	linked []string
	refuse error
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, sim: gmailsim.New(gmailsim.Config{})}
	b.view = &mailboxview.View{Sim: b.sim, Console: "http://127.0.0.1:8080/Console", Now: time.Now, Link: func(_ context.Context, address, token string) error {
		b.linked = append(b.linked, address+" "+token)
		return b.refuse
	}}
	return b
}

// send sends a form from the page itself, unless edit says otherwise, and returns the page that answers.
func (b *bench) send(status int, edit func(*http.Request), pairs ...string) string {
	b.t.Helper()
	form := url.Values{"mailbox": {"ann@example.com"}}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if edit != nil {
		edit(r)
	}
	answer := httptest.NewRecorder()
	b.view.ServeHTTP(answer, r)
	if answer.Code != status {
		b.t.Fatalf("%v was answered %d: %s", pairs, answer.Code, answer.Body)
	}
	return answer.Body.String()
}

func (b *bench) page() string {
	b.t.Helper()
	answer := httptest.NewRecorder()
	b.view.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/?mailbox=ann@example.com", nil))
	if answer.Code != http.StatusOK {
		b.t.Fatalf("the page was answered %d", answer.Code)
	}
	return answer.Body.String()
}

// newest are the labels of the newest message, and its id.
func (b *bench) newest() (string, string) {
	b.t.Helper()
	box, ok := b.sim.Mailbox("ann@example.com")
	if !ok {
		b.t.Fatal("there is no mailbox")
	}
	listed, _ := box.Newest(1)
	if len(listed) == 0 {
		return "", ""
	}
	return strings.Join(listed[0].Labels, " "), listed[0].ID
}

func TestWhatAPersonCanDo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if page := b.page(); !strings.Contains(page, "No mailbox yet") || !strings.Contains(page, `href="http://127.0.0.1:8080/Console"`) {
		t.Errorf("before anything the page says %s", page)
	}
	b.send(http.StatusSeeOther, nil, "do", "link")
	if len(b.linked) != 1 || b.linked[0] != "ann@example.com "+mailboxview.TokenOf("ann@example.com") {
		t.Fatalf("linked was %v", b.linked)
	}
	b.send(http.StatusSeeOther, nil, "do", "deliver", "from", "Bo <bo@example.org>", "subject", "Hello <b>", "text", "x", "count", "3")
	if page := b.page(); !strings.Contains(page, "Hello &lt;b&gt; (3)") || !strings.Contains(page, "3 messages, 3 unread") {
		t.Errorf("after three deliveries the page says %s", page)
	}
	_, id := b.newest()
	for _, step := range []struct{ do, labels string }{
		{"read", "INBOX"}, {"unread", "INBOX UNREAD"}, {"trash", "UNREAD TRASH"}, {"untrash", "UNREAD"},
	} {
		b.send(http.StatusSeeOther, nil, "do", step.do, "id", id)
		if labels, _ := b.newest(); labels != step.labels {
			t.Errorf("after %s the labels are %s, want %s", step.do, labels, step.labels)
		}
	}
	b.send(http.StatusSeeOther, nil, "do", "delete", "id", id)
	if _, newest := b.newest(); newest == id {
		t.Error("a deleted message is still there")
	}
}

// A message that is delivered poisoned is so before anybody can fetch it.
func TestPoison(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send(http.StatusSeeOther, nil, "do", "link")
	b.send(http.StatusSeeOther, nil, "do", "deliver", "from", "bo@example.org", "subject", "Hello", "count", "2", "status", "400")
	_, id := b.newest()
	if faults := b.sim.Faults(); len(faults) != 2 {
		t.Fatalf("the faults are %v", faults)
	}
	if page := b.page(); strings.Count(page, "poisoned: 400") != 2 || !strings.Contains(page, "messages.get of message "+id+" answers 400") {
		t.Errorf("the page says %s", page)
	}
	b.send(http.StatusSeeOther, nil, "do", "poison", "id", id, "status", "500") // it is already
	b.send(http.StatusSeeOther, nil, "do", "mend", "id", id)
	if faults := b.sim.Faults(); len(faults) != 1 {
		t.Errorf("after one was mended the faults are %v", faults)
	}
	b.send(http.StatusSeeOther, nil, "do", "poison", "id", id, "status", "500")
	b.send(http.StatusSeeOther, nil, "do", "mend-all")
	if faults := b.sim.Faults(); len(faults) != 0 {
		t.Errorf("after all were mended the faults are %v", faults)
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send(http.StatusSeeOther, nil, "do", "link")
	for _, c := range []struct {
		say   string
		pairs []string
	}{
		{"1 to 200", []string{"do", "deliver", "count", "201"}},
		{"1 to 200", []string{"do", "deliver", "count", "many"}},
		{"cannot be done here", []string{"do", "burn"}},
		{"no such message", []string{"do", "read", "id", "ffff"}},
		{"500 or 400", []string{"do", "poison", "id", "x", "status", "200"}},
		{"there is no such mailbox", []string{"do", "read", "mailbox", "none@example.com"}},
		{"is no address", []string{"do", "link", "mailbox", "nobody"}},
	} {
		if body := b.send(http.StatusBadRequest, nil, c.pairs...); !strings.Contains(body, c.say) {
			t.Errorf("%v is told as %s", c.pairs, body)
		}
	}
	b.refuse = errors.New("no answer")
	if body := b.send(http.StatusBadRequest, nil, "do", "link", "mailbox", "kim@example.com"); !strings.Contains(body, "could not be linked: no answer") {
		t.Errorf("a failed link is told as %s", body)
	}
	b.send(http.StatusForbidden, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, "do", "deliver", "subject", "forged", "count", "1")
	if _, id := b.newest(); id != "" {
		t.Error("another site's page delivered a message")
	}
}
