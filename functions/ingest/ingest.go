// Package ingest turns one Gmail notification into the events of everything that changed since the
// account's cursor.
//
// The cursor means that everything up to it has been published: so events are published and
// confirmed first, and the cursor advances after, by a write that never lets it go back. A crash
// anywhere in between publishes some events again, with the same ids; it loses none. Accounts of one
// mailbox don't hold each other up.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

// gmail lists what changed.
type gmail interface {
	// History gets one page of what changed after start: 2 quota units. Only an expired start is a
	// fault.HistoryExpired.
	History(ctx context.Context, account string, start mail.HistoryID, pageToken string) (lane.Page, error)
	// CurrentHistoryID gets the mailbox's newest historyId.
	CurrentHistoryID(ctx context.Context, account string) (mail.HistoryID, error)
}

// accounts keeps the cursors.
type accounts interface {
	// AccountsOf returns every account that holds the mailbox, by its normalised address.
	AccountsOf(ctx context.Context, email string) ([]mail.Account, error)
	// ChangeAccount replaces an account by what next makes of it. next may be called again when others
	// write at the same time; where it returns false nothing is written. An account that does not
	// exist is a fault.AccountGone.
	ChangeAccount(ctx context.Context, id string, next func(mail.Account) (mail.Account, bool)) error
}

// publisher puts events on their way.
type publisher interface {
	// PublishEvents publishes each event on its own lane's topic; nil means that all are confirmed.
	PublishEvents(ctx context.Context, events ...mail.Event) error
}

// resyncs asks for a whole mailbox to be compared with its mirror.
type resyncs interface {
	// RequestResync records a resync and asks for it, unless one of that id is open already.
	RequestResync(ctx context.Context, account, id, reason string) error
}

// failures are those of this function, in the ledger.
type failures interface {
	// ResolveOlder resolves what of the account failed in the consumer before that moment.
	ResolveOlder(ctx context.Context, account, consumer string, before time.Time) error
}

// Consumer is this function's name in the ledger.
const Consumer = "Ingest"

// asleepFor is when an account that may not call Gmail is looked at again.
const asleepFor = 10 * time.Minute

// recheckAfter is how far Gmail's index may lag behind its pushes: about a minute.
const recheckAfter = time.Minute

// Ports are what a Handler works with.
type Ports struct {
	Catalogue *lane.Catalogue
	Accounts  accounts
	Gmail     gmail
	Publisher publisher
	Resyncs   resyncs
	Failures  failures
	Now       func() time.Time
}

// A Handler lists mailboxes.
type Handler struct {
	Ports
	turns turns
}

// New returns a handler. One handler lists one mailbox once at a time.
func New(p Ports) *Handler { return &Handler{Ports: p} }

// Handle lists every account that holds the notified mailbox.
func (h *Handler) Handle(ctx context.Context, n mail.Notification) (mail.Outcome, error) {
	done, err := h.turns.take(ctx, n.Email)
	if err != nil {
		return "", err
	}
	defer done()
	accounts, err := h.Accounts.AccountsOf(ctx, n.Email)
	if err != nil {
		return "", fmt.Errorf("find the accounts of a notification: %w", err)
	}
	outcomes := make([]mail.Outcome, len(accounts))
	errs := make([]error, len(accounts))
	var wait sync.WaitGroup
	for i, account := range accounts {
		wait.Go(func() {
			outcomes[i], errs[i] = h.account(ctx, account, n)
			if fault.Is(errs[i], fault.AccountGone) { // unlinked while it was listed
				outcomes[i], errs[i] = mail.NoAccount, nil
			}
			errs[i] = fault.About(account.ID, errs[i])
		})
	}
	wait.Wait()
	return mostDone(outcomes), errors.Join(errs...)
}

// mostDone sums the accounts' outcomes up in one: that of the account for which most was done.
func mostDone(outcomes []mail.Outcome) mail.Outcome {
	for _, o := range []mail.Outcome{mail.Listed, mail.ResyncRequested, mail.Deferred, mail.Stale} {
		for _, outcome := range outcomes {
			if outcome == o {
				return o
			}
		}
	}
	return mail.NoAccount
}

func (h *Handler) account(ctx context.Context, a mail.Account, n mail.Notification) (mail.Outcome, error) {
	switch {
	case !a.Callable():
		return mail.NoAccount, nil
	case n.HistoryID < a.HistoryID:
		return mail.Stale, nil
	case a.GmailBlockedUntil.After(h.Now()):
		return h.putOff(ctx, a, a.GmailBlockedUntil)
	case a.HistoryID == 0:
		return h.begin(ctx, a)
	}
	return h.list(ctx, a, a.HistoryID, n)
}

// Recheck lists an account again from where its listing may have been incomplete, or was put off.
func (h *Handler) Recheck(ctx context.Context, a mail.Account) error {
	done, err := h.turns.take(ctx, a.Email)
	if err != nil {
		return err
	}
	defer done()
	switch {
	// Out of the way of those that can be listed: a tick takes on so many, the earliest first.
	case !a.Callable():
		err = h.sleep(ctx, a, h.Now().Add(asleepFor))
	case a.GmailBlockedUntil.After(h.Now()):
		err = h.sleep(ctx, a, a.GmailBlockedUntil)
	case a.HistoryID == 0:
		_, err = h.begin(ctx, a)
	default:
		_, err = h.list(ctx, a, min(a.RecheckFrom, a.HistoryID), mail.Notification{Email: a.Email})
	}
	if fault.Is(err, fault.AccountGone) { // unlinked meanwhile
		return nil
	}
	return err
}

// begin sets the first cursor. What the mailbox held before is a resync's to mirror.
func (h *Handler) begin(ctx context.Context, a mail.Account) (mail.Outcome, error) {
	current, err := h.Gmail.CurrentHistoryID(ctx, a.ID)
	if err != nil {
		return h.answer(ctx, a, err)
	}
	if err := h.Resyncs.RequestResync(ctx, a.ID, "first-"+current.String(), "no cursor yet"); err != nil {
		return "", err
	}
	return mail.ResyncRequested, h.change(ctx, a.ID, func(a mail.Account) (mail.Account, bool) {
		a.HistoryID = max(a.HistoryID, current)
		a.RecheckFrom, a.RecheckAt = 0, time.Time{}
		return a, true
	})
}

// list publishes what changed after start, page by page, and advances the cursor behind it.
func (h *Handler) list(ctx context.Context, a mail.Account, start mail.HistoryID, n mail.Notification) (mail.Outcome, error) {
	began := h.Now()
	listing := h.Catalogue.NewListing(a.ID)
	newest, inOrder := start, true
	for token := ""; ; {
		page, err := h.Gmail.History(ctx, a.ID, start, token)
		if err != nil {
			return h.answer(ctx, a, fmt.Errorf("list history of account %s after %d: %w", a.ID, start, err))
		}
		events := listing.Page(page.Records)
		for i := range events {
			events[i].Time, events[i].Traceparent = h.Now(), n.Traceparent
		}
		if err := h.Publisher.PublishEvents(ctx, events...); err != nil {
			return "", fmt.Errorf("publish %d events of account %s: %w", len(events), a.ID, err)
		}
		for _, r := range page.Records {
			inOrder = inOrder && r.ID >= newest
			newest = max(newest, r.ID)
		}
		if token = page.NextPageToken; token == "" {
			return mail.Listed, h.finish(ctx, a, start, max(page.HistoryID, a.HistoryID), newest, n, began)
		}
		// The last record may go on on the next page: one below it is all that is surely published.
		if inOrder && newest > start {
			if err := h.advance(ctx, a.ID, newest-1); err != nil {
				return "", err
			}
		}
	}
}

// finish records a complete listing: the cursor moves to the listing's own historyId.
func (h *Handler) finish(ctx context.Context, a mail.Account, start, listed, newest mail.HistoryID, n mail.Notification, began time.Time) error {
	err := h.change(ctx, a.ID, func(a mail.Account) (mail.Account, bool) {
		a.HistoryID = max(a.HistoryID, listed)
		if start <= a.RecheckFrom && !began.Before(a.RecheckAt) {
			a.RecheckFrom, a.RecheckAt = 0, time.Time{}
		}
		// Gmail pushed what its index does not show yet: list again from here in a while.
		if newest < n.HistoryID {
			a = recheck(a, start, h.Now().Add(recheckAfter))
		}
		if n.HistoryID != 0 {
			a.LastNotifiedAt = began
		}
		return a, true
	})
	if err != nil {
		return err
	}
	return h.Failures.ResolveOlder(ctx, a.ID, Consumer, began)
}

// recheck makes the account due to be listed again, from the lowest such cursor.
func recheck(a mail.Account, from mail.HistoryID, at time.Time) mail.Account {
	if a.RecheckAt.IsZero() || from < a.RecheckFrom {
		a.RecheckFrom = from
	}
	a.RecheckAt = at
	return a
}

func (h *Handler) advance(ctx context.Context, account string, to mail.HistoryID) error {
	return h.change(ctx, account, func(a mail.Account) (mail.Account, bool) {
		grows := to > a.HistoryID
		a.HistoryID = max(a.HistoryID, to)
		return a, grows
	})
}

func (h *Handler) change(ctx context.Context, account string, next func(mail.Account) (mail.Account, bool)) error {
	if err := h.Accounts.ChangeAccount(ctx, account, next); err != nil {
		return fmt.Errorf("advance the cursor of account %s: %w", account, err)
	}
	return nil
}

// answer deals with what Gmail says instead of listing.
func (h *Handler) answer(ctx context.Context, a mail.Account, err error) (mail.Outcome, error) {
	switch fault.CodeOf(err) {
	case fault.HistoryExpired:
		if err := h.Resyncs.RequestResync(ctx, a.ID, "expired-"+a.HistoryID.String(), "the cursor has expired"); err != nil {
			return "", err
		}
		// What was to be listed again is the resync's now.
		return mail.ResyncRequested, h.change(ctx, a.ID, func(a mail.Account) (mail.Account, bool) {
			due := !a.RecheckAt.IsZero()
			a.RecheckFrom, a.RecheckAt = 0, time.Time{}
			return a, due
		})
	case fault.ReauthRequired:
		return mail.NoAccount, nil
	case fault.Throttled, fault.ProjectThrottled:
		return h.putOff(ctx, a, fault.RetryAtOr(err, h.Now().Add(recheckAfter)))
	}
	return "", err
}

// putOff leaves the listing to Tick, so that one throttled mailbox does not slow the others down.
func (h *Handler) putOff(ctx context.Context, a mail.Account, until time.Time) (mail.Outcome, error) {
	return mail.Deferred, h.change(ctx, a.ID, func(a mail.Account) (mail.Account, bool) {
		return recheck(a, a.HistoryID, until), true
	})
}

// sleep moves a listing that is due to a later moment, from where it is due.
func (h *Handler) sleep(ctx context.Context, a mail.Account, until time.Time) error {
	return h.change(ctx, a.ID, func(a mail.Account) (mail.Account, bool) {
		due := !a.RecheckAt.IsZero() && a.RecheckAt.Before(until)
		if due {
			a.RecheckAt = until
		}
		return a, due
	})
}
