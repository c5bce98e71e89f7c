package mail

import (
	"maps"
	"slices"
	"time"
)

// The facets that every message has. Each flag of the catalogue is one more, named as its field.
const (
	FacetContent = "content"
	FacetDeleted = "deleted"
)

// A Message is the mirror of one Gmail message: what Firestore holds of it, without its body.
type Message struct {
	ID       string
	ThreadID string

	Summary
	// HasContent is false for a stub, a message known only by its flags, and for a tombstone.
	HasContent bool
	// Flags holds the catalogue's flags that have been set, by field.
	Flags map[string]bool
	// Labels holds the labels that the message carries, where the catalogue keeps them; nil where not.
	Labels  map[string]bool
	Deleted bool
	// Guards holds the historyId at which each facet was last set.
	Guards map[string]HistoryID

	// FetchDueAt is set on a stub whose fetch was put off, FetchHistoryID to its event's historyId.
	FetchDueAt     time.Time
	FetchHistoryID HistoryID

	UpdatedAt time.Time
	ExpireAt  time.Time // of a tombstone

	// Body is set only by a change that brings content: a message read from the store comes without.
	Body *Body

	// Version marks what the store read, for a write that checks what it replaces; zero where there
	// was no document.
	Version time.Time
}

// A Summary is the part of a message's content that an inbox lists.
type Summary struct {
	From         string // as a person reads it: "Kim <kim@example.com>", or the bare address
	To           []string
	Cc           []string
	Subject      string
	Snippet      string
	Date         time.Time // Gmail's internal date
	SizeEstimate int64     // bytes
}

// A Body is the part of a message's content that is read when it is opened.
type Body struct {
	Text        string
	HTML        string
	Attachments []Attachment
	// Truncated says that text, HTML or the list of attachments was cut to what a document can hold.
	Truncated bool
}

// An Attachment is named, not kept. PartID finds it again; Gmail's attachment ids are short-lived.
type Attachment struct {
	Filename string
	MIMEType string
	Size     int64 // bytes
	PartID   string
}

// EverMirrored reports whether the mirror has held more of the message than its deletion.
func (m Message) EverMirrored() bool {
	for facet := range m.Guards {
		if facet != FacetDeleted {
			return true
		}
	}
	return false
}

// NeedsContent reports whether the message is a stub, whose content is still to be asked for.
func (m Message) NeedsContent() bool { return !m.HasContent && !m.Deleted }

func (m Message) clone() Message {
	m.Flags = maps.Clone(m.Flags)
	m.Labels = maps.Clone(m.Labels)
	m.Guards = maps.Clone(m.Guards)
	if m.Flags == nil {
		m.Flags = map[string]bool{}
	}
	if m.Guards == nil {
		m.Guards = map[string]HistoryID{}
	}
	return m
}

// A Fetch is a message as Gmail shows it at one moment.
type Fetch struct {
	ThreadID  string
	HistoryID HistoryID // the message's own, which may be older or newer than its labels
	Labels    []string
	Summary   Summary
	Body      Body
}

// Differ reports whether a message that was read and what became of it are not the same.
func Differ(read, become Message) bool {
	return read.ThreadID != become.ThreadID ||
		read.HasContent != become.HasContent ||
		read.Deleted != become.Deleted ||
		!read.FetchDueAt.Equal(become.FetchDueAt) ||
		read.FetchHistoryID != become.FetchHistoryID ||
		!maps.Equal(read.Flags, become.Flags) ||
		!maps.Equal(read.Labels, become.Labels) ||
		!maps.Equal(read.Guards, become.Guards)
}

// Defer puts the fetch that an event asks for off to a later moment. Of several events the one with
// the greatest historyId is kept: its fetch serves them all. Nothing is put off where another
// delivery has meanwhile brought what the event asks for, or has found the message gone.
func Defer(m Message, e Event, due time.Time) Message {
	m = m.clone()
	m.setThread(e.ThreadID)
	fetched := m.Guards[FacetContent] >= e.HistoryID
	gone := m.Deleted && m.Guards[FacetDeleted] >= e.HistoryID
	if !fetched && !gone {
		m.FetchDueAt, m.FetchHistoryID = due, max(m.FetchHistoryID, e.HistoryID)
	}
	return m
}

// Stub makes sure that a message is known, though nothing of it is yet and no fetch is due.
func Stub(m Message, e Event) Message {
	m = m.clone()
	m.setThread(e.ThreadID)
	m.FetchDueAt, m.FetchHistoryID = time.Time{}, 0
	return m
}

// DraftLabel marks a message that is not sent yet, and so not mirrored.
const DraftLabel = "DRAFT"

// IsDraft reports whether a message with these labels is a draft.
func IsDraft(labels []string) bool { return slices.Contains(labels, DraftLabel) }
