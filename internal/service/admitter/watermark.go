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
func (w *watermark) set(at uint64) { w.update(func(uint64) uint64 { return at }) }

// raise moves the watermark forward; a lower position changes nothing.
func (w *watermark) raise(at uint64) { w.update(func(now uint64) uint64 { return max(now, at) }) }

func (w *watermark) update(to func(now uint64) uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.position = to(w.position)
	if w.moved != nil {
		close(w.moved)
		w.moved = nil
	}
}

// current returns the position and a channel that is closed at the next change.
func (w *watermark) current() (at uint64, moved <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.moved == nil {
		w.moved = make(chan struct{})
	}
	return w.position, w.moved
}

// await returns nil once the watermark has reached at, or the error of ctx.
func (w *watermark) await(ctx context.Context, at uint64) error {
	for {
		now, moved := w.current()
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
