// Package filelock takes advisory locks on files, between processes.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/internal/retry"
)

// ErrHeld reports that a lock is held elsewhere.
var ErrHeld = errors.New("the lock is held")

// pollEvery is the interval at which Wait tries a held lock again.
const pollEvery = 20 * time.Millisecond

// Try takes an exclusive lock on path, which it makes if it is not there, or returns ErrHeld. The lock
// lasts until every descriptor of the returned file is closed, including those that children inherited.
func Try(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.EINTR
	for errors.Is(err, syscall.EINTR) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrHeld
	}
	return nil, fmt.Errorf("locking %s: %w", path, err)
}

// Wait is Try that waits for a held lock as long as ctx lasts. It calls waiting, which may be nil, once
// if it has to.
func Wait(ctx context.Context, path string, waiting func()) (*os.File, error) {
	for first := true; ; first = false {
		f, err := Try(path)
		if !errors.Is(err, ErrHeld) {
			return f, err
		}
		if first && waiting != nil {
			waiting()
		}
		if ended := retry.Sleep(ctx, pollEvery); ended != nil {
			return nil, fmt.Errorf("%w: %w", err, ended)
		}
	}
}
