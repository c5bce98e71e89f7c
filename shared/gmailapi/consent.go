package gmailapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"mailyard.internal/mailyard/shared/fault"
)

// consentConfig is the OAuth client's part of an exchange with Google.
func consentConfig(c Config) oauth2.Config {
	return oauth2.Config{
		ClientID: c.OAuthClientID, ClientSecret: c.OAuthClientSecret, Scopes: []string{ReadOnly},
		// Without a style the library tries both, so that one failure becomes two calls.
		Endpoint: oauth2.Endpoint{AuthURL: c.OAuthAuthURL, TokenURL: c.OAuthTokenURL, AuthStyle: oauth2.AuthStyleInParams},
	}
}

// A Consent asks a mailbox's owner for a refresh token, by Google's consent page and PKCE.
type Consent struct {
	config    oauth2.Config
	revokeURL string
}

// NewConsent returns what asks, and has Google send the person back to redirectURL.
func NewConsent(c Config, redirectURL string) *Consent {
	config := consentConfig(c)
	config.RedirectURL = redirectURL
	return &Consent{config, c.OAuthRevokeURL}
}

// Page is the consent page's URL; of the digests' sender it asks for the permission to send, too. It always
// asks: Google gives a refresh token only to who asks anew.
func (c *Consent) Page(state, verifier string, sender bool) string {
	config := c.config
	config.Scopes = scopes(sender)
	return config.AuthCodeURL(state, oauth2.AccessTypeOffline, oauth2.ApprovalForce, oauth2.S256ChallengeOption(verifier))
}

// RefreshToken exchanges the code that the person came back with. A code that was used before or is too
// old is a fault.CodeSpent; a consent without the permission to read mail, or of a sender to send it, a
// fault.NotPermitted, and one for an hour and no longer a fault.NotLasting.
func (c *Consent) RefreshToken(ctx context.Context, code, verifier string, sender bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := c.config.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		if err = tokenError(err, "invalid_grant"); errors.Is(err, errGrantLost) {
			return "", fault.Permanent(fault.CodeSpent, errors.New("the code was used before, or is too old"))
		}
		return "", fault.Transient(fault.TokenUnavailable, fmt.Errorf("exchange the code: %w", err))
	}
	given, told := answer.Extra("scope").(string)
	missing := slices.ContainsFunc(scopes(sender), func(scope string) bool { return !slices.Contains(strings.Fields(given), scope) })
	switch {
	case told && missing:
		return "", fault.Permanent(fault.NotPermitted, errors.New("a permission was not given"))
	case answer.RefreshToken == "":
		return "", fault.Permanent(fault.NotLasting, errors.New("no refresh token was given"))
	}
	return answer.RefreshToken, nil
}

// revoke ends a refresh token, and with it whatever Google has given this OAuth client for that mailbox.
// One that is no longer good is revoked already.
func (c *Consent) revoke(ctx context.Context, refreshToken string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	form := strings.NewReader(url.Values{"token": {refreshToken}}.Encode())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.revokeURL, form)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	client := http.Client{Timeout: callTimeout + time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return fault.Transient(fault.TokenUnavailable, fmt.Errorf("revoke the grant: %w", err))
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusBadRequest {
		return fault.Transient(fault.TokenUnavailable, fmt.Errorf("revoke the grant: the server answered %d %s", response.StatusCode, http.StatusText(response.StatusCode)))
	}
	return nil
}
