package gmailapi

import (
	"context"
	"sync"
	"time"

	"mailyard.internal/mailyard/shared/mail"
)

// A Trial calls Gmail with a credential that is not stored, to see whether it lets in, and where. It
// writes to no store, and neither closes an account's gate nor marks an account: a credential that is
// no good says nothing about an account that has a good one. Its errors are a [Client]'s.
type Trial struct {
	client *Client
	token  *held
}

// onTrial stands for the account in errors: whose the token is, is not known yet.
const onTrial = "to be linked"

// Try begins a trial of a credential's secret: a refresh token, or for a delegated mailbox its address.
// It makes no call yet.
func Try(c Config, kind mail.CredentialKind, secret string, now func() time.Time, options ...Option) (*Trial, error) {
	token := &held{credential: mail.Credential{Kind: kind, Secret: []byte(secret)}}
	client, err := New(c, unmarked{}, token, unsealed{}, now, options...)
	if err != nil {
		return nil, err
	}
	return &Trial{client, token}, nil
}

// Address gets the mailbox's address, as mail.NormalizeAddress gives it: 1 quota unit.
func (t *Trial) Address(ctx context.Context) (string, error) {
	p, err := t.client.Profile(ctx, onTrial)
	return p.Email, err
}

// CurrentHistoryID gets the mailbox's newest historyId: 1 quota unit.
func (t *Trial) CurrentHistoryID(ctx context.Context) (mail.HistoryID, error) {
	return t.client.CurrentHistoryID(ctx, onTrial)
}

// Watch asks for notifications: see [Client.Watch].
func (t *Trial) Watch(ctx context.Context, topic string) (mail.HistoryID, time.Time, error) {
	return t.client.Watch(ctx, onTrial, topic)
}

// Secret returns the secret to store: where Google has rotated the refresh token that was tried, the new
// one, as the other is no longer good.
func (t *Trial) Secret() string {
	t.token.mu.Lock()
	defer t.token.mu.Unlock()
	return string(t.token.credential.Secret)
}

// held keeps one credential in memory alone.
type held struct {
	mu         sync.Mutex
	credential mail.Credential
}

func (h *held) Credential(context.Context, string) (mail.Credential, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.credential, nil
}

func (h *held) SaveCredential(_ context.Context, _ string, _, become mail.Credential) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.credential = become
	return true, nil
}

// unsealed leaves secrets as they are: they leave this process only by being stored, and who stores
// them seals them.
type unsealed struct{}

func (unsealed) Seal(secret, _ string) ([]byte, error) { return []byte(secret), nil }
func (unsealed) Open(sealed []byte, _ string) (string, error) {
	return string(sealed), nil
}

// unmarked forgets what Gmail says about the account.
type unmarked struct{}

func (unmarked) BlockGmail(context.Context, string, time.Time) error { return nil }
func (unmarked) RequireReauth(context.Context, string) error         { return nil }
