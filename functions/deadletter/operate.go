package deadletter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"mailyard.internal/mailyard/shared/fault"
	"mailyard.internal/mailyard/shared/ledger"
)

// records keeps what operations did.
type records interface {
	SaveOperation(ctx context.Context, r ledger.OperationRecord) error
	// Skew returns how far this machine's clock is ahead of the store's, negative where it is behind.
	Skew(ctx context.Context) (time.Duration, error)
}

// The results of operations beside those of republishing.
const (
	Discarded Result = "discarded"
	Edited    Result = "edited"
	Failed    Result = "failed" // an error; the entry stands as it stood, or claimed for claimFor
)

const (
	// parallel is how many letters an operation has under way at once: one takes five round trips, so that
	// this makes 300 a second of round trips of 20 ms.
	parallel = 32
	// giveUpAfter is how many failures in a row end an operation: what it needs is down, and every letter
	// that it still claims would be kept from the next one for minutes.
	giveUpAfter = 10
	// recordEvery is how often an operation records how far it has come.
	recordEvery = 5 * time.Second
)

// OperatorPorts are what an Operator works with.
type OperatorPorts struct {
	Store     store
	Redriver  *Redriver
	Records   records
	Inspector *Inspector
	Events    Events
	Now       func() time.Time
}

// An Operator does to letters what a person asks for, and keeps the record of it.
type Operator struct{ OperatorPorts }

// NewOperator returns an operator.
func NewOperator(p OperatorPorts) *Operator { return &Operator{p} }

// An Order is who asks for what, and why.
type Order struct {
	Who, Reason string
	// Filter is what chose the letters, by the filter's names.
	Filter map[string]string
	// Rate is how many letters are begun in a second, at most; 0 is no limit.
	Rate float64
	// Done is called for each letter that is done, one at a time; it may be nil.
	Done func()
}

// A Report is what an operation did.
type Report struct {
	Operation string // the first record's id; empty where nothing was to do
	Results   map[Result]int
	Left      int   // not begun, because the operation was stopped
	Err       error // the last failure
	Hopeless  bool  // stopped because failure followed failure
	Untidy    error // why letters that are no longer open may still be on an -inspect subscription
}

// Redrive publishes the letters of a plan again, each on its own topic, oldest failure first, at the
// order's rate. It stops between two letters when ctx ends, and when failure follows failure. The error
// is that of the record alone, without which nothing is begun.
func (o *Operator) Redrive(ctx context.Context, plan Plan, order Order) (Report, error) {
	return o.run(ctx, ledger.DeedRedrive, plan, order, o.redrive)
}

func (o *Operator) redrive(ctx context.Context, operation, id string) (Result, error) {
	result, err := o.Redriver.Redrive(ctx, operation, id)
	if result != NoData || err != nil {
		return result, err
	}
	letter, found, err := o.Inspector.Find(ctx, id)
	if err != nil || !found {
		return NoData, err
	}
	return o.Redriver.RedriveHeld(ctx, operation, id, letter)
}

// Discard gives the letters of a plan up: their events are not applied.
func (o *Operator) Discard(ctx context.Context, plan Plan, order Order) (Report, error) {
	return o.run(ctx, ledger.DeedDiscard, plan, order, o.discard)
}

func (o *Operator) discard(ctx context.Context, operation, id string) (Result, error) {
	result := Discarded
	_, err := o.Store.Change(ctx, id, func(e ledger.Entry) (ledger.Entry, bool) {
		result = Discarded
		switch {
		case e.Discarded && e.Operation == operation:
			return e, false // by a write whose reply was lost
		case e.State != ledger.Dead:
			result = Moved
		case e.ClaimedAfter(o.Now().Add(-claimFor)):
			result = Busy
		}
		return e.Discard(operation, o.Now()), result == Discarded
	})
	return result, err
}

// tidy takes what is no longer open off the -inspect subscriptions. What it leaves, Tick takes.
func (o *Operator) tidy(ctx context.Context, topics []string) error {
	var errs []error
	for _, topic := range topics {
		if _, err := o.Inspector.Tidy(context.WithoutCancel(ctx), topic); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// maxSkew is how far a clock may be off before an operation is refused: a claim lasts claimFor by the clock
// of who looks at it.
const maxSkew = time.Minute

func (o *Operator) checkClock(ctx context.Context) error {
	skew, err := o.Records.Skew(ctx)
	if err == nil && skew.Abs() > maxSkew {
		err = fmt.Errorf("this machine's clock is %s off Firestore's, so that what it claims would not be kept from others; set the clock and try again", skew.Round(time.Second))
	}
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	return nil
}

// A deed does something to one letter.
type deed func(ctx context.Context, operation, id string) (Result, error)

// run does a deed to a frozen list of letters, in as many records as they need.
func (o *Operator) run(ctx context.Context, kind ledger.Deed, plan Plan, order Order, do deed) (report Report, err error) {
	ids := plan.Eligible
	report = Report{Results: map[Result]int{}, Left: len(ids)}
	if len(ids) == 0 {
		return report, nil
	}
	if err := o.checkClock(ctx); err != nil {
		return report, err
	}
	defer func() { report.Untidy = o.tidy(ctx, plan.Topics) }()
	began := o.Now()
	report.Operation = string(kind) + "-" + began.UTC().Format("20060102T150405") + "-" + strings.ToLower(rand.Text()[:4])
	limit := rate.Inf
	if order.Rate > 0 {
		limit = rate.Limit(order.Rate)
	}
	// What a moment of waiting has missed, of a twentieth of a second at most, is made up for.
	limiter := rate.NewLimiter(limit, max(1, int(order.Rate/20)))
	for part := 1; len(ids) > 0; part++ {
		some := ids[:min(len(ids), ledger.MaxOutcomes)]
		ids = ids[len(some):]
		operation := report.Operation
		if part > 1 {
			operation += fmt.Sprintf(".%d", part)
		}
		r := newRun(ledger.OperationRecord{
			ID: operation, Deed: kind, Who: order.Who, Reason: order.Reason, Filter: order.Filter, StartedAt: o.Now(),
		}, some)
		if err := o.Records.SaveOperation(ctx, r.record()); err != nil {
			return report, fmt.Errorf("nothing more was changed: %w", err)
		}
		o.work(ctx, r, some, limiter, order.Done, do)
		r.finished = o.Now()
		err := o.Records.SaveOperation(context.WithoutCancel(ctx), r.record())
		for result, n := range r.counts {
			report.Results[result] += n
			report.Left -= n
		}
		if r.lastErr != nil {
			report.Err = r.lastErr
		}
		report.Hopeless = r.hopeless()
		if err != nil || ctx.Err() != nil || report.Hopeless {
			return report, err
		}
	}
	return report, nil
}

// work does a deed to each letter at the limiter's pace, and returns when none is under way any more.
func (o *Operator) work(ctx context.Context, r *run, ids []string, limiter *rate.Limiter, done func(), do deed) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		o.recordWhile(ctx, r, stop)
	}()
	slots := make(chan struct{}, parallel)
	var wait sync.WaitGroup
	for _, id := range ids {
		slots <- struct{}{}
		if limiter.Wait(ctx) != nil || r.hopeless() {
			break
		}
		wait.Go(func() {
			defer func() { <-slots }()
			// A letter that was begun is brought to its end, so that none stays claimed.
			result, err := do(context.WithoutCancel(ctx), r.id(), id)
			r.count(id, result, err, done)
		})
	}
	wait.Wait()
	close(stop)
	<-stopped
}

// recordWhile records how far an operation has come, for who looks while it runs, and for the case that
// it is cut off. What could not be recorded is with the next time.
func (o *Operator) recordWhile(ctx context.Context, r *run, stop <-chan struct{}) {
	ticker := time.NewTicker(recordEvery)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			_ = o.Records.SaveOperation(context.WithoutCancel(ctx), r.record())
		}
	}
}

// A run is one record's worth of an operation, while it goes on.
type run struct {
	mu       sync.Mutex
	saved    ledger.OperationRecord
	outcomes map[string]string
	counts   map[Result]int
	inARow   int  // failures
	gaveUp   bool // for good, also where one that was under way then succeeds
	lastErr  error
	finished time.Time
}

func newRun(r ledger.OperationRecord, ids []string) *run {
	outcomes := make(map[string]string, len(ids))
	for _, id := range ids {
		outcomes[id] = ledger.Pending
	}
	return &run{saved: r, outcomes: outcomes, counts: map[Result]int{}}
}

func (r *run) id() string { return r.saved.ID }

// record is the record as it stands.
func (r *run) record() ledger.OperationRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	record := r.saved
	record.FinishedAt = r.finished
	record.Outcomes = make(map[string]string, len(r.outcomes))
	for id, outcome := range r.outcomes {
		record.Outcomes[id] = outcome
	}
	record.Counts = map[string]int{"letters": len(r.outcomes)}
	for result, n := range r.counts {
		record.Counts[string(result)] = n
	}
	return record
}

func (r *run) count(id string, result Result, err error, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.counts[Failed]++
		r.outcomes[id] = string(Failed) + ": " + string(fault.CodeOf(err))
		r.inARow++
		r.gaveUp = r.gaveUp || r.inARow >= giveUpAfter
		r.lastErr = err
	} else {
		r.counts[result]++
		r.outcomes[id] = string(result)
		r.inARow = 0
	}
	if done != nil {
		done()
	}
}

func (r *run) hopeless() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gaveUp
}
