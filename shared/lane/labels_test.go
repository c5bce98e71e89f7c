package lane_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

// The optional lane is off unless it is named, and what is named must be one.
func TestOptionalLaneIsOffUnlessNamed(t *testing.T) {
	t.Parallel()
	off, err := lane.Load()
	if err != nil {
		t.Fatal(err)
	}
	on, err := lane.Load("message-labeled")
	if err != nil {
		t.Fatal(err)
	}
	if len(off.Lanes) != 6 || len(on.Lanes) != 7 || off.KeepsLabels() || !on.KeepsLabels() {
		t.Errorf("%d lanes without it, %d with it", len(off.Lanes), len(on.Lanes))
	}
	if off.LabelsOf([]string{"INBOX"}) != nil || on.LabelsOf(nil) == nil {
		t.Error("labels are kept where the lane is off, or are not where it is on")
	}
	for _, name := range []string{"message-read", "message-nonsense"} {
		if _, err := lane.Load(name); err == nil {
			t.Errorf("%s was taken for an optional lane", name)
		}
	}
}

// The label changes of one message become one event, which loses none of them.
func TestLabelChangesOfAMessageBecomeOneEvent(t *testing.T) {
	t.Parallel()
	c, err := lane.Load("message-labeled")
	if err != nil {
		t.Fatal(err)
	}
	listing := c.NewListing("a1")
	entry := func(list lane.List, message string, labels ...string) lane.Entry {
		return lane.Entry{List: list, MessageID: message, ThreadID: "t1", Labels: labels}
	}
	got := listing.Page([]lane.Record{
		{ID: 110, Entries: []lane.Entry{entry(lane.LabelsAdded, "m1", "STARRED", "Label_7"), entry(lane.LabelsRemoved, "m1", "INBOX")}},
		{ID: 115, Entries: []lane.Entry{entry(lane.LabelsAdded, "m2", "SPAM")}},
		{ID: 120, Entries: []lane.Entry{entry(lane.LabelsRemoved, "m1", "STARRED")}},
	})
	got = append(got, listing.Page([]lane.Record{{ID: 130, Entries: []lane.Entry{entry(lane.LabelsAdded, "m1", "INBOX")}}})...)
	want := []mail.Event{
		{AccountID: "a1", MessageID: "m1", ThreadID: "t1", Lane: "message-labeled", HistoryID: 120, Labels: []mail.LabelChange{
			{Label: "STARRED", Carried: true, HistoryID: 110}, {Label: "Label_7", Carried: true, HistoryID: 110},
			{Label: "INBOX", Carried: false, HistoryID: 110}, {Label: "STARRED", Carried: false, HistoryID: 120},
		}},
		{AccountID: "a1", MessageID: "m2", ThreadID: "t1", Lane: "message-labeled", HistoryID: 115, Labels: []mail.LabelChange{{Label: "SPAM", Carried: true, HistoryID: 115}}},
		{AccountID: "a1", MessageID: "m1", ThreadID: "t1", Lane: "message-labeled", HistoryID: 130, Labels: []mail.LabelChange{{Label: "INBOX", Carried: true, HistoryID: 130}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	for _, e := range got {
		if err := e.Check(); err != nil {
			t.Errorf("%s: %v", e.ID(), err)
		}
	}
}
