// Package ticket signs and checks the tickets with which an app's backend lets a person link a mailbox.
//
// A ticket is a JSON Web Token, signed with HMAC-SHA256 and MAILYARD_CONNECT_KEY, so that a backend in
// any language can make one with a library it has:
//
//	{"aud": "mailyard-connect", "sub": "<owner>", "jti": "<nonce>", "exp": <Unix time>,
//	 "return_to": "<URL, or left out>", "sender": <true for the digests' sender, or left out>}
//
// The audience keeps it apart from whatever else the key signs. Anyone can read a ticket, as it stands
// in a URL: the owner must be an id and not an address. Whether a nonce has been used before is for who
// opens the ticket to see.
package ticket

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// MinKey is how long the key must be at least, in bytes: a shorter one could be guessed.
const MinKey = 32

// Longest is how long a ticket may be good for.
const Longest = 7 * 24 * time.Hour

const (
	audience = "mailyard-connect"
	maxText  = 4096 // bytes of a ticket, and of each of its parts
)

// A Ticket says who may link a mailbox, once.
type Ticket struct {
	Owner     string // whose account it is to be, as the app names its users
	ReturnTo  string // the URL where the person goes in the end; empty for nowhere
	Sender    bool   // the mailbox is to be the digests' sender: its owner is asked for the right to send, too
	Nonce     string // by which the ticket is used once; empty has [Signer.Sign] make one
	ExpiresAt time.Time
}

// Why a ticket is refused. Neither error repeats any of it.
var (
	// ErrExpired says that the ticket was good, and is returned together with the ticket.
	ErrExpired = errors.New("the ticket has expired")
	ErrForged  = errors.New("the ticket was not signed with this key, or is not complete")
)

// A Signer signs and opens tickets.
type Signer struct {
	key []byte
	now func() time.Time
}

// NewSigner returns a signer with MAILYARD_CONNECT_KEY.
func NewSigner(key string, now func() time.Time) (*Signer, error) {
	if len(key) < MinKey {
		return nil, fmt.Errorf("the key is shorter than %d characters", MinKey)
	}
	return &Signer{[]byte(key), now}, nil
}

type claims struct {
	ReturnTo string `json:"return_to,omitempty"`
	Sender   bool   `json:"sender,omitempty"`
	jwt.RegisteredClaims
}

// Sign writes a ticket. The owner and the end must be given.
func (s *Signer) Sign(t Ticket) (string, error) {
	switch left := t.ExpiresAt.Sub(s.now()); {
	case t.Owner == "":
		return "", errors.New("the ticket names no owner")
	case len(t.Owner) > maxText || len(t.ReturnTo) > maxText:
		return "", fmt.Errorf("owner and return-to may have %d bytes each", maxText)
	case left <= 0 || left > Longest:
		return "", fmt.Errorf("a ticket must be good for more than nothing and at most %v", Longest)
	}
	if t.Nonce == "" {
		t.Nonce = rand.Text()
	}
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, claims{t.ReturnTo, t.Sender, jwt.RegisteredClaims{
		Audience: jwt.ClaimStrings{audience}, Subject: t.Owner, ID: t.Nonce, ExpiresAt: jwt.NewNumericDate(t.ExpiresAt),
	}})
	return token.SignedString(s.key)
}

// Open checks a ticket's signature, audience and end, and returns it.
func (s *Signer) Open(text string) (Ticket, error) {
	if len(text) > 4*maxText {
		return Ticket{}, ErrForged
	}
	var c claims
	_, err := jwt.ParseWithClaims(text, &c, func(*jwt.Token) (any, error) { return s.key, nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithAudience(audience), jwt.WithExpirationRequired(),
		jwt.WithTimeFunc(s.now), jwt.WithStrictDecoding())
	// A ticket may be wrong in several ways; only one that is late and nothing else is called late.
	late := errors.Is(err, jwt.ErrTokenExpired) && !errors.Is(err, jwt.ErrTokenInvalidAudience) &&
		!errors.Is(err, jwt.ErrTokenNotValidYet) && !errors.Is(err, jwt.ErrTokenSignatureInvalid)
	switch {
	case err != nil && !late, c.Subject == "", c.ID == "", c.ExpiresAt == nil, c.ExpiresAt.Time.Sub(s.now()) > Longest:
		return Ticket{}, ErrForged
	}
	t := Ticket{c.Subject, c.ReturnTo, c.Sender, c.ID, c.ExpiresAt.Time}
	if late {
		return t, ErrExpired
	}
	return t, nil
}
