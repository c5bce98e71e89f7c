package digest

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	netmail "net/mail"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html"

	"mailyard.internal/mailyard/shared/mail"
	"mailyard.internal/mailyard/shared/mailing"
)

// hostile is what others may write into a mailbox.
func hostile() []mail.Summary {
	return []mail.Summary{
		{From: `<script>alert(1)</script> <eve@example.com>`, Subject: `<img src=x onerror="alert(1)"><a href="javascript:alert(2)">win</a></p></div></body>`},
		{From: "Bad\r\nBcc: everybody@example.com", Subject: "line one\r\nX-Injected: yes\r\n\r\n<b>body</b>"},
		{From: "שלום עולם <rtl@example.com>", Subject: "مرحبا بالعالم: עברית mixed with English 123"},
		{From: "Mallory <m@example.com>", Subject: "invoice\u202Efdp.exe\u202C and \u2066isolated\u2069"},
		{From: "🦊 Fox <fox@example.com>", Subject: "👩‍👩‍👧‍👦 family 🎉🎉 e\u0301 ﷽"},
		{From: "Long <long@example.com>", Subject: strings.Repeat("W", 10_000)},
		{From: strings.Repeat("long name ", 1000) + "<name@example.com>", Subject: strings.Repeat("word ", 2_000)},
		{From: "Template {{.Unsubscribe}}", Subject: "{{printf \"%s\" .Mailbox}} ${x} %s %00 \x00\x07\x1b[31m"},
		{From: "", Subject: ""},
		{From: "\xff\xfe broken", Subject: "caf\xe9 \ufeff\u2028next line\u2029"},
	}
}

func composed(t *testing.T) []byte {
	t.Helper()
	at := time.Date(2026, 11, 30, 7, 0, 0, 0, time.UTC)
	s := mailing.Subscriber{ID: "0123456789abcdef0123", Email: "kim@example.com", Frequency: mailing.Daily, Timezone: "Europe/Zurich", Sequence: 7}
	senders, others := mailing.NewsOf(hostile(), 4321)
	m := mailing.Make(s, "2026-11-30", mailing.Payload{
		Mailbox: "kim@example.com", Since: at.AddDate(0, 0, -1), Until: at, Unread: 1, New: 4321, Senders: senders, Others: others, DeadLetters: 2,
	}, at)
	c := NewComposer("digests@example.com", func(id string) (string, error) {
		return "https://mail.example.com/Unsubscribe?token=eyJ" + strings.Repeat("a", 180) + "." + id, nil
	}, func() time.Time { return at })
	raw, err := c.Compose(m, s)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A mailbox full of what others like to write makes a well-formed mail and harmless HTML. With
// MAILYARD_TEST_DIGEST_HTML the HTML is written to that file, to be looked at.
func TestComposeHostile(t *testing.T) {
	t.Parallel()
	raw := composed(t)
	for i, line := range bytes.Split(raw, []byte("\r\n")) {
		if len(line) > 998 || bytes.ContainsAny(line, "\r\n\x00") {
			t.Errorf("line %d has %d bytes, or a stray end: %.80q", i, len(line), line)
		}
	}
	m, err := netmail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Subject": "Daily digest: 4321 new, 1 unread", "From": `"Mailyard" <digests@example.com>`, "To": "<kim@example.com>",
		"List-Unsubscribe-Post": "List-Unsubscribe=One-Click", "X-Mailyard-Mailing": "0123456789abcdef0123.7",
	} {
		if got := m.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if link := m.Header.Get("List-Unsubscribe"); !strings.HasPrefix(link, "<https://mail.example.com/Unsubscribe?token=eyJ") || !strings.HasSuffix(link, ".0123456789abcdef0123>") || strings.ContainsAny(link, " \t") {
		t.Errorf("List-Unsubscribe is %q", link)
	}
	for _, name := range []string{"Bcc", "X-Injected", "Cc"} {
		if m.Header.Get(name) != "" {
			t.Errorf("a header %s was injected", name)
		}
	}
	text, htmlBody := parts(t, m)
	if !utf8.ValidString(text) || !utf8.ValidString(htmlBody) {
		t.Error("a body is not UTF-8")
	}
	for name, body := range map[string]string{"text": text, "html": htmlBody} {
		if len(body) > 20_000 {
			t.Errorf("the %s has %d bytes", name, len(body))
		}
		if strings.ContainsAny(body, "\u202e\u2066\x00\x1b\u2028") {
			t.Errorf("the %s has characters that steer", name)
		}
		for _, want := range []string{"مرحبا بالعالم", "👩‍👩‍👧‍👦", "…", "(no subject)", "(no sender)"} {
			if !strings.Contains(body, want) {
				t.Errorf("the %s has no %q", name, want)
			}
		}
	}
	if strings.Contains(text, "\nX-Injected") || strings.Contains(text, "\n<b>body</b>") {
		t.Error("a subject has begun a line of its own")
	}
	assertHarmless(t, htmlBody)
	if file := os.Getenv("MAILYARD_TEST_DIGEST_HTML"); file != "" {
		if err := os.WriteFile(file, []byte(htmlBody), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// assertHarmless parses the HTML as a browser does, and allows what the template has and nothing else.
func assertHarmless(t *testing.T, body string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{
		"html": true, "head": true, "meta": true, "title": true, "body": true, "div": true, "h1": true, "p": true,
		"strong": true, "span": true, "bdi": true, "a": true,
	}
	links, subjects := 0, 0
	for n := range root.Descendants() {
		if n.Type == html.TextNode && strings.Contains(n.Data, "<img src=x onerror") {
			subjects++
		}
		if n.Type != html.ElementNode {
			continue
		}
		if !allowed[n.Data] {
			t.Errorf("there is a <%s>", n.Data)
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "src" {
				t.Errorf("<%s> has %s", n.Data, a.Key)
			}
			if a.Key == "href" {
				if links++; !strings.HasPrefix(a.Val, "https://mail.example.com/Unsubscribe?token=") {
					t.Errorf("there is a link to %.60s", a.Val)
				}
			}
		}
	}
	if links != 1 || subjects != 1 {
		t.Errorf("%d links, and the hostile subject stands as text %d times", links, subjects)
	}
}

func parts(t *testing.T, m *netmail.Message) (text, html string) {
	t.Helper()
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/alternative" {
		t.Fatal(kind, err)
	}
	for reader := multipart.NewReader(m.Body, params["boundary"]); ; {
		part, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return text, html
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(part)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(part.Header.Get("Content-Type"), "text/html") {
			html = string(data)
		} else {
			text = string(data)
		}
	}
}

func TestComposeRefusesBadAddresses(t *testing.T) {
	t.Parallel()
	c := NewComposer("digests@example.com", func(string) (string, error) { return "https://x", nil }, time.Now)
	for _, address := range []string{"", "kim", "kim@example.com\r\nBcc: a@example.com", "a@example.com, b@example.com"} {
		raw, err := c.Compose(mailing.Mailing{Frequency: mailing.Daily}, mailing.Subscriber{ID: "s", Email: address})
		if !errors.Is(err, errBadMail) || len(raw) > 0 || strings.Contains(err.Error(), "example.com") {
			t.Errorf("%q: %v", address, err)
		}
	}
}
