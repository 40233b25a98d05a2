package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// prepare removes the file that a killed `up` left behind, so that a waiting process does not
// take it for the new one's. It is an error if the file cannot be written, which is known before anything runs.
func (f *readyFile) prepare() error {
	if f.path == "" {
		return nil
	}
	if r, err := target.ReadReady(f.path); err == nil && r.Owner.Gone() {
		_ = os.Remove(f.path)
	}
	probe, err := os.CreateTemp(filepath.Dir(f.path), ".countersign-ready-*")
	if err != nil {
		return fmt.Errorf("the ready file cannot be written: %w", err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
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
