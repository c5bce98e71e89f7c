package main

import (
	"sync"

	"mailyard.internal/mailyard/scripts/local/courier"
)

// A tally counts deliveries, by the function they went to and the message they are about.
type tally struct {
	mu     sync.Mutex
	counts map[subject]*count
}

type subject struct{ entryPoint, message string }

type count struct {
	events  map[string]bool // by ce-id, or message id
	posts   int
	repeats int // second copies that were sent on purpose
}

func (t *tally) observe(d courier.Delivery) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[subject]*count{}
	}
	key := subject{d.Route.EntryPoint, d.Attributes["ce-subject"]}
	c := t.counts[key]
	if c == nil {
		c = &count{events: map[string]bool{}}
		t.counts[key] = c
	}
	id := d.Attributes["ce-id"]
	if id == "" {
		id = d.MessageID
	}
	c.events[id] = true
	c.posts++
	if d.Repeat {
		c.repeats++
	}
}

// of sums up what went to a function about the messages that are asked for.
func (t *tally) of(entryPoint string, asked func(message string) bool) count {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := count{events: map[string]bool{}}
	for key, c := range t.counts {
		if key.entryPoint != entryPoint || !asked(key.message) {
			continue
		}
		for id := range c.events {
			sum.events[id] = true
		}
		sum.posts += c.posts
		sum.repeats += c.repeats
	}
	return sum
}
