package mail_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"mailyard.internal/mailyard/shared/mail"
)

var fields = []string{"unread", "trashed"}

// changes draws what records and fetches say about one message. There are few historyIds, so that
// ties are common, and what is said of one facet at one historyId is one thing: the value of a flag
// in a record, and all that a fetch shows. Only a record and a fetch at a tie may disagree.
func changes(t *rapid.T, least, most int) []mail.Change {
	said, seen := map[string]bool{}, map[mail.HistoryID]mail.Fetched{}
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) mail.Change {
		id := mail.HistoryID(rapid.Uint64Range(1, 5).Draw(t, "id"))
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return mail.Deletion{HistoryID: id, ThreadID: "t"}
		case 1:
			if _, ok := seen[id]; !ok {
				seen[id] = mail.Fetched{
					HistoryID: id,
					ThreadID:  "t",
					Flags:     map[string]bool{"unread": rapid.Bool().Draw(t, "unread"), "trashed": rapid.Bool().Draw(t, "trashed")},
					Summary:   mail.Summary{Subject: fmt.Sprint("as of ", id), To: []string{"kim@example.com"}},
					Body:      mail.Body{Text: fmt.Sprint("as of ", id)},
				}
			}
			return seen[id]
		default:
			field := rapid.SampledFrom(fields).Draw(t, "field")
			key := fmt.Sprint(field, id)
			if _, ok := said[key]; !ok {
				said[key] = rapid.Bool().Draw(t, "value")
			}
			return mail.Flag{Field: field, Value: said[key], HistoryID: id, ThreadID: "t"}
		}
	}), least, most).Draw(t, "changes")
}

func applyAll(m mail.Message, changes ...mail.Change) mail.Message {
	for _, c := range changes {
		m = mail.Apply(m, c)
	}
	return m
}

// diff compares messages whole; a map that is nil and one that is empty say the same.
func diff(want, got mail.Message) string { return cmp.Diff(want, got, cmpopts.EquateEmpty()) }

func TestEveryOrderEndsInTheSameMessage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := changes(t, 1, 5)
		want := applyAll(mail.Message{ID: "m"}, all...)
		permutations(all, func(order []mail.Change) {
			if d := diff(want, applyAll(mail.Message{ID: "m"}, order...)); d != "" {
				t.Fatalf("%v and %v end in different messages:\n%s", all, order, d)
			}
		})
	})
}

func TestRepetitionAndRegroupingEndInTheSameMessage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := changes(t, 1, 12)
		want := applyAll(mail.Message{ID: "m"}, all...)
		// Groups come in any order, each as often as it likes, and share what they like.
		order := rapid.Permutation(all).Draw(t, "order")
		for range rapid.IntRange(0, 4).Draw(t, "groups") {
			low := rapid.IntRange(0, len(all)-1).Draw(t, "low")
			high := rapid.IntRange(low, len(all)).Draw(t, "high")
			group := rapid.Permutation(all[low:high]).Draw(t, "group")
			at := rapid.IntRange(0, len(order)).Draw(t, "at")
			order = slices.Insert(order, at, group...)
		}
		if d := diff(want, applyAll(mail.Message{ID: "m"}, order...)); d != "" {
			t.Fatalf("%v and %v end in different messages:\n%s", all, order, d)
		}
	})
}

func TestApplyingAgainChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := changes(t, 1, 8)
		m := applyAll(mail.Message{ID: "m"}, all...)
		for _, c := range all {
			again := mail.Apply(m, c)
			if d := diff(m, again); d != "" {
				t.Fatalf("%+v, applied before, changed the message:\n%s", c, d)
			}
			if mail.Differ(m, again) {
				t.Fatalf("%+v, applied before, would be written again", c)
			}
		}
	})
}

func TestStaleChangeChangesNothing(t *testing.T) {
	t.Parallel()
	stale := 0
	rapid.Check(t, func(t *rapid.T) {
		m := applyAll(mail.Message{ID: "m"}, changes(t, 4, 12)...)
		// What has not been applied may say anything, as long as it is older than what it touches.
		for _, c := range changes(t, 1, 6) {
			if slices.ContainsFunc(touched(c), func(facet string) bool { return idOf(c) >= m.Guards[facet] }) {
				continue
			}
			stale++
			if d := diff(m, mail.Apply(m, c)); d != "" {
				t.Fatalf("%+v is stale, and changed the message:\n%s", c, d)
			}
		}
	})
	if stale == 0 {
		t.Error("no stale change was tried")
	}
}

func TestFacetsDoNotShutEachOtherOut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := applyAll(mail.Message{ID: "m"}, changes(t, 0, 8)...)
		id := mail.HistoryID(rapid.Uint64Range(1, 9).Draw(t, "id"))
		field := rapid.SampledFrom(fields).Draw(t, "field")
		got := mail.Apply(m, mail.Flag{Field: field, Value: true, HistoryID: id, ThreadID: "t"})
		for facet, guard := range got.Guards {
			if facet != field && guard != m.Guards[facet] {
				t.Errorf("a change of %s moved the guard of %s", field, facet)
			}
		}
		for other, value := range got.Flags {
			if was, known := m.Flags[other]; other != field && (!known || was != value) {
				t.Errorf("a change of %s set %s", field, other)
			}
		}
		if id > m.Guards[field] && !got.Flags[field] {
			t.Errorf("a newer change of %s was shut out", field)
		}
	})
}

func TestApplyIsPure(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		before, more := changes(t, 0, 6), changes(t, 1, 6)
		m, kept := applyAll(mail.Message{ID: "m"}, before...), applyAll(mail.Message{ID: "m"}, before...)
		for _, c := range more {
			text := fmt.Sprintf("%#v", c)
			mail.Apply(m, c)
			if d := diff(kept, m); d != "" {
				t.Fatalf("%+v changed the message it was applied to:\n%s", c, d)
			}
			if now := fmt.Sprintf("%#v", c); now != text {
				t.Fatalf("Apply changed its change:\n%s\n%s", text, now)
			}
		}
	})
}

func idOf(c mail.Change) mail.HistoryID {
	switch c := c.(type) {
	case mail.Flag:
		return c.HistoryID
	case mail.Fetched:
		return c.HistoryID
	case mail.Deletion:
		return c.HistoryID
	}
	panic("a kind of change that the tests do not know")
}

func touched(c mail.Change) []string {
	switch c := c.(type) {
	case mail.Flag:
		return []string{c.Field}
	case mail.Fetched:
		return append([]string{mail.FacetContent, mail.FacetDeleted}, fields...)
	default:
		return []string{mail.FacetDeleted}
	}
}

// permutations calls f with every order of the elements.
func permutations[T any](elements []T, f func([]T)) {
	var next func(k int)
	order := slices.Clone(elements)
	next = func(k int) {
		if k == len(order) {
			f(order)
			return
		}
		for i := k; i < len(order); i++ {
			order[k], order[i] = order[i], order[k]
			next(k + 1)
			order[k], order[i] = order[i], order[k]
		}
	}
	next(0)
}
