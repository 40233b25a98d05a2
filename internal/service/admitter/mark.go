package admitter

import (
	"context"
	"sync"
)

// watermark says how far a view has come, and lets others wait until it is there. The
// view sets it behind what it has taken in. The zero mark is at 0.
type watermark struct {
	mu       sync.Mutex
	position uint64
	moved    chan struct{} // closed at the next move; nil while nobody waits
}

// set moves the mark, back as well: what a view follows may have been made anew.
func (m *watermark) set(at uint64) { m.update(func(uint64) uint64 { return at }) }

// raise moves the mark unless it is further already.
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

// current gives the mark and what is closed at its next move.
func (m *watermark) current() (at uint64, moved <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.moved == nil {
		m.moved = make(chan struct{})
	}
	return m.position, m.moved
}

// await returns when the mark is there, or with the error of ctx.
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
