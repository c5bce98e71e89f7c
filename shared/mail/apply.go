// Package mail holds what is mirrored, accounts and messages, and the one rule by which a message
// changes. It does no I/O.
//
// A message is made of facets (its content, its deletion, each of its flags), and each facet has a
// guard: the historyId at which it was last set. [Apply] sets a facet only when the change is newer
// than its guard. So for any order, repetition or interleaving of the same changes the end is the
// same; a late change changes nothing, and facets never shut each other out.
package mail

import "time"

// A Change is what one event, or one fetch, says about one message.
type Change interface {
	applyTo(m *Message)
}

// Apply returns the message as the change leaves it. It changes neither of its arguments.
func Apply(m Message, c Change) Message {
	m = m.clone()
	c.applyTo(&m)
	return m
}

// Flag sets one flag, as a history record says.
type Flag struct {
	Field     string
	Value     bool
	HistoryID HistoryID // of the record
	ThreadID  string
}

// A record's word is exact, while the labels of a fetch may be older than its historyId. So at a
// tie with a fetch (only a fetch sets the guard of the content) the record's word stands.
func (c Flag) applyTo(m *Message) {
	guard := m.Guards[c.Field]
	tieWithFetch := c.HistoryID == guard && c.HistoryID == m.Guards[FacetContent]
	if c.HistoryID > guard || tieWithFetch {
		m.Flags[c.Field] = c.Value
		m.Guards[c.Field] = c.HistoryID
	}
	m.setThread(c.ThreadID)
}

// Fetched sets the content and every flag, as Gmail showed the message when it was fetched.
type Fetched struct {
	// HistoryID must not be greater than the moment of the labels: see [FetchGuard].
	HistoryID HistoryID
	ThreadID  string
	Flags     map[string]bool
	// Labels are all that the message carries, where the catalogue keeps them; nil where not.
	Labels  []string
	Summary Summary
	Body    Body
}

// FetchGuard is the historyId that a fetch may be guarded by: the smaller of the message's own and
// the one of the event that asked for it. Gmail does not promise that labels and historyId are read
// at one moment, and a guard that is too high would shut out a change that is on its way.
func FetchGuard(message, event HistoryID) HistoryID {
	if message == 0 {
		return event
	}
	return min(message, event)
}

func (c Fetched) applyTo(m *Message) {
	for field, value := range c.Flags {
		if c.HistoryID > m.Guards[field] {
			m.Flags[field] = value
			m.Guards[field] = c.HistoryID
		}
	}
	if c.Labels != nil {
		m.setLabels(c.Labels, c.HistoryID)
	}
	// Gmail never brings an id back: a message that was seen had not been deleted by then. So at a
	// tie a deletion that was only concluded (the fetch of the same event found nothing) gives way.
	if c.HistoryID >= m.Guards[FacetDeleted] {
		m.Deleted = false
		m.Guards[FacetDeleted] = c.HistoryID
	}
	if c.HistoryID > m.Guards[FacetContent] {
		m.Guards[FacetContent] = c.HistoryID
		if !m.Deleted {
			m.setContent(c.Summary, &c.Body)
		}
	}
	// Whatever id it is guarded by, it did what a fetch that was put off is still to do.
	if !m.Deleted {
		m.FetchDueAt, m.FetchHistoryID = time.Time{}, 0
	}
	m.setThread(c.ThreadID)
}

// Deletion makes a tombstone: the message is gone from Gmail.
type Deletion struct {
	HistoryID HistoryID
	ThreadID  string
}

func (c Deletion) applyTo(m *Message) {
	if c.HistoryID > m.Guards[FacetDeleted] {
		m.Deleted = true
		m.Guards[FacetDeleted] = c.HistoryID
		m.setContent(Summary{}, nil)
	}
	m.setThread(c.ThreadID)
}

func (m *Message) setContent(s Summary, b *Body) {
	m.Summary, m.Body, m.HasContent = s, b, b != nil
	m.FetchDueAt, m.FetchHistoryID = time.Time{}, 0
}

func (m *Message) setThread(id string) {
	if m.ThreadID == "" {
		m.ThreadID = id
	}
}
