package courier_test

import (
	"maps"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

func TestShuffleAndRepeat(t *testing.T) {
	t.Parallel()
	const n = 400
	run := func(seed uint64) (order []int, repeats map[int]bool) {
		var l log
		w := newWorld(t, answer(http.StatusNoContent))
		w.options.Observe, w.options.Seed = l.observe, seed
		w.options.Shuffle, w.options.Repeat = 100*time.Millisecond, 0.25
		w.publish(n)
		c, _ := w.run(testRoute)
		w.idle(c)
		repeats = map[int]bool{}
		for _, d := range l.of("Test") {
			k, _ := strconv.Atoi(d.Attributes["n"])
			if d.Attempt != 1 {
				t.Errorf("message %d: attempt %d", k, d.Attempt)
			}
			if d.Repeat {
				repeats[k] = true
			} else {
				order = append(order, k)
			}
		}
		return order, repeats
	}
	order, repeats := run(1)
	if len(order) != n || len(repeats) < n/8 || len(repeats) > n/2 {
		t.Errorf("%d messages and %d repeats, want %d and about %d", len(order), len(repeats), n, n/4)
	}
	if _, same := run(1); !maps.Equal(repeats, same) {
		t.Error("the same seed repeated other messages")
	}
	if _, other := run(2); maps.Equal(repeats, other) {
		t.Error("another seed repeated the same messages")
	}
	late := 0
	for i := 1; i < len(order); i++ {
		if order[i] < order[i-1] {
			late++
		}
	}
	if late < n/10 {
		t.Errorf("only %d of %d messages were overtaken by their follower", late, n)
	}
}

func TestARepeatThatFailsBringsTheMessageBack(t *testing.T) {
	t.Parallel()
	var l log
	var runs atomic.Int64
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if runs.Add(1) == 2 {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	w.options.Observe, w.options.Repeat = l.observe, 1
	w.publish(1)
	c, _ := w.run(testRoute)
	w.idle(c)
	posts := l.of("Test")
	if len(posts) != 3 || posts[2].Attempt != 2 || posts[2].Repeat {
		t.Errorf("got %+v", posts)
	}
}
