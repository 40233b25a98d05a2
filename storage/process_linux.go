package storage

import "syscall"

// dieWithParent keeps a child out of the terminal's process group, so that
// Ctrl-C reaches the parent alone, and has the kernel kill it with its parent.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
