package console

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/page"
)

const (
	// showWithin is how long a page may take: what it asks of Firestore has shorter limits of its own.
	showWithin = 20 * time.Second
	maxForm    = 64 << 10
)

//go:embed *.html parts/*.html
var files embed.FS

// Parsed on first use: every function is in one program, and only this one has these pages.
var templates = sync.OnceValue(func() map[string]*template.Template {
	parsed, err := page.Templates(files)
	if err != nil {
		panic(err) // they are part of the program, and a test shows each
	}
	return parsed
})

// A view is what one page shows.
type view struct {
	template string
	status   int // 0 is 200
	title    string
	summary  string
	every    int // seconds until it is asked for again; 0 is never
	content  any
	goTo     string // where the browser goes instead
}

// A refusal is an answer that is not what was asked for, with what to do.
type refusal struct {
	status            int
	title, text, next string
}

func (r *refusal) Error() string { return r.title + ": " + r.text }

func notFound(title, next string) error {
	return &refusal{http.StatusNotFound, title, "It may never have been, or it is no longer kept: what is resolved is kept for 7 days.", next}
}

// pages are those that are shown, by their name in the query.
var pages = map[string]func(*Console, context.Context, url.Values) (view, error){
	"overview":   (*Console).overview,
	"mailboxes":  (*Console).mailboxes,
	"groups":     (*Console).groups,
	"letters":    (*Console).letters,
	"letter":     (*Console).letter,
	"plan":       (*Console).plan,
	"operations": (*Console).operations,
	"operation":  (*Console).operation,
}

// ServeHTTP answers one request; the path does not matter.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := c.Now()
	visit := Visit{Page: pageOf(r), Who: who(r)}
	v, err := c.answer(w, r, &visit)
	if err != nil {
		v = refused(err)
		var r *refusal
		if !errors.As(err, &r) {
			visit.Err = err
		}
	}
	visit.Status = max(v.status, http.StatusOK)
	if v.goTo != "" {
		visit.Status = http.StatusSeeOther
		page.See(w, v.goTo)
	} else if err := c.write(w, visit, v); err != nil {
		visit.Status, visit.Err = http.StatusInternalServerError, err
	}
	if visit.Err != nil || r.Method == http.MethodPost {
		c.Report(r, visit, c.Now().Sub(began))
	}
}

func pageOf(r *http.Request) string {
	name := r.URL.Query().Get("page")
	switch _, known := pages[name]; {
	case name == "":
		return "overview"
	case !known:
		return "unknown"
	}
	return name
}

func (c *Console) answer(w http.ResponseWriter, r *http.Request, visit *Visit) (view, error) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		show, known := pages[visit.Page]
		if !known {
			return view{}, &refusal{http.StatusNotFound, "No such page", "The link is not one of this console's.", "Begin with the overview."}
		}
		ctx, cancel := context.WithTimeout(r.Context(), showWithin)
		defer cancel()
		return show(c, ctx, r.URL.Query())
	case http.MethodPost:
		if err := page.FromOurselves(r); err != nil {
			return view{}, &refusal{http.StatusForbidden, "Refused", "This was not sent from a page of this console, and nothing was changed.", "Open the letter here, and do it from its plan."}
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			return view{}, &refusal{http.StatusBadRequest, "The form cannot be read", "It is too long or broken, and nothing was changed.", "Go back and send it again."}
		}
		return c.act(r.Context(), r.PostForm, visit)
	}
	w.Header().Set("Allow", "GET, HEAD, POST")
	return view{}, &refusal{http.StatusMethodNotAllowed, "Not answered here", "Only GET and POST are.", "Begin with the overview."}
}

// troubleContent says what is wrong, and what a person can do.
type troubleContent struct{ Text, Next, Detail string }

func refused(err error) view {
	var r *refusal
	if errors.As(err, &r) {
		return view{template: "trouble.html", status: r.status, title: r.title, content: troubleContent{Text: r.text, Next: r.next}}
	}
	text := "Something that this page needs did not answer."
	if fault.Is(err, fault.FirestoreUnavailable) {
		text = "Firestore did not answer."
	}
	return view{template: "trouble.html", status: http.StatusServiceUnavailable, title: "Not to be shown now", content: troubleContent{
		Text: text, Next: "Try again in a moment; the log of Console says more.", Detail: string(fault.CodeOf(err)) + ": " + fault.Text(err),
	}}
}

var nav = []struct {
	text, page string
	under      []string
}{
	{"Overview", "overview", nil},
	{"Mailboxes", "mailboxes", nil},
	{"Letters", "groups", []string{"letters", "letter", "plan"}},
	{"Operations", "operations", []string{"operation"}},
}

func (c *Console) write(w http.ResponseWriter, visit Visit, v view) error {
	f := page.Frame{Title: v.title, Place: c.Project, Summary: v.summary, Every: v.every, At: c.Now(), Content: v.content}
	for _, n := range nav {
		here := n.page == visit.Page
		for _, under := range n.under {
			here = here || under == visit.Page
		}
		f.Nav = append(f.Nav, page.Link{Text: n.text, To: link(n.page), Here: here})
	}
	return page.Write(w, max(v.status, http.StatusOK), templates()[v.template], f)
}

// who is the person for the record, as IAP says it. Without IAP the header is the caller's own word, who
// has been let in by IAM: a record of who is trusted, and no proof.
func who(r *http.Request) string {
	name := strings.TrimPrefix(r.Header.Get("X-Goog-Authenticated-User-Email"), "accounts.google.com:")
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(name, ""))
	if name = fault.Cut(strings.TrimSpace(name), 200); name == "" {
		return "console"
	}
	return name
}

// counted is a number with its noun.
func counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
