package content

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/api/gmail/v1"
	"pgregory.net/rapid"

	mailyard "mailyard.internal/mailyard/shared/mail"
)

func checkLine(t testing.TB, s string, limit int) {
	t.Helper()
	if len(s) > limit || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		t.Errorf("%d bytes, limit %d: %.200q", len(s), limit, s)
	}
}

func checkSummary(t testing.TB, s mailyard.Summary) {
	t.Helper()
	checkLine(t, s.From, maxLine)
	checkLine(t, s.Subject, maxLine)
	checkLine(t, s.Snippet, maxLine)
	if s.Date.Year() < 1 || s.Date.Year() > 9999 {
		t.Errorf("date %v", s.Date)
	}
	for _, list := range [][]string{s.To, s.Cc} {
		if len(list) > maxRecipients || len(strings.Join(list, "")) > maxRecipientsSize {
			t.Errorf("%d recipients", len(list))
		}
		for _, entry := range list {
			checkLine(t, entry, maxLine)
			if entry == "" {
				t.Error("an empty recipient")
			}
		}
	}
}

// Syntax without end takes time in proportion to its length, and nothing else.
func TestHostileHeaders(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{
		"(", `"`, `\\`, "<", ",", ":", "a@[", "[", "a <", "=?a?q?", "=?x?q?a?= =?y?q?b?= ", "=?a?b?QQ==?=", "\r\n ", "\x00", "\xff", `;a*0="`, "*0*=a'",
	} {
		value := strings.Repeat(unit, 64<<10/len(unit))
		p := &gmail.MessagePart{MimeType: value, Filename: value, PartId: value, Body: &gmail.MessagePartBody{Data: value}}
		for _, name := range []string{"From", "To", "Cc", "Subject", "Date", "Content-Type", "Content-Disposition"} {
			p.Headers = append(p.Headers, &gmail.MessagePartHeader{Name: name, Value: value})
		}
		s, b := Of(&gmail.Message{Payload: p, Snippet: value}, true)
		checkSummary(t, s)
		checkBody(t, b)
	}
}

// Any bytes in any charset, known or not, become valid text.
func TestAnyCharset(t *testing.T) {
	t.Parallel()
	labels := rapid.SampledFrom(strings.Fields(`utf-8 utf-16 utf-16be utf-16le utf-32 utf-7 iso-8859-1 iso-8859-8-i koi8-r
		macintosh windows-1258 gbk gb18030 hz-gb-2312 big5 euc-jp iso-2022-jp shift_jis euc-kr cp949 iso-2022-kr iso-2022-cn
		replacement x-user-defined ibm037 cp437 ebcdic x-unknown`))
	rapid.Check(t, func(t *rapid.T) {
		label, kind := labels.Draw(t, "charset"), rapid.SampledFrom([]string{"text/plain", "text/html"}).Draw(t, "kind")
		data := string(rapid.SliceOf(rapid.Byte()).Draw(t, "data"))
		b := body(leaf(kind+"; charset="+label, data))
		if !utf8.ValidString(b.Text + b.HTML) {
			t.Errorf("%q in %s became %q", data, label, b.Text+b.HTML)
		}
	})
}

func FuzzOf(f *testing.F) {
	f.Add("=?EUC-KR?B?vsiz58fPvLy/5A==?=", "=?euc-kr?Q?=B1=E8?= <kim@example.com>", "text/plain; charset=euc-kr", "", "aGVsbG8", int64(0))
	f.Add("=?utf-8?Q?=EA=B0?= =?utf-8?Q?=80?=", `"Kim, Lee" <a@example.com>, (x) b@example.com`, "text/html; name*=utf-8''%EA", "inline", b64("<meta charset=x>\xbe\xc8"), int64(1))
	f.Add("a\x00\xff", "undisclosed-recipients:;", "text/plain; charset=iso-2022-kr", "", b64("\x1b$)C\x0e>H\x0f"), int64(-1<<62))
	f.Add("=?x?q?a", `g: "x <a@b, c@d; e`, "multipart/mixed; =", "=?utf-8?b?6rCALnBkZg?=", "=_-+/=", int64(1)<<62)
	f.Fuzz(func(t *testing.T, subject, addresses, contentType, filename, data string, millis int64) {
		part := func(kind, name string) *gmail.MessagePart {
			return &gmail.MessagePart{
				PartId: subject, MimeType: kind, Filename: name, Body: &gmail.MessagePartBody{Data: data, Size: millis},
				Headers: []*gmail.MessagePartHeader{
					{Name: "Content-Type", Value: contentType}, {Name: "Content-Disposition", Value: filename},
				},
			}
		}
		m := &gmail.Message{InternalDate: millis, SizeEstimate: millis, Snippet: subject, Payload: &gmail.MessagePart{
			MimeType: "multipart/mixed",
			Parts:    []*gmail.MessagePart{part("", ""), part("text/plain", ""), part("text/html", ""), part(contentType, filename), nil},
			Headers: []*gmail.MessagePartHeader{
				nil, {Name: "Subject", Value: subject}, {Name: "Date", Value: subject}, {Name: "From", Value: addresses},
				{Name: "To", Value: addresses}, {Name: "to", Value: subject}, {Name: "Cc", Value: data},
			},
		}}
		s, b := Of(m, true)
		checkSummary(t, s)
		checkBody(t, b)
		if _, b := Of(m, false); b.Text != "" || b.HTML != "" {
			t.Error("a body was kept")
		}
	})
}

// Whatever a well-behaved mailer encodes is read back.
func TestNamesComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := clean(rapid.StringN(1, 40, 200).Draw(t, "name"))
		if name == "" || strings.HasPrefix(name, "\uFEFF") {
			t.Skip("nothing to read")
		}
		var words []string // cut anywhere, inside letters too
		for rest := name; rest != ""; {
			n := rapid.IntRange(1, min(len(rest), 40)).Draw(t, "cut")
			words = append(words, "=?UTF-8?B?"+b64std(rest[:n])+"?=")
			rest = rest[n:]
		}
		header := strings.Join(words, "\r\n ")
		s, _ := Of(summarised("Subject", header, "From", header+" <a@example.com>"), true)
		if s.Subject != name {
			t.Errorf("subject %q, want %q", s.Subject, name)
		}
		if s.From != name+" <a@example.com>" {
			t.Errorf("sender %q, want %q", s.From, name)
		}
	})
}

// Truncation keeps a beginning, whole characters and the limit.
func TestCut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, n := rapid.String().Draw(t, "s"), rapid.IntRange(-2, 50).Draw(t, "n")
		got := cut(s, n)
		if !strings.HasPrefix(s, got) || !utf8.ValidString(got) || len(got) > max(n, 0) || len(got) < min(len(s), n)-utf8.UTFMax+1 {
			t.Errorf("cut(%q, %d) = %q", s, n, got)
		}
	})
}

func TestPure(t *testing.T) {
	t.Parallel()
	m := &gmail.Message{InternalDate: time.Now().UnixMilli(), Payload: multi("mixed", leaf("text/plain", "a"), leaf("image/png", "b"))}
	s1, b1 := Of(m, true)
	s2, b2 := Of(m, true)
	equal(t, s2, s1)
	equal(t, b2, b1)
	s, b := Of(nil, true)
	equal(t, s, mailyard.Summary{})
	equal(t, b, mailyard.Body{})
}

func BenchmarkLargeBody(b *testing.B) {
	m := &gmail.Message{Payload: leaf("text/plain", strings.Repeat("가", 1<<20))}
	b.ReportAllocs()
	for b.Loop() {
		Of(m, true)
	}
}
