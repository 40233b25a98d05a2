package supervise

import (
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// startWithSlack starts a child with timers that may be late by timerSlack. Slack belongs to a thread
// and a new process inherits it, so this thread has it during the start. A failure to set it does
// no harm.
func startWithSlack(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack.Nanoseconds()), 0, 0, 0) == nil {
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // 0 restores the initial value
	}
	return cmd.Start()
}
