package gmailsim

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// units holds every method that is counted, faulted and scripted, with its price in quota units
// (Gmail's list of 2026-05; the token endpoint has none).
var units = map[string]int{
	"token": 0, "revoke": 0, "signJwt": 0,
	"getProfile": 1, "watch": 100, "stop": 50,
	"history.list": 2, "messages.list": 5, "messages.get": 20, "messages.send": 100,
	"threads.get": 40, "labels.list": 1,
}

// Methods returns the names under which calls are counted, faulted and scripted, sorted.
func Methods() []string { return slices.Sorted(maps.Keys(units)) }

// A Usage counts calls and quota units by method.
type Usage struct {
	Calls      map[string]int `json:"calls"`
	Units      map[string]int `json:"units"`
	TotalCalls int            `json:"totalCalls"`
	TotalUnits int            `json:"totalUnits"`
}

func (u *Usage) count(method string) {
	if u.Calls == nil {
		u.Calls, u.Units = map[string]int{}, map[string]int{}
	}
	u.Calls[method]++
	u.Units[method] += units[method]
	u.TotalCalls++
	u.TotalUnits += units[method]
}

func (u Usage) clone() Usage {
	u.Calls, u.Units = maps.Clone(u.Calls), maps.Clone(u.Units)
	return u
}

// Stats is what a Sim counted. Every call that arrived counts, failed ones too.
type Stats struct {
	Usage
	// Mailboxes has the usage of each mailbox by address; calls whose token reaches no mailbox are
	// under "".
	Mailboxes map[string]Usage `json:"mailboxes"`
	// Published counts notifications, Lost those that a limit or [Mailbox.LoseNotifications] ate.
	Published int `json:"published"`
	Lost      int `json:"lost"`
}

// A Call is one request to Gmail or the token endpoint, as it arrived.
type Call struct {
	At             time.Time `json:"at"`
	Method         string    `json:"method"`
	Mailbox        string    `json:"mailbox"`
	StartHistoryID string    `json:"startHistoryId,omitempty"`
	PageToken      string    `json:"pageToken,omitempty"`
	MessageID      string    `json:"messageId,omitempty"` // for threads.get the thread's id
	LabelIDs       []string  `json:"labelIds,omitempty"`
	Format         string    `json:"format,omitempty"`
	// Status is the answer's; 0 while there is none, and for good where the connection was dropped.
	Status int `json:"status"`
}

const keptCalls = 50_000

// A meter counts calls. The newest keptCalls at least are kept one by one.
type meter struct {
	mu    sync.Mutex
	stats Stats
	calls []*Call
}

func (s *Sim) begin(method string, box *Mailbox, w http.ResponseWriter, r *http.Request) *exchange {
	call := &Call{At: s.now(), Method: method, MessageID: r.PathValue("id")}
	if query := r.URL.Query(); len(query) > 0 {
		call.StartHistoryID, call.PageToken = query.Get("startHistoryId"), query.Get("pageToken")
		call.LabelIDs, call.Format = query["labelIds"], query.Get("format")
	}
	if box != nil {
		call.Mailbox = box.address
	}
	s.meter.record(call)
	return &exchange{sim: s, box: box, w: w, r: r, call: call}
}

func (t *meter) record(call *Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.count(call.Method)
	if t.stats.Mailboxes == nil {
		t.stats.Mailboxes = map[string]Usage{}
	}
	usage := t.stats.Mailboxes[call.Mailbox]
	usage.count(call.Method)
	t.stats.Mailboxes[call.Mailbox] = usage
	if len(t.calls) >= 2*keptCalls {
		t.calls = slices.Clone(t.calls[keptCalls:])
	}
	t.calls = append(t.calls, call)
}

func (t *meter) answered(call *Call, status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	call.Status = status
}

func (t *meter) published() { t.mu.Lock(); t.stats.Published++; t.mu.Unlock() }
func (t *meter) lost()      { t.mu.Lock(); t.stats.Lost++; t.mu.Unlock() }

// Stats returns what was counted since the start or the last ResetStats.
func (s *Sim) Stats() Stats {
	s.meter.mu.Lock()
	defer s.meter.mu.Unlock()
	stats := s.meter.stats
	stats.Usage = stats.Usage.clone()
	stats.Mailboxes = make(map[string]Usage, len(s.meter.stats.Mailboxes))
	for address, usage := range s.meter.stats.Mailboxes {
		stats.Mailboxes[address] = usage.clone()
	}
	return stats
}

// ResetStats starts the counts and the record of calls again from nothing.
func (s *Sim) ResetStats() {
	s.meter.mu.Lock()
	defer s.meter.mu.Unlock()
	s.meter.stats, s.meter.calls = Stats{}, nil
}

// Calls returns the calls of these methods (of all where none is named) in the order they arrived,
// since the start or the last ResetStats. Of a long run it has the newest 50,000 at least.
func (s *Sim) Calls(methods ...string) []Call {
	s.meter.mu.Lock()
	defer s.meter.mu.Unlock()
	var calls []Call
	for _, call := range s.meter.calls {
		if len(methods) == 0 || slices.Contains(methods, call.Method) {
			calls = append(calls, *call)
		}
	}
	return calls
}
