package admitter

import (
	"context"
	"sync"
)

// mark says how far a view has come, and lets others wait until it is there. The
// view sets it behind what it has taken in. The zero mark is at 0.
type mark struct {
	mu    sync.Mutex
	at    uint64
	moved chan struct{} // closed at the next move; nil while nobody waits
}

// set moves the mark, back as well: what a view follows may have been made anew.
func (m *mark) set(at uint64) { m.move(func(uint64) uint64 { return at }) }

// raise moves the mark unless it is further already.
func (m *mark) raise(at uint64) { m.move(func(now uint64) uint64 { return max(now, at) }) }

func (m *mark) move(to func(now uint64) uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = to(m.at)
	if m.moved != nil {
		close(m.moved)
		m.moved = nil
	}
}

// now gives the mark and what is closed at its next move.
func (m *mark) now() (at uint64, moved <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.moved == nil {
		m.moved = make(chan struct{})
	}
	return m.at, m.moved
}

// await returns when the mark is there, or with the error of ctx.
func (m *mark) await(ctx context.Context, at uint64) error {
	for {
		now, moved := m.now()
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
