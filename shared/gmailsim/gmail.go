package gmailsim

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	defaultPage = 100
	maxPage     = 500
)

func (s *Sim) routeGmail() {
	for pattern, endpoint := range map[string]struct {
		method string
		answer func(*Mailbox, *http.Request) (any, error)
	}{
		"GET /profile":        {"getProfile", (*Mailbox).profile},
		"POST /watch":         {"watch", (*Mailbox).serveWatch},
		"POST /stop":          {"stop", (*Mailbox).serveStop},
		"GET /history":        {"history.list", (*Mailbox).history},
		"GET /messages":       {"messages.list", (*Mailbox).list},
		"GET /messages/{id}":  {"messages.get", (*Mailbox).get},
		"POST /messages/send": {"messages.send", (*Mailbox).serveSend},
		"GET /threads/{id}":   {"threads.get", (*Mailbox).thread},
		"GET /labels":         {"labels.list", (*Mailbox).labelList},
	} {
		verb, path, _ := strings.Cut(pattern, " ")
		s.mux.HandleFunc(verb+" /gmail/v1/users/{user}"+path, func(w http.ResponseWriter, r *http.Request) {
			s.serveGmail(endpoint.method, endpoint.answer, w, r)
		})
	}
	s.mux.HandleFunc("/gmail/", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusNotFound, errNotFound.body())
	})
}

func (s *Sim) serveGmail(method string, answer func(*Mailbox, *http.Request) (any, error), w http.ResponseWriter, r *http.Request) {
	// The server notices a caller who hangs up only once the body is read, and a fault may wait for that.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	r.Body = io.NopCloser(bytes.NewReader(body))
	box := s.bearer(r)
	x := s.begin(method, box, w, r)
	switch user := r.PathValue("user"); {
	case x.misbehave():
		return
	case box == nil:
		w.Header().Set("WWW-Authenticate", `Bearer realm="https://accounts.google.com/"`)
		x.fail(errToken)
		return
	case err != nil:
		x.fail(badRequest("The request's body cannot be read."))
		return
	case user != "me" && normalise(user) != box.address:
		x.fail(&apiError{http.StatusForbidden, "forbidden", "Delegation denied for " + box.address})
		return
	}
	scripted := box.nextScripted(method, r.PathValue("id"))
	if scripted != nil && x.scripted(scripted) {
		return
	}
	result, err := answer(box, r)
	if scripted != nil {
		result, err = scripted.complete(box, method, r.PathValue("id"), result, err)
	}
	switch {
	case x.misbehaveAfter():
	case err != nil:
		x.fail(err)
	default:
		x.reply(http.StatusOK, result)
	}
}

func (x *exchange) fail(err error) {
	known, ok := err.(*apiError)
	if !ok {
		known = &apiError{status: http.StatusInternalServerError, message: err.Error()}
	}
	x.reply(known.status, known.body())
}

func (m *Mailbox) profile(*http.Request) (any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return map[string]any{
		"emailAddress": m.address, "messagesTotal": len(m.messages), "threadsTotal": len(m.threads),
		"historyId": strconv.FormatUint(m.historyID, 10),
	}, nil
}

func (m *Mailbox) serveWatch(r *http.Request) (any, error) {
	var request struct {
		TopicName           string   `json:"topicName"`
		LabelIDs            []string `json:"labelIds"`
		LabelFilterBehavior string   `json:"labelFilterBehavior"`
		LabelFilterAction   string   `json:"labelFilterAction"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return nil, badRequest("Invalid JSON payload received.")
	}
	if !topicName.MatchString(request.TopicName) {
		return nil, badRequest("Invalid topicName does not match projects/*/topics/*")
	}
	exclude := strings.EqualFold(cmp.Or(request.LabelFilterBehavior, request.LabelFilterAction), "exclude")
	historyID, expires, n := m.startWatch(request.TopicName, request.LabelIDs, exclude)
	if err := m.sim.send(r.Context(), n); err != nil {
		m.stopWatch()
		return nil, badRequest("Error sending test message to Cloud PubSub %s", request.TopicName)
	}
	return map[string]any{
		"historyId":  strconv.FormatUint(historyID, 10),
		"expiration": unixMillis(expires),
	}, nil
}

func (m *Mailbox) serveStop(*http.Request) (any, error) {
	m.stopWatch()
	return nil, nil
}

type wireRef struct {
	ID       string   `json:"id"`
	ThreadID string   `json:"threadId"`
	LabelIDs []string `json:"labelIds,omitempty"`
}

type wireChange struct {
	Message  wireRef  `json:"message"`
	LabelIDs []string `json:"labelIds,omitempty"`
}

type wireRecord struct {
	ID              uint64       `json:"id,string"`
	Messages        []wireRef    `json:"messages"`
	MessagesAdded   []wireChange `json:"messagesAdded,omitempty"`
	MessagesDeleted []wireChange `json:"messagesDeleted,omitempty"`
	LabelsAdded     []wireChange `json:"labelsAdded,omitempty"`
	LabelsRemoved   []wireChange `json:"labelsRemoved,omitempty"`
}

type historyPage struct {
	History       []wireRecord `json:"history,omitempty"`
	NextPageToken string       `json:"nextPageToken,omitempty"`
	HistoryID     uint64       `json:"historyId,string"`
}

// history lists by binary search from the page's place; a page costs what it shows or passes over.
func (m *Mailbox) history(r *http.Request) (any, error) {
	query := r.URL.Query()
	start, err := strconv.ParseUint(query.Get("startHistoryId"), 10, 64)
	if err != nil {
		return nil, badRequest("Missing or invalid startHistoryId")
	}
	limit, err := pageSize(query)
	if err != nil {
		return nil, err
	}
	after := start
	if token := query.Get("pageToken"); token != "" {
		if after, err = strconv.ParseUint(token, 10, 64); err != nil || after < start {
			return nil, badRequest("Invalid pageToken")
		}
	}
	for _, kind := range query["historyTypes"] {
		if !slices.Contains(historyTypes, kind) {
			return nil, badRequest("Invalid value at 'history_types': %q", kind)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if start < m.floor {
		return nil, errNotFound
	}
	records, historyID := m.indexed()
	page := historyPage{HistoryID: historyID}
	for _, rec := range records[m.recordsAfter(records, after):] {
		wire, ok := rec.wire(query["historyTypes"], query.Get("labelId"))
		if !ok {
			continue
		}
		if len(page.History) == limit {
			page.NextPageToken = strconv.FormatUint(page.History[limit-1].ID, 10)
			break
		}
		page.History = append(page.History, wire)
	}
	return page, nil
}

// wire renders a record; false if it has nothing of these kinds, or with that label.
func (rec *record) wire(kinds []string, label string) (wireRecord, bool) {
	ref := wireRef{ID: formatID(rec.message), ThreadID: formatID(rec.thread)}
	wire := wireRecord{ID: rec.id, Messages: []wireRef{ref}}
	ref.LabelIDs = rec.labels
	shown := false
	for _, c := range rec.changes {
		if len(kinds) > 0 && !slices.Contains(kinds, historyTypes[c.kind]) ||
			label != "" && !slices.Contains(rec.labels, label) && !slices.Contains(c.labels, label) {
			continue
		}
		shown = true
		changes := []wireChange{{ref, c.labels}}
		switch c.kind {
		case messageAdded:
			wire.MessagesAdded = changes
		case messageDeleted:
			wire.MessagesDeleted = changes
		case labelAdded:
			wire.LabelsAdded = changes
		case labelRemoved:
			wire.LabelsRemoved = changes
		}
	}
	return wire, shown
}

type messagePage struct {
	Messages           []wireRef `json:"messages,omitempty"`
	NextPageToken      string    `json:"nextPageToken,omitempty"`
	ResultSizeEstimate int       `json:"resultSizeEstimate"`
}

// list walks from the page's place towards older mail. All pages of a listing together walk the
// mailbox once, however rare the label.
func (m *Mailbox) list(r *http.Request) (any, error) {
	query := r.URL.Query()
	if query.Get("q") != "" {
		return nil, badRequest("This Gmail cannot search: leave q out and use labelIds")
	}
	limit, err := pageSize(query)
	if err != nil {
		return nil, err
	}
	from := &message{date: 1<<63 - 1, arrival: 1<<64 - 1}
	if token := query.Get("pageToken"); token != "" {
		if n, err := fmt.Sscanf(token, "%d.%d", &from.date, &from.arrival); n != 2 || err != nil {
			return nil, badRequest("Invalid pageToken")
		}
	}
	hidden := []string{"SPAM", "TRASH"}
	wanted := query["labelIds"]
	all, _ := strconv.ParseBool(query.Get("includeSpamTrash"))
	if all || slices.ContainsFunc(wanted, func(label string) bool { return slices.Contains(hidden, label) }) {
		hidden = nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	page := messagePage{ResultSizeEstimate: len(m.messages)}
	for _, label := range wanted {
		carrying, known := m.labels[label]
		if !known {
			return nil, badRequest("Invalid label: %s", label)
		}
		page.ResultSizeEstimate = min(page.ResultSizeEstimate, carrying)
	}
	m.tidy()
	_, indexed := m.indexed()
	last := from
	i, _ := slices.BinarySearchFunc(m.order, from, newer)
	for i--; i >= 0; i-- {
		msg := m.order[i]
		if msg.deleted || msg.added > indexed || containsAny(msg.labels, hidden) || !containsAll(msg.labels, wanted) {
			continue
		}
		if len(page.Messages) == limit {
			page.NextPageToken = fmt.Sprintf("%d.%d", last.date, last.arrival)
			break
		}
		page.Messages = append(page.Messages, wireRef{ID: formatID(msg.id), ThreadID: formatID(msg.thread)})
		last = msg
	}
	return page, nil
}

func containsAny(labels, any []string) bool {
	return slices.ContainsFunc(any, func(label string) bool { return slices.Contains(labels, label) })
}

func containsAll(labels, all []string) bool {
	return !slices.ContainsFunc(all, func(label string) bool { return !slices.Contains(labels, label) })
}

func pageSize(query url.Values) (int, error) {
	text := query.Get("maxResults")
	if text == "" {
		return defaultPage, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, badRequest("Invalid value for maxResults: %q", text)
	}
	if n == 0 {
		return defaultPage, nil
	}
	return int(min(n, maxPage)), nil
}

type wireMessage struct {
	ID           string    `json:"id"`
	ThreadID     string    `json:"threadId"`
	LabelIDs     []string  `json:"labelIds,omitempty"`
	Snippet      string    `json:"snippet,omitempty"`
	HistoryID    uint64    `json:"historyId,string"`
	InternalDate int64     `json:"internalDate,string"`
	SizeEstimate int       `json:"sizeEstimate"`
	Payload      *wirePart `json:"payload,omitempty"`
}

func (m *Mailbox) get(r *http.Request) (any, error) {
	render, err := format(r.URL.Query())
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	msg, err := m.find(r.PathValue("id"))
	if err == nil && m.sim.now().UnixMilli() < msg.hiddenUntil {
		err = errNotFound
	}
	if err != nil {
		if shape, ok := m.scripts.shapes[r.PathValue("id")]; ok {
			return render(shape.message(m)), nil
		}
		return nil, errNotFound
	}
	return render(m.render(msg)), nil
}

// render gives a message in full.
func (m *Mailbox) render(msg *message) wireMessage {
	id := formatID(msg.id)
	part := msg.content.part(id, m.address, msg.date)
	labels := msg.labels
	if m.lagLabels {
		labels = msg.before
	}
	return wireMessage{
		ID: id, ThreadID: formatID(msg.thread), LabelIDs: labels, Snippet: part.snippet(),
		HistoryID: msg.historyID, InternalDate: msg.date, SizeEstimate: part.size(), Payload: part.wire(id, ""),
	}
}

// format returns what the query's format leaves of a full message.
func format(query url.Values) (func(wireMessage) wireMessage, error) {
	switch query.Get("format") {
	case "", "full":
		return func(w wireMessage) wireMessage { return w }, nil
	case "minimal":
		return func(w wireMessage) wireMessage { w.Payload = nil; return w }, nil
	case "metadata":
		names := query["metadataHeaders"]
		return func(w wireMessage) wireMessage {
			full := w.Payload
			w.Payload = &wirePart{MimeType: full.MimeType}
			for _, h := range full.Headers {
				if len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, h.Name) }) {
					w.Payload.Headers = append(w.Payload.Headers, h)
				}
			}
			return w
		}, nil
	}
	return nil, badRequest("Unsupported format %q: this Gmail knows full, metadata and minimal", query.Get("format"))
}

func (m *Mailbox) thread(r *http.Request) (any, error) {
	render, err := format(r.URL.Query())
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(r.PathValue("id"), 16, 64)
	if err != nil {
		return nil, errNotFound
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	messages, ok := m.threads[number]
	if !ok {
		return nil, errNotFound
	}
	var out struct {
		ID        string        `json:"id"`
		HistoryID uint64        `json:"historyId,string"`
		Messages  []wireMessage `json:"messages"`
	}
	out.ID = formatID(number)
	for _, msg := range slices.SortedFunc(slices.Values(messages), newer) {
		out.HistoryID = max(out.HistoryID, msg.historyID)
		out.Messages = append(out.Messages, render(m.render(msg)))
	}
	return out, nil
}

func (m *Mailbox) labelList(*http.Request) (any, error) {
	type label struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		Type string `json:"type"`
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []label
	for _, id := range slices.Sorted(maps.Keys(m.labels)) {
		kind := "user"
		if slices.Contains(systemLabels, id) {
			kind = "system"
		}
		list = append(list, label{id, id, kind})
	}
	return map[string]any{"labels": list}, nil
}

func (m *Mailbox) serveSend(r *http.Request) (any, error) {
	var request struct {
		Raw      string `json:"raw"`
		ThreadID string `json:"threadId"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return nil, badRequest("Invalid JSON payload received.")
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(request.Raw, "="))
	if err != nil || len(raw) == 0 {
		return nil, badRequest("'raw' RFC822 payload message string or uploading message via /upload/* URL required")
	}
	content, err := newContent(Mail{Raw: raw})
	if err != nil || len(content.recipients()) == 0 {
		return nil, badRequest("Recipient address required")
	}
	m.sim.hasSent(SentMail{At: m.sim.now(), From: m.address, To: content.recipients(), Raw: raw})
	// A notification that failed is no failure of the sending: Gmail would not say so either.
	id, _ := m.Send(r.Context(), Mail{Raw: raw, ThreadID: request.ThreadID})
	m.mu.Lock()
	defer m.mu.Unlock()
	msg, err := m.find(id)
	if err != nil {
		return nil, badRequest("Invalid threadId")
	}
	return wireRef{id, formatID(msg.thread), msg.labels}, nil
}

// unixMillis renders a moment as Gmail's int64 strings of milliseconds.
func unixMillis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // whoever hung up does not want the rest
}
