package supervise

import (
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// startWithSlack starts a child whose timers may be late by timerSlack. Slack is a
// thread's own and is inherited when a process is made, so this thread has it for
// that moment. A child that cannot have it is none the worse for it.
func startWithSlack(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack.Nanoseconds()), 0, 0, 0) == nil {
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // 0 is what it was at first
	}
	return cmd.Start()
}
