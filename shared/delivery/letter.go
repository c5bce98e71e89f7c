package delivery

import (
	"mailyard.internal/mailyard/shared/event"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// A LetterReader reads dead letters as the messages that they are on a dead-letter topic.
type LetterReader struct {
	routes map[string]lane.Route // by monitor subscription
	lanes  map[string]string     // key by topic
}

// NewLetterReader returns a reader of the letters of a catalogue's routes.
func NewLetterReader(catalogue *lane.Catalogue) *LetterReader {
	r := &LetterReader{map[string]lane.Route{}, map[string]string{}}
	for _, route := range catalogue.Routes() {
		r.routes[route.MonitorSubscription()] = route
	}
	for _, l := range catalogue.Lanes {
		r.lanes[l.Topic()] = l.Key
	}
	return r
}

// Read returns what a letter says, as an entry of the ledger. The monitor's subscription tells where a
// letter comes from that does not say so itself.
func (r *LetterReader) Read(m Message) ledger.Entry {
	route := r.routes[m.Subscription]
	topic, consumer := route.Topic, route.EntryPoint
	if ledger.IsLetter(m.Attributes) {
		topic, consumer = m.Attributes[ledger.LetterTopic], m.Attributes[ledger.LetterConsumer]
	}
	var subject ledger.Subject
	if key, ok := r.lanes[topic]; ok {
		subject.Lane = key
		if e, err := event.Decode(key, m.Data, m.Attributes); err == nil {
			subject = SubjectOf(e)
		}
	}
	e := ledger.FromLetter(LedgerID(route.Subscription, m, subject), topic, consumer, subject, m.Data, m.Attributes, m.PublishTime)
	e.Trace = m.Traceparent
	return e
}

// ReadHeld reads a letter that the route's -inspect subscription holds.
func (r *LetterReader) ReadHeld(route lane.Route, h ledger.Held) ledger.Entry {
	return r.Read(Message{
		ID: h.MessageID, Data: h.Data, Attributes: h.Attributes, PublishTime: h.Published, Subscription: route.MonitorSubscription(),
	})
}

// LaneOf returns the key of the lane that has that topic, or false.
func (r *LetterReader) LaneOf(topic string) (string, bool) {
	key, ok := r.lanes[topic]
	return key, ok
}

// Rename returns a letter's attributes with those that name its event changed to another's.
func (r *LetterReader) Rename(attributes map[string]string, e mail.Event) map[string]string {
	return event.Rename(attributes, e)
}

// Decode reads the event of a lane; the error says what is wrong with it.
func (r *LetterReader) Decode(lane string, data []byte, attributes map[string]string) (mail.Event, error) {
	return event.Decode(lane, data, attributes)
}
