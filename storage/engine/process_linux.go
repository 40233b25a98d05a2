package engine

import "syscall"

// dieWithParent puts a child outside the terminal's process group, so that Ctrl-C reaches only
// the parent, and makes the kernel kill it with its parent.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// engineNice is the nice value of an engine above that of its parent: while all want the
// processor, the engine gets a third of what the parent gets.
const engineNice = 5

// lowerThreadPriority lowers the priority of the calling thread by engineNice. Any process may
// do that; if the kernel refuses all the same, the engine runs at its parent's priority.
func lowerThreadPriority() {
	if raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); err == nil {
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 20-raw+engineNice) // the system call returns 20 - nice
	}
}
