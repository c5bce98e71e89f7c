package webhook_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"mailyard.internal/mailyard/shared/alert"
	"mailyard.internal/mailyard/shared/config"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/webhook"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, kind config.AlertKind, serve http.HandlerFunc) *webhook.Webhook {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	w, err := webhook.New(config.Config{AlertWebhook: server.URL + "/secret-path", AlertKind: kind}, func() time.Time { return noon })
	if err != nil {
		t.Fatal(err)
	}
	return w
}

var message = alert.Message{
	Title: "3 dead letters of message-added <b>", Lines: []string{"Open: 3 & more @everyone"},
	Link: "https://console.cloud.google.com/x?project=p&tab=messages", Typed: "go run ./scripts/mailyard dlq list",
}

func TestFormats(t *testing.T) {
	t.Parallel()
	for kind, want := range map[config.AlertKind]string{
		config.AlertDiscord: `{"allowed_mentions":{"parse":[]},"content":"**3 dead letters of message-added <b>**\nOpen: 3 & more @everyone\n` +
			`<https://console.cloud.google.com/x?project=p&tab=messages>\n` + "`go run ./scripts/mailyard dlq list`\"}",
		config.AlertSlack: `{"text":"*3 dead letters of message-added &lt;b&gt;*\nOpen: 3 &amp; more @everyone\n` +
			`<https://console.cloud.google.com/x?project=p&amp;tab=messages|Look at it in the Cloud Console>\n` + "`go run ./scripts/mailyard dlq list`\"}",
		config.AlertGoogleChat: `{"text":"*3 dead letters of message-added <b>*\nOpen: 3 & more @everyone\n` +
			`<https://console.cloud.google.com/x?project=p&tab=messages|Look at it in the Cloud Console>\n` + "`go run ./scripts/mailyard dlq list`\"}",
	} {
		var got []byte
		w := open(t, kind, func(w http.ResponseWriter, r *http.Request) {
			got, _ = io.ReadAll(r.Body)
			if r.Method != http.MethodPost || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
				t.Errorf("%s: %s with %s", kind, r.Method, r.Header.Get("Content-Type"))
			}
			w.WriteHeader(http.StatusNoContent)
		})
		if err := w.Post(t.Context(), message); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		var g, e any
		if json.Unmarshal(got, &g) != nil || json.Unmarshal([]byte(want), &e) != nil {
			t.Fatalf("%s: %s", kind, got)
		}
		gotText, _ := json.Marshal(g)
		wantText, _ := json.Marshal(e)
		if string(gotText) != string(wantText) {
			t.Errorf("%s: got %s\nwant %s", kind, gotText, wantText)
		}
	}
}

func TestDiscordTakesNoMoreThan2000Characters(t *testing.T) {
	t.Parallel()
	long := message
	long.Lines = []string{strings.Repeat("가", 3000)}
	w := open(t, config.AlertDiscord, func(_ http.ResponseWriter, r *http.Request) {
		var body struct{ Content string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Content) > 2000 || !strings.HasSuffix(body.Content, "가") {
			t.Errorf("%v, %d bytes", err, len(body.Content))
		}
	})
	if err := w.Post(t.Context(), long); err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		status  int
		after   string
		retryAt time.Time
	}{
		{"seconds", 429, "7", noon.Add(7 * time.Second)},
		{"fractions, as Discord's", 429, "1.5", noon.Add(1500 * time.Millisecond)},
		{"a date", 429, noon.Add(time.Minute).Format(http.TimeFormat), noon.Add(time.Minute)},
		{"a date that is past", 429, noon.Add(-time.Minute).Format(http.TimeFormat), noon},
		{"nothing", 429, "", noon.Add(time.Minute)},
		{"nonsense", 429, "soon", noon.Add(time.Minute)},
		{"more than an hour", 429, "1e300", noon.Add(time.Hour)},
		{"no such webhook", 404, "", time.Time{}},
		{"down", 503, "", time.Time{}},
		{"moved", 302, "", time.Time{}},
	} {
		w := open(t, config.AlertSlack, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/secret-path" {
				t.Errorf("%s: the alert went on to %s", c.name, r.URL.Path)
			}
			w.Header().Set("Location", "/elsewhere")
			if c.after != "" {
				w.Header().Set("Retry-After", c.after)
			}
			w.WriteHeader(c.status)
		})
		err := w.Post(t.Context(), message)
		if err == nil || strings.Contains(err.Error(), "secret-path") {
			t.Errorf("%s: %v", c.name, err)
		}
		if at, _ := fault.RetryAt(err); !at.Equal(c.retryAt) {
			t.Errorf("%s: to be called again at %v, want %v", c.name, at, c.retryAt)
		}
	}
}

func TestSlowAndGone(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	w := open(t, config.AlertDiscord, func(http.ResponseWriter, *http.Request) { <-over })
	defer close(over)
	began := time.Now()
	if err := w.Post(t.Context(), message); err == nil || strings.Contains(err.Error(), "secret-path") {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took < 4*time.Second || took > 7*time.Second {
		t.Errorf("given up after %v", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Post(ctx, message); err == nil {
		t.Error("sent after the end")
	}
	if w, err := webhook.New(config.Config{}, time.Now); w != nil || err != nil {
		t.Errorf("without a URL: %v, %v", w, err)
	}
}
