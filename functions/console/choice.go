package console

import (
	"cmp"
	"net/url"
	"strings"
	"unicode/utf8"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
)

// A Choice chooses entries of the ledger; what is empty chooses all that are unresolved.
type Choice struct {
	ID          string
	Consumer    string
	State       ledger.State
	Account     string
	Code        string
	Fingerprint string
}

// maxWord is how many bytes of a filter's value are looked at; none that is stored is longer.
const maxWord = 1500

func word(q url.Values, name string) string {
	return strings.TrimSpace(fault.Cut(strings.ToValidUTF8(q.Get(name), ""), maxWord))
}

// choiceOf reads a choice from a query or a form, which name its fields alike.
func choiceOf(q url.Values) Choice {
	return Choice{
		ID: q.Get("id"), Consumer: word(q, "function"), State: ledger.State(word(q, "state")),
		Account: word(q, "account"), Code: word(q, "code"), Fingerprint: word(q, "fingerprint"),
	}
}

// A field is one part of a choice that was made.
type field struct{ Name, Value string }

// Fields are the parts that were made, for links, forms and the record.
func (c Choice) Fields() []field {
	all := []field{
		{"id", c.ID}, {"function", c.Consumer}, {"state", string(c.State)}, {"account", c.Account},
		{"code", c.Code}, {"fingerprint", c.Fingerprint},
	}
	var made []field
	for _, f := range all {
		if f.Value != "" {
			made = append(made, f)
		}
	}
	return made
}

// filter is the choice as the record of an operation has it.
func (c Choice) filter() map[string]string {
	filter := map[string]string{}
	for _, f := range c.Fields() {
		filter[f.Name] = f.Value
	}
	return filter
}

// link leads to a page with these fields; page and fields are encoded.
func link(page string, fields ...field) string {
	q := url.Values{"page": {page}}
	for _, f := range fields {
		if f.Value != "" {
			q.Set(f.Name, f.Value)
		}
	}
	return "?" + q.Encode()
}

// command is how the command-line tool does a deed to the same letters; empty where it chooses otherwise.
func (c Choice) command(deed ledger.Deed, lane string) string {
	if deed == ledger.DeedDiscard {
		if c.ID == "" {
			return ""
		}
		return "go run ./scripts/mailyard dlq discard --reason … " + quoted(c.ID)
	}
	if c.Consumer != "" && lane == "" {
		return ""
	}
	line := "go run ./scripts/mailyard dlq redrive"
	for _, f := range []field{{"id", c.ID}, {"lane", lane}, {"account", c.Account}, {"code", c.Code}, {"fingerprint", c.Fingerprint}} {
		if f.Value != "" {
			line += " --" + f.Name + " " + quoted(f.Value)
		}
	}
	return line
}

// quoted is a word as a shell takes it.
func quoted(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-:/@", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// canBeID reports whether a document can have this id: a slash would make it another document's path.
func canBeID(id string) bool {
	return id != "" && len(id) <= maxWord && utf8.ValidString(id) && !strings.Contains(id, "/") &&
		id != "." && id != ".." && !(strings.HasPrefix(id, "__") && strings.HasSuffix(id, "__"))
}

// from is where something failed: on its lane, or in the function that has none.
func (c *Console) from(consumer string) string {
	return cmp.Or(c.lane(consumer), consumer, "unknown")
}

// lane is the key of the lane whose function that is, or empty.
func (c *Console) lane(consumer string) string {
	for _, l := range c.Lanes {
		if l.EntryPoint == consumer {
			return l.Key
		}
	}
	return ""
}
