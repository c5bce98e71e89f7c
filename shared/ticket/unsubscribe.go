package ticket

import (
	"errors"

	"github.com/golang-jwt/jwt/v5"
)

// unsubscribeAudience keeps a digest's links apart from tickets, which are signed with the same key.
const unsubscribeAudience = "mailyard-unsubscribe"

// SignUnsubscribe writes the token by which a subscriber is taken off the digests, without a login. It
// names the subscriber by id alone, as it stands in a URL, and does not expire: a link in an old mail must
// still work.
func (s *Signer) SignUnsubscribe(subscriber string) (string, error) {
	if subscriber == "" || len(subscriber) > maxText {
		return "", errors.New("the token names no subscriber")
	}
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Audience: jwt.ClaimStrings{unsubscribeAudience}, Subject: subscriber,
	})
	return token.SignedString(s.key)
}

// OpenUnsubscribe checks a token's signature and audience, and returns its subscriber, or [ErrForged].
func (s *Signer) OpenUnsubscribe(text string) (string, error) {
	if len(text) > 4*maxText {
		return "", ErrForged
	}
	var c jwt.RegisteredClaims
	_, err := jwt.ParseWithClaims(text, &c, func(*jwt.Token) (any, error) { return s.key, nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithAudience(unsubscribeAudience),
		jwt.WithTimeFunc(s.now), jwt.WithStrictDecoding())
	if err != nil || c.Subject == "" {
		return "", ErrForged
	}
	return c.Subject, nil
}
