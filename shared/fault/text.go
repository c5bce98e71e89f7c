package fault

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// MaxText is how long a redacted error may be, in bytes. A Pub/Sub attribute holds 1,024.
const MaxText = 512

// What may stand in an error of another system and must not stand in ours. A run of 40 characters
// that could be base64 or hexadecimal is taken for a key or a token.
var secrets = sync.OnceValue(func() []redaction {
	return []redaction{
		{regexp.MustCompile(`(?:"[^"]*"|[^\s<>"'(),:;=@]+)@[^\s<>"'(),:;=@/?]+`), "<address>"},
		{regexp.MustCompile(`[^\s<>"'(),:;=@/?&%]+%40[^\s<>"'(),:;=@/?&]+`), "<address>"}, // in a URL
		{regexp.MustCompile(`(?i)\bbearer\s+\S+`), "<token>"},
		{regexp.MustCompile(`\beyJ[\w-]+\.[\w.-]+`), "<token>"},
		{regexp.MustCompile(`\bya29\.\S+|\b1//\S+`), "<token>"},
		{regexp.MustCompile(`[A-Za-z0-9+/_=-]{40,}`), "<token>"},
		{regexp.MustCompile(`\?[^\s"]*`), ""}, // a URL's query
	}
})

type redaction struct {
	pattern     *regexp.Regexp
	replacement string
}

// Text is the error as it may be logged, stored and shown: without addresses, tokens and keys, on
// one line, valid UTF-8, at most [MaxText] bytes.
func Text(err error) string {
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, text)
	for _, s := range secrets() {
		text = s.pattern.ReplaceAllString(text, s.replacement)
	}
	return Cut(text, MaxText)
}

// Cut shortens a text to at most that many bytes, at a character's boundary.
func Cut(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	for bytes > 0 && !utf8.RuneStart(text[bytes]) {
		bytes--
	}
	return text[:bytes]
}

var variable = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`[\w-]*\d[\w-]*`)
})

// Pattern is a redacted error with its ids and numbers taken out: what failures of one cause share.
func Pattern(text string) string { return variable().ReplaceAllString(text, "#") }

// Fingerprint groups failures of one cause: 12 hexadecimal digits made of the consumer, the code,
// and the redacted error with its ids and numbers taken out.
func Fingerprint(consumer string, code Code, text string) string {
	sum := sha256.Sum256([]byte(consumer + "\x00" + string(code) + "\x00" + Pattern(text)))
	return hex.EncodeToString(sum[:6])
}
