package gmailsim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// routeControl serves the control side. Parameters come as a form or as a flat JSON object:
//
//	GET    /sim/mailboxes                         ?limit=100 newest messages of each
//	POST   /sim/mailboxes                         address, refreshToken
//	POST   /sim/mailboxes/{address}/{operation}   id; from, to, subject, text, html, labels; …
//	GET    /sim/faults
//	POST   /sim/faults                            method, mailbox, messageId, status, reason, message,
//	                                              retryAfterSeconds, delayMs, drop, hang, after, times
//	DELETE /sim/faults                            ?id= one, without it all
//	GET    /sim/stats
//	POST   /sim/stats/reset
//
// Answers are JSON; what went wrong is {"error": a sentence}. Web pages of other sites are refused.
func (s *Sim) routeControl() {
	control := http.NewServeMux()
	for pattern, serve := range map[string]func(*http.Request) (any, error){
		"GET /sim/mailboxes":                        s.controlMailboxes,
		"POST /sim/mailboxes":                       s.controlAdd,
		"POST /sim/mailboxes/{address}/{operation}": s.controlOperate,
		"GET /sim/faults":                           s.controlFaults,
		"POST /sim/faults":                          s.controlAddFault,
		"DELETE /sim/faults":                        s.controlRemoveFaults,
		"GET /sim/stats":                            func(*http.Request) (any, error) { return s.Stats(), nil },
		"POST /sim/stats/reset":                     func(*http.Request) (any, error) { s.ResetStats(); return struct{}{}, nil },
	} {
		control.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			answer, err := serve(r)
			switch {
			case errors.Is(err, ErrNotPublished):
				writeJSON(w, http.StatusBadGateway, map[string]any{"error": "the change was made, but " + err.Error(), "made": answer})
			case errors.Is(err, ErrNotFound):
				writeJSON(w, http.StatusNotFound, map[string]string{"error": err.Error() + "; GET /sim/mailboxes lists what there is"})
			case err != nil:
				writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			default:
				writeJSON(w, http.StatusOK, answer)
			}
		})
	}
	s.mux.Handle("/sim/", http.NewCrossOriginProtection().Handler(control))
}

// params are a request's parameters, from a form or a flat JSON object; a list is joined by commas.
type params map[string]string

func readParams(r *http.Request) (params, error) {
	p := params{}
	if !strings.Contains(r.Header.Get("Content-Type"), "json") {
		if err := r.ParseForm(); err != nil {
			return nil, errors.New("the form cannot be read; send key=value pairs joined by &, or JSON with Content-Type application/json")
		}
		for name, values := range r.Form {
			p[name] = strings.Join(values, ",")
		}
		return p, nil
	}
	decoder := json.NewDecoder(r.Body)
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return nil, errors.New(`the body is no JSON object; send one like {"id": "19…"}`)
	}
	for name, value := range object {
		switch value := value.(type) {
		case nil:
		case string, bool, json.Number:
			p[name] = fmt.Sprint(value)
		case []any:
			items := make([]string, len(value))
			for i, item := range value {
				items[i] = fmt.Sprint(item)
			}
			p[name] = strings.Join(items, ",")
		default:
			return nil, fmt.Errorf("%s is an object; give a text, a number or a list", name)
		}
	}
	return p, nil
}

// number reads a whole number of at least 0; absent is 0.
func (p params) number(name string) (uint64, error) {
	if p[name] == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(p[name], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is %q; give a whole number of 0 or more", name, p[name])
	}
	return n, nil
}

// small reads a number that fits an int and, as seconds, a duration.
func (p params) small(name string) (int, error) {
	n, err := p.number(name)
	if err == nil && n > 1_000_000_000 {
		err = fmt.Errorf("%s is %d; give at most 1000000000", name, n)
	}
	return int(n), err
}

func (p params) flag(name string) (bool, error) {
	switch p[name] {
	case "", "false", "0", "off":
		return false, nil
	case "true", "1", "on":
		return true, nil
	}
	return false, fmt.Errorf("%s is %q; give true or false", name, p[name])
}

func (p params) list(name string) []string {
	if _, given := p[name]; !given {
		return nil
	}
	return slices.DeleteFunc(strings.Split(p[name], ","), func(item string) bool { return item == "" })
}

func (s *Sim) controlAdd(r *http.Request) (any, error) {
	p, err := readParams(r)
	if err != nil {
		return nil, err
	}
	box, err := s.AddMailbox(p["address"], p["refreshToken"])
	if err != nil {
		return nil, err
	}
	return map[string]string{"address": box.address, "historyId": strconv.FormatUint(box.HistoryID(), 10)}, nil
}

// operations are what a person can do to a mailbox besides the relabelings. Each returns a message
// id, if there is one to tell.
var operations = map[string]func(context.Context, *Mailbox, params) (string, error){
	"deliver": func(ctx context.Context, m *Mailbox, p params) (string, error) { return m.Deliver(ctx, p.mail()) },
	"draft":   func(ctx context.Context, m *Mailbox, p params) (string, error) { return m.Draft(ctx, p.mail()) },
	"send": func(ctx context.Context, m *Mailbox, p params) (string, error) {
		if p["id"] != "" {
			return p["id"], m.SendDraft(ctx, p["id"])
		}
		return m.Send(ctx, p.mail())
	},
	"modify": func(ctx context.Context, m *Mailbox, p params) (string, error) {
		return p["id"], m.Modify(ctx, p["id"], p.list("add"), p.list("remove"))
	},
	"delete": func(ctx context.Context, m *Mailbox, p params) (string, error) {
		return p["id"], m.Delete(ctx, p["id"])
	},
	"revoke": func(_ context.Context, m *Mailbox, _ params) (string, error) { m.Revoke(); return "", nil },
	"expire-access-tokens": func(_ context.Context, m *Mailbox, _ params) (string, error) {
		m.ExpireAccessTokens()
		return "", nil
	},
	"rotate-refresh-tokens": func(_ context.Context, m *Mailbox, p params) (string, error) {
		on, err := p.flag("on")
		if err == nil {
			m.RotateRefreshTokens(on)
		}
		return "", err
	},
	"notify": func(ctx context.Context, m *Mailbox, p params) (string, error) {
		id, err := p.number("historyId")
		if err != nil {
			return "", err
		}
		return "", m.Notify(ctx, id)
	},
	"lose-notifications": func(_ context.Context, m *Mailbox, p params) (string, error) {
		n, err := p.small("count")
		if err == nil {
			m.LoseNotifications(n)
		}
		return "", err
	},
	"limit-notifications": func(_ context.Context, m *Mailbox, p params) (string, error) {
		ms, err := p.small("everyMs")
		if err == nil {
			m.LimitNotifications(time.Duration(ms) * time.Millisecond)
		}
		return "", err
	},
	"expire-history": func(_ context.Context, m *Mailbox, p params) (string, error) {
		below, err := p.number("below")
		if err == nil && below == 0 {
			below = m.HistoryID()
		}
		if err == nil {
			m.ExpireHistory(below)
		}
		return "", err
	},
	"lag-index": func(_ context.Context, m *Mailbox, p params) (string, error) {
		records, err := p.small("records")
		seconds, err2 := p.small("seconds")
		if err = errors.Join(err, err2); err == nil {
			m.LagIndex(records, time.Duration(seconds)*time.Second)
		}
		return "", err
	},
	"lag-labels": func(_ context.Context, m *Mailbox, p params) (string, error) {
		on, err := p.flag("on")
		if err == nil {
			m.LagLabels(on)
		}
		return "", err
	},
}

func (p params) mail() Mail {
	return Mail{
		From: p["from"], To: p["to"], Cc: p["cc"], Subject: p["subject"], Text: p["text"], HTML: p["html"],
		Labels: p.list("labels"), ThreadID: p["threadId"],
	}
}

func (s *Sim) controlOperate(r *http.Request) (any, error) {
	p, err := readParams(r)
	if err != nil {
		return nil, err
	}
	box, ok := s.Mailbox(r.PathValue("address"))
	if !ok {
		return nil, fmt.Errorf("no mailbox %q; POST /sim/mailboxes adds one", r.PathValue("address"))
	}
	name := r.PathValue("operation")
	var id string
	if operate, ok := operations[name]; ok {
		id, err = operate(r.Context(), box, p)
	} else if _, ok := relabelings[name]; ok {
		id, err = p["id"], box.do(r.Context(), name, p["id"])
	} else {
		names := slices.Concat(slices.Collect(maps.Keys(operations)), slices.Collect(maps.Keys(relabelings)))
		slices.Sort(names)
		return nil, fmt.Errorf("operation %q is unknown; use one of %s", name, strings.Join(slices.Compact(names), ", "))
	}
	answer := map[string]string{"historyId": strconv.FormatUint(box.HistoryID(), 10)}
	if id != "" {
		answer["id"] = id
	}
	return answer, err
}

type mailboxView struct {
	Address        string        `json:"address"`
	HistoryID      uint64        `json:"historyId,string"`
	WatchTopic     string        `json:"watchTopic,omitempty"`
	WatchExpiresAt *time.Time    `json:"watchExpiresAt,omitempty"`
	MessagesTotal  int           `json:"messagesTotal"`
	Messages       []messageView `json:"messages"`
}

type messageView struct {
	ID       string   `json:"id"`
	ThreadID string   `json:"threadId"`
	From     string   `json:"from"`
	Subject  string   `json:"subject"`
	Labels   []string `json:"labels"`
}

func (s *Sim) controlMailboxes(r *http.Request) (any, error) {
	limit, err := params{"limit": r.URL.Query().Get("limit")}.small("limit")
	if err != nil {
		return nil, err
	}
	if limit == 0 {
		limit = 100
	}
	boxes := s.Mailboxes()
	views := make([]mailboxView, 0, len(boxes))
	for _, box := range boxes {
		views = append(views, box.view(limit))
	}
	return map[string]any{"mailboxes": views}, nil
}

// view shows the newest messages.
func (m *Mailbox) view(limit int) mailboxView {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tidy()
	v := mailboxView{
		Address: m.address, HistoryID: m.historyID, WatchTopic: m.notices.topic,
		MessagesTotal: len(m.messages), Messages: []messageView{},
	}
	if v.WatchTopic != "" {
		expires := m.notices.expires
		v.WatchExpiresAt = &expires
	}
	for i := len(m.order) - 1; i >= 0 && len(v.Messages) < limit; i-- {
		if msg := m.order[i]; !msg.deleted {
			v.Messages = append(v.Messages, messageView{
				formatID(msg.id), formatID(msg.thread), msg.content.from, msg.content.subject, append([]string{}, msg.labels...),
			})
		}
	}
	return v
}

type faultView struct {
	ID                int     `json:"id"`
	Method            string  `json:"method,omitempty"`
	Mailbox           string  `json:"mailbox,omitempty"`
	MessageID         string  `json:"messageId,omitempty"`
	Status            int     `json:"status,omitempty"`
	Reason            string  `json:"reason,omitempty"`
	Message           string  `json:"message,omitempty"`
	RetryAfterSeconds float64 `json:"retryAfterSeconds,omitempty"`
	DelayMS           int64   `json:"delayMs,omitempty"`
	Drop              bool    `json:"drop,omitempty"`
	Hang              bool    `json:"hang,omitempty"`
	After             bool    `json:"after,omitempty"`
	Times             int     `json:"times"`
}

func (s *Sim) controlFaults(*http.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	views := make([]faultView, 0, len(s.faults))
	for _, f := range s.faults {
		views = append(views, faultView{
			f.id, f.Method, f.Mailbox, f.MessageID, f.Status, f.Reason, f.Message,
			f.RetryAfter.Seconds(), f.Delay.Milliseconds(), f.Drop, f.Hang, f.After, f.Times,
		})
	}
	return map[string]any{"faults": views}, nil
}

func (s *Sim) controlAddFault(r *http.Request) (any, error) {
	p, err := readParams(r)
	if err != nil {
		return nil, err
	}
	var errs [7]error
	f := Fault{Method: p["method"], Mailbox: p["mailbox"], MessageID: p["messageId"], Reason: p["reason"], Message: p["message"]}
	var retryAfter, delay int
	f.Status, errs[0] = p.small("status")
	retryAfter, errs[1] = p.small("retryAfterSeconds")
	delay, errs[2] = p.small("delayMs")
	f.Drop, errs[3] = p.flag("drop")
	f.Hang, errs[4] = p.flag("hang")
	f.Times, errs[5] = p.small("times")
	f.After, errs[6] = p.flag("after")
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	f.RetryAfter, f.Delay = time.Duration(retryAfter)*time.Second, time.Duration(delay)*time.Millisecond
	id, err := s.AddFault(f)
	if err != nil {
		return nil, err
	}
	return map[string]int{"id": id}, nil
}

func (s *Sim) controlRemoveFaults(r *http.Request) (any, error) {
	text := r.URL.Query().Get("id")
	if text == "" {
		s.ClearFaults()
		return struct{}{}, nil
	}
	id, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("id is %q; give the number that POST /sim/faults answered", text)
	}
	s.RemoveFault(id)
	return struct{}{}, nil
}
