package console

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/page"
)

const (
	// maxRead is how many entries a page reads at most: enough for a bad day, and seconds of reading.
	maxRead = 5_000
	// readAtOnce is how many of them one call reads, and how many letters a page lists.
	readAtOnce = 200
	listAtOnce = 100
)

// read returns the entries of a choice without their data, up to maxRead; more says that there are more.
func (c *Console) read(ctx context.Context, choice Choice) (entries []ledger.Entry, more bool, err error) {
	if choice.ID != "" {
		e, err := c.entry(ctx, choice.ID)
		if err != nil {
			return nil, false, err
		}
		return []ledger.Entry{e}, false, nil
	}
	for after := ""; ; {
		some, err := c.Failures.Entries(ctx, choice, after, readAtOnce)
		if err != nil {
			return nil, false, err
		}
		entries = append(entries, some...)
		switch {
		case len(some) < readAtOnce:
			return entries, false, nil
		case len(entries) >= maxRead:
			return entries, true, nil
		}
		after = some[len(some)-1].ID
	}
}

// entry reads one entry of the ledger; one that there is not is a refusal.
func (c *Console) entry(ctx context.Context, id string) (ledger.Entry, error) {
	if canBeID(id) {
		e, known, err := c.Failures.Read(ctx, id)
		if err != nil || known {
			return e, err
		}
	}
	return ledger.Entry{}, notFound("No such letter", "Letters lists what is open.")
}

// groupsContent is what is open, by its cause.
type groupsContent struct {
	State string // only what is in it; empty for all
	Rows  []groupRow
	// Read is how many entries were read where there are more.
	Read int
}

type groupRow struct {
	From, Code, Error, Print, To string
	Count, Mailboxes             int
	States                       []stateCount
	First, Last                  page.Moment
	Healing                      int
	Example, ExampleTo, PlanTo   string
}

type stateCount struct {
	State string
	N     int
}

func (c *Console) groups(ctx context.Context, q url.Values) (view, error) {
	choice := Choice{State: ledger.State(word(q, "state"))}
	entries, more, err := c.read(ctx, choice)
	if err != nil {
		return view{}, err
	}
	healing := map[string]int{}
	for _, e := range entries {
		if e.State == ledger.Dead && e.HealsItself() {
			healing[e.Fingerprint]++
		}
	}
	content := groupsContent{State: string(choice.State)}
	if more {
		content.Read = len(entries)
	}
	for _, g := range ledger.Groups(entries) {
		row := groupRow{
			From: c.from(g.Consumer), Code: string(g.Code), Error: g.Error, Print: g.Fingerprint, Count: g.Count, Mailboxes: g.Accounts,
			First: page.At(c.Now(), g.First), Last: page.At(c.Now(), g.Last), Healing: healing[g.Fingerprint],
			To:      link("letters", field{"fingerprint", g.Fingerprint}, field{"state", content.State}),
			Example: g.Example, ExampleTo: link("letter", field{"id", g.Example}),
		}
		for _, state := range []ledger.State{ledger.Dead, ledger.Retrying, ledger.Redriving, ledger.Resolved} {
			if n := g.States[state]; n > 0 {
				row.States = append(row.States, stateCount{string(state), n})
			}
		}
		if g.States[ledger.Dead] > 0 {
			row.PlanTo = link("plan", field{"deed", string(ledger.DeedRedrive)}, field{"fingerprint", g.Fingerprint})
		}
		content.Rows = append(content.Rows, row)
	}
	return view{
		template: "groups.html", title: "Letters by cause", every: 5 + len(entries)/100, content: content,
		summary: fmt.Sprintf("%s of %s.", counted(len(entries), "letter", "letters"), counted(len(content.Rows), "cause", "causes")),
	}, nil
}

// lettersContent is a list of single letters.
type lettersContent struct {
	Choice    Choice
	Chosen    []field
	Functions []option
	States    []option
	Rows      []letterRow
	Next      string
	Redrive   string
	Discard   string
}

type option struct {
	Value, Text string
	Selected    bool
}

type letterRow struct {
	ID, To, State, From, Code, Error string
	Attempts, Redrives               int
	Last                             page.Moment
	Heals                            string
}

func (c *Console) letters(ctx context.Context, q url.Values) (view, error) {
	choice := choiceOf(q)
	choice.ID = ""
	after := q.Get("after")
	if !canBeID(after) {
		after = ""
	}
	entries, err := c.Failures.Entries(ctx, choice, after, listAtOnce)
	if err != nil {
		return view{}, err
	}
	content := lettersContent{Choice: choice, Chosen: choice.Fields(), Functions: []option{{"", "all", choice.Consumer == ""}}}
	for _, r := range c.Routes {
		content.Functions = append(content.Functions, option{r.EntryPoint, c.from(r.EntryPoint), r.EntryPoint == choice.Consumer})
	}
	for _, state := range []ledger.State{"", ledger.Dead, ledger.Retrying, ledger.Redriving, ledger.Resolved} {
		text := string(state)
		if state == "" {
			text = "all but resolved"
		}
		content.States = append(content.States, option{string(state), text, state == choice.State})
	}
	dead := false
	for _, e := range entries {
		dead = dead || e.State == ledger.Dead
		content.Rows = append(content.Rows, letterRow{
			ID: e.ID, To: link("letter", field{"id", e.ID}), State: badge(e), From: c.from(e.Consumer), Code: string(e.Code), Error: e.Error,
			Attempts: e.Attempts, Redrives: e.Redrives, Last: page.At(c.Now(), e.LastFailedAt), Heals: c.heals(e),
		})
	}
	if dead {
		all := choice
		all.State = "" // the plan says itself what it passes over
		content.Redrive = link("plan", append(all.Fields(), field{"deed", string(ledger.DeedRedrive)})...)
		content.Discard = link("plan", append(all.Fields(), field{"deed", string(ledger.DeedDiscard)})...)
	}
	many := ""
	if len(entries) == listAtOnce {
		many = " or more"
		content.Next = link("letters", append(choice.Fields(), field{"after", entries[len(entries)-1].ID})...)
	}
	return view{
		template: "letters.html", title: c.lettersTitle(choice), every: 5, content: content,
		summary: fmt.Sprintf("%d%s %s here.", len(entries), many, plural(len(entries), "letter", "letters")),
	}, nil
}

func (c *Console) lettersTitle(choice Choice) string {
	var words []string
	for _, f := range choice.Fields() {
		switch f.Name {
		case "function":
			words = append(words, "on "+c.from(f.Value))
		case "fingerprint":
			words = append(words, "of one cause")
		case "account":
			words = append(words, "of account "+f.Value)
		case "code":
			words = append(words, "with "+f.Value)
		case "state":
			words = append(words, "that are "+f.Value)
		}
	}
	return strings.Join(append([]string{"Letters"}, words...), " ")
}
