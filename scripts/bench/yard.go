package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"cloud.google.com/go/firestore"
	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"mailyard.internal/mailyard/scripts/bench/bare"
	"mailyard.internal/mailyard/shared/app"
	"mailyard.internal/mailyard/shared/event"
	"mailyard.internal/mailyard/shared/firestoredb"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mail"
)

// A yard is what the benchmarks work on: Mailyard in this process, a simulated Gmail, and the
// emulators, in a project of this run's own.
type yard struct {
	project string
	dir     string // for keyset and built programs
	env     map[string]string
	app     *app.App
	db      *firestoredb.DB
	sim     *gmailsim.Sim
	bare    *bare.Functions
	topics  *pubsub.TopicAdminClient
	// documents writes what no function writes, such as a mirror of 100,000 messages.
	documents *firestore.Client

	closers []func() error
}

func newYard(ctx context.Context) (y *yard, err error) {
	y = &yard{project: fmt.Sprintf("bench-%d", time.Now().UnixNano()), sim: gmailsim.New(gmailsim.Config{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, y.close())
		}
	}()
	if y.dir, err = os.MkdirTemp("", "mailyard-bench-"); err != nil {
		return y, fmt.Errorf("make a directory: %w", err)
	}
	y.onClose(func() error { return os.RemoveAll(y.dir) })
	// With Gmail all calls share one connection; the simulated one speaks HTTP/1.1 and needs one each.
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = workers
	sim := httptest.NewServer(y.sim)
	y.onClose(func() error { sim.Close(); return nil })

	y.env = map[string]string{
		"GOOGLE_CLOUD_PROJECT":         y.project,
		"PUBSUB_EMULATOR_HOST":         os.Getenv("PUBSUB_EMULATOR_HOST"),
		"FIRESTORE_EMULATOR_HOST":      os.Getenv("FIRESTORE_EMULATOR_HOST"),
		"MAILYARD_PUSH_AUTH":           "off",
		"MAILYARD_GMAIL_ENDPOINT":      sim.URL,
		"MAILYARD_OAUTH_TOKEN_URL":     sim.URL + "/token",
		"MAILYARD_OAUTH_CLIENT_ID":     "client",
		"MAILYARD_OAUTH_CLIENT_SECRET": "client-secret",
		"MAILYARD_KEYSET_FILE":         filepath.Join(y.dir, "keyset.json"),
	}
	if y.topics, err = pubsub.NewTopicAdminClient(ctx); err != nil {
		return y, fmt.Errorf("open Pub/Sub: %w", err)
	}
	y.onClose(y.topics.Close)
	if y.documents, err = firestore.NewClient(ctx, y.project); err != nil {
		return y, fmt.Errorf("open Firestore: %w", err)
	}
	y.onClose(y.documents.Close)
	y.onClose(y.deleteDocuments)
	y.bare = bare.New(y.documents, y.topics, y.project)
	y.bare.Gmail = sim.URL

	// The log goes where a log costs a system call a line, as on the platform.
	log, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return y, err
	}
	y.onClose(log.Close)
	y.app = app.New(func(name string) (string, bool) { value, ok := y.env[name]; return value, ok }, log,
		app.WithGmailQuota(1e9)) // what is measured is not how long one waits for Gmail's quota
	y.onClose(y.app.Close)
	if y.db, err = y.app.DB(ctx); err != nil {
		return y, err
	}
	return y, y.topic(ctx, lane.MailboxChangesTopic)
}

// topic makes a topic that is there until the yard is closed.
func (y *yard) topic(ctx context.Context, id string) error {
	topic := &pubsubpb.Topic{Name: "projects/" + y.project + "/topics/" + id}
	_, err := y.topics.CreateTopic(ctx, topic)
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the topic %s: %w", id, err)
	}
	y.onClose(func() error {
		return y.topics.DeleteTopic(context.Background(), &pubsubpb.DeleteTopicRequest{Topic: topic.Name})
	})
	return nil
}

func (y *yard) onClose(f func() error) { y.closers = append(y.closers, f) }

// close ends what newYard began, the last first.
func (y *yard) close() error {
	var errs []error
	for len(y.closers) > 0 {
		last := len(y.closers) - 1
		errs = append(errs, y.closers[last]())
		y.closers = y.closers[:last]
	}
	return errors.Join(errs...)
}

// deleteDocuments empties the run's database, which is a call that only the emulator has.
func (y *yard) deleteDocuments() error {
	at := "http://" + y.env["FIRESTORE_EMULATOR_HOST"] + "/emulator/v1/projects/" + y.project + "/databases/(default)/documents"
	request, err := http.NewRequest(http.MethodDelete, at, nil)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 20 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("delete the documents: %w", err)
	}
	return response.Body.Close()
}

// function returns the HTTP function of an entry point.
func (y *yard) function(name string) (http.HandlerFunc, error) {
	entryPoints, err := y.app.EntryPoints()
	if err != nil {
		return nil, err
	}
	for _, e := range entryPoints {
		if e.Name == name {
			return e.Handler, nil
		}
	}
	return nil, fmt.Errorf("there is no function %s", name)
}

// mailbox makes a mailbox whose refresh token is its address.
func (y *yard) mailbox(address string) (*gmailsim.Mailbox, error) {
	return y.sim.AddMailbox(address, address)
}

// link makes an owner's account of a mailbox and returns its id.
func (y *yard) link(ctx context.Context, box *gmailsim.Mailbox, owner string) (string, error) {
	id := mail.AccountID(owner, box.Address())
	keys, err := y.app.Keyset()
	if err != nil {
		return "", err
	}
	sealed, err := keys.Seal(box.Address(), id)
	if err != nil {
		return "", err
	}
	if _, err := y.db.SaveCredential(ctx, id, mail.Credential{}, mail.Credential{Kind: mail.CredentialOAuth, Secret: sealed}); err != nil {
		return "", err
	}
	_, err = y.db.EnsureAccount(ctx, id, func(a mail.Account) mail.Account {
		a.Email, a.Owner, a.Status, a.HistoryID = box.Address(), owner, mail.StatusActive, mail.HistoryID(box.HistoryID())
		return a
	})
	return id, err
}

// accessToken gets a token as an app without Mailyard would.
func (y *yard) accessToken(box *gmailsim.Mailbox) (string, error) {
	response, err := http.PostForm(y.env["MAILYARD_OAUTH_TOKEN_URL"], url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {box.Address()},
	})
	if err != nil {
		return "", fmt.Errorf("get an access token: %w", err)
	}
	defer response.Body.Close()
	var answer struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.AccessToken == "" {
		return "", errors.Join(errors.New("the token server gave no access token"), err)
	}
	return answer.AccessToken, nil
}

// push is the body of an event's first delivery.
func (y *yard) push(e mail.Event) ([]byte, error) {
	e.Time = time.Now()
	data, attributes, err := event.Encode(e)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"message": map[string]any{
			"data": data, "attributes": attributes, "messageId": e.ID(), "publishTime": e.Time.UTC().Format(time.RFC3339Nano),
		},
		"subscription":    "projects/" + y.project + "/subscriptions/gmail-" + e.Lane + "-apply",
		"deliveryAttempt": 1,
	})
}
