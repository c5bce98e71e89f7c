package gmailsim

import (
	"net/http"
	"net/url"
	"strconv"
	"time"
)

func (s *Sim) serveToken(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	formErr := r.ParseForm()
	old := r.PostForm.Get("refresh_token")
	s.mu.Lock()
	box := s.refresh[old]
	s.mu.Unlock()
	x := s.begin("token", box, w, r)
	if x.misbehave() {
		return
	}
	if box != nil {
		if scripted := box.nextScripted("token", ""); scripted != nil && x.scripted(scripted) {
			return
		}
	}
	if formErr != nil {
		x.reply(http.StatusBadRequest, oauthError{"invalid_request", "The form cannot be read."})
		return
	}
	exchange := map[string]func(url.Values) (tokenAnswer, *oauthError){"authorization_code": s.redeem, jwtBearer: s.assert}
	switch grantType := r.PostForm.Get("grant_type"); {
	case exchange[grantType] != nil:
		answer, refusal := exchange[grantType](r.PostForm)
		if refusal != nil {
			x.reply(http.StatusBadRequest, refusal)
		} else {
			x.reply(http.StatusOK, answer)
		}
		return
	case grantType != "refresh_token":
		x.reply(http.StatusBadRequest, oauthError{"unsupported_grant_type", "Only refresh_token, authorization_code and jwt-bearer are known here."})
		return
	}
	if box == nil {
		x.reply(http.StatusBadRequest, oauthError{"invalid_grant", "Token has been expired or revoked."})
		return
	}
	answer, ok := s.issue(box, old)
	if !ok {
		x.reply(http.StatusBadRequest, oauthError{"invalid_grant", "Token has been expired or revoked."})
		return
	}
	x.reply(http.StatusOK, answer)
}

type oauthError struct {
	Error       string `json:"error"`
	Description string `json:"error_description,omitempty"`
}

type tokenAnswer struct {
	AccessToken  string `json:"access_token"`
	ExpiresIn    int    `json:"expires_in"`
	TokenType    string `json:"token_type"`
	Scope        string `json:"scope"`
	RefreshToken string `json:"refresh_token,omitempty"`
}

// issue makes an access token, unless the refresh token was revoked or rotated since it was read.
func (s *Sim) issue(box *Mailbox, old string) (tokenAnswer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refresh[old] != box {
		return tokenAnswer{}, false
	}
	answer := s.grantAccess(box)
	if box.rotate {
		answer.RefreshToken = "1//sim-" + strconv.FormatUint(s.seed, 36) + "-" + strconv.Itoa(s.issued)
		delete(s.refresh, old)
		s.refresh[answer.RefreshToken] = box
	}
	return answer, true
}

// grantAccess makes an access token. It is called with the lock held.
func (s *Sim) grantAccess(box *Mailbox) tokenAnswer {
	now := s.now()
	s.issued++
	if s.issued%1000 == 0 { // a long run must not keep every token it ever gave
		for token, g := range s.access {
			if !now.Before(g.expires) {
				delete(s.access, token)
			}
		}
	}
	answer := tokenAnswer{
		AccessToken: "ya29.sim-" + strconv.FormatUint(s.seed, 36) + "-" + strconv.Itoa(s.issued),
		ExpiresIn:   int(s.tokenLife / time.Second),
		TokenType:   "Bearer",
		Scope:       readOnly,
	}
	s.access[answer.AccessToken] = grant{box, now.Add(s.tokenLife)}
	return answer
}

func (s *Sim) serveRevoke(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	_ = r.ParseForm() // a form that cannot be read has no token, which is answered below
	token := r.Form.Get("token")
	s.mu.Lock()
	box := s.refresh[token]
	if g, ok := s.access[token]; ok {
		box = g.box
	}
	s.mu.Unlock()
	x := s.begin("revoke", box, w, r)
	if x.misbehave() {
		return
	}
	if box == nil {
		x.reply(http.StatusBadRequest, oauthError{"invalid_token", "Token expired or revoked"})
		return
	}
	box.Revoke()
	x.reply(http.StatusOK, struct{}{})
}
