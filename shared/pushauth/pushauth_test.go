package pushauth_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"mailyard.internal/mailyard/shared/config"
	"mailyard.internal/mailyard/shared/pushauth"
)

const (
	audience = "https://yard.example/push"
	account  = "push@yard.iam.gserviceaccount.com"
	keyID    = "k1"
)

// An issuer signs tokens, and serves the certificates they are checked with.
type issuer struct {
	key   *rsa.PrivateKey
	certs *httptest.Server
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	keys := fmt.Sprintf(`{"keys":[{"kty":"RSA","alg":"RS256","use":"sig","kid":%q,"n":%q,"e":%q}]}`,
		keyID, encode(key.N.Bytes()), encode(big.NewInt(int64(key.E)).Bytes()))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, keys)
	}))
	t.Cleanup(server.Close)
	return &issuer{key, server}
}

// claims are those of a push's token that is good for an hour; edit makes them something else.
func claims(edit func(map[string]any)) map[string]any {
	c := map[string]any{
		"iss": "https://accounts.google.com", "aud": audience, "sub": "1", "email": account, "email_verified": true,
		"iat": time.Now().Add(-time.Minute).Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	if edit != nil {
		edit(c)
	}
	return c
}

func token(t *testing.T, key *rsa.PrivateKey, header string, claims map[string]any) string {
	t.Helper()
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(body)
	if key == nil {
		return signed + "."
	}
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

const (
	rs256 = `{"alg":"RS256","kid":"k1","typ":"JWT"}`
	none  = `{"alg":"none","kid":"k1","typ":"JWT"}`
)

func checker(mode config.PushAuth, certs string) *pushauth.Checker {
	return pushauth.New(config.Config{
		PushAuth: mode, PushAudience: audience, PushServiceAccount: account, OIDCCertsURL: certs,
	}, time.Now)
}

func push(t *testing.T, authorization string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/MessageRead", nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return r
}

// cut replaces the signature as Cloud Run does after it has verified it.
func cut(token string) string {
	return token[:strings.LastIndexByte(token, '.')] + ".SIGNATURE_REMOVED_BY_GOOGLE"
}

func TestCheck(t *testing.T) {
	t.Parallel()
	google, stranger := newIssuer(t), newIssuer(t)
	good := token(t, google.key, rs256, claims(nil))
	with := func(name string, value any) string {
		return token(t, google.key, rs256, claims(func(c map[string]any) { c[name] = value }))
	}
	without := func(name string) string {
		return token(t, google.key, rs256, claims(func(c map[string]any) { delete(c, name) }))
	}
	parts := strings.Split(good, ".")
	for _, c := range []struct {
		name          string
		authorization string
		oidc, iam     int // the status; 0: let in
	}{
		{"valid", "Bearer " + good, 0, 0},
		{"valid, of the issuer's short name", "Bearer " + with("iss", "accounts.google.com"), 0, 0},
		{"missing", "", 401, 401},
		{"no bearer token", "Basic dXNlcjpwYXNz", 401, 401},
		{"an empty bearer token", "Bearer ", 401, 401},
		{"garbage", "Bearer hello", 401, 401},
		{"garbage in three parts", "Bearer a.b.c", 401, 401},
		{"claims that are no JSON", "Bearer " + parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte("hello")) + "." + parts[2], 401, 401},
		{"expired", "Bearer " + with("exp", time.Now().Add(-time.Second).Unix()), 401, 401},
		{"without expiry", "Bearer " + without("exp"), 401, 401},
		{"for another audience", "Bearer " + with("aud", "https://other.example"), 401, 401},
		{"without an audience", "Bearer " + without("aud"), 401, 401},
		{"of another issuer", "Bearer " + with("iss", "https://issuer.example"), 401, 401},
		{"of another account", "Bearer " + with("email", "push@other.iam.gserviceaccount.com"), 403, 403},
		{"without an address", "Bearer " + without("email"), 403, 403},
		{"of an address that is a list", "Bearer " + with("email", []string{account}), 403, 403},
		{"of an address not verified", "Bearer " + with("email_verified", false), 403, 403},
		{"self-signed", "Bearer " + token(t, stranger.key, rs256, claims(nil)), 401, 0},
		{"of a key nobody knows", "Bearer " + token(t, stranger.key, `{"alg":"RS256","kid":"k2"}`, claims(nil)), 401, 0},
		{"signed with nothing", "Bearer " + token(t, nil, none, claims(nil)), 401, 0},
		{"of an unknown algorithm", "Bearer " + token(t, google.key, `{"alg":"HS256","kid":"k1"}`, claims(nil)), 401, 0},
		{"claims changed after signing", "Bearer " + parts[0] + "." + strings.Split(with("sub", "2"), ".")[1] + "." + parts[2], 401, 0},
		{"signature cut off", "Bearer " + cut(good), 401, 0},
		{"signature cut off, expired", "Bearer " + cut(with("exp", 1)), 401, 401},
		{"signature cut off, for another audience", "Bearer " + cut(with("aud", "https://other.example")), 401, 401},
		{"signature cut off, of another account", "Bearer " + cut(with("email", "kim@example.com")), 401, 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for mode, want := range map[config.PushAuth]int{config.PushAuthOIDC: c.oidc, config.PushAuthIAM: c.iam} {
				err := checker(mode, google.certs.URL).Check(push(t, c.authorization))
				var refusal *pushauth.Refusal
				switch {
				case want == 0 && err != nil:
					t.Errorf("%s: refused: %v", mode, err)
				case want != 0 && (!errors.As(err, &refusal) || refusal.Status != want):
					t.Errorf("%s: the answer is %v, want a refusal with %d", mode, err, want)
				case err != nil && (strings.Contains(err.Error(), account) || strings.Contains(err.Error(), parts[1])):
					t.Errorf("%s: the error quotes the token: %v", mode, err)
				}
			}
			if err := checker(config.PushAuthOff, "").Check(push(t, c.authorization)); err != nil {
				t.Errorf("off: refused: %v", err)
			}
		})
	}
}

// A push whose token cannot be checked is not refused for good: it is to come again.
func TestCertificatesOutOfReach(t *testing.T) {
	t.Parallel()
	google := newIssuer(t)
	down := httptest.NewServer(nil)
	down.Close()
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "try later", http.StatusServiceUnavailable)
	}))
	t.Cleanup(failing.Close)
	good := "Bearer " + token(t, google.key, rs256, claims(nil))
	for name, certs := range map[string]string{"nobody listens": down.URL, "answers 503": failing.URL} {
		err := checker(config.PushAuthOIDC, certs).Check(push(t, good))
		var refusal *pushauth.Refusal
		if err == nil || errors.As(err, &refusal) {
			t.Errorf("%s: the answer is %v", name, err)
		}
		if err := checker(config.PushAuthIAM, certs).Check(push(t, good)); err != nil {
			t.Errorf("%s: behind Cloud Run no certificates are needed: %v", name, err)
		}
	}
}

// Having failed to get the certificates is not remembered.
func TestCertificatesComeBack(t *testing.T) {
	t.Parallel()
	google := newIssuer(t)
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls == 1 {
			http.Error(w, "try later", http.StatusServiceUnavailable)
			return
		}
		google.certs.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	c, good := checker(config.PushAuthOIDC, server.URL), "Bearer "+token(t, google.key, rs256, claims(nil))
	if err := c.Check(push(t, good)); err == nil {
		t.Fatal("let in without certificates")
	}
	if err := c.Check(push(t, good)); err != nil {
		t.Errorf("refused with certificates: %v", err)
	}
}

func TestNoAudienceConfiguredTakesAny(t *testing.T) {
	t.Parallel()
	google := newIssuer(t)
	c := pushauth.New(config.Config{PushAuth: config.PushAuthIAM, PushServiceAccount: account}, time.Now)
	other := token(t, google.key, rs256, claims(func(c map[string]any) { c["aud"] = "https://other.example" }))
	if err := c.Check(push(t, "Bearer "+cut(other))); err != nil {
		t.Error(err)
	}
}
