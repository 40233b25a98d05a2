//go:build unix

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/internal/retry"
)

// lockRetry is the interval at which lockFile tries a held lock again.
const lockRetry = 20 * time.Millisecond

// lockFile takes an exclusive advisory lock on path. It waits as long as ctx lasts, and calls
// waiting once if another process holds the lock. The lock lasts until every descriptor of
// the returned file is closed, including those that children inherited.
func lockFile(ctx context.Context, path string, waiting func()) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for first := true; ; first = false {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if first {
			waiting()
		}
		if err := retry.Sleep(ctx, lockRetry); err != nil {
			f.Close()
			return nil, fmt.Errorf("waiting for the lock on %s: %w", path, err)
		}
	}
}
