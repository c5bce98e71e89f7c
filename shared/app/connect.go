package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"mailyard.internal/mailyard/functions/mailbox"
	"mailyard.internal/mailyard/shared/config"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/gcplog"
	"mailyard.internal/mailyard/shared/gmailapi"
	"mailyard.internal/mailyard/shared/ticket"
)

// connectPath is where Connect answers below MAILYARD_PUBLIC_URL, for links and for Google alike.
const connectPath = "/Connect"

func (a *App) connect(ctx context.Context) (http.HandlerFunc, error) {
	c, err := a.config()
	if err := errors.Join(err, c.CheckLinks()); err != nil {
		return nil, err
	}
	tickets, err := a.signer(c)
	if err != nil {
		return nil, err
	}
	db, err := a.DB(ctx)
	if err != nil {
		return nil, err
	}
	linker, err := a.Linker(ctx)
	if err != nil {
		return nil, err
	}
	connector := mailbox.NewConnector(mailbox.ConnectPorts{
		Tickets: tickets, MayReturnTo: c.MayReturnTo, Connects: db,
		Consent: gmailapi.NewConsent(c, c.PublicURL+connectPath), Linker: linker, Sender: c.DigestSender, Now: a.now,
	})
	return mailbox.ConnectPage(connector, c.PublicURL, a.logVisit(c.Project)), nil
}

// signer returns what signs links and unsubscribe tokens.
func (a *App) signer(c config.Config) (*ticket.Signer, error) {
	signer, err := ticket.NewSigner(c.ConnectKey, a.now)
	if err != nil {
		return nil, fmt.Errorf("MAILYARD_CONNECT_KEY: %w", err)
	}
	return signer, nil
}

// logVisit writes the one log line of a visit. The request's URL is not in it: it holds what is secret.
func (a *App) logVisit(project string) func(*http.Request, mailbox.Visit, time.Duration) {
	return func(r *http.Request, v mailbox.Visit, took time.Duration) {
		level, code := slog.LevelInfo, ""
		attrs := []slog.Attr{
			slog.String("account", v.Account.ID), slog.String("outcome", string(v.Outcome)),
			slog.Int64("milliseconds", took.Milliseconds()), gcplog.Trace(project, r.Header.Get("traceparent")),
		}
		if v.Err != nil {
			level, code = slog.LevelWarn, string(fault.CodeOf(v.Err))
			attrs = append(attrs, slog.String("error", fault.Text(v.Err)))
		}
		if v.Outcome == mailbox.VisitFailed {
			level = slog.LevelError
		}
		attrs = append(attrs, gcplog.Labels("consumer", "Connect", "lane", "", "outcome", string(v.Outcome), "code", code))
		a.log.LogAttrs(context.Background(), level, "Connect "+string(v.Outcome), attrs...)
	}
}

// ConnectLink makes the link by which a mailbox's owner links it: what the app's backend does by itself.
func (a *App) ConnectLink(t ticket.Ticket) (string, error) {
	c, err := a.config()
	if err := errors.Join(err, c.CheckLinks()); err != nil {
		return "", err
	}
	if t.ReturnTo != "" && !c.MayReturnTo(t.ReturnTo) {
		return "", errors.New("nobody may be sent back there; write its origin, as https://app.example.com, into MAILYARD_CONNECT_ORIGINS, here and for the function Connect")
	}
	if t.Sender && c.DigestSender == "" {
		return "", errors.New("MAILYARD_DIGEST_SENDER is not set; write the address of the mailbox that is to send the digests, here and for the function Connect")
	}
	signer, err := a.signer(c)
	if err != nil {
		return "", err
	}
	text, err := signer.Sign(t)
	if err != nil {
		return "", err
	}
	return c.PublicURL + connectPath + "?" + url.Values{"ticket": {text}}.Encode(), nil
}

// Unlinker returns what takes accounts away.
func (a *App) Unlinker(ctx context.Context) (*mailbox.Unlinker, error) {
	db, err := a.DB(ctx)
	if err != nil {
		return nil, err
	}
	gmail, err := a.Gmail(ctx)
	if err != nil {
		return nil, err
	}
	return mailbox.NewUnlinker(mailbox.UnlinkPorts{Store: db, Gmail: gmail, Now: a.now}), nil
}
