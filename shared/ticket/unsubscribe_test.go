package ticket_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"mailyard.internal/mailyard/shared/ticket"
)

func TestUnsubscribeTokens(t *testing.T) {
	t.Parallel()
	s := signer(t, key)
	text, err := s.SignUnsubscribe("0123456789abcdef0123")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.OpenUnsubscribe(text); err != nil || got != "0123456789abcdef0123" {
		t.Errorf("%q, %v", got, err)
	}
	if again, err := s.SignUnsubscribe("0123456789abcdef0123"); err != nil || again != text {
		t.Errorf("a subscriber has two tokens: %v", err)
	}
	if _, err := s.Open(text); !errors.Is(err, ticket.ErrForged) {
		t.Errorf("the token of a mail links mailboxes: %v", err)
	}
	connect, err := s.Sign(ticket.Ticket{Owner: "u", Sender: true, ExpiresAt: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Open(connect); err != nil || !got.Sender {
		t.Errorf("%+v, %v", got, err)
	}
	parts := strings.Split(text, ".")
	claims := jwt.MapClaims{"aud": "mailyard-unsubscribe", "sub": "s"}
	for name, wrong := range map[string]string{
		"nothing": "", "a ticket": connect, "without a signature": parts[0] + "." + parts[1] + ".", "cut": text[:len(text)-3],
		"another key":  sign(t, jwt.SigningMethodHS256, []byte(strings.Repeat("x", 32)), claims),
		"no algorithm": sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims),
		"no subject":   sign(t, jwt.SigningMethodHS256, []byte(key), jwt.MapClaims{"aud": "mailyard-unsubscribe"}),
		"very long":    strings.Repeat("a", 1<<20),
	} {
		if got, err := s.OpenUnsubscribe(wrong); !errors.Is(err, ticket.ErrForged) || got != "" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := s.SignUnsubscribe(""); err == nil {
		t.Error("nobody's token was signed")
	}
}
