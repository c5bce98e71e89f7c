package firestoredb

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/firestore"

	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

func (db *DB) resyncRef(account, id string) *firestore.DocumentRef {
	return db.accountRef(account).Collection("resyncs").Doc(id)
}

func encodeResync(r mail.Resync) fields {
	if r.ID == "" {
		return fields{}
	}
	f := fields{
		"state": string(r.State), "reason": r.Reason,
		"done": int64(r.Done), "total": int64(r.Total), "missing": int64(r.Missing), "extra": int64(r.Extra),
	}
	flags := map[string]any{}
	for field, n := range r.Flags {
		flags[field] = int64(n)
	}
	f.set("flags", flags)
	f.set("baseline", int64(r.Baseline))
	f.set("startedAt", r.StartedAt)
	f.set("finishedAt", r.FinishedAt)
	f.set("labels", list(r.Labels))
	f.set("labelsListed", int64(r.LabelsListed))
	f.set("pageToken", r.PageToken)
	f.set("parts", int64(r.Parts))
	f.set("chunks", int64(r.Chunks))
	f.set("chunk", int64(r.Chunk))
	f.set("claim", r.Claim)
	f.set("dueAt", r.DueAt)
	return f
}

func decodeResync(snapshot *firestore.DocumentSnapshot) mail.Resync {
	f := fields(snapshot.Data())
	flags := map[string]int{}
	for field := range f.group("flags") {
		flags[field] = int(f.group("flags").number(field))
	}
	return mail.Resync{
		ID: snapshot.Ref.ID, AccountID: snapshot.Ref.Parent.Parent.ID,
		State: mail.ResyncState(f.text("state")), Reason: f.text("reason"), Baseline: f.historyID("baseline"),
		Done: int(f.number("done")), Total: int(f.number("total")),
		Missing: int(f.number("missing")), Extra: int(f.number("extra")), Flags: flags,
		StartedAt: f.moment("startedAt"), FinishedAt: f.moment("finishedAt"),
		Labels: f.texts("labels"), LabelsListed: int(f.number("labelsListed")), PageToken: f.text("pageToken"), Parts: int(f.number("parts")),
		Chunks: int(f.number("chunks")), Chunk: int(f.number("chunk")),
		Claim: f.text("claim"), DueAt: f.moment("dueAt"), Version: snapshot.UpdateTime,
	}
}

// Resync returns a resync that was recorded, or false where there is none of that id.
func (db *DB) Resync(ctx context.Context, account, id string) (mail.Resync, bool, error) {
	snapshot, err := db.get(ctx, db.resyncRef(account, id))
	if err != nil || snapshot == nil {
		return mail.Resync{}, false, err
	}
	return decodeResync(snapshot), true, nil
}

// openStates are those of a resync that is still to end.
var openStates = []string{string(mail.ResyncListing), string(mail.ResyncMending)}

// OpenResyncs returns an account's resyncs that have not ended, the oldest first.
func (db *DB) OpenResyncs(ctx context.Context, account string) ([]mail.Resync, error) {
	q := db.accountRef(account).Collection("resyncs").Where("state", "in", openStates)
	return db.resyncs(ctx, q, "open resyncs of account "+account)
}

// ResyncsDue returns open resyncs that nobody works on and whose next step is overdue.
func (db *DB) ResyncsDue(ctx context.Context, now time.Time, limit int) ([]mail.Resync, error) {
	q := db.client.CollectionGroup("resyncs").Where("dueAt", "<=", now).OrderBy("dueAt", firestore.Asc).Limit(limit)
	return db.resyncs(ctx, q, "resyncs that are due")
}

func (db *DB) resyncs(ctx context.Context, q firestore.Query, what string) ([]mail.Resync, error) {
	snapshots, err := db.query(ctx, q, what)
	resyncs := make([]mail.Resync, len(snapshots))
	for i, snapshot := range snapshots {
		resyncs[i] = decodeResync(snapshot)
	}
	slices.SortFunc(resyncs, func(a, b mail.Resync) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
	})
	return resyncs, err
}

// SaveResync replaces the record that was read, the zero Resync for none. It returns false where
// another write came first.
func (db *DB) SaveResync(ctx context.Context, read, become mail.Resync) (bool, error) {
	return db.replace(ctx, db.resyncRef(become.AccountID, become.ID), read.Version, encodeResync(read), encodeResync(become))
}

func (db *DB) partRef(r mail.Resync, part int) *firestore.DocumentRef {
	return db.resyncRef(r.AccountID, r.ID).Collection("listed").Doc(fmt.Sprintf("%06d", part))
}

func (db *DB) chunkRef(r mail.Resync, chunk int) *firestore.DocumentRef {
	return db.resyncRef(r.AccountID, r.ID).Collection("nominated").Doc(fmt.Sprintf("%06d", chunk))
}

// SaveListed keeps a part of a listing, over what was kept of that part before.
func (db *DB) SaveListed(ctx context.Context, r mail.Resync, part int, label string, ids []string) error {
	return db.put(ctx, db.partRef(r, part), fields{"label": label, "ids": []byte(strings.Join(ids, "\n"))})
}

// EachListed calls visit for every part that was kept, in order.
func (db *DB) EachListed(ctx context.Context, r mail.Resync, visit func(label string, ids []string)) error {
	for part := range r.Parts {
		snapshot, err := db.get(ctx, db.partRef(r, part))
		if err != nil {
			return err
		}
		if snapshot == nil {
			return fmt.Errorf("part %d of the listing of resync %s is gone", part, r.ID)
		}
		f := fields(snapshot.Data())
		var ids []string
		if text := string(f.bytes("ids")); text != "" {
			ids = strings.Split(text, "\n")
		}
		visit(f.text("label"), ids)
	}
	return nil
}

// SaveNominations keeps one chunk, over what was kept of that chunk before.
func (db *DB) SaveNominations(ctx context.Context, r mail.Resync, chunk int, nominations []mail.Nomination) error {
	items := make([]any, len(nominations))
	for i, n := range nominations {
		listed := map[string]any{}
		for field, value := range n.Listed {
			listed[field] = value
		}
		items[i] = map[string]any{"message": n.MessageID, "why": string(n.Why), "listed": listed}
		if n.Labels != nil {
			items[i].(map[string]any)["labels"] = list(n.Labels)
		}
	}
	return db.put(ctx, db.chunkRef(r, chunk), fields{"nominations": items, "mended": int64(0)})
}

// Nominations returns one chunk, and how many of it have been mended.
func (db *DB) Nominations(ctx context.Context, r mail.Resync, chunk int) ([]mail.Nomination, int, error) {
	snapshot, err := db.get(ctx, db.chunkRef(r, chunk))
	if err != nil {
		return nil, 0, err
	}
	if snapshot == nil {
		return nil, 0, fmt.Errorf("chunk %d of resync %s is gone", chunk, r.ID)
	}
	f := fields(snapshot.Data())
	items, _ := f["nominations"].([]any)
	nominations := make([]mail.Nomination, len(items))
	for i, item := range items {
		m, _ := item.(map[string]any)
		n := fields(m)
		nominations[i] = mail.Nomination{MessageID: n.text("message"), Why: mail.Why(n.text("why")), Listed: map[string]bool{}}
		for field := range n.group("listed") {
			nominations[i].Listed[field] = n.group("listed").flag(field)
		}
		if _, kept := n["labels"]; kept {
			nominations[i].Labels = append([]string{}, n.texts("labels")...)
		}
	}
	return nominations, int(f.number("mended")), nil
}

// SaveMended saves what became of a message together with how many of the chunk are mended, in one
// commit; a nil become leaves the message alone, one without an id drops it. It returns false where
// another write of the message came first.
func (db *DB) SaveMended(ctx context.Context, r mail.Resync, chunk, mended int, read mail.Message, become *mail.Message) (bool, error) {
	ref := db.messageRef(r.AccountID, read.ID)
	return db.commit(ctx, func(tx *firestore.Transaction) error {
		var err error
		switch {
		case become == nil:
		case become.ID == "":
			err = dropInto(tx, ref, read)
		default:
			err = db.saveInto(tx, ref, read, *become)
		}
		if err != nil {
			return err
		}
		return tx.Update(db.chunkRef(r, chunk), []firestore.Update{{Path: "mended", Value: int64(mended)}})
	}, "message "+r.AccountID+"/"+read.ID)
}

// ClearResync removes what was kept for the resync's steps.
func (db *DB) ClearResync(ctx context.Context, r mail.Resync) error {
	for part := range r.Parts {
		if err := db.remove(ctx, db.partRef(r, part)); err != nil {
			return err
		}
	}
	for chunk := range r.Chunks {
		if err := db.remove(ctx, db.chunkRef(r, chunk)); err != nil {
			return err
		}
	}
	return nil
}

// put writes a document that only its own process writes, and again in the same way.
func (db *DB) put(ctx context.Context, ref *firestore.DocumentRef, f fields) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := ref.Set(ctx, map[string]any(f)); err != nil {
		return failed(err, "write %s", ref.ID)
	}
	return nil
}

func (db *DB) remove(ctx context.Context, ref *firestore.DocumentRef) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := ref.Delete(ctx); err != nil {
		return failed(err, "remove %s", ref.ID)
	}
	return nil
}

const (
	// messagesPage is how many messages a comparison reads at once: of each some 100 bytes.
	messagesPage = 5000
	// pageTimeout bounds such a read. No push waits for it but the resync's own.
	pageTimeout = 30 * time.Second
)

// EachMessage calls visit for every message of an account, tombstones among them, in the order of their
// ids. Of each it reads only what a comparison needs: id, hasContent, deleted, flags and labels.
func (db *DB) EachMessage(ctx context.Context, account string, flags []lane.FlagRule, visit func(mail.Message)) error {
	paths := []string{"hasContent", "deleted", "labelIds"}
	for _, rule := range flags {
		paths = append(paths, rule.Field)
	}
	q := db.accountRef(account).Collection("messages").Select(paths...).OrderBy(firestore.DocumentID, firestore.Asc).Limit(messagesPage)
	for page := q; ; {
		snapshots, err := db.queryWithin(ctx, pageTimeout, page, "messages of account "+account)
		if err != nil {
			return err
		}
		for _, snapshot := range snapshots {
			f := fields(snapshot.Data())
			m := mail.Message{ID: snapshot.Ref.ID, HasContent: f.flag("hasContent"), Deleted: f.flag("deleted"), Flags: map[string]bool{}}
			for _, rule := range flags {
				if value, ok := f[rule.Field].(bool); ok {
					m.Flags[rule.Field] = value
				}
			}
			m.Labels = map[string]bool{}
			for _, label := range f.texts("labelIds") {
				m.Labels[label] = true
			}
			visit(m)
		}
		if len(snapshots) < messagesPage {
			return nil
		}
		page = q.StartAfter(snapshots[len(snapshots)-1].Ref.ID)
	}
}
