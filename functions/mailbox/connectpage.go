package mailbox

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// connectTimeout is below the platform's own, so that the person gets a page and not an error of Google's.
const connectTimeout = 50 * time.Second

// cookieLife is longer than a way's, so that who is late is told so.
const cookieLife = 4 * wayLife

// ConnectPage serves the visits of a connector, below publicURL: a link's /Connect?ticket=…, and Google's
// way back to /Connect. It tells each visit to report, which must not fail.
//
// Neither ticket, code, state nor token is on any page, nor in what report is told.
func ConnectPage(c *Connector, publicURL string, report func(r *http.Request, v Visit, took time.Duration)) http.HandlerFunc {
	base, err := url.Parse(publicURL)
	if err != nil {
		base = &url.URL{} // config has checked it
	}
	cookie := http.Cookie{Path: base.Path + "/Connect", HttpOnly: true, Secure: base.Scheme == "https", SameSite: http.SameSiteLaxMode}
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "only GET is answered here", http.StatusMethodNotAllowed)
			return
		}
		began := c.Now()
		// Who closes the browser now has consented all the same.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), connectTimeout)
		defer cancel()
		v := visit(ctx, c, r)
		secureHeaders(w.Header(), cookie.Secure)
		if v.Way != "" { // it stays when the way has ended, to tell who comes twice from another
			set := cookie
			set.Name, set.Value, set.MaxAge = cookieName(v.Way), v.Secret, int(cookieLife.Seconds())
			http.SetCookie(w, &set)
		}
		report(r, v, c.Now().Sub(began))
		if v.To != "" {
			// Not http.Redirect: its page would repeat the state.
			w.Header().Set("Location", v.To)
			w.WriteHeader(http.StatusSeeOther)
			return
		}
		p := pages[v.Outcome]
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(p.status)
		_ = connectTemplate().Execute(w, pageData{p, v.Account.Email, v.Back, hostOf(v.Back), connectStyle})
	}
}

func visit(ctx context.Context, c *Connector, r *http.Request) Visit {
	q := r.URL.Query()
	switch {
	case q.Get("state") != "":
		return c.Finish(ctx, Callback{State: q.Get("state"), Code: q.Get("code"), Refusal: q.Get("error"), Secret: func(way string) string {
			if cookie, err := r.Cookie(cookieName(way)); err == nil {
				return cookie.Value
			}
			return ""
		}})
	case q.Get("ticket") != "":
		return c.Begin(ctx, q.Get("ticket"))
	}
	return Visit{Outcome: NothingAsked}
}

// cookieName has a cookie for each way, so that two tabs don't take each other's.
func cookieName(way string) string { return "mailyard-connect-" + way[:min(12, len(way))] }

func hostOf(link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return ""
	}
	return u.Host
}

func secureHeaders(h http.Header, https bool) {
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Content-Security-Policy", contentPolicy)
	if https {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

var (
	//go:embed connect.html
	connectHTML string
	//go:embed connect.css
	connectCSS string

	// Parsed on first use: every function is in one program, and only this one has a page.
	connectTemplate = sync.OnceValue(func() *template.Template {
		return template.Must(template.New("connect").Parse(connectHTML)) // it is part of the program, and a test shows it
	})
	connectStyle  = template.CSS(strings.TrimSpace(connectCSS))
	contentPolicy = "default-src 'none'; style-src '" + hashOf(string(connectStyle)) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

func hashOf(style string) string {
	sum := sha256.Sum256([]byte(style))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// A page says what happened, and what the person can do.
type page struct {
	status            int
	Title, Text, Next string
}

type pageData struct {
	page
	Email, Back, Host string
	Style             template.CSS
}

const again = "Go back to where you got the link and ask for a new one."

var pages = map[VisitOutcome]page{
	VisitLinked:     {200, "Your mailbox is linked", "Its mail is being read in now. That can take a while for a large mailbox.", "You can close this page."},
	VisitDeclined:   {200, "Your mailbox is not linked", "You did not allow it, and nothing was changed.", "If that was a mistake, open the link again."},
	NothingAsked:    {400, "This link is not complete", "A part of it is missing, perhaps because it was broken over two lines.", "Copy the whole link, or ask for a new one."},
	TicketForged:    {403, "This link is not valid", "It was not made by the app it should be from, or a part of it is missing. Nothing was linked.", again},
	TicketLate:      {410, "This link has expired", "A link is good for a short time only. Nothing was linked.", again},
	TicketUsed:      {410, "This link has been used", "A mailbox has been linked with it, and it cannot link another.", "If that was you, there is nothing left to do. If not, tell whoever runs the app."},
	ReturnForbidden: {403, "This link leads to a place that is not allowed", "Nothing was linked.", "Tell whoever runs the app: the link returns to an address that is not among those allowed."},
	WayUnknown:      {403, "This page was not asked for", "Nothing here knows of it, or it was too long ago. Nothing was linked.", "Open the link from the app again."},
	WayLate:         {410, "That took too long", "For safety the way to Google and back must not take longer than a quarter of an hour. Nothing was linked.", "Open the link from the app again."},
	WayUsed:         {409, "This has been done already", "The page was opened a second time, and nothing more was done.", "If your mailbox is not there in the app, open the link again."},
	OtherBrowser:    {403, "You came back with another browser", "The link must be opened and finished in the same browser, with cookies allowed. Nothing was linked.", "Open the link from the app again, in one browser."},
	CodeLate:        {410, "Google no longer knows of your consent", "It was used already, or too long ago. Nothing was linked.", "Open the link from the app again."},
	NotReadable:     {403, "Your mailbox is not linked", "You left out a permission that was asked for, and without it nothing can be done.", "Open the link again and leave every permission ticked."},
	OtherMailbox:    {403, "This is another mailbox", "The link is for the mailbox that sends the digests, and you chose another one. Nothing was linked.", "Open the link again and choose the mailbox that sends the digests."},
	NotLasting:      {502, "Your mailbox is not linked", "Google gave access for an hour only.", "Remove the app under myaccount.google.com/permissions, then open the link again."},
	VisitFailed:     {503, "Something went wrong", "Your mailbox could not be linked. It is not your fault.", "Open the link again in a few minutes. If it still fails, tell whoever runs the app."},
}
