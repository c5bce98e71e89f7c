package app_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/mail"
	"mailyard.internal/mailyard/shared/ticket"
)

// A browser is a person's: it keeps cookies, and shows each step.
type browser struct {
	t      *testing.T
	client *http.Client

	mu   sync.Mutex
	seen []string // every page of Connect's, and every place it was sent to by it
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t: t, client: &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// A shown is what a browser got.
type shown struct {
	status int
	to     string
	page   string
	header http.Header
}

func (b *browser) open(link string) shown {
	b.t.Helper()
	response, err := b.client.Get(link)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	s := shown{response.StatusCode, response.Header.Get("Location"), string(page), response.Header}
	if strings.Contains(link, "/Connect") { // in Google's pages it is escaped
		b.mu.Lock()
		b.seen = append(b.seen, s.page, s.to)
		b.mu.Unlock()
	}
	return s
}

// consent opens a link and answers on Google's page; it returns where Google sends the person.
func (b *browser) consent(link, address, answer string) string {
	b.t.Helper()
	begun := b.open(link)
	if begun.status != http.StatusSeeOther {
		b.t.Fatalf("the link answered %d: %s", begun.status, begun.page)
	}
	back := b.open(begun.to + "&" + url.Values{"account": {address}, "answer": {answer}}.Encode())
	if back.status != http.StatusFound {
		b.t.Fatalf("the consent page answered %d: %s", back.status, back.page)
	}
	return back.to
}

func linkFor(t *testing.T, y *apptest.Yard, owner, returnTo string) string {
	t.Helper()
	link, err := y.App.ConnectLink(ticket.Ticket{Owner: owner, ReturnTo: returnTo, ExpiresAt: y.Clock.Now().Add(15 * time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func accountsOf(t *testing.T, y *apptest.Yard) []mail.Account {
	t.Helper()
	accounts, err := y.DB.Accounts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return accounts
}

// nothingLinked fails the test if there is an account or a credential.
func nothingLinked(t *testing.T, y *apptest.Yard, why string) {
	t.Helper()
	if accounts := accountsOf(t, y); len(accounts) > 0 {
		t.Errorf("%s: linked %+v", why, accounts)
	}
	if docs := documents(t, y.Project, "credentials"); len(docs) > 0 {
		t.Errorf("%s: left credentials", why)
	}
}

func (s shown) check(t *testing.T, status int, word string) {
	t.Helper()
	if s.status != status || !strings.Contains(s.page, word) {
		t.Errorf("answered %d, want %d and %q: %s", s.status, status, word, s.page)
	}
}

// From the link to a mirrored mailbox, which then follows what happens.
func TestConnect(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	y.Start()
	box := addMailbox(t, y, "kim@example.com", "refresh")
	deliverMany(t, box, 3)
	b := newBrowser(t)
	back := b.consent(linkFor(t, y, "u-17", ""), "kim@example.com", "allow")
	done := b.open(back)
	done.check(t, 200, "Your mailbox is linked")
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
		"Content-Security-Policy": "default-src 'none'", "Content-Type": "text/html; charset=utf-8",
	} {
		if got := done.header.Get(name); !strings.HasPrefix(got, want) {
			t.Errorf("%s is %q", name, got)
		}
	}
	account := y.Account(mail.AccountID("u-17", "kim@example.com"))
	if account.Status != mail.StatusActive || account.Owner != "u-17" || account.Email != "kim@example.com" || account.HistoryID == 0 {
		t.Errorf("linked %+v", account)
	}
	if topic, _ := box.Watch(); topic == "" {
		t.Error("the mailbox is not watched")
	}
	y.Settle()
	y.AssertMirror(account.ID, box)
	deliverMany(t, box, 2)
	y.Settle()
	y.AssertMirror(account.ID, box)

	// Linked again, by another link: the same account, its cursor kept, and resynced.
	cursor := y.Account(account.ID).HistoryID
	b.open(b.consent(linkFor(t, y, "u-17", ""), "kim@example.com", "allow")).check(t, 200, "is linked")
	y.Settle()
	if again := accountsOf(t, y); len(again) != 1 || again[0].HistoryID < cursor {
		t.Errorf("linked again: %+v", again)
	}
	if n := len(documents(t, y.Project, "accounts/"+account.ID+"/resyncs")); n != 2 {
		t.Errorf("%d resyncs, want one of each link", n)
	}
	y.AssertMirror(account.ID, box)
}

// A person goes back to the app, and to no other place.
func TestConnectReturns(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	addMailbox(t, y, "kim@example.com", "refresh")
	b := newBrowser(t)
	const home = "https://app.example.com/settings?tab=mail"
	declined := b.open(b.consent(linkFor(t, y, "u-17", home), "kim@example.com", "deny"))
	if declined.status != http.StatusSeeOther || declined.to != "https://app.example.com/settings?mailyard=declined&tab=mail" {
		t.Errorf("after a no: %d to %s", declined.status, declined.to)
	}
	nothingLinked(t, y, "declined")
	linked := b.open(b.consent(linkFor(t, y, "u-17", home), "kim@example.com", "allow"))
	id := mail.AccountID("u-17", "kim@example.com")
	if linked.status != http.StatusSeeOther || linked.to != "https://app.example.com/settings?mailyard=linked&mailyard_account="+id+"&tab=mail" {
		t.Errorf("after a yes: %d to %s", linked.status, linked.to)
	}
	for _, elsewhere := range []string{
		"https://evil.example.com/", "http://app.example.com/", "https://app.example.com.evil.com/", "https://app.example.com:444/",
		"https://user@app.example.com/", "javascript:alert(1)", "//app.example.com/", "https://app.example.com\\@evil.com/",
	} {
		if _, err := y.App.ConnectLink(ticket.Ticket{Owner: "u", ReturnTo: elsewhere, ExpiresAt: y.Clock.Now().Add(time.Minute)}); err == nil {
			t.Errorf("a link was made that returns to %s", elsewhere)
		}
		link := forge(t, y, jwt.MapClaims{"return_to": elsewhere})
		b.open(link).check(t, 403, "not allowed")
	}
}

// forge signs a ticket with the right key, its claims changed.
func forge(t *testing.T, y *apptest.Yard, claims jwt.MapClaims) string {
	t.Helper()
	whole := jwt.MapClaims{"aud": "mailyard-connect", "sub": "u-17", "jti": "n", "exp": y.Clock.Now().Add(time.Minute).Unix()}
	for name, value := range claims {
		whole[name] = value
	}
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, whole).SignedString([]byte(apptest.ConnectKey))
	if err != nil {
		t.Fatal(err)
	}
	return y.Functions.URL + "/Connect?ticket=" + url.QueryEscape(text)
}

func TestConnectRefusesTickets(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	addMailbox(t, y, "kim@example.com", "refresh")
	b := newBrowser(t)
	good := linkFor(t, y, "u-17", "")
	parts := strings.Split(good, ".")
	b.open(y.Functions.URL+"/Connect").check(t, 400, "not complete")
	b.open(y.Functions.URL+"/Connect?ticket=hello").check(t, 403, "not valid")
	b.open(strings.Join(parts[:len(parts)-1], ".")).check(t, 403, "not valid")
	b.open(good[:len(good)-4]+"AAAA").check(t, 403, "not valid")
	b.open(forge(t, y, jwt.MapClaims{"aud": "mailyard-unsubscribe"})).check(t, 403, "not valid")
	b.open(forge(t, y, jwt.MapClaims{"exp": y.Clock.Now().Add(-time.Second).Unix()})).check(t, 410, "expired")
	nothingLinked(t, y, "bad tickets")
	if docs := documents(t, y.Project, "connects"); len(docs) > 0 {
		t.Errorf("bad tickets left %d ways", len(docs))
	}

	// A ticket links once, also where it was opened twice before.
	first, second := b.consent(good, "kim@example.com", "allow"), b.consent(good, "kim@example.com", "allow")
	b.open(first).check(t, 200, "is linked")
	b.open(second).check(t, 410, "has been used")
	b.open(good).check(t, 410, "has been used")
	if n := y.Gmail.Stats().Calls["watch"]; n != 1 {
		t.Errorf("the mailbox was watched %d times", n)
	}

	response, err := http.Post(good, "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a POST answered %d", response.StatusCode)
	}
}

func TestConnectRefusesStates(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	addMailbox(t, y, "kim@example.com", "refresh")
	addMailbox(t, y, "eve@example.com", "refresh-eve")
	kim, eve := newBrowser(t), newBrowser(t)

	kim.open(y.Functions.URL+"/Connect?code=c&state=made-up").check(t, 403, "was not asked for")
	back := kim.consent(linkFor(t, y, "u-17", ""), "kim@example.com", "allow")
	eve.open(back).check(t, 403, "another browser")
	// Eve's own cookies and code don't help with Kim's state.
	eves, err := url.Parse(eve.consent(linkFor(t, y, "u-eve", ""), "eve@example.com", "allow"))
	if err != nil {
		t.Fatal(err)
	}
	kims, err := url.Parse(back)
	if err != nil {
		t.Fatal(err)
	}
	mixed := y.Functions.URL + "/Connect?" + url.Values{"state": {kims.Query().Get("state")}, "code": {eves.Query().Get("code")}}.Encode()
	eve.open(mixed).check(t, 403, "another browser")
	nothingLinked(t, y, "another browser")
	// Eve's code put into Kim's browser: PKCE refuses it, and Kim's state is used up.
	kim.open(mixed).check(t, 410, "no longer knows")
	kim.open(back).check(t, 409, "done already")
	nothingLinked(t, y, "another's code")

	late := kim.consent(linkFor(t, y, "u-17", ""), "kim@example.com", "allow")
	y.Clock.Advance(16 * time.Minute)
	kim.open(late).check(t, 410, "took too long")
	nothingLinked(t, y, "late")

	// The ticket is not spent by what linked nothing.
	link := linkFor(t, y, "u-17", "")
	kim.open(kim.consent(link, "kim@example.com", "deny")).check(t, 200, "You did not allow it")
	kim.open(kim.consent(link, "kim@example.com", "allow_nothing")).check(t, 403, "left out a permission")
	box, _ := y.Gmail.Mailbox("kim@example.com")
	box.WithholdRefreshTokens(true)
	kim.open(kim.consent(link, "kim@example.com", "allow")).check(t, 502, "for an hour only")
	box.WithholdRefreshTokens(false)
	fault, err := y.Gmail.AddFault(gmailsim.Fault{Method: "watch", Status: 503})
	if err != nil {
		t.Fatal(err)
	}
	kim.open(kim.consent(link, "kim@example.com", "allow")).check(t, 503, "Something went wrong")
	nothingLinked(t, y, "watch failed")
	y.Gmail.RemoveFault(fault)
	done := kim.consent(link, "kim@example.com", "allow")
	kim.open(done).check(t, 200, "is linked")
	kim.open(done).check(t, 409, "done already")
	if accounts := accountsOf(t, y); len(accounts) != 1 || accounts[0].Owner != "u-17" {
		t.Errorf("linked %+v", accounts)
	}
}

// Two callbacks at once, of one state and of two, make one account.
func TestTwoCallbacksAtOnce(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	y.Start()
	box := addMailbox(t, y, "kim@example.com", "refresh")
	deliverMany(t, box, 2)
	b := newBrowser(t)
	same := b.consent(linkFor(t, y, "u-17", ""), "kim@example.com", "allow")
	links := []string{same, same, same, b.consent(linkFor(t, y, "u-17", ""), "kim@example.com", "allow")}
	answers := make([]shown, len(links))
	var wait sync.WaitGroup
	for i, link := range links {
		wait.Go(func() { answers[i] = b.open(link) })
	}
	wait.Wait()
	linked := 0
	for _, a := range answers[:3] {
		if a.status == 200 {
			linked++
		} else {
			a.check(t, 409, "done already")
		}
	}
	if linked != 1 {
		t.Errorf("one state was good for %d callbacks", linked)
	}
	answers[3].check(t, 200, "is linked")
	if accounts := accountsOf(t, y); len(accounts) != 1 || len(documents(t, y.Project, "credentials")) != 1 {
		t.Errorf("linked %+v", accounts)
	}
	y.Settle()
	y.AssertMirror(mail.AccountID("u-17", "kim@example.com"), box)
}
