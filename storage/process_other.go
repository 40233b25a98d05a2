//go:build unix && !linux

package storage

import "syscall"

// dieWithParent keeps a child out of the terminal's process group. The kernel
// cannot be asked to kill it with its parent here.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
