package gmailsim

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const jwtBearer = "urn:ietf:params:oauth:grant-type:jwt-bearer"

// Delegate lets a service account act for the users of these domains, as their administrator can; without
// domains it no longer does.
func (s *Sim) Delegate(serviceAccount string, domains ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delegated[serviceAccount] = domains
}

// serveSign stands for the IAM Credentials API: it signs claims for a service account. Anyone may ask.
func (s *Sim) serveSign(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	x := s.begin("signJwt", nil, w, r)
	if x.misbehave() {
		return
	}
	account, ok := strings.CutSuffix(r.PathValue("account"), ":signJwt")
	var request struct{ Payload string }
	if !ok || json.NewDecoder(r.Body).Decode(&request) != nil || !json.Valid([]byte(request.Payload)) {
		x.fail(badRequest("Invalid payload."))
		return
	}
	header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"sim","typ":"JWT"}`))
	signed := header + "." + base64.RawURLEncoding.EncodeToString([]byte(request.Payload))
	x.reply(http.StatusOK, map[string]string{"keyId": "sim", "signedJwt": signed + "." + s.signature(account, signed)})
}

func (s *Sim) signature(account, text string) string {
	mac := hmac.New(sha256.New, []byte(account))
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// assert exchanges a service account's assertion for access to the mailbox of its subject.
func (s *Sim) assert(form url.Values) (tokenAnswer, *oauthError) {
	invalid := &oauthError{"invalid_grant", "Invalid JWT Signature."}
	text := form.Get("assertion")
	cut := strings.LastIndexByte(text, '.')
	parts := strings.Split(text, ".")
	if cut < 0 || len(parts) != 3 {
		return tokenAnswer{}, invalid
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Iss, Sub, Scope, Aud string
		Iat, Exp             int64
	}
	if err != nil || json.Unmarshal(payload, &claims) != nil || s.signature(claims.Iss, text[:cut]) != parts[2] {
		return tokenAnswer{}, invalid
	}
	now := s.now()
	if life := time.Duration(claims.Exp-claims.Iat) * time.Second; claims.Exp <= now.Unix() || life > time.Hour || claims.Iat > now.Add(time.Minute).Unix() || claims.Aud == "" {
		return tokenAnswer{}, &oauthError{"invalid_grant", "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe."}
	}
	_, domain, _ := strings.Cut(normalise(claims.Sub), "@")
	s.mu.Lock()
	defer s.mu.Unlock()
	box := s.boxes[normalise(claims.Sub)]
	switch {
	case !slices.Contains(s.delegated[claims.Iss], domain), !slices.Contains(strings.Fields(claims.Scope), readOnly):
		return tokenAnswer{}, &oauthError{"unauthorized_client", "Client is unauthorized to retrieve access tokens using this method, or client not authorized for any of the scopes requested."}
	case box == nil:
		return tokenAnswer{}, &oauthError{"invalid_grant", "Invalid email or User ID"}
	}
	return s.grantAccess(box), nil
}
