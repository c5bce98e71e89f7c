package gmailsim

import (
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// codeLife is how long a code may be exchanged, as Google's.
const codeLife = 10 * time.Minute

// readOnly is the scope that every mailbox is read with.
const readOnly = "https://www.googleapis.com/auth/gmail.readonly"

// A consent is what a person has allowed, until the code that stands for it is exchanged.
type consent struct {
	box         *Mailbox
	clientID    string
	redirectURI string
	challenge   string
	scope       string
	lasting     bool // a refresh token comes with it
	expires     time.Time
}

// WithholdRefreshTokens says whether consents give access for an hour and no longer, as Google's do for
// who has consented before and was not asked anew.
func (m *Mailbox) WithholdRefreshTokens(on bool) {
	m.sim.mu.Lock()
	defer m.sim.mu.Unlock()
	m.withhold = on
}

// serveAuth is the consent page. A person chooses a mailbox and an answer; a program adds both to the
// page's URL: account, and answer, which is allow, deny, or allow_nothing for who unticks the permission.
func (s *Sim) serveAuth(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	if wrong := checkAuth(q); wrong != "" {
		http.Error(w, "Error 400: invalid_request: "+wrong, http.StatusBadRequest)
		return
	}
	back, _ := url.Parse(q.Get("redirect_uri"))
	answer := back.Query()
	answer.Set("state", q.Get("state"))
	box, known := s.Mailbox(q.Get("account"))
	switch q.Get("answer") {
	case "deny":
		answer.Set("error", "access_denied")
	case "allow", "allow_nothing":
		if !known {
			http.Error(w, "there is no such mailbox; GET /sim/mailboxes lists those there are", http.StatusNotFound)
			return
		}
		scope := q.Get("scope")
		if q.Get("answer") == "allow_nothing" {
			scope = ""
		}
		answer.Set("code", s.consented(box, q, scope))
		answer.Set("scope", scope)
	default:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		_ = consentPage.Execute(w, s.choices(r.URL))
		return
	}
	back.RawQuery = answer.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

// checkAuth refuses what Google refuses, and what this package does not know.
func checkAuth(q url.Values) string {
	back, err := url.Parse(q.Get("redirect_uri"))
	switch {
	case q.Get("client_id") == "":
		return "client_id is missing"
	case err != nil || back.Host == "" || back.Fragment != "":
		return "redirect_uri is missing or no URL"
	case q.Get("response_type") != "code":
		return "response_type must be code"
	case !slices.Contains(strings.Fields(q.Get("scope")), readOnly):
		return "scope must have gmail.readonly"
	case q.Get("code_challenge") != "" && q.Get("code_challenge_method") != "S256":
		return "code_challenge_method must be S256"
	}
	return ""
}

func (s *Sim) consented(box *Mailbox, q url.Values, scope string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued++
	code := "4/sim-" + strconv.FormatUint(s.seed, 36) + "-" + strconv.Itoa(s.issued)
	s.codes[code] = consent{
		box: box, clientID: q.Get("client_id"), redirectURI: q.Get("redirect_uri"), challenge: q.Get("code_challenge"), scope: scope,
		lasting: q.Get("access_type") == "offline" && (q.Get("prompt") == "consent" || !box.consented) && !box.withhold,
		expires: s.now().Add(codeLife),
	}
	box.consented = true
	return code
}

// redeem exchanges a code, once, for tokens.
func (s *Sim) redeem(form url.Values) (tokenAnswer, *oauthError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, known := s.codes[form.Get("code")]
	delete(s.codes, form.Get("code"))
	switch {
	case !known, !s.now().Before(c.expires):
		return tokenAnswer{}, &oauthError{"invalid_grant", "Malformed auth code."}
	case form.Get("client_id") != c.clientID:
		return tokenAnswer{}, &oauthError{"invalid_client", "The OAuth client was not found."}
	case form.Get("redirect_uri") != c.redirectURI:
		return tokenAnswer{}, &oauthError{"redirect_uri_mismatch", "Bad Request"}
	case c.challenge != "" && challengeOf(form.Get("code_verifier")) != c.challenge:
		return tokenAnswer{}, &oauthError{"invalid_grant", "Invalid code verifier."}
	}
	answer := s.grantAccess(c.box)
	answer.Scope = c.scope
	if c.lasting {
		answer.RefreshToken = "1//sim-" + strconv.FormatUint(s.seed, 36) + "-" + strconv.Itoa(s.issued)
		s.refresh[answer.RefreshToken] = c.box
	}
	return answer, nil
}

func challengeOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

type choice struct{ Address, Allow, Deny string }

func (s *Sim) choices(page *url.URL) []choice {
	s.mu.Lock()
	var addresses []string
	for address := range s.boxes {
		addresses = append(addresses, address)
	}
	s.mu.Unlock()
	slices.Sort(addresses)
	choices := make([]choice, len(addresses))
	for i, address := range addresses {
		with := func(answer string) string {
			q := page.Query()
			q.Set("account", address)
			q.Set("answer", answer)
			return page.Path + "?" + q.Encode()
		}
		choices[i] = choice{address, with("allow"), with("deny")}
	}
	return choices
}

var consentPage = template.Must(template.New("consent").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Simulated consent</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:4rem auto;padding:0 1rem}li{margin:.5rem 0}</style>
<h1>Choose a mailbox</h1>
<p>This stands for Google's consent page. The app wants to read the mailbox.</p>
<ul>{{range .}}<li>{{.Address}}: <a href="{{.Allow}}">allow</a>, <a href="{{.Deny}}">deny</a></li>{{else}}<li>There is no mailbox yet.</li>{{end}}</ul>
</html>
`))
