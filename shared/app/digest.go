package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"mailyard.internal/mailyard/functions/alerts"
	"mailyard.internal/mailyard/functions/digest"
	"mailyard.internal/mailyard/functions/mailbox"
	"mailyard.internal/mailyard/shared/config"
	"mailyard.internal/mailyard/shared/delivery"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/gcplog"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
	"mailyard.internal/mailyard/shared/mailing"
)

const (
	// unsubscribePath is where Unsubscribe answers below MAILYARD_PUBLIC_URL.
	unsubscribePath = "/Unsubscribe"
	// digestTimeout is for starting a run alone: its steps come by Pub/Sub.
	digestTimeout = 50 * time.Second
	// digestPace keeps a sender within the 60 mails that Gmail takes a minute and user.
	digestPace = time.Minute / 59
	// digestBackoff is the first pause before a send is tried again.
	digestBackoff = time.Second
)

// WithDigestPace sets the time between two sends of a digest, and the first pause before one is tried
// again, for a sender that is not Gmail.
func WithDigestPace(pace, backoff time.Duration) Option {
	return func(a *App) { a.digestPace, a.digestBackoff = pace, backoff }
}

// WithDigestChunk sets how many subscribers or mailings a digest's step works on, for a database that
// reads whole collections for each query, as the emulator does.
func WithDigestChunk(n int) Option { return func(a *App) { a.digestChunk = n } }

// digest starts the run of a schedule's day.
func (a *App) digest(ctx context.Context) (http.HandlerFunc, error) {
	p, err := a.parts(ctx)
	if err != nil {
		return nil, err
	}
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	starter := digest.NewStarter(p.db, p.bus, c.DigestZone, a.now)
	return func(w http.ResponseWriter, r *http.Request) {
		scheduled := scheduledAt(r.Header, a.now())
		p.server.Scheduled("Digest", digestTimeout, func(ctx context.Context) ([]slog.Attr, error) {
			run, joined, err := starter.Start(ctx, scheduled)
			return []slog.Attr{slog.String("run", string(run.Day)), slog.String("phase", string(run.Phase)), slog.Bool("joined", joined)}, err
		})(w, r)
	}, nil
}

// oldestSchedule is how long Cloud Scheduler may go on with its retries, and longer.
const oldestSchedule = 48 * time.Hour

// scheduledAt is the moment for which a schedule calls: the one that Cloud Scheduler names, which its
// retries keep. One that cannot be is not believed.
func scheduledAt(h http.Header, now time.Time) time.Time {
	at, err := time.Parse(time.RFC3339, h.Get("X-CloudScheduler-ScheduleTime"))
	if err != nil || at.After(now.Add(time.Hour)) || at.Before(now.Add(-oldestSchedule)) {
		return now
	}
	return at
}

func (a *App) digestSend(ctx context.Context) (http.HandlerFunc, error) {
	c, err := a.config()
	if err := errors.Join(err, c.CheckDigests()); err != nil {
		return nil, err
	}
	p, err := a.parts(ctx)
	if err != nil {
		return nil, err
	}
	gmail, err := a.Gmail(ctx)
	if err != nil {
		return nil, err
	}
	link, err := a.unsubscribeLinks(c)
	if err != nil {
		return nil, err
	}
	announcer, err := a.announcer(p.stores)
	if err != nil {
		return nil, err
	}
	worker := digest.NewWorker(digest.Ports{
		Runs: p.db, Subscribers: p.db, Mailings: p.db, Mirror: p.db,
		Sender: &digestSender{address: c.DigestSender, accounts: p.db, gmail: gmail}, Composer: digest.NewComposer(c.DigestSender, link, a.now),
		Publisher: p.bus, Announcer: announcer, Reported: a.logReport, Unannounced: a.logUnannounced,
		Zone: c.DigestZone, Pace: a.digestPace, Backoff: a.digestBackoff, Chunk: a.digestChunk, Now: a.now,
	})
	return p.server.Push(lane.DigestSendRoute, func(m delivery.Message) (ledger.Subject, delivery.Work, error) {
		request, err := mailing.DecodeRequest(m.Data)
		return ledger.Subject{}, func(ctx context.Context) (mail.Outcome, error) { return worker.Handle(ctx, request) }, err
	}), nil
}

// unsubscribeLinks gives each subscriber's link to unsubscribe.
func (a *App) unsubscribeLinks(c config.Config) (func(subscriber string) (string, error), error) {
	signer, err := a.signer(c)
	if err != nil {
		return nil, err
	}
	return func(subscriber string) (string, error) {
		token, err := signer.SignUnsubscribe(subscriber)
		return c.PublicURL + unsubscribePath + "?" + url.Values{digest.UnsubscribeParameter: {token}}.Encode(), err
	}, nil
}

func (a *App) unsubscribe(ctx context.Context) (http.HandlerFunc, error) {
	c, err := a.config()
	if err := errors.Join(err, c.CheckUnsubscribe()); err != nil {
		return nil, err
	}
	signer, err := a.signer(c)
	if err != nil {
		return nil, err
	}
	db, err := a.DB(ctx)
	if err != nil {
		return nil, err
	}
	https := strings.HasPrefix(c.PublicURL, "https:")
	return digest.UnsubscribePage(digest.NewUnsubscriber(signer, db, a.now), https, a.logUnsubscribe(c.Project)), nil
}

// An announcer tells people of digests: in the log, and through the webhook where there is one.
type announcer struct {
	log    *slog.Logger
	teller *alerts.Teller
}

func (a *App) announcer(s stores) (announcer, error) {
	teller, err := a.teller(s)
	return announcer{a.log, teller}, err
}

// Announce tells people. The same words are told once a day.
func (a announcer) Announce(ctx context.Context, title string, lines ...string) error {
	a.log.LogAttrs(ctx, slog.LevelWarn, title, slog.String("lines", strings.Join(lines, "; ")),
		gcplog.Labels("consumer", "DigestSend", "lane", "", "outcome", "announced", "code", ""))
	words := sha256.Sum256([]byte(strings.Join(append([]string{title}, lines...), "\x00")))
	return a.teller.Notice(ctx, "digest-"+hex.EncodeToString(words[:8]), title, lines...)
}

func (a *App) logUnannounced(err error) {
	a.log.LogAttrs(context.Background(), slog.LevelError, "DigestSend not_announced", slog.String("error", fault.Text(err)),
		gcplog.Labels("consumer", "DigestSend", "lane", "", "outcome", "not_announced", "code", string(fault.CodeOf(err))))
}

// logReport writes what a run came to: an error, loudly, where its sums do not come out.
func (a *App) logReport(r mailing.Run) {
	level, outcome := slog.LevelInfo, "reported"
	c := r.Counts
	attrs := []slog.Attr{
		slog.String("run", string(r.Day)), slog.Int("read", c.Read), slog.Int("filtered", c.Filtered), slog.Int("busy", c.Busy),
		slog.Int("daily", c.Daily), slog.Int("weekly", c.Weekly), slog.Int("sent", c.Sent), slog.Int("failed", c.Failed),
		slog.Int("processing", c.Processing), slog.Int("unsubscribed", c.Unsubscribed), slog.Int("left", c.Left),
		slog.Int("retried", c.Retried), slog.Int64("seconds", int64(r.FinishedAt.Sub(r.StartedAt).Seconds())),
	}
	if wrong := c.Differences(); len(wrong) > 0 {
		level, outcome = slog.LevelError, "does_not_add_up"
		attrs = append(attrs, slog.String("error", strings.Join(wrong, "; ")))
	}
	attrs = append(attrs, gcplog.Labels("consumer", "Digest", "lane", "", "outcome", outcome, "code", ""))
	a.log.LogAttrs(context.Background(), level, "Digest "+outcome, attrs...)
}

// logUnsubscribe writes the one log line of a visit. The request's URL is not in it: it has the token.
func (a *App) logUnsubscribe(project string) func(*http.Request, string, digest.UnsubscribeOutcome, error, time.Duration) {
	return func(r *http.Request, subscriber string, outcome digest.UnsubscribeOutcome, err error, took time.Duration) {
		level, code := slog.LevelInfo, ""
		attrs := []slog.Attr{
			slog.String("subscriber", subscriber), slog.Int64("milliseconds", took.Milliseconds()),
			gcplog.Trace(project, r.Header.Get("traceparent")),
		}
		if err != nil {
			level, code = slog.LevelError, string(fault.CodeOf(err))
			attrs = append(attrs, slog.String("error", fault.Text(err)))
		}
		attrs = append(attrs, gcplog.Labels("consumer", "Unsubscribe", "lane", "", "outcome", string(outcome), "code", code))
		a.log.LogAttrs(context.Background(), level, "Unsubscribe "+string(outcome), attrs...)
	}
}

// DigestStarter returns what starts runs of digests.
func (a *App) DigestStarter(ctx context.Context) (*digest.Starter, error) {
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	s, err := a.stores(ctx)
	if err != nil {
		return nil, err
	}
	return digest.NewStarter(s.db, s.bus, c.DigestZone, a.now), nil
}

// DigestResolver returns what has operators say what became of mailings.
func (a *App) DigestResolver(ctx context.Context) (*digest.Resolver, error) {
	s, err := a.stores(ctx)
	if err != nil {
		return nil, err
	}
	return digest.NewResolver(s.db, s.bus, a.now), nil
}

// digestChores are what Tick does about digests: it goes on with runs that stopped on their way, and tells
// of mailings whose outcome is not known.
func (a *App) digestChores(s stores) ([]mailbox.Chore, error) {
	announcer, err := a.announcer(s)
	if err != nil {
		return nil, err
	}
	keeper := digest.NewKeeper(s.db, s.bus, announcer, a.now)
	return []mailbox.Chore{
		{Counts: "digest_runs_resumed", Do: keeper.Resume},
		{Counts: "uncertain_mailings_told", Do: keeper.Tell},
	}, nil
}
