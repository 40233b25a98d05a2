package engine

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

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
