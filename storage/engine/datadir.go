package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/internal/filelock"
)

// Lock files of a data directory. The engine's child holds engine.lock as long as it lives;
// the process that started it holds owner.lock.
const (
	lockName      = "engine.lock"
	ownerLockName = "owner.lock"
)

// orphanGrace is how long a start waits for an engine to end after its owner has died.
const orphanGrace = 10 * time.Second

// dataLocks are the held locks of a data directory.
type dataLocks struct {
	engine *os.File // inherited by the child
	owner  *os.File // kept until the child is gone
}

func (l dataLocks) close() {
	l.engine.Close()
	l.owner.Close()
}

// lockDataDir makes dir and takes its locks. If the owner of an engine was killed, the engine
// ends by itself (see startProcess), and lockDataDir waits for that. If the engine has an
// owner, it returns ErrDataDirInUse at once.
func lockDataDir(ctx context.Context, dir string) (dataLocks, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return dataLocks{}, fmt.Errorf("making the engine's data directory: %w", err)
	}
	owner, err := filelock.Try(filepath.Join(dir, ownerLockName))
	if err != nil {
		return dataLocks{}, inUseError(ctx, dir, err)
	}
	waiting, cancel := context.WithTimeout(ctx, orphanGrace)
	defer cancel()
	engine, err := filelock.Wait(waiting, filepath.Join(dir, lockName), nil)
	if err != nil {
		owner.Close()
		return dataLocks{}, inUseError(ctx, dir, err)
	}
	return dataLocks{engine, owner}, nil
}

// inUseError explains why a directory could not be locked.
func inUseError(ctx context.Context, dir string, err error) error {
	if ctx.Err() != nil || !errors.Is(err, filelock.ErrHeld) {
		return fmt.Errorf("locking the engine's data directory: %w", err)
	}
	var engine, owner int
	if b, err := os.ReadFile(filepath.Join(dir, lockName)); err == nil {
		_, _ = fmt.Sscan(string(b), &engine, &owner) // zero if the file names no holder yet
	}
	return fmt.Errorf("%w: %s is used by process %d, which process %d started: stop that one, or choose another data directory", ErrDataDirInUse, dir, engine, owner)
}

// markHolder writes the process ids of the holders into the engine's lock file, for inUseError.
func (l dataLocks) markHolder(enginePID int) error {
	text := fmt.Sprintf("%-10d %-10d\n", enginePID, os.Getpid()) // fixed width: overwrites the last holders
	if _, err := l.engine.WriteAt([]byte(text), 0); err != nil {
		return fmt.Errorf("marking the engine's data directory as used: %w", err)
	}
	return nil
}

// ErrDiskFull says that a disk is full.
var ErrDiskFull = errors.New("the disk is full")

// MinFreeBytes is the free disk space that a managed server needs to start, in bytes. A server
// that ended because its disk was full first has to complete or remove unfinished work.
const MinFreeBytes = 16 << 20

// RequireFreeSpace makes a directory if it is missing, and returns ErrDiskFull if its disk has
// less than MinFreeBytes left.
func RequireFreeSpace(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	free, _, err := DiskSpace(dir)
	if err == nil && free < MinFreeBytes {
		err = fmt.Errorf("%w: %s has %d MiB left, and its server starts with %d MiB at least; make room, and do not delete files of the store", ErrDiskFull, dir, free>>20, MinFreeBytes>>20)
	}
	return err
}

// DiskSpace is the free space on a directory's disk for unprivileged users, and the size of the disk, in
// bytes.
func DiskSpace(dir string) (free, size uint64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, 0, fmt.Errorf("looking how much room there is in %s: %w", dir, err)
	}
	return uint64(st.Bavail) * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), nil //nolint:unconvert // its type is another on other systems
}
