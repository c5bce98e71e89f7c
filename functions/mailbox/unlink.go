package mailbox

import (
	"context"
	"fmt"
	"maps"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mail"
)

// removals keeps accounts, and how far their unlinking is.
type removals interface {
	// Account returns one account; one that does not exist is a fault.AccountGone.
	Account(ctx context.Context, id string) (mail.Account, error)
	AccountsOf(ctx context.Context, email string) ([]mail.Account, error)
	OpenResyncs(ctx context.Context, account string) ([]mail.Resync, error)
	// Removal returns the record of an account's unlinking, or false where it was not unlinked.
	Removal(ctx context.Context, account string) (mail.Removal, bool, error)
	SaveRemoval(ctx context.Context, r mail.Removal) error
	// DropAccount removes the account's own document, so that from now on nobody finds the account.
	DropAccount(ctx context.Context, account string) error
	DropCredential(ctx context.Context, account string) error
	// Sweep removes everything that lies under an account and its entries in the ledger, and returns how
	// many documents there were of each kind.
	Sweep(ctx context.Context, account string, progress func(removed int)) (map[string]int, error)
	// Leftovers counts every document of an account.
	Leftovers(ctx context.Context, account string) (map[string]int, error)
}

// releaser ends what a link began at Google.
type releaser interface {
	// Release stops the mailbox's watch and revokes the grant.
	Release(ctx context.Context, account string) error
}

// UnlinkPorts are what an Unlinker works with.
type UnlinkPorts struct {
	Store removals
	Gmail releaser
	Now   func() time.Time
}

// An Unlinker takes accounts away, with all that Mailyard keeps of them.
//
// The account's own document goes first, so that whatever is in flight finds no account, is acknowledged
// and leaves nothing. Who has read the account before that may still write, for as long as one delivery
// can take; so it is swept until a sweep that began after that time finds nothing. Each step can be
// repeated: after a crash, unlinking again goes on.
type Unlinker struct{ UnlinkPorts }

// NewUnlinker returns an unlinker.
func NewUnlinker(p UnlinkPorts) *Unlinker { return &Unlinker{p} }

const (
	// quietAfter is longer than anyone can take from having read an account to the last write: a fetch
	// waits twice for its units (4 s) and for Gmail (5 s) with 3 s between, then writes (2.5 s), and if
	// that fails records the failure (2.5 s); with a reserve.
	quietAfter = 30 * time.Second
	// sweepAgainAfter is the pause after a sweep that found nothing.
	sweepAgainAfter = time.Second
)

// Unlink removes an account and returns how many documents of each kind there were. Watch and grant act
// on the mailbox, so they are ended only where no other account holds it. An account that was never there
// is a fault.AccountGone; one that is gone already is not.
func (u *Unlinker) Unlink(ctx context.Context, account string, progress func(removed int)) (map[string]int, error) {
	removed := map[string]int{}
	r, needed, err := u.begin(ctx, account)
	if err != nil || !needed {
		return removed, err
	}
	released := u.release(ctx, r)
	for {
		began := u.Now()
		found, err := u.Store.Sweep(ctx, account, progress)
		for kind, n := range found {
			removed[kind] += n
		}
		if err != nil {
			return removed, fmt.Errorf("remove what is kept of account %s: %w", account, err)
		}
		if len(found) > 0 {
			continue
		}
		if !began.Before(r.QuietAt) {
			break
		}
		select {
		case <-time.After(sweepAgainAfter):
		case <-ctx.Done():
			return removed, ctx.Err()
		}
	}
	if released != nil {
		return removed, fmt.Errorf("nothing is left of account %s but its credential, which is needed to end watch and grant; unlink it again to try that again: %w", account, released)
	}
	if err := u.Store.DropCredential(ctx, account); err != nil {
		return removed, fmt.Errorf("remove the credential of account %s: %w", account, err)
	}
	r.Email, r.EndedAt = "", u.Now()
	if err := u.Store.SaveRemoval(ctx, r); err != nil {
		return removed, fmt.Errorf("record that account %s is unlinked: %w", account, err)
	}
	return removed, nil
}

// begin records the removal, then takes the account away; or it goes on with one that began before. It
// returns false where there is nothing to do.
func (u *Unlinker) begin(ctx context.Context, id string) (mail.Removal, bool, error) {
	account, err := u.Store.Account(ctx, id)
	if fault.Is(err, fault.AccountGone) {
		return u.resume(ctx, id, err)
	}
	if err != nil {
		return mail.Removal{}, false, err
	}
	r := mail.Removal{AccountID: id, Email: account.Email, StartedAt: u.Now()}
	if r.QuietAt, err = u.quiet(ctx, id); err != nil {
		return r, false, err
	}
	if err := u.Store.SaveRemoval(ctx, r); err != nil {
		return r, false, fmt.Errorf("record that account %s is being unlinked: %w", id, err)
	}
	if err := u.Store.DropAccount(ctx, id); err != nil {
		return r, false, fmt.Errorf("take account %s away: %w", id, err)
	}
	return r, true, nil
}

// resume goes on with a removal, or sweeps what was left of an account that somebody else took away.
// Whether another account holds that mailbox cannot be known then, so nothing is ended at Google.
func (u *Unlinker) resume(ctx context.Context, id string, gone error) (mail.Removal, bool, error) {
	r, known, err := u.Store.Removal(ctx, id)
	if err != nil || known && r.Open() {
		return r, true, err
	}
	left, err := u.Store.Leftovers(ctx, id)
	switch {
	case err != nil:
		return r, false, err
	case len(left) > 0:
		return mail.Removal{AccountID: id, StartedAt: u.Now(), QuietAt: u.Now()}, true, nil
	case known:
		return r, false, nil
	}
	return r, false, gone
}

// quiet is when nobody is left who has read the account before now. A resync that is being worked on has
// its own time.
func (u *Unlinker) quiet(ctx context.Context, id string) (time.Time, error) {
	at := u.Now().Add(quietAfter)
	resyncs, err := u.Store.OpenResyncs(ctx, id)
	for _, r := range resyncs {
		if r.Claim != "" && r.DueAt.After(at) {
			at = r.DueAt
		}
	}
	return at, err
}

// release ends watch and grant, unless another account holds the mailbox. It looks after the account is
// gone: of two that are unlinked at once, at least the later one finds nobody.
func (u *Unlinker) release(ctx context.Context, r mail.Removal) error {
	if r.Email == "" {
		return nil
	}
	holders, err := u.Store.AccountsOf(ctx, r.Email)
	if err != nil || len(holders) > 0 {
		return err
	}
	return u.Gmail.Release(ctx, r.AccountID)
}

// Leftovers counts every document of an account by its kind. It changes nothing.
func (u *Unlinker) Leftovers(ctx context.Context, account string) (map[string]int, error) {
	left, err := u.Store.Leftovers(ctx, account)
	if err != nil {
		return nil, fmt.Errorf("count what is left of account %s: %w", account, err)
	}
	maps.DeleteFunc(left, func(_ string, n int) bool { return n == 0 })
	return left, nil
}
