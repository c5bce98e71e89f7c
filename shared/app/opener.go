package app

import "sync"

// An opener keeps what was opened, and forgets that it could not be.
type opener[T any] struct {
	mu    sync.Mutex
	value T
	done  bool
}

func (o *opener[T]) open(build func() (T, error)) (T, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return o.value, nil
	}
	value, err := build()
	if err != nil {
		return value, err
	}
	o.value, o.done = value, true
	return value, nil
}

func (o *opener[T]) opened() (T, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.value, o.done
}
