package delivery

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/gcplog"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// Monitor serves the pushes of every dead-letter topic. It never dead-letters: a letter comes back
// until handle has taken it, and one that cannot be read is handed on as raw bytes.
func (s *Server) Monitor(catalogue *lane.Catalogue, handle func(context.Context, ledger.Entry) (mail.Outcome, error)) http.HandlerFunc {
	letters := NewLetterReader(catalogue)
	monitor := lane.Route{EntryPoint: "DeadLetter", Subscription: "dead-letter-monitor"}
	return func(w http.ResponseWriter, r *http.Request) {
		d := &delivery{Server: s, route: monitor, began: s.Now()}
		body, status, reason := s.admit(w, r)
		if reason != "" {
			d.report(refused, errors.New(reason))
			http.Error(w, reason, status)
			return
		}
		letter := s.letter(body, letters)
		ctx, cancel := context.WithTimeout(r.Context(), monitorTimeout)
		defer cancel()
		ctx = context.WithValue(ctx, purposeKey{}, Purpose{monitor.EntryPoint, letter.ID})
		outcome, err := handle(ctx, letter)
		if err != nil {
			d.report(retry, err)
			http.Error(w, "failed; to be delivered again", http.StatusServiceUnavailable)
			return
		}
		s.reportLetter(letter, outcome, d.began)
		w.WriteHeader(http.StatusNoContent)
	}
}

// monitorTimeout keeps a letter's answer within the 10 seconds that every push is answered in.
const monitorTimeout = 9 * time.Second

func (s *Server) letter(body []byte, letters *LetterReader) ledger.Entry {
	m, err := DecodePush(body)
	if err != nil {
		return ledger.Entry{ID: "dead-letter-monitor." + digest(body)}.Failed(ledger.Failure{
			Run: digest(body), Consumer: "DeadLetter", Data: body, At: s.Now(), Revision: s.Revision,
			Err: fault.Permanent(fault.Malformed, err),
		}).Buried(s.Now())
	}
	if m.PublishTime.IsZero() {
		m.PublishTime = s.Now()
	}
	return letters.Read(m)
}

// reportLetter writes the one log line of a letter: a warning, unless it was a late copy.
func (s *Server) reportLetter(e ledger.Entry, outcome mail.Outcome, began time.Time) {
	level := slog.LevelWarn
	if outcome != mail.Recorded {
		level = slog.LevelInfo
	}
	s.Log.LogAttrs(context.Background(), level, "DeadLetter "+string(outcome),
		slog.String("event", e.EventID),
		slog.String("ledger_id", e.ID),
		slog.String("outcome", string(outcome)),
		slog.String("error", e.Error),
		slog.String("fingerprint", e.Fingerprint),
		slog.Int64("milliseconds", s.Now().Sub(began).Milliseconds()),
		gcplog.Trace(s.Project, e.Trace),
		gcplog.Labels("consumer", e.Consumer, "lane", e.Lane, "outcome", string(outcome), "code", string(e.Code)),
	)
}

// Scheduled serves a function that a schedule calls with an empty POST. Its counts go into the one
// log line; its error is answered 500, so that the schedule's own retry comes.
func (s *Server) Scheduled(name string, timeout time.Duration, run func(context.Context) ([]slog.Attr, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "only POST is answered here", http.StatusMethodNotAllowed)
			return
		}
		began := s.Now()
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		attrs, err := run(ctx)
		level, outcome, code := slog.LevelInfo, "done", ""
		if err != nil {
			level, outcome, code = slog.LevelError, "failed", string(fault.CodeOf(err))
			attrs = append(attrs, slog.String("error", fault.Text(err)))
		}
		attrs = append(attrs,
			slog.String("outcome", outcome),
			slog.Int64("milliseconds", s.Now().Sub(began).Milliseconds()),
			gcplog.Trace(s.Project, r.Header.Get("traceparent")),
			gcplog.Labels("consumer", name, "lane", "", "outcome", outcome, "code", code))
		s.Log.LogAttrs(context.Background(), level, name+" "+outcome, attrs...)
		if err != nil {
			http.Error(w, "failed", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}
