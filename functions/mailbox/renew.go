package mailbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
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
	// Failed is told of each account whose watch could not be renewed, and whether it ends within two days.
	Failed func(account string, aboutToLapse bool, err error)
	// Audited is told what an audit found.
	Audited func(account string, d Differences)
	Now     func() time.Time
}

// A Renew keeps watches alive, once an hour: those that end soonest first, each account for itself. It
// sets when a watch ends, and never the cursor. A mailbox that may have missed notifications is listed
// again by the ordinary way, and only when that is asked for does its renewal count as done: whatever ends
// in between, the next run does it all again.
//
// Accounts that may not call Gmail, or not now, are passed over; they are no failures.
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

// A renewals counts what one run did. It may be used by many goroutines.
type renewals struct {
	renewed, listed, failed atomic.Int64
	// stop is set when the whole project's quota is used up: no other account would fare better.
	stop atomic.Bool
}

// Run renews what is due and returns counts for the log. Each account that failed is told to Failed; the
// error names the first of them.
func (r *Renew) Run(ctx context.Context) ([]slog.Attr, error) {
	var done renewals
	var failures, err error
	for after := (mail.Account{}); !nearEnd(ctx) && !done.stop.Load(); {
		page, pageErr := r.Accounts.WatchesEnding(ctx, time.Time{}, r.Now().Add(renewBefore), after, renewPage)
		if pageErr != nil {
			err = fmt.Errorf("find the watches to renew: %w", pageErr)
			break
		}
		if pageErr := r.page(ctx, page, &done); failures == nil {
			failures = pageErr
		}
		if len(page) < renewPage {
			break
		}
		after = page[len(page)-1]
	}
	if failures != nil {
		err = errors.Join(err, fmt.Errorf("%d mailboxes failed, each named in a line of its own: %w", done.failed.Load(), failures))
	}
	if !done.stop.Load() {
		err = errors.Join(err, r.audit(ctx))
	}
	return []slog.Attr{
		slog.Int64("renewed", done.renewed.Load()), slog.Int64("listed_again", done.listed.Load()),
		slog.Int64("not_renewed", done.failed.Load()),
	}, err
}

func nearEnd(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) < stopBefore
}

// Lapsed renews watches that have ended within the last minutes: Tick's part, as an hour is long.
func (r *Renew) Lapsed(ctx context.Context, within time.Duration) (int, error) {
	page, err := r.Accounts.WatchesEnding(ctx, r.Now().Add(-within), r.Now(), mail.Account{}, tickBatch)
	if err != nil {
		return 0, fmt.Errorf("find the watches that have ended: %w", err)
	}
	var done renewals
	err = r.page(ctx, page, &done)
	return int(done.renewed.Load()), err
}

// page renews a page's accounts, a few at a time.
func (r *Renew) page(ctx context.Context, page []mail.Account, done *renewals) error {
	_, err := each(page, func(a mail.Account) (bool, error) {
		if !a.Callable() || a.GmailBlockedUntil.After(r.Now()) || nearEnd(ctx) || done.stop.Load() {
			return false, nil
		}
		err := r.renew(ctx, a, done)
		switch {
		case fault.Is(err, fault.ReauthRequired), fault.Is(err, fault.AccountGone):
			return false, nil // it is marked, and its owner has to link it again; or it was unlinked meanwhile
		case err == nil:
			return true, r.refreshLabels(ctx, a.ID)
		case fault.Is(err, fault.ProjectThrottled):
			done.stop.Store(true)
		}
		done.failed.Add(1)
		r.Failed(a.ID, a.WatchExpiresAt.Before(r.Now().Add(lapseSoon)), err)
		return false, fmt.Errorf("renew the watch of account %s: %w", a.ID, err)
	})
	return err
}

// renew renews one watch. The mailbox is listed where notifications may have been missed: asking for that
// comes before the record of the renewal, as it is by this record that nobody asks again.
func (r *Renew) renew(ctx context.Context, a mail.Account, done *renewals) error {
	newest, ends, err := r.Gmail.Watch(ctx, a.ID, r.Topic)
	if err != nil {
		return err
	}
	email, err := r.Gmail.Address(ctx, a.ID)
	if err != nil {
		return err
	}
	moved := email != a.Email // its owner has changed the primary address
	if moved {
		// Before the notification, which finds the account by it.
		if err := r.change(ctx, a.ID, func(a *mail.Account) { a.Email = email }); err != nil {
			return err
		}
	}
	lapsed := a.WatchExpiresAt.Before(r.Now())
	silent := a.LastNotifiedAt.Before(r.Now().Add(-silentFor))
	if moved || lapsed || silent {
		if err := r.notify(ctx, email, max(newest, a.HistoryID)); err != nil {
			return err
		}
		done.listed.Add(1)
	}
	if err := r.change(ctx, a.ID, func(a *mail.Account) {
		a.WatchExpiresAt = ends
		if a.AuditedAt.IsZero() {
			a.AuditedAt = a.CreatedAt
		}
	}); err != nil {
		return err
	}
	done.renewed.Add(1)
	return nil
}

func (r *Renew) change(ctx context.Context, account string, change func(*mail.Account)) error {
	return r.Accounts.ChangeAccount(ctx, account, func(a mail.Account) (mail.Account, bool) {
		change(&a)
		return a, true
	})
}

// refreshLabels keeps the names of a mailbox's labels, where labels are kept. The watch is renewed by
// then: that this failed is no failed renewal.
func (r *Renew) refreshLabels(ctx context.Context, account string) error {
	if !r.Catalogue.KeepsLabels() {
		return nil
	}
	labels, err := r.Gmail.Labels(ctx, account)
	if err == nil {
		err = r.Accounts.SaveLabels(ctx, account, labels)
	}
	if fault.Is(err, fault.ReauthRequired) || err == nil {
		return nil
	}
	return fmt.Errorf("refresh the label names of account %s: %w", account, err)
}

// notify puts on Gmail's topic what Gmail would have: a historyId that is not below the cursor, so that
// Ingest lists.
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
	err = r.change(ctx, a.ID, func(a *mail.Account) { a.AuditedAt = r.Now() })
	if fault.Is(err, fault.AccountGone) {
		err = nil
	}
	return errors.Join(failure, err)
}
