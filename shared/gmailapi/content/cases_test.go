package content

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/api/gmail/v1"

	mailyard "mailyard.internal/mailyard/shared/mail"
)

// message reads a payload as Gmail sends it.
func message(t testing.TB, payload string) *gmail.Message {
	t.Helper()
	m := &gmail.Message{Id: "m1"}
	if err := json.Unmarshal([]byte(payload), &m.Payload); err != nil {
		t.Fatal(err)
	}
	return m
}

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func b64std(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// The cases from the field (shared/cases) that are about content, named as there.
func TestCases(t *testing.T) {
	t.Parallel()
	long := b64(strings.Repeat("가", 1<<20))
	tests := []struct {
		name, payload string
		check         func(t *testing.T, s mailyard.Summary, b mailyard.Body)
	}{
		{
			"subject and sender in EUC-KR words",
			`{"headers": [{"name": "subject", "value": "=?EUC-KR?B?vsiz58fPvLy/5A==?="},
			  {"name": "From", "value": "=?euc-kr?Q?=B1=E8?= <kim@example.com>"}]}`,
			func(t *testing.T, s mailyard.Summary, b mailyard.Body) {
				want := mailyard.Summary{Subject: "안녕하세요", From: "김 <kim@example.com>"}
				equal(t, s, want)
				equal(t, b, mailyard.Body{})
			},
		},
		{
			"body in ISO-2022-JP",
			`{"mimeType": "text/plain", "headers": [{"name": "Content-Type", "value": "text/plain; charset=ISO-2022-JP"}],
			  "body": {"data": "` + b64("\x1b$B$3$s$K$A$O\x1b(B") + `"}}`,
			func(t *testing.T, _ mailyard.Summary, b mailyard.Body) {
				equal(t, b, mailyard.Body{Text: "こんにちは"})
			},
		},
		{
			"a charset nobody knows",
			`{"mimeType": "text/plain", "headers": [{"name": "Content-Type", "value": "text/plain; charset=x-unknown"}],
			  "body": {"data": "aGVsbG8"}}`,
			func(t *testing.T, _ mailyard.Summary, b mailyard.Body) {
				equal(t, b, mailyard.Body{Text: "hello"})
			},
		},
		{
			"no subject, no date, no sender, a folded and a doubled header",
			`{"headers": [{"name": "To", "value": "a@example.com,\r\n b@example.com"}, {"name": "Subject", "value": ""},
			  {"name": "X-A", "value": "1"}, {"name": "X-A", "value": "2"}]}`,
			func(t *testing.T, s mailyard.Summary, _ mailyard.Body) {
				equal(t, s, mailyard.Summary{To: []string{"a@example.com", "b@example.com"}})
			},
		},
		{
			"a body of 3 MiB of three-byte letters",
			`{"mimeType": "text/plain", "body": {"size": 3145728, "data": "` + long + `"}}`,
			func(t *testing.T, _ mailyard.Summary, b mailyard.Body) {
				if !b.Truncated || !utf8.ValidString(b.Text) {
					t.Errorf("truncated %v, valid %v", b.Truncated, utf8.ValidString(b.Text))
				}
				if b.Text != strings.Repeat("가", maxBody/3) {
					t.Errorf("text has %d bytes, not as many whole letters as fit", len(b.Text))
				}
			},
		},
		{
			"attachments only, nested three deep",
			`{"mimeType": "multipart/mixed", "parts": [{"mimeType": "multipart/related", "parts": [
			  {"mimeType": "multipart/alternative", "parts": [{"mimeType": "application/pdf",
			   "filename": "=?UTF-8?B?6rOE7JW97IScLnBkZg==?=", "body": {"attachmentId": "A1", "size": 12}}]}]}]}`,
			func(t *testing.T, _ mailyard.Summary, b mailyard.Body) {
				equal(t, b, mailyard.Body{Attachments: []mailyard.Attachment{
					{Filename: "계약서.pdf", MIMEType: "application/pdf", Size: 12},
				}})
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, b := Of(message(t, test.payload), true)
			test.check(t, s, b)
		})
	}
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want - got +:\n%s", diff)
	}
}
