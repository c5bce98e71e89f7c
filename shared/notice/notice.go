// Package notice is the page that anybody sees who follows a link of Mailyard's: what happened, and what
// they can do about it. It has no script, lets nothing else in, and leaves nothing of its URL, which may hold
// a token, to where a person goes next.
package notice

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

var (
	//go:embed notice.html
	html string
	//go:embed notice.css
	css string

	// Parsed on first use: every function is in one program, and only the public ones have such pages.
	parsed = sync.OnceValue(func() *template.Template {
		return template.Must(template.New("notice").Parse(html)) // it is part of the program, and a test shows it
	})
	policy = sync.OnceValue(func() string {
		sum := sha256.Sum256([]byte(style()))
		return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; frame-ancestors 'none'; form-action "
	})
)

func style() template.CSS { return template.CSS(strings.TrimSpace(css)) }

// A Notice is what the page says. What is empty is not there.
type Notice struct {
	Status int // of the answer
	Title  string
	About  string // whom or what it is about
	Text   string // what happened
	Next   string // what the person can do
	Back   string // a URL to go on to
	Button string // posts to the page's own URL
}

// Style stands in the page, and is let in by what it is.
func (Notice) Style() template.CSS { return style() }

// Host is where Back leads.
func (n Notice) Host() string {
	u, err := url.Parse(n.Back)
	if err != nil {
		return ""
	}
	return u.Host
}

// Write answers with the page. https says whether people reach it so.
func Write(w http.ResponseWriter, https bool, n Notice) {
	forms := "'none'"
	if n.Button != "" {
		forms = "'self'"
	}
	SecureHeaders(w.Header(), https)
	w.Header().Set("Content-Security-Policy", policy()+forms)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(n.Status)
	_ = parsed().Execute(w, n) // whoever hung up does not want the rest
}

// SecureHeaders keeps an answer out of caches and of other sites' frames, and its URL from wherever it leads.
func SecureHeaders(h http.Header, https bool) {
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Content-Security-Policy", policy()+"'none'")
	if https {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}
