package digest

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"strings"
	"sync"
)

var (
	//go:embed unsubscribe.html
	unsubscribeHTML string
	//go:embed unsubscribe.css
	unsubscribeCSS string

	unsubscribeTemplate = sync.OnceValue(func() *template.Template {
		return template.Must(template.New("unsubscribe").Parse(unsubscribeHTML))
	})
	unsubscribeStyle = template.CSS(strings.TrimSpace(unsubscribeCSS))
	// The page posts to itself; form-action must name it.
	unsubscribePolicy = "default-src 'none'; style-src '" + hashOf(string(unsubscribeStyle)) + "'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

func hashOf(style string) string {
	sum := sha256.Sum256([]byte(style))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

type unsubscribeText struct {
	status      int
	Title, Text string
	Ask         bool
}

var unsubscribePages = map[UnsubscribeOutcome]unsubscribeText{
	ToConfirm:         {http.StatusOK, "Unsubscribe from digests?", "You will get no more digests of this mailbox at this address.", true},
	HasUnsubscribed:   {http.StatusOK, "You are unsubscribed", "You will get no more digests of this mailbox at this address. You can close this page.", false},
	NoSuchToken:       {http.StatusForbidden, "This link is not valid", "A part of it is missing, or it is from somewhere else. Nothing was changed. Copy the whole link from the mail.", false},
	UnsubscribeFailed: {http.StatusServiceUnavailable, "Something went wrong", "You are not unsubscribed yet. It is not your fault. Open the link again in a few minutes.", false},
}

func writePage(w http.ResponseWriter, https bool, outcome UnsubscribeOutcome) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer") // the link has the token
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Content-Security-Policy", unsubscribePolicy)
	h.Set("Content-Type", "text/html; charset=utf-8")
	if https {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	p := unsubscribePages[outcome]
	w.WriteHeader(p.status)
	_ = unsubscribeTemplate().Execute(w, struct {
		unsubscribeText
		Style template.CSS
	}{p, unsubscribeStyle})
}
