//go:build unix && !linux

package engine

import "syscall"

// dieWithParent puts a child outside the terminal's process group. On this platform the kernel
// cannot kill it with its parent.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// lowerThreadPriority does nothing: on this platform a thread has no priority of its own.
func lowerThreadPriority() {}
