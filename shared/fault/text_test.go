package fault_test

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"mailyard.internal/mailyard/shared/fault"
)

func TestTextIsRedacted(t *testing.T) {
	t.Parallel()
	// Put together here, so that no scanner takes them for real ones.
	const jwt = "eyJ" + "hbGciOiJSUzI1NiJ9.eyJ" + "zdWIiOiIxIn0.c2lnbmF0dXJl"
	for _, c := range []struct{ name, text, want string }{
		{"nothing to hide", "list history of account 0a1b after 99: 503 Service Unavailable", "list history of account 0a1b after 99: 503 Service Unavailable"},
		{"an address", "no mailbox kim.lee+x@example.com here", "no mailbox <address> here"},
		{"an address in angle brackets", "to Kim <kim@example.com>, Lee <lee@example.com>", "to Kim <<address>>, Lee <<address>>"},
		{"an address in JSON", `{"email":"kim@example.com"}`, `{"email":"<address>"}`},
		{"an address with a quoted name", `for "kim lee"@example.com`, `for <address>`},
		{"an address in a URL's path", "GET /users/kim%40example.com/watch: 404", "GET /users/<address>/watch: 404"},
		{"an address beyond ASCII", "김@예시.example is unknown", "<address> is unknown"},
		{"a password in a URL", "dial https://user:secret@host.example/x", "dial https://user:<address>/x"},
		{"a bearer token", "Authorization: Bearer abc.def-123 refused", "Authorization: <token> refused"},
		{"a bearer token in lower case", "bearer  abc", "<token>"},
		{"a JWT", "token " + jwt + " expired", "token <token> expired"},
		{"a JWT cut short", "token eyJ" + "hbGciOi.eyJ expired", "token <token> expired"},
		{"an access token", "got ya29." + "a0AfH6SM for 3599 s", "got <token> for 3599 s"},
		{"a refresh token", "grant 1//" + "0gabc-def_g is revoked", "grant <token> is revoked"},
		{"a refresh token in a form", "refresh_token=1//" + "0gabc", "refresh_token=<token>"},
		{"long base64", "key " + strings.Repeat("aB3+/", 8) + "== bad", "key <token> bad"},
		{"long hexadecimal", "digest " + strings.Repeat("0a", 20), "digest <token>"},
		{"an id of 39 characters", strings.Repeat("a", 39), strings.Repeat("a", 39)},
		{"a URL's query", `Post "https://host.example/token?code=4abc&state=x": refused`, `Post "https://host.example/token": refused`},
		{"control characters", "a\r\nb\x00c\td\x1b[31m", "a  b c d [31m"},
		{"other line ends", "a\u2028b\u2029c\u0085d", "a b c d"},
		{"invalid UTF-8", "a\xff\xfeb", "a\uFFFDb"},
		{"invalid UTF-8 within an address", "kim\xff@example.com", "<address>"},
		{"nothing", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := fault.Text(errors.New(c.text)); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestTextIsCutAtACharacter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       int
	}{
		{"as long as may be", strings.Repeat("ab ", 170) + "cd", 512},
		{"one too long", strings.Repeat("ab ", 171), 512},
		{"three-byte letters", strings.Repeat("가", 400), 510},
		{"a letter across the end", strings.Repeat("a ", 255) + "a가", 511},
		{"four-byte letters", strings.Repeat("😀", 200), 512},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := fault.Text(errors.New(c.text))
			if len(got) != c.want || !utf8.ValidString(got) || !strings.HasPrefix(c.text, got) {
				t.Errorf("%d bytes, want %d: %q", len(got), c.want, got)
			}
		})
	}
}

func TestTextOfAnything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.OneOf(
			rapid.String(),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
			rapid.SampledFrom([]string{" kim@example.com ", "?a=b", "Bearer x", "\n", strings.Repeat("k", 300)}),
		)).Draw(t, "parts")
		got := fault.Text(errors.New(strings.Join(parts, " ")))
		if len(got) > fault.MaxText || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
			t.Fatalf("%q is no line of valid UTF-8 of at most 512 bytes", got)
		}
		if strings.Contains(got, "kim@") {
			t.Fatalf("%q names an address", got)
		}
	})
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	const text = "messages.get of 0a1b2c/18c0ffee: 503 Service Unavailable"
	first := fault.Fingerprint("MessageAdded", fault.GmailUnavailable, text)
	if len(first) != 12 || strings.Trim(first, "0123456789abcdef") != "" {
		t.Errorf("the fingerprint is %q", first)
	}
	for _, same := range []string{"messages.get of 9f8e7d/18c0fff0: 503 Service Unavailable", "messages.get of a1/m-2_x: 500 Service Unavailable"} {
		if fault.Fingerprint("MessageAdded", fault.GmailUnavailable, same) != first {
			t.Errorf("%q is taken for another cause than %q", same, text)
		}
	}
	for name, other := range map[string]string{
		"another consumer": fault.Fingerprint("MessageRead", fault.GmailUnavailable, text),
		"another code":     fault.Fingerprint("MessageAdded", fault.Timeout, text),
		"another text":     fault.Fingerprint("MessageAdded", fault.GmailUnavailable, "history.list of 0a1b2c: 503 Service Unavailable"),
	} {
		if other == first {
			t.Errorf("%s has the same fingerprint", name)
		}
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text  string
		bytes int
		want  string
	}{{"abc", 3, "abc"}, {"abc", 2, "ab"}, {"가", 2, ""}, {"a가", 4, "a가"}, {"a가", 3, "a"}, {"abc", 0, ""}, {"", 5, ""}} {
		if got := fault.Cut(c.text, c.bytes); got != c.want {
			t.Errorf("Cut(%q, %d) is %q, want %q", c.text, c.bytes, got, c.want)
		}
	}
}
