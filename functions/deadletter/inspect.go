package deadletter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/ledger"
	"mailyard.internal/mailyard/shared/mail"
)

// A shelf is where the -inspect subscriptions are: what is pulled is kept from others for a while, until
// it is acknowledged or given back.
type shelf interface {
	// Pull takes up to limit letters; none where there are none at hand, which may be so although there
	// are some.
	Pull(ctx context.Context, subscription string, limit int) ([]ledger.Held, error)
	Acknowledge(ctx context.Context, subscription string, letters []ledger.Held) error
	GiveBack(ctx context.Context, subscription string, letters []ledger.Held) error
}

// inspected is the ledger as an Inspector reads it.
type inspected interface {
	EntriesByID(ctx context.Context, ids []string) (map[string]ledger.Entry, error)
	// Unlinked reports whether the account is gone because it was unlinked.
	Unlinked(ctx context.Context, account string) (bool, error)
}

// An Inspector keeps the -inspect subscriptions in step with the ledger, so that the Cloud Console shows
// what is open, and explains it.
type Inspector struct {
	shelf     shelf
	ledger    inspected
	publisher publisher
	routes    []lane.Route
	read      func(lane.Route, ledger.Held) ledger.Entry

	finding sync.Mutex // who looks for one letter keeps all others from the next
}

// NewInspector returns an inspector of these routes' letters. read says what a letter says, as the
// monitor of its route reads it.
func NewInspector(shelf shelf, entries inspected, publisher publisher, routes []lane.Route, read func(lane.Route, ledger.Held) ledger.Entry) *Inspector {
	return &Inspector{shelf: shelf, ledger: entries, publisher: publisher, routes: routes, read: read}
}

const (
	// pullAtOnce is few enough for a batch to be done with before its letters go back by themselves.
	pullAtOnce = 100
	// emptyPulls is after how many pulls in a row that bring nothing a subscription is taken for empty, and
	// betweenPulls how long Pub/Sub has to find something.
	emptyPulls, betweenPulls = 3, 200 * time.Millisecond
	// walkAtMost bounds what one walk looks at: the rest is another walk's.
	walkAtMost = 10_000
)

// Topics returns the topics whose letters the inspector knows, in one order.
func (i *Inspector) Topics() []string {
	topics := make([]string, len(i.routes))
	for n, r := range i.routes {
		topics[n] = r.Topic
	}
	slices.Sort(topics)
	return topics
}

// Tidy acknowledges the letters of a topic that are no longer open: what they are about was done,
// discarded, or published again since. A letter that Pub/Sub forwarded itself is replaced by one with an
// autopsy, as far as the ledger knows it. It returns how many letters it took away. A letter that the
// ledger does not know yet stays.
func (i *Inspector) Tidy(ctx context.Context, topic string) (int, error) {
	route, ok := i.route(topic)
	if !ok {
		return 0, nil // of a lane that is not on any more
	}
	taken := 0
	err := i.walk(ctx, route.InspectSubscription(), func(letters []ledger.Held) ([]ledger.Held, bool, error) {
		closed, err := i.closed(ctx, route, letters)
		taken += len(closed)
		return closed, true, err
	})
	return taken, err
}

// closed chooses those of the letters that nobody has to see any more.
func (i *Inspector) closed(ctx context.Context, route lane.Route, letters []ledger.Held) ([]ledger.Held, error) {
	ids := map[string]bool{}
	said := make([]ledger.Entry, len(letters))
	for n, h := range letters {
		said[n] = i.read(route, h)
		ids[said[n].ID] = true
	}
	entries, err := i.ledger.EntriesByID(ctx, slices.Collect(maps.Keys(ids)))
	if err != nil {
		return nil, err
	}
	unlinked := map[string]bool{} // asked once an account
	var closed []ledger.Held
	for n, h := range letters {
		e, known := entries[said[n].ID]
		switch {
		case known && e.Closes(said[n], h.Published):
			closed = append(closed, h)
		case known && e.State == ledger.Dead && h.Bare():
			if err := i.complete(ctx, route, h, e); err != nil {
				return closed, err
			}
			closed = append(closed, h)
		case !known && mail.PlainID(said[n].AccountID):
			gone, asked := unlinked[said[n].AccountID]
			if !asked {
				if gone, err = i.ledger.Unlinked(ctx, said[n].AccountID); err != nil {
					return closed, err
				}
				unlinked[said[n].AccountID] = gone
			}
			if gone {
				closed = append(closed, h)
			}
		}
	}
	return closed, nil
}

// complete publishes a letter with the autopsy that it lacks.
func (i *Inspector) complete(ctx context.Context, route lane.Route, h ledger.Held, e ledger.Entry) error {
	attributes := maps.Clone(h.Attributes)
	for name, value := range e.Letter() {
		attributes[name] = value
	}
	if err := i.publisher.PublishRaw(ctx, route.DeadLetterTopic(), h.Data, attributes); err != nil {
		return fmt.Errorf("complete the letter %s: %w", e.ID, err)
	}
	return nil
}

// Find returns the letter of an entry, or false where no -inspect subscription holds it at the moment.
func (i *Inspector) Find(ctx context.Context, id string) (ledger.Held, bool, error) {
	i.finding.Lock()
	defer i.finding.Unlock()
	entries, err := i.ledger.EntriesByID(ctx, []string{id})
	if err != nil {
		return ledger.Held{}, false, err
	}
	route, ok := i.route(entries[id].Topic)
	if !ok {
		return ledger.Held{}, false, nil
	}
	var letter ledger.Held
	found := false
	err = i.walk(ctx, route.InspectSubscription(), func(letters []ledger.Held) ([]ledger.Held, bool, error) {
		for _, h := range letters {
			if i.read(route, h).ID == id {
				letter, found = h, true
			}
		}
		return nil, !found, nil
	})
	return letter, found, err
}

func (i *Inspector) route(topic string) (lane.Route, bool) {
	n := slices.IndexFunc(i.routes, func(r lane.Route) bool { return r.Topic == topic })
	if n < 0 {
		return lane.Route{}, false
	}
	return i.routes[n], true
}

// walk shows each letter of a subscription once, acknowledges those that visit returns, and gives the
// others back when it has ended. It ends when there are no more, or when visit says so.
func (i *Inspector) walk(ctx context.Context, subscription string, visit func([]ledger.Held) (done []ledger.Held, goOn bool, err error)) (err error) {
	seen := map[string]bool{} // by Pub/Sub's message id
	var kept []ledger.Held
	defer func() {
		if giveBack := i.shelf.GiveBack(context.WithoutCancel(ctx), subscription, kept); giveBack != nil {
			err = errors.Join(err, giveBack)
		}
	}()
	empty := 0
	for len(seen) < walkAtMost && empty < emptyPulls {
		if empty > 0 {
			time.Sleep(betweenPulls)
		}
		pulled, err := i.shelf.Pull(ctx, subscription, pullAtOnce)
		if err != nil {
			return err
		}
		var fresh []ledger.Held
		for _, h := range pulled {
			if !seen[h.MessageID] {
				seen[h.MessageID] = true
				fresh = append(fresh, h)
			}
			kept = append(kept, h)
		}
		if len(fresh) == 0 {
			empty++
			continue
		}
		empty = 0
		done, goOn, err := visit(fresh)
		if len(done) > 0 {
			if err := i.shelf.Acknowledge(ctx, subscription, done); err != nil {
				return err
			}
			kept = without(kept, done)
		}
		if err != nil || !goOn {
			return err
		}
	}
	return nil
}

func without(letters, gone []ledger.Held) []ledger.Held {
	handles := map[string]bool{}
	for _, h := range gone {
		handles[h.Handle] = true
	}
	return slices.DeleteFunc(letters, func(h ledger.Held) bool { return handles[h.Handle] })
}
