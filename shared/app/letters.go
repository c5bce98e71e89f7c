package app

import (
	"context"
	"log/slog"
	"time"

	"mailyard.internal/mailyard/functions/alerts"
	"mailyard.internal/mailyard/functions/deadletter"
	"mailyard.internal/mailyard/functions/mailbox"
	"mailyard.internal/mailyard/shared/delivery"
	"mailyard.internal/mailyard/shared/gcplog"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/pubsubbus"
	"mailyard.internal/mailyard/shared/webhook"
)

// teller returns what tells people, or nobody where there is no webhook.
func (a *App) teller(s stores) (*alerts.Teller, error) {
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	hook, err := webhook.New(c, a.now)
	if hook == nil || err != nil {
		return alerts.New(s.db, s.db, nil, c.Project, a.now), err
	}
	return alerts.New(s.db, s.db, hook, c.Project, a.now), nil
}

// Operator returns what does to dead letters what a person asks for.
func (a *App) Operator(ctx context.Context) (*deadletter.Operator, error) {
	s, err := a.stores(ctx)
	if err != nil {
		return nil, err
	}
	return a.operator(ctx, s)
}

func (a *App) operator(ctx context.Context, s stores) (*deadletter.Operator, error) {
	catalogue, err := a.catalogue()
	if err != nil {
		return nil, err
	}
	shelf, err := a.shelf.open(func() (*pubsubbus.Shelf, error) {
		c, err := a.config()
		if err != nil {
			return nil, err
		}
		return pubsubbus.OpenShelf(ctx, c.Project, a.grpc...)
	})
	if err != nil {
		return nil, err
	}
	reader := delivery.NewLetterReader(catalogue)
	return deadletter.NewOperator(deadletter.OperatorPorts{
		Store: s.db, Redriver: a.redriver(s), Records: s.db, Events: reader, Now: a.now,
		Inspector: deadletter.NewInspector(shelf, s.db, s.bus, catalogue.Routes(), reader.ReadHeld),
	}), nil
}

// letterChores are what Tick does about dead letters: it brings back those that heal by themselves, sends
// alerts, tidies one -inspect subscription after the other, and logs how many letters are open.
func (a *App) letterChores(ctx context.Context, p parts) ([]mailbox.Chore, error) {
	operator, err := a.operator(ctx, p.stores)
	if err != nil {
		return nil, err
	}
	teller, err := a.teller(p.stores)
	if err != nil {
		return nil, err
	}
	return []mailbox.Chore{
		{Counts: "letters_healed", Do: deadletter.NewHealer(p.db, operator).Heal},
		{Counts: "alerts_sent", Do: teller.Due},
		{Counts: "letters_tidied", Do: func(ctx context.Context) (int, error) {
			topics := operator.Inspector.Topics()
			minute := a.now().Unix() / int64(time.Minute/time.Second)
			return operator.Inspector.Tidy(ctx, topics[minute%int64(len(topics))])
		}},
		{Counts: "letters_open", Do: func(ctx context.Context) (int, error) { return a.logOpenLetters(ctx, p) }},
	}, nil
}

// logOpenLetters writes a line for each function that has dead letters, from which the metrics of their
// number and age are made, and returns how many there are.
func (a *App) logOpenLetters(ctx context.Context, p parts) (int, error) {
	all := 0
	for _, r := range p.catalogue.Routes() {
		open, err := p.db.CountOfConsumer(ctx, r.EntryPoint, ledger.Dead)
		if err != nil {
			return all, err
		}
		if open == 0 {
			continue
		}
		oldest, some, err := p.db.OldestDead(ctx, "", r.EntryPoint)
		if err != nil {
			return all, err
		}
		if !some {
			continue // redriven just now
		}
		all += open
		a.log.LogAttrs(ctx, slog.LevelInfo, "Tick letters_open",
			slog.Int("open", open), slog.Int64("oldest_seconds", int64(a.now().Sub(oldest.DeadAt).Seconds())),
			gcplog.Labels("consumer", r.EntryPoint, "lane", oldest.Lane, "outcome", "letters_open", "code", ""))
	}
	return all, nil
}
