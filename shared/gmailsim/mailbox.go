package gmailsim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Mailbox is one Gmail mailbox. Its operations return [ErrNotFound] for a message that is not
// there, and [ErrNotPublished] where Config.Publish failed, after the change itself was made. An
// operation that changes nothing (reading a read message) makes no record and no notification.
type Mailbox struct {
	sim     *Sim
	address string
	rotate  bool // guarded by sim.mu, like the tokens
	// What its owner has consented to, guarded likewise.
	consented, withhold bool

	mu        sync.Mutex
	rng       *rand.Rand
	historyID uint64
	base      uint64 // historyId before the first kept record
	floor     uint64 // the lowest start that still lists
	arrivals  uint64
	messages  map[uint64]*message
	order     []*message // oldest first once tidied; holds deleted messages until then
	ordered   bool
	gone      int
	threads   map[uint64][]*message
	labels    map[string]int // messages that carry it; a label once used stays, at 0
	records   []record
	notices   notices
	scripts   scripts
	lag       int
	lagUntil  time.Time // zero: until told
	lagLabels bool
}

type message struct {
	id, thread  uint64
	arrival     uint64
	added       uint64 // id of the record that brought it
	historyID   uint64 // id of the newest record about it
	date        int64  // milliseconds
	hiddenUntil int64  // milliseconds
	labels      []string
	before      []string // labels before the last change; neither slice is changed in place
	content     *content
	deleted     bool
}

type changeKind uint8

const (
	messageAdded changeKind = iota
	messageDeleted
	labelAdded
	labelRemoved
)

// A record is one entry of the mailbox's history.
type record struct {
	id, message, thread uint64
	labels              []string // the message's after the change
	changes             []change
}

type change struct {
	kind   changeKind
	labels []string
}

// historyTypes are Gmail's names for the kinds, in the order of the constants.
var historyTypes = []string{"messageAdded", "messageDeleted", "labelAdded", "labelRemoved"}

var systemLabels = []string{
	"INBOX", "UNREAD", "STARRED", "IMPORTANT", "SENT", "DRAFT", "SPAM", "TRASH", "CHAT",
	"CATEGORY_PERSONAL", "CATEGORY_SOCIAL", "CATEGORY_PROMOTIONS", "CATEGORY_UPDATES", "CATEGORY_FORUMS",
}

func newMailbox(s *Sim, address string, rng *rand.Rand) *Mailbox {
	m := &Mailbox{
		sim: s, address: address, rng: rng,
		// 0 and 1 are no historyIds of any mailbox: who lists from them gets the 404 of a dead start.
		floor:    2,
		messages: map[uint64]*message{}, threads: map[uint64][]*message{}, labels: map[string]int{}, ordered: true,
	}
	m.historyID = 10_000 + rng.Uint64N(10_000)
	m.base = m.historyID
	for _, label := range systemLabels {
		m.labels[label] = 0
	}
	return m
}

// Address returns the mailbox's address, in lower case.
func (m *Mailbox) Address() string { return m.address }

// HistoryID returns the id of the newest change.
func (m *Mailbox) HistoryID() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.historyID
}

// RaiseHistory moves the mailbox's historyId up to id without a record, as changes that are no
// history (a filter, a setting) do. It never goes down.
func (m *Mailbox) RaiseHistory(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.historyID = max(m.historyID, id)
	if len(m.records) == 0 {
		m.base = m.historyID
	}
}

// Deliver lets a message arrive and returns its id. Without labels it gets INBOX and UNREAD.
// The id is valid also when only the notification failed.
func (m *Mailbox) Deliver(ctx context.Context, mail Mail) (string, error) {
	if mail.Labels == nil {
		mail.Labels = []string{"INBOX", "UNREAD"}
	}
	return m.add(ctx, mail)
}

// Draft makes a draft and returns its message id.
func (m *Mailbox) Draft(ctx context.Context, mail Mail) (string, error) {
	mail.Labels = []string{"DRAFT"}
	return m.add(ctx, m.outgoing(mail))
}

// Send sends a new message: it lies in SENT here, and arrives in each mailbox of To and Cc that is
// in the same Sim. Mail to oneself is one message, in SENT and INBOX.
func (m *Mailbox) Send(ctx context.Context, mail Mail) (string, error) {
	mail = m.outgoing(mail)
	mail.Labels = []string{"SENT"}
	content, err := newContent(mail)
	if err != nil {
		return "", err
	}
	if len(mail.Raw) > 0 {
		m.mu.Lock()
		number := m.rng.Uint64()
		m.mu.Unlock()
		mail = content.resend(mail, fmt.Sprintf("<sim-%016x@mail.gmail.com>", number))
	}
	var others []*Mailbox
	for _, address := range content.recipients() {
		box, ok := m.sim.Mailbox(address)
		switch {
		case !ok || slices.Contains(others, box):
		case box == m:
			mail.Labels = []string{"UNREAD", "SENT", "INBOX"}
		default:
			others = append(others, box)
		}
	}
	id, err := m.add(ctx, mail)
	errs := []error{err}
	for _, box := range others {
		mail.Labels, mail.ThreadID = nil, ""
		_, err := box.Deliver(ctx, mail)
		errs = append(errs, err)
	}
	return id, errors.Join(errs...)
}

func (m *Mailbox) outgoing(mail Mail) Mail {
	if mail.From == "" {
		mail.From = m.address
	}
	if mail.To == "" {
		mail.To = "rosa@example.net"
	}
	return mail
}

// SendDraft sends a draft: it keeps its id, loses DRAFT and gets SENT, in one record. Nothing arrives
// elsewhere. It refuses a message that is no draft.
func (m *Mailbox) SendDraft(ctx context.Context, id string) error {
	m.mu.Lock()
	msg, err := m.find(id)
	if err == nil && !slices.Contains(msg.labels, "DRAFT") {
		err = fmt.Errorf("message %s is no draft; draft one first, or send a new message", id)
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return m.Modify(ctx, id, []string{"SENT"}, []string{"DRAFT"})
}

// Read removes UNREAD.
func (m *Mailbox) Read(ctx context.Context, id string) error { return m.do(ctx, "read", id) }

// Unread adds UNREAD.
func (m *Mailbox) Unread(ctx context.Context, id string) error { return m.do(ctx, "unread", id) }

// Star adds STARRED.
func (m *Mailbox) Star(ctx context.Context, id string) error { return m.do(ctx, "star", id) }

// Unstar removes STARRED.
func (m *Mailbox) Unstar(ctx context.Context, id string) error { return m.do(ctx, "unstar", id) }

// Archive removes INBOX.
func (m *Mailbox) Archive(ctx context.Context, id string) error { return m.do(ctx, "archive", id) }

// Trash adds TRASH and removes INBOX, in one record.
func (m *Mailbox) Trash(ctx context.Context, id string) error { return m.do(ctx, "trash", id) }

// Untrash removes TRASH. As in Gmail's API the message does not return to the inbox.
func (m *Mailbox) Untrash(ctx context.Context, id string) error { return m.do(ctx, "untrash", id) }

// Spam adds SPAM and removes INBOX, in one record.
func (m *Mailbox) Spam(ctx context.Context, id string) error { return m.do(ctx, "spam", id) }

// Unspam removes SPAM and adds INBOX, in one record.
func (m *Mailbox) Unspam(ctx context.Context, id string) error { return m.do(ctx, "unspam", id) }

// relabelings are the operations that only change labels.
var relabelings = map[string]struct{ add, remove []string }{
	"read":    {nil, []string{"UNREAD"}},
	"unread":  {[]string{"UNREAD"}, nil},
	"star":    {[]string{"STARRED"}, nil},
	"unstar":  {nil, []string{"STARRED"}},
	"archive": {nil, []string{"INBOX"}},
	"trash":   {[]string{"TRASH"}, []string{"INBOX"}},
	"untrash": {nil, []string{"TRASH"}},
	"spam":    {[]string{"SPAM"}, []string{"INBOX"}},
	"unspam":  {[]string{"INBOX"}, []string{"SPAM"}},
}

func (m *Mailbox) do(ctx context.Context, operation, id string) error {
	change := relabelings[operation]
	return m.Modify(ctx, id, change.add, change.remove)
}

// Modify adds and removes labels in one record; what is there already, or is not, is left out of it.
func (m *Mailbox) Modify(ctx context.Context, id string, add, remove []string) error {
	m.mu.Lock()
	msg, err := m.find(id)
	if err != nil {
		m.mu.Unlock()
		return err
	}
	n := m.relabel(msg, add, remove)
	m.mu.Unlock()
	return m.sim.send(ctx, n)
}

func (m *Mailbox) relabel(msg *message, add, remove []string) *notice {
	after := slices.Clone(msg.labels)
	var added, removed []string
	for _, label := range remove {
		if i := slices.Index(after, label); i >= 0 {
			after = slices.Delete(after, i, i+1)
			removed = append(removed, label)
		}
	}
	for _, label := range add {
		if label != "" && !slices.Contains(after, label) {
			after = append(after, label)
			added = append(added, label)
		}
	}
	var changes []change
	if added != nil {
		changes = append(changes, change{labelAdded, added})
	}
	if removed != nil {
		changes = append(changes, change{labelRemoved, removed})
	}
	if changes == nil {
		return nil
	}
	m.count(msg.labels, -1)
	msg.before, msg.labels = msg.labels, after
	m.count(msg.labels, +1)
	return m.note(msg, changes, slices.Concat(after, removed))
}

// Delete removes a message for good, from wherever it lies.
func (m *Mailbox) Delete(ctx context.Context, id string) error {
	m.mu.Lock()
	msg, err := m.find(id)
	if err != nil {
		m.mu.Unlock()
		return err
	}
	delete(m.messages, msg.id)
	msg.deleted, msg.content = true, nil
	m.gone++
	m.count(msg.labels, -1)
	thread := slices.DeleteFunc(m.threads[msg.thread], func(other *message) bool { return other == msg })
	if m.threads[msg.thread] = thread; len(thread) == 0 {
		delete(m.threads, msg.thread)
	}
	n := m.note(msg, []change{{messageDeleted, nil}}, msg.labels)
	m.mu.Unlock()
	return m.sim.send(ctx, n)
}

func (m *Mailbox) add(ctx context.Context, mail Mail) (string, error) {
	content, err := newContent(mail)
	if err != nil {
		return "", err
	}
	var thread uint64
	if mail.ThreadID != "" {
		if thread, err = strconv.ParseUint(mail.ThreadID, 16, 64); err != nil {
			return "", fmt.Errorf("thread id %q is not hexadecimal; leave it out for a new thread", mail.ThreadID)
		}
	}
	now := m.sim.now()
	m.mu.Lock()
	m.arrivals++
	// Like Gmail's: 16 hex digits, growing with time, and never the same in two mailboxes in practice.
	id := 0x19<<56 | m.arrivals<<24 | m.rng.Uint64N(1<<24)
	if thread == 0 {
		thread = id
	}
	msg := &message{
		id: id, thread: thread, arrival: m.arrivals, date: now.UnixMilli(), content: content,
	}
	for _, label := range mail.Labels {
		if label != "" && !slices.Contains(msg.labels, label) {
			msg.labels = append(msg.labels, label)
		}
	}
	msg.before = msg.labels
	if !mail.Date.IsZero() {
		msg.date = mail.Date.UnixMilli()
	}
	if mail.HiddenFor > 0 {
		msg.hiddenUntil = now.Add(mail.HiddenFor).UnixMilli()
	}
	if last := len(m.order) - 1; last >= 0 && newer(m.order[last], msg) > 0 {
		m.ordered = false
	}
	m.messages[id] = msg
	m.order = append(m.order, msg)
	m.threads[thread] = append(m.threads[thread], msg)
	m.count(msg.labels, +1)
	n := m.note(msg, []change{{messageAdded, nil}}, msg.labels)
	msg.added = msg.historyID
	m.mu.Unlock()
	return formatID(id), m.sim.send(ctx, n)
}

func (m *Mailbox) count(labels []string, by int) {
	for _, label := range labels {
		m.labels[label] += by
	}
}

func (m *Mailbox) find(id string) (*message, error) {
	number, err := strconv.ParseUint(id, 16, 64)
	if msg, ok := m.messages[number]; ok && err == nil {
		return msg, nil
	}
	return nil, fmt.Errorf("message %q in %s: %w", id, m.address, ErrNotFound)
}

// note makes the record of a change that was made, and the notification due for it. The labels
// touched decide whether the watch wants it.
func (m *Mailbox) note(msg *message, changes []change, touched []string) *notice {
	m.historyID += 1 + m.rng.Uint64N(40) // Gmail's ids have gaps
	msg.historyID = m.historyID
	m.records = append(m.records, record{m.historyID, msg.id, msg.thread, msg.labels, changes})
	return m.notices.due(m.sim, m.address, m.historyID, touched)
}

func newer(a, b *message) int {
	return cmp.Or(cmp.Compare(a.date, b.date), cmp.Compare(a.arrival, b.arrival))
}

// tidy brings the messages in order and drops those deleted, when either is worth the walk.
func (m *Mailbox) tidy() {
	if m.gone > 1000 && m.gone > len(m.order)/2 {
		m.order = slices.DeleteFunc(m.order, func(msg *message) bool { return msg.deleted })
		m.gone = 0
	}
	if !m.ordered {
		slices.SortFunc(m.order, newer)
		m.ordered = true
	}
}

// ExpireHistory makes every listing that starts below id answer 404, and forgets those records.
func (m *Mailbox) ExpireHistory(below uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.floor = max(m.floor, below)
	kept := m.recordsAfter(m.records, below-min(below, 1))
	if kept > 0 {
		m.base = m.records[kept-1].id
		m.records = slices.Clone(m.records[kept:])
	}
}

// recordsAfter returns the index of the first record past id.
func (m *Mailbox) recordsAfter(records []record, id uint64) int {
	i, found := slices.BinarySearchFunc(records, id, func(r record, id uint64) int { return cmp.Compare(r.id, id) })
	if found {
		i++
	}
	return i
}

// LagIndex keeps the newest records out of history.list, and the messages they brought out of
// messages.list, while messages.get, threads.get, the profile and notifications know them. The
// historyId of a listing is then that of the newest record shown. It lasts for d, or until told
// otherwise where d is 0; LagIndex(0, 0) ends it.
func (m *Mailbox) LagIndex(records int, d time.Duration) {
	until := time.Time{}
	if d > 0 {
		until = m.sim.now().Add(d)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lag, m.lagUntil = max(records, 0), until
}

// LagLabels makes messages.get and threads.get show each message's labels as they were before its
// last change, next to the historyId after it, until it is told otherwise.
func (m *Mailbox) LagLabels(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lagLabels = on
}

// indexed returns the records that listings show and the historyId they know.
func (m *Mailbox) indexed() ([]record, uint64) {
	if m.lag == 0 || !m.lagUntil.IsZero() && !m.sim.now().Before(m.lagUntil) {
		return m.records, m.historyID
	}
	shown := m.records[:max(len(m.records)-m.lag, 0)]
	if len(shown) == 0 {
		return nil, m.base
	}
	return shown, shown[len(shown)-1].id
}

// A MessageState is what a mirror must hold of a message.
type MessageState struct {
	ID, ThreadID string
	Labels       []string // sorted
}

// Snapshot returns the mailbox as it is, whatever lags: every message that is not a draft, sorted
// by id.
func (m *Mailbox) Snapshot() []MessageState {
	m.mu.Lock()
	defer m.mu.Unlock()
	states := make([]MessageState, 0, len(m.messages))
	for _, msg := range m.messages {
		if slices.Contains(msg.labels, "DRAFT") {
			continue
		}
		labels := slices.Clone(msg.labels)
		slices.Sort(labels)
		states = append(states, MessageState{formatID(msg.id), formatID(msg.thread), labels})
	}
	slices.SortFunc(states, func(a, b MessageState) int { return strings.Compare(a.ID, b.ID) })
	return states
}

func formatID(id uint64) string { return fmt.Sprintf("%016x", id) }
