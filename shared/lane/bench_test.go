package lane_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"google.golang.org/api/gmail/v1"
)

// answer is history.list's answer with 500 records, the most of a page: half of it new mail, the
// rest read, unread, trashed and restored, as busy mailboxes have it.
func answer(tb testing.TB) []byte {
	tb.Helper()
	page := gmail.ListHistoryResponse{HistoryId: 2_000_000}
	for i := range uint64(500) {
		m := &gmail.Message{Id: fmt.Sprintf("18c0ffee%08x", i/2), ThreadId: fmt.Sprintf("18c0ffee%08x", i/4), LabelIds: []string{"UNREAD", "CATEGORY_UPDATES", "INBOX"}}
		h := &gmail.History{Id: 1_000_000 + 7*i, Messages: []*gmail.Message{{Id: m.Id, ThreadId: m.ThreadId}}}
		switch i % 8 {
		case 1:
			h.LabelsRemoved = []*gmail.HistoryLabelRemoved{{Message: m, LabelIds: []string{"UNREAD"}}}
		case 3:
			h.LabelsAdded = []*gmail.HistoryLabelAdded{{Message: m, LabelIds: []string{"UNREAD", "IMPORTANT"}}}
		case 5:
			h.LabelsAdded = []*gmail.HistoryLabelAdded{{Message: m, LabelIds: []string{"TRASH"}}}
		case 7:
			h.LabelsRemoved = []*gmail.HistoryLabelRemoved{{Message: m, LabelIds: []string{"TRASH"}}}
		default:
			h.MessagesAdded = []*gmail.HistoryMessageAdded{{Message: m}}
		}
		page.History = append(page.History, h)
	}
	data, err := json.Marshal(page)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func BenchmarkDecodeJSON(b *testing.B) {
	data := answer(b)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		var page gmail.ListHistoryResponse
		if err := json.Unmarshal(data, &page); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkClassify(b *testing.B) {
	c := load(b)
	var page gmail.ListHistoryResponse
	if err := json.Unmarshal(answer(b), &page); err != nil {
		b.Fatal(err)
	}
	records := recordsOf(&page)
	b.ReportAllocs()
	for b.Loop() {
		if events := c.NewListing("a1").Page(records); len(events) != 500 {
			b.Fatalf("%d events", len(events))
		}
	}
}

// Sorting a page into events costs at most a tenth of reading its JSON.
func TestClassifyingIsCheapBesideDecoding(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector slows maps and slices down, and reflection hardly: the ratio would say nothing")
	}
	const most = 0.1
	best := 1e9
	// Other work on the machine only ever makes a run slower, so the best of some is the nearest.
	for range 5 {
		decode := testing.Benchmark(BenchmarkDecodeJSON).NsPerOp()
		classify := testing.Benchmark(BenchmarkClassify).NsPerOp()
		if decode == 0 || classify == 0 {
			t.Fatal("a benchmark failed")
		}
		ratio := float64(classify) / float64(decode)
		if best = min(best, ratio); best <= most {
			t.Logf("500 records: classified in %d µs, decoded in %d µs: %.3f", classify/1000, decode/1000, ratio)
			return
		}
	}
	t.Errorf("classifying takes %.3f of the time of decoding, more than %.1f", best, most)
}
