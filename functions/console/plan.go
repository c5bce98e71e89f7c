package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"mailyard.internal/mailyard/shared/ledger"
)

const (
	// MaxLetters is how many letters one deed from a page is done to: at perSecond that is 20 seconds, and
	// a function has 60 in all.
	MaxLetters = 1_000
	perSecond  = 50
	// doWithin is when a deed stops between two letters, whatever is left. What is under way then has ten
	// seconds to end in.
	doWithin  = 40 * time.Second
	maxReason = 500 // bytes
)

// planContent is what would be done, before it is.
type planContent struct {
	Deed       string
	Verb       string
	Choice     []field
	Eligible   int
	Over       int // eligible too, but more than one deed may do
	PassedOver []passedRow
	Read       int // entries that were looked at, where there are more
	Seconds    int
	PerSecond  int
	MaxLetters int
	Before     string
	Command    string
	Back       string
	NeedReason bool
	MaxReason  int
}

type passedRow struct {
	Count int
	Text  string
}

// passedTexts say why letters are passed over; what has no text is told by its word.
var passedTexts = map[string]string{
	"retrying":  "retrying: Pub/Sub brings it back by itself",
	"redriving": "redriving already, with the outcome open",
	"resolved":  "resolved",
	"broken":    "broken: its document does not say how it stands",
	"no_topic":  "without a topic: nobody knows where it came from",
	"busy":      "claimed by another operation, for 5 minutes at most",
	overLimit:   "over the number that one deed here may do",
}

// overLimit is the reason for which only the limit passes a letter over.
const overLimit = "over_limit"

func deedOf(q url.Values) (ledger.Deed, error) {
	switch deed := ledger.Deed(q.Get("deed")); deed {
	case ledger.DeedRedrive, ledger.DeedDiscard:
		return deed, nil
	}
	return "", &refusal{http.StatusBadRequest, "No such deed", "Letters are redriven or discarded here, and nothing else.", "Begin with the letters."}
}

// unnamed refuses a choice that chooses nothing: everything at once is for the command line.
func unnamed(choice Choice) error {
	if choice == (Choice{}) {
		return &refusal{
			http.StatusBadRequest, "Nothing is chosen", "A plan is made for one letter, one cause, one lane, one account or one code.",
			"Choose under Letters; the command line does all at once: go run ./scripts/mailyard dlq redrive.",
		}
	}
	return nil
}

func (c *Console) plan(ctx context.Context, q url.Values) (view, error) {
	deed, err := deedOf(q)
	if err != nil {
		return view{}, err
	}
	choice := choiceOf(q)
	if err := unnamed(choice); err != nil {
		return view{}, err
	}
	now := c.Now()
	entries, more, err := c.read(ctx, choice)
	if err != nil {
		return view{}, err
	}
	plan := c.Operator.Plan(deed, entries, now, MaxLetters)
	content := planContent{
		Deed: string(deed), Verb: "Redrive", Choice: choice.Fields(), Eligible: len(plan.Eligible), PerSecond: perSecond, MaxLetters: MaxLetters,
		Seconds: len(plan.Eligible)/perSecond + 1, Before: now.UTC().Format(time.RFC3339Nano),
		Command: choice.command(deed, c.lane(choice.Consumer)), MaxReason: maxReason,
	}
	if deed == ledger.DeedDiscard {
		content.Verb, content.NeedReason = "Discard", true
	}
	if more {
		content.Read = len(entries)
	}
	for _, p := range plan.PassedOver {
		if p.Count == 0 {
			continue
		}
		if p.Reason == overLimit {
			content.Over = p.Count
		}
		text := passedTexts[p.Reason]
		if text == "" {
			text = p.Reason
		}
		content.PassedOver = append(content.PassedOver, passedRow{p.Count, text})
	}
	content.Back = link("letters", choice.Fields()...)
	if choice.ID != "" {
		content.Back = link("letter", field{"id", choice.ID})
	}
	title := map[ledger.Deed]string{ledger.DeedRedrive: "Plan of a redrive", ledger.DeedDiscard: "Plan of a discard"}[deed]
	return view{template: "plan.html", title: title, content: content}, nil
}

// act does what a plan's form asks for. It plans again, with only what had failed when the plan was shown.
func (c *Console) act(ctx context.Context, form url.Values, visit *Visit) (view, error) {
	deed, err := deedOf(form)
	if err != nil {
		return view{}, err
	}
	visit.Page, visit.Deed = "plan", deed
	choice := choiceOf(form)
	if err := unnamed(choice); err != nil {
		return view{}, err
	}
	before, err := time.Parse(time.RFC3339Nano, form.Get("before"))
	if err != nil {
		return view{}, &refusal{http.StatusBadRequest, "The plan is not complete", "It does not say when it was made, and nothing was changed.", "Make the plan again."}
	}
	order := Order{Who: visit.Who, Reason: word(form, "reason"), Filter: choice.filter(), Rate: perSecond}
	again := link("plan", append(choice.Fields(), field{"deed", string(deed)})...)
	switch {
	case len(order.Reason) > maxReason:
		return unchanged(fmt.Sprintf("The reason is too long: write at most %d characters.", maxReason), again), nil
	case deed == ledger.DeedDiscard && order.Reason == "":
		return unchanged("Write why the letters are given up, for the record.", again), nil
	}
	// Who closes the browser now has confirmed all the same.
	ctx = context.WithoutCancel(ctx)
	reading, cancel := context.WithTimeout(ctx, showWithin)
	defer cancel()
	entries, _, err := c.read(reading, choice)
	if err != nil {
		return view{}, err
	}
	plan := c.Operator.Plan(deed, entries, before, MaxLetters)
	if len(plan.Eligible) == 0 {
		return unchanged("No letter of the plan can be "+pastOf(deed)+" any more: see how they stand now.", again), nil
	}
	doing, stop := context.WithTimeout(ctx, doWithin)
	defer stop()
	outcome, err := c.Operator.Do(doing, deed, plan, order)
	visit.Operation, visit.Letters, visit.Err = outcome.Operation, outcome.Done, outcome.Err
	if err != nil {
		visit.Err = err
	}
	switch {
	case outcome.Operation != "" && (err == nil || outcome.Done > 0):
		return view{goTo: link("operation", field{"id", outcome.Operation})}, nil
	case err != nil:
		return view{}, fmt.Errorf("%s: %w", deed, err)
	}
	return view{}, fmt.Errorf("%s: %w", deed, errNoRecord)
}

var errNoRecord = errors.New("there is no record of it")

func pastOf(deed ledger.Deed) string {
	if deed == ledger.DeedDiscard {
		return "discarded"
	}
	return "redriven"
}

// unchanged answers that nothing was changed, with a way back to the plan.
func unchanged(text, back string) view {
	return view{template: "unchanged.html", status: http.StatusConflict, title: "Nothing was changed", content: unchangedContent{text, back}}
}

type unchangedContent struct{ Text, Back string }
