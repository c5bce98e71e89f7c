package content

import (
	"bytes"
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// aliases are labels that mail uses and neither index knows.
var aliases = map[string]string{
	"cp949": "euc-kr", "ms949": "euc-kr", "uhc": "euc-kr", "x-windows-949": "euc-kr",
	"cp932": "shift_jis", "cp936": "gbk", "ms936": "gbk", "cp950": "big5", "ms950": "big5",
	"cp65001": "utf-8", "utf8mb4": "utf-8", "latin-1": "windows-1252",
}

const iso2022KR = "iso-2022-kr"

// decode returns the bytes as valid UTF-8. label is the charset that was declared, or "". It is
// believed, with these exceptions, each of a kind seen in mail:
//   - a byte order mark says more than the label, and is dropped;
//   - an unknown label is as none, and Western ones (US-ASCII, Latin-1) are often a default that
//     nobody chose, so the bytes are looked at;
//   - what is no text in the declared charset and is well-formed UTF-8 is UTF-8.
func decode(b []byte, label string) string {
	label = normal(label)
	if label == iso2022KR {
		b, label = unshift(b), "euc-kr"
	}
	enc := lookup(label)
	if enc == nil || enc == charmap.Windows1252 {
		enc = guess(b)
	}
	s := apply(enc, b)
	if strings.ContainsRune(s, utf8.RuneError) && utf8.Valid(b) && !isASCII(b) {
		return string(b)
	}
	return s
}

// decodeHTML is decode for HTML, which may declare its charset within where its part does not.
func decodeHTML(b []byte, label string) string {
	declared := lookup(normal(label)) != nil || normal(label) == iso2022KR
	// Bytes that are well-formed UTF-8 were most likely recoded on their way without the declaration
	// within, so only a seven-bit charset is left to it then.
	if !declared && (isASCII(b) || !utf8.Valid(b)) {
		_, label, _ = charset.DetermineEncoding(b, "")
	}
	return decode(b, label)
}

func normal(label string) string {
	label = strings.ToLower(strings.Trim(label, " \t\r\n\"'"))
	if known, ok := aliases[label]; ok {
		return known
	}
	return label
}

// lookup returns nil for a charset that nobody knows. Browsers' names come first, because mail means
// the same supersets by them (EUC-KR for windows-949). They map a few charsets to Replacement, which
// gives all of the text up; IANA's index has some of these.
func lookup(label string) encoding.Encoding {
	if enc, err := htmlindex.Get(label); err == nil && enc != encoding.Replacement {
		return enc
	}
	if enc, err := ianaindex.MIME.Encoding(label); err == nil && enc != nil {
		return enc
	}
	return nil
}

// guess tells what undeclared bytes are. Letters above ASCII in another charset hardly ever happen
// to be well-formed UTF-8, and windows-1252 gives every byte a meaning.
func guess(b []byte) encoding.Encoding {
	switch {
	case bytes.Contains(b, []byte("\x1b$B")), bytes.Contains(b, []byte("\x1b$@")):
		return japanese.ISO2022JP
	case utf8.Valid(b):
		return unicode.UTF8
	default:
		return charmap.Windows1252
	}
}

func apply(enc encoding.Encoding, b []byte) string {
	if enc == unicode.UTF8 && utf8.Valid(b) { // nearly all mail: spare it the copies
		return strings.TrimPrefix(string(b), "\uFEFF")
	}
	out, _, err := transform.Bytes(unicode.BOMOverride(enc.NewDecoder()), b)
	if err != nil { // decoders replace what they can't read; out is what came before
		out = append(out, "\uFFFD"...)
	}
	return strings.ToValidUTF8(string(out), "\uFFFD")
}

// unshift rewrites ISO-2022-KR, which x/text has no decoder for, as EUC-KR: between SO and SI are
// the same two bytes a letter, with their high bits cut off (RFC 1557).
func unshift(b []byte) []byte {
	b = bytes.ReplaceAll(b, []byte("\x1b$)C"), nil)
	out := make([]byte, 0, len(b))
	shifted := false
	for _, c := range b {
		switch {
		case c == 0x0e:
			shifted = true
		case c == 0x0f, c == '\n': // a line begins unshifted
			shifted = false
			if c == '\n' {
				out = append(out, c)
			}
		case shifted && c > ' ':
			out = append(out, c|0x80)
		default:
			out = append(out, c)
		}
	}
	return out
}

func isASCII(b []byte) bool {
	return bytes.IndexFunc(b, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// fromBase64 decodes either alphabet, padded or not, line ends within or not, and keeps what comes
// before a mistake. Padding in the middle is where two encodings were joined.
func fromBase64(s string) []byte {
	if strings.ContainsAny(s, "+/ ") {
		s = strings.NewReplacer("+", "-", "/", "_", " ", "").Replace(s)
	}
	var out []byte
	for quanta := range strings.SplitSeq(s, "=") {
		b, _ := base64.RawURLEncoding.DecodeString(quanta)
		if out == nil {
			out = b
		} else {
			out = append(out, b...)
		}
	}
	return out
}
