// Package owner identifies the process that maintains a ready file, so that a reader on the same machine
// can detect a file that was left behind: another program may listen at its addresses.
package owner

import (
	"bytes"
	"fmt"
	"os"
)

// Owner is the entry of a ready file about its process.
type Owner struct {
	PID     int    `json:"pid"`
	Started string `json:"started"` // in clock ticks after boot; distinguishes processes with the same id
	Machine string `json:"machine"` // identifies the boot and the namespace of process ids
}

// ThisProcess is the owner entry of this process, nil if the kernel does not provide the data.
func ThisProcess() *Owner {
	machine, started := thisMachine(), startOf(os.Getpid())
	if machine == "" || started == "" {
		return nil
	}
	return &Owner{PID: os.Getpid(), Started: started, Machine: machine}
}

// Gone reports whether the owner has certainly ended. It is false for nil, and on another machine
// or in another namespace, where that is unknown.
func (o *Owner) Gone() bool {
	return o != nil && o.Machine != "" && o.Machine == thisMachine() && startOf(o.PID) != o.Started
}

// Runs reports whether the owner certainly runs. It is false for nil, and on another machine or in another
// namespace, where that is unknown.
func (o *Owner) Runs() bool {
	return o != nil && o.Machine != "" && o.Machine == thisMachine() && startOf(o.PID) == o.Started
}

// thisMachine is the kernel's id of this boot with the namespace of process ids, "" if unknown.
func thisMachine() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, nsErr := os.Readlink("/proc/self/ns/pid")
	if err != nil || nsErr != nil {
		return ""
	}
	return string(bytes.TrimSpace(boot)) + " " + namespace
}

// startOf is the start time of a process, "" if it does not exist.
func startOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The program's name may contain blanks and parentheses; the fields after it do not.
	const startTime = 19
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= startTime || string(fields[0]) == "Z" {
		return ""
	}
	return string(fields[startTime])
}
