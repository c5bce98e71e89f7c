package gmailsim

import (
	"maps"
	"slices"
	"strings"
)

// A Listed is a message as a list of mail shows it.
type Listed struct {
	ID, From, Subject string
	Labels            []string
}

// Mailboxes returns every mailbox, sorted by address.
func (s *Sim) Mailboxes() []*Mailbox {
	s.mu.Lock()
	boxes := slices.Collect(maps.Values(s.boxes))
	s.mu.Unlock()
	slices.SortFunc(boxes, func(a, b *Mailbox) int { return strings.Compare(a.address, b.address) })
	return boxes
}

// Newest returns up to limit messages, the newest first, and how many there are.
func (m *Mailbox) Newest(limit int) ([]Listed, int) {
	v := m.view(limit)
	listed := make([]Listed, len(v.Messages))
	for i, msg := range v.Messages {
		listed[i] = Listed{msg.ID, msg.From, msg.Subject, msg.Labels}
	}
	return listed, v.MessagesTotal
}

// Watched reports whether somebody has asked to be notified of the mailbox's changes, and still is.
func (m *Mailbox) Watched() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.notices.topic != "" && m.sim.now().Before(m.notices.expires)
}

// Faults returns the faults that are in force, by the id to remove each by.
func (s *Sim) Faults() map[int]Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	faults := map[int]Fault{}
	for _, f := range s.faults {
		faults[f.id] = *f
	}
	return faults
}
