package storage

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrDiskFull says that a disk is full.
var ErrDiskFull = errors.New("the disk is full")

// MinFreeBytes is what the disk of a managed server's store must have left for the
// server to start, in bytes. A server that ended because its disk was full has to
// complete or clear away first what it had begun.
const MinFreeBytes = 16 << 20

// RequireFreeSpace makes a directory if it is missing, and returns ErrNoRoom if its disk
// has less than LeastRoom left.
func RequireFreeSpace(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	free, err := freeBytes(dir)
	if err == nil && free < MinFreeBytes {
		err = fmt.Errorf("%w: %s has %d MiB left, and its server starts with %d MiB at least; make room, and do not delete files of the store", ErrDiskFull, dir, free>>20, MinFreeBytes>>20)
	}
	return err
}

// freeBytes is what a directory's disk has left for who is not its administrator.
func freeBytes(dir string) (uint64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("looking how much room there is in %s: %w", dir, err)
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}
