package gmailapi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mail"
)

// credentials keeps what Gmail is called with.
type credentials interface {
	// Credential returns an account's credential; where there is none, that is a fault.ReauthRequired.
	Credential(ctx context.Context, account string) (mail.Credential, error)
	// SaveCredential replaces the credential that was read. It returns false where another write came
	// first.
	SaveCredential(ctx context.Context, account string, read, become mail.Credential) (bool, error)
}

// A sealer encrypts secrets with an account's id as associated data.
type sealer interface {
	Seal(secret, account string) ([]byte, error)
	Open(sealed []byte, account string) (string, error)
}

const (
	tokenTimeout = 4 * time.Second
	// freshFor is how long an access token must still be good to be used.
	freshFor = time.Minute
)

// tokens gives out access tokens: from memory, else from the store, else in the way of the credential's
// kind. A refresh that fails changes nothing that is stored.
type tokens struct {
	ways        map[mail.CredentialKind]way
	credentials credentials
	keyset      sealer
	now         func() time.Time

	mu    sync.Mutex
	fresh map[string]accessToken // by account
}

type accessToken struct {
	value   string
	expires time.Time
}

func newTokens(ways map[mail.CredentialKind]way, credentials credentials, keyset sealer, now func() time.Time) *tokens {
	return &tokens{ways: ways, credentials: credentials, keyset: keyset, now: now, fresh: map[string]accessToken{}}
}

// get returns an access token. refused is one that Gmail has just refused, or empty: it is not given
// out again.
func (t *tokens) get(ctx context.Context, account, refused string) (string, error) {
	usable := func(a accessToken) bool {
		return a.value != "" && a.value != refused && a.expires.After(t.now().Add(freshFor))
	}
	t.mu.Lock()
	token := t.fresh[account]
	t.mu.Unlock()
	if usable(token) {
		return token.value, nil
	}
	credential, err := t.credentials.Credential(ctx, account)
	if err != nil {
		return "", err
	}
	if len(credential.AccessToken) > 0 {
		value, err := t.keyset.Open(credential.AccessToken, account)
		if err != nil {
			return "", fault.Transient(fault.TokenUnavailable, err)
		}
		token = accessToken{value, credential.AccessExpiresAt}
	}
	if !usable(token) {
		if token, err = t.refresh(ctx, account, credential); err != nil {
			return "", err
		}
	}
	t.mu.Lock()
	t.fresh[account] = token
	t.mu.Unlock()
	return token.value, nil
}

// forget drops what is known of an account's tokens.
func (t *tokens) forget(account string) {
	t.mu.Lock()
	delete(t.fresh, account)
	t.mu.Unlock()
}

func (t *tokens) refresh(ctx context.Context, account string, used mail.Credential) (accessToken, error) {
	secret, err := t.keyset.Open(used.Secret, account)
	if err != nil {
		return accessToken{}, fault.Transient(fault.TokenUnavailable, err)
	}
	way, known := t.ways[used.Kind]
	if !known {
		return accessToken{}, fault.Transient(fault.TokenUnavailable, fmt.Errorf("the credential of account %s is of the unknown kind %q", account, used.Kind))
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	token, next, err := way.token(ctx, secret)
	if err != nil {
		return accessToken{}, t.refused(ctx, account, used, err)
	}
	if token.expires.IsZero() {
		token.expires = t.now().Add(freshFor) // the server did not say; good for this call
	}
	return token, t.keep(ctx, account, used, secret, next, token)
}

// refused tells a grant that is lost from a server that is down. A grant may have been renewed while
// the old one was tried: that is no loss.
func (t *tokens) refused(ctx context.Context, account string, used mail.Credential, err error) error {
	if !errors.Is(err, errGrantLost) {
		return fault.Transient(fault.TokenUnavailable, fmt.Errorf("refresh the access token of account %s: %w", account, err))
	}
	current, readErr := t.credentials.Credential(ctx, account)
	if readErr != nil {
		return readErr
	}
	if string(current.Secret) != string(used.Secret) {
		return fault.Transient(fault.TokenUnavailable, fmt.Errorf("the grant of account %s was renewed meanwhile", account))
	}
	return fault.Permanent(fault.ReauthRequired, fmt.Errorf("account %s: %w", account, err))
}

// keep stores a new access token, and the refresh token where Google has rotated it. Whoever stored
// another meanwhile is left alone, except that a rotated refresh token must not be lost: the old one
// is no longer good.
func (t *tokens) keep(ctx context.Context, account string, used mail.Credential, old, rotated string, token accessToken) error {
	sealed, err := t.keyset.Seal(token.value, account)
	if err != nil {
		return err
	}
	become := used
	become.AccessToken, become.AccessExpiresAt = sealed, token.expires
	isRotated := rotated != "" && rotated != old
	if isRotated {
		if become.Secret, err = t.keyset.Seal(rotated, account); err != nil {
			return err
		}
	}
	for read := used; ; {
		saved, err := t.credentials.SaveCredential(ctx, account, read, become)
		if err != nil || saved || !isRotated {
			return err
		}
		if read, err = t.credentials.Credential(ctx, account); err != nil {
			return err
		}
		if string(read.Secret) != string(used.Secret) {
			return nil // linked again meanwhile: that grant stands
		}
		become.Version = read.Version
	}
}
