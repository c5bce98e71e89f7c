package courier

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"mailyard.internal/mailyard/shared/lane"
)

// Leases. Subscriptions begin with ten seconds; renewing four seconds apart leaves room for a machine
// that is busy.
const (
	renewEvery   = 4 * time.Second
	leaseSeconds = 20
	batch        = 1000 // most messages in one call
)

// A consumer is one route's part of the courier: one puller, its workers, and one settler. The
// settler alone makes the calls about leases, so that none overtakes another.
type consumer struct {
	courier  *Courier
	route    lane.Route
	name     string // of the subscription, whole
	workers  int
	prefetch int // how many posts may wait for a worker; what shuffling holds does not count

	mu         sync.Mutex
	busy, room *sync.Cond
	queue      []post
	held       map[string]*parcel // by ack id, until the emulator knows what became of it
	nacks      map[string]int     // by message id: how often, where the emulator does not count
	acked      []string           // ack ids for the settler
	returned   []string
	closed     bool // nothing is posted any more

	settle chan struct{} // wakes the settler
	finish chan struct{} // closed when the settler has had its last
}

// A parcel is a message that has been pulled.
type parcel struct {
	message *pubsubpb.PubsubMessage
	ackID   string
	attempt int  // 1 is the first
	counted bool // by the emulator, so that the body says it
	open    int  // posts not answered yet
	failed  bool // one of them was not acknowledged
	timers  []*time.Timer
}

// A post is one POST to make.
type post struct {
	parcel *parcel
	repeat bool
}

func newConsumer(c *Courier, r lane.Route, name string) *consumer {
	workers := r.Delivery.Instances * r.Delivery.Concurrency
	k := &consumer{
		courier: c, route: r, name: name, workers: workers, prefetch: min(max(workers, 32), batch),
		held: map[string]*parcel{}, nacks: map[string]int{},
		settle: make(chan struct{}, 1), finish: make(chan struct{}),
	}
	k.busy, k.room = sync.NewCond(&k.mu), sync.NewCond(&k.mu)
	return k
}

// pullAll pulls until ctx ends, as far ahead of the workers as prefetch says.
func (c *consumer) pullAll(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.room.Broadcast()
	})()
	for {
		c.mu.Lock()
		for len(c.queue) > c.prefetch/2 && ctx.Err() == nil {
			c.room.Wait()
		}
		n := c.prefetch - len(c.queue)
		c.mu.Unlock()
		if ctx.Err() != nil {
			return nil
		}
		if _, err := c.pull(ctx, n, false); err != nil {
			return err
		}
	}
}

// take puts pulled messages into the queue, or lets them wait as shuffling wants it.
func (c *consumer) take(messages []*pubsubpb.ReceivedMessage) {
	if len(messages) == 0 {
		return
	}
	c.courier.activity.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range messages {
		p := &parcel{message: m.Message, ackID: m.AckId, attempt: int(m.DeliveryAttempt), counted: m.DeliveryAttempt > 0, open: 1}
		if !p.counted {
			p.attempt = c.nacks[m.Message.MessageId] + 1
		}
		c.held[p.ackID] = p
		if p.attempt > 1 {
			c.enqueue(post{parcel: p})
			continue
		}
		if share := c.courier.options.Repeat; share > 0 && c.chance(p, "repeat") < share {
			p.open = 2
			c.enqueueLater(post{parcel: p, repeat: true}, "second")
		}
		c.enqueueLater(post{parcel: p}, "first")
	}
}

// enqueueLater and enqueue are called with mu held.
func (c *consumer) enqueueLater(p post, copy string) {
	if c.courier.options.Shuffle == 0 {
		c.enqueue(p)
		return
	}
	wait := time.Duration(c.chance(p.parcel, copy) * float64(c.courier.options.Shuffle))
	p.parcel.timers = append(p.parcel.timers, time.AfterFunc(wait, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.enqueue(p)
	}))
}

func (c *consumer) enqueue(p post) {
	c.queue = append(c.queue, p)
	c.busy.Signal()
}

// chance is a number from 0 up to 1 that follows from the seed, the route, the message's data and the
// purpose. Message ids would differ from run to run; the same script of events has the same data.
func (c *consumer) chance(p *parcel, purpose string) float64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %s ", c.courier.options.Seed, c.route.Subscription, purpose)
	h.Write(p.message.Data)
	x := h.Sum64() // FNV's upper bits hardly differ for data that nearly agree, so they are mixed once more
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}

// work is one worker: it posts what is in the queue until the consumer is closed.
func (c *consumer) work(ctx context.Context) {
	for {
		c.mu.Lock()
		for len(c.queue) == 0 && !c.closed {
			c.busy.Wait()
		}
		if c.closed {
			c.mu.Unlock()
			return
		}
		next := c.queue[0]
		c.queue[0] = post{}
		c.queue = c.queue[1:]
		if len(c.queue) <= c.prefetch/2 {
			c.room.Signal()
		}
		c.mu.Unlock()

		d := c.courier.deliver(ctx, c, next)
		if observe := c.courier.options.Observe; observe != nil {
			observe(d)
		}
		c.answered(next.parcel, d.Acknowledged())
	}
}

// answered decides what becomes of a message when its last open post has been answered.
func (c *consumer) answered(p *parcel, acknowledged bool) {
	c.courier.activity.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	p.open--
	p.failed = p.failed || !acknowledged
	if p.open > 0 {
		return
	}
	if !p.failed {
		delete(c.nacks, p.message.MessageId)
		c.acked = append(c.acked, p.ackID)
		c.wakeSettler()
		return
	}
	wait := c.backoff(p.attempt)
	if p.counted {
		if p.attempt >= c.route.Delivery.MaxDeliveryAttempts {
			wait = 0 // the emulator forwards it: there is nothing to wait for
		}
	} else {
		c.nacks[p.message.MessageId] = p.attempt
	}
	if c.closed {
		return // giveBack takes it
	}
	p.timers = append(p.timers, time.AfterFunc(wait, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closed {
			return
		}
		c.returned = append(c.returned, p.ackID)
		c.wakeSettler()
	}))
}

// backoff is how long a message waits after that attempt.
func (c *consumer) backoff(attempt int) time.Duration {
	seconds := float64(c.route.Delivery.MinBackoffSeconds) * math.Pow(2, float64(attempt-1))
	seconds = min(seconds, float64(c.route.Delivery.MaxBackoffSeconds))
	return time.Duration(seconds * c.courier.options.RetryScale * float64(time.Second))
}

// holds says whether the consumer is answerable for any message.
func (c *consumer) holds() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held) > 0
}

// close ends the workers as they become free. What has not been posted stays held.
func (c *consumer) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.busy.Broadcast()
}

// giveBack returns everything that is held and not acknowledged, and ends the settler.
func (c *consumer) giveBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := map[string]bool{}
	for _, id := range slices.Concat(c.acked, c.returned) {
		done[id] = true
	}
	for id, p := range c.held {
		for _, timer := range p.timers {
			timer.Stop()
		}
		if !done[id] {
			c.returned = append(c.returned, id)
		}
	}
	close(c.finish)
}

func (c *consumer) wakeSettler() {
	select {
	case c.settle <- struct{}{}:
	default:
	}
}

// settleAll tells the emulator what became of the messages and renews the leases of the others. It
// ends with the consumer, or when the emulator fails it.
func (c *consumer) settleAll(ctx context.Context) error {
	renew := time.NewTicker(renewEvery)
	defer renew.Stop()
	for {
		var err error
		select {
		case <-c.settle:
			err = c.settleOnce(ctx, false)
		case <-renew.C:
			err = c.settleOnce(ctx, true)
		case <-c.finish:
			return c.settleOnce(ctx, false)
		}
		if err != nil {
			return err
		}
	}
}

func (c *consumer) settleOnce(ctx context.Context, renew bool) error {
	c.mu.Lock()
	acked, returned := c.acked, c.returned
	c.acked, c.returned = nil, nil
	var kept []string
	if renew {
		for id := range c.held {
			kept = append(kept, id)
		}
	}
	c.mu.Unlock()
	if renew {
		settled := map[string]bool{}
		for _, id := range slices.Concat(acked, returned) {
			settled[id] = true
		}
		kept = slices.DeleteFunc(kept, func(id string) bool { return settled[id] })
	}

	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	subs := c.courier.subs
	for ids := range slices.Chunk(acked, batch) {
		if err := subs.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: c.name, AckIds: ids}); err != nil {
			return fmt.Errorf("acknowledge on %s: %w", c.name, err)
		}
		c.drop(ids)
	}
	for ids := range slices.Chunk(returned, batch) {
		if err := c.lease(ctx, ids, 0); err != nil {
			return err
		}
		c.drop(ids)
	}
	for ids := range slices.Chunk(kept, batch) {
		if err := c.lease(ctx, ids, leaseSeconds); err != nil {
			return err
		}
	}
	return nil
}

// lease holds messages for that many seconds from now; 0 gives them back.
func (c *consumer) lease(ctx context.Context, ids []string, seconds int32) error {
	err := c.courier.subs.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{Subscription: c.name, AckIds: ids, AckDeadlineSeconds: seconds})
	if err != nil {
		return fmt.Errorf("change leases on %s: %w", c.name, err)
	}
	return nil
}

func (c *consumer) drop(ids []string) {
	c.courier.activity.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		delete(c.held, id)
	}
}
