package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"mailyard.internal/mailyard/scripts/local/courier"
	"mailyard.internal/mailyard/scripts/local/emulator"
	"mailyard.internal/mailyard/scripts/local/issuer"
	"mailyard.internal/mailyard/scripts/local/meter"
	"mailyard.internal/mailyard/scripts/local/provision"
	"mailyard.internal/mailyard/shared/app"
	"mailyard.internal/mailyard/shared/firestoredb"
	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/lane"
)

// stateDir keeps what a run leaves behind: the keyset and the logs.
const stateDir = ".local"

// simulatedQuota is what the simulated Gmail allows a user in a minute: ten times what Gmail does.
const simulatedQuota = 60_000

// digestSender is the simulated mailbox that sends the digests, once it is linked.
const digestSender = "digests@example.com"

// audience is what push tokens are for.
const audience = "mailyard-local"

// A yard is all of Mailyard on this machine: both emulators, a simulated Gmail, every function, and
// what delivers between them.
type yard struct {
	emulators *emulator.Emulators
	catalogue *lane.Catalogue
	gmail     *gmailsim.Sim
	app       *app.App
	db        *firestoredb.DB
	pubsub    *pubsub.Client
	meter     *meter.Meter
	issuer    *issuer.Issuer

	functionsURL, gmailURL string
	env                    map[string]string
	routes                 []lane.Route
	logPath                string

	closers []func() error
}

// yardOptions say where a yard listens; what is empty is chosen.
type yardOptions struct {
	pubsubAddr, firestoreAddr string
	functionsAddr, gmailAddr  string
	logName                   string
	keyset                    string
}

// openYard starts everything but the deliveries. close ends what was started, also after an error.
func openYard(ctx context.Context, o yardOptions) (_ *yard, err error) {
	y := &yard{meter: &meter.Meter{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, y.close())
		}
	}()
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder for keyset and logs: %w", err)
	}
	y.emulators, err = emulator.Start(ctx, emulator.Options{PubSubAddr: o.pubsubAddr, FirestoreAddr: o.firestoreAddr, LogDir: stateDir})
	if err != nil {
		return nil, err
	}
	y.onClose(func() error { y.emulators.Stop(); return nil })
	if y.catalogue, err = lane.Load(); err != nil {
		return nil, err
	}
	if err := y.openPubSub(ctx); err != nil {
		return nil, err
	}
	if y.issuer, err = issuer.New(time.Now); err != nil {
		return nil, err
	}
	y.gmail = gmailsim.New(gmailsim.Config{Publish: y.publish})
	gmail := http.NewServeMux()
	gmail.Handle("/", y.gmail)
	gmail.Handle("/certs", y.issuer)
	if y.gmailURL, err = y.serve(o.gmailAddr, gmail); err != nil {
		return nil, err
	}
	if err := y.openFunctions(ctx, o); err != nil {
		return nil, err
	}
	gmail.Handle("/{$}", y.mailboxView())
	return y, nil
}

func (y *yard) openPubSub(ctx context.Context) error {
	for _, pair := range y.emulators.Env() {
		name, value, _ := strings.Cut(pair, "=")
		if err := os.Setenv(name, value); err != nil { // the client libraries read it there
			return err
		}
	}
	client, err := pubsub.NewClient(context.WithoutCancel(ctx), project)
	if err != nil {
		return fmt.Errorf("open the Pub/Sub emulator: %w", err)
	}
	y.pubsub = client
	y.onClose(client.Close)
	return provision.Catalogue(ctx, client, y.catalogue)
}

func (y *yard) openFunctions(ctx context.Context, o yardOptions) error {
	keyset := o.keyset
	if keyset == "" {
		keyset = filepath.Join(stateDir, "keyset.json")
	}
	listener, err := listen(o.functionsAddr) // their address is a part of their environment
	if err != nil {
		return err
	}
	y.onClose(func() error { _ = listener.Close(); return nil }) // what serves has closed it already
	y.functionsURL = "http://" + listener.Addr().String()
	y.env = map[string]string{
		"GOOGLE_CLOUD_PROJECT":          project,
		"PUBSUB_EMULATOR_HOST":          y.emulators.PubSubHost,
		"FIRESTORE_EMULATOR_HOST":       y.emulators.FirestoreHost,
		"MAILYARD_PUSH_AUTH":            "oidc",
		"MAILYARD_PUSH_AUDIENCE":        audience,
		"MAILYARD_PUSH_SERVICE_ACCOUNT": issuer.Account,
		"MAILYARD_OIDC_CERTS_URL":       y.gmailURL + "/certs",
		"MAILYARD_GMAIL_ENDPOINT":       y.gmailURL,
		"MAILYARD_OAUTH_AUTH_URL":       y.gmailURL + "/auth",
		"MAILYARD_OAUTH_TOKEN_URL":      y.gmailURL + "/token",
		"MAILYARD_OAUTH_REVOKE_URL":     y.gmailURL + "/revoke",
		"MAILYARD_OAUTH_CLIENT_ID":      "local",
		"MAILYARD_OAUTH_CLIENT_SECRET":  "local",
		"MAILYARD_KEYSET_FILE":          keyset,
		"MAILYARD_CONNECT_KEY":          "the-key-of-this-machine-and-no-other",
		"MAILYARD_CONNECT_ORIGINS":      "http://localhost:3000",
		"MAILYARD_PUBLIC_URL":           y.functionsURL,
		"MAILYARD_DIGEST_SENDER":        digestSender,
	}
	y.logPath = filepath.Join(stateDir, o.logName)
	log, err := os.Create(y.logPath)
	if err != nil {
		return fmt.Errorf("make the functions' log: %w", err)
	}
	y.onClose(log.Close)
	lookup := func(name string) (string, bool) { value, ok := y.env[name]; return value, ok }
	y.app = app.New(lookup, log, app.WithGRPC(y.meter.Options()...), app.WithGmailQuota(simulatedQuota))
	y.onClose(y.app.Close)
	if y.db, err = y.app.DB(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	entryPoints, err := y.app.EntryPoints()
	if err != nil {
		return err
	}
	functions := http.NewServeMux()
	there := map[string]bool{}
	for _, e := range entryPoints {
		functions.Handle("/"+e.Name, e.Handler)
		there[e.Name] = true
	}
	for _, r := range append(y.catalogue.Routes(), y.catalogue.MonitorRoutes()...) {
		if there[r.EntryPoint] {
			y.routes = append(y.routes, r)
		}
	}
	y.serveOn(listener, functions)
	return nil
}

// serve answers on an address, a free one of this machine if it is empty, until the yard is closed.
func (y *yard) serve(addr string, handler http.Handler) (url string, err error) {
	listener, err := listen(addr)
	if err != nil {
		return "", err
	}
	y.serveOn(listener, handler)
	return "http://" + listener.Addr().String(), nil
}

func listen(addr string) (net.Listener, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w; choose another address", err)
	}
	return listener, nil
}

// serveOn answers until the yard is closed.
func (y *yard) serveOn(listener net.Listener, handler http.Handler) {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	y.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := server.Shutdown(ctx)
		if err != nil {
			err = server.Close()
		}
		if end := <-ended; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
		return err
	})
}

// deliver starts to deliver; it ends when the yard is closed. A courier that fails calls failed.
func (y *yard) deliver(o courier.Options, failed func(error)) *courier.Courier {
	o.Base = y.functionsURL
	o.Token = func(string) (string, error) { return y.issuer.Token(audience) }
	c := courier.New(y.pubsub, y.routes, o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := c.Run(ctx)
		if err != nil {
			failed(fmt.Errorf("deliver: %w", err))
		}
		ended <- err
	}()
	y.onClose(func() error {
		cancel()
		return <-ended
	})
	return c
}

// publish puts what Gmail notifies on its topic, by the topic's full name.
func (y *yard) publish(ctx context.Context, topic string, data []byte) error {
	_, err := y.pubsub.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{
		Topic: topic, Messages: []*pubsubpb.PubsubMessage{{Data: data}},
	})
	return err
}

func (y *yard) onClose(f func() error) { y.closers = append(y.closers, f) }

// close ends everything, the last started first.
func (y *yard) close() error {
	var errs []error
	for i := len(y.closers) - 1; i >= 0; i-- {
		errs = append(errs, y.closers[i]())
	}
	y.closers = nil
	return errors.Join(errs...)
}
