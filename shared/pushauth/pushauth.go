// Package pushauth checks the token of a push: that Pub/Sub's own push account sent it, to us, now.
//
// Behind Cloud Run's IAM check the token has been verified and its signature cut off, so only its
// claims are checked again; elsewhere the signature is verified too.
package pushauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"google.golang.org/api/idtoken"
	"google.golang.org/api/option"

	"mailyard.internal/mailyard/shared/config"
)

// A Refusal is the answer to a push that may not come in.
type Refusal struct {
	Status int // 401 or 403
	Reason string
}

// Error returns the reason, which says nothing of the token itself.
func (r *Refusal) Error() string { return r.Reason }

// A Checker checks tokens as one configuration says. It may be used by many goroutines.
type Checker struct {
	mode     config.PushAuth
	audience string
	account  string
	certsURL string
	now      func() time.Time

	mu        sync.Mutex
	validator *idtoken.Validator
}

// New returns a checker. It does no I/O before the first check.
func New(c config.Config, now func() time.Time) *Checker {
	return &Checker{mode: c.PushAuth, audience: c.PushAudience, account: c.PushServiceAccount, certsURL: c.OIDCCertsURL, now: now}
}

// Check returns a *Refusal for a request whose token is missing, unreadable, expired, or for another
// audience (401), or of another account (403). Any other error means that the token could not be
// checked, as when the certificates cannot be had.
func (c *Checker) Check(r *http.Request) error {
	if c.mode == config.PushAuthOff {
		return nil
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return unauthorized("there is no bearer token")
	}
	payload, err := c.payload(r.Context(), token)
	if err != nil {
		return err
	}
	switch email, _ := payload.Claims["email"].(string); {
	case c.now().Unix() >= payload.Expires:
		return unauthorized("the token has expired")
	case c.audience != "" && payload.Audience != c.audience:
		return unauthorized("the token is for another audience")
	case payload.Issuer != "https://accounts.google.com" && payload.Issuer != "accounts.google.com":
		return unauthorized("the token is not Google's")
	case email != c.account || payload.Claims["email_verified"] == false:
		return &Refusal{http.StatusForbidden, "the token is of another account than the one that pushes"}
	}
	return nil
}

func (c *Checker) payload(ctx context.Context, token string) (*idtoken.Payload, error) {
	payload, err := idtoken.ParsePayload(token)
	if err != nil {
		return nil, unauthorized("the token cannot be read")
	}
	if c.mode == config.PushAuthIAM {
		return payload, nil
	}
	validator, err := c.oidc(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, certsTimeout)
	defer cancel()
	payload, err = validator.Validate(ctx, token, "")
	var unreachable *url.Error
	if errors.As(err, &unreachable) || errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("fetch the certificates of the push token's issuer: %w", err)
	}
	if err != nil {
		return nil, unauthorized("the token's signature is not valid")
	}
	return payload, nil
}

const certsTimeout = 4 * time.Second

// oidc builds the validator on first use; a failure is not remembered.
func (c *Checker) oidc(ctx context.Context) (*idtoken.Validator, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.validator != nil {
		return c.validator, nil
	}
	client := &http.Client{Transport: certsFrom{c.certsURL}, Timeout: certsTimeout}
	validator, err := idtoken.NewValidator(context.WithoutCancel(ctx), option.WithHTTPClient(client))
	if err != nil {
		return nil, fmt.Errorf("build the push token's validator: %w", err)
	}
	c.validator = validator
	return validator, nil
}

// certsFrom fetches the certificates from the configured place: the library knows only Google's.
type certsFrom struct{ url string }

func (t certsFrom) RoundTrip(r *http.Request) (*http.Response, error) {
	at, err := url.Parse(t.url)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL, r.Host = at, at.Host
	response, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("the certificates' server answered %d", response.StatusCode)
	}
	return response, err
}

func unauthorized(reason string) error { return &Refusal{http.StatusUnauthorized, reason} }
