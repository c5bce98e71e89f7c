// Package issuer stands in for Google's token issuer on this machine: it signs the tokens that pushes
// carry, and serves the certificates by which functions verify them. Its key lives as long as it does.
package issuer

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"sync"
	"time"
)

// Account is the service account that tokens are for.
const Account = "push@mailyard-local.iam.gserviceaccount.com"

const keyID = "local"

// An Issuer signs tokens. As an HTTP handler it serves its certificates as a JSON Web Key Set.
type Issuer struct {
	key *rsa.PrivateKey
	now func() time.Time

	mu   sync.Mutex
	last map[string]signed // by audience
}

type signed struct {
	token string
	at    time.Time
}

const (
	goodFor   = time.Hour
	reusedFor = goodFor / 2 // signing takes longer than a delivery
)

// New makes an issuer with a key of its own.
func New(now func() time.Time) (*Issuer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("make the key of the push tokens: %w", err)
	}
	return &Issuer{key: key, now: now, last: map[string]signed{}}, nil
}

// Token returns a token for an audience, good for half an hour at least.
func (i *Issuer) Token(audience string) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.now()
	if last := i.last[audience]; now.Sub(last.at) < reusedFor {
		return last.token, nil
	}
	token, err := i.sign(audience, now)
	if err == nil {
		i.last[audience] = signed{token, now}
	}
	return token, err
}

func (i *Issuer) sign(audience string, now time.Time) (string, error) {
	header, err := part(map[string]any{"alg": "RS256", "typ": "JWT", "kid": keyID})
	if err != nil {
		return "", err
	}
	claims, err := part(map[string]any{
		"iss": "https://accounts.google.com", "aud": audience, "email": Account, "email_verified": true,
		"iat": now.Unix(), "exp": now.Add(goodFor).Unix(),
	})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(header + "." + claims))
	signature, err := rsa.SignPKCS1v15(nil, i.key, crypto.SHA256, sum[:])
	if err != nil {
		return "", fmt.Errorf("sign a push token: %w", err)
	}
	return header + "." + claims + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

func part(value any) (string, error) {
	data, err := json.Marshal(value)
	return base64.RawURLEncoding.EncodeToString(data), err
}

// ServeHTTP answers with the certificates.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "public, max-age=3600")
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{
		"kty": "RSA", "alg": "RS256", "use": "sig", "kid": keyID,
		"n": base64.RawURLEncoding.EncodeToString(i.key.N.Bytes()),
		"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(i.key.E)).Bytes()),
	}}})
}
