package engine

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// execWithoutPrivileges replaces this process by another program. ClickHouse's packages give
// the program file capabilities, and the kernel clears the parent-death signal of a process
// that gains capabilities; no_new_privs prevents that gain.
func execWithoutPrivileges(path string, args []string) error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up privileges: %w", err)
	}
	err := syscall.Exec(path, append([]string{path}, args...), os.Environ())
	return fmt.Errorf("running %s: %w", path, err)
}
