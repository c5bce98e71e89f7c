package app

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"mailyard.internal/mailyard/functions/alerts"
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
	teller, err := a.teller(p.stores)
	if err != nil {
		return nil, err
	}
	return mailbox.NewRenew(mailbox.RenewPorts{
		Catalogue: p.catalogue, Accounts: p.db, Gmail: gmail, Publisher: p.bus, Auditor: auditor,
		Topic: notificationsTopic(p.server.Project),
		Failed: func(account string, aboutToLapse bool, err error) {
			a.logNotRenewed(account, aboutToLapse, err)
			if aboutToLapse {
				a.tellOfLapse(teller, account)
			}
		},
		Audited: a.logAudit, Now: a.now,
	}), nil
}

// tellOfLapse has people told that a watch is about to lapse. That this cannot be recorded is no failure
// of the renewal: the log line of the watch stands, and the next hour tries again.
func (a *App) tellOfLapse(teller *alerts.Teller, account string) {
	ctx, cancel := context.WithTimeout(context.Background(), tellWithin)
	defer cancel()
	err := teller.Notice(ctx, "watch-"+account, "A watch is about to lapse",
		"The watch of account "+account+" ends within two days, and could not be renewed. The log line \"Renew watch_about_to_lapse\" says why.")
	if err != nil {
		a.log.LogAttrs(ctx, slog.LevelWarn, "Renew alert_not_recorded", slog.String("account", account), slog.String("error", fault.Text(err)),
			gcplog.Labels("consumer", "Renew", "lane", "", "outcome", "alert_not_recorded", "code", string(fault.CodeOf(err))))
	}
}

// tellWithin bounds what an alert may take of a function that has more to do.
const tellWithin = 10 * time.Second

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
