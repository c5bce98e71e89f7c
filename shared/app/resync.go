package app

import (
	"context"
	"net/http"

	"mailyard.internal/mailyard/functions/mailbox"
	"mailyard.internal/mailyard/shared/delivery"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

func (a *App) resync(ctx context.Context) (http.HandlerFunc, error) {
	p, err := a.parts(ctx)
	if err != nil {
		return nil, err
	}
	gmail, err := a.Gmail(ctx)
	if err != nil {
		return nil, err
	}
	resyncer := mailbox.NewResyncer(mailbox.ResyncPorts{
		Catalogue: p.catalogue, Accounts: p.db, Messages: p.db, Work: p.db, Gmail: gmail.Importer(),
		Resyncs: a.resyncs(p.stores), Publisher: p.bus, Now: a.now,
	})
	return p.server.Push(lane.ResyncRoute, func(m delivery.Message) (ledger.Subject, delivery.Work, error) {
		request, err := mailbox.DecodeResyncRequest(m.Data)
		subject := ledger.Subject{AccountID: request.AccountID}
		return subject, func(ctx context.Context) (mail.Outcome, error) { return resyncer.Handle(ctx, request) }, err
	}), nil
}

// Resyncs returns what asks for resyncs.
func (a *App) Resyncs(ctx context.Context) (*mailbox.Resyncs, error) {
	s, err := a.stores(ctx)
	if err != nil {
		return nil, err
	}
	return a.resyncs(s), nil
}

// Auditor returns what compares mailboxes with their mirrors.
func (a *App) Auditor(ctx context.Context) (*mailbox.Auditor, error) {
	catalogue, err := a.catalogue()
	if err != nil {
		return nil, err
	}
	db, err := a.DB(ctx)
	if err != nil {
		return nil, err
	}
	gmail, err := a.Gmail(ctx)
	if err != nil {
		return nil, err
	}
	return mailbox.NewAuditor(catalogue, gmail.Importer(), db), nil
}
