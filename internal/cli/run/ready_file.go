package run

import (
	"os"
	"sync"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/cli/target"
)

// readyFile keeps the ready file up to date while children restart.
type readyFile struct {
	path string
	log  zerolog.Logger

	mu      sync.Mutex
	written bool
}

// removeStale removes the file that a killed `up` left behind, so that a waiting process does not
// take it for the new one's.
func (f *readyFile) removeStale() {
	if f.path == "" {
		return
	}
	if r, err := target.ReadReady(f.path); err == nil && r.Owner.Gone() {
		_ = os.Remove(f.path)
	}
}

// publish writes what now returns. It is read under the lock: an older state must not be written
// after a newer one.
func (f *readyFile) publish(now func() target.Ready) error {
	if f.path == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.written = true
	return now().Write(f.path)
}

// changed rewrites the file if it has been written before.
func (f *readyFile) changed(now func() target.Ready) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.written {
		return
	}
	if err := now().Write(f.path); err != nil {
		f.log.Error().Err(err).Msg("the ready file could not be rewritten")
	}
}

// remove removes the file: no service answers any more.
func (f *readyFile) remove() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.written {
		f.written = false
		_ = os.Remove(f.path)
	}
}
