package app

import (
	"context"
	"errors"

	"mailyard.internal/mailyard/functions/deadletter"
	"mailyard.internal/mailyard/functions/mailbox"
	"mailyard.internal/mailyard/shared/gmailapi"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

// Catalogue returns the lanes.
func (a *App) Catalogue() (*lane.Catalogue, error) { return a.catalogue() }

// CheckDelegation refuses an environment in which no delegated mailbox can be read.
func (a *App) CheckDelegation() error {
	c, err := a.config()
	return errors.Join(err, c.CheckDelegation())
}

// Linker returns what links mailboxes.
func (a *App) Linker(ctx context.Context) (*mailbox.Linker, error) {
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	keys, err := a.Keyset()
	if err != nil {
		return nil, err
	}
	s, err := a.stores(ctx)
	if err != nil {
		return nil, err
	}
	return mailbox.NewLinker(mailbox.LinkPorts{
		Try: func(kind mail.CredentialKind, secret string) (mailbox.Trial, error) {
			return gmailapi.Try(c, kind, secret, a.now, a.calls...)
		},
		Keyset: keys, Credentials: s.db, Accounts: s.db, Resyncs: a.resyncs(s),
		Topic: notificationsTopic(c.Project), Now: a.now,
	}), nil
}

// Redriver returns what brings dead letters back.
func (a *App) Redriver(ctx context.Context) (*deadletter.Redriver, error) {
	s, err := a.stores(ctx)
	if err != nil {
		return nil, err
	}
	return a.redriver(s), nil
}
