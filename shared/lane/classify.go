package lane

import (
	"slices"

	"mailyard.internal/mailyard/shared/mail"
)

// A Record is one history record: what Gmail says changed at one historyId.
type Record struct {
	ID      mail.HistoryID
	Entries []Entry
}

// An Entry is one line of a record's lists.
type Entry struct {
	List      List
	MessageID string
	ThreadID  string
	// Labels are those that were added or removed; empty where a message was added or deleted.
	Labels []string
	// MessageLabels are those that the message carries, where Gmail says so.
	MessageLabels []string
}

// A Page is one page of a listing of history.
type Page struct {
	Records []Record
	// NextPageToken is empty on the last page.
	NextPageToken string
	// HistoryID is the mailbox's when the page was made.
	HistoryID mail.HistoryID
}

type matcher struct {
	lane               int // index in the catalogue
	label, unlessLabel string
}

func (c *Catalogue) index() {
	c.matchers = map[List][]matcher{}
	for i, l := range c.Lanes {
		for _, m := range l.Match {
			c.matchers[m.History] = append(c.matchers[m.History], matcher{i, m.Label, m.UnlessLabel})
		}
	}
}

// A Listing classifies the pages of one listing of one account's history, in their order.
type Listing struct {
	catalogue *Catalogue
	account   string
	seen      map[laneMessage]place
	pages     int
}

type laneMessage struct {
	lane    int
	message string
}

type place struct {
	page, index int
	id          mail.HistoryID
}

// NewListing begins a listing.
func (c *Catalogue) NewListing(account string) *Listing {
	return &Listing{catalogue: c, account: account}
}

// Page classifies one page. Within a listing an event's key is its lane and message: of two, the
// one with the greater id stays, in the place of the first. What an earlier page has given out is
// not called back, but only a greater id follows it. The events have no time and no trace yet.
func (l *Listing) Page(records []Record) []mail.Event {
	events := make([]mail.Event, 0, len(records))
	if l.seen == nil {
		l.seen = make(map[laneMessage]place, len(records))
	}
	l.pages++
	for _, record := range records {
		for i := range record.Entries {
			entry := &record.Entries[i]
			for _, m := range l.catalogue.matchers[entry.List] {
				if m.label != "" && !carries(entry.Labels, m.label) {
					continue
				}
				if m.unlessLabel != "" && carries(entry.MessageLabels, m.unlessLabel) {
					continue
				}
				events = l.add(events, m.lane, record.ID, entry)
			}
		}
	}
	return events
}

func (l *Listing) add(events []mail.Event, lane int, id mail.HistoryID, entry *Entry) []mail.Event {
	key := laneMessage{lane, entry.MessageID}
	first, known := l.seen[key]
	if known && first.page == l.pages && id == first.id {
		e := &events[first.index] // another list of the same record
		e.Labels = append(e.Labels, l.labels(lane, id, entry)...)
		return events
	}
	if known && id <= first.id {
		return events
	}
	if known && first.page == l.pages {
		e := &events[first.index]
		e.HistoryID = id
		e.Labels = append(e.Labels, l.labels(lane, id, entry)...)
		first.id = id
		l.seen[key] = first
		return events
	}
	l.seen[key] = place{l.pages, len(events), id}
	return append(events, mail.Event{
		AccountID: l.account,
		MessageID: entry.MessageID,
		ThreadID:  entry.ThreadID,
		Lane:      l.catalogue.Lanes[lane].Key,
		HistoryID: id,
		Labels:    l.labels(lane, id, entry),
	})
}

// labels are what an event of a lane that keeps labels says of each. The events of one message become
// one, so each label keeps its own record's id.
func (l *Listing) labels(lane int, id mail.HistoryID, entry *Entry) []mail.LabelChange {
	if l.catalogue.Lanes[lane].Effect.Kind != Labels {
		return nil
	}
	changes := make([]mail.LabelChange, len(entry.Labels))
	for i, label := range entry.Labels {
		changes[i] = mail.LabelChange{Label: label, Carried: entry.List == LabelsAdded, HistoryID: id}
	}
	return changes
}

func carries(labels []string, label string) bool { return slices.Contains(labels, label) }
