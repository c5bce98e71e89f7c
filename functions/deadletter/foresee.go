package deadletter

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// Foresee says what a redrive of an entry would change, with the message as the mirror has it now: the
// zero Message where it has none. It is empty where that cannot be known.
func (o *Operator) Foresee(catalogue *lane.Catalogue, entry ledger.Entry, m mail.Message) string {
	l, ok := catalogue.Lane(entry.Lane)
	if !ok {
		return ""
	}
	e, err := o.Events.Decode(l.Key, entry.Data, entry.Attributes)
	if err != nil {
		return "it would fail again: " + err.Error()
	}
	change := l.Change(e)
	if change == nil {
		if guard := m.Guards[mail.FacetContent]; guard >= e.HistoryID {
			return fmt.Sprintf("nothing: the content was fetched at %s", guard)
		}
		return "the message would be fetched from Gmail: its content, and every flag that is older"
	}
	next := mail.Apply(m, change)
	switch {
	case m.Version.IsZero() && next.Deleted:
		return "the message is not mirrored: it would become a tombstone"
	case m.Version.IsZero():
		return "the message is not mirrored: it would become a stub, and be fetched"
	}
	var changes []string
	for _, field := range slices.Sorted(maps.Keys(next.Flags)) {
		if was, known := m.Flags[field]; !known || was != next.Flags[field] {
			changes = append(changes, fmt.Sprintf("%s would become %t", field, next.Flags[field]))
		}
	}
	if next.Deleted && !m.Deleted {
		changes = append(changes, "the message would become a tombstone, without content")
	}
	if !maps.Equal(next.Labels, m.Labels) {
		changes = append(changes, "its labels would become "+strings.Join(slices.Sorted(maps.Keys(next.Labels)), ", "))
	}
	switch {
	case len(changes) > 0:
		return strings.Join(changes, "; ")
	case mail.Differ(m, next):
		return fmt.Sprintf("only a guard would move to %s: the mirror says the same already", e.HistoryID)
	}
	return "nothing: the mirror is as new as this event, or newer"
}
