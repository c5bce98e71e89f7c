package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"mailyard.internal/mailyard/functions/console"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// hostile is what somebody may have got into the ledger who wants to get out of a page's text.
const hostile = `"'><script>alert(1)</script><img src=x onerror=alert(1)><a href="javascript:alert(1)">{{.}}</a> javascript:alert(1)`

// hostileWorld has hostile text wherever text can be.
func hostileWorld(t *testing.T) (w *world, queries []string) {
	t.Helper()
	w = newWorld(t)
	id := strings.ReplaceAll(hostile, "/", "\\")
	e := w.add(id, func(e *ledger.Entry) {
		e.Error, e.Code, e.Fingerprint, e.Revision, e.Trace = hostile, fault.Code(hostile), hostile, hostile, hostile
		e.Data, e.Attributes = []byte(hostile), map[string]string{hostile: hostile}
		e.AccountID, e.MessageID, e.Operation, e.EditedFrom, e.EditedTo = hostile, hostile, hostile, hostile, hostile
		e.Claim.Operation = hostile
		e.Runs = []ledger.Run{{At: noon, Error: hostile, Code: fault.Code(hostile), Revision: hostile, Operation: hostile}}
	})
	w.add("another", func(e *ledger.Entry) { e.Consumer, e.Topic, e.State = hostile, hostile, ledger.State(hostile) })
	w.mirrored = console.Mirrored{There: true, Flags: map[string]bool{hostile: true}, Guards: map[string]mail.HistoryID{hostile: 1}, Redrive: hostile}
	w.standings = []console.Standing{{
		Account: mail.Account{ID: hostile, Email: hostile, Owner: hostile, Status: mail.Status(hostile), HistoryID: 9}, Failures: 2,
		Resync: &mail.Resync{State: mail.ResyncState(hostile), Total: 3},
	}}
	w.operations[id] = ledger.OperationRecord{
		ID: id, Deed: ledger.Deed(hostile), Who: hostile, Reason: hostile, Filter: map[string]string{hostile: hostile},
		Counts: map[string]int{"letters": 1, hostile: 1}, Outcomes: map[string]string{hostile: hostile}, StartedAt: noon, FinishedAt: noon,
	}
	one := url.QueryEscape(e.ID)
	text := url.QueryEscape(hostile)
	return w, []string{
		"", "?page=mailboxes", "?page=groups", "?page=groups&state=" + text, "?page=letters", "?page=letters&fingerprint=" + text,
		"?page=letters&code=" + text + "&account=" + text + "&function=" + text, "?page=letter&id=" + one, "?page=letter&id=another",
		"?page=plan&deed=redrive&id=" + one, "?page=plan&deed=discard&fingerprint=" + text, "?page=operations", "?page=operation&id=" + one,
	}
}

// No text gets out of its place: no page has an element, a handler or a link that its templates lack.
func TestHostileText(t *testing.T) {
	t.Parallel()
	w, queries := hostileWorld(t)
	for _, query := range queries {
		body := w.get(query, http.StatusOK)
		if !strings.Contains(body, "alert(1)") {
			t.Errorf("%s: the text is not on the page, so nothing is tested", query)
		}
		scripts := 0
		for n := range parse(t, body).Descendants() {
			switch n.DataAtom {
			case atom.Script:
				scripts++
			case atom.Img, atom.Iframe, atom.Object, atom.Embed, atom.Base:
				t.Errorf("%s has a <%s>", query, n.Data)
			}
			for _, a := range n.Attr {
				if strings.HasPrefix(a.Key, "on") || a.Key == "style" {
					t.Errorf("%s: <%s> has %s", query, n.Data, a.Key)
				}
				link := a.Key == "href" || a.Key == "src" || a.Key == "action"
				if link && !strings.HasPrefix(a.Val, "?") && a.Val != "#main" && a.Val != "data:," && !strings.HasPrefix(a.Val, "https://console.cloud.google.com/") {
					t.Errorf("%s links to %s", query, a.Val)
				}
			}
		}
		if scripts != 1 {
			t.Errorf("%s has %d scripts", query, scripts)
		}
	}
}

// What a page lets in is its own style and script, by what they are.
func TestPolicyFitsThePage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	answer := w.serve(request(t, ""), http.StatusOK)
	policy := answer.Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'", "connect-src 'self'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy lacks %s", want)
		}
	}
	for n := range parse(t, answer.Body.String()).Descendants() {
		if n.DataAtom == atom.Style || n.DataAtom == atom.Script {
			if hash := hashOf(n.FirstChild.Data); !strings.Contains(policy, n.Data+"-src '"+hash+"'") {
				t.Errorf("the policy %s does not let the <%s> in, which is %s", policy, n.Data, hash)
			}
		}
	}
}

// What somebody needs who cannot see the page, or has no mouse.
func TestPagesAreAccessible(t *testing.T) {
	t.Parallel()
	w, queries := hostileWorld(t)
	w.add("plain", nil)
	queries = append(queries, "?page=letter&id=plain", "?page=plan&deed=discard&id=plain", "?page=plan&deed=redrive&function=MessageAdded")
	pages := map[string]string{"?page=nothing": w.get("?page=nothing", http.StatusNotFound)}
	for _, query := range queries {
		pages[query] = w.get(query, http.StatusOK)
	}
	pages["nothing changed"] = w.post(url.Values{"deed": {"discard"}, "id": {"plain"}, "before": {"2026-12-01T12:00:00Z"}}, http.StatusConflict).Body.String()
	for query, body := range pages {
		for _, flaw := range flaws(parse(t, body)) {
			t.Errorf("%s: %s", query, flaw)
		}
	}
}

// flaws are what a page lacks.
func flaws(root *html.Node) []string {
	var found []string
	flaw := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	count := map[atom.Atom]int{}
	ids, labelled, references := map[string]int{}, map[string]bool{}, []string{}
	heading := 0
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		count[n.DataAtom]++
		if id := attr(n, "id"); id != "" {
			ids[id]++
		}
		references = append(references, strings.Fields(attr(n, "aria-labelledby"))...)
		switch n.DataAtom {
		case atom.Label:
			labelled[attr(n, "for")] = textOf(n) != ""
		case atom.Html:
			if attr(n, "lang") == "" {
				flaw("the page has no language")
			}
		case atom.Title, atom.Button, atom.A, atom.Caption, atom.Th, atom.Option:
			if textOf(n) == "" {
				flaw("a <%s> is empty", n.Data)
			}
		case atom.H1, atom.H2, atom.H3:
			level := int(n.Data[1] - '0')
			if level > heading+1 {
				flaw("<%s> follows a heading of level %d", n.Data, heading)
			}
			heading = level
		}
		if n.DataAtom == atom.Th && attr(n, "scope") == "" {
			flaw("the header cell %q has no scope", textOf(n))
		}
		if n.DataAtom == atom.Table && !has(n, atom.Caption) {
			flaw("a table has no caption")
		}
		if (n.DataAtom == atom.Nav || attr(n, "role") == "region" || attr(n, "tabindex") == "0") && attr(n, "aria-label") == "" && attr(n, "aria-labelledby") == "" {
			flaw("a <%s> that can be gone to has no name", n.Data)
		}
	}
	for n := range root.Descendants() {
		switch n.DataAtom {
		case atom.Input, atom.Select, atom.Textarea:
			if attr(n, "type") != "hidden" && !labelled[attr(n, "id")] {
				flaw("the field %s has no label", attr(n, "name"))
			}
		}
	}
	for _, one := range []atom.Atom{atom.Title, atom.H1, atom.Main, atom.Header, atom.Nav} {
		if count[one] != 1 {
			flaw("there are %d <%s>", count[one], one)
		}
	}
	for id, n := range ids {
		if n > 1 {
			flaw("the id %s stands %d times", id, n)
		}
	}
	for _, id := range references {
		if ids[id] == 0 {
			flaw("nothing has the id %s, which names something", id)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, what atom.Atom) bool {
	for child := range n.Descendants() {
		if child.DataAtom == what {
			return true
		}
	}
	return false
}

func textOf(n *html.Node) string {
	var text strings.Builder
	for child := range n.Descendants() {
		if child.Type == html.TextNode {
			text.WriteString(child.Data)
		}
	}
	return strings.TrimSpace(text.String())
}

func parse(t *testing.T, body string) *html.Node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return root
}
