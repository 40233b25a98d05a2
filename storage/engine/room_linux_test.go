package engine

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The server does not start where it could not complete what it had begun; the
// directory need not be there yet.
func TestNeedRoom(t *testing.T) {
	dir := t.TempDir()
	if err := RequireFreeSpace(filepath.Join(dir, "new")); err != nil {
		t.Error(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size=8m"); err != nil {
		t.Skipf("a full disk needs a small file system, and mounting a tmpfs is not permitted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	err := RequireFreeSpace(filepath.Join(dir, "new"))
	if !errors.Is(err, ErrDiskFull) || !strings.Contains(err.Error(), "8 MiB left") || !strings.Contains(err.Error(), "make room") {
		t.Error(err)
	}
}
