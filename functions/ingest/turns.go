package ingest

import (
	"context"
	"sync"
)

// turns lets one mailbox be listed once at a time within a process. It spares Gmail a listing and the
// lanes its repeated events; that the cursor stays right when two processes list at once is not its
// business but the conditional write's.
type turns struct {
	mu    sync.Mutex
	taken map[string]chan struct{} // closed when the turn is over
}

// take waits for the mailbox's turn. The turn is over when the returned function is called.
func (t *turns) take(ctx context.Context, email string) (done func(), err error) {
	for {
		t.mu.Lock()
		before, busy := t.taken[email]
		if !busy {
			turn := make(chan struct{})
			if t.taken == nil {
				t.taken = map[string]chan struct{}{}
			}
			t.taken[email] = turn
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				delete(t.taken, email)
				t.mu.Unlock()
				close(turn)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
