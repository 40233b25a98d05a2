package admitter

import (
	"context"
	"sync"
)

// watermark is the position that a view has reached; goroutines can wait for a position. The view
// sets it after it has applied the data. The zero watermark is at 0.
type watermark struct {
	mu       sync.Mutex
	position uint64
	moved    chan struct{} // closed at the next change; nil while no goroutine waits
}

// set moves the watermark, backwards too: the followed stream may have been recreated.
func (m *watermark) set(at uint64) { m.update(func(uint64) uint64 { return at }) }

// raise moves the watermark forward; a lower position changes nothing.
func (m *watermark) raise(at uint64) { m.update(func(now uint64) uint64 { return max(now, at) }) }

func (m *watermark) update(to func(now uint64) uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.position = to(m.position)
	if m.moved != nil {
		close(m.moved)
		m.moved = nil
	}
}

// current returns the position and a channel that is closed at the next change.
func (m *watermark) current() (at uint64, moved <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.moved == nil {
		m.moved = make(chan struct{})
	}
	return m.position, m.moved
}

// await returns nil once the watermark has reached at, or the error of ctx.
func (m *watermark) await(ctx context.Context, at uint64) error {
	for {
		now, moved := m.current()
		if now >= at {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
