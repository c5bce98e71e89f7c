package mailbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

// watched finds accounts by what is due.
type watched interface {
	// WatchesEnding returns accounts whose watch ends within a time, its end excluded, soonest first, and
	// only what comes after the given account (the zero Account for the first page).
	WatchesEnding(ctx context.Context, from, before time.Time, after mail.Account, limit int) ([]mail.Account, error)
	// LeastAudited returns the account whose audit is longest ago; none if there is no account.
	LeastAudited(ctx context.Context) ([]mail.Account, error)
	ChangeAccount(ctx context.Context, id string, next func(mail.Account) (mail.Account, bool)) error
	// SaveLabels makes the names of an account's labels these.
	SaveLabels(ctx context.Context, account string, labels []mail.Label) error
}

// watcher calls Gmail for renewals.
type watcher interface {
	// Watch asks for notifications on a topic: 100 quota units.
	Watch(ctx context.Context, account, topic string) (newest mail.HistoryID, ends time.Time, err error)
	// Address gets the mailbox's address, as mail.NormalizeAddress gives it: 1 quota unit.
	Address(ctx context.Context, account string) (string, error)
	labelLister
}

// RenewPorts are what a Renew works with.
type RenewPorts struct {
	Catalogue *lane.Catalogue
	Accounts  watched
	Gmail     watcher
	Publisher rawPublisher
	Auditor   *Auditor
	// Topic is the full name of the topic on which Gmail notifies.
	Topic string
	// AboutToLapse is told of a watch that could not be renewed and ends within two days.
	AboutToLapse func(account string, err error)
	// Audited is told what an audit found.
	Audited func(account string, d Differences)
	Now     func() time.Time
}

// A Renew keeps watches alive, once an hour: those that end soonest first, each account for itself. It
// sets when a watch ends, and never the cursor. A mailbox that may have missed notifications is listed
// again by the ordinary way.
type Renew struct{ RenewPorts }

// NewRenew returns a renew.
func NewRenew(p RenewPorts) *Renew { return &Renew{p} }

const (
	// A watch lasts 7 days and is renewed once a day: when less than 6 are left. So the renewals spread
	// over a day's hours as the links did.
	renewBefore = 6 * 24 * time.Hour
	// lapseSoon is when a watch that cannot be renewed is alerted.
	lapseSoon = 48 * time.Hour
	// silentFor is how long a mailbox may be without a notification before it is listed all the same.
	silentFor = 24 * time.Hour
	renewPage = 100
	// stopBefore is kept back of a run's time, so that what has been begun can end.
	stopBefore = 20 * time.Second
)

// Run renews what is due and returns counts for the log. Its error names each account that failed.
func (r *Renew) Run(ctx context.Context) ([]slog.Attr, error) {
	renewed, listed, failed, err := 0, 0, 0, error(nil)
	for after := (mail.Account{}); !nearEnd(ctx); {
		page, pageErr := r.Accounts.WatchesEnding(ctx, time.Time{}, r.Now().Add(renewBefore), after, renewPage)
		if pageErr != nil {
			err = errors.Join(err, fmt.Errorf("find the watches to renew: %w", pageErr))
			break
		}
		again := make(chan struct{}, len(page))
		n, errs := each(page, func(a mail.Account) (bool, error) {
			if !a.Callable() || a.GmailBlockedUntil.After(r.Now()) || nearEnd(ctx) {
				return false, nil
			}
			wasListed, err := r.renew(ctx, a)
			if wasListed {
				again <- struct{}{}
			}
			return err == nil, err
		})
		renewed, listed = renewed+n, listed+len(again)
		failed += countJoined(errs)
		err = errors.Join(err, errs)
		if len(page) < renewPage {
			break
		}
		after = page[len(page)-1]
	}
	if auditErr := r.audit(ctx); auditErr != nil {
		err = errors.Join(err, auditErr)
	}
	return []slog.Attr{slog.Int("renewed", renewed), slog.Int("listed_again", listed), slog.Int("not_renewed", failed)}, err
}

func nearEnd(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) < stopBefore
}

func countJoined(err error) int {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return len(joined.Unwrap())
	}
	return 0
}

// Lapsed renews watches that have ended within the last minutes: Tick's part, as an hour is long.
func (r *Renew) Lapsed(ctx context.Context, within time.Duration) (int, error) {
	page, err := r.Accounts.WatchesEnding(ctx, r.Now().Add(-within), r.Now(), mail.Account{}, tickBatch)
	if err != nil {
		return 0, fmt.Errorf("find the watches that have ended: %w", err)
	}
	return each(page, func(a mail.Account) (bool, error) {
		if !a.Callable() || a.GmailBlockedUntil.After(r.Now()) {
			return false, nil
		}
		_, err := r.renew(ctx, a)
		return err == nil, err
	})
}

// renew renews one watch, and has the mailbox listed where notifications may have been missed.
func (r *Renew) renew(ctx context.Context, a mail.Account) (listed bool, err error) {
	newest, ends, err := r.Gmail.Watch(ctx, a.ID, r.Topic)
	var email string
	if err == nil {
		email, err = r.Gmail.Address(ctx, a.ID)
	}
	switch {
	case fault.Is(err, fault.ReauthRequired):
		return false, nil // it is marked; its owner has to link it again
	case err != nil:
		if a.WatchExpiresAt.Before(r.Now().Add(lapseSoon)) {
			r.AboutToLapse(a.ID, err)
		}
		return false, fmt.Errorf("renew the watch of account %s: %w", a.ID, err)
	}
	err = r.Accounts.ChangeAccount(ctx, a.ID, func(a mail.Account) (mail.Account, bool) {
		a.WatchExpiresAt = ends
		a.Email = email // its owner may have changed the primary address
		if a.AuditedAt.IsZero() {
			a.AuditedAt = a.CreatedAt
		}
		return a, true
	})
	switch {
	case fault.Is(err, fault.AccountGone):
		return false, nil // unlinked meanwhile
	case err != nil:
		return false, err
	}
	if r.Catalogue.KeepsLabels() {
		labels, err := r.Gmail.Labels(ctx, a.ID)
		if err == nil {
			err = r.Accounts.SaveLabels(ctx, a.ID, labels)
		}
		if err != nil {
			return false, fmt.Errorf("refresh the label names of account %s: %w", a.ID, err)
		}
	}
	lapsed := a.WatchExpiresAt.Before(r.Now())
	silent := a.LastNotifiedAt.Before(r.Now().Add(-silentFor))
	if !lapsed && !silent {
		return false, nil
	}
	return true, r.notify(ctx, email, max(newest, a.HistoryID))
}

// notify puts on Gmail's topic what Gmail would have.
func (r *Renew) notify(ctx context.Context, email string, newest mail.HistoryID) error {
	data, err := json.Marshal(map[string]any{"emailAddress": email, "historyId": newest})
	if err != nil {
		return err
	}
	return r.Publisher.PublishRaw(ctx, lane.NotificationsTopic, data, nil)
}

// audit audits the mailbox whose audit is longest ago: one an hour, a few a day.
func (r *Renew) audit(ctx context.Context) error {
	accounts, err := r.Accounts.LeastAudited(ctx)
	if err != nil || len(accounts) == 0 || nearEnd(ctx) {
		return err
	}
	a := accounts[0]
	var failure error
	if a.Callable() && !a.GmailBlockedUntil.After(r.Now()) {
		var d Differences
		if d, failure = r.Auditor.Audit(ctx, a.ID, nil); failure == nil {
			r.Audited(a.ID, d)
		} else {
			failure = fmt.Errorf("audit account %s: %w", a.ID, failure)
		}
	}
	// Also after a failure, so that one mailbox does not keep all others from their turn.
	err = r.Accounts.ChangeAccount(ctx, a.ID, func(a mail.Account) (mail.Account, bool) {
		a.AuditedAt = r.Now()
		return a, true
	})
	if fault.Is(err, fault.AccountGone) {
		err = nil
	}
	return errors.Join(failure, err)
}
