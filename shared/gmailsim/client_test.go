package gmailsim_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/oauth2"
	"google.golang.org/api/gmail/v1"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"

	"mailyard.internal/mailyard/shared/gmailsim"
)

const topic = "projects/demo/topics/gmail-notifications"

// A world is a Sim behind a server, with what it published.
type world struct {
	*gmailsim.Sim
	server *httptest.Server

	mu        sync.Mutex
	now       time.Time
	published []string
	fail      error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	w.Sim = gmailsim.New(gmailsim.Config{
		Seed: 7,
		Now: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.now
		},
		Publish: func(_ context.Context, topic string, data []byte) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.published = append(w.published, topic+" "+string(data))
			return w.fail
		},
	})
	w.server = httptest.NewServer(w.Sim)
	t.Cleanup(w.server.Close)
	return w
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// notices returns what was published since it was last asked.
func (w *world) notices() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.published
	w.published = nil
	return got
}

func (w *world) box(t *testing.T, address string) *gmailsim.Mailbox {
	t.Helper()
	box, err := w.AddMailbox(address, "refresh-"+address)
	if err != nil {
		t.Fatal(err)
	}
	return box
}

func (w *world) client(t *testing.T, refreshToken string) *gmail.UsersService {
	t.Helper()
	config := oauth2.Config{ClientID: "id", ClientSecret: "secret", Endpoint: oauth2.Endpoint{TokenURL: w.server.URL + "/token", AuthStyle: oauth2.AuthStyleInParams}}
	source := config.TokenSource(t.Context(), &oauth2.Token{RefreshToken: refreshToken})
	service, err := gmail.NewService(t.Context(), option.WithTokenSource(source), option.WithEndpoint(w.server.URL))
	if err != nil {
		t.Fatal(err)
	}
	return service.Users
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func status(err error) (int, string) {
	var google *googleapi.Error
	if !errors.As(err, &google) {
		return 0, ""
	}
	reason := ""
	if len(google.Errors) > 0 {
		reason = google.Errors[0].Reason
	}
	return google.Code, reason
}

// describe renders history as kind message labels-changed (labels after), one line a change.
func describe(records []*gmail.History, names map[string]string) []string {
	var lines []string
	line := func(kind string, m *gmail.Message, changed []string) {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %v %v", kind, names[m.Id], changed, m.LabelIds)))
	}
	for _, h := range records {
		for _, c := range h.MessagesAdded {
			line("added", c.Message, nil)
		}
		for _, c := range h.MessagesDeleted {
			line("deleted", c.Message, nil)
		}
		for _, c := range h.LabelsAdded {
			line("+", c.Message, c.LabelIds)
		}
		for _, c := range h.LabelsRemoved {
			line("-", c.Message, c.LabelIds)
		}
	}
	return lines
}

func TestRealClient(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t), t.Context()
	box := w.box(t, "Ann@Example.com")
	users := w.client(t, "refresh-Ann@Example.com")

	watch := must[*gmail.WatchResponse](t)(users.Watch("me", &gmail.WatchRequest{TopicName: topic}).Do())
	if want := w.now.Add(7 * 24 * time.Hour).UnixMilli(); watch.Expiration != want {
		t.Errorf("watch expires at %d, want %d", watch.Expiration, want)
	}
	if got, want := w.notices(), []string{fmt.Sprintf(`%s {"emailAddress":"ann@example.com","historyId":%d}`, topic, watch.HistoryId)}; !slices.Equal(got, want) {
		t.Errorf("a watch published %v, want %v", got, want)
	}

	a := must[string](t)(box.Deliver(ctx, gmailsim.Mail{Subject: "Hi", Text: "Tom & Ann", HTML: "<b>Tom</b>"}))
	b := must[string](t)(box.Draft(ctx, gmailsim.Mail{Subject: "Plan"}))
	for _, err := range []error{
		box.Read(ctx, a), box.Read(ctx, a), box.Star(ctx, a), box.SendDraft(ctx, b), box.Trash(ctx, a),
		box.Untrash(ctx, a), box.Delete(ctx, b),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	names := map[string]string{a: "a", b: "b"}
	list := must[*gmail.ListHistoryResponse](t)(users.History.List("me").StartHistoryId(watch.HistoryId).Do())
	want := []string{
		"added a [] [INBOX UNREAD]", "added b [] [DRAFT]", "- a [UNREAD] [INBOX]", "+ a [STARRED] [INBOX STARRED]",
		"+ b [SENT] [SENT]", "- b [DRAFT] [SENT]", "+ a [TRASH] [STARRED TRASH]", "- a [INBOX] [STARRED TRASH]",
		"- a [TRASH] [STARRED]", "deleted b [] [SENT]",
	}
	if got := describe(list.History, names); !slices.Equal(got, want) {
		t.Errorf("history\n got %q\nwant %q", got, want)
	}
	if len(list.History[0].Messages) != 1 || list.History[0].Messages[0].Id != a {
		t.Errorf("messages of the first record: %v", list.History[0].Messages)
	}
	if got := len(w.notices()); got != 8 {
		t.Errorf("%d notifications, want one for each of 8 changes", got)
	}

	m := must[*gmail.Message](t)(users.Messages.Get("me", a).Do())
	if m.Payload.MimeType != "multipart/alternative" || len(m.Payload.Parts) != 2 || m.Payload.Parts[1].PartId != "1" {
		t.Errorf("payload %+v", m.Payload)
	}
	text := must[[]byte](t)(base64.URLEncoding.DecodeString(m.Payload.Parts[0].Body.Data))
	if string(text) != "Tom & Ann" || m.Snippet != "Tom &amp; Ann" || m.InternalDate != w.now.UnixMilli() {
		t.Errorf("text %q, snippet %q, date %d", text, m.Snippet, m.InternalDate)
	}
	if m.HistoryId != list.History[len(list.History)-2].Id || len(m.Id) != 16 {
		t.Errorf("message %s has historyId %d", m.Id, m.HistoryId)
	}
	meta := must[*gmail.Message](t)(users.Messages.Get("me", a).Format("metadata").MetadataHeaders("subject").Do())
	if len(meta.Payload.Headers) != 1 || meta.Payload.Headers[0].Value != "Hi" {
		t.Errorf("metadata %+v", meta.Payload)
	}
	if minimal := must[*gmail.Message](t)(users.Messages.Get("me", a).Format("minimal").Do()); minimal.Payload != nil || len(minimal.LabelIds) != 1 {
		t.Errorf("minimal %+v", minimal)
	}
	if thread := must[*gmail.Thread](t)(users.Threads.Get("me", a).Do()); len(thread.Messages) != 1 {
		t.Errorf("thread %+v", thread)
	}
	profile := must[*gmail.Profile](t)(users.GetProfile("me").Do())
	if profile.EmailAddress != "ann@example.com" || profile.HistoryId != box.HistoryID() || profile.MessagesTotal != 1 || profile.ThreadsTotal != 1 {
		t.Errorf("profile %+v", profile)
	}
	if labels := must[*gmail.ListLabelsResponse](t)(users.Labels.List("me").Do()); len(labels.Labels) < 10 {
		t.Errorf("labels %+v", labels.Labels)
	}
	if err := users.Stop("me").Do(); err != nil {
		t.Fatal(err)
	}
	if err := box.Unread(ctx, a); err != nil || len(w.notices()) != 0 {
		t.Errorf("a stopped watch still publishes, or %v", err)
	}
	stats := w.Stats()
	if stats.Calls["token"] != 1 || stats.Mailboxes["ann@example.com"].TotalUnits != 100+2+3*20+40+1+1+50 {
		t.Errorf("stats %+v", stats)
	}
	snapshot := box.Snapshot()
	if len(snapshot) != 1 || snapshot[0].ID != a || !slices.Equal(snapshot[0].Labels, []string{"STARRED", "UNREAD"}) {
		t.Errorf("snapshot %+v", snapshot)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t), t.Context()
	box := w.box(t, "ann@example.com")
	users := w.client(t, "refresh-ann@example.com")
	id := must[string](t)(box.Deliver(ctx, gmailsim.Mail{}))
	box.ExpireHistory(box.HistoryID())
	get := func() error { _, err := users.Messages.Get("me", id).Do(); return err }
	for name, test := range map[string]struct {
		call   func() error
		status int
		reason string
	}{
		"no such message":  {func() error { _, err := users.Messages.Get("me", "19000000000000ff").Do(); return err }, 404, "notFound"},
		"no id":            {func() error { _, err := users.Messages.Get("me", "m1").Do(); return err }, 404, "notFound"},
		"raw":              {func() error { _, err := users.Messages.Get("me", id).Format("raw").Do(); return err }, 400, "invalidArgument"},
		"search":           {func() error { _, err := users.Messages.List("me").Q("from:x").Do(); return err }, 400, "invalidArgument"},
		"unknown label":    {func() error { _, err := users.Messages.List("me").LabelIds("nope").Do(); return err }, 400, "invalidArgument"},
		"bad page":         {func() error { _, err := users.Messages.List("me").PageToken("x").Do(); return err }, 400, "invalidArgument"},
		"no start":         {func() error { _, err := users.History.List("me").Do(); return err }, 400, "invalidArgument"},
		"start at 1":       {func() error { _, err := users.History.List("me").StartHistoryId(1).Do(); return err }, 404, "notFound"},
		"expired":          {func() error { _, err := users.History.List("me").StartHistoryId(box.HistoryID() - 1).Do(); return err }, 404, "notFound"},
		"not expired":      {func() error { _, err := users.History.List("me").StartHistoryId(box.HistoryID()).Do(); return err }, 0, ""},
		"someone else":     {func() error { _, err := users.GetProfile("bob@example.com").Do(); return err }, 403, "forbidden"},
		"oneself":          {func() error { _, err := users.GetProfile("Ann@example.com").Do(); return err }, 0, ""},
		"topic":            {func() error { _, err := users.Watch("me", &gmail.WatchRequest{TopicName: "t"}).Do(); return err }, 400, "invalidArgument"},
		"no such endpoint": {func() error { _, err := users.Settings.GetVacation("me").Do(); return err }, 404, "notFound"},
		"a good call":      {get, 0, ""},
	} {
		if code, reason := status(test.call()); code != test.status || reason != test.reason {
			t.Errorf("%s: %d %s, want %d %s", name, code, reason, test.status, test.reason)
		}
	}
	box.ExpireAccessTokens()
	if code, reason := status(get()); code != 401 || reason != "authError" {
		t.Errorf("with a dead access token: %d %s", code, reason)
	}
	box.Revoke()
	var token *oauth2.RetrieveError
	if _, err := w.client(t, "refresh-ann@example.com").GetProfile("me").Do(); !errors.As(err, &token) || token.ErrorCode != "invalid_grant" {
		t.Errorf("with a revoked token: %v", err)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.box(t, "ann@example.com")
	box.RotateRefreshTokens(true)
	config := oauth2.Config{Endpoint: oauth2.Endpoint{TokenURL: w.server.URL + "/token", AuthStyle: oauth2.AuthStyleInParams}}
	refresh := func(token string) (*oauth2.Token, error) {
		return config.TokenSource(t.Context(), &oauth2.Token{RefreshToken: token}).Token()
	}
	first := must[*oauth2.Token](t)(refresh("refresh-ann@example.com"))
	if first.RefreshToken == "refresh-ann@example.com" || first.Type() != "Bearer" {
		t.Errorf("token %+v", first)
	}
	if _, err := refresh("refresh-ann@example.com"); err == nil {
		t.Error("a rotated token still works")
	}
	second := must[*oauth2.Token](t)(refresh(first.RefreshToken))
	w.pass(2 * time.Hour)
	r, _ := http.NewRequest("GET", w.server.URL+"/gmail/v1/users/me/profile", nil)
	second.SetAuthHeader(r)
	if answer := must[*http.Response](t)(http.DefaultClient.Do(r)); answer.StatusCode != 401 {
		t.Errorf("an expired token answers %d", answer.StatusCode)
	}
	answer := must[*http.Response](t)(http.PostForm(w.server.URL+"/revoke", map[string][]string{"token": {second.RefreshToken}}))
	if _, err := refresh(second.RefreshToken); answer.StatusCode != 200 || err == nil {
		t.Errorf("revoke answered %d, then %v", answer.StatusCode, err)
	}
	for _, bad := range [][2]string{{"ann", "x"}, {"a@b", ""}} {
		if _, err := w.AddMailbox(bad[0], bad[1]); err == nil {
			t.Errorf("mailbox %v was added", bad)
		}
	}
	w.box(t, "bob@example.com")
	if _, err := w.AddMailbox("ann@example.com", "refresh-bob@example.com"); err == nil {
		t.Error("a token reaches two mailboxes")
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.box(t, "ann@example.com")
	w.box(t, "bob@example.com")
	users, bob := w.client(t, "refresh-ann@example.com"), w.client(t, "refresh-bob@example.com")
	id := must[string](t)(box.Deliver(t.Context(), gmailsim.Mail{}))
	get := func() error { _, err := users.Messages.Get("me", id).Do(); return err }
	add := func(f gmailsim.Fault) int { return must[int](t)(w.AddFault(f)) }

	add(gmailsim.Fault{Method: "token", Mailbox: "ann@example.com", Status: 503, Times: 1})
	var token *oauth2.RetrieveError
	if err := get(); !errors.As(err, &token) || token.Response.StatusCode != 503 {
		t.Errorf("token server down: %v", err)
	}
	add(gmailsim.Fault{Method: "messages.get", MessageID: id, Status: 403, Reason: "userRateLimitExceeded", RetryAfter: 1500 * time.Millisecond, Times: 1})
	if _, err := users.GetProfile("me").Do(); err != nil {
		t.Errorf("a fault of another method: %v", err)
	}
	err := get()
	var google *googleapi.Error
	if code, reason := status(err); code != 403 || reason != "userRateLimitExceeded" || !errors.As(err, &google) || google.Header.Get("Retry-After") != "2" {
		t.Errorf("throttled: %v", err)
	}
	if err := get(); err != nil {
		t.Errorf("the fault is spent: %v", err)
	}
	add(gmailsim.Fault{Mailbox: "ANN@example.com", Drop: true, Times: 1})
	if err := get(); err == nil {
		t.Error("a dropped connection was not seen")
	} else if code, _ := status(err); code != 0 {
		t.Errorf("dropped: %v", err)
	}
	hang := add(gmailsim.Fault{Method: "watch", Hang: true})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := users.Watch("me", &gmail.WatchRequest{TopicName: topic}).Context(ctx).Do(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("hanging: %v", err)
	}
	w.RemoveFault(hang)
	if _, err := users.Watch("me", &gmail.WatchRequest{TopicName: topic}).Do(); err != nil {
		t.Errorf("removed: %v", err)
	}
	add(gmailsim.Fault{Mailbox: "ann@example.com", Status: 500})
	if _, err := bob.GetProfile("me").Do(); err != nil {
		t.Errorf("a fault of another mailbox: %v", err)
	}
	w.ClearFaults()
	add(gmailsim.Fault{Method: "messages.get", Delay: 30 * time.Millisecond, Times: 1})
	if begun := time.Now(); get() != nil || time.Since(begun) < 30*time.Millisecond {
		t.Error("a delay alone must answer well, but late")
	}
	calls := w.Calls("messages.get")
	var codes []int
	for _, call := range calls {
		codes = append(codes, call.Status)
	}
	if !slices.Equal(codes, []int{403, 200, 0, 200}) || calls[0].MessageID != id {
		t.Errorf("calls %+v", calls)
	}
	for _, f := range []gmailsim.Fault{{}, {Status: 200}, {Method: "messages.fetch", Drop: true}, {Drop: true, Times: -1}} {
		if _, err := w.AddFault(f); err == nil {
			t.Errorf("fault %+v was added", f)
		}
	}
}

func TestSend(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ann, bob := w.box(t, "ann@example.com"), w.box(t, "bob@example.com")
	users := w.client(t, "refresh-ann@example.com")
	raw := "From: ann@example.com\r\nTo: Bob <bob@example.com>,\r\n c@example.net\r\nSubject: Report\r\nMessage-ID: <own@example.com>\r\n" +
		"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: text/plain\r\n\r\nhello\r\n" +
		"--x\r\nContent-Type: application/pdf; name=a.pdf\r\nContent-Transfer-Encoding: base64\r\n\r\nJVBERg==\r\n--x--\r\n"
	sent := must[*gmail.Message](t)(users.Messages.Send("me", &gmail.Message{Raw: base64.URLEncoding.EncodeToString([]byte(raw))}).Do())
	if !slices.Equal(sent.LabelIds, []string{"SENT"}) || ann.Snapshot()[0].ID != sent.Id || len(bob.Snapshot()) != 1 {
		t.Fatalf("sent %+v", sent)
	}
	got := must[*gmail.Message](t)(w.client(t, "refresh-bob@example.com").Messages.Get("me", bob.Snapshot()[0].ID).Do())
	headers := map[string]string{}
	for _, h := range got.Payload.Headers {
		headers[h.Name] = h.Value
	}
	if headers["To"] != "Bob <bob@example.com>, c@example.net" || !strings.HasSuffix(headers["Message-ID"], "@mail.gmail.com>") {
		t.Errorf("headers %v", headers)
	}
	parts := got.Payload.Parts
	if len(parts) != 2 || got.Snippet != "hello" || parts[1].Filename != "a.pdf" || parts[1].Body.Size != 4 || parts[1].Body.AttachmentId == "" || parts[1].Body.Data != "" {
		t.Errorf("parts %+v", parts)
	}
	if _, err := users.Messages.Send("me", &gmail.Message{Raw: "####"}).Do(); err == nil {
		t.Error("rubbish was sent")
	}
}

// TestCases scripts every case from the field, where the checkout has them, and plays its answers.
func TestCases(t *testing.T) {
	t.Parallel()
	for _, c := range readCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			box := w.box(t, "ann@example.com")
			if err := box.ScriptCase(c.Gmail); err != nil {
				t.Fatal(err)
			}
			users := w.client(t, "refresh-ann@example.com")
			var methods map[string][]struct {
				ID     string
				Status int
				Times  int
				Body   json.RawMessage
			}
			if err := json.Unmarshal(c.Gmail, &methods); err != nil {
				t.Fatal(err)
			}
			for range methods["token"] {
				if _, err := users.GetProfile("me").Do(); err != nil && !strings.Contains(err.Error(), "503") {
					t.Error(err)
				}
			}
			for method, answers := range methods {
				for _, answer := range answers {
					for range max(answer.Times, 1) {
						var err error
						switch method {
						case "token":
							continue
						case "history.list":
							_, err = users.History.List("me").StartHistoryId(100).Do()
						case "getProfile":
							_, err = users.GetProfile("me").Do()
						case "watch":
							var watch *gmail.WatchResponse
							watch, err = users.Watch("me", &gmail.WatchRequest{TopicName: topic}).Do()
							if err == nil && (watch.HistoryId != 300 || watch.Expiration != w.now.Add(7*24*time.Hour).UnixMilli()) {
								t.Errorf("watch %+v", watch)
							}
						case "messages.get":
							var m *gmail.Message
							m, err = users.Messages.Get("me", answer.ID).Do()
							if err == nil && (m.Id != answer.ID || m.ThreadId != "t-"+answer.ID || m.HistoryId == 0 || m.Payload == nil) {
								t.Errorf("message %+v", m)
							}
						default:
							t.Fatalf("method %q is new", method)
						}
						if code, _ := status(err); code != answer.Status && (err != nil || answer.Status != 200) {
							t.Errorf("%s answered %v, want %d", method, err, answer.Status)
						}
					}
				}
			}
		})
	}
}

func TestScriptDetails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	play := func(gmailJSON string) (*gmailsim.Mailbox, *gmail.UsersService) {
		address := fmt.Sprintf("u%d@example.com", len(gmailJSON))
		box := w.box(t, address)
		if err := box.ScriptCase([]byte(gmailJSON)); err != nil {
			t.Fatal(err)
		}
		return box, w.client(t, "refresh-"+address)
	}
	_, users := play(`{"history.list": [{"body": {"history": [{"id": "9007199254740993", "messagesAdded": [{"message": {"id": "m1", "threadId": "t9"}}]}], "historyId": "9007199254740994"}}]}`)
	list := must[*gmail.ListHistoryResponse](t)(users.History.List("me").StartHistoryId(9007199254740992).Do())
	if list.History[0].Id != 9007199254740993 {
		t.Errorf("list %+v", list)
	}
	if again := must[*gmail.ListHistoryResponse](t)(users.History.List("me").StartHistoryId(9007199254740994).Do()); again.HistoryId != 9007199254740994 || again.History != nil {
		t.Errorf("used up: %+v", again)
	}
	if m := must[*gmail.Message](t)(users.Messages.Get("me", "m1").Do()); m.ThreadId != "t9" || m.LabelIds != nil {
		t.Errorf("a message of scripted history: %+v", m)
	}
	_, users = play(`{"messages.get": [{"id": "m1", "labelIds": null, "payload": {"mimeType": "text/plain", "body": {"dataOf": "ESC$B (ESC = byte 1B)"}}}, {"id": "m2", "labelIds": ["TRASH"], "payload": {"body": {"size": 9, "dataOf": "'가' repeated"}}},
		{"id": "m3", "payload": {"parts": [{"parts": [{"filename": "x", "body": {"attachmentId": "A"}}]}]}}]}`)
	m1, m2 := must[*gmail.Message](t)(users.Messages.Get("me", "m1").Do()), must[*gmail.Message](t)(users.Messages.Get("me", "m2").Do())
	if text, _ := base64.RawURLEncoding.DecodeString(m1.Payload.Body.Data); string(text) != "\x1b$B" || m1.LabelIds != nil || len(m1.Payload.Headers) != 0 {
		t.Errorf("m1 %+v", m1)
	}
	if text, _ := base64.RawURLEncoding.DecodeString(m2.Payload.Body.Data); string(text) != "가가가" || m2.LabelIds[0] != "TRASH" {
		t.Errorf("m2 %+v", m2)
	}
	m3 := must[*gmail.Message](t)(users.Messages.Get("me", "m3").Do())
	if part := m3.Payload.Parts[0].Parts[0]; m3.Payload.MimeType != "multipart/mixed" || part.PartId != "0.0" || part.Body.AttachmentId != "A" {
		t.Errorf("m3 %+v", m3.Payload)
	}
	box, users := play(`{"messages.get": [{"id": "gone", "status": 404, "always": true}], "getProfile": [{"body": {"historyId": "500"}}]}`)
	for range 3 {
		if _, err := users.Messages.Get("me", "gone").Do(); err == nil {
			t.Error("always is not used up")
		}
	}
	if p := must[*gmail.Profile](t)(users.GetProfile("me").Do()); p.HistoryId != 500 || p.EmailAddress != box.Address() {
		t.Errorf("profile %+v", p)
	}
	for _, bad := range []string{`{"messages.fetch": [{}]}`, `[]`, `{"watch": [{"status": 99}]}`, `{"messages.get": [{"payload": []}]}`, `{"messages.get": [{"labelIds": 3}]}`} {
		if err := box.ScriptCase([]byte(bad)); err == nil {
			t.Errorf("scripted %s", bad)
		}
	}
}

type fieldCase struct {
	Name  string
	Gmail json.RawMessage
}

func readCases(t *testing.T) []fieldCase {
	t.Helper()
	for _, path := range []string{"../cases/cases.json", "../../cases/cases.json", "../../../shared/cases/cases.json"} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var file struct{ Cases []fieldCase }
		if err := json.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		return file.Cases
	}
	t.Skip("no cases.json in this checkout")
	return nil
}
