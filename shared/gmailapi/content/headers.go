package content

import (
	"io"
	"iter"
	"mime"
	"regexp"
	"strings"
	"sync"
	"unicode"

	"google.golang.org/api/gmail/v1"
)

type headers []*gmail.MessagePartHeader

// first returns the raw value of the first header of that name, in whatever case.
func (h headers) first(name string) string {
	for value := range h.all(name) {
		return value
	}
	return ""
}

// joined returns the raw values of all headers of that name as one list.
func (h headers) joined(name string) string {
	var list strings.Builder
	for value := range h.all(name) {
		if list.Len() > 0 {
			list.WriteString(", ")
		}
		list.WriteString(value)
	}
	return cut(list.String(), maxHeader)
}

func (h headers) all(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, header := range h {
			if header != nil && strings.EqualFold(strings.TrimSpace(header.Name), name) {
				if !yield(cut(header.Value, maxHeader)) {
					return
				}
			}
		}
	}
}

var fold = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`[ \t]*[\r\n]+[ \t]*`)
})

// unfold returns a raw header's value on one line, as UTF-8, its encoded words as they are.
func unfold(value string) string {
	text := decode([]byte(value), "")
	if strings.ContainsAny(text, "\r\n") {
		text = fold().ReplaceAllLiteralString(text, " ")
	}
	return clean(text)
}

// line returns a raw header's value as a person reads it: one line, its encoded words decoded.
func line(value string) string {
	var out strings.Builder
	eachWord(unfold(value), func(text string, _ bool) { out.WriteString(text) })
	return clean(out.String())
}

// clean takes control characters out, so that the text is of one line, and makes it valid UTF-8.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\t', r == '\n', r == '\r':
			return ' '
		case unicode.IsControl(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return strings.TrimSpace(s)
}

// encodedWord is RFC 2047's, more widely: mailers put spaces and question marks into Q.
var encodedWord = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`=\?([^?\s]+)\?(?:[bB]\?([A-Za-z0-9+/= ]*)|[qQ]\?((?:[^?]|\?[^=?])*?))\?=`)
})

// eachWord gives the pieces of an unfolded header to put, in order: what stands there literally, and
// what was an encoded word or several that adjoin. Adjoining words of one charset are decoded as
// one, because mailers cut them inside a character. What can't be decoded is literal.
func eachWord(s string, put func(text string, decoded bool)) {
	var run wordRun
	end := 0
	for _, at := range encodedWord().FindAllStringSubmatchIndex(s, -1) {
		w, ok := wordAt(s, at)
		if !ok {
			continue
		}
		if between := s[end:at[0]]; !run.begun || strings.TrimSpace(between) != "" {
			run.flush(put)
			if between != "" {
				put(between, false)
			}
		}
		run.add(w)
		end = at[1]
	}
	run.flush(put)
	if end < len(s) {
		put(s[end:], false)
	}
}

type word struct {
	charset string
	base64  string // not decoded yet, or
	bytes   string // decoded from Q
}

func wordAt(s string, at []int) (word, bool) {
	label, _, _ := strings.Cut(s[at[2]:at[3]], "*") // a language may follow (RFC 2231, section 5)
	w := word{charset: normal(label)}
	if at[4] >= 0 {
		w.base64 = s[at[4]:at[5]]
		return w, true
	}
	var err error
	w.bytes, err = q.Decode("=?bytes?Q?" + strings.ReplaceAll(s[at[6]:at[7]], "?", "=3F") + "?=")
	return w, err == nil
}

// q undoes the transfer encoding alone; the charset's turn comes when words are joined.
var q = mime.WordDecoder{CharsetReader: func(_ string, in io.Reader) (io.Reader, error) { return in, nil }}

// A wordRun is a row of adjoining encoded words.
type wordRun struct {
	begun   bool
	text    strings.Builder // of charsets before
	charset string
	bytes   []byte
	base64  strings.Builder // its words may be cut between any two letters, so they are joined first
}

func (r *wordRun) add(w word) {
	if r.begun && w.charset != r.charset {
		r.endCharset()
	}
	r.begun, r.charset = true, w.charset
	if w.bytes != "" {
		r.endBase64()
		r.bytes = append(r.bytes, w.bytes...)
	}
	r.base64.WriteString(w.base64)
}

func (r *wordRun) endBase64() {
	r.bytes = append(r.bytes, fromBase64(r.base64.String())...)
	r.base64.Reset()
}

func (r *wordRun) endCharset() {
	r.endBase64()
	r.text.WriteString(decode(r.bytes, r.charset))
	r.bytes = nil
}

func (r *wordRun) flush(put func(string, bool)) {
	if !r.begun {
		return
	}
	r.endCharset()
	put(r.text.String(), true)
	*r = wordRun{}
}
