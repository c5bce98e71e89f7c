package content

import (
	"net/mail"
	"strings"
)

// senders returns a From header as a person reads it. More than one sender is rare and legal.
func senders(value string) string {
	list := recipients(value)
	if len(list) == 0 {
		return cut(line(value), maxLine) // not a list of addresses, but somebody's words
	}
	return cut(strings.Join(list, ", "), maxLine)
}

// recipients returns the entries of a raw address list, members of groups among them. An empty
// group, such as "undisclosed-recipients:;", has none. Each is "Name <address>", or the address
// where there is no name, or whatever can be read of it.
func recipients(value string) []string {
	var list []string
	size := 0
	for _, entry := range split(quoteWords(unfold(value))) {
		readable := person(entry)
		if readable == "" {
			continue
		}
		size += len(readable)
		if size > maxRecipientsSize || len(list) == maxRecipients {
			break
		}
		list = append(list, readable)
	}
	return list
}

// quoteWords decodes the encoded words of an address list and puts them in quotes, so that a comma
// or an @ that was encoded does not become syntax.
func quoteWords(s string) string {
	var out strings.Builder
	var at position
	eachWord(s, func(text string, decoded bool) {
		switch {
		case !decoded:
			for i := range len(text) {
				at.step(text[i])
			}
			out.WriteString(text)
		case at.quoted:
			out.WriteString(escape.Replace(clean(text)))
		case at.comments > 0:
			out.WriteString(escapeComment.Replace(clean(text)))
		default:
			out.WriteString(`"` + escape.Replace(clean(text)) + `"`)
		}
	})
	return out.String()
}

var (
	escape        = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	escapeComment = strings.NewReplacer(`\`, `\\`, `(`, `\(`, `)`, `\)`)
)

// A position in an address list knows the syntax of RFC 5322, section 3.2, that hides commas.
type position struct {
	quoted   bool
	comments int // they nest
	escaped  bool
}

func (p *position) step(b byte) {
	switch {
	case p.escaped:
		p.escaped = false
	case b == '\\':
		p.escaped = p.hidden()
	case p.comments == 0 && b == '"':
		p.quoted = !p.quoted
	case !p.quoted && b == '(':
		p.comments++
	case p.comments > 0 && b == ')':
		p.comments--
	}
}

func (p *position) hidden() bool { return p.quoted || p.comments > 0 }

// split cuts a list at its commas, and at the semicolons that end a group or that Outlook writes.
// Where a quote or a comment is never closed it would hide all that follows, so it counts for
// nothing.
func split(s string) []string {
	if list, closed := splitBy(s, true); closed {
		return list
	}
	list, _ := splitBy(s, false)
	return list
}

func splitBy(s string, hiding bool) (list []string, closed bool) {
	var at position
	start, addressed := 0, false
	for i := range len(s) {
		if hiding {
			at.step(s[i])
		}
		if at.hidden() {
			continue
		}
		switch s[i] {
		case '@':
			addressed = true
		case ':': // before any address, it ends the name of a group
			if !addressed {
				start = i + 1
			}
		case ',', ';':
			if s[i] == ',' && !addressed && namesNext(s[i+1:]) && strings.TrimSpace(s[start:i]) != "" {
				continue // "Kim, Lee <lee@example.com>" is one person
			}
			list = append(list, s[start:i])
			start, addressed = i+1, false
		}
	}
	return append(list, s[start:]), !at.hidden()
}

// namesNext reports whether what follows a comma is a name before an address in brackets.
func namesNext(s string) bool {
	i := strings.IndexAny(s, ",;<@")
	return i >= 0 && s[i] == '<'
}

// longestParsed is the longest entry that is parsed strictly; more can't be an address and a name.
const longestParsed = 8 << 10

// person returns an entry as a person reads it, or "" where nothing is to be read.
func person(entry string) string {
	entry = strings.TrimSpace(entry)
	if len(entry) <= longestParsed {
		if a, err := mail.ParseAddress(entry); err == nil {
			return nameAndAddress(a.Name, a.Address)
		}
	}
	name, rest, found := cutLast(entry, '<')
	if !found {
		return nameAndAddress(unquote(entry), "")
	}
	address, _, _ := strings.Cut(rest, ">")
	return nameAndAddress(unquote(name), address)
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// unquote takes quotes, and the backslashes of what they quote, away.
func unquote(s string) string {
	var out strings.Builder
	escaped := false
	for i := range len(s) {
		if c := s[i]; escaped || c != '"' && c != '\\' {
			out.WriteByte(c)
			escaped = false
		} else {
			escaped = c == '\\'
		}
	}
	return out.String()
}

// nameAndAddress shortens a name that is too long, so that the address stays.
func nameAndAddress(name, address string) string {
	name, address = clean(name), cut(clean(address), maxAddress)
	switch {
	case address == "":
		return cut(name, maxLine)
	case name == "", strings.EqualFold(name, address):
		return address
	}
	return cut(name, maxLine-len(address)-len(" <>")) + " <" + address + ">"
}
