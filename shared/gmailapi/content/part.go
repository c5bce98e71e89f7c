package content

import (
	"mime"
	"regexp"
	"strings"
	"sync"

	"google.golang.org/api/gmail/v1"
)

// mediaType returns what the part is, in lower case. A part that does not say is plain text
// (RFC 2045, section 5.2).
func mediaType(p *gmail.MessagePart) string {
	if kind := strings.ToLower(clean(cut(p.MimeType, maxParameters))); kind != "" {
		return kind
	}
	if t := contentType(p); t.value != "" {
		return t.value
	}
	return "text/plain"
}

func contentType(p *gmail.MessagePart) parameters {
	return parse(headers(p.Headers).first("Content-Type"))
}

func disposition(p *gmail.MessagePart) string {
	return parse(headers(p.Headers).first("Content-Disposition")).value
}

// filename returns the name that Gmail found, or else what the headers say.
func filename(p *gmail.MessagePart) string {
	if name := line(cut(p.Filename, maxParameters)); name != "" {
		return name
	}
	if name := parse(headers(p.Headers).first("Content-Disposition")).text("filename"); name != "" {
		return name
	}
	return contentType(p).text("name")
}

// parameters are a header such as "text/plain; charset=utf-8", leniently.
type parameters struct {
	value  string
	params map[string]string
	raw    string
	// charset2231 is the charset in which RFC 2231 parameters were given, for those without "".
	charset2231 string
}

// extended is the start of a parameter in RFC 2231's notation: name*=charset'language'...
var extended = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(\*(?:0\*)?\s*=\s*"?)([A-Za-z0-9_.:-]+)'`)
})

func parse(value string) parameters {
	p := parameters{raw: unfold(cut(value, maxParameters))}
	if found := extended().FindStringSubmatch(p.raw); found != nil {
		// The standard library refuses all charsets but UTF-8, and passes its bytes on unseen.
		p.charset2231 = found[2]
		p.raw = extended().ReplaceAllString(p.raw, "${1}utf-8'")
	}
	kind, params, err := mime.ParseMediaType(p.raw)
	if err != nil {
		kind, _, _ = strings.Cut(p.raw, ";")
		params = nil
	}
	p.value, p.params = strings.ToLower(clean(kind)), params
	return p
}

func (p parameters) charset() string { return p.get("charset") }

// text returns a parameter as a person reads it.
func (p parameters) text(name string) string {
	value := p.get(name)
	if p.charset2231 != "" {
		value = decode([]byte(value), p.charset2231)
	}
	return line(value)
}

// get looks a parameter up where the standard library could read them, and else searches for it:
// one that is malformed would take all others with it.
func (p parameters) get(name string) string {
	if p.params != nil || p.raw == "" {
		return p.params[name]
	}
	found := regexp.MustCompile(`(?i)(?:^|[;\s])` + name + `\s*=\s*(?:"([^"]*)"?|([^;]*))`).FindStringSubmatch(p.raw)
	if found == nil {
		return ""
	}
	return strings.TrimSpace(found[1] + found[2])
}
