package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"time"
)

const (
	// turns is how often each side of a lane's benchmark is measured: often and briefly, since what
	// else the machine does comes and goes.
	turns = 60
	// perTurn is how many documents a turn writes, each once.
	perTurn = 100
	// workers is how many events are handled at once: the concurrency of a flag's lane.
	workers = 10
)

// compare measures a function of ours and a bare one in turns, in events a second.
func compare(ours, bare func(turn int) (float64, error)) ([]figure, error) {
	rates, err := inTurns(turns, ours, bare)
	if err != nil {
		return nil, err
	}
	return []figure{
		{what: "Mailyard's function", value: rates[0], unit: "events/s"},
		{what: "bare function, same calls", value: rates[1], unit: "events/s"},
		{what: "ratio", value: over(rates[0], rates[1]), bound: atLeast(0.9)},
	}, nil
}

// eventsPerSecond posts every body to a function, and demands that each is answered 204.
func eventsPerSecond(ctx context.Context, function http.Handler, bodies [][]byte) (float64, error) {
	queue := make(chan []byte, len(bodies))
	for _, body := range bodies {
		queue <- body
	}
	close(queue)
	runtime.GC() // so that nobody pays for what another left
	var once sync.Once
	var failure error
	var wg sync.WaitGroup
	began := time.Now()
	for range workers {
		wg.Go(func() {
			for body := range queue {
				if ctx.Err() != nil {
					return
				}
				answer := httptest.NewRecorder()
				function.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(body)))
				if answer.Code != http.StatusNoContent {
					once.Do(func() { failure = fmt.Errorf("an event was answered %d: %s", answer.Code, answer.Body) })
				}
			}
		})
	}
	wg.Wait()
	if failure == nil {
		failure = ctx.Err()
	}
	return float64(len(bodies)) / time.Since(began).Seconds(), failure
}

// inTurns measures several things alternately, after one turn of each that does not count, and returns
// the median of each. Who begins changes with every turn, so that a machine that grows slower or faster
// favours none.
func inTurns[T time.Duration | float64](times int, sides ...func(turn int) (T, error)) ([]T, error) {
	samples := make([][]T, len(sides))
	for turn := range times + 1 {
		for i := range sides {
			which := (turn + i) % len(sides)
			sample, err := sides[which](turn)
			if err != nil {
				return nil, err
			}
			if turn > 0 {
				samples[which] = append(samples[which], sample)
			}
		}
	}
	medians := make([]T, len(sides))
	for i := range sides {
		medians[i] = median(samples[i])
	}
	return medians, nil
}

// over is the ratio of two figures.
func over[T time.Duration | float64](a, b T) float64 { return float64(a) / float64(b) }
