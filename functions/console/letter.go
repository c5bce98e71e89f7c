package console

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"unicode/utf8"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/page"
)

// letterContent is one entry of the ledger: its autopsy, its runs, its event and its message.
type letterContent struct {
	ID, State, Heals  string
	Error             string
	Facts             []fact
	Runs              []runRow
	Event             eventContent
	Attributes        []field
	Mirror            mirrorContent
	Redrive           string // what it would change
	RedriveTo         string
	DiscardTo         string
	Inspect, Topic    string
	Log               string
	CauseTo, Operator string
}

// A fact is one thing that is known of an entry.
type fact struct {
	Name, Text, To string
	Moment         page.Moment
	Mono           bool
}

type runRow struct {
	At                                       page.Moment
	Code, Error, Revision, Operation, OpenTo string
}

// eventContent is an entry's data as a person can look at it, whatever it is.
type eventContent struct {
	Text   string
	Kind   string
	Bytes  int
	Cut    bool
	Absent string // why there is nothing to be seen
}

type mirrorContent struct {
	Says   string
	Facts  []fact
	Guards []field
}

// maxShown is how many bytes of an entry's data are shown, and maxDumped of what is no text.
const (
	maxShown  = 64 << 10
	maxDumped = 2 << 10
)

func (c *Console) letter(ctx context.Context, q url.Values) (view, error) {
	e, err := c.entry(ctx, q.Get("id"))
	if err != nil {
		return view{}, err
	}
	m, err := c.Mirror.Mirrored(ctx, e)
	if err != nil {
		return view{}, err
	}
	content := letterContent{
		ID: e.ID, State: badge(e), Heals: c.heals(e), Error: e.Error, Facts: c.facts(e), Runs: c.runs(e),
		Event: eventOf(e), Mirror: c.mirrorContent(e, m), Redrive: m.Redrive,
	}
	if e.Fingerprint != "" {
		content.CauseTo = link("letters", field{"fingerprint", e.Fingerprint})
	}
	for _, name := range slices.Sorted(maps.Keys(e.Attributes)) {
		content.Attributes = append(content.Attributes, field{name, e.Attributes[name]})
	}
	if e.State == ledger.Dead {
		content.RedriveTo = link("plan", field{"deed", string(ledger.DeedRedrive)}, field{"id", e.ID})
		content.DiscardTo = link("plan", field{"deed", string(ledger.DeedDiscard)}, field{"id", e.ID})
	}
	for _, r := range c.Routes {
		if r.Topic == e.Topic {
			content.Topic = r.InspectSubscription()
			content.Inspect = "https://console.cloud.google.com/cloudpubsub/subscription/detail/" + content.Topic + "?" +
				url.Values{"project": {c.Project}, "tab": {"messages"}}.Encode()
		}
	}
	if e.Trace != "" {
		query := url.QueryEscape(`trace="projects/` + c.Project + "/traces/" + e.Trace + `"`)
		content.Log = "https://console.cloud.google.com/logs/query;query=" + query + "?" + url.Values{"project": {c.Project}}.Encode()
	}
	return view{
		template: "letter.html", title: "Letter " + e.ID, every: 4, content: content,
		summary: fmt.Sprintf("It is %s, after %s and %s.", stateWord(e), counted(e.Attempts, "attempt", "attempts"), counted(e.Redrives, "redrive", "redrives")),
	}, nil
}

// badge is an entry's state as lists show it.
func badge(e ledger.Entry) string {
	switch {
	case e.Broken():
		return "broken"
	case e.Discarded:
		return "discarded"
	}
	return string(e.State)
}

func stateWord(e ledger.Entry) string {
	if e.Broken() {
		return "broken: its document does not say how it stands"
	}
	return badge(e)
}

func (c *Console) facts(e ledger.Entry) []fact {
	at := page.At
	now := c.Now()
	operation := func(id string) string {
		if id == "" {
			return ""
		}
		return link("operation", field{"id", id})
	}
	letter := func(id string) string {
		if id == "" {
			return ""
		}
		return link("letter", field{"id", id})
	}
	number := ""
	if e.HistoryID > 0 {
		number = e.HistoryID.String()
	}
	all := []fact{
		{Name: "Code", Text: string(e.Code)},
		{Name: "Failed on", Text: c.from(e.Consumer), To: link("letters", field{"function", e.Consumer})},
		{Name: "Function", Text: e.Consumer},
		{Name: "Topic", Text: e.Topic},
		{Name: "Attempts", Text: strconv.Itoa(e.Attempts)},
		{Name: "Redrives", Text: strconv.Itoa(e.Redrives)},
		{Name: "First failed", Moment: at(now, e.FirstFailedAt)},
		{Name: "Last failed", Moment: at(now, e.LastFailedAt)},
		{Name: "Dead since", Moment: at(now, e.DeadAt)},
		{Name: "Redriven", Moment: at(now, e.RedrivenAt)},
		{Name: "Claimed by", Text: e.Claim.Operation, To: operation(e.Claim.Operation)},
		{Name: "Last operation", Text: e.Operation, To: operation(e.Operation), Mono: true},
		{Name: "Edited from", Text: e.EditedFrom, To: letter(e.EditedFrom), Mono: true},
		{Name: "Edited to", Text: e.EditedTo, To: letter(e.EditedTo), Mono: true},
		{Name: "Account", Text: e.AccountID, To: link("letters", field{"account", e.AccountID}), Mono: true},
		{Name: "Message", Text: e.MessageID, Mono: true},
		{Name: "HistoryId", Text: number},
		{Name: "Revision", Text: e.Revision},
		{Name: "Fingerprint", Text: e.Fingerprint, Mono: true},
		{Name: "Kept until", Moment: at(now, e.ExpireAt)},
	}
	return slices.DeleteFunc(all, func(f fact) bool { return f.Text == "" && f.Moment.Text == "" })
}

// runs are the last ones, the newest first.
func (c *Console) runs(e ledger.Entry) []runRow {
	rows := make([]runRow, 0, len(e.Runs))
	for _, r := range slices.Backward(e.Runs) {
		row := runRow{At: page.At(c.Now(), r.At), Code: string(r.Code), Error: r.Error, Revision: r.Revision, Operation: r.Operation}
		if r.Operation != "" {
			row.OpenTo = link("operation", field{"id", r.Operation})
		}
		rows = append(rows, row)
	}
	return rows
}

func eventOf(e ledger.Entry) eventContent {
	shown := eventContent{Bytes: len(e.Data)}
	var indented bytes.Buffer
	switch {
	case e.DataOmitted:
		shown.Absent = "It is too large for the ledger; the -inspect subscription has it, and a redrive takes it from there."
		return shown
	case len(e.Data) == 0:
		shown.Absent = "It is empty."
		return shown
	case utf8.Valid(e.Data) && json.Indent(&indented, e.Data, "", "  ") == nil:
		shown.Kind, shown.Text = "JSON", indented.String()
	case utf8.Valid(e.Data):
		shown.Kind, shown.Text = "text", string(e.Data)
	default:
		shown.Kind = "bytes"
		shown.Cut = len(e.Data) > maxDumped
		shown.Text = hex.Dump(e.Data[:min(len(e.Data), maxDumped)])
		return shown
	}
	if len(shown.Text) > maxShown {
		shown.Text, shown.Cut = fault.Cut(shown.Text, maxShown), true
	}
	return shown
}

func (c *Console) mirrorContent(e ledger.Entry, m Mirrored) mirrorContent {
	switch {
	case e.AccountID == "" || e.MessageID == "":
		return mirrorContent{Says: "It is not about one message."}
	case m.AccountGone:
		return mirrorContent{Says: "The account is gone, and its messages with it."}
	case !m.There:
		return mirrorContent{Says: "The message is not mirrored."}
	}
	says := "The message is mirrored."
	switch {
	case m.Deleted:
		says = "The message is a tombstone: it was deleted, and has no content."
	case !m.HasContent:
		says = "The message is a stub: known by its flags, without content."
	}
	content := mirrorContent{Says: says, Facts: []fact{
		{Name: "has content", Text: strconv.FormatBool(m.HasContent)}, {Name: "deleted", Text: strconv.FormatBool(m.Deleted)},
	}}
	for _, flag := range slices.Sorted(maps.Keys(m.Flags)) {
		content.Facts = append(content.Facts, fact{Name: flag, Text: strconv.FormatBool(m.Flags[flag])})
	}
	for _, f := range []fact{{Name: "fetch due", Moment: page.At(c.Now(), m.FetchDueAt)}, {Name: "updated", Moment: page.At(c.Now(), m.UpdatedAt)}} {
		if f.Moment.Text != "" {
			content.Facts = append(content.Facts, f)
		}
	}
	for _, facet := range slices.Sorted(maps.Keys(m.Guards)) {
		content.Guards = append(content.Guards, field{facet, m.Guards[facet].String()})
	}
	return content
}
