package app_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mailyard.internal/mailyard/scripts/local/courier"
	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/mail"
)

// checkLabels compares the labels of every message with the mailbox's.
func checkLabels(t *testing.T, y *apptest.Yard, account string, box *gmailsim.Mailbox) {
	t.Helper()
	for _, there := range box.Snapshot() {
		got := slices.Sorted(maps.Keys(y.Message(account, there.ID).Labels))
		if d := cmp.Diff(there.Labels, got); d != "" {
			t.Errorf("labels of %s (-mailbox +mirror):\n%s", there.ID, d)
		}
	}
}

// The optional lane keeps every label, whatever the order of its events, and a resync fills it where it
// is new.
func TestOptionalLaneKeepsLabels(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{
		Env:     map[string]string{"MAILYARD_LANES": "message-labeled"},
		Courier: courier.Options{Shuffle: 50 * time.Millisecond, Repeat: 0.3, Seed: 5},
	})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	old := deliverMany(t, box, 5)
	account := y.LinkAndWatch(box, "refresh")
	y.Start()
	ctx := t.Context()
	ids := deliverMany(t, box, 12)
	for i, id := range ids {
		var errs []error
		errs = append(errs, box.Star(ctx, id), box.Archive(ctx, id), box.Modify(ctx, id, []string{"Label_1"}, []string{"UNREAD"}))
		if i%2 == 0 {
			errs = append(errs, box.Unstar(ctx, id), box.Modify(ctx, id, []string{"INBOX"}, []string{"Label_1"}))
		}
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := box.Star(ctx, old[0]); err != nil { // never mirrored: a stub, and its content is asked for
		t.Fatal(err)
	}
	y.Settle()
	mirrored := box.Snapshot()
	for _, m := range mirrored {
		if slices.Contains(ids, m.ID) || m.ID == old[0] {
			got := slices.Sorted(maps.Keys(y.Message(account.ID, m.ID).Labels))
			if d := cmp.Diff(m.Labels, got); d != "" {
				t.Errorf("labels of %s (-mailbox +mirror):\n%s", m.ID, d)
			}
		}
	}
	// What the lane never saw, a resync fills: missing messages, and labels that are not there.
	wrong := y.Message(account.ID, ids[3])
	become := wrong
	become.Labels = map[string]bool{"SPAM": true}
	become.Guards = maps.Clone(wrong.Guards)
	become.Guards["labels"] = 1
	maps.DeleteFunc(become.Guards, func(facet string, _ mail.HistoryID) bool { return len(facet) > 6 && facet[:6] == "label:" })
	if saved, err := y.DB.SaveMessage(ctx, account.ID, wrong, become); err != nil || !saved {
		t.Fatal(saved, err)
	}
	askForResync(t, y, account.ID, "fill")
	y.Settle()
	checkLabels(t, y, account.ID, box)
	y.AssertMirror(account.ID, box)
	r := resyncOf(t, y, account.ID, "fill")
	if r.Missing != 4 || r.Flags["labelIds"] != 1 {
		t.Errorf("the resync found %+v", r)
	}
	auditor, err := y.App.Auditor(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := auditor.Audit(ctx, account.ID, nil); err != nil || fmt.Sprint(d) != "{0 0 map[labelIds:0 trashed:0 unread:0]}" {
		t.Errorf("the audit says %v, %v", d, err)
	}
}

// Without the lane there are no labels, rather than stale ones.
func TestWithoutTheLaneThereAreNoLabels(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	box := addMailbox(t, y, "kim@example.com", "refresh")
	account := y.LinkAndWatch(box, "refresh")
	y.Start()
	id := deliverMany(t, box, 1)[0]
	if err := box.Star(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	y.Settle()
	// As if the lane had been on before.
	labelled := y.Message(account.ID, id)
	become := mail.Apply(labelled, mail.LabelsChanged{Changes: []mail.LabelChange{{Label: "INBOX", Carried: true, HistoryID: 1 << 40}}})
	if saved, err := y.DB.SaveMessage(t.Context(), account.ID, labelled, become); err != nil || !saved {
		t.Fatal(saved, err)
	}
	if err := box.Read(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	y.Settle()
	if m := y.Message(account.ID, id); m.KeepsLabels() || len(m.Labels) != 0 || !m.HasContent {
		t.Errorf("the message is %+v", m)
	}
}
