package ticket_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"mailyard.internal/mailyard/shared/ticket"
)

const key = "0123456789abcdef0123456789abcdef"

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func signer(t *testing.T, key string) *ticket.Signer {
	t.Helper()
	s, err := ticket.NewSigner(key, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sign(t *testing.T, method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	t.Helper()
	text, err := jwt.NewWithClaims(method, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	s := signer(t, key)
	text, err := s.Sign(ticket.Ticket{Owner: "u-17", ReturnTo: "https://app.example.com/done", ExpiresAt: now.Add(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Open(text)
	if err != nil || got.Owner != "u-17" || got.ReturnTo != "https://app.example.com/done" || got.Nonce == "" || !got.ExpiresAt.Equal(now.Add(time.Minute)) {
		t.Errorf("opened %+v, %v", got, err)
	}
	again, err := s.Sign(ticket.Ticket{Owner: "u-17", ExpiresAt: now.Add(time.Minute)})
	if err != nil || again == text {
		t.Errorf("two tickets of one owner are one: %v", err)
	}
}

// What a backend of another language makes with a library of its own is a ticket.
func TestAnotherBackendsTicket(t *testing.T) {
	t.Parallel()
	text := sign(t, jwt.SigningMethodHS256, []byte(key), jwt.MapClaims{
		"aud": "mailyard-connect", "sub": "u-17", "jti": "n1", "exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "more": 1,
	})
	if got, err := signer(t, key).Open(text); err != nil || got.Owner != "u-17" || got.Nonce != "n1" {
		t.Errorf("opened %+v, %v", got, err)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	good := jwt.MapClaims{"aud": "mailyard-connect", "sub": "u-17", "jti": "n1", "exp": now.Add(time.Hour).Unix()}
	with := func(name string, value any) jwt.MapClaims {
		c := jwt.MapClaims{}
		for n, v := range good {
			c[n] = v
		}
		if c[name] = value; value == nil {
			delete(c, name)
		}
		return c
	}
	mine := []byte(key)
	whole := sign(t, jwt.SigningMethodHS256, mine, good)
	parts := strings.Split(whole, ".")
	other := base64.RawURLEncoding.EncodeToString([]byte(`{"aud":"mailyard-connect","sub":"u-18","jti":"n1","exp":1796043600}`))
	for name, text := range map[string]string{
		"nothing": "", "a word": "hello", "two parts": parts[0] + "." + parts[1], "no signature": parts[0] + "." + parts[1] + ".",
		"another owner put in":     parts[0] + "." + other + "." + parts[2],
		"another key":              sign(t, jwt.SigningMethodHS256, []byte(strings.Repeat("x", 32)), good),
		"no algorithm":             sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good),
		"another algorithm":        sign(t, jwt.SigningMethodHS384, mine, good),
		"another audience":         sign(t, jwt.SigningMethodHS256, mine, with("aud", "mailyard-unsubscribe")),
		"no audience":              sign(t, jwt.SigningMethodHS256, mine, with("aud", nil)),
		"no owner":                 sign(t, jwt.SigningMethodHS256, mine, with("sub", nil)),
		"no nonce":                 sign(t, jwt.SigningMethodHS256, mine, with("jti", nil)),
		"no end":                   sign(t, jwt.SigningMethodHS256, mine, with("exp", nil)),
		"an end in a year":         sign(t, jwt.SigningMethodHS256, mine, with("exp", now.Add(365*24*time.Hour).Unix())),
		"not before tomorrow":      sign(t, jwt.SigningMethodHS256, mine, with("nbf", now.Add(24*time.Hour).Unix())),
		"very long":                strings.Repeat("a", 1<<20),
		"late, of another key":     sign(t, jwt.SigningMethodHS256, []byte(strings.Repeat("x", 32)), with("exp", now.Add(-time.Hour).Unix())),
		"late, another's audience": sign(t, jwt.SigningMethodHS256, mine, jwt.MapClaims{"aud": "x", "sub": "u", "jti": "n", "exp": now.Add(-time.Hour).Unix()}),
	} {
		got, err := signer(t, key).Open(text)
		if !errors.Is(err, ticket.ErrForged) || got != (ticket.Ticket{}) {
			t.Errorf("%s: opened %+v, %v", name, got, err)
		}
	}
	late := sign(t, jwt.SigningMethodHS256, mine, with("exp", now.Add(-time.Second).Unix()))
	if got, err := signer(t, key).Open(late); !errors.Is(err, ticket.ErrExpired) || got.Owner != "u-17" {
		t.Errorf("a late ticket: %+v, %v", got, err)
	}
}

func TestNotSigned(t *testing.T) {
	t.Parallel()
	if _, err := ticket.NewSigner("short", time.Now); err == nil {
		t.Error("a short key was taken")
	}
	for name, of := range map[string]ticket.Ticket{
		"no owner": {ExpiresAt: now.Add(time.Hour)}, "no end": {Owner: "u"}, "past": {Owner: "u", ExpiresAt: now},
		"too far": {Owner: "u", ExpiresAt: now.Add(8 * 24 * time.Hour)}, "too long": {Owner: strings.Repeat("u", 5000), ExpiresAt: now.Add(time.Hour)},
	} {
		if text, err := signer(t, key).Sign(of); err == nil || text != "" {
			t.Errorf("%s was signed", name)
		}
	}
}
