package app

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"mailyard.internal/mailyard/functions/mailbox"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/gcplog"
)

// renewTimeout is below what Cloud Scheduler waits for an answer, 30 minutes at most.
const renewTimeout = 9 * time.Minute

func (a *App) renew(ctx context.Context) (http.HandlerFunc, error) {
	p, err := a.parts(ctx)
	if err != nil {
		return nil, err
	}
	renew, err := a.renewer(ctx, p)
	if err != nil {
		return nil, err
	}
	return p.server.Scheduled("Renew", renewTimeout, renew.Run), nil
}

func (a *App) renewer(ctx context.Context, p parts) (*mailbox.Renew, error) {
	gmail, err := a.Gmail(ctx)
	if err != nil {
		return nil, err
	}
	auditor, err := a.Auditor(ctx)
	if err != nil {
		return nil, err
	}
	return mailbox.NewRenew(mailbox.RenewPorts{
		Catalogue: p.catalogue, Accounts: p.db, Gmail: gmail, Publisher: p.bus, Auditor: auditor,
		Topic:  notificationsTopic(p.server.Project),
		Failed: a.logNotRenewed, Audited: a.logAudit, Now: a.now,
	}), nil
}

// logNotRenewed names an account whose watch could not be renewed: an error, which an alert counts, where
// the watch ends within two days, else a warning, as the next hour comes before that.
func (a *App) logNotRenewed(account string, aboutToLapse bool, err error) {
	level, outcome := slog.LevelWarn, "watch_not_renewed"
	if aboutToLapse {
		level, outcome = slog.LevelError, "watch_about_to_lapse"
	}
	a.log.LogAttrs(context.Background(), level, "Renew "+outcome,
		slog.String("account", account), slog.String("error", fault.Text(err)),
		gcplog.Labels("consumer", "Renew", "lane", "", "outcome", outcome, "code", string(fault.CodeOf(err))))
}

// logAudit writes what an audit found, for the metric of drift.
func (a *App) logAudit(account string, d mailbox.Differences) {
	level, outcome := slog.LevelInfo, "true"
	attrs := []slog.Attr{slog.String("account", account), slog.Int("missing", d.Missing), slog.Int("extra", d.Extra)}
	drift := d.Missing + d.Extra
	for field, n := range d.Flags {
		attrs = append(attrs, slog.Int(field, n))
		drift += n
	}
	if drift > 0 {
		level, outcome = slog.LevelWarn, "drifted"
	}
	attrs = append(attrs, slog.Int("drift", drift), gcplog.Labels("consumer", "Audit", "lane", "", "outcome", outcome, "code", ""))
	a.log.LogAttrs(context.Background(), level, "Audit "+outcome, attrs...)
}
