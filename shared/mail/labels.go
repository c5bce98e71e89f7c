package mail

import (
	"maps"
	"strings"
)

// FacetLabels is set by every fetch that saw all labels: its guard is that of each label that has none
// of its own. So a message needs a guard only for the labels that changed since its last fetch.
const FacetLabels = "labels"

// labelFacet begins the facet of one label.
const labelFacet = "label:"

// LabelsChanged sets single labels, as history records say.
type LabelsChanged struct {
	Changes  []LabelChange
	ThreadID string
}

func (c LabelsChanged) applyTo(m *Message) {
	fetched := m.Guards[FacetLabels]
	for _, change := range c.Changes {
		facet := labelFacet + change.Label
		guard := max(m.Guards[facet], fetched)
		// At a tie with a fetch the record's word stands, as for a flag.
		tieWithFetch := change.HistoryID == guard && change.HistoryID == fetched
		if change.HistoryID > guard || tieWithFetch {
			m.carry(change.Label, change.Carried)
			m.Guards[facet] = change.HistoryID
		}
	}
	m.setThread(c.ThreadID)
}

// setLabels sets every label as a fetch saw it, but for those that a record has set since.
func (m *Message) setLabels(carried []string, at HistoryID) {
	if at <= m.Guards[FacetLabels] {
		return
	}
	m.Guards[FacetLabels] = at
	newer := map[string]bool{}
	for facet, guard := range m.Guards {
		label, ok := strings.CutPrefix(facet, labelFacet)
		switch {
		case !ok:
		case guard >= at:
			newer[label] = true
		default:
			delete(m.Guards, facet)
		}
	}
	for label := range m.Labels {
		if !newer[label] {
			delete(m.Labels, label)
		}
	}
	for _, label := range carried {
		if !newer[label] {
			m.carry(label, true)
		}
	}
	if m.Labels == nil {
		m.Labels = map[string]bool{}
	}
}

func (m *Message) carry(label string, carried bool) {
	if m.Labels == nil {
		m.Labels = map[string]bool{}
	}
	if carried {
		m.Labels[label] = true
	} else {
		delete(m.Labels, label)
	}
}

// KeepsLabels reports whether any label of the message has been kept.
func (m Message) KeepsLabels() bool {
	for facet := range m.Guards {
		if facet == FacetLabels || strings.HasPrefix(facet, labelFacet) {
			return true
		}
	}
	return false
}

// ForgetLabels returns the message without labels, for a catalogue that does not keep them any more:
// none are better than stale ones.
func ForgetLabels(m Message) Message {
	if !m.KeepsLabels() {
		return m
	}
	m = m.clone()
	m.Labels = nil
	maps.DeleteFunc(m.Guards, func(facet string, _ HistoryID) bool {
		return facet == FacetLabels || strings.HasPrefix(facet, labelFacet)
	})
	return m
}
