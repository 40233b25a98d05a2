package target

import (
	"bytes"
	"fmt"
	"os"
)

// Owner names the process that keeps a ready file true, so that a reader on the
// same machine can tell a file that was left behind.
type Owner struct {
	PID     int    `json:"pid"`
	Started string `json:"started"` // clock ticks after the machine's start; tells a process from a later one with its number
	Machine string `json:"machine"` // of this start of the machine, and this namespace of process numbers
}

// ThisProcess is the owner of what this process writes, nil where the kernel does
// not say enough.
func ThisProcess() *Owner {
	machine, started := thisMachine(), startOf(os.Getpid())
	if machine == "" || started == "" {
		return nil
	}
	return &Owner{PID: os.Getpid(), Started: started, Machine: machine}
}

// Gone reports whether the owner certainly no longer runs. It is false for nil, and
// on another machine or in another namespace, where that cannot be known.
func (o *Owner) Gone() bool {
	return o != nil && o.Machine != "" && o.Machine == thisMachine() && startOf(o.PID) != o.Started
}

// thisMachine is the kernel's id of this start of the machine with the namespace
// of process numbers, "" if the kernel does not tell.
func thisMachine() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, nsErr := os.Readlink("/proc/self/ns/pid")
	if err != nil || nsErr != nil {
		return ""
	}
	return string(bytes.TrimSpace(boot)) + " " + namespace
}

// startOf is when a process started, "" if there is no such process.
func startOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The program's name may hold blanks and parentheses: what follows it does not.
	const startTime = 19
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= startTime || string(fields[0]) == "Z" {
		return ""
	}
	return string(fields[startTime])
}
