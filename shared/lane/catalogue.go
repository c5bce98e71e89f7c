// Package lane holds the catalogue: the one list of lanes, read by Go and by Terraform.
//
// A lane is one event type with its topic, subscription, dead-letter topic and function. What it
// reacts to, what it does to a message and how it is delivered all stand in catalogue.json; a lane
// more is an entry more. The catalogue is checked as a whole when it is read, and what it does not
// know it refuses. The package also classifies: one history record becomes n single-message events.
package lane

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"mailyard.internal/mailyard/shared/mail"
)

//go:embed catalogue.json
var embedded []byte

// A Lane is one entry of the catalogue.
type Lane struct {
	Key        string   `json:"key"`        // names topic and subscription: gmail-<key>
	EntryPoint string   `json:"entryPoint"` // the function
	Match      []Match  `json:"match"`      // any of them makes an event
	Effect     Effect   `json:"effect"`
	Delivery   Delivery `json:"delivery"`
	// Optional lanes are off unless they are named: see [Catalogue.Select].
	Optional bool `json:"optional,omitempty"`
}

// A Match describes the entries of history records that a lane reacts to.
type Match struct {
	History     List   `json:"history"`
	Label       string `json:"label,omitempty"`       // the label that was added or removed; any for the effect labels
	UnlessLabel string `json:"unlessLabel,omitempty"` // a label that the message must not carry
}

// A List is one of the lists of a history record, as Gmail names it.
type List string

// Gmail's lists, in the order in which a record is read.
const (
	MessagesAdded   List = "messagesAdded"
	MessagesDeleted List = "messagesDeleted"
	LabelsAdded     List = "labelsAdded"
	LabelsRemoved   List = "labelsRemoved"
)

// An Effect is what an event of the lane does to its message.
type Effect struct {
	Kind  EffectKind `json:"kind"`
	Field string     `json:"field,omitempty"` // of a flag: the message's field, and its facet
	Value *bool      `json:"value,omitempty"` // of a flag
}

// An EffectKind is what a lane can do.
type EffectKind string

// The effects there are.
const (
	Fetch  EffectKind = "fetch"  // fetch the message; set content and every flag
	SetTo  EffectKind = "flag"   // set one flag
	Delete EffectKind = "delete" // make a tombstone
	Labels EffectKind = "labels" // keep every label the message carries
)

// Delivery says how a lane's events reach its function. The bounds are Pub/Sub's and Cloud Run's.
type Delivery struct {
	Instances           int `json:"instances"`           // 1 to 1,000
	Concurrency         int `json:"concurrency"`         // requests at once in an instance, 1 to 1,000
	MaxRetries          int `json:"maxRetries"`          // a handler runs 1 + maxRetries times, 0 to 20
	MinBackoffSeconds   int `json:"minBackoffSeconds"`   // 0 to 600
	MaxBackoffSeconds   int `json:"maxBackoffSeconds"`   // 0 to 600, not below the minimum
	AckDeadlineSeconds  int `json:"ackDeadlineSeconds"`  // 10 to 600
	MaxDeliveryAttempts int `json:"maxDeliveryAttempts"` // Pub/Sub's own, the net below: 5 to 100
}

// AckDeadline is how long Pub/Sub waits for an answer before it delivers again.
func (d Delivery) AckDeadline() time.Duration {
	return time.Duration(d.AckDeadlineSeconds) * time.Second
}

// MaxBackoff is the longest that Pub/Sub waits before a retry.
func (d Delivery) MaxBackoff() time.Duration {
	return time.Duration(d.MaxBackoffSeconds) * time.Second
}

// A FlagRule ties a flag's field to the label it stands for.
type FlagRule struct {
	Field string
	Label string
	// Carried is the flag's value on a message that carries the label.
	Carried bool
}

// A Catalogue is a checked list of lanes. It is not changed after it is read.
type Catalogue struct {
	Lanes []Lane
	// Flags are the flags that the lanes keep, in the order of their first lane.
	Flags []FlagRule

	matchers map[List][]matcher
	fetch    Lane
}

// Load reads the catalogue that is part of the program, with those optional lanes on that are named.
func Load(optional ...string) (*Catalogue, error) {
	c, err := All()
	if err != nil {
		return nil, err
	}
	return c.Select(optional)
}

// All reads the catalogue that is part of the program, with every optional lane on.
func All() (*Catalogue, error) { return Parse(embedded) }

// Parse reads a catalogue. It refuses unknown and repeated keys, unknown effects, delivery values
// out of range, flags whose lanes disagree, and a catalogue without exactly one lane that fetches;
// all mistakes are reported together.
func Parse(data []byte) (*Catalogue, error) {
	mistakes, err := checkKeys(data)
	if err != nil || !json.Valid(data) {
		return nil, errors.New("catalogue: it is not one JSON object from beginning to end")
	}
	var file struct {
		Lanes []json.RawMessage `json:"lanes"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, errors.New(`catalogue: write it as {"lanes": [...]}`)
	}
	c := &Catalogue{Lanes: make([]Lane, len(file.Lanes))}
	var errs []error
	for i, lane := range file.Lanes {
		if err := json.Unmarshal(lane, &c.Lanes[i]); err != nil {
			errs = append(errs, c.refusal(i, typeProblem(err)))
		}
	}
	for _, m := range mistakes {
		errs = append(errs, c.refusal(m.lane, m.problem))
	}
	if err := errors.Join(append(errs, c.check())...); err != nil {
		return nil, err
	}
	c.index()
	return c, nil
}

// refusal names the lane by its key, and one without a key by its place.
func (c *Catalogue) refusal(lane int, problem string) error {
	switch {
	case lane < 0 || lane >= len(c.Lanes):
		return fmt.Errorf("catalogue: %s", problem)
	case c.Lanes[lane].Key == "":
		return fmt.Errorf("catalogue: lane %d of the list: %s", lane+1, problem)
	}
	return fmt.Errorf("catalogue: lane %q: %s", c.Lanes[lane].Key, problem)
}

func typeProblem(err error) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err.Error()
	}
	where := wrong.Field
	if where == "" {
		where = "it"
	}
	return fmt.Sprintf("%s is a JSON %s; write one that fits %s", where, wrong.Value, wrong.Type)
}

// Change is what an event of the lane changes, or nil where only a fetch tells.
func (l Lane) Change(e mail.Event) mail.Change {
	switch l.Effect.Kind {
	case Fetch:
		return nil
	case Delete:
		return mail.Deletion{HistoryID: e.HistoryID, ThreadID: e.ThreadID}
	case Labels:
		return mail.LabelsChanged{Changes: e.Labels, ThreadID: e.ThreadID}
	default:
		return mail.Flag{Field: l.Effect.Field, Value: *l.Effect.Value, HistoryID: e.HistoryID, ThreadID: e.ThreadID}
	}
}

// Lane returns the lane with that key.
func (c *Catalogue) Lane(key string) (Lane, bool) {
	for _, l := range c.Lanes {
		if l.Key == key {
			return l, true
		}
	}
	return Lane{}, false
}

// LabelsOf gives a fetched message's labels to be kept: nil where no lane keeps labels, and never nil
// where one does.
func (c *Catalogue) LabelsOf(labels []string) []string {
	if !c.KeepsLabels() {
		return nil
	}
	return append([]string{}, labels...)
}

// Select returns the catalogue with its optional lanes off, but for those named. It refuses a name that
// is not an optional lane's key.
func (c *Catalogue) Select(optional []string) (*Catalogue, error) {
	selected := &Catalogue{Flags: c.Flags, fetch: c.fetch}
	known := map[string]bool{}
	for _, l := range c.Lanes {
		known[l.Key] = l.Optional
		if !l.Optional || slices.Contains(optional, l.Key) {
			selected.Lanes = append(selected.Lanes, l)
		}
	}
	for _, key := range optional {
		if !known[key] {
			return nil, fmt.Errorf("%q is not an optional lane of the catalogue", key)
		}
	}
	selected.index()
	return selected, nil
}

// KeepsLabels reports whether a lane keeps every label that a message carries.
func (c *Catalogue) KeepsLabels() bool {
	return slices.ContainsFunc(c.Lanes, func(l Lane) bool { return l.Effect.Kind == Labels })
}

// FetchLane returns the lane that brings content, on which a stub's content is asked for.
func (c *Catalogue) FetchLane() Lane { return c.fetch }

// FlagsOf gives every flag's value on a message that carries these labels. No labels at all is a
// message with none of them, not an unknown one.
func (c *Catalogue) FlagsOf(labels []string) map[string]bool {
	flags := make(map[string]bool, len(c.Flags))
	for _, rule := range c.Flags {
		flags[rule.Field] = carries(labels, rule.Label) == rule.Carried
	}
	return flags
}

var (
	keyForm        = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
	entryPointForm = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	fieldForm      = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)

	// The message's other fields (design 3.4): a flag may not take their place.
	takenFields = map[string]bool{
		"threadId": true, "from": true, "to": true, "cc": true, "subject": true, "snippet": true,
		"date": true, "sizeEstimate": true, "hasContent": true, "content": true, "deleted": true,
		"guards": true, "fetchDueAt": true, "fetchHistoryId": true, "updatedAt": true,
		"expireAt": true, "labelIds": true, "labels": true,
	}
)

func (c *Catalogue) check() error {
	var errs []error
	keys, entryPoints, fetches := map[string]bool{}, map[string]bool{}, 0
	for i, l := range c.Lanes {
		refuse := func(format string, args ...any) {
			errs = append(errs, c.refusal(i, fmt.Sprintf(format, args...)))
		}
		if !keyForm.MatchString(l.Key) || len(l.Key) > 60 {
			refuse("key must be lower-case words joined by hyphens, at most 60 characters")
		}
		if keys[l.Key] {
			refuse("the key is there twice")
		}
		if !entryPointForm.MatchString(l.EntryPoint) {
			refuse("entryPoint must be an exported Go name")
		}
		if entryPoints[l.EntryPoint] || reservedEntryPoint(l.EntryPoint) {
			refuse("entryPoint %s is another function's", l.EntryPoint)
		}
		keys[l.Key], entryPoints[l.EntryPoint] = true, true
		if len(l.Match) == 0 {
			refuse("match is empty: no event would ever come")
		}
		for _, m := range l.Match {
			if problem := m.check(l.Effect.Kind); problem != "" {
				refuse("%s", problem)
			}
		}
		if problem := l.Effect.check(); problem != "" {
			refuse("%s", problem)
		}
		for _, problem := range l.Delivery.check() {
			refuse("%s", problem)
		}
		if l.Effect.Kind == Fetch {
			fetches++
			c.fetch = l
		}
		if l.Optional && l.Effect.Kind != Labels {
			refuse("only a lane with the effect labels can be optional: others' lanes and flags hang together")
		}
		if l.Effect.Kind == SetTo && l.Effect.Value != nil {
			if problem := c.addFlag(l); problem != "" {
				refuse("%s", problem)
			}
		}
	}
	if fetches != 1 {
		errs = append(errs, fmt.Errorf("catalogue: exactly one lane must have the effect fetch, not %d", fetches))
	}
	return errors.Join(errs...)
}

func (m Match) check(effect EffectKind) string {
	ofLabels := m.History == LabelsAdded || m.History == LabelsRemoved
	if effect == Labels && (!ofLabels || m.Label != "") {
		return "effect labels takes every label: match labelsAdded and labelsRemoved, without a label"
	}
	switch m.History {
	case MessagesAdded, MessagesDeleted:
		if m.Label != "" {
			return fmt.Sprintf("a match on %s takes unlessLabel, but no label", m.History)
		}
	case LabelsAdded, LabelsRemoved:
		if m.Label == "" && effect != Labels {
			return fmt.Sprintf("a match on %s needs the label", m.History)
		}
	default:
		return fmt.Sprintf("history %q is none of messagesAdded, messagesDeleted, labelsAdded, labelsRemoved", m.History)
	}
	return ""
}

func (e Effect) check() string {
	switch e.Kind {
	case Fetch, Delete, Labels:
		if e.Field != "" || e.Value != nil {
			return fmt.Sprintf("effect %s takes no field and no value", e.Kind)
		}
	case SetTo:
		if e.Value == nil {
			return "effect flag needs a value, true or false"
		}
		if !fieldForm.MatchString(e.Field) || takenFields[e.Field] {
			return fmt.Sprintf("effect flag needs a field of its own in lower camel case, not %q", e.Field)
		}
	default:
		return fmt.Sprintf("effect %q is none of fetch, flag, delete, labels", e.Kind)
	}
	return ""
}

func (d Delivery) check() []string {
	var problems []string
	within := func(name string, value, low, high int) {
		if value < low || value > high {
			problems = append(problems, fmt.Sprintf("delivery: %s is %d, must be %d to %d", name, value, low, high))
		}
	}
	within("instances", d.Instances, 1, 1000)
	within("concurrency", d.Concurrency, 1, 1000)
	within("maxRetries", d.MaxRetries, 0, 20)
	within("minBackoffSeconds", d.MinBackoffSeconds, 0, 600)
	within("maxBackoffSeconds", d.MaxBackoffSeconds, d.MinBackoffSeconds, 600)
	within("ackDeadlineSeconds", d.AckDeadlineSeconds, 10, 600)
	// Pub/Sub's net lies below our own count, or it would take events that still have retries left.
	within("maxDeliveryAttempts", d.MaxDeliveryAttempts, max(5, d.MaxRetries+2), 100)
	return problems
}

// addFlag learns from a flag's lane which label the flag stands for; every lane of one flag must
// say the same.
func (c *Catalogue) addFlag(l Lane) string {
	for _, m := range l.Match {
		if m.History != LabelsAdded && m.History != LabelsRemoved {
			return "a flag follows a label: match labelsAdded or labelsRemoved"
		}
		rule := FlagRule{
			Field:   l.Effect.Field,
			Label:   m.Label,
			Carried: (m.History == LabelsAdded) == *l.Effect.Value,
		}
		known := false
		for _, other := range c.Flags {
			if other.Field == rule.Field {
				known = true
				if other != rule {
					return fmt.Sprintf("field %s already follows label %s in another way", other.Field, other.Label)
				}
			}
		}
		if !known {
			c.Flags = append(c.Flags, rule)
		}
	}
	return ""
}
