// Package page is what Mailyard's pages for the people who run it have in common: one look, one frame, a
// script that keeps a page live while it is open, and headers that let nothing else in.
//
// A page is whole as the server sends it: reading and acting work without the script. It names the parts
// that change with data-live and an id; the script asks for the same page again, after as many seconds as
// the frame says and only while somebody can see it, and replaces the parts that differ. Forms stand
// outside such parts, so that nothing typed is lost.
package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"
)

var (
	//go:embed frame.html
	frameHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
)

// A Frame is what stands around a page's content.
type Frame struct {
	Title string // the page's heading, and its name in the browser
	Place string // what is looked at, such as the project
	Nav   []Link
	// Summary says in a sentence how things stand; when it changes, it is read out.
	Summary string
	// Every is after how many seconds the page is asked for again; 0 is never.
	Every   int
	At      time.Time // when it was made
	Content any
}

// A Link leads to another page; Here marks the one that is shown.
type Link struct {
	Text, To string
	Here     bool
}

// Clock is the moment as a person reads it.
func (f Frame) Clock() string { return f.At.UTC().Format("15:04:05 UTC") }

// Style and Script stand in every page, and are let in by what they are.
func (Frame) Style() template.CSS { return template.CSS(strings.TrimSpace(pageCSS)) }

// Script keeps a page live.
func (Frame) Script() template.JS { return template.JS(strings.TrimSpace(pageJS)) }

// Templates parses the pages of fsys, its *.html, each rendered within the frame and found by its name.
// What they share is in parts/*.html, as named templates.
func Templates(fsys fs.FS) (map[string]*template.Template, error) {
	frame, err := template.New("frame").Parse(frameHTML)
	if err != nil {
		return nil, fmt.Errorf("parse the frame: %w", err)
	}
	if parts, _ := fs.Glob(fsys, "parts/*.html"); len(parts) > 0 { // the pattern is a good one
		if frame, err = frame.ParseFS(fsys, parts...); err != nil {
			return nil, fmt.Errorf("parse what pages share: %w", err)
		}
	}
	names, err := fs.Glob(fsys, "*.html")
	if err != nil {
		return nil, fmt.Errorf("find the pages: %w", err)
	}
	templates := map[string]*template.Template{}
	for _, name := range names {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("read the page %s: %w", name, err)
		}
		t, err := frame.Clone()
		if err == nil {
			_, err = t.New("content").Parse(string(text))
		}
		if err != nil {
			return nil, fmt.Errorf("parse the page %s: %w", name, err)
		}
		templates[name] = t
	}
	return templates, nil
}

// Write answers with a page. Nothing is sent before all of it is made; the error says that it could not be.
func Write(w http.ResponseWriter, status int, t *template.Template, f Frame) error {
	var whole bytes.Buffer
	if err := t.ExecuteTemplate(&whole, "frame", f); err != nil {
		http.Error(w, "this page cannot be shown", http.StatusInternalServerError)
		return fmt.Errorf("make the page %q: %w", f.Title, err)
	}
	SecureHeaders(w.Header())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = whole.WriteTo(w) // whoever hung up does not want the rest
	return nil
}

// See sends the browser to another page after an act, by a link relative to this one.
func See(w http.ResponseWriter, to string) {
	SecureHeaders(w.Header())
	// Not http.Redirect: it takes a query alone for a file beside the page.
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// Made on first use: every function is in one program, and only one of them shows such pages.
var policy = sync.OnceValue(func() string {
	return "default-src 'none'; style-src '" + hashOf(string(Frame{}.Style())) + "'; script-src '" + hashOf(string(Frame{}.Script())) +
		"'; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
})

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// SecureHeaders keeps a page out of caches and of other sites' frames, and everything out of it but its
// own style and script.
func SecureHeaders(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy())
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer a form's own POST would come with "Origin: null"
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
}
