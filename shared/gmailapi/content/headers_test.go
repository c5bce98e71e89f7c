package content

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/api/gmail/v1"
)

func summarised(pairs ...string) *gmail.Message {
	p := &gmail.MessagePart{}
	for i := 0; i < len(pairs); i += 2 {
		p.Headers = append(p.Headers, &gmail.MessagePartHeader{Name: pairs[i], Value: pairs[i+1]})
	}
	return &gmail.Message{Payload: p}
}

func TestSubject(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, value, want string }{
		{"plain", "Hello, world", "Hello, world"},
		{"already UTF-8", "안녕 =", "안녕 ="},
		{"adjoining words lose the space between", "=?utf-8?Q?Hel?= =?utf-8?Q?lo?=", "Hello"},
		{"folded between words", "=?utf-8?Q?Hel?=\r\n =?utf-8?B?bG8=?=", "Hello"},
		{"text between words keeps its spaces", "Re: =?utf-8?Q?Hi?= there =?utf-8?Q?you?=", "Re: Hi there you"},
		{"folded text", "one\r\n two\r\n\tthree", "one two three"},
		{"underscore and escapes", "=?UTF-8?q?a_b=5Fc?=", "a b_c"},
		{"wrong case of charset and encoding", "=?eUc-kR?b?vsiz5w==?=", "안녕"},
		{"letter cut between words, Q", "=?utf-8?Q?=EA=B0?= =?UTF-8?Q?=80?=", "가"},
		{"letter cut between words, B", "=?utf-8?B?6rA=?=\r\n =?utf-8?B?gA==?=", "가"},
		{"letter cut between words, B then Q", "=?utf-8?B?6rA=?= =?utf-8?Q?=80?=", "가"},
		{"base64 cut anywhere", "=?utf-8?B?6rCA6?= =?utf-8?B?rCA?=", "가가"},
		{"words of two charsets", "=?euc-kr?B?vsg=?= =?utf-8?B?64WV?=", "안녕"},
		{"language", "=?us-ascii*en?Q?hi?=", "hi"},
		{"no padding", "=?utf-8?B?aGVsbG8?=", "hello"},
		{"spaces and question marks in Q", "=?utf-8?Q?What? now?=", "What? now"},
		{"word within text", "a=?utf-8?Q?b?=c", "abc"},
		{"empty word", "=?utf-8?Q??=x", "x"},
		{"unknown charset", "=?x-unknown?Q?caf=E9?=", "café"},
		{"ISO-2022-JP", "=?ISO-2022-JP?B?GyRCJDMkcxsoQg==?=", "こん"},
		{"ISO-2022-KR", "=?ISO-2022-KR?B?GyQpQw4+SDNnDw==?=", "안녕"},
		{"cp949 is windows-949", "=?cp949?B?vsiz5w==?=", "안녕"},
		{"HZ", "=?hz-gb-2312?Q?~{<:Ky2;S{~}?=", "己所不欲"},
		{"broken B stays", "=?utf-8?B?!!?= x", "=?utf-8?B?!!?= x"},
		{"broken Q stays", "=?utf-8?Q?=ZZ?=", "=?utf-8?Q?=ZZ?="},
		{"unended word stays", "=?utf-8?Q?abc", "=?utf-8?Q?abc"},
		{"broken word ends a run", "=?utf-8?Q?a?= =?utf-8?Q?=Z?= =?utf-8?Q?b?=", "a =?utf-8?Q?=Z?= b"},
		{"raw UTF-8 bytes", "\xea\xb0\x80", "가"},
		{"raw Latin-1 bytes", "caf\xe9", "café"},
		{"raw ISO-2022-JP", "\x1b$B$3$s\x1b(B", "こん"},
		{"control characters", "a\x00b\x07c\u0085d\x7f", "abcd"},
		{"control characters in a word", "=?utf-8?Q?a=00b=0D=0Ac?=", "ab  c"},
		{"invalid UTF-8 in a word", "=?utf-8?Q?a=FFb?=", "a\uFFFDb"},
		{"a word is decoded once", "=?utf-8?Q?=3D=3Futf-8=3FQ=3Fx=3F=3D?=", "=?utf-8?Q?x?="},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, _ := Of(summarised("SUBJECT", test.value), true)
			equal(t, s.Subject, test.want)
		})
	}
}

func TestRecipients(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, value string
		want        []string
	}{
		{"bare", "a@example.com", []string{"a@example.com"}},
		{"in brackets", "<a@example.com>", []string{"a@example.com"}},
		{"name", "Kim Lee <a@example.com>", []string{"Kim Lee <a@example.com>"}},
		{"quoted comma", `"Kim, Lee" <a@example.com>, b@example.com`, []string{"Kim, Lee <a@example.com>", "b@example.com"}},
		{"escaped quote", `"Kim \"K\" Lee" <a@example.com>`, []string{`Kim "K" Lee <a@example.com>`}},
		{"comment as name", "a@example.com (Kim, Lee), b@example.com", []string{"Kim, Lee <a@example.com>", "b@example.com"}},
		{"word in a comment", "a@example.com (=?utf-8?Q?Kim?=)", []string{"Kim <a@example.com>"}},
		{"word", "=?utf-8?B?6rmA?= <a@example.com>", []string{"김 <a@example.com>"}},
		{"word with a comma", "=?utf-8?Q?Kim,_Lee?= <a@example.com>", []string{"Kim, Lee <a@example.com>"}},
		{"word with an encoded comma and quote", "=?utf-8?Q?Kim=2C_=22Lee=22?= <a@example.com>", []string{`Kim, "Lee" <a@example.com>`}},
		{"word in quotes", `"=?utf-8?B?6rmA?=" <a@example.com>`, []string{"김 <a@example.com>"}},
		{"letter cut between words", "=?utf-8?Q?=EA=B9?= =?utf-8?Q?=80?= <a@example.com>", []string{"김 <a@example.com>"}},
		{"raw name", "김철수 <a@example.com>", []string{"김철수 <a@example.com>"}},
		{"raw Latin-1 name", "Ren\xe9 <a@example.com>", []string{"René <a@example.com>"}},
		{"name is the address", `"A@example.com" <a@example.com>`, []string{"a@example.com"}},
		{"unquoted @ in a name", "a@example.com <a@example.com>", []string{"a@example.com"}},
		{"unquoted dots and brackets", "Kim [Ext.] <a@example.com>", []string{"Kim [Ext.] <a@example.com>"}},
		{"unquoted comma in a name", "Kim, Lee <a@example.com>, b@example.com", []string{"Kim, Lee <a@example.com>", "b@example.com"}},
		{"local name", "root, a@example.com", []string{"root", "a@example.com"}},
		{"dot before @", "foo.@example.com", []string{"foo.@example.com"}},
		{"bracket not closed", "Kim <a@example.com, b@example.com", []string{"Kim <a@example.com>", "b@example.com"}},
		{"quote not closed", `"Kim <a@example.com>, b@example.com`, []string{"Kim <a@example.com>", "b@example.com"}},
		{"empty entries", ", a@example.com,, b@example.com,", []string{"a@example.com", "b@example.com"}},
		{"semicolons", "a@example.com; b@example.com", []string{"a@example.com", "b@example.com"}},
		{"empty group", "undisclosed-recipients:;", nil},
		{"empty group in words", "=?utf-8?Q?undisclosed?= recipients: ;", nil},
		{"group", "Team: a@example.com, Kim <b@example.com>; c@example.com", []string{"a@example.com", "Kim <b@example.com>", "c@example.com"}},
		{"colon in quotes", `"Team: A" <a@example.com>`, []string{"Team: A <a@example.com>"}},
		{"no address at all", "Kim", []string{"Kim"}},
		{"nothing", " ", nil},
		{"NUL", "K\x00im <a@exam\x00ple.com>", []string{"Kim <a@example.com>"}},
		{"folded", "Kim\r\n <a@example.com>,\r\n\tb@example.com", []string{"Kim <a@example.com>", "b@example.com"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, _ := Of(summarised("to", test.value, "cC", test.value), true)
			equal(t, s.To, test.want)
			equal(t, s.Cc, test.want)
		})
	}
}

func TestDoubledHeaders(t *testing.T) {
	t.Parallel()
	s, _ := Of(summarised(
		"Subject", "first", "subject", "second", "From", "a@example.com", "FROM", "b@example.com",
		"To", "c@example.com", "to", "d@example.com",
	), true)
	equal(t, s.Subject, "first")
	equal(t, s.From, "a@example.com")
	equal(t, s.To, []string{"c@example.com", "d@example.com"})
}

func TestFrom(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"Kim <a@example.com>, b@example.com":           "Kim <a@example.com>, b@example.com",
		"nobody: ;":                                    "nobody: ;",
		"=?utf-8?Q?Kim_=3Ca=40example.com=3E?=":        "Kim <a@example.com>",
		strings.Repeat("k", 5000) + "<a@example.com>":  strings.Repeat("k", maxLine-16) + " <a@example.com>",
		strings.Repeat("k", 50000) + "<a@example.com>": strings.Repeat("k", maxLine-16) + " <a@example.com>",
	} {
		s, _ := Of(summarised("From", value), true)
		equal(t, s.From, want)
	}
}

func TestDate(t *testing.T) {
	t.Parallel()
	const header = "Tue, 1 Dec 2026 09:00:00 +0900 (KST)"
	noon := time.Date(2026, 12, 1, 12, 0, 0, int(5*time.Millisecond), time.UTC)
	tests := []struct {
		name     string
		internal int64
		header   string
		want     time.Time
	}{
		{"Gmail's own", noon.UnixMilli(), header, noon},
		{"header", 0, header, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)},
		{"folded header", 0, "Tue, 1 Dec 2026\r\n 09:00:00 +0900", time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)},
		{"neither", 0, "yesterday", time.Time{}},
		{"past what Firestore holds", 1 << 60, header, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)},
		{"a zone carries it past that", 0, "31 Dec 9999 23:59:00 -0100", time.Time{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := summarised("Date", test.header)
			m.InternalDate = test.internal
			s, _ := Of(m, true)
			if !s.Date.Equal(test.want) || s.Date.Location() != time.UTC {
				t.Errorf("date %v, want %v", s.Date, test.want)
			}
		})
	}
}

func TestSnippetAndSize(t *testing.T) {
	t.Parallel()
	s, _ := Of(&gmail.Message{Snippet: "Tom &amp; Kim&#39;s &lt;list&gt;\u0000", SizeEstimate: 7}, true)
	equal(t, s.Snippet, "Tom & Kim's <list>")
	equal(t, s.SizeEstimate, int64(7))
}

func TestSummaryLimits(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("가", 1<<20)
	s, _ := Of(summarised("Subject", huge, "From", huge, "To", strings.Repeat("kim@example.com,", 1<<16)), true)
	equal(t, s.Subject, strings.Repeat("가", maxLine/3))
	equal(t, s.From, strings.Repeat("가", maxLine/3))
	if len(s.To) != maxRecipients {
		t.Errorf("%d recipients", len(s.To))
	}
	s, _ = Of(summarised("Cc", strings.Repeat(strings.Repeat("k", 1000)+" <kim@example.com>,", 1000)), true)
	if n := len(strings.Join(s.Cc, "")); n > maxRecipientsSize || n < maxRecipientsSize-maxLine {
		t.Errorf("recipients take %d bytes", n)
	}
}
