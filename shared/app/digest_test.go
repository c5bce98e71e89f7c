package app_test

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	netmail "net/mail"
	"strings"
	"testing"
	"time"

	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/mail"
	"mailyard.internal/mailyard/shared/mailing"
	"mailyard.internal/mailyard/shared/ticket"
)

// digestYard is a Yard whose digests can be sent, with one mailbox to tell about.
func digestYard(t *testing.T) (*apptest.Yard, mail.Account) {
	t.Helper()
	y := apptest.New(t, apptest.Options{})
	y.LinkDigestSender()
	return y, y.Link(addMailbox(t, y, "kim@example.com", "refresh"), "refresh", 1)
}

// mirrored puts a message into the mirror as a fetch would.
func mirrored(t *testing.T, y *apptest.Yard, account, id string, unread bool, s mail.Summary) {
	t.Helper()
	become := mail.Apply(mail.Message{ID: id}, mail.Fetched{
		HistoryID: 1, Flags: map[string]bool{"unread": unread, "trashed": false}, Summary: s,
	})
	if saved, err := y.DB.SaveMessage(t.Context(), account, mail.Message{ID: id}, become); err != nil || !saved {
		t.Fatal(saved, err)
	}
}

// noon is a moment of today by which nothing else in a test has happened tomorrow.
func noon(y *apptest.Yard) time.Time { return y.Clock.Now().UTC() }

func TestDigestsOfADay(t *testing.T) {
	t.Parallel()
	y, account := digestYard(t)
	at := noon(y)
	today, tomorrow := at.Weekday(), at.AddDate(0, 0, 1).Weekday()
	mirrored(t, y, account.ID, "m1", true, mail.Summary{From: "Ann <ann@example.com>", Subject: "lunch", Date: at.Add(-time.Hour)})
	mirrored(t, y, account.ID, "m2", false, mail.Summary{From: "Ann <ann@example.com>", Subject: "lunch again", Date: at.Add(-2 * time.Hour)})
	mirrored(t, y, account.ID, "m3", true, mail.Summary{From: "Bob <bob@example.com>", Subject: "old", Date: at.Add(-90 * time.Hour)})
	subscribe := func(email, frequency, weekday string) mailing.Subscriber {
		return y.Subscribe(mailing.Subscription{Account: account.ID, Email: email, Frequency: frequency, Weekday: weekday, Timezone: "Asia/Tokyo"})
	}
	daily := subscribe("daily@example.com", "daily", "")
	weekly := subscribe("weekly@example.com", "weekly", mailing.WeekdayName(today))
	other := subscribe("other@example.com", "weekly", mailing.WeekdayName(tomorrow))
	gone := y.Subscribe(mailing.Subscription{Account: "nobody", Email: "gone@example.com"})
	left := subscribe("left@example.com", "daily", "")
	if _, err := y.DB.ChangeSubscriber(t.Context(), left.ID, func(s mailing.Subscriber) (mailing.Subscriber, bool) {
		s.DeletedAt = y.Clock.Now()
		return s, true
	}); err != nil {
		t.Fatal(err)
	}
	late := mailing.Subscriber{}

	y.Start()
	day := y.Digest(at)
	late = subscribe("late@example.com", "daily", "")
	if _, err := y.DB.ChangeSubscriber(t.Context(), late.ID, func(s mailing.Subscriber) (mailing.Subscriber, bool) {
		s.CreatedAt = y.Clock.Now().Add(time.Second)
		return s, true
	}); err != nil {
		t.Fatal(err)
	}
	run := y.FinishRun(day)
	if wrong := apptest.Accounted(run); wrong != "" {
		t.Error(wrong)
	}
	if c := run.Counts; c.Daily != 1 || c.Weekly != 1 || c.Sent != 2 || c.Failed+c.Processing+c.Left+c.Busy != 0 || run.FinishedAt.IsZero() {
		t.Errorf("the report says %+v", run)
	}
	if got := y.SentTo(); len(got) != 2 || got["daily@example.com"] != 1 || got["weekly@example.com"] != 1 {
		t.Errorf("mails went to %v", got)
	}
	for _, s := range []struct {
		mailing.Subscriber
		sequence int64
	}{{daily, 2}, {weekly, 2}, {other, 1}, {gone, 1}, {left, 1}, {late, 1}} {
		if now := y.Subscriber(s.ID); now.Sequence != s.sequence {
			t.Errorf("subscriber %s is at %d, want %d", s.Email, now.Sequence, s.sequence)
		}
	}
	m := y.Mailing(daily.ID, 1)
	if m.Status != mailing.Done || m.SentAt.IsZero() || m.Awaits != "" || m.Payload.Unread != 2 || m.Payload.New != 2 || m.Payload.Senders[0].Count != 2 {
		t.Errorf("the mailing is %+v", m)
	}
	parsed := parseDigest(t, sentTo(t, y, "daily@example.com"))
	for _, want := range []string{"2 new messages", "2 unread messages", "lunch again", "JST"} {
		if !strings.Contains(parsed.text, want) || !strings.Contains(parsed.html, want) {
			t.Errorf("%q is not in the mail: %s %s", want, parsed.text, parsed.html)
		}
	}
	if strings.Contains(y.Log.String(), "example.com") {
		t.Errorf("an address is in the log: %s", y.Log)
	}

	// The schedule's retry, also after midnight, is the same day; and the next day makes one more each.
	y.Clock.Advance(12 * time.Hour)
	y.Digest(at)
	y.Settle()
	if got := y.SentTo(); len(got) != 2 || got["daily@example.com"] != 1 {
		t.Errorf("after a second start of the day mails went to %v", got)
	}
	y.Clock.Advance(12 * time.Hour)
	if wrong := apptest.Accounted(y.FinishRun(y.Digest(at.AddDate(0, 0, 1)))); wrong != "" {
		t.Error(wrong)
	}
	if got := y.SentTo(); got["daily@example.com"] != 2 || got["weekly@example.com"] != 1 || got["other@example.com"] != 1 || got["late@example.com"] != 1 {
		t.Errorf("after the next day mails went to %v", got)
	}
}

// A day that no schedule called for is made up for once.
func TestMissedRunIsCaughtUpOnce(t *testing.T) {
	t.Parallel()
	y, account := digestYard(t)
	at := noon(y)
	y.Subscribe(mailing.Subscription{Account: account.ID, Email: "daily@example.com"})
	y.Subscribe(mailing.Subscription{Account: account.ID, Email: "weekly@example.com", Frequency: "weekly", Weekday: mailing.WeekdayName(at.AddDate(0, 0, 2).Weekday())})
	y.Start()
	y.FinishRun(y.Digest(at))
	for _, days := range []int{4, 5} { // nobody called on the second day, which is the weekly one's
		y.Clock.Advance(at.AddDate(0, 0, days).Sub(y.Clock.Now()))
		y.FinishRun(y.Digest(at.AddDate(0, 0, days)))
	}
	if got := y.SentTo(); got["daily@example.com"] != 3 || got["weekly@example.com"] != 1 {
		t.Errorf("mails went to %v", got)
	}
	// A call for a day before the newest run's is no new run.
	y.Digest(at.AddDate(0, 0, 4))
	y.Settle()
	if _, found, err := y.DB.Run(t.Context(), mailing.DayOf(at.AddDate(0, 0, 2), time.UTC)); err != nil || found {
		t.Errorf("a run of a day that nobody called for: %v, %v", found, err)
	}
}

// sentTo returns the one mail that was sent to an address.
func sentTo(t *testing.T, y *apptest.Yard, address string) []byte {
	t.Helper()
	var found []gmailsim.SentMail
	for _, m := range y.Gmail.Sent() {
		if len(m.To) == 1 && m.To[0] == address {
			found = append(found, m)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d mails were sent to %s", len(found), address)
	}
	return found[0].Raw
}

type parsedDigest struct {
	header     netmail.Header
	text, html string
}

// parseDigest reads a mail as any mail program does, and fails the test where it is not well formed.
func parseDigest(t *testing.T, raw []byte) parsedDigest {
	t.Helper()
	m, err := netmail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/alternative" {
		t.Fatal(kind, err)
	}
	parsed := parsedDigest{header: m.Header}
	for parts := multipart.NewReader(m.Body, params["boundary"]); ; {
		part, err := parts.NextPart() // undoes quoted-printable
		if err == io.EOF {
			return parsed
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(part)
		if err != nil {
			t.Fatal(err)
		}
		switch kind, _, _ := mime.ParseMediaType(part.Header.Get("Content-Type")); kind {
		case "text/plain":
			parsed.text = string(data)
		case "text/html":
			parsed.html = string(data)
		default:
			t.Fatalf("a part of type %s", kind)
		}
	}
}

// One click, a person's click and a program that only looks.
func TestUnsubscribe(t *testing.T) {
	t.Parallel()
	y, account := digestYard(t)
	s := y.Subscribe(mailing.Subscription{Account: account.ID, Email: "daily@example.com"})
	y.Start()
	y.FinishRun(y.Digest(noon(y)))
	header := parseDigest(t, sentTo(t, y, "daily@example.com")).header
	if got := header.Get("List-Unsubscribe-Post"); got != "List-Unsubscribe=One-Click" {
		t.Errorf("List-Unsubscribe-Post is %q", got)
	}
	link := strings.Trim(header.Get("List-Unsubscribe"), "<>")
	if !strings.HasPrefix(link, y.Functions.URL+"/Unsubscribe?token=") || strings.Contains(link, "example.com") {
		t.Fatalf("the link is %q", link)
	}
	visit := func(method, link, body string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, link, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		page, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(page)
	}
	wrong := link[:len(link)-6] + "AAAAAA"
	for _, c := range []struct {
		name, method, link string
		status             int
		says               string
		deleted            bool
	}{
		{"a program looks", http.MethodGet, link, 200, "Unsubscribe from digests?", false},
		{"another method", http.MethodPut, link, 405, "only GET and POST", false},
		{"a wrong token", http.MethodPost, wrong, 403, "This link is not valid", false},
		{"a wrong token, looked at", http.MethodGet, wrong, 403, "Nothing was changed", false},
		{"no token", http.MethodPost, y.Functions.URL + "/Unsubscribe", 403, "This link is not valid", false},
		{"one click", http.MethodPost, link, 200, "You are unsubscribed", true},
		{"one click more", http.MethodPost, link, 200, "You are unsubscribed", true},
	} {
		status, page := visit(c.method, c.link, "List-Unsubscribe=One-Click")
		if status != c.status || !strings.Contains(page, c.says) {
			t.Errorf("%s: %d %s", c.name, status, page)
		}
		if now := y.Subscriber(s.ID); now.Deleted() != c.deleted {
			t.Errorf("%s: deleted is %v", c.name, now.Deleted())
		}
		if strings.Contains(page, "token=") || strings.Contains(page, "example.com") {
			t.Errorf("%s: the page shows what it must not: %s", c.name, page)
		}
	}
	if log := y.Log.String(); strings.Contains(log, "token=") || strings.Contains(log, "eyJ") || strings.Contains(log, "daily@") {
		t.Errorf("the log has what it must not: %s", log)
	}
	y.Clock.Advance(24 * time.Hour)
	run := y.FinishRun(y.Digest(noon(y)))
	if run.Counts.Filtered != 1 || y.SentTo()["daily@example.com"] != 1 {
		t.Errorf("after unsubscribing: %+v, %v", run.Counts, y.SentTo())
	}
}

// The digests' sender alone is asked for the permission to send, and no other mailbox is linked so.
func TestConnectDigestSender(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	addMailbox(t, y, apptest.DigestSender, "refresh")
	addMailbox(t, y, "kim@example.com", "refresh-kim")
	link := func(sender bool) string {
		t.Helper()
		link, err := y.App.ConnectLink(ticket.Ticket{Owner: "u-17", Sender: sender, ExpiresAt: y.Clock.Now().Add(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		return link
	}
	const send = "gmail.send"
	if to := newBrowser(t).open(link(false)).to; strings.Contains(to, send) {
		t.Errorf("everybody is asked for the permission to send: %s", to)
	}
	if to := newBrowser(t).open(link(true)).to; !strings.Contains(to, send) {
		t.Errorf("the sender is not asked for the permission to send: %s", to)
	}
	b := newBrowser(t)
	b.open(b.consent(link(true), "kim@example.com", "allow")).check(t, 403, "This is another mailbox")
	nothingLinked(t, y, "another mailbox than the sender's")
	b = newBrowser(t)
	b.open(b.consent(link(true), apptest.DigestSender, "allow")).check(t, 200, "Your mailbox is linked")
	y.Account(mail.AccountID("u-17", apptest.DigestSender))
}

// The day is that of the schedule's own time in the declared zone, however late the call comes.
func TestDigestDay(t *testing.T) {
	t.Parallel()
	const name = "Pacific/Kiritimati" // 14 hours ahead of UTC
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	y := apptest.New(t, apptest.Options{Env: map[string]string{"MAILYARD_DIGEST_ZONE": name}})
	scheduled := y.Clock.Now()
	y.Clock.Advance(24 * time.Hour) // the first call failed, and its retry comes after midnight
	day, late := mailing.DayOf(scheduled, zone), mailing.DayOf(y.Clock.Now(), zone)
	there := func(day mailing.Day) bool {
		t.Helper()
		_, found, err := y.DB.Run(t.Context(), day)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	y.Digest(scheduled)
	if !there(day) || there(late) {
		t.Errorf("the retry of %s made the run of that day: %v, of %s: %v", day, there(day), late, there(late))
	}
	// A moment that cannot be is not believed.
	y.Digest(scheduled.AddDate(1, 0, 0))
	if !there(late) || there(mailing.DayOf(scheduled.AddDate(1, 0, 0), zone)) {
		t.Error("a schedule's time in a year was believed")
	}
}
