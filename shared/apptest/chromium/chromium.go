// Package chromium opens pages in a real Chromium, without a window, in a test. The browser has a profile of
// its own that is thrown away, and ends with the test; should the test's process die, the kernel ends it.
package chromium

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// ScreenshotsVariable names the directory where screenshots are kept; without it they are the test's artifacts.
const ScreenshotsVariable = "MAILYARD_SCREENSHOTS"

// waitAtMost is how long a tab waits for what a test expects.
const waitAtMost = 30 * time.Second

// A Tab is one page in the browser.
type Tab struct {
	t   testing.TB
	ctx context.Context
	dir string

	mu   sync.Mutex
	said []string
}

// Open starts a browser. It skips the test where there is no Chromium.
func Open(t testing.TB) *Tab {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("needs Chromium: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-component-update", true),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, _ := chromedp.NewContext(allocator) // Cancel below ends it
	tab := &Tab{t: t, ctx: ctx, dir: os.Getenv(ScreenshotsVariable)}
	if tab.dir == "" {
		tab.dir = t.ArtifactDir()
	}
	t.Cleanup(func() {
		ending, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := chromedp.Cancel(ending); err != nil {
			t.Logf("close the browser: %v", err) // the allocator's end kills it
		}
	})
	tab.must(chromedp.Do(ctx, chromedp.EmulateViewport(1200, 900)), "start the browser")
	go tab.listen(chromedp.Console(ctx))
	return tab
}

func (tab *Tab) listen(messages func(func(chromedp.ConsoleMessage, error) bool)) {
	for m, err := range messages {
		if err != nil {
			return
		}
		tab.mu.Lock()
		tab.said = append(tab.said, fmt.Sprint(m))
		tab.mu.Unlock()
	}
}

// Said returns what pages wrote to the browser's console so far: exceptions, and what a policy forbade.
func (tab *Tab) Said() []string {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return append([]string(nil), tab.said...)
}

// Go opens a URL.
func (tab *Tab) Go(url string) {
	tab.t.Helper()
	tab.do("open "+url, chromedp.Navigate(url))
}

// Wait waits until an expression of JavaScript is true, in whatever page is then open.
func (tab *Tab) Wait(expression string) {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, waitAtMost)
	defer cancel()
	for {
		yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if err == nil && yes {
			return
		}
		select {
		case <-ctx.Done():
			tab.Shot("failed")
			tab.t.Fatalf("waited %s for %s (%v); the page says: %s", waitAtMost, expression, err, tab.text())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// WaitFor waits until the text stands in an element.
func (tab *Tab) WaitFor(selector, text string) {
	tab.t.Helper()
	tab.Wait(fmt.Sprintf("[...document.querySelectorAll(%q)].some(e => e.textContent.includes(%q))", selector, text))
}

// Click clicks the first element that the selector finds.
func (tab *Tab) Click(selector string) {
	tab.t.Helper()
	tab.do("click "+selector, chromedp.Click(chromedp.CSS(selector)))
}

// Type types into a field.
func (tab *Tab) Type(selector, text string) {
	tab.t.Helper()
	tab.do("type into "+selector, chromedp.SendKeys(chromedp.CSS(selector), text))
}

// Set gives a field or a select a value.
func (tab *Tab) Set(selector, value string) {
	tab.t.Helper()
	tab.do("set "+selector, chromedp.SetValue(chromedp.CSS(selector), value))
}

// Eval evaluates an expression that is a text.
func (tab *Tab) Eval(expression string) string {
	tab.t.Helper()
	text, err := chromedp.Run(tab.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	tab.must(err, "evaluate "+expression)
	return text
}

// Size sets the window's size, in CSS pixels.
func (tab *Tab) Size(width, height int) {
	tab.t.Helper()
	tab.do("resize", chromedp.EmulateViewport(int64(width), int64(height)))
}

// Dark says whether the person who looks prefers dark colours.
func (tab *Tab) Dark(on bool) {
	tab.t.Helper()
	scheme := "light"
	if on {
		scheme = "dark"
	}
	_, err := chromedp.Call(tab.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	tab.must(err, "prefer "+scheme)
}

// Shot keeps a screenshot of the whole page.
func (tab *Tab) Shot(name string) {
	tab.t.Helper()
	picture, err := chromedp.Run(tab.ctx, chromedp.FullScreenshot(100))
	tab.must(err, "take a screenshot")
	tab.must(os.MkdirAll(tab.dir, 0o755), "make a directory for screenshots")
	file := filepath.Join(tab.dir, strings.ReplaceAll(tab.t.Name(), "/", "-")+"-"+name+".png")
	tab.must(os.WriteFile(file, picture, 0o644), "keep a screenshot")
}

func (tab *Tab) text() string {
	text, err := chromedp.Run(tab.ctx, chromedp.Evaluate[string]("document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

func (tab *Tab) do(what string, step chromedp.Action[chromedp.Void]) {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, waitAtMost)
	defer cancel()
	tab.must(chromedp.Do(ctx, step), what)
}

func (tab *Tab) must(err error, what string) {
	tab.t.Helper()
	if err != nil {
		tab.t.Fatalf("%s: %v", what, err)
	}
}
