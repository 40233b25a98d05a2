package engine

import "syscall"

// dieWithParent puts a child outside the terminal's process group, so that Ctrl-C reaches only
// the parent, and makes the kernel kill it with its parent.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
