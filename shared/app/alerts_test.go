package app_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// A chat stands for Slack.
type chat struct {
	*httptest.Server
	mu       sync.Mutex
	messages []string
	answer   func(http.ResponseWriter) // nil: as Slack does when all is well
}

func newChat(t *testing.T) *chat {
	c := &chat{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.answer != nil {
			c.answer(w)
			return
		}
		c.messages = append(c.messages, string(body))
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *chat) env() map[string]string {
	return map[string]string{"MAILYARD_ALERT_WEBHOOK": c.URL + "/chat", "MAILYARD_ALERT_KIND": "slack"}
}

func (c *chat) answers(with func(http.ResponseWriter)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = with
}

func (c *chat) said() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.messages...)
}

// deadLetter is the push of a letter as a function publishes it when it gives an event up.
func deadLetter(y *apptest.Yard, message string, edit func(*ledger.Entry)) apptest.Push {
	e := mail.Event{AccountID: "acc1", MessageID: message, Lane: "message-added", HistoryID: 5}
	data, attributes := y.Encode(e)
	letter := ledger.Entry{
		ID: e.ID(), Consumer: "MessageAdded", Topic: "gmail-message-added", Attributes: attributes, Attempts: 4,
		Code: fault.Panicked, Error: "message " + message + " made it panic", FirstFailedAt: y.Clock.Now(), LastFailedAt: y.Clock.Now(), Revision: "r1",
	}
	if edit != nil {
		edit(&letter)
	}
	return apptest.Push{Data: data, Attributes: letter.Letter(), MessageID: message}
}

// Five thousand letters of one cause in a minute are two alerts, and another cause among them is told at
// once.
func TestManyLettersAreTwoAlerts(t *testing.T) {
	t.Parallel()
	c := newChat(t)
	y := apptest.New(t, apptest.Options{Env: c.env()})
	const many = 5000
	// Without indexes the emulator takes its time with 5,000 entries, and some of Tick's other chores may fail.
	tick := func() { y.PostBody("Tick", nil, nil) }
	post := func(p apptest.Push) {
		if status := y.Post("DeadLetter", p); status != http.StatusNoContent {
			t.Errorf("the letter %s was answered %d", p.MessageID, status)
		}
	}
	post(deadLetter(y, "m0", nil))
	if said := c.said(); len(said) != 1 || !strings.Contains(said[0], "1 dead letter of message-added (panicked)") {
		t.Fatalf("the first letter was told as %q", said)
	}
	slots := make(chan struct{}, 16)
	var wait sync.WaitGroup
	for i := 1; i < many; i++ {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			post(deadLetter(y, fmt.Sprintf("m%d", i), nil))
		})
		if i == many/2 {
			other := deadLetter(y, "other", func(e *ledger.Entry) { e.Code, e.Error = fault.NotPermitted, "no" })
			post(other)
			if said := c.said(); len(said) != 2 || !strings.Contains(said[1], "(not_permitted)") {
				t.Errorf("another cause was told as %q", said)
			}
		}
	}
	wait.Wait()
	tick()
	if said := c.said(); len(said) != 2 {
		t.Fatalf("before the window's end there are %d alerts: %q", len(said), said)
	}
	y.Clock.Advance(11 * time.Minute)
	for range 3 {
		tick()
	}
	said := c.said()
	if len(said) != 3 || !strings.Contains(said[2], fmt.Sprintf("%d dead letters of message-added", many-1)) || !strings.Contains(said[2], fmt.Sprintf("Open: %d,", many)) {
		t.Fatalf("there are %d alerts: %q", len(said), said)
	}
	for _, want := range []string{"cloudpubsub/subscription/detail/gmail-message-added-dead-letter-inspect", "dlq list --fingerprint "} {
		if !strings.Contains(said[0], want) {
			t.Errorf("there is no %q in %q", want, said[0])
		}
	}
	for _, s := range said {
		if strings.Contains(s, "@") || strings.Contains(s, "made it panic") {
			t.Errorf("an alert says more than it may: %q", s)
		}
	}

	// They stay open: people are reminded once a day, and left alone in between.
	y.Clock.Advance(23 * time.Hour)
	tick()
	if said := c.said(); len(said) != 3 {
		t.Errorf("within the day there is %q", said[3:])
	}
	y.Clock.Advance(2 * time.Hour)
	tick()
	if said := c.said(); len(said) != 5 || !strings.Contains(said[3]+said[4], fmt.Sprintf("Still open: %d dead letters", many)) {
		t.Errorf("after a day there is %q", said[3:])
	}
}

// A webhook that is down, slow or wants to be left alone delays the alert. The letter is acknowledged, and
// in the ledger, and the alert comes.
func TestWebhookDown(t *testing.T) {
	t.Parallel()
	c := newChat(t)
	y := apptest.New(t, apptest.Options{Env: c.env()})
	c.answers(func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "300")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	for i := range 3 {
		if status := y.Post("DeadLetter", deadLetter(y, fmt.Sprintf("m%d", i), nil)); status != http.StatusNoContent {
			t.Errorf("answered %d", status)
		}
	}
	if n := len(y.Entries()); n != 3 {
		t.Errorf("the ledger has %d letters", n)
	}
	c.answers(nil)
	y.Clock.Advance(4 * time.Minute)
	y.Tick()
	if said := c.said(); len(said) != 0 {
		t.Fatalf("called again before its time: %q", said)
	}
	y.Clock.Advance(2 * time.Minute)
	y.Tick()
	if said := c.said(); len(said) != 1 || !strings.Contains(said[0], "3 dead letters") {
		t.Fatalf("after its time there is %q", said)
	}

	// Down for hours, with other letters: one alert in the end.
	c.answers(func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) })
	y.Clock.Advance(alertWindow)
	y.Tick()
	for i := range 4 {
		y.Post("DeadLetter", deadLetter(y, fmt.Sprintf("n%d", i), nil))
		y.Clock.Advance(time.Hour)
		if status := y.PostBody("Tick", nil, nil); status != http.StatusInternalServerError {
			t.Errorf("Tick answered %d while the webhook is down", status)
		}
	}
	c.answers(nil)
	y.Clock.Advance(2 * time.Hour)
	y.Tick()
	if said := c.said(); len(said) != 2 || !strings.Contains(said[1], "dead letters of message-added") || !strings.Contains(said[1], "Open: 7,") {
		t.Errorf("in the end there is %q", said)
	}
	checkSecrets(t, y, "/chat")
}

const alertWindow = 10 * time.Minute

// A late copy of a letter that is resolved neither reopens it nor is told.
func TestLateCopyOfAResolvedLetter(t *testing.T) {
	t.Parallel()
	c := newChat(t)
	y := apptest.New(t, apptest.Options{Env: c.env()})
	letter := deadLetter(y, "m1", nil)
	y.Post("DeadLetter", letter)
	id := letter.Attributes[ledger.LetterID]
	for _, end := range []string{"resolved", "discarded"} {
		y.Clock.Advance(2 * time.Hour)
		if _, err := y.DB.Change(t.Context(), id, func(e ledger.Entry) (ledger.Entry, bool) {
			if end == "discarded" {
				return e.Discard("discard-1", y.Clock.Now()), true
			}
			return e.Settled(y.Clock.Now()), true
		}); err != nil {
			t.Fatal(err)
		}
		before, _, err := y.DB.Read(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		told := len(c.said())
		for range 2 {
			if status := y.Post("DeadLetter", letter); status != http.StatusNoContent {
				t.Errorf("the late copy was answered %d", status)
			}
		}
		if after, _, err := y.DB.Read(t.Context(), id); err != nil || !after.Version.Equal(before.Version) || after.State != ledger.Resolved {
			t.Errorf("%s, and a late copy made it %+v (%v)", end, after, err)
		}
		y.Tick()
		if said := c.said(); len(said) != told {
			t.Errorf("%s, and a late copy was told as %q", end, said[told:])
		}
	}
}

// A watch that is about to lapse is told, once a day.
func TestLapsingWatchIsTold(t *testing.T) {
	t.Parallel()
	c := newChat(t)
	y := apptest.New(t, apptest.Options{Env: c.env()})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := y.LinkAndWatch(box, "refresh")
	if err := y.DB.ChangeAccount(t.Context(), account.ID, func(a mail.Account) (mail.Account, bool) {
		a.WatchExpiresAt = y.Clock.Now().Add(30 * time.Hour)
		return a, true
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := y.Gmail.AddFault(gmailDown); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		y.PostBody("Renew", nil, nil)
		y.Clock.Advance(time.Hour)
	}
	said := c.said()
	if len(said) != 1 || !strings.Contains(said[0], "Watches about to lapse: 1") || strings.Contains(said[0], "@") {
		t.Errorf("told was %q", said)
	}
}

// What the webhook says of its patience holds for every alert, and for every instance.
func TestRetryAfterHoldsEveryAlert(t *testing.T) {
	t.Parallel()
	c := newChat(t)
	y := apptest.New(t, apptest.Options{Env: c.env()})
	other := y.Instance()
	calls := 0
	c.answers(func(w http.ResponseWriter) {
		calls++
		w.Header().Set("Retry-After", "1800")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	for i, text := range []string{"one", "two", "three", "four"} {
		push := y.Body(deadLetter(y, fmt.Sprintf("m%d", i), func(e *ledger.Entry) { e.Error = text }))
		if status := y.PostTo([]string{y.Functions.URL, other}[i%2], "DeadLetter", push, nil); status != http.StatusNoContent {
			t.Errorf("answered %d", status)
		}
	}
	y.Clock.Advance(5 * time.Minute)
	y.PostBody("Tick", nil, nil)
	if calls != 1 {
		t.Errorf("the webhook was called %d times within its patience", calls)
	}
	c.answers(nil)
	for range 8 {
		y.Clock.Advance(5 * time.Minute)
		y.PostBody("Tick", nil, nil)
	}
	if said := c.said(); len(said) != 4 {
		t.Errorf("in the end there is %q", said)
	}
}
