package mailbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mail"
)

// A Trial calls Gmail with a credential that is not stored yet.
type Trial interface {
	// Address gets the mailbox's normalised address.
	Address(ctx context.Context) (string, error)
	// Watch asks for notifications on a topic. It returns the newest historyId, and when the watch ends.
	Watch(ctx context.Context, topic string) (mail.HistoryID, time.Time, error)
	// CurrentHistoryID gets the mailbox's newest historyId.
	CurrentHistoryID(ctx context.Context) (mail.HistoryID, error)
	// Secret returns the secret to store; a refresh token Google may have rotated.
	Secret() string
}

// A sealer encrypts a secret with an account's id as associated data.
type sealer interface {
	Seal(secret, account string) ([]byte, error)
}

// credentials keeps what Gmail is called with.
type credentials interface {
	// Credential returns an account's credential; where there is none, that is a fault.ReauthRequired.
	Credential(ctx context.Context, account string) (mail.Credential, error)
	// SaveCredential replaces the credential that was read, the zero Credential for none. It returns
	// false where another write came first.
	SaveCredential(ctx context.Context, account string, read, become mail.Credential) (bool, error)
}

// linked keeps accounts.
type linked interface {
	// Linkable is a fault.Conflict while the account is being unlinked.
	Linkable(ctx context.Context, id string) error
	// EnsureAccount makes of the account what next says, also where there is none yet: next then sees
	// one with its id alone. It may be called again when others write at the same time.
	EnsureAccount(ctx context.Context, id string, next func(mail.Account) mail.Account) (mail.Account, error)
	// ChangeAccount replaces an account by what next makes of it; where next returns false nothing is
	// written.
	ChangeAccount(ctx context.Context, id string, next func(mail.Account) (mail.Account, bool)) error
}

// resyncRequester asks for a resync, of one id once.
type resyncRequester interface {
	RequestResync(ctx context.Context, account, id, reason string) error
}

// LinkPorts are what a Linker works with.
type LinkPorts struct {
	// Try begins to call Gmail with a credential's secret.
	Try         func(kind mail.CredentialKind, secret string) (Trial, error)
	Keyset      sealer
	Credentials credentials
	Accounts    linked
	Resyncs     resyncRequester
	// Topic is the full name of the topic on which Gmail notifies.
	Topic string
	Now   func() time.Time
}

// A Linker links mailboxes to accounts, and links them again.
//
// Linking twice, also at the same time, makes one account. A grant is tried before anything is
// stored: one that is no good leaves no account behind, and an account that is there as it was. The
// credential is stored before the account is active, so nobody finds an active account without one.
type Linker struct{ LinkPorts }

// NewLinker returns a linker.
func NewLinker(p LinkPorts) *Linker { return &Linker{p} }

// A Grant is what an owner gives to have a mailbox linked.
type Grant struct {
	Owner string
	// Email is the address that the mailbox must have; empty takes the one that Gmail says.
	Email        string
	RefreshToken string
	// Delegated is for a mailbox whose domain lets a service account act for its users: there is no
	// refresh token, and Email says which mailbox it is.
	Delegated bool
	// NoResync leaves out the comparison of the whole mailbox: what it holds already is not mirrored.
	NoResync bool
}

// ErrOtherMailbox says that the grant is for another mailbox than the one that was named.
var ErrOtherMailbox = errors.New("the grant is of another mailbox than the address names; give that mailbox's own refresh token, or its primary address")

// linkTries is how often a credential is written while others write it too.
const linkTries = 20

// Link makes the grant's account active and returns it. A grant that is revoked is a
// fault.ReauthRequired, one for another mailbox is [ErrOtherMailbox]. Where the account was linked and
// only what follows failed, the account is returned together with the error; linking again is safe.
func (l *Linker) Link(ctx context.Context, g Grant) (mail.Account, error) {
	kind, secret := mail.CredentialOAuth, g.RefreshToken
	if g.Delegated {
		kind, secret = mail.CredentialDelegated, g.Email
	}
	trial, err := l.Try(kind, secret)
	if err != nil {
		return mail.Account{}, err
	}
	email, err := trial.Address(ctx)
	switch {
	case err != nil:
		return mail.Account{}, fmt.Errorf("try the grant: %w", err)
	case g.Email != "" && email != mail.NormalizeAddress(g.Email):
		return mail.Account{}, ErrOtherMailbox
	}
	newest, expires, err := trial.Watch(ctx, l.Topic)
	if err != nil {
		return mail.Account{}, fmt.Errorf("ask Gmail to notify on %s: %w", l.Topic, err)
	}
	id := mail.AccountID(g.Owner, email)
	if err := l.Accounts.Linkable(ctx, id); err != nil {
		return mail.Account{}, err
	}
	if err := l.store(ctx, id, kind, trial.Secret()); err != nil {
		return mail.Account{}, err
	}
	account, err := l.Accounts.EnsureAccount(ctx, id, func(a mail.Account) mail.Account {
		a.Email, a.Owner, a.Status = email, g.Owner, mail.StatusActive
		if a.HistoryID == 0 {
			a.HistoryID = newest
		}
		if expires.After(a.WatchExpiresAt) {
			a.WatchExpiresAt = expires
		}
		if a.CreatedAt.IsZero() {
			a.CreatedAt = l.Now()
		}
		return a
	})
	if err != nil {
		return mail.Account{}, fmt.Errorf("record account %s: %w", id, err)
	}
	if g.NoResync {
		return account, l.catchUp(ctx, account, trial)
	}
	// The id is of this act: a second request of the same is one resync.
	resync := "linked-" + strconv.FormatInt(l.Now().UnixMilli(), 10)
	return account, l.Resyncs.RequestResync(ctx, account.ID, resync, "the mailbox was linked")
}

// store replaces the account's credential, whoever else writes it: the grant that was given last is
// the one to use. The access token of another grant is not kept.
func (l *Linker) store(ctx context.Context, account string, kind mail.CredentialKind, secret string) error {
	sealed, err := l.Keyset.Seal(secret, account)
	if err != nil {
		return err
	}
	become := mail.Credential{Kind: kind, Secret: sealed}
	for range linkTries {
		read, err := l.Credentials.Credential(ctx, account)
		if err != nil && !fault.Is(err, fault.ReauthRequired) {
			return fmt.Errorf("store the credential of account %s: %w", account, err)
		}
		saved, err := l.Credentials.SaveCredential(ctx, account, read, become)
		if err != nil {
			return fmt.Errorf("store the credential of account %s: %w", account, err)
		}
		if saved {
			return nil
		}
	}
	return fault.Transient(fault.Conflict, fmt.Errorf("the credential of account %s kept changing", account))
}

// catchUp makes the account due to be listed where its mailbox has moved on: what was notified before
// the account was active found nobody, and the next notification may be long in coming. A resync would
// have found it.
func (l *Linker) catchUp(ctx context.Context, a mail.Account, trial Trial) error {
	current, err := trial.CurrentHistoryID(ctx)
	if err != nil {
		return fmt.Errorf("see whether account %s has missed anything: %w", a.ID, err)
	}
	if current <= a.HistoryID {
		return nil
	}
	err = l.Accounts.ChangeAccount(ctx, a.ID, func(now mail.Account) (mail.Account, bool) {
		if now.RecheckAt.IsZero() || a.HistoryID < now.RecheckFrom {
			now.RecheckFrom = a.HistoryID
		}
		now.RecheckAt = l.Now()
		return now, true
	})
	if err != nil {
		return fmt.Errorf("have account %s listed: %w", a.ID, err)
	}
	return nil
}
