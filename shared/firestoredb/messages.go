package firestoredb

import (
	"context"
	"maps"
	"slices"
	"time"

	"cloud.google.com/go/firestore"

	"mailyard.internal/mailyard/shared/mail"
)

// keepTombstones is how long a deletion is remembered, so that a late event does not undo it.
const keepTombstones = 30 * 24 * time.Hour

func (db *DB) messageRef(account, message string) *firestore.DocumentRef {
	return db.accountRef(account).Collection(messagesCollection).Doc(message)
}

func bodyRef(message *firestore.DocumentRef) *firestore.DocumentRef {
	return message.Collection("parts").Doc("body")
}

func encodeMessage(m mail.Message) fields {
	f := fields{"hasContent": m.HasContent, "deleted": m.Deleted}
	f.set("threadId", m.ThreadID)
	if m.HasContent {
		f["from"], f["subject"], f["snippet"] = m.From, m.Subject, m.Snippet
		f["to"], f["cc"] = list(m.To), list(m.Cc)
		f.set("date", m.Date)
		f["sizeEstimate"] = m.SizeEstimate
	}
	for field, value := range m.Flags {
		f[field] = value
	}
	if m.KeepsLabels() {
		f["labelIds"] = list(slices.Sorted(maps.Keys(m.Labels)))
	}
	guards := map[string]any{}
	for facet, id := range m.Guards {
		guards[facet] = int64(id)
	}
	f.set("guards", guards)
	f.set("fetchDueAt", m.FetchDueAt)
	f.set("fetchHistoryId", int64(m.FetchHistoryID))
	f.set("updatedAt", m.UpdatedAt)
	f.set("expireAt", m.ExpireAt)
	return f
}

// list gives an array as Firestore returns it, so that two documents can be compared.
func list(texts []string) []any {
	items := make([]any, len(texts))
	for i, text := range texts {
		items[i] = text
	}
	return items
}

// decodeMessage reads a message. Its flags are the facets of its guards that are boolean fields.
func decodeMessage(snapshot *firestore.DocumentSnapshot) mail.Message {
	m := mail.Message{ID: snapshot.Ref.ID, Flags: map[string]bool{}, Guards: map[string]mail.HistoryID{}}
	if !snapshot.Exists() {
		return m
	}
	f := fields(snapshot.Data())
	m.ThreadID = f.text("threadId")
	m.HasContent, m.Deleted = f.flag("hasContent"), f.flag("deleted")
	m.Summary = mail.Summary{
		From: f.text("from"), To: f.texts("to"), Cc: f.texts("cc"), Subject: f.text("subject"),
		Snippet: f.text("snippet"), Date: f.moment("date"), SizeEstimate: f.number("sizeEstimate"),
	}
	guards := f.group("guards")
	for facet := range guards {
		m.Guards[facet] = guards.historyID(facet)
		if facet == mail.FacetContent || facet == mail.FacetDeleted {
			continue
		}
		if value, ok := f[facet].(bool); ok {
			m.Flags[facet] = value
		}
	}
	for _, label := range f.texts("labelIds") {
		if m.Labels == nil {
			m.Labels = map[string]bool{}
		}
		m.Labels[label] = true
	}
	m.FetchDueAt, m.FetchHistoryID = f.moment("fetchDueAt"), f.historyID("fetchHistoryId")
	m.UpdatedAt, m.ExpireAt = f.moment("updatedAt"), f.moment("expireAt")
	m.Version = snapshot.UpdateTime
	return m
}

// Message reads an account and one of its messages in one round trip. A message that is not mirrored
// comes with its id alone; an account that does not exist is a fault.AccountGone, as of [DB.Account].
func (db *DB) Message(parent context.Context, account, message string) (mail.Account, mail.Message, error) {
	ctx, cancel := context.WithTimeout(parent, callTimeout)
	defer cancel()
	snapshots, err := db.client.GetAll(ctx, []*firestore.DocumentRef{db.accountRef(account), db.messageRef(account, message)})
	if err != nil {
		return mail.Account{}, mail.Message{}, failed(err, "read message %s/%s", account, message)
	}
	if !snapshots[0].Exists() {
		return mail.Account{}, mail.Message{}, db.gone(parent, account)
	}
	return decodeAccount(snapshots[0]), decodeMessage(snapshots[1]), nil
}

// SaveMessage replaces what was read by what it became, body included, in one commit. It returns
// false where another write came first.
func (db *DB) SaveMessage(ctx context.Context, account string, read, become mail.Message) (bool, error) {
	ref := db.messageRef(account, read.ID)
	if become.Body == nil && !bodyGoes(read, become) {
		return db.replace(ctx, ref, read.Version, encodeMessage(read), encodeMessage(db.stamped(read, become)))
	}
	return db.commit(ctx, func(tx *firestore.Transaction) error {
		return db.saveInto(tx, ref, read, become)
	}, "message "+account+"/"+read.ID)
}

// stamped gives what a message became its moments.
func (db *DB) stamped(read, become mail.Message) mail.Message {
	become.UpdatedAt = db.now()
	switch {
	case !become.Deleted:
		become.ExpireAt = time.Time{}
	case !read.Deleted:
		become.ExpireAt = become.UpdatedAt.Add(keepTombstones)
	}
	return become
}

// bodyGoes reports whether the body is to be removed with the content.
func bodyGoes(read, become mail.Message) bool { return read.HasContent && !become.HasContent }

// saveInto adds a message's write, body included, to a commit.
func (db *DB) saveInto(tx *firestore.Transaction, ref *firestore.DocumentRef, read, become mail.Message) error {
	before, after := encodeMessage(read), encodeMessage(db.stamped(read, become))
	var err error
	if read.Version.IsZero() {
		err = tx.Create(ref, map[string]any(after))
	} else {
		err = tx.Update(ref, before.changes(after), firestore.LastUpdateTime(read.Version))
	}
	switch {
	case err != nil:
		return err
	case bodyGoes(read, become):
		return tx.Delete(bodyRef(ref))
	case become.Body != nil:
		return tx.Set(bodyRef(ref), map[string]any(encodeBody(*become.Body)))
	}
	return nil
}

// dropInto adds a message's removal, body included, to a commit.
func dropInto(tx *firestore.Transaction, ref *firestore.DocumentRef, read mail.Message) error {
	if err := tx.Delete(ref, firestore.LastUpdateTime(read.Version)); err != nil {
		return err
	}
	return tx.Delete(bodyRef(ref))
}

// DropMessage removes what was read, body included. It returns false where another write came first.
func (db *DB) DropMessage(ctx context.Context, account string, read mail.Message) (bool, error) {
	ref := db.messageRef(account, read.ID)
	return db.commit(ctx, func(tx *firestore.Transaction) error {
		return dropInto(tx, ref, read)
	}, "message "+account+"/"+read.ID)
}

// commit writes several documents at once, each on its own condition. It reads nothing, so it is
// tried once: whether to try again is the caller's to see.
func (db *DB) commit(ctx context.Context, writes func(*firestore.Transaction) error, what string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := db.client.RunTransaction(ctx, func(_ context.Context, tx *firestore.Transaction) error {
		return writes(tx)
	}, firestore.MaxAttempts(1))
	return written(err, "write %s", what)
}

func encodeBody(b mail.Body) fields {
	attachments := make([]any, len(b.Attachments))
	for i, a := range b.Attachments {
		attachments[i] = map[string]any{"filename": a.Filename, "mimeType": a.MIMEType, "size": a.Size, "partId": a.PartID}
	}
	return fields{"text": b.Text, "html": b.HTML, "attachments": attachments, "truncated": b.Truncated}
}

// FetchesDue returns the messages whose FetchDueAt has come, each as the event that asks for it,
// earliest first. Where a stub does not say which event asked, its greatest guard stands for it; 1,
// which shuts nothing out, where it has none.
func (db *DB) FetchesDue(ctx context.Context, now time.Time, limit int) ([]mail.Event, error) {
	q := db.client.CollectionGroup("messages").Where("fetchDueAt", "<=", now).OrderBy("fetchDueAt", firestore.Asc).Limit(limit)
	snapshots, err := db.query(ctx, q, "fetches that are due")
	var events []mail.Event
	for _, snapshot := range snapshots {
		m := decodeMessage(snapshot)
		asked := m.FetchHistoryID
		if asked == 0 {
			asked = 1
			for _, guard := range m.Guards {
				asked = max(asked, guard)
			}
		}
		events = append(events, mail.Event{
			AccountID: snapshot.Ref.Parent.Parent.ID, MessageID: m.ID, ThreadID: m.ThreadID, HistoryID: asked,
		})
	}
	return events, err
}

// PostponeFetch moves a due fetch to a later moment, unless the message has changed since.
func (db *DB) PostponeFetch(ctx context.Context, e mail.Event, to time.Time) error {
	snapshot, err := db.get(ctx, db.messageRef(e.AccountID, e.MessageID))
	if err != nil || snapshot == nil {
		return err
	}
	read := decodeMessage(snapshot)
	if read.FetchDueAt.IsZero() || read.FetchDueAt.After(db.now()) {
		return nil
	}
	become := read
	become.FetchDueAt = to
	_, err = db.SaveMessage(ctx, e.AccountID, read, become)
	return err
}

// Body reads a message's body; of one without content it is empty.
func (db *DB) Body(ctx context.Context, account, message string) (mail.Body, error) {
	snapshot, err := db.get(ctx, bodyRef(db.messageRef(account, message)))
	if err != nil || snapshot == nil {
		return mail.Body{}, err
	}
	f := fields(snapshot.Data())
	b := mail.Body{Text: f.text("text"), HTML: f.text("html"), Truncated: f.flag("truncated")}
	attachments, _ := f["attachments"].([]any)
	for _, item := range attachments {
		a, _ := item.(map[string]any)
		b.Attachments = append(b.Attachments, mail.Attachment{
			Filename: fields(a).text("filename"), MIMEType: fields(a).text("mimeType"),
			Size: fields(a).number("size"), PartID: fields(a).text("partId"),
		})
	}
	return b, nil
}

// Messages returns every message of an account's mirror, tombstones among them, without bodies.
func (db *DB) Messages(ctx context.Context, account string) ([]mail.Message, error) {
	snapshots, err := db.query(ctx, db.accountRef(account).Collection("messages").Query, "messages of account "+account)
	messages := make([]mail.Message, len(snapshots))
	for i, snapshot := range snapshots {
		messages[i] = decodeMessage(snapshot)
	}
	return messages, err
}
