package app_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"mailyard.internal/mailyard/shared/apptest"
	"mailyard.internal/mailyard/shared/apptest/chromium"
)

// A person's way through both pages, in a real browser: poison a message, see the letter arrive without a
// reload, plan, mend, redrive, and see it gone. Of each step there is a screenshot.
func TestConsoleInABrowser(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	y.Start()
	mailboxes, console := serveMailboxes(t, y), y.Functions.URL+"/Console"
	gmail := chromium.Open(t)
	tab := chromium.Open(t)

	gmail.Go(mailboxes)
	gmail.Type("#mailbox", "ann@example.com")
	gmail.Click("button[value=link]")
	gmail.WaitFor("h1", "ann@example.com")
	deliver := func(subject, status string) {
		t.Helper()
		gmail.Set("#subject", subject)
		gmail.Set("#status", status)
		gmail.Click("button[value=deliver]")
		gmail.WaitFor("table", subject)
	}
	deliver("Lunch on Friday?", "")
	deliver("Minutes of the meeting", "")
	y.Settle()

	tab.Go(console)
	tab.WaitFor("#summary", "0 dead letters, 0 retrying")
	tab.WaitFor("#mailboxes", "in step")
	tab.Eval("window.sameDocument = 'yes'")
	tab.Shot("1-before")

	deliver("Your book is due", "400")
	deliver("Photos from the lake", "400")
	gmail.Shot("2-poisoned")
	tab.WaitFor("[data-cell='MessageAdded.dead']", "2")
	tab.WaitFor("#told", "2 dead letters")
	tab.WaitFor("#mailboxes", "behind")
	if got := tab.Eval("window.sameDocument"); got != "yes" {
		t.Error("the page was loaded again instead of being kept live")
	}
	tab.Shot("3-arrived")

	tab.Click("[data-cell='MessageAdded.dead'] a")
	tab.WaitFor("h1", "Letters on message-added")
	tab.Shot("4-letters")
	tab.Click("tbody th a")
	tab.WaitFor("h1", "Letter ")
	tab.Shot("5-letter")
	tab.Click("nav a[href*=groups]")
	tab.WaitFor("#groups", "bad_request")
	tab.Shot("6-groups")
	tab.Click("a[href*='page=plan']")
	tab.WaitFor("h1", "Plan of a redrive")
	tab.WaitFor(".count", "2 letters")
	tab.Type("#reason", "Gmail gives them out again")
	tab.Shot("7-plan")

	gmail.Click("button[value=mend-all]")
	gmail.Wait("!document.querySelector('button[value=mend-all]')")
	tab.Click("form button")
	tab.WaitFor("h1", "Operation redrive-")
	tab.WaitFor("#operation", "2 redriven")
	tab.Shot("8-redriven")
	y.Settle()

	tab.Click("nav a[href*=overview]")
	tab.WaitFor("#summary", "0 dead letters, 0 retrying, 0 redriving")
	tab.WaitFor("#mailboxes", "in step")
	tab.Shot("9-gone")
	tab.Go(console + "?page=operations")
	tab.WaitFor("table", "Gmail gives them out again")

	if said := append(tab.Said(), gmail.Said()...); len(said) > 0 {
		t.Errorf("the browser's console has %s", strings.Join(said, "\n"))
	}
}

// While a page is replaced part by part, focus and what was typed stay; narrow and dark it holds together.
func TestConsoleStaysInHand(t *testing.T) {
	t.Parallel()
	y := apptest.New(t, apptest.Options{})
	y.Start()
	gmail := visitor{t, serveMailboxes(t, y)}
	post := func(do string, more ...string) {
		t.Helper()
		form := map[string][]string{"do": {do}, "mailbox": {"ann@example.com"}}
		for i := 0; i < len(more); i += 2 {
			form[more[i]] = []string{more[i+1]}
		}
		gmail.send("", form, 200)
	}
	post("link")
	y.Settle() // its resync must not meet what is poisoned
	post("deliver", "from", "bo@example.org", "subject", "One", "count", "1", "status", "400")
	y.Settle()

	tab := chromium.Open(t)
	tab.Go(y.Functions.URL + "/Console?page=letters")
	tab.WaitFor("tbody", "dead")
	tab.Type("#code", "half a wo")
	post("deliver", "from", "bo@example.org", "subject", "Two", "count", "1", "status", "400")
	tab.Wait("document.querySelectorAll('tbody tr').length === 2")
	if got := tab.Eval("document.getElementById('code').value + '|' + document.activeElement.id"); got != "half a wo|code" {
		t.Errorf("after the update the field and the focus are %q", got)
	}
	// A link that is replaced keeps the focus, too.
	tab.Eval("document.querySelector('tbody th a').focus()")
	focused := tab.Eval("document.activeElement.href")
	post("deliver", "from", "bo@example.org", "subject", "Three", "count", "1", "status", "400")
	tab.Wait("document.querySelectorAll('tbody tr').length === 3")
	if got := tab.Eval("document.activeElement.href"); got != focused {
		t.Errorf("the focus went from %s to %s", focused, got)
	}

	for _, page := range []string{"overview", "mailboxes", "groups", "letters", "operations"} {
		for _, dark := range []bool{false, true} {
			tab.Size(390, 800)
			tab.Dark(dark)
			tab.Go(y.Functions.URL + "/Console?page=" + page)
			tab.WaitFor("main", "")
			name := page + "-narrow"
			if dark {
				name += "-dark"
			}
			tab.Shot(name)
			if wide := tab.Eval("document.documentElement.scrollWidth"); wide != "390" {
				t.Errorf("%s is %s pixels wide in a window of 390", page, wide)
			}
		}
	}
	// Nobody looks: nobody is asked.
	tab.Eval(hide("true"))
	tab.WaitFor("#live", "paused")
	tab.Eval(hide("false"))
	tab.WaitFor("#live", "live")
	// When nobody answers, the page says so, and comes back when somebody does.
	var shut atomic.Bool
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if shut.Load() {
			http.Error(w, "shut", http.StatusBadGateway)
			return
		}
		y.Functions.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(gate.Close)
	tab.Size(1200, 800)
	tab.Go(gate.URL + "/Console")
	tab.WaitFor("#live", "live")
	shut.Store(true)
	tab.WaitFor("#live", "no answer")
	tab.Shot("no-answer")
	shut.Store(false)
	tab.WaitFor("#live", "live")
}

// hide makes a page believe that nobody can see it, or that somebody can.
func hide(hidden string) string {
	return "(Object.defineProperty(document, 'hidden', {value: " + hidden + ", configurable: true}), document.dispatchEvent(new Event('visibilitychange')))"
}
