package mcpgate

import "sync"

// background is a sync.WaitGroup for functions that may begin while others wait for their end, which a WaitGroup
// alone forbids: what begins after close does not run in it.
type background struct {
	mu     sync.Mutex
	closed bool
	all    sync.WaitGroup
}

// run runs f in the background, and reports whether it does.
func (b *background) run(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.all.Go(f)
	}
	return !b.closed
}

func (b *background) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// wait closes b and waits for what runs.
func (b *background) wait() {
	b.close()
	b.all.Wait()
}
