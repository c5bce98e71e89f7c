package firestoredb

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/firestore"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mail"
)

func (db *DB) accountRef(id string) *firestore.DocumentRef {
	return db.client.Collection("accounts").Doc(id)
}

func encodeAccount(a mail.Account) fields {
	f := fields{"email": a.Email, "owner": a.Owner, "status": string(a.Status)}
	f.set("historyId", int64(a.HistoryID))
	f.set("recheckFrom", int64(a.RecheckFrom))
	f.set("recheckAt", a.RecheckAt)
	f.set("watchExpiresAt", a.WatchExpiresAt)
	f.set("gmailBlockedUntil", a.GmailBlockedUntil)
	f.set("lastNotifiedAt", a.LastNotifiedAt)
	f.set("auditedAt", a.AuditedAt)
	f.set("createdAt", a.CreatedAt)
	f.set("updatedAt", a.UpdatedAt)
	return f
}

func decodeAccount(snapshot *firestore.DocumentSnapshot) mail.Account {
	f := fields(snapshot.Data())
	return mail.Account{
		ID:                snapshot.Ref.ID,
		Email:             f.text("email"),
		Owner:             f.text("owner"),
		Status:            mail.Status(f.text("status")),
		HistoryID:         f.historyID("historyId"),
		RecheckFrom:       f.historyID("recheckFrom"),
		RecheckAt:         f.moment("recheckAt"),
		WatchExpiresAt:    f.moment("watchExpiresAt"),
		GmailBlockedUntil: f.moment("gmailBlockedUntil"),
		LastNotifiedAt:    f.moment("lastNotifiedAt"),
		AuditedAt:         f.moment("auditedAt"),
		CreatedAt:         f.moment("createdAt"),
		UpdatedAt:         f.moment("updatedAt"),
		Version:           snapshot.UpdateTime,
	}
}

func errAccountGone(id string) error {
	return fault.Permanent(fault.AccountGone, fmt.Errorf("there is no account %s", id))
}

func errBeingUnlinked(id string) error {
	return fault.Transient(fault.Conflict, fmt.Errorf("account %s is being unlinked; link it when that has ended (mailyard account remove %s goes on with it)", id, id))
}

// Account returns one account; one that does not exist is a fault.AccountGone, marked as
// fault.Unlinked where it was unlinked.
func (db *DB) Account(ctx context.Context, id string) (mail.Account, error) {
	snapshot, err := db.get(ctx, db.accountRef(id))
	switch {
	case err != nil:
		return mail.Account{}, err
	case snapshot == nil:
		return mail.Account{}, db.gone(ctx, id)
	}
	return decodeAccount(snapshot), nil
}

// AccountsOf returns every account that holds the mailbox, by its normalised address.
func (db *DB) AccountsOf(ctx context.Context, email string) ([]mail.Account, error) {
	return db.accounts(ctx, db.client.Collection("accounts").Where("email", "==", email), "accounts of a mailbox")
}

// Accounts returns every account, in the order of their ids.
func (db *DB) Accounts(ctx context.Context) ([]mail.Account, error) {
	return db.accounts(ctx, db.client.Collection("accounts").OrderBy(firestore.DocumentID, firestore.Asc), "accounts")
}

// AccountsAfter returns up to limit accounts in the order of their ids, beginning after that id; "" begins
// with the first.
func (db *DB) AccountsAfter(ctx context.Context, after string, limit int) ([]mail.Account, error) {
	q := db.client.Collection("accounts").OrderBy(firestore.DocumentID, firestore.Asc).Limit(limit)
	if after != "" {
		q = q.StartAfter(after)
	}
	return db.accounts(ctx, q, "accounts")
}

// CountAccounts counts the accounts of a status.
func (db *DB) CountAccounts(ctx context.Context, status mail.Status) (int, error) {
	return db.count(ctx, callTimeout, db.client.Collection("accounts").Where("status", "==", string(status)), "accounts")
}

// AccountsToRecheck returns accounts whose RecheckAt has come, earliest first.
func (db *DB) AccountsToRecheck(ctx context.Context, now time.Time, limit int) ([]mail.Account, error) {
	q := db.client.Collection("accounts").Where("recheckAt", "<=", now).OrderBy("recheckAt", firestore.Asc).Limit(limit)
	return db.accounts(ctx, q, "accounts to list again")
}

// WatchesEnding returns accounts whose watch ends within a time, its end excluded, soonest first, and
// only what comes after the given account (the zero Account for the first page).
func (db *DB) WatchesEnding(ctx context.Context, from, before time.Time, after mail.Account, limit int) ([]mail.Account, error) {
	q := db.client.Collection("accounts").Where("watchExpiresAt", ">=", from).Where("watchExpiresAt", "<", before).
		OrderBy("watchExpiresAt", firestore.Asc).OrderBy(firestore.DocumentID, firestore.Asc).Limit(limit)
	if after.ID != "" {
		q = q.StartAfter(after.WatchExpiresAt, after.ID)
	}
	return db.accounts(ctx, q, "watches that end")
}

// LeastAudited returns the account whose audit is longest ago; none if no account can be audited yet.
func (db *DB) LeastAudited(ctx context.Context) ([]mail.Account, error) {
	return db.accounts(ctx, db.client.Collection("accounts").OrderBy("auditedAt", firestore.Asc).Limit(1), "the account to audit")
}

// SaveLabels makes the names of an account's labels these.
func (db *DB) SaveLabels(ctx context.Context, account string, labels []mail.Label) error {
	names := db.accountRef(account).Collection("labels")
	snapshots, err := db.query(ctx, names.Query, "labels of account "+account)
	if err != nil {
		return err
	}
	known := map[string]string{}
	for _, snapshot := range snapshots {
		known[snapshot.Ref.ID] = fields(snapshot.Data()).text("name")
	}
	for _, label := range labels {
		if name, ok := known[label.ID]; !ok || name != label.Name {
			if err := db.put(ctx, names.Doc(label.ID), fields{"name": label.Name}); err != nil {
				return err
			}
		}
		delete(known, label.ID)
	}
	for id := range known {
		if err := db.remove(ctx, names.Doc(id)); err != nil {
			return err
		}
	}
	return nil
}

func (db *DB) accounts(ctx context.Context, q firestore.Query, what string) ([]mail.Account, error) {
	snapshots, err := db.query(ctx, q, what)
	accounts := make([]mail.Account, 0, len(snapshots))
	for _, snapshot := range snapshots {
		accounts = append(accounts, decodeAccount(snapshot))
	}
	return accounts, err
}

// ChangeAccount replaces an account by what next makes of it. next may be called again when others
// write at the same time; where it returns false nothing is written. An account that does not exist
// is a fault.AccountGone.
func (db *DB) ChangeAccount(ctx context.Context, id string, next func(mail.Account) (mail.Account, bool)) error {
	_, err := change(ctx,
		func() (mail.Account, error) { return db.Account(ctx, id) },
		next, func(read, become mail.Account) (bool, error) { return db.saveAccount(ctx, read, become) },
		"account "+id)
	return err
}

// EnsureAccount makes of the account what next says, also where there is none yet: next then sees
// one with its id alone. While the account is being unlinked it is not made again: that is a
// fault.Conflict.
func (db *DB) EnsureAccount(ctx context.Context, id string, next func(mail.Account) mail.Account) (mail.Account, error) {
	return change(ctx,
		func() (mail.Account, error) {
			if err := db.Linkable(ctx, id); err != nil {
				return mail.Account{}, err
			}
			snapshot, err := db.get(ctx, db.accountRef(id))
			if err != nil || snapshot == nil {
				return mail.Account{ID: id}, err
			}
			return decodeAccount(snapshot), nil
		},
		func(a mail.Account) (mail.Account, bool) { return next(a), true },
		func(read, become mail.Account) (bool, error) { return db.saveAccount(ctx, read, become) },
		"account "+id)
}

func (db *DB) saveAccount(ctx context.Context, read, become mail.Account) (bool, error) {
	if become.HistoryID > mail.MaxHistoryID {
		return false, fault.Permanent(fault.Malformed, fmt.Errorf("cursor of account %s: %d is more than Firestore holds", read.ID, become.HistoryID))
	}
	become.UpdatedAt = db.now()
	return db.replace(ctx, db.accountRef(read.ID), read.Version, encodeAccount(read), encodeAccount(become))
}

// BlockGmail closes the account's gate: nobody calls Gmail for it before that moment. An account that is
// gone has none.
func (db *DB) BlockGmail(ctx context.Context, id string, until time.Time) error {
	return db.changeIfThere(ctx, id, func(a mail.Account) (mail.Account, bool) {
		later := until.After(a.GmailBlockedUntil)
		if later {
			a.GmailBlockedUntil = until
		}
		return a, later
	})
}

// RequireReauth records that the account's grant is lost. An account that is gone needs none.
func (db *DB) RequireReauth(ctx context.Context, id string) error {
	return db.changeIfThere(ctx, id, func(a mail.Account) (mail.Account, bool) {
		was := a.Status
		if was == mail.StatusActive {
			a.Status = mail.StatusReauthRequired
		}
		return a, a.Status != was
	})
}

func (db *DB) changeIfThere(ctx context.Context, id string, next func(mail.Account) (mail.Account, bool)) error {
	err := db.ChangeAccount(ctx, id, next)
	if fault.Is(err, fault.AccountGone) {
		return nil
	}
	return err
}

func (db *DB) credentialRef(account string) *firestore.DocumentRef {
	return db.client.Collection("credentials").Doc(account)
}

// Credential returns an account's credential; where there is none, that is a fault.ReauthRequired.
func (db *DB) Credential(ctx context.Context, account string) (mail.Credential, error) {
	snapshot, err := db.get(ctx, db.credentialRef(account))
	switch {
	case err != nil:
		return mail.Credential{}, err
	case snapshot == nil:
		return mail.Credential{}, fault.Permanent(fault.ReauthRequired, fmt.Errorf("account %s has no credential", account))
	}
	f := fields(snapshot.Data())
	return mail.Credential{
		Kind:            mail.CredentialKind(f.text("kind")),
		Secret:          f.bytes("secret"),
		AccessToken:     f.bytes("accessToken"),
		AccessExpiresAt: f.moment("accessTokenExpiresAt"),
		UpdatedAt:       f.moment("updatedAt"),
		Version:         snapshot.UpdateTime,
	}, nil
}

// SaveCredential replaces the credential that was read, the zero Credential for none. It returns
// false where another write came first.
func (db *DB) SaveCredential(ctx context.Context, account string, read, become mail.Credential) (bool, error) {
	become.UpdatedAt = db.now()
	return db.replace(ctx, db.credentialRef(account), read.Version, encodeCredential(read), encodeCredential(become))
}

func encodeCredential(c mail.Credential) fields {
	f := fields{"kind": string(c.Kind)}
	f.set("secret", c.Secret)
	f.set("accessToken", c.AccessToken)
	f.set("accessTokenExpiresAt", c.AccessExpiresAt)
	f.set("updatedAt", c.UpdatedAt)
	return f
}
