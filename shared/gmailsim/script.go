package gmailsim

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A Response is a scripted answer. Its JSON is that of the answers in shared/cases/cases.json.
//
// An error (status 400 and above) is given with Body, or with what Google usually says. A success
// of messages.get, getProfile or watch is the answer this Gmail would give, with the members of
// Body, then LabelIDs and Payload, in place of its own; a message that is in no mailbox is made up.
// A success of any other method is Body as it is, or without Body the answer it would give.
type Response struct {
	// ID is the message (or for threads.get the thread) the answer is for; empty is for any.
	ID      string          `json:"id"`
	Status  int             `json:"status"` // 0 is 200
	Body    json.RawMessage `json:"body"`
	DelayMS int             `json:"delayMs"` // real milliseconds
	Times   int             `json:"times"`   // calls to answer; 0 is one
	Always  bool            `json:"always"`  // never used up
	// LabelIDs replaces the message's labels; null is none, absent leaves them.
	LabelIDs json.RawMessage `json:"labelIds"`
	// Payload replaces the message's payload whole; partIds and sizes left out are filled in.
	// A body may have dataOf in place of data: the text itself, in which ESC is the byte 1B and
	// whatever follows " (" is a remark; or 'x' repeated, up to the body's size in bytes.
	Payload json.RawMessage `json:"payload"`
}

// scripts are a mailbox's scripted answers, guarded by its mutex.
type scripts struct {
	queues map[string][]*Response
	shapes map[string]shape
	top    uint64 // the greatest historyId in a body
}

// A shape is a message known from scripts alone: messages.get finds it, listings do not.
type shape struct {
	id, threadID string
	labels       []string
}

// Script adds answers to those for this mailbox's calls of a method, one of [Methods]. They are
// used in the order of the calls, or of the calls for that message where they have an ID. When they
// are used up the mailbox answers as usual, and so that this goes with what was scripted:
// messages.get knows the messages of scripted history, and a mailbox in which nothing ever happened
// takes the greatest historyId of the bodies for its own. On an error nothing is added.
func (m *Mailbox) Script(method string, answers ...Response) error {
	if err := checkMethod(method, false); err != nil {
		return fmt.Errorf("script: %w", err)
	}
	prepared := make([]*Response, len(answers))
	for i, answer := range answers {
		if err := answer.prepare(m.sim.now()); err != nil {
			return fmt.Errorf("script of %s, answer %d: %w", method, i+1, err)
		}
		prepared[i] = &answer
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.scripts.queues == nil {
		m.scripts.queues, m.scripts.shapes = map[string][]*Response{}, map[string]shape{}
	}
	m.scripts.queues[method] = append(m.scripts.queues[method], prepared...)
	for _, answer := range prepared {
		m.scripts.learn(method, answer)
	}
	if m.arrivals == 0 && m.scripts.top > 0 {
		m.historyID, m.base = m.scripts.top, m.scripts.top
	}
	return nil
}

// ScriptCase scripts the "gmail" object of a case of shared/cases/cases.json: method names to lists
// of answers.
func (m *Mailbox) ScriptCase(gmail []byte) error {
	var methods map[string][]Response
	if err := json.Unmarshal(gmail, &methods); err != nil {
		return fmt.Errorf("script case: %w", err)
	}
	for _, method := range Methods() { // in an order that is always the same
		if answers, ok := methods[method]; ok {
			delete(methods, method)
			if err := m.Script(method, answers...); err != nil {
				return err
			}
		}
	}
	for method := range methods {
		return checkMethod(method, false)
	}
	return nil
}

// ClearScripts forgets all scripted answers, and the messages known from them alone.
func (m *Mailbox) ClearScripts() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scripts = scripts{}
}

func (a *Response) prepare(now time.Time) error {
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	if a.Status < 200 || a.Status > 599 {
		return fmt.Errorf("status %d is none; give 200 to 599", a.Status)
	}
	if a.DelayMS < 0 || a.Times < 0 {
		return errors.New("delayMs and times cannot be negative")
	}
	if a.Times == 0 {
		a.Times = 1
	}
	if a.Body != nil && !json.Valid(a.Body) {
		return errors.New("the body is no JSON")
	}
	if a.LabelIDs != nil && json.Unmarshal(a.LabelIDs, new([]string)) != nil {
		return errors.New("labelIds must be a list of strings, or null")
	}
	a.Body = inMillis(a.Body, now)
	if a.Payload == nil {
		return nil
	}
	var payload map[string]any
	if err := json.Unmarshal(a.Payload, &payload); err != nil || payload == nil {
		return errors.New("the payload must be an object like Gmail's")
	}
	completePart(payload, "")
	var err error
	a.Payload, err = json.Marshal(payload)
	return err
}

var relativeTime = regexp.MustCompile(`"now([+-]\d{1,6})([hd])"`)

// inMillis puts milliseconds in place of moments such as "now+7d".
func inMillis(body []byte, now time.Time) []byte {
	return relativeTime.ReplaceAllFunc(body, func(found []byte) []byte {
		parts := relativeTime.FindSubmatch(found)
		n, _ := strconv.Atoi(string(parts[1])) // the pattern lets only numbers through
		unit := time.Hour
		if parts[2][0] == 'd' {
			unit = 24 * time.Hour
		}
		return []byte(strconv.Quote(unixMillis(now.Add(time.Duration(n) * unit))))
	})
}

// completePart fills in what Gmail always gives with a part.
func completePart(part map[string]any, id string) {
	children, _ := part["parts"].([]any)
	mimeType := "text/plain"
	if children != nil {
		mimeType = "multipart/mixed"
	}
	for name, value := range map[string]any{"partId": id, "mimeType": mimeType, "filename": ""} {
		if _, given := part[name]; !given {
			part[name] = value
		}
	}
	body, ok := part["body"].(map[string]any)
	if !ok {
		body = map[string]any{}
		part["body"] = body
	}
	size, sized := body["size"].(float64)
	if text, ok := body["dataOf"].(string); ok {
		delete(body, "dataOf")
		body["data"] = base64.RawURLEncoding.EncodeToString(dataOf(text, int(min(size, maxBody))))
	}
	if !sized {
		data, _ := body["data"].(string)
		body["size"] = base64.RawURLEncoding.DecodedLen(len(strings.TrimRight(data, "=")))
	}
	for i, child := range children {
		if child, ok := child.(map[string]any); ok {
			completePart(child, childID(id, i))
		}
	}
}

var repeated = regexp.MustCompile(`^'(.+)' repeated$`)

func dataOf(text string, size int) []byte {
	if found := repeated.FindStringSubmatch(text); found != nil {
		return []byte(strings.Repeat(found[1], max(size/len(found[1]), 1)))
	}
	text, _, _ = strings.Cut(text, " (")
	return []byte(strings.ReplaceAll(text, "ESC", "\x1b"))
}

// learn notes what an answer says of messages and of the history's end.
func (s *scripts) learn(method string, a *Response) {
	var body struct {
		HistoryID json.RawMessage `json:"historyId"`
		History   []struct {
			MessagesAdded, LabelsAdded, LabelsRemoved, MessagesDeleted []wireChange
		} `json:"history"`
	}
	if a.Body != nil && a.Status < 300 && json.Unmarshal(a.Body, &body) == nil {
		if id, err := strconv.ParseUint(strings.Trim(string(body.HistoryID), `"`), 10, 64); err == nil {
			s.top = max(s.top, id)
		}
	}
	for _, rec := range body.History {
		for _, changes := range [][]wireChange{rec.MessagesAdded, rec.LabelsAdded, rec.LabelsRemoved} {
			for _, c := range changes {
				s.shapes[c.Message.ID] = shape{c.Message.ID, c.Message.ThreadID, c.Message.LabelIDs}
			}
		}
		for _, c := range rec.MessagesDeleted {
			delete(s.shapes, c.Message.ID)
		}
	}
	if _, known := s.shapes[a.ID]; method == "messages.get" && a.ID != "" && a.Status < 300 && !known {
		s.shapes[a.ID] = shape{a.ID, "t-" + a.ID, []string{"INBOX"}}
	}
}

// message makes up a message of that shape. The mailbox must be locked.
func (s shape) message(m *Mailbox) wireMessage {
	content := content{from: "Sam Sender <sam@example.com>", subject: "Message " + s.id, text: "This is message " + s.id + ".\r\n"}
	date := m.sim.now().UnixMilli()
	part := content.part(s.id, m.address, date)
	return wireMessage{
		ID: s.id, ThreadID: s.threadID, LabelIDs: s.labels, Snippet: part.snippet(), HistoryID: m.historyID,
		InternalDate: date, SizeEstimate: part.size(), Payload: part.wire(s.id, ""),
	}
}

// nextScripted uses up and returns the next answer for this call; nil if none is left.
func (m *Mailbox) nextScripted(method, id string) *Response {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.scripts.queues[method] {
		if a.ID != "" && a.ID != id || a.Times == 0 {
			continue
		}
		if !a.Always {
			a.Times--
		}
		return a
	}
	return nil
}

// scripted gives the answer, if the script has the whole of it.
func (x *exchange) scripted(a *Response) bool {
	if !pause(x.r.Context(), time.Duration(a.DelayMS)*time.Millisecond) {
		x.nobody()
		return true
	}
	switch {
	case a.Body != nil && (a.Status >= 300 || !completed(x.call.Method)):
		x.raw(a.Status, a.Body)
	case a.Status >= 300:
		x.refuse(a.Status, "", "")
	default:
		return false
	}
	return true
}

// completed says of which methods a scripted body is only a part of the answer.
func completed(method string) bool {
	return method == "messages.get" || method == "getProfile" || method == "watch"
}

// complete puts what is scripted into the usual answer.
func (a *Response) complete(m *Mailbox, method, id string, usual any, err error) (any, error) {
	if err == errNotFound && method == "messages.get" {
		m.mu.Lock()
		usual, err = shape{id, "t-" + id, []string{"INBOX"}}.message(m), nil
		m.mu.Unlock()
	}
	if err != nil || !completed(method) {
		return usual, err
	}
	answer := map[string]json.RawMessage{}
	text, err := json.Marshal(usual)
	if err != nil {
		return nil, err
	}
	for _, layer := range [][]byte{text, a.Body} {
		if layer != nil {
			if err := json.Unmarshal(layer, &answer); err != nil {
				return nil, err
			}
		}
	}
	if a.LabelIDs != nil {
		if answer["labelIds"] = a.LabelIDs; string(a.LabelIDs) == "null" {
			delete(answer, "labelIds")
		}
	}
	if _, full := answer["payload"]; a.Payload != nil && full {
		answer["payload"] = a.Payload
	}
	return answer, nil
}
