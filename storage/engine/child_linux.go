package engine

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
)

// prSetNoNewPrivs is PR_SET_NO_NEW_PRIVS of prctl(2).
const prSetNoNewPrivs = 38

// execWithoutPrivileges replaces this process by another program. ClickHouse's packages give
// the program file capabilities, and the kernel clears the parent-death signal of a process
// that gains capabilities; no_new_privs prevents that gain.
func execWithoutPrivileges(path string, args []string) error {
	runtime.LockOSThread()
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("giving up privileges: %w", errno)
	}
	err := syscall.Exec(path, append([]string{path}, args...), os.Environ())
	return fmt.Errorf("running %s: %w", path, err)
}
