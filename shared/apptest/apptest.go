// Package apptest runs all of Mailyard in a test: every function in this process, a simulated Gmail,
// and the real emulators of Pub/Sub and Firestore, in a project of the test's own.
package apptest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"mailyard.internal/mailyard/scripts/local/courier"
	"mailyard.internal/mailyard/scripts/local/meter"
	"mailyard.internal/mailyard/scripts/local/mirror"
	"mailyard.internal/mailyard/scripts/local/provision"
	"mailyard.internal/mailyard/shared/app"
	"mailyard.internal/mailyard/shared/event"
	"mailyard.internal/mailyard/shared/firestoredb"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// NeedEmulators skips a test where the emulators are not running.
func NeedEmulators(t testing.TB) {
	t.Helper()
	for _, name := range []string{"PUBSUB_EMULATOR_HOST", "FIRESTORE_EMULATOR_HOST"} {
		if os.Getenv(name) == "" {
			t.Skip("needs the emulators: run make test")
		}
	}
}

var projects atomic.Int64

// NewProject returns a project id that no other test uses.
func NewProject() string {
	return fmt.Sprintf("t%d-%d", time.Now().UnixNano()%1e12, projects.Add(1))
}

// A Yard is a Mailyard in a test.
type Yard struct {
	t testing.TB

	Project   string
	Catalogue *lane.Catalogue
	App       *app.App
	DB        *firestoredb.DB
	PubSub    *pubsub.Client
	Gmail     *gmailsim.Sim
	Functions *httptest.Server
	Log       *Log
	Clock     *Clock
	Meter     *meter.Meter
	Env       map[string]string

	mu         sync.Mutex
	deliveries []courier.Delivery
	courier    *courier.Courier
}

// Options change what a Yard is made of.
type Options struct {
	// Catalogue is another than the program's own.
	Catalogue *lane.Catalogue
	// Env is laid over the environment that the Yard makes.
	Env map[string]string
	// Courier changes how messages are delivered. Base is that of Functions unless said, Observe the Yard's.
	Courier courier.Options
	// Project is another than one of the test's own.
	Project string
	// GmailQuota is how many units a user has in a minute; 0 is NoQuota.
	GmailQuota float64
}

const (
	// ConnectKey signs the links of every Yard.
	ConnectKey = "connect-key-0123456789-0123456789"
	// DelegationServiceAccount is whom domains delegate their mailboxes to.
	DelegationServiceAccount = "reader@yard.iam.gserviceaccount.com"
)

// DigestSender is the address of the mailbox that sends every Yard's digests.
const DigestSender = "digests@yard.example.com"

// NoQuota is a quota that nobody uses up: the simulated Gmail has none.
const NoQuota = 1e9

func (o Options) quota() float64 {
	if o.GmailQuota == 0 {
		return NoQuota
	}
	return o.GmailQuota
}

// New starts a Yard that ends with the test. Nothing is delivered before [Yard.Start].
func New(t testing.TB, o Options) *Yard {
	t.Helper()
	NeedEmulators(t)
	y := &Yard{t: t, Project: o.Project, Catalogue: o.Catalogue, Log: &Log{}, Clock: &Clock{}, Meter: &meter.Meter{}}
	if y.Project == "" {
		y.Project = NewProject()
	}
	if y.Catalogue == nil {
		var err error
		y.Catalogue, err = lane.Load(strings.Fields(o.Env["MAILYARD_LANES"])...)
		y.must(err, "load the catalogue")
	}
	client, err := pubsub.NewClient(context.Background(), y.Project)
	y.must(err, "open Pub/Sub")
	t.Cleanup(func() { client.Close() })
	y.PubSub = client
	y.must(provision.Catalogue(t.Context(), client, y.Catalogue), "make the topics")
	t.Cleanup(y.unsubscribe)

	y.Gmail = gmailsim.New(gmailsim.Config{Publish: y.publishTo, Now: y.Clock.Now})
	sim := httptest.NewServer(y.Gmail)
	t.Cleanup(sim.Close)
	y.Functions = httptest.NewUnstartedServer(nil) // its address is known from here on

	y.Env = map[string]string{
		"GOOGLE_CLOUD_PROJECT":         y.Project,
		"PUBSUB_EMULATOR_HOST":         os.Getenv("PUBSUB_EMULATOR_HOST"),
		"FIRESTORE_EMULATOR_HOST":      os.Getenv("FIRESTORE_EMULATOR_HOST"),
		"MAILYARD_PUSH_AUTH":           "off",
		"MAILYARD_GMAIL_ENDPOINT":      sim.URL,
		"MAILYARD_OAUTH_AUTH_URL":      sim.URL + "/auth",
		"MAILYARD_OAUTH_TOKEN_URL":     sim.URL + "/token",
		"MAILYARD_OAUTH_REVOKE_URL":    sim.URL + "/revoke",
		"MAILYARD_OAUTH_CLIENT_ID":     "client",
		"MAILYARD_OAUTH_CLIENT_SECRET": "client-secret",
		"MAILYARD_KEYSET_FILE":         filepath.Join(t.TempDir(), "keyset.json"),
		"MAILYARD_CONNECT_KEY":         ConnectKey,
		"MAILYARD_CONNECT_ORIGINS":     "https://app.example.com",
		"MAILYARD_PUBLIC_URL":          "http://" + y.Functions.Listener.Addr().String(),

		"MAILYARD_DELEGATION_SERVICE_ACCOUNT": DelegationServiceAccount,
		"MAILYARD_DIGEST_SENDER":              DigestSender,
	}
	for name, value := range o.Env {
		y.Env[name] = value
	}
	y.App = app.New(y.Lookup, y.Log, app.WithClock(y.Clock.Now), app.WithCatalogue(y.Catalogue), app.WithGRPC(y.Meter.Options()...), app.WithGmailQuota(o.quota()), app.WithIAM(sim.URL), app.WithDigestPace(0, time.Millisecond))
	t.Cleanup(func() { y.App.Close() })
	y.DB, err = y.App.DB(context.Background())
	y.must(err, "open Firestore")
	y.Functions.Config.Handler = y.mux(y.App)
	y.Functions.Start()
	t.Cleanup(y.Functions.Close)

	o.Courier.Observe = y.observe
	if o.Courier.Base == "" {
		o.Courier.Base = y.Functions.URL
	}
	if o.Courier.RetryScale == 0 {
		o.Courier.RetryScale = 0.002
	}
	y.courier = courier.New(client, append(y.routes(), y.Catalogue.MonitorRoutes()...), o.Courier)
	return y
}

// unsubscribe removes the project's subscriptions: each keeps a thread of the emulator busy, and after
// some hundred projects there is little time left for anything else.
func (y *Yard) unsubscribe() {
	ctx := context.Background()
	for s, err := range y.PubSub.SubscriptionAdminClient.ListSubscriptions(ctx, &pubsubpb.ListSubscriptionsRequest{Project: "projects/" + y.Project}).All() {
		if err == nil {
			err = y.PubSub.SubscriptionAdminClient.DeleteSubscription(ctx, &pubsubpb.DeleteSubscriptionRequest{Subscription: s.Name})
		}
		if err != nil {
			y.t.Errorf("remove a subscription: %v", err)
			return
		}
	}
}

// Instance starts one more instance of every function, as the platform does, and returns its URL.
func (y *Yard) Instance(options ...app.Option) string {
	y.t.Helper()
	options = append([]app.Option{app.WithClock(y.Clock.Now), app.WithCatalogue(y.Catalogue), app.WithGmailQuota(NoQuota), app.WithDigestPace(0, time.Millisecond)}, options...)
	other := app.New(y.Lookup, y.Log, options...)
	y.t.Cleanup(func() { other.Close() })
	server := httptest.NewServer(y.mux(other))
	y.t.Cleanup(server.Close)
	return server.URL
}

// Lookup finds a variable of the Yard's environment.
func (y *Yard) Lookup(name string) (string, bool) {
	value, ok := y.Env[name]
	return value, ok
}

// routes are those whose function there is.
func (y *Yard) routes() []lane.Route {
	entryPoints, err := y.App.EntryPoints()
	y.must(err, "name the functions")
	there := map[string]bool{}
	for _, e := range entryPoints {
		there[e.Name] = true
	}
	var routes []lane.Route
	for _, r := range y.Catalogue.Routes() {
		if there[r.EntryPoint] {
			routes = append(routes, r)
		}
	}
	return routes
}

func (y *Yard) mux(a *app.App) http.Handler {
	entryPoints, err := a.EntryPoints()
	y.must(err, "name the functions")
	mux := http.NewServeMux()
	for _, e := range entryPoints {
		mux.Handle("/"+e.Name, e.Handler)
	}
	return mux
}

// Start begins to deliver; it ends with the test.
func (y *Yard) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- y.courier.Run(ctx) }()
	y.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			y.t.Errorf("deliver: %v", err)
		}
	})
}

// Settle waits until nothing is being delivered, waiting for a retry, or on its way.
func (y *Yard) Settle() {
	y.t.Helper()
	ctx, cancel := context.WithTimeout(y.t.Context(), time.Minute)
	defer cancel()
	y.must(y.courier.Idle(ctx), "wait for everything to be delivered")
}

func (y *Yard) observe(d courier.Delivery) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.deliveries = append(y.deliveries, d)
}

// Deliveries returns those to one function so far.
func (y *Yard) Deliveries(entryPoint string) []courier.Delivery {
	y.mu.Lock()
	defer y.mu.Unlock()
	var to []courier.Delivery
	for _, d := range y.deliveries {
		if d.Route.EntryPoint == entryPoint {
			to = append(to, d)
		}
	}
	return to
}

// Link makes an account that holds a mailbox, with its credential, and the given cursor.
func (y *Yard) Link(box *gmailsim.Mailbox, refreshToken string, cursor mail.HistoryID) mail.Account {
	y.t.Helper()
	email := mail.NormalizeAddress(box.Address())
	id := mail.AccountID("tester", email)
	keys, err := y.App.Keyset()
	y.must(err, "open the keyset")
	sealed, err := keys.Seal(refreshToken, id)
	y.must(err, "seal the refresh token")
	_, err = y.DB.SaveCredential(y.t.Context(), id, mail.Credential{}, mail.Credential{Kind: mail.CredentialOAuth, Secret: sealed})
	y.must(err, "save the credential")
	account, err := y.DB.EnsureAccount(y.t.Context(), id, func(a mail.Account) mail.Account {
		a.Email, a.Owner, a.Status, a.HistoryID, a.CreatedAt = email, "tester", mail.StatusActive, cursor, y.Clock.Now()
		return a
	})
	y.must(err, "save the account")
	return account
}

// LinkAndWatch links a mailbox from where it stands and watches it.
func (y *Yard) LinkAndWatch(box *gmailsim.Mailbox, refreshToken string) mail.Account {
	y.t.Helper()
	account := y.Link(box, refreshToken, 0)
	gmail, err := y.App.Gmail(y.t.Context())
	y.must(err, "open Gmail")
	from, _, err := gmail.Watch(y.t.Context(), account.ID, "projects/"+y.Project+"/topics/"+lane.NotificationsTopic)
	y.must(err, "watch")
	y.must(y.DB.ChangeAccount(y.t.Context(), account.ID, func(a mail.Account) (mail.Account, bool) {
		a.HistoryID = from
		return a, true
	}), "set the cursor")
	return y.Account(account.ID)
}

// Account reads an account.
func (y *Yard) Account(id string) mail.Account {
	y.t.Helper()
	account, err := y.DB.Account(y.t.Context(), id)
	y.must(err, "read the account")
	return account
}

// Message reads a message of the mirror.
func (y *Yard) Message(account, message string) mail.Message {
	y.t.Helper()
	_, m, err := y.DB.Message(y.t.Context(), account, message)
	y.must(err, "read the message")
	return m
}

// AssertMirror fails the test unless the mirror is the mailbox: the same messages, each with content
// and the flags that its labels say.
func (y *Yard) AssertMirror(account string, box *gmailsim.Mailbox) {
	y.t.Helper()
	mirrored, err := y.DB.Messages(y.t.Context(), account)
	y.must(err, "read the mirror")
	for _, difference := range mirror.Differences(y.Catalogue.FlagsOf, box.Snapshot(), mirrored) {
		y.t.Error(difference)
	}
}

// Entries reads the ledger.
func (y *Yard) Entries() []ledger.Entry {
	y.t.Helper()
	const atOnce = 200 // a call of the emulator's on more may take longer than one may
	var entries []ledger.Entry
	for after := ""; ; {
		page, err := y.DB.EntriesAfter(y.t.Context(), firestoredb.EntryFilter{}, after, atOnce)
		y.must(err, "read the ledger")
		entries = append(entries, page...)
		if len(page) < atOnce {
			return entries
		}
		after = page[len(page)-1].ID
	}
}

// Publish puts a message on a topic.
func (y *Yard) Publish(topic string, data []byte, attributes map[string]string) {
	y.t.Helper()
	y.must(y.publish(y.t.Context(), topic, data, attributes), "publish")
}

// PublishEvent puts an event on its lane's topic.
func (y *Yard) PublishEvent(e mail.Event) {
	y.t.Helper()
	data, attributes := y.Encode(e)
	l, _ := y.Catalogue.Lane(e.Lane)
	y.Publish(l.Topic(), data, attributes)
}

// Encode gives an event's form on the wire; without a time it is of now.
func (y *Yard) Encode(e mail.Event) ([]byte, map[string]string) {
	y.t.Helper()
	if e.Time.IsZero() {
		e.Time = y.Clock.Now()
	}
	data, attributes, err := event.Encode(e)
	y.must(err, "encode the event")
	return data, attributes
}

func (y *Yard) publishTo(ctx context.Context, topic string, data []byte) error {
	return y.publish(ctx, topic[strings.LastIndexByte(topic, '/')+1:], data, nil)
}

func (y *Yard) publish(ctx context.Context, topic string, data []byte, attributes map[string]string) error {
	_, err := y.PubSub.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{
		Topic:    "projects/" + y.Project + "/topics/" + topic,
		Messages: []*pubsubpb.PubsubMessage{{Data: data, Attributes: attributes}},
	})
	return err
}

// Tap keeps a copy of what is published on a topic from now on, under the returned subscription.
func (y *Yard) Tap(topic string) string {
	y.t.Helper()
	tap := topic + "-tap"
	_, err := y.PubSub.SubscriptionAdminClient.CreateSubscription(y.t.Context(), &pubsubpb.Subscription{
		Name: "projects/" + y.Project + "/subscriptions/" + tap, AckDeadlineSeconds: 60,
		Topic: "projects/" + y.Project + "/topics/" + topic,
	})
	y.must(err, "tap a topic")
	return tap
}

// Pull takes everything that a pull subscription holds, and acknowledges it.
func (y *Yard) Pull(subscription string) []*pubsubpb.PubsubMessage {
	y.t.Helper()
	name := "projects/" + y.Project + "/subscriptions/" + subscription
	var messages []*pubsubpb.PubsubMessage
	for {
		answer, err := y.PubSub.SubscriptionAdminClient.Pull(y.t.Context(), &pubsubpb.PullRequest{
			Subscription: name, MaxMessages: 1000,
			//lint:ignore SA1019 it is deprecated for its cost on Google Cloud; this is for the emulator alone
			ReturnImmediately: true,
		})
		y.must(err, "pull")
		if len(answer.ReceivedMessages) == 0 {
			return messages
		}
		ids := make([]string, len(answer.ReceivedMessages))
		for i, received := range answer.ReceivedMessages {
			ids[i] = received.AckId
			messages = append(messages, received.Message)
		}
		y.must(y.PubSub.SubscriptionAdminClient.Acknowledge(y.t.Context(), &pubsubpb.AcknowledgeRequest{Subscription: name, AckIds: ids}), "acknowledge")
	}
}

// Tick calls Tick and fails the test unless it did all it found.
func (y *Yard) Tick() {
	y.t.Helper()
	if status := y.PostBody("Tick", nil, nil); status != http.StatusNoContent {
		y.t.Fatalf("Tick answered %d; the log says %s", status, y.Log)
	}
}

func (y *Yard) must(err error, what string) {
	y.t.Helper()
	if err != nil {
		y.t.Fatalf("%s: %v", what, err)
	}
}

// A Clock is the system's, set forward as a test likes.
type Clock struct{ ahead atomic.Int64 }

// Now returns the time.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// Advance sets the clock forward.
func (c *Clock) Advance(d time.Duration) { c.ahead.Add(int64(d)) }

// A Log keeps what was logged.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write keeps a line.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// String returns everything that was logged.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
