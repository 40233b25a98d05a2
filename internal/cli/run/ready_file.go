package run

import (
	"os"
	"sync"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/cli/target"
)

// readyFile keeps the ready file true while children come and go.
type readyFile struct {
	path string
	log  zerolog.Logger

	mu      sync.Mutex
	written bool
}

// removeStale takes away a file that an `up` which was killed left behind:
// whoever waits for this one must not take it for the new one's.
func (f *readyFile) removeStale() {
	if f.path == "" {
		return
	}
	if r, err := target.ReadReady(f.path); err == nil && r.Owner.Gone() {
		_ = os.Remove(f.path)
	}
}

func (f *readyFile) publish(r target.Ready) error {
	if f.path == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.written = true
	return r.Write(f.path)
}

// changed rewrites a file that has been written before.
func (f *readyFile) changed(r target.Ready) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.written {
		return
	}
	if err := r.Write(f.path); err != nil {
		f.log.Error().Err(err).Msg("the ready file could not be rewritten")
	}
}

// remove takes the file away: nothing answers any more.
func (f *readyFile) remove() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.written {
		f.written = false
		_ = os.Remove(f.path)
	}
}
