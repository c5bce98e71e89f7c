// Package delivery stands between Pub/Sub's pushes and the handlers: a push becomes an event, and
// what the handler returns becomes an answer, a ledger entry, or a dead letter.
//
// It promises that nothing is acknowledged before it is safe: a push is answered 204 only when its
// work is done, when it need not be done, or when its dead letter is published and recorded.
// Everything else is answered 503 and comes back. A handler runs at most 1 + maxRetries times for an
// event, counted in the ledger, whatever Pub/Sub's own count says; copies of an event share it. A
// token or method that is refused reads and changes nothing.
package delivery

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/gcplog"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
	"mailyard.internal/mailyard/shared/pushauth"
)

// maxBody is the greatest push there can be, in bytes: a message of Pub/Sub's limit of 10 MB grows
// by a third in base64, and its attributes are small.
const maxBody = 15 << 20

// A Store keeps the ledger.
type Store interface {
	// Read returns the entry, or false where there is none.
	Read(ctx context.Context, id string) (ledger.Entry, bool, error)
	// Change replaces the entry by what next makes of it, and returns it as it then stands. next
	// sees the zero Entry where there is none; it may be called again when others write at the same
	// time; where it returns false nothing is written.
	Change(ctx context.Context, id string, next func(ledger.Entry) (ledger.Entry, bool)) (ledger.Entry, error)
	// Resolve ends the entry, if there is one.
	Resolve(ctx context.Context, id string, at time.Time) error
}

// Letters publishes dead letters; a nil error means that Pub/Sub has confirmed it.
type Letters interface {
	PublishRaw(ctx context.Context, topic string, data []byte, attributes map[string]string) error
}

// A Decode reads a message and returns what it is about and the work it asks for. Its error means
// that the message can never be read.
type Decode func(Message) (ledger.Subject, Work, error)

// Work is one run of a handler.
type Work func(context.Context) (mail.Outcome, error)

// A Server makes HTTP functions of handlers.
type Server struct {
	Auth     *pushauth.Checker
	Ledger   Store
	Letters  Letters
	Log      *slog.Logger
	Now      func() time.Time
	Project  string
	Revision string
}

// Outcomes of a delivery, beside those of its handler.
const (
	retry       mail.Outcome = "retry"        // comes back
	dead        mail.Outcome = "dead"         // became a dead letter
	alreadyDead mail.Outcome = "already_dead" // a copy of what has become one
	resolved    mail.Outcome = "resolved"     // failed, but was done by another delivery meanwhile
	refused     mail.Outcome = "refused"      // token, method or size
)

// Push serves the pushes of one route.
func (s *Server) Push(route lane.Route, decode Decode) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		d := &delivery{Server: s, route: route, began: s.Now()}
		body, status, reason := s.admit(w, r)
		if reason != "" {
			d.report(refused, errors.New(reason))
			http.Error(w, reason, status)
			return
		}
		ctx, cancel := context.WithDeadline(r.Context(), d.began.Add(answerWithin(route.Delivery.AckDeadline())))
		defer cancel()
		outcome, err := d.run(ctx, body, r.Header.Get("traceparent"), decode)
		d.report(outcome, err)
		if outcome == retry {
			http.Error(w, "failed; to be delivered again", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// A Purpose is on whose behalf a call is made, for who counts calls.
type Purpose struct {
	Consumer string
	EventID  string // the ledger's id of what was delivered
}

type purposeKey struct{}

// PurposeOf returns the purpose of a call that a delivery makes; of any other it is empty.
func PurposeOf(ctx context.Context) Purpose {
	p, _ := ctx.Value(purposeKey{}).(Purpose)
	return p
}

// answerWithin leaves a push the time to be answered before its ack deadline, which is also the
// time-out of the request.
func answerWithin(ackDeadline time.Duration) time.Duration { return ackDeadline - 2*time.Second }

// settleWithin is kept back from a handler's time for the ledger and the dead letter.
const settleWithin = 6 * time.Second

// admit checks method and token, then reads the body. It returns a reason where it refuses.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (body []byte, status int, reason string) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, http.StatusMethodNotAllowed, "only POST is answered here"
	}
	if err := s.Auth.Check(r); err != nil {
		var refusal *pushauth.Refusal
		if errors.As(err, &refusal) {
			return nil, refusal.Status, refusal.Reason
		}
		return nil, http.StatusServiceUnavailable, "the push token cannot be checked at the moment"
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return nil, http.StatusRequestEntityTooLarge, "the body is larger than any Pub/Sub push"
		}
		return nil, http.StatusBadRequest, "the body could not be read to its end"
	}
	return body, 0, ""
}

// A delivery is one push on its way through.
type delivery struct {
	*Server
	route   lane.Route
	began   time.Time
	message Message
	subject ledger.Subject
	id      string // the ledger's
	// operation is the redrive that brought the message, or empty.
	operation string
}

// run does the push's work and settles its result. Whatever it returns but retry may be acknowledged.
func (d *delivery) run(ctx context.Context, body []byte, traceparent string, decode Decode) (mail.Outcome, error) {
	work, err := d.decode(body, traceparent, decode)
	ctx = context.WithValue(ctx, purposeKey{}, Purpose{d.route.EntryPoint, d.id})
	if err != nil {
		return d.fail(ctx, fault.Permanent(fault.Malformed, err))
	}
	if d.message.Attempt > 1 {
		entry, found, err := d.Ledger.Read(ctx, d.id)
		switch {
		case err != nil:
			return retry, err
		case found && entry.State == ledger.Dead && entry.Operation == d.operation:
			return alreadyDead, nil
		case found && entry.State == ledger.Retrying && entry.Spent(d.route.Delivery.MaxRetries):
			return d.buryLater(ctx, errors.New(entry.Error))
		}
	}
	outcome, err := d.work(ctx, work)
	switch {
	case fault.IsWaiting(err):
		return retry, err
	case fault.IsUnlinked(err):
		return mail.NoAccount, nil // in flight when its account was unlinked: nothing of it is kept
	case err != nil:
		return d.fail(ctx, err)
	}
	if d.message.Attempt != 1 || d.operation != "" {
		if err := d.Ledger.Resolve(ctx, d.id, d.Now()); err != nil {
			return retry, fmt.Errorf("resolve %s: %w", d.id, err)
		}
	}
	return outcome, nil
}

func (d *delivery) decode(body []byte, traceparent string, decode Decode) (Work, error) {
	message, err := DecodePush(body)
	if err != nil {
		d.message = Message{Data: body, Traceparent: traceparent}
		d.id = d.route.Subscription + "." + digest(body)
		return nil, err
	}
	if message.Traceparent == "" {
		message.Traceparent = traceparent
	}
	d.message = message
	d.operation = ledger.Operation(message.ID, message.Attributes)
	subject, work, err := decode(message)
	d.subject = subject
	d.id = LedgerID(d.route.Subscription, message, subject)
	return work, err
}

// LedgerID names the ledger's entry of a message: the ce-id of a lane's event, the id that a letter
// carries, and for anything else the subscription and the Pub/Sub message id.
func LedgerID(subscription string, m Message, s ledger.Subject) string {
	letter := m.Attributes[ledger.LetterID]
	switch {
	case s.EventID != "":
		return s.EventID
	case letter != "" && len(letter) <= maxLedgerID && !strings.Contains(letter, "/"):
		return letter
	case m.ID != "" && len(m.ID) < 100 && !strings.Contains(m.ID, "/"):
		return subscription + "." + m.ID
	}
	return subscription + "." + digest(m.Data)
}

// maxLedgerID is how long a Firestore document's id may be, in bytes.
const maxLedgerID = 1500

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

func (d *delivery) work(ctx context.Context, work Work) (outcome mail.Outcome, err error) {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(-settleWithin))
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			err = fault.Transient(fault.Panicked, fmt.Errorf("panic: %v, at %s", r, debug.Stack()))
		}
	}()
	return work(ctx)
}

// fail counts a failed run, and gives the event up when no run is left or none can help.
func (d *delivery) fail(ctx context.Context, failure error) (mail.Outcome, error) {
	if d.subject.AccountID == "" {
		d.subject.AccountID = fault.AccountOf(failure)
	}
	run := ledger.Failure{
		Run: rand.Text(), Consumer: d.route.EntryPoint, Topic: d.route.Topic, Subject: d.subject,
		Data: d.message.Data, Attributes: ledger.OwnAttributes(d.message.Attributes),
		Err: failure, At: d.Now(), Revision: d.Revision, Trace: d.message.Traceparent,
		Operation: d.operation,
	}
	dies := func(e ledger.Entry) bool {
		return e.State == ledger.Retrying && (fault.IsPermanent(failure) || e.Spent(d.route.Delivery.MaxRetries))
	}
	doneMeanwhile, mine := false, false
	entry, err := d.Ledger.Change(ctx, d.id, func(e ledger.Entry) (ledger.Entry, bool) {
		doneMeanwhile = e.State == ledger.Resolved && !e.ResolvedAt().Before(d.began)
		e = e.Failed(run)
		if mine = dies(e) && e.BurialFree(run.Run, run.At); mine {
			e = e.BurialClaimed(run.Run, run.At)
		}
		return e, !doneMeanwhile
	})
	switch {
	case err != nil:
		return retry, errors.Join(failure, fmt.Errorf("record the failure %s: %w", d.id, err))
	case doneMeanwhile:
		return resolved, nil
	case entry.State == ledger.Dead:
		return alreadyDead, failure
	case mine:
		return d.bury(ctx, entry, failure)
	}
	return retry, failure // a run is left, or another copy is about to bury the event
}

// buryLater gives an event up whose last run has failed, but whose dead letter was not safe yet. The
// copies of one event make one letter: who does not get to claim it comes again.
func (d *delivery) buryLater(ctx context.Context, failure error) (mail.Outcome, error) {
	token, now, mine := rand.Text(), d.Now(), false
	entry, err := d.Ledger.Change(ctx, d.id, func(e ledger.Entry) (ledger.Entry, bool) {
		mine = e.State == ledger.Retrying && e.BurialFree(token, now)
		return e.BurialClaimed(token, now), mine
	})
	if err != nil || !mine {
		return retry, errors.Join(failure, err)
	}
	return d.bury(ctx, entry, failure)
}

// bury publishes the dead letter, then records that it is safe. If either fails, the push comes back.
func (d *delivery) bury(ctx context.Context, entry ledger.Entry, failure error) (mail.Outcome, error) {
	if err := d.Letters.PublishRaw(ctx, d.route.DeadLetterTopic(), d.message.Data, entry.Letter()); err != nil {
		return retry, errors.Join(failure, fmt.Errorf("publish the dead letter %s: %w", entry.ID, err))
	}
	_, err := d.Ledger.Change(ctx, entry.ID, func(e ledger.Entry) (ledger.Entry, bool) {
		return e.Buried(d.Now()), e.State == ledger.Retrying
	})
	if err != nil {
		return retry, errors.Join(failure, fmt.Errorf("record the dead letter %s: %w", entry.ID, err))
	}
	return dead, failure
}

// report writes the one log line of a delivery.
func (d *delivery) report(outcome mail.Outcome, err error) {
	level, consumer := slog.LevelInfo, d.route.EntryPoint
	attrs := []slog.Attr{
		slog.String("event", d.subject.EventID),
		slog.String("message_id", d.message.ID),
		slog.Int("attempt", d.message.Attempt),
		slog.String("outcome", string(outcome)),
		slog.Int64("milliseconds", d.Now().Sub(d.began).Milliseconds()),
		gcplog.Trace(d.Project, d.message.Traceparent),
	}
	code := ""
	if err != nil {
		level = slog.LevelWarn
		code = string(fault.CodeOf(err))
		attrs = append(attrs, slog.String("error", fault.Text(err)))
	}
	if outcome == dead {
		level = slog.LevelError
	}
	attrs = append(attrs, gcplog.Labels("consumer", consumer, "lane", d.subject.Lane, "outcome", string(outcome), "code", code))
	d.Log.LogAttrs(context.Background(), level, consumer+" "+string(outcome), attrs...)
}
