// Package schedule calls functions at fixed intervals with an empty POST, as Cloud Scheduler does.
//
// A job's first call comes one interval after the start. Its calls never overlap: one that takes
// longer than the interval makes the next ones late, and what fell due in between is left out. A
// failed call is not repeated; the next one comes when it is due.
package schedule

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Job is a function to call.
type Job struct {
	EntryPoint string
	Interval   time.Duration // between two calls; a minute of Google's is what the caller makes of it
	Timeout    time.Duration // of one call; 0 is three minutes, Cloud Scheduler's own
}

// A Call is one call that has been made.
type Call struct {
	EntryPoint string
	Status     int   // of the answer; 0 if there was none
	Err        error // why there was none
	Duration   time.Duration
}

// Options say where to call.
type Options struct {
	// Base is the URL under which each function is at /<EntryPoint>.
	Base string
	// Token gives the bearer token of a call to that URL. Nil sends none.
	Token func(audience string) (string, error)
	// Observe is told of every call, by one goroutine for each job.
	Observe func(Call)
}

// Run calls the jobs until ctx ends, which also cuts off a call that is being made, and returns when
// none runs any more.
func Run(ctx context.Context, jobs []Job, o Options) {
	client := &http.Client{
		Transport:     &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	for _, job := range jobs {
		wg.Go(func() {
			due := time.NewTicker(job.Interval)
			defer due.Stop()
			for {
				var at time.Time
				select {
				case <-ctx.Done():
					return
				case at = <-due.C:
				}
				begin := time.Now()
				status, err := call(ctx, client, job, at, o)
				if ctx.Err() == nil && o.Observe != nil {
					o.Observe(Call{EntryPoint: job.EntryPoint, Status: status, Err: err, Duration: time.Since(begin)})
				}
			}
		})
	}
	wg.Wait()
}

func call(ctx context.Context, client *http.Client, job Job, at time.Time, o Options) (int, error) {
	timeout := job.Timeout
	if timeout == 0 {
		timeout = 3 * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	url := strings.TrimSuffix(o.Base, "/") + "/" + job.EntryPoint
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return 0, fmt.Errorf("call %s: %w", job.EntryPoint, err)
	}
	request.Header.Set("User-Agent", "Google-Cloud-Scheduler")
	request.Header.Set("X-Cloudscheduler", "true")
	request.Header.Set("X-Cloudscheduler-Scheduletime", at.UTC().Format(time.RFC3339))
	if o.Token != nil {
		token, err := o.Token(url)
		if err != nil {
			return 0, fmt.Errorf("token for %s: %w", url, err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("call %s: %w", job.EntryPoint, err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20)); err != nil {
		return 0, fmt.Errorf("read the answer of %s: %w", job.EntryPoint, err)
	}
	return answer.StatusCode, nil
}
