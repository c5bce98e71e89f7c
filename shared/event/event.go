// Package event is the form of an event on the wire: a CloudEvent 1.0 in the Pub/Sub binding's
// binary mode, whose context attributes are message attributes with the prefix "ce-" and whose data
// is JSON. The same change always has the same ce-id.
package event

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"mailyard.internal/mailyard/shared/mail"
)

// IDAttribute carries the event's id, by which the ledger and the log know it.
const IDAttribute = "ce-id"

// TraceparentAttribute carries the W3C trace context of the push that brought the change.
const TraceparentAttribute = "ce-traceparent"

const (
	prefix       = "ce-"
	contentType  = "content-type"
	sourcePrefix = "//gmail.googleapis.com/accounts/"
	typePrefix   = "mailyard.gmail."
	typeSuffix   = ".v1"
)

var versions = spec.WithPrefix(prefix)

// data is the event's JSON. historyId is a string, since JSON's readers lose digits beyond 2^53.
type data struct {
	AccountID string `json:"accountId"`
	MessageID string `json:"messageId"`
	ThreadID  string `json:"threadId"`
	Lane      string `json:"lane"`
	HistoryID string `json:"historyId"`
	// Labels are on a lane that keeps labels alone.
	Labels []label `json:"labels,omitempty"`
}

type label struct {
	ID        string `json:"id"`
	Carried   bool   `json:"carried"`
	HistoryID string `json:"historyId"`
}

// Encode gives a Pub/Sub message's data and attributes. It fails for an event that [mail.Event.Check]
// refuses.
func Encode(e mail.Event) ([]byte, map[string]string, error) {
	if err := e.Check(); err != nil {
		return nil, nil, fmt.Errorf("encode event %s: %w", e.ID(), err)
	}
	d := data{e.AccountID, e.MessageID, e.ThreadID, e.Lane, e.HistoryID.String(), nil}
	for _, c := range e.Labels {
		d.Labels = append(d.Labels, label{c.Label, c.Carried, c.HistoryID.String()})
	}
	body, err := json.Marshal(d)
	if err != nil {
		return nil, nil, fmt.Errorf("encode event %s: %w", e.ID(), err)
	}
	attributes := map[string]string{
		prefix + "specversion": ce.CloudEventsVersionV1,
		IDAttribute:            e.ID(),
		prefix + "source":      sourcePrefix + e.AccountID,
		prefix + "type":        typePrefix + e.Lane + typeSuffix,
		prefix + "subject":     e.MessageID,
		prefix + "time":        types.FormatTime(e.Time.UTC()),
		contentType:            ce.ApplicationJSON,
	}
	if e.Traceparent != "" {
		attributes[TraceparentAttribute] = e.Traceparent
	}
	return body, attributes, nil
}

// Rename returns a message's attributes with those that name the event changed to another's.
func Rename(attributes map[string]string, e mail.Event) map[string]string {
	renamed := maps.Clone(attributes)
	if renamed == nil {
		renamed = map[string]string{}
	}
	renamed[IDAttribute] = e.ID()
	renamed[prefix+"source"] = sourcePrefix + e.AccountID
	renamed[prefix+"subject"] = e.MessageID
	return renamed
}

// Decode reads an event that must be of the given lane. It refuses what is no CloudEvent 1.0, is of
// another type, or whose attributes and data disagree.
func Decode(lane string, body []byte, attributes map[string]string) (mail.Event, error) {
	wire, err := binding.ToEvent(context.Background(), message{body, attributes})
	if err != nil {
		return mail.Event{}, fmt.Errorf("not a CloudEvent in binary mode: %w", err)
	}
	if err := wire.Validate(); err != nil {
		return mail.Event{}, fmt.Errorf("not a valid CloudEvent: %w", err)
	}
	if want := typePrefix + lane + typeSuffix; wire.Type() != want {
		return mail.Event{}, fmt.Errorf("ce-type is %.80q, this lane takes %q", wire.Type(), want)
	}
	var d data
	if err := json.Unmarshal(body, &d); err != nil {
		return mail.Event{}, errors.New("data is not the JSON of an event")
	}
	id, err := mail.ParseHistoryID(d.HistoryID)
	if err != nil {
		return mail.Event{}, err
	}
	e := mail.Event{
		AccountID: d.AccountID, MessageID: d.MessageID, ThreadID: d.ThreadID, Lane: d.Lane, HistoryID: id,
		Time: wire.Time(), Traceparent: attributes[TraceparentAttribute],
	}
	for _, l := range d.Labels {
		at, err := mail.ParseHistoryID(l.HistoryID)
		if err != nil {
			return mail.Event{}, err
		}
		e.Labels = append(e.Labels, mail.LabelChange{Label: l.ID, Carried: l.Carried, HistoryID: at})
	}
	if err := e.Check(); err != nil {
		return mail.Event{}, err
	}
	if e.Lane != lane || wire.ID() != e.ID() || wire.Source() != sourcePrefix+e.AccountID || wire.Subject() != e.MessageID {
		return mail.Event{}, errors.New("the attributes ce-id, ce-source and ce-subject do not say what the data says")
	}
	return e, nil
}

// message lets the CloudEvents library read a Pub/Sub message.
type message struct {
	body       []byte
	attributes map[string]string
}

var _ binding.Message = message{}

func (m message) version() spec.Version {
	return versions.Version(m.attributes[versions.PrefixedSpecVersionName()])
}

func (m message) ReadEncoding() binding.Encoding {
	switch {
	case m.version() != nil:
		return binding.EncodingBinary
	case format.IsFormat(m.attributes[contentType]):
		return binding.EncodingStructured // which Mailyard never publishes
	}
	return binding.EncodingUnknown
}

func (m message) ReadStructured(context.Context, binding.StructuredWriter) error {
	return binding.ErrNotStructured
}

func (m message) ReadBinary(_ context.Context, w binding.BinaryWriter) error {
	version := m.version()
	if version == nil {
		return binding.ErrNotBinary
	}
	for name, value := range m.attributes {
		var err error
		switch attribute := version.Attribute(name); {
		case attribute != nil:
			err = w.SetAttribute(attribute, value)
		case name == contentType:
			err = w.SetAttribute(version.AttributeFromKind(spec.DataContentType), value)
		case strings.HasPrefix(name, prefix):
			err = w.SetExtension(strings.TrimPrefix(name, prefix), value)
		}
		if err != nil {
			return err
		}
	}
	return w.SetData(bytes.NewReader(m.body))
}

func (m message) GetAttribute(kind spec.Kind) (spec.Attribute, any) {
	version := m.version()
	if version == nil {
		return nil, nil
	}
	attribute := version.AttributeFromKind(kind)
	if attribute == nil {
		return nil, nil
	}
	if kind == spec.DataContentType {
		return attribute, m.attributes[contentType]
	}
	return attribute, m.attributes[attribute.PrefixedName()]
}

func (m message) GetExtension(name string) any { return m.attributes[prefix+name] }

func (m message) Finish(error) error { return nil }
