// Package mailboxview is a page on the simulated Gmail, for who runs Mailyard on one machine: it shows the
// mailboxes as their owners would see them, and lets a person do what owners and senders do (deliver, read,
// trash, delete) and what only a bad day does (poison a message, so that Gmail fails to give it out).
//
// Nobody is asked who they are: serve it on a loopback address only. What acts is a POST, and is refused
// when it comes from another site's page.
package mailboxview

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/page"
)

//go:embed *.html
var files embed.FS

var templates = sync.OnceValue(func() map[string]*template.Template {
	parsed, err := page.Templates(files)
	if err != nil {
		panic(err) // they are part of the program, and a test shows each
	}
	return parsed
})

// A View serves the page. Link and Console come from the Mailyard that stands beside the simulation.
type View struct {
	Sim *gmailsim.Sim
	// Link links a mailbox, which is reached by that refresh token, to Mailyard.
	Link func(ctx context.Context, address, refreshToken string) error
	// Console is the URL of the operators' page.
	Console string
	Now     func() time.Time
}

// TokenOf is the refresh token of a mailbox that was added on the page.
func TokenOf(address string) string {
	return strings.ToLower(strings.TrimSpace(address)) + "-refresh-token"
}

// ServeHTTP shows a mailbox, the first or the one that the query names, or does what a form says.
func (v *View) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		v.show(w, r.URL.Query().Get("mailbox"), http.StatusOK, "")
	case http.MethodPost:
		err := page.FromOurselves(r)
		if err != nil {
			v.show(w, "", http.StatusForbidden, err.Error())
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
		if err := r.ParseForm(); err != nil {
			v.show(w, "", http.StatusBadRequest, "the form cannot be read")
			return
		}
		address := r.PostForm.Get("mailbox")
		if err := v.act(r.Context(), address, r.PostForm); err != nil {
			v.show(w, address, http.StatusBadRequest, err.Error())
			return
		}
		page.See(w, "?"+url.Values{"mailbox": {address}}.Encode())
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		http.Error(w, "only GET and POST are answered here", http.StatusMethodNotAllowed)
	}
}

// content is one mailbox, and what is wrong with Gmail.
type content struct {
	Trouble string
	Console string
	Address string // empty where there is no mailbox
	Watched bool
	Rows    []row
	Total   int
	Faults  []faultRow
}

type row struct {
	gmailsim.Listed
	Unread, Trashed bool
	Poison          string // how it fails; empty where it does not
}

type faultRow struct {
	ID   int
	Text string
}

// shown is how many messages one page shows, the newest.
const shown = 50

func (v *View) show(w http.ResponseWriter, address string, status int, trouble string) {
	c := content{Trouble: trouble, Console: v.Console}
	f := page.Frame{Title: "No mailbox yet", Place: "simulated Gmail", At: v.Now(), Every: 2, Nav: []page.Link{{Text: "Console", To: v.Console}}}
	box, found := v.Sim.Mailbox(address)
	for _, other := range v.Sim.Mailboxes() {
		if !found {
			box, found = other, true
		}
		f.Nav = append(f.Nav, page.Link{Text: other.Address(), To: "?" + url.Values{"mailbox": {other.Address()}}.Encode(), Here: other == box})
	}
	poisons := v.poisons()
	for id, fault := range v.Sim.Faults() {
		c.Faults = append(c.Faults, faultRow{id, wordsOf(fault)})
	}
	slices.SortFunc(c.Faults, func(a, b faultRow) int { return a.ID - b.ID })
	if found {
		c.Address, c.Watched = box.Address(), box.Watched()
		var listed []gmailsim.Listed
		listed, c.Total = box.Newest(shown)
		unread := 0
		for _, l := range listed {
			r := row{Listed: l, Unread: slices.Contains(l.Labels, "UNREAD"), Trashed: slices.Contains(l.Labels, "TRASH")}
			if fault, poisoned := v.Sim.Faults()[poisons[l.ID]]; poisoned {
				r.Poison = strconv.Itoa(fault.Status)
			}
			if r.Unread {
				unread++
			}
			c.Rows = append(c.Rows, r)
		}
		f.Title = c.Address
		f.Summary = fmt.Sprintf("%d messages, %d unread among the newest; history at %d; %d faults.", c.Total, unread, box.HistoryID(), len(c.Faults))
	}
	f.Content = c
	_ = page.Write(w, status, templates()["mailbox.html"], f) // it has answered that itself
}

// wordsOf says what a fault does.
func wordsOf(f gmailsim.Fault) string {
	what := "every call"
	if f.Method != "" {
		what = f.Method
	}
	if f.MessageID != "" {
		what += " of message " + f.MessageID
	}
	if f.Mailbox != "" {
		what += " of " + f.Mailbox
	}
	if f.Status != 0 {
		return fmt.Sprintf("%s answers %d", what, f.Status)
	}
	return what + " is late or gets no answer"
}

// poisons are the faults that spoil one message's fetch, by message.
func (v *View) poisons() map[string]int {
	found := map[string]int{}
	for id, f := range v.Sim.Faults() {
		if f.Method == fetch && f.MessageID != "" {
			found[f.MessageID] = id
		}
	}
	return found
}

// fetch is the call that a poisoned message fails.
const fetch = "messages.get"

// errNoMailbox says that a form names a mailbox that is not there.
var errNoMailbox = errors.New("there is no such mailbox; add it first")
