package mail_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mailyard.internal/mailyard/shared/mail"
)

// A history of labels ends the same in every order of its changes, repeated or not: each label as the
// last record says, whatever fetches saw in between, as long as every record's change arrives.
func TestLabelsEndAsTheLastRecordSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"INBOX", "STARRED", "SPAM", "Label_1", "Label_2"}
		truth := map[string]bool{}
		var changes []mail.Change
		snapshots := [][]string{nil}
		records := rapid.IntRange(1, 12).Draw(t, "records")
		for i := range records {
			at := mail.HistoryID(10 * (i + 1))
			var of []mail.LabelChange
			for _, label := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 3, rapid.ID[string]).Draw(t, "labels") {
				carried := rapid.Bool().Draw(t, "carried")
				truth[label] = carried
				of = append(of, mail.LabelChange{Label: label, Carried: carried, HistoryID: at})
			}
			changes = append(changes, mail.LabelsChanged{Changes: of})
			var carried []string
			for _, label := range names {
				if truth[label] {
					carried = append(carried, label)
				}
			}
			snapshots = append(snapshots, carried)
		}
		// A fetch shows the labels as they were after some record, or newer ones than its guard says.
		for range rapid.IntRange(0, 4).Draw(t, "fetches") {
			guarded := rapid.IntRange(0, records).Draw(t, "guarded by record")
			seen := rapid.IntRange(guarded, records).Draw(t, "labels as after record")
			changes = append(changes, mail.Fetched{HistoryID: mail.HistoryID(10*guarded + 1), Labels: append([]string{}, snapshots[seen]...)})
		}
		changes = append(changes, rapid.SliceOfN(rapid.SampledFrom(changes), 0, 5).Draw(t, "repeated")...)
		changes = rapid.Permutation(changes).Draw(t, "order")
		m := mail.Message{ID: "m"}
		for _, c := range changes {
			m = mail.Apply(m, c)
			if again := mail.Apply(m, c); mail.Differ(m, again) {
				t.Fatalf("applying %+v twice changes the message", c)
			}
		}
		var got []string
		for label := range m.Labels {
			got = append(got, label)
		}
		slices.Sort(got)
		want := slices.Clone(snapshots[records])
		slices.Sort(want)
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("labels (-want +got):\n%s\nguards %v", d, m.Guards)
		}
	})
}
