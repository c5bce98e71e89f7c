package courier_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"mailyard.internal/mailyard/scripts/local/courier"
	"mailyard.internal/mailyard/scripts/local/provision"
	"mailyard.internal/mailyard/shared/lane"
)

func TestPushIsLikePubSubs(t *testing.T) {
	t.Parallel()
	type request struct {
		path   string
		header http.Header
		body   []byte
	}
	got := make(chan request, 1)
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.URL.Path, r.Header, body}
		rw.WriteHeader(http.StatusNoContent)
	})
	w.options.Token = func(audience string) (string, error) { return "for:" + audience, nil }
	c, _ := w.run(testRoute)
	w.publish(1)
	r := <-got
	if r.path != "/Test" {
		t.Errorf("path %q", r.path)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "CloudPubSub-Google", "Authorization": "Bearer for:" + w.base + "/Test",
	} {
		if r.header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, r.header.Get(name), want)
		}
	}
	if !regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`).MatchString(r.header.Get("Traceparent")) {
		t.Errorf("traceparent %q", r.header.Get("Traceparent"))
	}
	var body map[string]any
	if err := json.Unmarshal(r.body, &body); err != nil {
		t.Fatal(err)
	}
	m := body["message"].(map[string]any)
	if m["data"] != "MA==" || m["attributes"].(map[string]any)["n"] != "0" || m["messageId"] == "" || m["messageId"] != m["message_id"] ||
		m["publishTime"] != m["publish_time"] || body["deliveryAttempt"] != 1.0 ||
		body["subscription"] != "projects/"+w.client.Project()+"/subscriptions/test-events-apply" {
		t.Errorf("body %s", r.body)
	}
	if _, err := time.Parse(time.RFC3339Nano, m["publishTime"].(string)); err != nil {
		t.Error(err)
	}
	w.idle(c)
}

func TestWhatAcknowledges(t *testing.T) {
	t.Parallel()
	for _, status := range []int{102, 200, 201, 202, 204, 203, 205, 206, 302, 400, 404, 409, 429, 500, 503} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			w := newWorld(t, nil)
			w.handler.Store(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if runs.Add(1) == 1 {
					rw.WriteHeader(status)
				}
			}))
			c, _ := w.run(testRoute)
			w.publish(1)
			w.idle(c)
			want := int64(2)
			switch status {
			case 102, 200, 201, 202, 204:
				want = 1
			}
			if runs.Load() != want {
				t.Errorf("posted %d times, want %d", runs.Load(), want)
			}
		})
	}
}

func TestRetriesAndDeadLetter(t *testing.T) {
	t.Parallel()
	var l log
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/Test" {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	w.options.Observe = l.observe
	c, _ := w.run(testRoute, monitorRoute)
	w.publish(1)
	w.idle(c)

	posts := l.of("Test")
	if len(posts) != 5 {
		t.Fatalf("posted %d times, want 5", len(posts))
	}
	// 10, 20, 40 and again 40 seconds, a hundredth of each.
	for i, wait := range []time.Duration{0, 100, 200, 400, 400} {
		if posts[i].Attempt != i+1 {
			t.Errorf("post %d is attempt %d", i, posts[i].Attempt)
		}
		if i == 0 {
			continue
		}
		wait *= time.Millisecond
		if gap := l.at[i].Sub(l.at[i-1]); gap < wait || gap > wait+time.Second {
			t.Errorf("attempt %d came after %v, want %v and not much more", i+1, gap, wait)
		}
	}
	letters := l.of("DeadLetter")
	if len(letters) != 1 {
		t.Fatalf("%d dead letters, want 1", len(letters))
	}
	a := letters[0].Attributes
	if string(letters[0].Data) != "0" || a["n"] != "0" || a["CloudPubSubDeadLetterSourceDeliveryCount"] != "5" ||
		a["CloudPubSubDeadLetterSourceSubscription"] != testRoute.Subscription ||
		a["CloudPubSubDeadLetterSourceSubscriptionProject"] != w.client.Project() || a["CloudPubSubDeadLetterSourceTopicPublishTime"] == "" {
		t.Errorf("the letter has %v", a)
	}
}

func TestWithoutDeadLettersTheCourierCounts(t *testing.T) {
	t.Parallel()
	var l log
	var bodies sync.Map
	w := newWorld(t, nil)
	w.handler.Store(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies.Store(string(body), true)
		if len(l.of("Test")) < 3 {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	w.options.Observe = l.observe
	bare := testRoute
	bare.Topic, bare.Subscription, bare.DeadLetters = "bare-events", "bare-events-apply", false
	if err := provision.Routes(t.Context(), w.client, []lane.Route{bare}); err != nil {
		t.Fatal(err)
	}
	c, _ := w.run(bare)
	w.publishTo(bare.Topic, 1)
	w.idle(c)
	posts := l.of("Test")
	if len(posts) != 4 || posts[3].Attempt != 4 {
		t.Errorf("%d posts, want 4: %v", len(posts), posts)
	}
	bodies.Range(func(body, _ any) bool {
		if strings.Contains(body.(string), "deliveryAttempt") {
			t.Errorf("the body counts attempts: %s", body)
		}
		return true
	})
}

func TestConcurrencyIsTheRoutes(t *testing.T) {
	t.Parallel()
	const limit, n = 6, 300 // 2 instances × 3
	var inFlight, most atomic.Int64
	full := make(chan struct{})
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {
		now := inFlight.Add(1)
		defer inFlight.Add(-1)
		for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
		}
		if now == limit {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		<-full // nobody leaves before the limit has been reached once
	})
	w.publish(n)
	var l log
	w.options.Observe = l.observe
	c, _ := w.run(testRoute)
	w.idle(c)
	if most.Load() != limit {
		t.Errorf("%d requests at once, want %d", most.Load(), limit)
	}
	if posts := l.of("Test"); len(posts) != n {
		t.Errorf("%d posts for %d messages", len(posts), n)
	}
}

func TestMessagesOutliveTheCourier(t *testing.T) {
	t.Parallel()
	var l log
	hanging := make(chan struct{}, 1)
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not see the client go
		hanging <- struct{}{}
		<-r.Context().Done()
	})
	w.options.Observe, w.options.Grace = l.observe, time.Millisecond
	_, stop := w.run(testRoute)
	w.publish(1)
	<-hanging
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	// The second fails it and stops while it waits for its retry, a long one.
	w.handler.Store(answer(http.StatusServiceUnavailable))
	failed := make(chan struct{}, 1)
	w.options.RetryScale = 100
	w.options.Observe = func(d courier.Delivery) { l.observe(d); failed <- struct{}{} }
	_, stop = w.run(testRoute)
	<-failed
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	w.handler.Store(answer(http.StatusNoContent))
	w.options.Observe = l.observe
	c, _ := w.run(testRoute)
	w.idle(c)
	posts := l.of("Test")
	if len(posts) != 3 {
		t.Fatalf("%d posts, want 3", len(posts))
	}
	for i, status := range []int{0, 503, 204} {
		if posts[i].Attempt != i+1 || posts[i].Status != status {
			t.Errorf("post %d: attempt %d, status %d, %v", i, posts[i].Attempt, posts[i].Status, posts[i].Err)
		}
	}
}

func TestRefusedConnectionAndTokenAreNacks(t *testing.T) {
	t.Parallel()
	var l log
	w := newWorld(t, answer(http.StatusOK))
	refused := httptest.NewServer(nil)
	refused.Close()
	posted := make(chan struct{}, 10)
	w.options.Base = refused.URL
	w.options.Observe = func(d courier.Delivery) { l.observe(d); posted <- struct{}{} }
	c, stop := w.run(testRoute, monitorRoute)
	w.publish(1)
	<-posted
	<-posted
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := c.Idle(t.Context()); err == nil {
		t.Error("a stopped courier was idle")
	}

	w.options.Base = w.base
	var asked atomic.Int64
	w.options.Token = func(string) (string, error) {
		if asked.Add(1) == 1 {
			return "", errors.New("no token today")
		}
		return "t", nil
	}
	c, _ = w.run(testRoute, monitorRoute)
	w.idle(c)
	posts := l.of("Test")
	last, before := posts[len(posts)-1], posts[len(posts)-2]
	if before.Status != 0 || before.Err == nil || last.Status != 200 || last.Attempt != before.Attempt+1 {
		t.Errorf("got %+v, then %+v", before, last)
	}
}

// A back-off longer than the subscription's ack deadline: the message stays the courier's, and is
// neither delivered early nor counted twice.
func TestLeasesAreRenewed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for 13 seconds, which -short leaves out")
	}
	var l log
	w := newWorld(t, nil)
	w.handler.Store(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if len(l.of("Test")) == 0 {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	w.options.Observe, w.options.RetryScale = l.observe, 1.3
	c, _ := w.run(testRoute)
	w.publish(1)
	w.idle(c)
	posts := l.of("Test")
	if len(posts) != 2 || posts[1].Attempt != 2 || l.at[1].Sub(l.at[0]) < 13*time.Second {
		t.Errorf("posted at %v: %+v", l.at, posts)
	}
}

func TestMissingSubscriptionEndsRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answer(http.StatusOK))
	absent := testRoute
	absent.Subscription = "not-there"
	err := courier.New(w.client, []lane.Route{testRoute, absent}, w.options).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "not-there") {
		t.Errorf("Run returned %v", err)
	}
}

func TestEmulatorThatGoesEndsRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answer(http.StatusOK))
	var gone atomic.Bool
	connections := make(chan net.Conn, 10)
	conn, err := grpc.NewClient("passthrough:///"+os.Getenv("PUBSUB_EMULATOR_HOST"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			if gone.Load() {
				return nil, errors.New("the emulator is gone")
			}
			c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err == nil {
				connections <- c
			}
			return c, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client, err := pubsub.NewClient(t.Context(), w.client.Project(), option.WithGRPCConn(conn))
	if err != nil {
		t.Fatal(err)
	}
	c := courier.New(client, []lane.Route{testRoute}, w.options)
	done := make(chan error, 1)
	go func() { done <- c.Run(t.Context()) }()
	w.publish(1)
	w.idle(c)
	gone.Store(true)
	(<-connections).Close()
	select {
	case err := <-done:
		if err == nil {
			t.Error("Run ended without an error")
		}
	case <-time.After(30 * time.Second):
		t.Error("Run goes on without an emulator")
	}
}
