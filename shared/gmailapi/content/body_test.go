package content

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/api/gmail/v1"

	mailyard "mailyard.internal/mailyard/shared/mail"
)

func leaf(contentType, data string) *gmail.MessagePart {
	kind, _, _ := strings.Cut(contentType, ";")
	return &gmail.MessagePart{
		MimeType: kind,
		Headers:  []*gmail.MessagePartHeader{{Name: "content-type", Value: contentType}},
		Body:     &gmail.MessagePartBody{Data: b64(data), Size: int64(len(data))},
	}
}

func multi(kind string, parts ...*gmail.MessagePart) *gmail.MessagePart {
	return &gmail.MessagePart{MimeType: "multipart/" + kind, Parts: parts, Body: &gmail.MessagePartBody{}}
}

func with(p *gmail.MessagePart, change func(*gmail.MessagePart)) *gmail.MessagePart {
	change(p)
	return p
}

func body(p *gmail.MessagePart) mailyard.Body {
	_, b := Of(&gmail.Message{Payload: p}, true)
	return b
}

func TestCharsets(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, contentType, data, want string }{
		{"EUC-KR", `text/plain; charset="euc-kr"`, "\xbe\xc8\xb3\xe7", "안녕"},
		{"KS_C_5601-1987 means windows-949", "text/plain; charset=ks_c_5601-1987", "\x8c\x63", "똠"},
		{"ISO-2022-KR", "text/plain; charset=ISO-2022-KR", "\x1b$)Ca \x0e>H\x0f\n\x0e3g\nb", "a 안\n녕\nb"},
		{"Latin-1", "text/plain; charset=iso-8859-1", "caf\xe9 \x80", "café €"},
		{"Latin-1 that is UTF-8", "text/plain; charset=iso-8859-1", "안녕", "안녕"},
		{"EUC-KR that is UTF-8", "text/plain; charset=euc-kr", "안녕하세요", "안녕하세요"},
		{"ASCII that is Latin-1", "text/plain; charset=us-ascii", "caf\xe9", "café"},
		{"UTF-8 with a mistake", "text/plain; charset=utf-8", "a\xffb", "a\uFFFDb"},
		{"none", "text/plain", "안녕", "안녕"},
		{"none and not UTF-8", "text/plain", "caf\xe9", "café"},
		{"none and ISO-2022-JP", "text/plain", "\x1b$B$3$s\x1b(B", "こん"},
		{"unknown and not UTF-8", "text/plain; charset=x-unknown", "caf\xe9", "café"},
		{"malformed parameters", "text/plain; charset=euc-kr; =; x y", "\xbe\xc8\xb3\xe7", "안녕"},
		{"charset doubled", "text/plain; charset=euc-kr; charset=utf-8", "\xbe\xc8\xb3\xe7", "안녕"},
		{"UTF-8 mark", "text/plain; charset=utf-8", "\ufeffhi", "hi"},
		{"UTF-16 mark", "text/plain; charset=utf-16", "\xfe\xff\xac\x00", "가"},
		{"a mark overrides", "text/plain; charset=utf-8", "\xff\xfe\x00\xac", "가"},
		{"control characters", "text/plain", "a\x00b\r\n\tc\x1b", "ab\r\n\tc"},
		{"html, declared", "text/html; charset=euc-kr", "<p>\xbe\xc8", "<p>안"},
		{"html, declared within", "text/html", "<meta charset=euc-kr><p>\xbe\xc8", "<meta charset=euc-kr><p>안"},
		{"html, unknown and declared within", "text/html; charset=x", "<meta charset=euc-kr><p>\xbe\xc8", "<meta charset=euc-kr><p>안"},
		{"html, seven-bit, declared within", "text/html", "<meta charset=iso-2022-jp>\x1b$B$3\x1b(B", "<meta charset=iso-2022-jp>こ"},
		{"html, recoded since", "text/html", "<meta charset=euc-kr><p>안", "<meta charset=euc-kr><p>안"},
		{"html, late letters", "text/html", strings.Repeat(" ", 2000) + "안", strings.Repeat(" ", 2000) + "안"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := body(leaf(test.contentType, test.data))
			equal(t, b.Text+b.HTML, test.want)
		})
	}
}

func TestBase64(t *testing.T) {
	t.Parallel()
	const text = "subjects?~~>>"
	for name, data := range map[string]string{
		"url":          base64.RawURLEncoding.EncodeToString([]byte(text)),
		"url, padded":  base64.URLEncoding.EncodeToString([]byte(text)),
		"std":          base64.RawStdEncoding.EncodeToString([]byte(text)),
		"std, padded":  base64.StdEncoding.EncodeToString([]byte(text)),
		"on two lines": base64.StdEncoding.EncodeToString([]byte(text[:6])) + "\r\n" + b64(text[6:]),
		"joined":       base64.StdEncoding.EncodeToString([]byte(text[:5])) + b64(text[5:]),
		"broken after": b64(text[:12]) + b64(text[12:]) + "*",
	} {
		b := body(&gmail.MessagePart{MimeType: "text/plain", Body: &gmail.MessagePartBody{Data: data}})
		if !strings.HasPrefix(b.Text, text[:12]) {
			t.Errorf("%s: %q", name, b.Text)
		}
	}
}

func TestTree(t *testing.T) {
	t.Parallel()
	picture := func() *gmail.MessagePart {
		return with(leaf("image/png; name=a.png", "12"), func(p *gmail.MessagePart) { p.PartId = "1.2" })
	}
	listed := []mailyard.Attachment{{Filename: "a.png", MIMEType: "image/png", Size: 2, PartID: "1.2"}}
	named := func(p *gmail.MessagePart) { p.Filename = "n.txt" }
	disposed := func(value string) func(p *gmail.MessagePart) {
		return func(p *gmail.MessagePart) {
			p.Headers = append(p.Headers, &gmail.MessagePartHeader{Name: "Content-Disposition", Value: value})
		}
	}
	tests := []struct {
		name string
		part *gmail.MessagePart
		want mailyard.Body
	}{
		{"nil", nil, mailyard.Body{}},
		{"empty", &gmail.MessagePart{}, mailyard.Body{}},
		{"nil among parts", multi("mixed", nil, leaf("text/plain", "a"), nil), mailyard.Body{Text: "a"}},
		{"no type is text", &gmail.MessagePart{Body: &gmail.MessagePartBody{Data: b64("a")}}, mailyard.Body{Text: "a"}},
		{"type in another case", leaf("TEXT/HTML", "a"), mailyard.Body{HTML: "a"}},
		{
			"alternative in related in mixed",
			multi("mixed", multi("related", multi("alternative", leaf("text/plain", "a"), leaf("text/html", "b")), picture())),
			mailyard.Body{Text: "a", HTML: "b", Attachments: listed},
		},
		{
			"texts of a mixture join", multi("mixed", leaf("text/plain", "a"), picture(), leaf("text/plain", "b\n"), leaf("text/plain", "c")),
			mailyard.Body{Text: "a\nb\nc", Attachments: listed},
		},
		{
			"the simplest text and the richest HTML",
			multi("alternative", leaf("text/plain", "a"), leaf("text/html", "b"), multi("mixed", leaf("text/html", "c"), leaf("text/plain", "d"))),
			mailyard.Body{Text: "a", HTML: "c"},
		},
		{
			"empty alternatives don't count", multi("alternative", leaf("text/plain", ""), leaf("text/plain", "a"), leaf("text/html", "b"), leaf("text/html", "")),
			mailyard.Body{Text: "a", HTML: "b"},
		},
		{"text with a name", with(leaf("text/plain", "a"), named), attached("n.txt", "text/plain", 1)},
		{"text disposed of", with(leaf("text/html", "a"), disposed("ATTACHMENT")), attached("", "text/html", 1)},
		{"text named by its disposition", with(leaf("text/plain", "a"), disposed(`inline; filename="b.txt"`)), attached("b.txt", "text/plain", 1)},
		{"inline text", with(leaf("text/plain", "a"), disposed("inline")), mailyard.Body{Text: "a"}},
		{"text of another kind", leaf("text/calendar; method=REQUEST", "a"), attached("", "text/calendar", 1)},
		{
			"an attached message",
			multi("mixed", leaf("text/plain", "a"), with(leaf("message/rfc822", ""), func(p *gmail.MessagePart) {
				p.Parts = []*gmail.MessagePart{leaf("text/plain", "inner")}
			})),
			mailyard.Body{Text: "a", Attachments: attached("", "message/rfc822", 0).Attachments},
		},
		{
			"text that Gmail keeps apart", &gmail.MessagePart{MimeType: "text/html", PartId: "0", Body: &gmail.MessagePartBody{AttachmentId: "A", Size: 9}},
			mailyard.Body{Truncated: true, Attachments: []mailyard.Attachment{{MIMEType: "text/html", Size: 9, PartID: "0"}}},
		},
		{"a multipart without parts", multi("mixed"), mailyard.Body{}},
		{"a multipart that was not read", with(leaf("multipart/mixed", "abc"), func(*gmail.MessagePart) {}), attached("", "multipart/mixed", 3)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			equal(t, body(test.part), test.want)
		})
	}
}

func attached(name, kind string, size int64) mailyard.Body {
	return mailyard.Body{Attachments: []mailyard.Attachment{{Filename: name, MIMEType: kind, Size: size}}}
}

func TestFilenames(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, header, want string }{
		{"quoted", `attachment; filename="a b.pdf"`, "a b.pdf"},
		{"RFC 2231", "attachment; filename*=UTF-8''%EA%B0%80.pdf", "가.pdf"},
		{"RFC 2231 in EUC-KR", "attachment; filename*=EUC-KR'ko'%B0%A1.pdf", "가.pdf"},
		{"RFC 2231 in pieces", "attachment; filename*0*=euc-kr''%B0;\r\n filename*1*=%A1.p; filename*2=df", "가.pdf"},
		{"both", `attachment; filename="ga.pdf"; filename*=utf-8''%EA%B0%80.pdf`, "가.pdf"},
		{"words", `attachment; filename="=?UTF-8?B?6rCALnBkZg==?="`, "가.pdf"},
		{"raw", "attachment; filename=가 나.pdf", "가 나.pdf"},
		{"raw, quote not closed", `attachment; size=1; filename="가`, "가"},
		{"none", "attachment", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, header := range []string{"Content-Disposition", "Content-Type"} {
				value := test.header
				if header == "Content-Type" {
					value = strings.NewReplacer("attachment", "application/pdf", "filename", "name").Replace(value)
				}
				p := &gmail.MessagePart{MimeType: "application/pdf", Headers: []*gmail.MessagePartHeader{{Name: header, Value: value}}}
				equal(t, body(p), attached(test.want, "application/pdf", 0))
			}
		})
	}
}

func TestHeadersOnly(t *testing.T) {
	t.Parallel()
	p := multi("mixed", leaf("text/plain", "a"), leaf("text/html", "b"), with(leaf("text/plain", "c"), func(p *gmail.MessagePart) { p.Filename = "c" }))
	_, b := Of(&gmail.Message{Payload: p}, false)
	equal(t, b, attached("c", "text/plain", 1))
}

func TestDepth(t *testing.T) {
	t.Parallel()
	p := leaf("text/plain", "deep")
	for range 100_000 {
		p = multi("mixed", p)
	}
	equal(t, body(multi("mixed", leaf("text/plain", "a"), p)), mailyard.Body{Text: "a", Truncated: true})

	p = leaf("text/plain", "deep")
	for range maxDepth {
		p = multi("mixed", p)
	}
	equal(t, body(p), mailyard.Body{Text: "deep"})
}

func TestBodyLimits(t *testing.T) {
	t.Parallel()
	const half = maxBody / 2
	tests := []struct {
		name                           string
		text, html, wantText, wantHTML int
	}{
		{"both fit", 10, half, 10, half},
		{"text alone", 2 * maxBody, 0, maxBody, 0},
		{"html alone", 0, 2 * maxBody, 0, maxBody},
		{"both large", 2 * maxBody, 2 * maxBody, half, half},
		{"small html", maxBody, 1000, maxBody - 1000, 1000},
		{"small text", 1000, maxBody, 1000, maxBody - 1000},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := body(multi("mixed", leaf("text/plain", strings.Repeat("a", test.text)), leaf("text/html", strings.Repeat("b", test.html))))
			equal(t, []int{len(b.Text), len(b.HTML)}, []int{test.wantText, test.wantHTML})
			equal(t, b.Truncated, test.text+test.html > maxBody)
		})
	}
}

func TestCutHTMLBeforeATag(t *testing.T) {
	t.Parallel()
	b := body(leaf("text/html", "<p>"+strings.Repeat("가", maxBody/3-4)+"<img src='"+strings.Repeat("x", 100)+"'>"))
	if !strings.HasSuffix(b.HTML, "가") || !b.Truncated {
		t.Errorf("ends in %q, truncated %v", b.HTML[len(b.HTML)-20:], b.Truncated)
	}
}

func TestManyAndLargeParts(t *testing.T) {
	t.Parallel()
	root := multi("mixed")
	for i := range 3000 {
		root.Parts = append(root.Parts, leaf("text/plain", strings.Repeat("가", 1000)), with(leaf("image/png", ""), func(p *gmail.MessagePart) {
			p.PartId, p.Filename = fmt.Sprint(i), strings.Repeat("나", 1000)
		}))
	}
	b := body(root)
	if !b.Truncated || len(b.Attachments) == 0 || len(b.Attachments) > maxAttachments || len(b.Attachments[0].Filename) != maxFilename {
		t.Errorf("truncated %v, %d attachments", b.Truncated, len(b.Attachments))
	}
	checkBody(t, b)
	for label, letter := range map[string]string{"utf-8": "가", "euc-kr": "\xb0\xa1", "utf-16le": "a\x00", "x-unknown": "\xe9"} {
		b := body(leaf("text/plain; charset="+label, strings.Repeat(letter, 3<<20/len(letter))))
		if !b.Truncated || len(b.Text) < maxBody-utf8.UTFMax {
			t.Errorf("%s: truncated %v, %d bytes", label, b.Truncated, len(b.Text))
		}
		checkBody(t, b)
	}
}

func checkBody(t testing.TB, b mailyard.Body) {
	t.Helper()
	if size := len(b.Text) + len(b.HTML) + attachmentsSize(b.Attachments); size > maxBody {
		t.Errorf("body takes %d bytes", size)
	}
	if !utf8.ValidString(b.Text) || !utf8.ValidString(b.HTML) {
		t.Error("body is not valid UTF-8")
	}
	if len(b.Attachments) > maxAttachments || attachmentsSize(b.Attachments) > maxAttachmentsSize {
		t.Errorf("%d attachments", len(b.Attachments))
	}
	for _, a := range b.Attachments {
		checkLine(t, a.Filename, maxFilename)
		checkLine(t, a.MIMEType, maxMIMEType)
		checkLine(t, a.PartID, maxPartID)
	}
}
