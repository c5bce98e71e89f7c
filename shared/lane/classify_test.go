package lane_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/api/gmail/v1"

	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

// names writes events as "lane message id".
func names(events []mail.Event) []string {
	list := []string{}
	for _, e := range events {
		list = append(list, fmt.Sprintf("%s %s %d", e.Lane, e.MessageID, e.HistoryID))
	}
	return list
}

func added(message string, labels ...string) lane.Entry {
	return lane.Entry{List: lane.MessagesAdded, MessageID: message, ThreadID: "t-" + message, MessageLabels: labels}
}

func deleted(message string, labels ...string) lane.Entry {
	return lane.Entry{List: lane.MessagesDeleted, MessageID: message, MessageLabels: labels}
}

func plus(message string, labels []string, carries ...string) lane.Entry {
	return lane.Entry{List: lane.LabelsAdded, MessageID: message, Labels: labels, MessageLabels: carries}
}

func minus(message string, labels []string, carries ...string) lane.Entry {
	return lane.Entry{List: lane.LabelsRemoved, MessageID: message, Labels: labels, MessageLabels: carries}
}

func record(id mail.HistoryID, entries ...lane.Entry) lane.Record {
	return lane.Record{ID: id, Entries: entries}
}

type records = []lane.Record

func TestClassify(t *testing.T) {
	t.Parallel()
	unread, trash, draft := []string{"UNREAD"}, []string{"TRASH"}, []string{"DRAFT"}
	for _, c := range []struct {
		name  string
		pages []records
		want  [][]string // of each page
	}{
		{"added", []records{{record(110, added("m1", "INBOX", "UNREAD"))}}, [][]string{{"message-added m1 110"}}},
		{"added without labels", []records{{record(110, added("m1"))}}, [][]string{{"message-added m1 110"}}},
		{"read", []records{{record(110, minus("m1", unread, "INBOX"))}}, [][]string{{"message-read m1 110"}}},
		{"unread", []records{{record(110, plus("m1", unread, "INBOX", "UNREAD"))}}, [][]string{{"message-unread m1 110"}}},
		{"trashed", []records{{record(110, plus("m1", trash, "TRASH"))}}, [][]string{{"message-trashed m1 110"}}},
		{"restored", []records{{record(110, minus("m1", trash, "INBOX"))}}, [][]string{{"message-restored m1 110"}}},
		{"permanently deleted", []records{{record(110, deleted("m1"))}}, [][]string{{"message-permanently-deleted m1 110"}}},

		{"labels that no lane follows", []records{{record(110, plus("m1", []string{"STARRED", "Label_1"}), minus("m2", []string{"INBOX"}))}}, [][]string{{}}},
		{"a label among others", []records{{record(110, minus("m1", []string{"CATEGORY_UPDATES", "UNREAD", "INBOX"}))}}, [][]string{{"message-read m1 110"}}},
		{"two labels at once", []records{{record(110, plus("m1", []string{"TRASH", "UNREAD"}))}}, [][]string{{"message-unread m1 110", "message-trashed m1 110"}}},
		{"several kinds in one record, in their order", []records{{record(110,
			added("m1", "INBOX"), deleted("m2"), plus("m3", trash), minus("m3", unread), minus("m1", unread))}},
			[][]string{{"message-added m1 110", "message-permanently-deleted m2 110", "message-trashed m3 110", "message-read m3 110", "message-read m1 110"}}},
		{"one kind for several messages", []records{{record(110, minus("m2", unread), minus("m1", unread))}}, [][]string{{"message-read m2 110", "message-read m1 110"}}},
		{"an unknown list", []records{{record(110, lane.Entry{List: "labelsMoved", MessageID: "m1", Labels: unread})}}, [][]string{{}}},
		{"an empty record", []records{{record(110)}}, [][]string{{}}},
		{"an empty page between", []records{{record(110, added("m1"))}, nil, {record(111, added("m2"))}},
			[][]string{{"message-added m1 110"}, {}, {"message-added m2 111"}}},

		{"a draft is left out", []records{{record(110, added("d1", "DRAFT")), record(111, deleted("d1", "DRAFT"))}}, [][]string{{}}},
		{"a draft's labels are left out", []records{{record(110, plus("d1", trash, "DRAFT", "TRASH")), record(111, minus("d1", unread, "DRAFT"))}}, [][]string{{}}},
		{"a draft that is sent", []records{{record(110, added("d1", "DRAFT")), record(115, minus("d1", draft, "SENT"))}}, [][]string{{"message-added d1 115"}}},
		{"a draft that is sent as another message", []records{{record(110, deleted("d1", "DRAFT"), added("m1", "SENT"))}}, [][]string{{"message-added m1 110"}}},
		{"a message that becomes a draft", []records{{record(110, plus("m1", draft, "DRAFT"))}}, [][]string{{}}},
		{"a deletion that does not show the label", []records{{record(110, deleted("d1"))}}, [][]string{{"message-permanently-deleted d1 110"}}},

		{"said twice in one record", []records{{record(110, added("m1"), added("m1"))}}, [][]string{{"message-added m1 110"}}},
		{"twice on a page: the greater id in the first's place", []records{{
			record(110, minus("m1", unread)), record(111, minus("m2", unread)), record(112, minus("m1", unread))}},
			[][]string{{"message-read m1 112", "message-read m2 111"}}},
		{"twice on a page, ids out of order", []records{{record(112, minus("m1", unread)), record(110, minus("m1", unread))}}, [][]string{{"message-read m1 112"}}},
		{"read, unread and read again", []records{{record(110, minus("m1", unread)), record(111, plus("m1", unread)), record(112, minus("m1", unread))}},
			[][]string{{"message-read m1 112", "message-unread m1 111"}}},
		{"on two pages: only a greater id follows", []records{{record(110, minus("m1", unread))}, {record(112, minus("m1", unread))}},
			[][]string{{"message-read m1 110"}, {"message-read m1 112"}}},
		{"on two pages, ids out of order", []records{{record(112, minus("m1", unread))}, {record(110, minus("m1", unread)), record(112, minus("m1", unread))}},
			[][]string{{"message-read m1 112"}, {}}},
		{"on two pages, the second twice", []records{{record(110, minus("m1", unread))}, {record(111, added("m2")), record(112, minus("m1", unread)), record(113, minus("m1", unread))}},
			[][]string{{"message-read m1 110"}, {"message-added m2 111", "message-read m1 113"}}},
		{"on three pages", []records{{record(110, added("m1"))}, {record(112, added("m1"))}, {record(111, added("m1"))}},
			[][]string{{"message-added m1 110"}, {"message-added m1 112"}, {}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			listing := load(t).NewListing("a1")
			var got [][]string
			for _, page := range c.pages {
				got = append(got, names(listing.Page(page)))
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestEventsSayWhatTheyAreOf(t *testing.T) {
	t.Parallel()
	c := load(t)
	got := c.NewListing("a1").Page(records{record(110, added("m1", "INBOX"))})
	want := []mail.Event{{AccountID: "a1", MessageID: "m1", ThreadID: "t-m1", Lane: "message-added", HistoryID: 110}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// Another listing knows nothing of this one.
	if again := c.NewListing("a1").Page(records{record(110, added("m1", "INBOX"))}); len(again) != 1 {
		t.Errorf("a second listing gave %v", names(again))
	}
}

// TestCases classifies what Gmail answers in the cases from the field.
func TestCases(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../app/testdata/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Name  string
			Gmail struct {
				List []struct{ Body json.RawMessage } `json:"history.list"`
			}
			Want struct {
				EventsPublished   json.RawMessage
				EventsPublishedOf map[string]int
			}
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, c := range file.Cases {
		var want []string
		if json.Unmarshal(c.Want.EventsPublished, &want) != nil && c.Want.EventsPublishedOf == nil {
			continue // nothing is said of events, or that there are none because nothing was listed
		}
		tried++
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			listing := load(t).NewListing("a1")
			got, of := []string{}, map[string]int{}
			for _, answer := range c.Gmail.List {
				var page gmail.ListHistoryResponse
				if err := json.Unmarshal(answer.Body, &page); err != nil {
					t.Fatal(err)
				}
				events := listing.Page(recordsOf(&page))
				got = append(got, names(events)...)
				for _, e := range events {
					of[e.Lane]++
				}
			}
			if d := cmp.Diff(want, got); want != nil && d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			for lane, n := range c.Want.EventsPublishedOf {
				if of[lane] != n {
					t.Errorf("%s: %d events, want %d", lane, of[lane], n)
				}
			}
		})
	}
	if tried < 5 {
		t.Errorf("only %d cases say what is published", tried)
	}
}

// recordsOf gives Gmail's answer the form in which it is classified.
func recordsOf(page *gmail.ListHistoryResponse) []lane.Record {
	var list []lane.Record
	for _, h := range page.History {
		if h == nil {
			continue
		}
		r := lane.Record{ID: mail.HistoryID(h.Id)}
		entry := func(of lane.List, m *gmail.Message, labels []string) {
			if m != nil && m.Id != "" {
				r.Entries = append(r.Entries, lane.Entry{List: of, MessageID: m.Id, ThreadID: m.ThreadId, Labels: labels, MessageLabels: m.LabelIds})
			}
		}
		for _, e := range h.MessagesAdded {
			entry(lane.MessagesAdded, e.Message, nil)
		}
		for _, e := range h.MessagesDeleted {
			entry(lane.MessagesDeleted, e.Message, nil)
		}
		for _, e := range h.LabelsAdded {
			entry(lane.LabelsAdded, e.Message, e.LabelIds)
		}
		for _, e := range h.LabelsRemoved {
			entry(lane.LabelsRemoved, e.Message, e.LabelIds)
		}
		list = append(list, r)
	}
	return list
}
