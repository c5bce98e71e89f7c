package console

import "sync"

// A together does several things at once; wait returns when all are done, with the first error.
type together struct {
	wg    sync.WaitGroup
	mu    sync.Mutex
	first error
}

func (g *together) do(f func() error) {
	g.wg.Go(func() {
		if err := f(); err != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.first == nil {
				g.first = err
			}
		}
	})
}

func (g *together) wait() error {
	g.wg.Wait()
	return g.first
}
