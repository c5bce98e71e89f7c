// Package app wires Mailyard together: from the environment to the HTTP function of each entry point.
// It alone knows adapters and functions both.
//
// Nothing is read or opened before the first request, and then only what the requested function
// needs, so that a cold start stays short. What could not be opened is tried again with the next
// request.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	"mailyard.internal/mailyard/functions/apply"
	"mailyard.internal/mailyard/functions/deadletter"
	"mailyard.internal/mailyard/functions/digest"
	"mailyard.internal/mailyard/functions/ingest"
	"mailyard.internal/mailyard/functions/mailbox"
	"mailyard.internal/mailyard/shared/config"
	"mailyard.internal/mailyard/shared/delivery"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/firestoredb"
	"mailyard.internal/mailyard/shared/gcplog"
	"mailyard.internal/mailyard/shared/gmailapi"
	"mailyard.internal/mailyard/shared/keyset"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/pubsubbus"
	"mailyard.internal/mailyard/shared/pushauth"
)

// An App is one process's Mailyard. It may be used by many goroutines.
type App struct {
	log    *slog.Logger
	now    func() time.Time
	config func() (config.Config, error)
	grpc   []grpc.DialOption
	calls  []gmailapi.Option

	digestPace, digestBackoff time.Duration
	digestChunk               int

	all       func() (*lane.Catalogue, error) // with every optional lane
	catalogue func() (*lane.Catalogue, error) // with those that are on
	db        opener[*firestoredb.DB]
	bus       opener[*pubsubbus.Bus]
	shelf     opener[*pubsubbus.Shelf]
	gmail     opener[*gmailapi.Client]
	keyset    opener[*keyset.Keyset]
	wrapper   opener[*keyset.Wrapper]
}

// An Option changes what an App is made of.
type Option func(*App)

// WithClock gives the App another clock than the system's.
func WithClock(now func() time.Time) Option { return func(a *App) { a.now = now } }

// WithCatalogue gives the App another catalogue than the program's own.
func WithCatalogue(c *lane.Catalogue) Option {
	return func(a *App) { a.all = func() (*lane.Catalogue, error) { return c, nil } }
}

// WithGRPC adds options to the connections to Firestore and Pub/Sub, for who wants to count or to
// disturb their calls.
func WithGRPC(options ...grpc.DialOption) Option {
	return func(a *App) { a.grpc = append(a.grpc, options...) }
}

// WithGmailQuota sets how many of Gmail's units may be spent for one user in a minute: 6,000, Gmail's
// own, unless said.
func WithGmailQuota(unitsPerMinute float64) Option {
	return func(a *App) { a.calls = append(a.calls, gmailapi.WithQuota(unitsPerMinute)) }
}

// WithSendTimeout sets how long a call that sends a mail may take.
func WithSendTimeout(d time.Duration) Option {
	return func(a *App) { a.calls = append(a.calls, gmailapi.WithSendTimeout(d)) }
}

// WithIAM has another IAM than Google's sign for delegated mailboxes, at a URL where nobody is asked who
// they are.
func WithIAM(url string) Option {
	return func(a *App) { a.calls = append(a.calls, gmailapi.WithIAM(gmailapi.IAMAt(url))) }
}

// New returns an App that reads its environment through lookup and logs to log.
func New(lookup config.Lookup, log io.Writer, options ...Option) *App {
	a := &App{
		log:    gcplog.New(log),
		now:    time.Now,
		calls:  []gmailapi.Option{gmailapi.WithProjectGate(new(gmailapi.ProjectGate))},
		config: sync.OnceValues(func() (config.Config, error) { return config.Load(lookup) }),
		all:    sync.OnceValues(lane.All),

		digestPace: digestPace, digestBackoff: digestBackoff, digestChunk: digest.ChunkSize,
	}
	for _, option := range options {
		option(a)
	}
	a.catalogue = sync.OnceValues(a.lanesThatAreOn)
	return a
}

func (a *App) lanesThatAreOn() (*lane.Catalogue, error) {
	all, err := a.all()
	if err != nil {
		return nil, err
	}
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	selected, err := all.Select(c.Lanes)
	if err != nil {
		return nil, fmt.Errorf("MAILYARD_LANES: %w", err)
	}
	return selected, nil
}

// An EntryPoint is one HTTP function.
type EntryPoint struct {
	Name    string
	Handler http.HandlerFunc
}

// EntryPoints returns every function, those of the lanes as the catalogue has them, the optional ones
// among them.
func (a *App) EntryPoints() ([]EntryPoint, error) {
	catalogue, err := a.all()
	if err != nil {
		return nil, err
	}
	entries := []EntryPoint{
		{ingest.Consumer, a.onFirstUse(ingest.Consumer, a.ingest)},
		{"DeadLetter", a.onFirstUse("DeadLetter", a.deadLetter)},
		{"Tick", a.onFirstUse("Tick", a.tick)},
		{"Resync", a.onFirstUse("Resync", a.resync)},
		{"Renew", a.onFirstUse("Renew", a.renew)},
		{"Connect", a.onFirstUse("Connect", a.connect)},
		{"Console", a.onFirstUse("Console", a.console)},
		{"Digest", a.onFirstUse("Digest", a.digest)},
		{"DigestSend", a.onFirstUse("DigestSend", a.digestSend)},
		{"Unsubscribe", a.onFirstUse("Unsubscribe", a.unsubscribe)},
	}
	for _, l := range catalogue.Lanes {
		entries = append(entries, EntryPoint{l.EntryPoint, a.onFirstUse(l.EntryPoint, func(ctx context.Context) (http.HandlerFunc, error) {
			return a.lane(ctx, l)
		})})
	}
	return entries, nil
}

// onFirstUse builds a function when it is first called.
func (a *App) onFirstUse(name string, build func(context.Context) (http.HandlerFunc, error)) http.HandlerFunc {
	var function opener[http.HandlerFunc]
	return func(w http.ResponseWriter, r *http.Request) {
		handler, err := function.open(func() (http.HandlerFunc, error) {
			return build(context.WithoutCancel(r.Context()))
		})
		if err != nil {
			a.log.Error(name+" cannot start", slog.String("error", fault.Text(err)),
				gcplog.Labels("consumer", name, "lane", "", "outcome", "not_started", "code", ""))
			http.Error(w, name+" cannot start; the log says why", http.StatusServiceUnavailable)
			return
		}
		handler(w, r)
	}
}

func (a *App) lane(ctx context.Context, l lane.Lane) (http.HandlerFunc, error) {
	p, err := a.parts(ctx)
	if err != nil {
		return nil, err
	}
	var gmail *gmailapi.Client
	if l.Effect.Kind == lane.Fetch {
		if gmail, err = a.Gmail(ctx); err != nil {
			return nil, err
		}
	}
	handler := apply.New(p.catalogue, p.db, p.bus, gmail, a.now)
	return p.server.Push(l.Route(), delivery.Events(l, handler.Lane(l))), nil
}

func (a *App) ingest(ctx context.Context) (http.HandlerFunc, error) {
	p, err := a.parts(ctx)
	if err != nil {
		return nil, err
	}
	handler, err := a.lister(ctx, p)
	if err != nil {
		return nil, err
	}
	return p.server.Push(lane.IngestRoute, delivery.Notifications(handler.Handle)), nil
}

func (a *App) lister(ctx context.Context, p parts) (*ingest.Handler, error) {
	gmail, err := a.Gmail(ctx)
	if err != nil {
		return nil, err
	}
	return ingest.New(ingest.Ports{
		Catalogue: p.catalogue, Accounts: p.db, Gmail: gmail, Publisher: p.bus,
		Resyncs: a.resyncs(p.stores), Failures: p.db, Now: a.now,
	}), nil
}

func (a *App) deadLetter(ctx context.Context) (http.HandlerFunc, error) {
	p, err := a.parts(ctx)
	if err != nil {
		return nil, err
	}
	teller, err := a.teller(p.stores)
	if err != nil {
		return nil, err
	}
	return p.server.Monitor(p.catalogue, deadletter.NewRecorder(p.db, teller, a.now).Record), nil
}

// tickTimeout is below the minute after which the next tick comes.
const tickTimeout = 50 * time.Second

func (a *App) tick(ctx context.Context) (http.HandlerFunc, error) {
	p, err := a.parts(ctx)
	if err != nil {
		return nil, err
	}
	lister, err := a.lister(ctx, p)
	if err != nil {
		return nil, err
	}
	renew, err := a.renewer(ctx, p, func() {})
	if err != nil {
		return nil, err
	}
	letters, err := a.letterChores(ctx, p)
	if err != nil {
		return nil, err
	}
	digests, err := a.digestChores(p.stores)
	if err != nil {
		return nil, err
	}
	tick := mailbox.NewTick(mailbox.TickPorts{
		Catalogue: p.catalogue, Due: p.db, Lister: lister, Publisher: p.bus, Deferrals: p.db,
		Returner: a.redriver(p.stores), Resyncs: a.resyncs(p.stores), Renew: renew, Chores: append(letters, digests...), Now: a.now,
	})
	return p.server.Scheduled("Tick", tickTimeout, tick.Run), nil
}

// stores are what is kept and what is published.
type stores struct {
	db  *firestoredb.DB
	bus *pubsubbus.Bus
}

func (a *App) stores(ctx context.Context) (stores, error) {
	db, err := a.DB(ctx)
	if err != nil {
		return stores{}, err
	}
	bus, err := a.Bus(ctx)
	return stores{db, bus}, err
}

func (a *App) resyncs(s stores) *mailbox.Resyncs { return mailbox.NewResyncs(s.db, s.bus, a.now) }

func (a *App) redriver(s stores) *deadletter.Redriver {
	return deadletter.NewRedriver(s.db, s.bus, a.now)
}

// notificationsTopic is the full name of the topic on which Gmail notifies.
func notificationsTopic(project string) string {
	return "projects/" + project + "/topics/" + lane.NotificationsTopic
}

// parts are what every function that is pushed to, or scheduled, has.
type parts struct {
	stores
	catalogue *lane.Catalogue
	server    *delivery.Server
}

func (a *App) parts(ctx context.Context) (parts, error) {
	c, err := a.config()
	if err := errors.Join(err, c.CheckPush()); err != nil {
		return parts{}, err
	}
	catalogue, err := a.catalogue()
	if err != nil {
		return parts{}, err
	}
	s, err := a.stores(ctx)
	if err != nil {
		return parts{}, err
	}
	return parts{s, catalogue, &delivery.Server{
		Auth: pushauth.New(c, a.now), Ledger: s.db, Letters: s.bus, Log: a.log, Now: a.now,
		Project: c.Project, Revision: c.Revision,
	}}, nil
}

// DB returns the mirror and the ledger.
func (a *App) DB(ctx context.Context) (*firestoredb.DB, error) {
	return a.db.open(func() (*firestoredb.DB, error) {
		c, err := a.config()
		if err != nil {
			return nil, err
		}
		return firestoredb.Open(ctx, c, a.now, a.grpc...)
	})
}

// Bus returns what publishes.
func (a *App) Bus(ctx context.Context) (*pubsubbus.Bus, error) {
	return a.bus.open(func() (*pubsubbus.Bus, error) {
		c, err := a.config()
		if err != nil {
			return nil, err
		}
		catalogue, err := a.catalogue()
		if err != nil {
			return nil, err
		}
		return pubsubbus.Open(ctx, c.Project, catalogue, a.grpc...)
	})
}

// Gmail returns what calls Gmail.
func (a *App) Gmail(ctx context.Context) (*gmailapi.Client, error) {
	return a.gmail.open(func() (*gmailapi.Client, error) {
		c, err := a.config()
		if err != nil {
			return nil, err
		}
		keys, err := a.Keyset()
		if err != nil {
			return nil, err
		}
		db, err := a.DB(ctx)
		if err != nil {
			return nil, err
		}
		return gmailapi.New(c, db, db, keys, a.now, a.calls...)
	})
}

// Close releases every connection that was opened.
func (a *App) Close() error {
	var errs []error
	if db, ok := a.db.opened(); ok {
		errs = append(errs, db.Close())
	}
	if bus, ok := a.bus.opened(); ok {
		errs = append(errs, bus.Close())
	}
	if shelf, ok := a.shelf.opened(); ok {
		errs = append(errs, shelf.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}
