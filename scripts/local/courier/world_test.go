package courier_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"mailyard.internal/mailyard/scripts/local/courier"
	"mailyard.internal/mailyard/scripts/local/provision"
	"mailyard.internal/mailyard/shared/lane"
)

// A world is a project of its own on the emulator, and a server that stands for the functions.
type world struct {
	t       testing.TB
	client  *pubsub.Client
	base    string
	options courier.Options
	handler atomic.Value // http.HandlerFunc
}

var testRoute = lane.Route{
	Topic: "test-events", Subscription: "test-events-apply", EntryPoint: "Test", DeadLetters: true,
	Delivery: lane.Delivery{Instances: 2, Concurrency: 3, MinBackoffSeconds: 10, MaxBackoffSeconds: 40, AckDeadlineSeconds: 10, MaxDeliveryAttempts: 5},
}

var monitorRoute = lane.Route{
	Topic: testRoute.DeadLetterTopic(), Subscription: testRoute.MonitorSubscription(), EntryPoint: "DeadLetter", Delivery: testRoute.Delivery,
}

func newWorld(t testing.TB, handler http.HandlerFunc) *world {
	t.Helper()
	if os.Getenv("PUBSUB_EMULATOR_HOST") == "" {
		t.Skip("needs the Pub/Sub emulator: run make test")
	}
	w := &world{t: t}
	var err error
	if w.client, err = pubsub.NewClient(t.Context(), fmt.Sprintf("courier-%x", rand.Uint64())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.client.Close() })
	if err := provision.Routes(t.Context(), w.client, []lane.Route{testRoute, monitorRoute}); err != nil {
		t.Fatal(err)
	}
	w.handler.Store(handler)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.handler.Load().(http.HandlerFunc)(rw, r)
	}))
	t.Cleanup(server.Close)
	w.base = server.URL
	w.options = courier.Options{Base: server.URL, RetryScale: 0.01}
	return w
}

// run starts a courier; stop ends it and returns what Run returned.
func (w *world) run(routes ...lane.Route) (c *courier.Courier, stop func() error) {
	c = courier.New(w.client, routes, w.options)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	w.t.Cleanup(func() {
		if err := stop(); err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
	return c, stop
}

func (w *world) publish(n int) {
	w.t.Helper()
	w.publishTo(testRoute.Topic, n)
}

func (w *world) publishTo(topic string, n int) {
	w.t.Helper()
	for sent := 0; sent < n; {
		var messages []*pubsubpb.PubsubMessage
		for ; sent < n && len(messages) < 500; sent++ {
			messages = append(messages, &pubsubpb.PubsubMessage{Data: []byte(strconv.Itoa(sent)), Attributes: map[string]string{"n": strconv.Itoa(sent)}})
		}
		_, err := w.client.TopicAdminClient.Publish(w.t.Context(), &pubsubpb.PublishRequest{
			Topic: "projects/" + w.client.Project() + "/topics/" + topic, Messages: messages,
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) idle(c *courier.Courier) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 60*time.Second)
	defer cancel()
	if err := c.Idle(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// A log collects deliveries as Observe reports them.
type log struct {
	mu  sync.Mutex
	all []courier.Delivery
	at  []time.Time
}

func (l *log) observe(d courier.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, d)
	l.at = append(l.at, time.Now())
}

func (l *log) of(entryPoint string) []courier.Delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []courier.Delivery
	for _, d := range l.all {
		if d.Route.EntryPoint == entryPoint {
			found = append(found, d)
		}
	}
	return found
}

func answer(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) }
}

// BenchmarkDelivery is the courier with a handler that does nothing, server and courier in one process.
func BenchmarkDelivery(b *testing.B) {
	route := testRoute
	route.Topic, route.Subscription = "bench-events", "bench-events-apply"
	route.Delivery.Instances, route.Delivery.Concurrency = 5, 10
	w := newWorld(b, answer(http.StatusNoContent))
	if err := provision.Routes(b.Context(), w.client, []lane.Route{route}); err != nil {
		b.Fatal(err)
	}
	var delivered sync.WaitGroup
	delivered.Add(b.N)
	w.options.Observe = func(courier.Delivery) { delivered.Done() }
	w.publishTo(route.Topic, b.N)
	b.ResetTimer()
	w.run(route)
	delivered.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
}
