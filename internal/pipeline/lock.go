package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/internal/retry"
)

// ErrInUse reports that another process runs a pipeline on the data directory.
var ErrInUse = errors.New("the data directory is in use by another `countersign up`")

// lockDir locks a data directory until the file is closed or the process ends: two NATS servers
// on one store would destroy it.
func lockDir(dir string) (*os.File, error) {
	return lockFile(filepath.Join(dir, "lock"), dir)
}

// lockStore locks the log's store. It waits for a while, because the server of a killed `up` may
// still be stopping.
func lockStore(ctx context.Context, dir string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	for {
		f, err := lockFile(dir+".lock", dir)
		if !errors.Is(err, ErrInUse) {
			return f, err
		}
		if retry.Sleep(ctx, storePoll) != nil {
			return nil, err
		}
	}
}

const (
	storeWait = 20 * time.Second
	storePoll = 20 * time.Millisecond
)

func lockFile(path, dir string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data directory: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = fmt.Errorf("%w: %s; stop that one, or give another --data-dir", ErrInUse, dir)
	case err != nil:
		err = fmt.Errorf("locking %s: %w", path, err)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
