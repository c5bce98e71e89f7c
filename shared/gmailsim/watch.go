package gmailsim

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"
)

const watchLife = 7 * 24 * time.Hour // as Gmail's

var topicName = regexp.MustCompile(`^projects/[^/]+/topics/[^/]+$`)

// notices is what a mailbox knows of its watch and of how unreliable it is to be.
type notices struct {
	topic   string // empty: no watch
	expires time.Time
	labels  []string // with exclude: the labels that do not count
	exclude bool
	every   time.Duration // 0: no limit
	last    time.Time
	lose    int
}

type notice struct {
	topic string
	data  []byte
}

// newNotice has the historyId as a number: Google's pages say string, its payloads do not.
func newNotice(topic, address string, historyID uint64) *notice {
	return &notice{topic, fmt.Appendf(nil, `{"emailAddress":%q,"historyId":%d}`, address, historyID)}
}

// due returns the notification of a change that touched these labels; nil where there is no watch,
// it has lapsed or does not want it, or the notification is to be lost.
func (n *notices) due(s *Sim, address string, historyID uint64, touched []string) *notice {
	now := s.now()
	if n.topic == "" || !now.Before(n.expires) {
		return nil
	}
	if len(n.labels) > 0 {
		named := slices.ContainsFunc(touched, func(label string) bool { return slices.Contains(n.labels, label) })
		if named == n.exclude {
			return nil
		}
	}
	if n.lose > 0 {
		n.lose--
		s.meter.lost()
		return nil
	}
	if n.every > 0 && !n.last.IsZero() && now.Sub(n.last) < n.every {
		s.meter.lost()
		return nil
	}
	n.last = now
	return newNotice(n.topic, address, historyID)
}

// LimitNotifications lets through at most one notification in each such time and drops the rest for
// good, as Gmail does with a second. 0, the default, drops none.
func (m *Mailbox) LimitNotifications(every time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notices.every = every
}

// LoseNotifications drops the next n notifications, the one that a watch begins with among them.
func (m *Mailbox) LoseNotifications(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notices.lose = max(n, 0)
}

// Notify publishes a notification with this historyId (0: the mailbox's) to the watched topic, as a
// late or repeated one. It is an error if no watch is alive.
func (m *Mailbox) Notify(ctx context.Context, historyID uint64) error {
	m.mu.Lock()
	topic, alive := m.notices.topic, m.sim.now().Before(m.notices.expires)
	if historyID == 0 {
		historyID = m.historyID
	}
	m.mu.Unlock()
	if topic == "" || !alive {
		return fmt.Errorf("notify of %s: no watch is alive; call users.watch first", m.address)
	}
	return m.sim.send(ctx, newNotice(topic, m.address, historyID))
}

// Watch returns the watched topic and when the watch ends; an empty topic is no watch.
func (m *Mailbox) Watch() (topic string, expires time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.notices.topic, m.notices.expires
}

// startWatch replaces the watch there is. Its first notification is not subject to the limit; it is nil
// where it is to be lost.
func (m *Mailbox) startWatch(topic string, labels []string, exclude bool) (historyID uint64, expires time.Time, n *notice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notices.topic, m.notices.labels, m.notices.exclude = topic, labels, exclude
	m.notices.expires = m.sim.now().Add(watchLife)
	if m.notices.lose > 0 {
		m.notices.lose--
		m.sim.meter.lost()
		return m.historyID, m.notices.expires, nil
	}
	return m.historyID, m.notices.expires, newNotice(topic, m.address, m.historyID)
}

func (m *Mailbox) stopWatch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notices.topic, m.notices.labels, m.notices.expires = "", nil, time.Time{}
}
