package firestoredb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/api/iterator"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/mail"
)

const (
	// keepRemovals is longer than Pub/Sub keeps any message: 31 days.
	keepRemovals = 40 * 24 * time.Hour
	// sweepPage is how many documents are removed by one commit, of messages twice as many: Firestore took
	// at most 500 for a long time, and more are no faster.
	sweepPage = 250
	// sweepTimeout bounds a commit with its repetitions, which others' writes of a document may cost.
	sweepTimeout  = 30 * time.Second
	sweepAttempts = 20
)

func (db *DB) removalRef(account string) *firestore.DocumentRef {
	return db.client.Collection("removals").Doc(account)
}

// Removal returns the record of an account's unlinking, or false where it was not unlinked.
func (db *DB) Removal(ctx context.Context, account string) (mail.Removal, bool, error) {
	snapshot, err := db.get(ctx, db.removalRef(account))
	if err != nil || snapshot == nil {
		return mail.Removal{}, false, err
	}
	return decodeRemoval(snapshot), true, nil
}

func decodeRemoval(snapshot *firestore.DocumentSnapshot) mail.Removal {
	f := fields(snapshot.Data())
	return mail.Removal{
		AccountID: snapshot.Ref.ID, Email: f.text("email"), StartedAt: f.moment("startedAt"),
		QuietAt: f.moment("quietAt"), EndedAt: f.moment("endedAt"),
	}
}

// SaveRemoval records how far an unlinking is.
func (db *DB) SaveRemoval(ctx context.Context, r mail.Removal) error {
	f := fields{"startedAt": r.StartedAt, "quietAt": r.QuietAt}
	f.set("email", r.Email)
	if !r.Open() {
		f["endedAt"], f["expireAt"] = r.EndedAt, r.EndedAt.Add(keepRemovals)
	}
	return db.put(ctx, db.removalRef(r.AccountID), f)
}

// Unlinked reports whether the account is gone because it was unlinked.
func (db *DB) Unlinked(ctx context.Context, account string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	snapshots, err := db.client.GetAll(ctx, []*firestore.DocumentRef{db.accountRef(account), db.removalRef(account)})
	if err != nil {
		return false, failed(err, "read account %s", account)
	}
	return !snapshots[0].Exists() && snapshots[1].Exists(), nil
}

// gone says of an account that does not exist whether it was unlinked. It costs a read, which only who
// comes too late has to pay.
func (db *DB) gone(ctx context.Context, account string) error {
	_, unlinked, err := db.Removal(ctx, account)
	switch {
	case err != nil:
		return err
	case unlinked:
		return fault.Unlinked(fmt.Errorf("account %s was unlinked", account))
	}
	return errAccountGone(account)
}

// Linkable is a fault.Conflict while the account is being unlinked.
func (db *DB) Linkable(ctx context.Context, account string) error {
	removal, known, err := db.Removal(ctx, account)
	if err == nil && known && removal.Open() {
		err = errBeingUnlinked(account)
	}
	return err
}

// CountMessages counts the messages of an account's mirror, tombstones among them.
func (db *DB) CountMessages(ctx context.Context, account string) (int, error) {
	return db.count(ctx, 10*callTimeout, db.accountRef(account).Collection(messagesCollection).Query, "messages of account "+account)
}

// DropAccount removes the account's own document, so that from now on nobody finds the account.
func (db *DB) DropAccount(ctx context.Context, account string) error {
	return db.remove(ctx, db.accountRef(account))
}

// DropCredential removes the account's credential.
func (db *DB) DropCredential(ctx context.Context, account string) error {
	return db.remove(ctx, db.credentialRef(account))
}

// Sweep removes everything that lies under an account, whether or not the account is there, its entries
// in the ledger, and its subscribers with their mailings. It returns how many documents there were of each kind, and tells of each as it
// goes. Who writes at the same time may leave something behind: sweep again.
func (db *DB) Sweep(ctx context.Context, account string, progress func(removed int)) (map[string]int, error) {
	found := map[string]int{}
	err := db.eachOf(ctx, account, func(kind string, refs []*firestore.DocumentRef) error {
		if err := db.removeAll(ctx, kind, refs); err != nil {
			return err
		}
		found[kind] += len(refs)
		progress(len(refs))
		return nil
	})
	return found, err
}

// Leftovers counts every document of an account: its own, its credential, what lies under it, its entries
// in the ledger, and its subscribers with their mailings. A message and its body count as one. It changes nothing.
func (db *DB) Leftovers(ctx context.Context, account string) (map[string]int, error) {
	left := map[string]int{}
	for kind, ref := range map[string]*firestore.DocumentRef{"account": db.accountRef(account), "credential": db.credentialRef(account)} {
		snapshot, err := db.get(ctx, ref)
		if err != nil {
			return nil, err
		}
		if snapshot != nil {
			left[kind] = 1
		}
	}
	err := db.eachOf(ctx, account, func(kind string, refs []*firestore.DocumentRef) error {
		left[kind] += len(refs)
		return nil
	})
	return left, err
}

// eachOf visits the documents of an account page by page: those of each collection under it, named by
// the collection, its ledger entries, and its subscribers and their mailings. Documents under a document
// are visited before it.
func (db *DB) eachOf(ctx context.Context, account string, visit func(kind string, refs []*firestore.DocumentRef) error) error {
	collections, err := db.client.Doc("accounts/" + account).Collections(ctx).GetAll()
	if err != nil {
		return failed(err, "find what lies under account %s", account)
	}
	for _, c := range collections {
		if err := db.eachUnder(ctx, c, visit); err != nil {
			return err
		}
	}
	for _, name := range []string{"failures", subscribersCollection, mailingsCollection} {
		found := db.client.Collection(name).Where("accountId", "==", account).Select()
		err := eachPage(found.Documents(ctx), func(s *firestore.DocumentSnapshot) *firestore.DocumentRef { return s.Ref },
			func(refs []*firestore.DocumentRef) error { return visit(name, refs) })
		if err != nil {
			return err
		}
	}
	return nil
}

// eachUnder visits a collection's documents, those too that are not there but have something under
// them. Of messages it is known what lies under them: asking each would cost a call for each.
func (db *DB) eachUnder(ctx context.Context, c *firestore.CollectionRef, visit func(string, []*firestore.DocumentRef) error) error {
	return eachPage(c.DocumentRefs(ctx), func(ref *firestore.DocumentRef) *firestore.DocumentRef { return ref },
		func(refs []*firestore.DocumentRef) error {
			if c.ID != messagesCollection {
				for _, ref := range refs {
					under, err := ref.Collections(ctx).GetAll()
					if err != nil {
						return failed(err, "find what lies under %s", ref.ID)
					}
					for _, c := range under {
						if err := db.eachUnder(ctx, c, visit); err != nil {
							return err
						}
					}
				}
			}
			return visit(c.ID, refs)
		})
}

const messagesCollection = "messages"

// eachPage hands on what an iterator finds, up to sweepPage at once.
func eachPage[T any](
	found interface{ Next() (T, error) }, refOf func(T) *firestore.DocumentRef, visit func([]*firestore.DocumentRef) error,
) error {
	var page []*firestore.DocumentRef
	for {
		item, err := found.Next()
		if err != nil && !errors.Is(err, iterator.Done) {
			return failed(err, "find the documents of an account")
		}
		if err == nil {
			page = append(page, refOf(item))
		}
		if len(page) == sweepPage || err != nil && len(page) > 0 {
			if err := visit(page); err != nil {
				return err
			}
			page = nil
		}
		if err != nil {
			return nil
		}
	}
}

// removeAll removes documents in one commit, of messages the bodies too. Whether they are there does not
// matter, so a commit that is repeated does no harm.
func (db *DB) removeAll(ctx context.Context, kind string, refs []*firestore.DocumentRef) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	err := db.client.RunTransaction(ctx, func(_ context.Context, tx *firestore.Transaction) error {
		for _, ref := range refs {
			if kind == messagesCollection {
				if err := tx.Delete(bodyRef(ref)); err != nil {
					return err
				}
			}
			if err := tx.Delete(ref); err != nil {
				return err
			}
		}
		return nil
	}, firestore.MaxAttempts(sweepAttempts))
	if err != nil {
		return failed(err, "remove %s", kind)
	}
	return nil
}
