package page_test

import (
	"html/template"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"mailyard.internal/mailyard/shared/page"
)

func TestFromOurselves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, site, origin string
		fine               bool
	}{
		{"a form of ours", "same-origin", "https://console.example.com", true},
		{"a form of ours, in an old browser", "", "https://console.example.com", true},
		{"another site's", "cross-site", "https://evil.example", false},
		{"another site's, in an old browser", "", "https://evil.example", false},
		{"a sibling's", "same-site", "https://other.example.com", false},
		{"typed in", "none", "", false},
		{"a frame without an origin", "", "null", false},
		{"a frame without an origin that says where it is", "cross-site", "null", false},
		{"nobody's", "", "", false},
		{"another port's", "", "https://console.example.com:8443", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodPost, "https://console.example.com/Console?page=plan", nil)
			if c.site != "" {
				r.Header.Set("Sec-Fetch-Site", c.site)
			}
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			if err := page.FromOurselves(r); (err == nil) != c.fine {
				t.Errorf("it was answered %v", err)
			}
		})
	}
}

func templates(t *testing.T, content string) *template.Template {
	t.Helper()
	parsed, err := page.Templates(fstest.MapFS{"one.html": {Data: []byte(content)}, "parts/part.html": {Data: []byte(`{{define "part"}}<i>{{.}}</i>{{end}}`)}})
	if err != nil {
		t.Fatal(err)
	}
	return parsed["one.html"]
}

func TestWrite(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	f := page.Frame{Title: "A <title>", Place: "here", Summary: "Two & three", Every: 3, At: time.Unix(0, 0), Content: "<b>", Nav: []page.Link{{Text: "Me", To: "?page=me", Here: true}}}
	if err := page.Write(w, http.StatusTeapot, templates(t, `{{template "part" .}}`), f); err != nil {
		t.Fatal(err)
	}
	body := w.Body.String()
	for _, want := range []string{"<title>A &lt;title&gt; · here</title>", "<i>&lt;b&gt;</i>", `data-every="3"`, `aria-current="page"`, "Two &amp; three", "00:00:00 UTC"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if w.Code != http.StatusTeapot || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-Frame-Options") != "DENY" {
		t.Errorf("it was answered %d with %v", w.Code, w.Header())
	}
}

// Half a page is worse than none.
func TestWriteSendsNothingOfABrokenPage(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	err := page.Write(w, http.StatusOK, templates(t, "begun {{.Nothing}}"), page.Frame{Title: "x", Content: struct{}{}})
	if err == nil || w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "begun") {
		t.Errorf("it was answered %d %s, error %v", w.Code, w.Body, err)
	}
}

func TestAt(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for want, d := range map[string]time.Duration{
		"just now": -59 * time.Second, "1 min ago": -119 * time.Second, "in 3 min": 3 * time.Minute, "2 h ago": -2 * time.Hour,
		"47 h ago": -47 * time.Hour, "3 days ago": -73 * time.Hour, "in 6 days": 6*24*time.Hour + time.Hour,
	} {
		if got := page.At(now, now.Add(d)); got.Text != want {
			t.Errorf("%s is told as %q, want %q", d, got.Text, want)
		}
	}
	if got := page.At(now, time.Time{}); got != (page.Moment{}) {
		t.Errorf("no time is told as %+v", got)
	}
}
