package app

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"mailyard.internal/mailyard/functions/console"
	"mailyard.internal/mailyard/functions/deadletter"
	"mailyard.internal/mailyard/functions/mailbox"
	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/firestoredb"
	"mailyard.internal/mailyard/shared/gcplog"
	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

func (a *App) console(ctx context.Context) (http.HandlerFunc, error) {
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	catalogue, err := a.catalogue()
	if err != nil {
		return nil, err
	}
	s, err := a.stores(ctx)
	if err != nil {
		return nil, err
	}
	operator, err := a.operator(ctx, s)
	if err != nil {
		return nil, err
	}
	failures := consoleFailures{s.db}
	return console.New(console.Ports{
		Failures: failures, Mailboxes: consoleMailboxes{s.db}, Operations: s.db,
		Mirror: consoleMirror{s.db, operator, catalogue}, Operator: consoleOperator{operator},
		Routes: catalogue.Routes(), Lanes: catalogue.Lanes, Project: c.Project, Report: a.logConsole(c.Project), Now: a.now,
	}).ServeHTTP, nil
}

// logConsole writes the one log line of a deed, or of a page that could not be shown. What is only looked
// at leaves none.
func (a *App) logConsole(project string) func(*http.Request, console.Visit, time.Duration) {
	return func(r *http.Request, v console.Visit, took time.Duration) {
		outcome, level, code := "refused", slog.LevelWarn, ""
		switch {
		case v.Err != nil:
			outcome, level, code = "failed", slog.LevelError, string(fault.CodeOf(v.Err))
		case v.Operation != "":
			outcome, level = string(v.Deed), slog.LevelInfo
		}
		attrs := []slog.Attr{
			slog.String("page", v.Page), slog.String("who", v.Who), slog.String("operation", v.Operation), slog.Int("letters", v.Letters),
			slog.Int("status", v.Status), slog.String("outcome", outcome), slog.Int64("milliseconds", took.Milliseconds()),
			gcplog.Trace(project, r.Header.Get("traceparent")),
		}
		if v.Err != nil {
			attrs = append(attrs, slog.String("error", fault.Text(v.Err)))
		}
		attrs = append(attrs, gcplog.Labels("consumer", "Console", "lane", "", "outcome", outcome, "code", code))
		a.log.LogAttrs(context.Background(), level, "Console "+outcome, attrs...)
	}
}

// consoleFailures reads the ledger for the console.
type consoleFailures struct{ *firestoredb.DB }

// Entries returns up to limit entries without data, beginning after an id.
func (f consoleFailures) Entries(ctx context.Context, choice console.Choice, after string, limit int) ([]ledger.Entry, error) {
	filter := firestoredb.EntryFilter{
		Consumer: choice.Consumer, Account: choice.Account, Code: choice.Code, Fingerprint: choice.Fingerprint, WithoutData: true,
		States: []ledger.State{choice.State},
	}
	if choice.State == "" {
		filter.States = ledger.Unresolved()
	}
	return f.EntriesAfter(ctx, filter, after, limit)
}

// consoleMailboxes sums accounts up for the console.
type consoleMailboxes struct{ *firestoredb.DB }

const (
	// failuresRead is how many failures of one account are read to say what it is in step to.
	failuresRead = 200
	// standingsAtOnce is how many accounts are summed up at the same time.
	standingsAtOnce = 10
)

// Standings returns up to limit accounts, beginning after an id.
func (m consoleMailboxes) Standings(ctx context.Context, after string, limit int) ([]console.Standing, error) {
	accounts, err := m.AccountsAfter(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	standings, errs := make([]console.Standing, len(accounts)), make([]error, len(accounts))
	slots := make(chan struct{}, standingsAtOnce)
	var wait sync.WaitGroup
	for i, account := range accounts {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			standings[i], errs[i] = m.standing(ctx, account)
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return standings, nil
}

func (m consoleMailboxes) standing(ctx context.Context, a mail.Account) (console.Standing, error) {
	resyncs, err := m.OpenResyncs(ctx, a.ID)
	if err != nil {
		return console.Standing{}, err
	}
	entries, err := consoleFailures(m).Entries(ctx, console.Choice{Account: a.ID}, "", failuresRead)
	if err != nil {
		return console.Standing{}, err
	}
	failed := make([]mail.HistoryID, len(entries))
	for i, e := range entries {
		failed[i] = e.HistoryID
	}
	s := mailbox.StandingOf(a, resyncs, failed)
	return console.Standing{
		Account: a, InStepTo: s.InStepTo, Failures: s.Failures, Bounded: len(entries) == failuresRead, Resync: s.Resync,
	}, nil
}

// consoleMirror says what the mirror holds of a message. Content it leaves here: the console has no word
// for it.
type consoleMirror struct {
	db        *firestoredb.DB
	operator  *deadletter.Operator
	catalogue *lane.Catalogue
}

// Mirrored says what the mirror holds of the message that an entry is about.
func (m consoleMirror) Mirrored(ctx context.Context, e ledger.Entry) (console.Mirrored, error) {
	var message mail.Message
	gone := false
	if isDocument(e.AccountID) && isDocument(e.MessageID) {
		var err error
		_, message, err = m.db.Message(ctx, e.AccountID, e.MessageID)
		gone = fault.Is(err, fault.AccountGone)
		if err != nil && !gone {
			return console.Mirrored{}, err
		}
	}
	mirrored := console.Mirrored{
		There: !message.Version.IsZero(), AccountGone: gone, HasContent: message.HasContent, Deleted: message.Deleted,
		Flags: message.Flags, Guards: message.Guards, FetchDueAt: message.FetchDueAt, UpdatedAt: message.UpdatedAt,
	}
	if e.State != ledger.Resolved && !gone {
		mirrored.Redrive = m.operator.Foresee(m.catalogue, e, message)
	}
	return mirrored, nil
}

// isDocument reports whether an id from a ledger entry, which may hold anything, can name a document.
func isDocument(id string) bool { return id != "" && !strings.Contains(id, "/") }

// consoleOperator does what the console asks for.
type consoleOperator struct{ *deadletter.Operator }

// Plan says what of the entries a deed would be done to.
func (o consoleOperator) Plan(deed ledger.Deed, entries []ledger.Entry, failedBefore time.Time, limit int) console.Plan {
	sort := deadletter.PlanRedrive
	if deed == ledger.DeedDiscard {
		sort = deadletter.PlanDiscard
	}
	p := sort(deadletter.Filter{FailedBefore: failedBefore, Limit: limit}, entries, o.Now())
	plan := console.Plan{Eligible: p.Eligible, Topics: p.Topics}
	for _, reason := range deadletter.Reasons() {
		plan.PassedOver = append(plan.PassedOver, console.Passed{Reason: string(reason), Count: len(p.PassedOver[reason])})
	}
	return plan
}

// Do does a deed to a plan's letters.
func (o consoleOperator) Do(ctx context.Context, deed ledger.Deed, plan console.Plan, order console.Order) (console.Outcome, error) {
	do, done := o.Redrive, deadletter.Redriven
	if deed == ledger.DeedDiscard {
		do, done = o.Discard, deadletter.Discarded
	}
	report, err := do(ctx, deadletter.Plan{Eligible: plan.Eligible, Topics: plan.Topics}, deadletter.Order{
		Who: order.Who, Reason: order.Reason, Filter: order.Filter, Rate: order.Rate,
	})
	return console.Outcome{Operation: report.Operation, Done: report.Results[done], Err: report.Err}, err
}
