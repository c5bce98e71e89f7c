package schedule_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"mailyard.internal/mailyard/scripts/local/schedule"
)

func TestRun(t *testing.T) {
	t.Parallel()
	var inFlight, overlaps atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if inFlight.Add(1) > 1 {
			overlaps.Add(1)
		}
		defer inFlight.Add(-1)
		if r.Method != http.MethodPost || r.ContentLength != 0 || r.URL.Path != "/Tick" || r.Header.Get("Authorization") != "Bearer t" {
			t.Errorf("%s %s with %d bytes and %v", r.Method, r.URL.Path, r.ContentLength, r.Header)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	calls := make(chan schedule.Call)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		schedule.Run(ctx, []schedule.Job{{EntryPoint: "Tick", Interval: time.Microsecond}}, schedule.Options{ // far less than a call takes
			Base:  server.URL,
			Token: func(string) (string, error) { return "t", nil },
			Observe: func(c schedule.Call) {
				select {
				case calls <- c:
				case <-ctx.Done():
				}
			},
		})
	}()
	for range 5 {
		if c := <-calls; c.Status != http.StatusNoContent || c.Err != nil || c.EntryPoint != "Tick" {
			t.Errorf("got %+v", c)
		}
	}
	cancel()
	<-done
	if overlaps.Load() > 0 {
		t.Error("calls overlapped")
	}
}

func TestAFailureIsSeenAndNotRepeated(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := httptest.NewServer(nil)
	server.Close()
	var seen []schedule.Call
	schedule.Run(ctx, []schedule.Job{{EntryPoint: "Tick", Interval: time.Millisecond}}, schedule.Options{
		Base: server.URL,
		Observe: func(c schedule.Call) {
			if seen = append(seen, c); len(seen) == 2 {
				cancel()
			}
		},
	})
	if len(seen) != 2 || seen[0].Err == nil || seen[0].Status != 0 {
		t.Errorf("got %+v", seen)
	}
}
