package firestoredb

import (
	"context"
	"maps"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"mailyard.internal/mailyard/shared/alert"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
)

func (db *DB) failureRef(id string) *firestore.DocumentRef {
	return db.client.Collection("failures").Doc(id)
}

func encodeEntry(e ledger.Entry) fields {
	f := fields{"state": string(e.State), "attempts": int64(e.Attempts), "redrives": int64(e.Redrives)}
	f.set("lane", e.Lane)
	f.set("consumer", e.Consumer)
	f.set("topic", e.Topic)
	f.set("accountId", e.AccountID)
	f.set("messageId", e.MessageID)
	f.set("historyId", int64(e.HistoryID))
	f.set("eventId", e.EventID)
	f.set("data", e.Data)
	f.set("dataOmitted", e.DataOmitted)
	attributes := map[string]any{}
	for name, value := range e.Attributes {
		attributes[name] = value
	}
	f.set("attributes", attributes)
	f.set("code", string(e.Code))
	f.set("fingerprint", e.Fingerprint)
	f.set("error", e.Error)
	f.set("firstFailedAt", e.FirstFailedAt)
	f.set("lastFailedAt", e.LastFailedAt)
	f.set("deadAt", e.DeadAt)
	f.set("expireAt", e.ExpireAt)
	f.set("revision", e.Revision)
	f.set("trace", e.Trace)
	f.set("runs", encodeRuns(e.Runs))
	f.set("operation", e.Operation)
	f.set("redrivenAt", e.RedrivenAt)
	f.set("heals", int64(e.Heals))
	f.set("healAt", e.HealAt)
	f.set("discarded", e.Discarded)
	f.set("editedFrom", e.EditedFrom)
	f.set("editedTo", e.EditedTo)
	if e.Claim != (ledger.Claim{}) {
		f["claim"] = map[string]any{"operation": e.Claim.Operation, "token": e.Claim.Token, "at": e.Claim.At}
	}
	return f
}

func encodeRuns(runs []ledger.Run) []any {
	list := make([]any, len(runs))
	for i, r := range runs {
		f := fields{"id": r.ID, "at": r.At}
		f.set("code", string(r.Code))
		f.set("error", r.Error)
		f.set("revision", r.Revision)
		f.set("operation", r.Operation)
		list[i] = map[string]any(f)
	}
	return list
}

func decodeRuns(list []any) []ledger.Run {
	var runs []ledger.Run
	for _, item := range list {
		m, _ := item.(map[string]any)
		f := fields(m)
		runs = append(runs, ledger.Run{
			ID: f.text("id"), At: f.moment("at"), Code: fault.Code(f.text("code")), Error: f.text("error"),
			Revision: f.text("revision"), Operation: f.text("operation"),
		})
	}
	return runs
}

func decodeEntry(snapshot *firestore.DocumentSnapshot) ledger.Entry {
	f := fields(snapshot.Data())
	attributes := f.group("attributes")
	own := make(map[string]string, len(attributes))
	for name := range maps.Keys(attributes) {
		own[name] = attributes.text(name)
	}
	claim := f.group("claim")
	return ledger.Entry{
		ID: snapshot.Ref.ID, State: ledger.State(f.text("state")), Consumer: f.text("consumer"), Topic: f.text("topic"),
		Subject: ledger.Subject{
			EventID: f.text("eventId"), Lane: f.text("lane"), AccountID: f.text("accountId"),
			MessageID: f.text("messageId"), HistoryID: f.historyID("historyId"),
		},
		Data: f.bytes("data"), DataOmitted: f.flag("dataOmitted"), Attributes: own,
		Attempts: int(f.number("attempts")), Redrives: int(f.number("redrives")),
		Code: fault.Code(f.text("code")), Fingerprint: f.text("fingerprint"), Error: f.text("error"),
		FirstFailedAt: f.moment("firstFailedAt"), LastFailedAt: f.moment("lastFailedAt"),
		DeadAt: f.moment("deadAt"), ExpireAt: f.moment("expireAt"),
		Revision: f.text("revision"), Trace: f.text("trace"), Runs: decodeRuns(f.list("runs")), Operation: f.text("operation"),
		RedrivenAt: f.moment("redrivenAt"), Heals: int(f.number("heals")), HealAt: f.moment("healAt"),
		Discarded: f.flag("discarded"), EditedFrom: f.text("editedFrom"), EditedTo: f.text("editedTo"),
		Claim:   ledger.Claim{Operation: claim.text("operation"), Token: claim.text("token"), At: claim.moment("at")},
		Version: snapshot.UpdateTime,
	}
}

// Read returns the ledger's entry, or false where there is none.
func (db *DB) Read(ctx context.Context, id string) (ledger.Entry, bool, error) {
	snapshot, err := db.get(ctx, db.failureRef(id))
	if err != nil || snapshot == nil {
		return ledger.Entry{}, false, err
	}
	return decodeEntry(snapshot), true, nil
}

// Change replaces an entry by what next makes of it, and returns it as it then stands. next sees an
// entry with its id alone where there is none; it may be called again when others write at the same
// time; where it returns false nothing is written.
func (db *DB) Change(ctx context.Context, id string, next func(ledger.Entry) (ledger.Entry, bool)) (ledger.Entry, error) {
	return change(ctx,
		func() (ledger.Entry, error) {
			e, _, err := db.Read(ctx, id)
			e.ID = id
			return e, err
		},
		next,
		func(read, become ledger.Entry) (bool, error) {
			return db.replace(ctx, db.failureRef(id), read.Version, encodeEntry(read), encodeEntry(become))
		},
		"ledger entry "+id)
}

// Skew returns how far this machine's clock is ahead of Firestore's, negative where it is behind, to the
// time that a call takes.
func (db *DB) Skew(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	snapshots, err := db.client.GetAll(ctx, []*firestore.DocumentRef{db.alertRef(alert.HoldKey)})
	if err != nil {
		return 0, failed(err, "read Firestore's clock")
	}
	return time.Since(snapshots[0].ReadTime), nil
}

// Resolve ends the entry, if there is one: one write, and no read.
func (db *DB) Resolve(ctx context.Context, id string, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	settled := encodeEntry(ledger.Entry{}.Settled(at))
	_, err := db.failureRef(id).Update(ctx, []firestore.Update{
		{Path: "state", Value: settled["state"]},
		{Path: "expireAt", Value: settled["expireAt"]},
		{Path: "claim", Value: firestore.Delete},
		{Path: "healAt", Value: firestore.Delete},
		{Path: "discarded", Value: firestore.Delete},
	})
	switch status.Code(err) {
	case codes.OK, codes.NotFound:
		return nil
	}
	return failed(err, "resolve %s", id)
}

// ResolveOlder resolves what of the account failed in the consumer before that moment.
func (db *DB) ResolveOlder(ctx context.Context, account, consumer string, before time.Time) error {
	entries, err := db.Entries(ctx, EntryFilter{Account: account, Consumer: consumer, States: ledger.Unresolved()})
	if err != nil {
		return err
	}
	for _, e := range entries {
		_, err := db.Change(ctx, e.ID, func(e ledger.Entry) (ledger.Entry, bool) {
			return e.Settled(db.now()), e.Unresolved() && e.LastFailedAt.Before(before)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// StrandedSince returns the ids of entries that are retrying and have last failed, or are redriving and
// were redriven, before that moment, of each state up to limit, the longest waiting first.
func (db *DB) StrandedSince(ctx context.Context, before time.Time, limit int) ([]string, error) {
	var ids []string
	for state, since := range map[ledger.State]string{ledger.Retrying: "lastFailedAt", ledger.Redriving: "redrivenAt"} {
		q := db.client.Collection("failures").Where("state", "==", string(state)).
			Where(since, "<", before).OrderBy(since, firestore.Asc).Limit(limit).Select()
		snapshots, err := db.query(ctx, q, "entries nobody returns to")
		if err != nil {
			return nil, err
		}
		for _, snapshot := range snapshots {
			ids = append(ids, snapshot.Ref.ID)
		}
	}
	return ids, nil
}

// An EntryFilter chooses entries of the ledger; what is empty chooses all.
type EntryFilter struct {
	States      []ledger.State
	Lane        string
	Consumer    string
	Account     string
	Code        string
	Fingerprint string
	// WithoutData leaves the messages' data and the single runs out, for who only counts or lists.
	WithoutData bool
}

// listed are the fields of an entry that is read without its data.
var listed = []string{
	"state", "lane", "consumer", "topic", "accountId", "messageId", "historyId", "eventId", "dataOmitted",
	"attempts", "redrives", "code", "fingerprint", "error", "firstFailedAt", "lastFailedAt", "deadAt", "expireAt",
	"revision", "trace", "claim", "operation", "redrivenAt", "heals", "healAt", "discarded", "editedFrom", "editedTo",
}

// chosen is the query for a filter. It compares only for equality, which needs no index of its own.
func (db *DB) chosen(filter EntryFilter) firestore.Query {
	q := db.client.Collection("failures").Query
	for name, value := range map[string]string{
		"lane": filter.Lane, "consumer": filter.Consumer, "accountId": filter.Account,
		"code": filter.Code, "fingerprint": filter.Fingerprint,
	} {
		if value != "" {
			q = q.Where(name, "==", value)
		}
	}
	if len(filter.States) > 0 {
		q = q.Where("state", "in", filter.States)
	}
	if filter.WithoutData {
		q = q.Select(listed...)
	}
	return q
}

// Entries returns the entries that a filter chooses, in the order of their ids.
func (db *DB) Entries(ctx context.Context, filter EntryFilter) ([]ledger.Entry, error) {
	return db.entries(ctx, db.chosen(filter))
}

// EntriesAfter returns up to limit of the entries that a filter chooses, in the order of their ids,
// beginning after that id; "" begins with the first. So a long ledger is read page by page.
func (db *DB) EntriesAfter(ctx context.Context, filter EntryFilter, after string, limit int) ([]ledger.Entry, error) {
	q := db.chosen(filter).OrderBy(firestore.DocumentID, firestore.Asc).Limit(limit)
	if after != "" {
		q = q.StartAfter(after)
	}
	return db.entries(ctx, q)
}

func (db *DB) entries(ctx context.Context, q firestore.Query) ([]ledger.Entry, error) {
	snapshots, err := db.query(ctx, q, "ledger entries")
	entries := make([]ledger.Entry, len(snapshots))
	for i, snapshot := range snapshots {
		entries[i] = decodeEntry(snapshot)
	}
	return entries, err
}

// EntriesByID returns those of the entries that there are, by id.
func (db *DB) EntriesByID(ctx context.Context, ids []string) (map[string]ledger.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	refs := make([]*firestore.DocumentRef, len(ids))
	for i, id := range ids {
		refs[i] = db.failureRef(id)
	}
	snapshots, err := db.client.GetAll(ctx, refs)
	if err != nil {
		return nil, failed(err, "read %d ledger entries", len(ids))
	}
	entries := map[string]ledger.Entry{}
	for _, snapshot := range snapshots {
		if snapshot.Exists() {
			entries[snapshot.Ref.ID] = decodeEntry(snapshot)
		}
	}
	return entries, nil
}

// HealsDue returns dead letters that are to be redriven by themselves by now, the longest due first.
func (db *DB) HealsDue(ctx context.Context, now time.Time, limit int) ([]ledger.Entry, error) {
	return db.entries(ctx, db.client.Collection("failures").Where("state", "==", string(ledger.Dead)).
		Where("healAt", "<=", now).OrderBy("healAt", firestore.Asc).Limit(limit).Select(listed...))
}

// LastSuccess returns when an event of the consumer that had failed was last applied; zero where that
// is longer ago than resolved entries are kept.
func (db *DB) LastSuccess(ctx context.Context, consumer string) (time.Time, error) {
	const atOnce = 100 // so many are not discarded in a row
	q := db.client.Collection("failures").Where("consumer", "==", consumer).
		Where("state", "==", string(ledger.Resolved)).OrderBy("expireAt", firestore.Desc).Select(listed...)
	entries, err := db.entries(ctx, q.Limit(atOnce))
	for _, e := range entries {
		if !e.Discarded {
			return e.ResolvedAt(), err
		}
	}
	return time.Time{}, err
}

// CountDead counts the letters of a fingerprint that are dead and died after one moment, and not after
// the other; the zero time is no bound.
func (db *DB) CountDead(ctx context.Context, fingerprint string, after, until time.Time) (int, error) {
	q := db.client.Collection("failures").Where("fingerprint", "==", fingerprint).
		Where("state", "==", string(ledger.Dead)).Where("deadAt", ">", after)
	if !until.IsZero() {
		q = q.Where("deadAt", "<=", until)
	}
	return db.count(ctx, callTimeout, q, "dead letters of "+fingerprint)
}

// OldestDead returns the dead letter that has been dead for longest, of a fingerprint, of a consumer, or
// of all where both are empty; false where there is none.
func (db *DB) OldestDead(ctx context.Context, fingerprint, consumer string) (ledger.Entry, bool, error) {
	q := db.chosen(EntryFilter{Fingerprint: fingerprint, Consumer: consumer, WithoutData: true})
	entries, err := db.entries(ctx, q.Where("state", "==", string(ledger.Dead)).OrderBy("deadAt", firestore.Asc).Limit(1))
	if err != nil || len(entries) == 0 {
		return ledger.Entry{}, false, err
	}
	return entries[0], true, nil
}

// CountOfConsumer counts the entries of a consumer in a state.
func (db *DB) CountOfConsumer(ctx context.Context, consumer string, state ledger.State) (int, error) {
	return db.count(ctx, callTimeout, db.client.Collection("failures").Where("consumer", "==", consumer).
		Where("state", "==", string(state)), "entries of "+consumer)
}

// Unresolved returns an account's entries that are neither applied nor discarded.
func (db *DB) Unresolved(ctx context.Context, account string) ([]ledger.Entry, error) {
	return db.Entries(ctx, EntryFilter{Account: account, States: ledger.Unresolved()})
}

// Underway returns entries of a consumer that are redriving, or retrying, by an operation whose id begins
// so, up to limit.
func (db *DB) Underway(ctx context.Context, consumer, operation string, limit int) ([]ledger.Entry, error) {
	return db.entries(ctx, db.chosen(EntryFilter{
		Consumer: consumer, States: []ledger.State{ledger.Redriving, ledger.Retrying}, WithoutData: true,
	}).Where("operation", ">=", operation).Where("operation", "<", operation+"\uffff").Limit(limit))
}
