package mailbox

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"mailyard.internal/mailyard/shared/notice"
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
		if v.Way != "" { // it stays when the way has ended, to tell who comes twice from another
			set := cookie
			set.Name, set.Value, set.MaxAge = cookieName(v.Way), v.Secret, int(cookieLife.Seconds())
			http.SetCookie(w, &set)
		}
		report(r, v, c.Now().Sub(began))
		if v.To != "" {
			notice.SecureHeaders(w.Header(), cookie.Secure)
			// Not http.Redirect: its page would repeat the state.
			w.Header().Set("Location", v.To)
			w.WriteHeader(http.StatusSeeOther)
			return
		}
		n := notices[v.Outcome]
		n.About, n.Back = v.Account.Email, v.Back
		notice.Write(w, cookie.Secure, n)
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

const again = "Go back to where you got the link and ask for a new one."

// notices say what happened, and what the person can do.
var notices = map[VisitOutcome]notice.Notice{
	VisitLinked:     {Status: 200, Title: "Your mailbox is linked", Text: "Its mail is being read in now. That can take a while for a large mailbox.", Next: "You can close this page."},
	VisitDeclined:   {Status: 200, Title: "Your mailbox is not linked", Text: "You did not allow it, and nothing was changed.", Next: "If that was a mistake, open the link again."},
	NothingAsked:    {Status: 400, Title: "This link is not complete", Text: "A part of it is missing, perhaps because it was broken over two lines.", Next: "Copy the whole link, or ask for a new one."},
	TicketForged:    {Status: 403, Title: "This link is not valid", Text: "It was not made by the app it should be from, or a part of it is missing. Nothing was linked.", Next: again},
	TicketLate:      {Status: 410, Title: "This link has expired", Text: "A link is good for a short time only. Nothing was linked.", Next: again},
	TicketUsed:      {Status: 410, Title: "This link has been used", Text: "A mailbox has been linked with it, and it cannot link another.", Next: "If that was you, there is nothing left to do. If not, tell whoever runs the app."},
	ReturnForbidden: {Status: 403, Title: "This link leads to a place that is not allowed", Text: "Nothing was linked.", Next: "Tell whoever runs the app: the link returns to an address that is not among those allowed."},
	WayUnknown:      {Status: 403, Title: "This page was not asked for", Text: "Nothing here knows of it, or it was too long ago. Nothing was linked.", Next: "Open the link from the app again."},
	WayLate:         {Status: 410, Title: "That took too long", Text: "For safety the way to Google and back must not take longer than a quarter of an hour. Nothing was linked.", Next: "Open the link from the app again."},
	WayUsed:         {Status: 409, Title: "This has been done already", Text: "The page was opened a second time, and nothing more was done.", Next: "If your mailbox is not there in the app, open the link again."},
	OtherBrowser:    {Status: 403, Title: "You came back with another browser", Text: "The link must be opened and finished in the same browser, with cookies allowed. Nothing was linked.", Next: "Open the link from the app again, in one browser."},
	CodeLate:        {Status: 410, Title: "Google no longer knows of your consent", Text: "It was used already, or too long ago. Nothing was linked.", Next: "Open the link from the app again."},
	NotReadable:     {Status: 403, Title: "Your mailbox is not linked", Text: "You left out a permission that was asked for, and without it nothing can be done.", Next: "Open the link again and leave every permission ticked."},
	OtherMailbox:    {Status: 403, Title: "This is another mailbox", Text: "The link is for the mailbox that sends the digests, and you chose another one. Nothing was linked.", Next: "Open the link again and choose the mailbox that sends the digests."},
	NotLasting:      {Status: 502, Title: "Your mailbox is not linked", Text: "Google gave access for an hour only.", Next: "Remove the app under myaccount.google.com/permissions, then open the link again."},
	VisitFailed:     {Status: 503, Title: "Something went wrong", Text: "Your mailbox could not be linked. It is not your fault.", Next: "Open the link again in a few minutes. If it still fails, tell whoever runs the app."},
}
