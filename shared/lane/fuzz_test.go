package lane_test

import (
	"encoding/json"
	"testing"

	"google.golang.org/api/gmail/v1"

	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

// FuzzClassify classifies any answer of history.list that can be read at all, as two pages of a
// listing. Its seeds are in testdata.
func FuzzClassify(f *testing.F) {
	c := load(f)
	f.Fuzz(func(t *testing.T, answer []byte) {
		var page gmail.ListHistoryResponse
		if json.Unmarshal(answer, &page) != nil {
			return
		}
		list := recordsOf(&page)
		listing := c.NewListing("a1")
		half := len(list) / 2
		published := map[[2]string]mail.HistoryID{} // by lane and message
		for _, records := range [][]lane.Record{list[:half], list[half:], list} {
			checkPage(t, c, records, listing.Page(records), published)
		}
		for key, id := range published {
			if greatest := greatestID(list, key[1]); id > greatest {
				t.Errorf("%v is published at %d, and its newest record is %d", key, id, greatest)
			}
		}
	})
}

func checkPage(t *testing.T, c *lane.Catalogue, records []lane.Record, events []mail.Event, published map[[2]string]mail.HistoryID) {
	t.Helper()
	ids := map[mail.HistoryID]bool{}
	for _, r := range records {
		ids[r.ID] = true
	}
	onPage := map[[2]string]bool{}
	for _, e := range events {
		key := [2]string{e.Lane, e.MessageID}
		before, known := published[key]
		switch _, isLane := c.Lane(e.Lane); {
		case !isLane:
			t.Errorf("%q is no lane of the catalogue", e.Lane)
		case !ids[e.HistoryID]:
			t.Errorf("%v has the id %d, which no record has", key, e.HistoryID)
		case onPage[key]:
			t.Errorf("%v is twice on one page", key)
		case known && e.HistoryID <= before:
			t.Errorf("%v at %d follows one at %d", key, e.HistoryID, before)
		case e.AccountID != "a1" || e.MessageID == "":
			t.Errorf("the event is %+v", e)
		}
		onPage[key], published[key] = true, e.HistoryID
	}
}

func greatestID(records []lane.Record, message string) mail.HistoryID {
	greatest := mail.HistoryID(0)
	for _, r := range records {
		for _, e := range r.Entries {
			if e.MessageID == message {
				greatest = max(greatest, r.ID)
			}
		}
	}
	return greatest
}
