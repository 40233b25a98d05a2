package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/internal/filelock"
)

// ErrInUse reports that another process runs a pipeline on the data directory.
var ErrInUse = errors.New("the data directory is in use by another `countersign up`")

// storeWait is how long lockStore waits.
const storeWait = 20 * time.Second

// lockDir locks a data directory until the file is closed or the process ends: two NATS servers
// on one store would destroy it.
func lockDir(dir string) (*os.File, error) {
	f, err := filelock.Try(filepath.Join(dir, "lock"))
	return f, inUseError(dir, err)
}

// lockStore locks the log's store. It waits for a while, because the server of a killed `up` may
// still be stopping.
func lockStore(ctx context.Context, dir string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	f, err := filelock.Wait(ctx, dir+".lock", nil)
	return f, inUseError(dir, err)
}

func inUseError(dir string, err error) error {
	switch {
	case errors.Is(err, filelock.ErrHeld):
		return fmt.Errorf("%w: %s; stop that one, or give another --data-dir", ErrInUse, dir)
	case err != nil:
		return fmt.Errorf("locking the data directory: %w", err)
	}
	return nil
}
