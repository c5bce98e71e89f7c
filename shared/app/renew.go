package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
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
	var lapsing atomic.Int64
	renew, err := a.renewer(ctx, p, func() { lapsing.Add(1) })
	if err != nil {
		return nil, err
	}
	teller, err := a.teller(p.stores)
	if err != nil {
		return nil, err
	}
	return p.server.Scheduled("Renew", renewTimeout, func(ctx context.Context) ([]slog.Attr, error) {
		counts, err := renew.Run(ctx)
		if n := lapsing.Swap(0); n > 0 {
			err = errors.Join(err, tellOfLapses(ctx, teller, n))
		}
		return counts, err
	}), nil
}

// tellOfLapses has people told, once a day, that watches are about to lapse.
func tellOfLapses(ctx context.Context, teller *alerts.Teller, watches int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellWithin)
	defer cancel()
	return teller.Notice(ctx, "watches", fmt.Sprintf("Watches about to lapse: %d", watches),
		"They end within two days, or have ended, and could not be renewed. Without a watch Gmail tells of no change.",
		`The log lines "Renew watch_about_to_lapse" name the accounts, and say why.`)
}

// tellWithin bounds what an alert may take of a function that has more to do.
const tellWithin = 10 * time.Second

// renewer returns what renews watches; lapsing is called for each that is about to lapse.
func (a *App) renewer(ctx context.Context, p parts, lapsing func()) (*mailbox.Renew, error) {
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
		Topic: notificationsTopic(p.server.Project),
		Failed: func(account string, aboutToLapse bool, err error) {
			a.logNotRenewed(account, aboutToLapse, err)
			if aboutToLapse {
				lapsing()
			}
		},
		Audited: a.logAudit, Now: a.now,
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
