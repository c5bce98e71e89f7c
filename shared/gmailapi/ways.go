package gmailapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"mailyard.internal/mailyard/shared/mail"
)

// ReadOnly is the one scope that mailboxes are read with.
const ReadOnly = "https://www.googleapis.com/auth/gmail.readonly"

// scopes are what a mailbox is called with: the digests' sender sends, too, and no other.
func scopes(sender bool) []string {
	if sender {
		return []string{ReadOnly, SendScope}
	}
	return []string{ReadOnly}
}

// A way is how credentials of one kind get access tokens.
type way interface {
	// token exchanges a credential's secret for an access token. next is the secret from now on; empty
	// where it stays. An errGrantLost says that the secret never lets in again.
	token(ctx context.Context, secret string) (token accessToken, next string, err error)
}

// errGrantLost says that a credential is no longer good, and that only its owner can give another.
var errGrantLost = errors.New("the grant is revoked or expired")

// ways are those that a configuration knows.
func ways(c Config, sign signer, now func() time.Time) map[mail.CredentialKind]way {
	return map[mail.CredentialKind]way{
		mail.CredentialOAuth:     granted{consentConfig(c)},
		mail.CredentialDelegated: delegated{c.DelegationServiceAccount, c.OAuthTokenURL, c.DigestSender, sign, now},
	}
}

// granted is the way of a refresh token that the mailbox's owner granted.
type granted struct{ config oauth2.Config }

func (g granted) token(ctx context.Context, refreshToken string) (accessToken, string, error) {
	answer, err := g.config.TokenSource(ctx, &oauth2.Token{RefreshToken: refreshToken}).Token()
	if err != nil {
		return accessToken{}, "", tokenError(err, "invalid_grant")
	}
	return accessToken{answer.AccessToken, answer.Expiry}, answer.RefreshToken, nil
}

// A signer has a service account sign claims as a JSON Web Token, with a key that Google holds.
type signer func(ctx context.Context, serviceAccount, claims string) (string, error)

// delegated is the way of a mailbox whose domain's administrator lets a service account act for its
// users. The secret is the mailbox's address. No key is kept anywhere: Google signs.
type delegated struct {
	serviceAccount, tokenURL string
	sender                   string // the digests'
	sign                     signer
	now                      func() time.Time
}

// assertionLife is Google's longest.
const assertionLife = time.Hour

const jwtBearer = "urn:ietf:params:oauth:grant-type:jwt-bearer"

func (d delegated) token(ctx context.Context, address string) (accessToken, string, error) {
	if d.serviceAccount == "" {
		return accessToken{}, "", errors.New("MAILYARD_DELEGATION_SERVICE_ACCOUNT is not set; write the service account to which the domain has delegated its mailboxes")
	}
	issued := d.now()
	sender := d.sender != "" && mail.NormalizeAddress(address) == mail.NormalizeAddress(d.sender)
	claims, err := json.Marshal(map[string]any{
		"iss": d.serviceAccount, "sub": address, "scope": strings.Join(scopes(sender), " "), "aud": d.tokenURL,
		"iat": issued.Unix(), "exp": issued.Add(assertionLife).Unix(),
	})
	if err != nil {
		return accessToken{}, "", err
	}
	assertion, err := d.sign(ctx, d.serviceAccount, string(claims))
	if err != nil {
		return accessToken{}, "", fmt.Errorf("have %s sign: %w", d.serviceAccount, err)
	}
	exchange := clientcredentials.Config{
		TokenURL: d.tokenURL, AuthStyle: oauth2.AuthStyleInParams,
		EndpointParams: map[string][]string{"grant_type": {jwtBearer}, "assertion": {assertion}},
	}
	answer, err := exchange.Token(ctx)
	if err != nil {
		// The address has no mailbox (any more), or the administrator has not delegated, or no longer does.
		return accessToken{}, "", tokenError(err, "invalid_grant", "unauthorized_client", "access_denied")
	}
	return accessToken{answer.AccessToken, answer.Expiry}, "", nil
}

// tokenError tells a grant that is lost, by the token server's words for that, from a server that is
// down. Of the answer it keeps what cannot hold a secret: its body may repeat the request.
func tokenError(err error, lost ...string) error {
	var answer *oauth2.RetrieveError
	switch {
	case !errors.As(err, &answer):
		return err
	case slices.Contains(lost, answer.ErrorCode):
		return fmt.Errorf("%w (%s)", errGrantLost, answer.ErrorCode)
	case answer.Response != nil:
		return fmt.Errorf("the token server answered %d %s", answer.Response.StatusCode, http.StatusText(answer.Response.StatusCode))
	}
	return errors.New("the token server's answer holds no token")
}
