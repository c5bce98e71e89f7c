// Package courier delivers as Pub/Sub's push does, from the emulator to functions on this machine.
//
// Each route has as many workers as the catalogue allows requests at once (instances × concurrency),
// and never more. A delivery is a POST to {base}/{entry point} with the body and headers of a real
// push. 102, 200, 201, 202 and 204 acknowledge; any other answer, none within the route's ack
// deadline, or a refused connection is a nack.
//
// The emulator counts the attempts and forwards to the dead-letter topic what has spent them: at the
// last attempt's nack, with the attributes that Pub/Sub adds. The courier waits: after attempt n it
// holds the message for the route's smallest back-off × 2^(n-1), at most its largest, times
// RetryScale, and only then gives it back. Nothing else can be scaled; counts can't. As on Google
// Cloud the delivery attempt is in the body only where the subscription has a dead-letter policy.
//
// The subscriptions are those that package provision makes: pull, without a retry policy. What the
// courier has pulled it holds by leases of seconds that it renews, so everything not acknowledged is
// delivered again: at once after a clean stop, within half a minute after a kill. What had been
// pulled but not yet posted then counts one attempt more.
//
// Only one thing of Google's is left out on purpose: there a nack slows the whole subscription down.
package courier

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	subscriber "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"mailyard.internal/mailyard/shared/lane"
)

// Options say where and how to deliver.
type Options struct {
	// Base is the URL under which each function is at /<EntryPoint>.
	Base string
	// Token gives the bearer token of a delivery. It is asked for each one, for the URL it goes to.
	// Nil sends none; an error is a nack.
	Token func(audience string) (string, error)
	// RetryScale multiplies every back-off; 0 is 1.
	RetryScale float64
	// Grace is how long requests in flight may still take when the courier stops; 0 is ten seconds.
	Grace time.Duration

	// Shuffle holds each message on its first attempt for a time of its own between 0 and this, so
	// that messages overtake each other within a route and between routes.
	Shuffle time.Duration
	// Repeat is the share of messages, 0 to 1, that are posted twice on their first attempt, each copy
	// shuffled for itself. Such a message is acknowledged only when both copies were.
	Repeat float64
	// Seed decides, together with a message's data, how long it is held and whether it is repeated.
	Seed uint64

	// Observe is told of every post, by many goroutines at once; it should be quick.
	Observe func(Delivery)
}

// A Delivery is one POST that has been made.
type Delivery struct {
	Route       lane.Route
	MessageID   string
	PublishTime time.Time
	Attributes  map[string]string
	Data        []byte
	Attempt     int  // 1 is the first; counted by the courier itself where Pub/Sub does not count
	Repeat      bool // the second copy of a message that Options.Repeat chose
	Status      int  // of the answer; 0 if there was none
	Err         error
	Duration    time.Duration
}

// Acknowledged says whether the answer was one that Pub/Sub takes for an acknowledgement.
func (d Delivery) Acknowledged() bool {
	switch d.Status {
	case http.StatusProcessing, http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent:
		return true
	}
	return false
}

// A Courier delivers the messages of some routes.
type Courier struct {
	subs      *subscriber.SubscriptionAdminClient
	options   Options
	http      *http.Client
	consumers []*consumer
	activity  atomic.Uint64 // grows whenever a message comes or goes

	started, stopped chan struct{}
	mu               sync.Mutex
	pulling          context.Context // ends when no more may be pulled
	closed           bool            // no more pulls may begin
	pulls            sync.WaitGroup
}

// New makes a courier for these routes in the client's project. The client stays the caller's.
func New(client *pubsub.Client, routes []lane.Route, o Options) *Courier {
	if o.RetryScale == 0 {
		o.RetryScale = 1
	}
	if o.Grace == 0 {
		o.Grace = 10 * time.Second
	}
	c := &Courier{
		subs: client.SubscriptionAdminClient, options: o,
		started: make(chan struct{}), stopped: make(chan struct{}),
	}
	workers := 0
	for _, r := range routes {
		name := fmt.Sprintf("projects/%s/subscriptions/%s", client.Project(), r.Subscription)
		consumer := newConsumer(c, r, name)
		workers += consumer.workers
		c.consumers = append(c.consumers, consumer)
	}
	c.http = newHTTPClient(workers)
	return c
}

// Run delivers until ctx ends, or until the emulator can no longer be asked, which is its error. It
// returns when nothing of it runs any more: requests in flight have been answered or, after the grace,
// cut off, and what was not acknowledged has been given back. It may be called once. Its end by ctx is
// no error.
func (c *Courier) Run(ctx context.Context) error {
	pulling, stopPulling := context.WithCancel(ctx)
	defer stopPulling()
	var failure error // the first
	fail := func(err error) {
		if err == nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if failure == nil {
			failure = err
		}
		stopPulling()
	}
	// What has been pulled is dealt with to the end, whatever ends the pulling.
	lasting := context.WithoutCancel(ctx)
	posting, cutOff := context.WithCancel(lasting)
	defer cutOff()
	defer close(c.stopped)
	defer c.http.CloseIdleConnections()

	c.mu.Lock()
	c.pulling = pulling
	c.mu.Unlock()
	var workers, settlers sync.WaitGroup
	for _, consumer := range c.consumers {
		c.pulls.Go(func() { fail(consumer.pullAll(pulling)) })
		for range consumer.workers {
			workers.Go(func() { consumer.work(posting) })
		}
		settlers.Go(func() { fail(consumer.settleAll(lasting)) })
	}
	close(c.started)

	<-pulling.Done()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.pulls.Wait()
	for _, consumer := range c.consumers {
		consumer.close()
	}
	grace := time.AfterFunc(c.options.Grace, cutOff)
	defer grace.Stop()
	workers.Wait()
	for _, consumer := range c.consumers {
		consumer.giveBack()
	}
	settlers.Wait()
	return failure
}

// quiet is how long Idle wants nothing to happen. The emulator needs about 50 ms to forward a dead
// letter, the longest that a message is neither here nor on a subscription.
const quiet = 250 * time.Millisecond

// Idle waits until every route is at rest: nothing is being posted, waiting for a retry or being
// acknowledged, and every subscription has been empty whenever it was asked for a quarter of a second,
// with nothing happening in between. It waits for the courier to be running, and fails when it stops. It
// cannot know of what is about to be published: the caller's own publishing must be over.
func (c *Courier) Idle(ctx context.Context) error {
	select {
	case <-c.started:
	case <-ctx.Done():
		return fmt.Errorf("wait for the courier to start: %w", ctx.Err())
	}
	for since, before := time.Now(), c.activity.Load(); ; {
		empty, err := c.empty(ctx)
		if err != nil {
			return err
		}
		now := c.activity.Load()
		if !empty || now != before {
			since, before = time.Now(), now
		} else if time.Since(since) > quiet {
			return nil
		}
		pause := 10 * time.Millisecond
		if empty {
			pause = quiet/2 + time.Millisecond
		}
		select {
		case <-time.After(pause):
		case <-c.stopped:
			return errors.New("wait for the courier to be idle: it has stopped")
		case <-ctx.Done():
			return fmt.Errorf("wait for the courier to be idle: %w", ctx.Err())
		}
	}
}

// empty says whether nothing is held and nothing lies on any subscription. What it finds there is
// delivered like everything else.
func (c *Courier) empty(ctx context.Context) (bool, error) {
	for _, consumer := range c.consumers {
		if consumer.holds() {
			return false, nil
		}
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return false, nil
	}
	pulling := c.pulling
	c.pulls.Add(1)
	c.mu.Unlock()
	defer c.pulls.Done()
	pulling, cancel := context.WithCancel(pulling)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()

	var wg sync.WaitGroup
	var found atomic.Int64
	errs := make([]error, len(c.consumers))
	for i, consumer := range c.consumers {
		wg.Go(func() {
			n, err := consumer.pull(pulling, consumer.prefetch, true)
			found.Add(int64(n))
			errs[i] = err
		})
	}
	wg.Wait()
	if pulling.Err() != nil {
		return false, nil
	}
	return found.Load() == 0, errors.Join(errs...)
}

// once turns the client library's own repetition off. It would go on asking an emulator that is gone
// until the call's time is over, and then report what an empty subscription reports too.
var once = gax.WithRetry(func() gax.Retryer { return nil })

// pull takes at most n messages from a subscription. It waits for the first one, about a minute, or
// not at all.
func (c *consumer) pull(ctx context.Context, n int, immediately bool) (int, error) {
	reply, err := c.courier.subs.Pull(ctx, &pubsubpb.PullRequest{
		Subscription: c.name, MaxMessages: int32(n),
		//lint:ignore SA1019 it is deprecated for its cost on Google Cloud; this is for the emulator alone
		ReturnImmediately: immediately,
	}, once)
	switch {
	case err == nil:
	case ctx.Err() != nil, status.Code(err) == codes.DeadlineExceeded, errors.Is(err, context.DeadlineExceeded):
		return 0, nil
	default:
		return 0, fmt.Errorf("pull from %s: %w", c.name, err)
	}
	c.take(reply.ReceivedMessages)
	return len(reply.ReceivedMessages), nil
}
