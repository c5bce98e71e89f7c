// Package bare holds the yardstick: functions that make the same calls as Mailyard's to Firestore,
// Pub/Sub and Gmail, with as little as possible between them. They guard nothing, keep no ledger and
// write no log, and an error of any kind is answered 500. Nobody should run them.
package bare

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"cloud.google.com/go/firestore"
	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// Functions are the bare functions of one project.
type Functions struct {
	Gmail string // base URL; used by Fetch alone
	Token string // likewise

	documents *firestore.Client
	topics    *pubsub.TopicAdminClient
	changes   string
}

// New returns functions that use these connections.
func New(documents *firestore.Client, topics *pubsub.TopicAdminClient, project string) *Functions {
	return &Functions{documents: documents, topics: topics, changes: "projects/" + project + "/topics/mailbox-changes"}
}

type push struct {
	Message struct {
		Data       []byte            `json:"data"`
		Attributes map[string]string `json:"attributes"`
	} `json:"message"`
}

type event struct {
	AccountID string `json:"accountId"`
	MessageID string `json:"messageId"`
	ThreadID  string `json:"threadId"`
	HistoryID int64  `json:"historyId,string"`
}

// Flag sets unread to false: one read of account and message, one conditional write, one publish.
func (f *Functions) Flag(w http.ResponseWriter, r *http.Request) {
	answer(w, f.handle(r, func(ctx context.Context, e event, message *firestore.DocumentSnapshot) error {
		_, err := message.Ref.Update(ctx, []firestore.Update{
			{Path: "unread", Value: false},
			{Path: "guards.unread", Value: e.HistoryID},
			{Path: "updatedAt", Value: time.Now()},
		}, firestore.LastUpdateTime(message.UpdateTime))
		return err
	}))
}

// Fetch creates a message and its body: one read, one messages.get, one commit, one publish.
func (f *Functions) Fetch(w http.ResponseWriter, r *http.Request) {
	answer(w, f.handle(r, func(ctx context.Context, e event, message *firestore.DocumentSnapshot) error {
		m, err := f.get(ctx, e.MessageID)
		if err != nil {
			return err
		}
		fields, body := m.fields(e)
		return f.documents.RunTransaction(ctx, func(_ context.Context, tx *firestore.Transaction) error {
			return errors.Join(
				tx.Create(message.Ref, fields),
				tx.Set(message.Ref.Collection("parts").Doc("body"), body))
		})
	}))
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (f *Functions) handle(r *http.Request, write func(context.Context, event, *firestore.DocumentSnapshot) error) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var p push
	var e event
	if err := json.Unmarshal(body, &p); err != nil {
		return err
	}
	if err := json.Unmarshal(p.Message.Data, &e); err != nil {
		return err
	}
	account := f.documents.Collection("accounts").Doc(e.AccountID)
	read, err := f.documents.GetAll(r.Context(), []*firestore.DocumentRef{account, account.Collection("messages").Doc(e.MessageID)})
	if err != nil {
		return err
	}
	if !read[0].Exists() {
		return errors.New("no such account")
	}
	if err := write(r.Context(), e, read[1]); err != nil {
		return err
	}
	_, err = f.topics.Publish(r.Context(), &pubsubpb.PublishRequest{
		Topic:    f.changes,
		Messages: []*pubsubpb.PubsubMessage{{Data: p.Message.Data, Attributes: p.Message.Attributes}},
	})
	return err
}

// message is as much of Gmail's answer as is kept.
type message struct {
	ThreadID     string   `json:"threadId"`
	LabelIDs     []string `json:"labelIds"`
	Snippet      string   `json:"snippet"`
	InternalDate string   `json:"internalDate"`
	SizeEstimate int64    `json:"sizeEstimate"`
	Payload      part     `json:"payload"`
}

type part struct {
	MimeType string `json:"mimeType"`
	Headers  []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"headers"`
	Body struct {
		Data string `json:"data"`
	} `json:"body"`
	Parts []part `json:"parts"`
}

func (f *Functions) get(ctx context.Context, id string) (message, error) {
	var m message
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.Gmail+"/gmail/v1/users/me/messages/"+id+"?format=full", nil)
	if err != nil {
		return m, err
	}
	request.Header.Set("Authorization", "Bearer "+f.Token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return m, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return m, fmt.Errorf("got %d from Gmail", response.StatusCode)
	}
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(answer, &m)
}

// fields takes everything as it comes: no word is decoded, no address parsed, no charset converted.
func (m message) fields(e event) (fields, body map[string]any) {
	header := map[string]string{}
	for _, h := range m.Payload.Headers {
		header[h.Name] = h.Value
	}
	unread, trashed := false, false
	for _, label := range m.LabelIDs {
		unread, trashed = unread || label == "UNREAD", trashed || label == "TRASH"
	}
	date, _ := strconv.ParseInt(m.InternalDate, 10, 64)
	fields = map[string]any{
		"threadId": m.ThreadID, "from": header["From"], "to": []string{header["To"]}, "cc": []string{},
		"subject": header["Subject"], "snippet": m.Snippet, "date": time.UnixMilli(date), "sizeEstimate": m.SizeEstimate,
		"hasContent": true, "deleted": false, "unread": unread, "trashed": trashed, "updatedAt": time.Now(),
		"guards": map[string]any{"content": e.HistoryID, "deleted": e.HistoryID, "unread": e.HistoryID, "trashed": e.HistoryID},
	}
	texts := map[string]string{}
	for _, p := range append(m.Payload.Parts, m.Payload) {
		if text, err := base64.URLEncoding.DecodeString(p.Body.Data); err == nil && len(text) > 0 {
			texts[p.MimeType] = string(text)
		}
	}
	body = map[string]any{"text": texts["text/plain"], "html": texts["text/html"], "attachments": []any{}, "truncated": false}
	return fields, body
}
