package gmailsim_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/api/gmail/v1"

	"mailyard.internal/mailyard/shared/gmailsim"
)

func TestListing(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t), t.Context()
	box := w.box(t, "ann@example.com")
	users := w.client(t, "refresh-ann@example.com")
	var ids []string // newest first
	for i := range 12 {
		// Every third one is a day older than those before it.
		date := w.now.Add(time.Duration(i) * time.Minute)
		if i%3 == 2 {
			date = date.Add(-24 * time.Hour)
		}
		ids = append(ids, must[string](t)(box.Deliver(ctx, gmailsim.Mail{Date: date})))
	}
	slices.Reverse(ids)
	var order []string
	for _, old := range []bool{false, true} {
		for i, id := range ids {
			if (len(ids)-1-i)%3 == 2 == old {
				order = append(order, id)
			}
		}
	}
	page := func(size int64, call func(*gmail.UsersMessagesListCall)) []string {
		var got []string
		list := users.Messages.List("me").MaxResults(size)
		call(list)
		err := list.Pages(ctx, func(p *gmail.ListMessagesResponse) error {
			for _, m := range p.Messages {
				got = append(got, m.Id)
			}
			if len(p.Messages) == 0 && p.NextPageToken != "" {
				t.Error("an empty page with a next one")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	all := func(*gmail.UsersMessagesListCall) {}
	for size := range int64(14) {
		if got := page(size, all); !slices.Equal(got, order) {
			t.Errorf("pages of %d: %v, want %v", size, got, order)
		}
	}
	box.Read(ctx, order[0])
	box.Trash(ctx, order[1])
	box.Spam(ctx, order[2])
	box.Delete(ctx, order[3])
	box.Archive(ctx, order[4])
	labels := func(ids ...string) func(*gmail.UsersMessagesListCall) {
		return func(c *gmail.UsersMessagesListCall) { c.LabelIds(ids...) }
	}
	for name, test := range map[string]struct {
		call func(*gmail.UsersMessagesListCall)
		want []string
	}{
		"all":              {all, slices.Concat(order[:1], order[4:])},
		"spam and trash":   {func(c *gmail.UsersMessagesListCall) { c.IncludeSpamTrash(true) }, slices.Concat(order[:3], order[4:])},
		"unread and inbox": {labels("UNREAD", "INBOX"), order[5:]},
		"unread":           {labels("UNREAD"), order[4:]},
		"trash":            {labels("TRASH"), order[1:2]},
		"nothing":          {labels("STARRED"), nil},
	} {
		if got := page(3, test.call); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	// The record of history, in pages of every size, is the same; ids grow, with gaps.
	records := func(size int64) (got []uint64) {
		err := users.History.List("me").StartHistoryId(2).MaxResults(size).Pages(ctx, func(p *gmail.ListHistoryResponse) error {
			for _, h := range p.History {
				got = append(got, h.Id)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := records(500)
	if len(want) != 17 || !slices.IsSorted(want) || want[16]-want[0] == 16 {
		t.Errorf("records %v", want)
	}
	for size := int64(1); size < 18; size++ {
		if got := records(size); !slices.Equal(got, want) {
			t.Errorf("history in pages of %d: %v, want %v", size, got, want)
		}
	}
	deleted := must[*gmail.ListHistoryResponse](t)(users.History.List("me").StartHistoryId(2).HistoryTypes("messageDeleted", "labelAdded").LabelId("TRASH").Do())
	if got := describe(deleted.History, map[string]string{order[1]: "x"}); !slices.Equal(got, []string{"+ x [TRASH] [UNREAD TRASH]"}) {
		t.Errorf("filtered: %v", got)
	}
}

func TestNotifications(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t), t.Context()
	box := w.box(t, "ann@example.com")
	users := w.client(t, "refresh-ann@example.com")
	deliver := func(labels ...string) int {
		t.Helper()
		if _, err := box.Deliver(ctx, gmailsim.Mail{Labels: labels}); err != nil {
			t.Fatal(err)
		}
		return len(w.notices())
	}
	watch := func(r gmail.WatchRequest) {
		t.Helper()
		r.TopicName = topic
		must[*gmail.WatchResponse](t)(users.Watch("me", &r).Do())
		w.notices()
	}
	expect := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d notifications, want %d", what, got, want)
		}
	}
	expect("no watch", deliver(), 0)
	if err := box.Notify(ctx, 0); err == nil {
		t.Error("notified without a watch")
	}
	watch(gmail.WatchRequest{})
	expect("watched", deliver(), 1)
	box.LimitNotifications(time.Second)
	expect("at once after another", deliver(), 0)
	w.pass(time.Second)
	expect("a second later", deliver(), 1)
	box.LimitNotifications(0)
	box.LoseNotifications(2)
	expect("lost", deliver()+deliver(), 0)
	expect("found again", deliver(), 1)
	watch(gmail.WatchRequest{LabelIds: []string{"SENT"}})
	expect("of another label", deliver(), 0)
	expect("of that label", deliver("SENT"), 1)
	watch(gmail.WatchRequest{LabelIds: []string{"SENT"}, LabelFilterBehavior: "exclude"})
	expect("all but that label", deliver()+deliver("SENT"), 1)
	watch(gmail.WatchRequest{})
	box.Notify(ctx, 9007199254740993)
	if got := w.notices(); len(got) != 1 || !strings.HasSuffix(got[0], `"historyId":9007199254740993}`) {
		t.Errorf("notified %v", got)
	}
	w.fail = errors.New("no topic")
	id, err := box.Deliver(ctx, gmailsim.Mail{})
	if !errors.Is(err, gmailsim.ErrNotPublished) || !errors.Is(err, w.fail) || id == "" {
		t.Errorf("failed publish: %q, %v", id, err)
	}
	if _, err := users.Watch("me", &gmail.WatchRequest{TopicName: topic}).Do(); err == nil {
		t.Error("watched a topic that takes nothing")
	}
	w.fail = nil
	watch(gmail.WatchRequest{})
	w.pass(7 * 24 * time.Hour)
	expect("lapsed", deliver(), 0)
	if lost := w.Stats().Lost; lost != 3 {
		t.Errorf("%d lost, want 3", lost)
	}
}

func TestLag(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t), t.Context()
	box := w.box(t, "ann@example.com")
	users := w.client(t, "refresh-ann@example.com")
	start := box.HistoryID()
	a := must[string](t)(box.Deliver(ctx, gmailsim.Mail{}))
	first := box.HistoryID()
	b := must[string](t)(box.Deliver(ctx, gmailsim.Mail{HiddenFor: 3 * time.Second}))
	box.Read(ctx, a)
	seen := func() string {
		h := must[*gmail.ListHistoryResponse](t)(users.History.List("me").StartHistoryId(start).Do())
		m := must[*gmail.ListMessagesResponse](t)(users.Messages.List("me").Do())
		at := map[uint64]string{start: "start", first: "first", box.HistoryID(): "now"}[h.HistoryId]
		return fmt.Sprint(len(h.History), " ", len(m.Messages), " ", at)
	}
	for _, step := range []struct {
		lag  int
		want string
	}{{0, "3 2 now"}, {2, "1 1 first"}, {9, "0 0 start"}, {0, "3 2 now"}} {
		box.LagIndex(step.lag, 0)
		if got := seen(); got != step.want {
			t.Errorf("lag of %d: %s, want %s", step.lag, got, step.want)
		}
	}
	box.LagIndex(2, time.Minute)
	if got := seen(); got != "1 1 first" {
		t.Errorf("lag for a minute: %s", got)
	}
	if _, err := users.Messages.Get("me", b).Do(); err == nil {
		t.Error("a hidden message was shown")
	}
	w.pass(time.Minute)
	if got := seen(); got != "3 2 now" {
		t.Errorf("a minute later: %s", got)
	}
	must[*gmail.Message](t)(users.Messages.Get("me", b).Do())
	box.LagLabels(true)
	if m := must[*gmail.Message](t)(users.Messages.Get("me", a).Do()); !slices.Contains(m.LabelIds, "UNREAD") || m.HistoryId != box.HistoryID() {
		t.Errorf("lagging labels: %v at %d", m.LabelIds, m.HistoryId)
	}
	box.RaiseHistory(1 << 60)
	if got := seen(); got != "3 2 now" || box.HistoryID() != 1<<60 {
		t.Errorf("raised: %s", got)
	}
}

func TestSameSeedSameIDs(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) string {
		s := gmailsim.New(gmailsim.Config{Seed: seed})
		box := must[*gmailsim.Mailbox](t)(s.AddMailbox("ann@example.com", "r"))
		id := must[string](t)(box.Deliver(t.Context(), gmailsim.Mail{}))
		return fmt.Sprint(id, " ", box.HistoryID())
	}
	if first, again, other := run(1), run(1), run(2); first != again || first == other {
		t.Errorf("%s, %s, %s", first, again, other)
	}
}

func TestControl(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	base := w.server.URL + "/sim"
	read := func(r *http.Response, err error) (int, map[string]any) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text := must[[]byte](t)(io.ReadAll(r.Body))
		var answer map[string]any
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return r.StatusCode, answer
	}
	form := func(path string, pairs ...string) (int, map[string]any) {
		t.Helper()
		values := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			values.Set(pairs[i], pairs[i+1])
		}
		return read(http.PostForm(base+path, values))
	}
	if code, answer := form("/mailboxes", "address", "ann@example.com", "refreshToken", "r"); code != 200 {
		t.Fatal(answer)
	}
	users := w.client(t, "r")
	code, answer := read(http.Post(base+"/mailboxes/ann@example.com/deliver", "application/json", strings.NewReader(`{"subject": "Hi", "labels": ["INBOX"]}`)))
	id, _ := answer["id"].(string)
	if m := must[*gmail.Message](t)(users.Messages.Get("me", id).Do()); code != 200 || m.LabelIds[0] != "INBOX" {
		t.Fatal(answer)
	}
	for _, operation := range []string{"unread", "read", "star", "unstar", "archive", "trash", "untrash", "spam", "unspam"} {
		if code, answer := form("/mailboxes/ann@example.com/"+operation, "id", id); code != 200 {
			t.Errorf("%s: %v", operation, answer)
		}
	}
	_, answer = form("/mailboxes/ann@example.com/draft", "subject", "Plan")
	draft, _ := answer["id"].(string)
	for _, test := range []struct {
		path   string
		pairs  []string
		status int
		says   string
	}{
		{"/mailboxes", []string{"address", "x"}, 400, "like ann@example.com"},
		{"/mailboxes/bob@example.com/read", []string{"id", id}, 400, "POST /sim/mailboxes adds one"},
		{"/mailboxes/ann@example.com/explode", nil, 400, "use one of archive, delete, deliver"},
		{"/mailboxes/ann@example.com/read", nil, 404, "GET /sim/mailboxes"},
		{"/mailboxes/ann@example.com/send", []string{"id", id}, 400, "is no draft"},
		{"/mailboxes/ann@example.com/send", []string{"id", draft}, 200, ""},
		{"/mailboxes/ann@example.com/modify", []string{"id", id, "add", "Label_1,STARRED"}, 200, ""},
		{"/mailboxes/ann@example.com/lag-index", []string{"records", "many"}, 400, "whole number"},
		{"/mailboxes/ann@example.com/lag-labels", []string{"on", "maybe"}, 400, "true or false"},
		{"/mailboxes/ann@example.com/expire-history", nil, 200, ""},
		{"/mailboxes/ann@example.com/notify", nil, 400, "no watch"},
		{"/faults", []string{"method", "watch", "status", "503", "times", "1"}, 200, ""},
		{"/faults", []string{"method", "nonsense", "drop", "true"}, 400, "use one of getProfile"},
		{"/faults", []string{"status", "abc"}, 400, "whole number"},
	} {
		code, answer := form(test.path, test.pairs...)
		if says, _ := answer["error"].(string); code != test.status || !strings.Contains(says, test.says) {
			t.Errorf("%s %v: %d %v", test.path, test.pairs, code, answer)
		}
	}
	_, answer = read(http.Get(base + "/mailboxes"))
	text, _ := json.Marshal(answer)
	if !strings.Contains(string(text), `"subject":"Hi"`) || !strings.Contains(string(text), "Label_1") {
		t.Errorf("mailboxes %s", text)
	}
	if _, answer = read(http.Get(base + "/faults")); len(answer["faults"].([]any)) != 1 {
		t.Errorf("faults %v", answer)
	}
	r, _ := http.NewRequest("DELETE", base+"/faults", nil)
	read(http.DefaultClient.Do(r))
	if _, answer = read(http.Get(base + "/faults")); len(answer["faults"].([]any)) != 0 {
		t.Errorf("faults %v", answer)
	}
	if _, answer = read(http.Get(base + "/stats")); answer["totalCalls"] != 2.0 {
		t.Errorf("stats %v", answer)
	}
	r, _ = http.NewRequest("POST", base+"/stats/reset", nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if forged := must[*http.Response](t)(http.DefaultClient.Do(r)); forged.StatusCode != 403 {
		t.Errorf("another site's page got %d", forged.StatusCode)
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t), t.Context()
	box := w.box(t, "ann@example.com")
	users := w.client(t, "refresh-ann@example.com")
	must[*gmail.WatchResponse](t)(users.Watch("me", &gmail.WatchRequest{TopicName: topic}).Do())
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 25 {
				id, _ := box.Deliver(ctx, gmailsim.Mail{})
				box.Read(ctx, id)
				box.Delete(ctx, id)
			}
		})
		wait.Go(func() {
			for range 10 {
				users.History.List("me").StartHistoryId(2).Do()
				users.Messages.List("me").Do()
				w.Stats()
				w.Calls()
				box.Snapshot()
			}
		})
	}
	wait.Wait()
	if got := len(w.notices()); got != 301 || len(box.Snapshot()) != 0 {
		t.Errorf("%d notifications, want 301", got)
	}
}

// TestLargeMailbox walks through a mailbox that would be slow if a page cost more than it shows.
func TestLargeMailbox(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a second or two with -race")
	}
	const messages = 100_000
	s := gmailsim.New(gmailsim.Config{})
	box := must[*gmailsim.Mailbox](t)(s.AddMailbox("ann@example.com", "r"))
	for range messages {
		if _, err := box.Deliver(t.Context(), gmailsim.Mail{Subject: "n"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, old := range box.Snapshot()[:3] { // the last that a listing comes to
		box.Star(t.Context(), old.ID)
	}
	ask := func(r *http.Request, into any) {
		t.Helper()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil || w.Code != 200 {
			t.Fatalf("%d %v", w.Code, err)
		}
	}
	r := httptest.NewRequest("POST", "/token", strings.NewReader("grant_type=refresh_token&refresh_token=r"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var token struct {
		AccessToken string `json:"access_token"`
	}
	ask(r, &token)
	for path, want := range map[string]int{
		"messages?maxResults=500":                                       messages,
		"messages?maxResults=1&labelIds=STARRED":                        3,
		"history?startHistoryId=2&maxResults=500":                       messages + 3,
		"history?startHistoryId=2&historyTypes=labelAdded&maxResults=1": 3,
	} {
		total := 0
		for next := ""; ; {
			r := httptest.NewRequest("GET", "/gmail/v1/users/me/"+path+"&pageToken="+next, nil)
			r.Header.Set("Authorization", "Bearer "+token.AccessToken)
			var page struct {
				Messages, History []struct{}
				NextPageToken     string
			}
			ask(r, &page)
			total += len(page.Messages) + len(page.History)
			if next = page.NextPageToken; next == "" {
				break
			}
		}
		if total != want {
			t.Errorf("%s listed %d, want %d", path, total, want)
		}
	}
}
