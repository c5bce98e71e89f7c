package deadletter

import (
	"context"
	"errors"
	"slices"
	"time"

	"mailyard.internal/mailyard/shared/ledger"
)

// sick finds the letters that heal by themselves.
type sick interface {
	// HealsDue returns dead letters whose HealAt has come, the longest due first.
	HealsDue(ctx context.Context, now time.Time, limit int) ([]ledger.Entry, error)
	// LastSuccess returns when an event of the consumer that had failed was last applied; zero where
	// nothing is known of that.
	LastSuccess(ctx context.Context, consumer string) (time.Time, error)
	// Underway returns the entries of a consumer that are redriving, or retrying, by an operation whose id
	// begins so.
	Underway(ctx context.Context, consumer, operation string, limit int) ([]ledger.Entry, error)
}

// A Healer redrives letters that died of a dependency, without an operator, a few times each.
//
// One letter of each consumer goes ahead. Only when an event of that consumer that had failed has been
// applied, after they died and lately, do the others follow, so that an outage costs each of them none of
// its few times.
type Healer struct {
	sick     sick
	operator *Operator
}

// NewHealer returns a healer.
func NewHealer(sick sick, operator *Operator) *Healer { return &Healer{sick, operator} }

// aheadFor is how long the others wait for the one that went ahead, and how long its success counts:
// longer than its attempts take.
const aheadFor = 30 * time.Minute

// healAtOnce bounds what one call redrives; the rest is due at the next.
const healAtOnce = 500

// Heal redrives what is due, and returns how many letters it published.
func (h *Healer) Heal(ctx context.Context) (int, error) {
	due, err := h.sick.HealsDue(ctx, h.operator.Now(), healAtOnce)
	if err != nil {
		return 0, err
	}
	byConsumer := map[string][]ledger.Entry{}
	var consumers []string
	for _, e := range due {
		if byConsumer[e.Consumer] == nil {
			consumers = append(consumers, e.Consumer)
		}
		byConsumer[e.Consumer] = append(byConsumer[e.Consumer], e)
	}
	// Each consumer for itself: one that cannot be redriven keeps no other from it.
	redriven := 0
	var errs []error
	for _, consumer := range consumers {
		n, err := h.redrive(ctx, consumer, byConsumer[consumer])
		redriven += n
		errs = append(errs, err)
	}
	return redriven, errors.Join(errs...)
}

func (h *Healer) redrive(ctx context.Context, consumer string, due []ledger.Entry) (int, error) {
	chosen, err := h.choose(ctx, consumer, due)
	if err != nil {
		return 0, err
	}
	var plan Plan
	for _, e := range chosen {
		plan.Eligible = append(plan.Eligible, e.ID)
	}
	report, err := h.operator.run(ctx, ledger.DeedHeal, plan, Order{Who: "Tick", Reason: "what " + consumer + " needs is up again, or is tried"}, h.operator.Redriver.Heal)
	if err == nil {
		err = report.Err
	}
	return report.Results[Redriven], err
}

// choose returns which of a consumer's letters are redriven now.
func (h *Healer) choose(ctx context.Context, consumer string, due []ledger.Entry) ([]ledger.Entry, error) {
	worked, err := h.sick.LastSuccess(ctx, consumer)
	if err != nil {
		return nil, err
	}
	lately := h.operator.Now().Add(-aheadFor)
	ready := slices.DeleteFunc(slices.Clone(due), func(e ledger.Entry) bool { return !worked.After(e.DeadAt) || worked.Before(lately) })
	if len(ready) > 0 {
		return ready, nil
	}
	healing, err := h.sick.Underway(ctx, consumer, string(ledger.DeedHeal)+"-", healAtOnce)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(healing, func(e ledger.Entry) bool { return e.RedrivenAt.After(lately) }) {
		return nil, nil // one has gone ahead
	}
	return due[:1], nil
}
