package spending

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ClockTicks is the number of ticks of /proc in a second, on all platforms of Go.
const ClockTicks = 100

// processState is a line of /proc/<pid>/stat.
type processState struct {
	parent int
	own    time.Duration
	used   time.Duration // own, and that of the children that have ended
}

// parseProcessState reads the text of /proc/<pid>/stat.
func parseProcessState(text string) (p processState, ok bool) {
	// The program's name, in parentheses, may contain any character.
	end := strings.LastIndex(text, ") ")
	if end < 0 {
		return p, false
	}
	fields := strings.Fields(text[end+2:])
	if len(fields) < 15 {
		return p, false
	}
	p.parent, _ = strconv.Atoi(fields[1])
	for i, f := range fields[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.Atoi(f)
		if err != nil {
			return p, false
		}
		p.used += time.Duration(n) * time.Second / ClockTicks
		if i == 1 {
			p.own = p.used
		}
	}
	return p, true
}

// ProcessorTime is the processor time that a process has used so far, 0 if unknown.
func ProcessorTime(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	p, _ := parseProcessState(string(text))
	return p.own
}

// Resident is the memory of a process, in bytes.
func Resident(pid int) (int64, error) { return readMemory(pid, "VmRSS") }

// PeakMemory is the most memory that a process has had, in bytes, 0 if unknown.
func PeakMemory(pid int) int64 {
	n, _ := readMemory(pid, "VmHWM")
	return n
}

// readMemory reads a row of /proc/<pid>/status.
func readMemory(pid int, row string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "\n"+row+":")
	text, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kb, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the kernel does not say %s of process %d: %w", row, pid, err)
	}
	return kb << 10, nil
}

// ResidentMemory is the memory of every process of a pipeline, in MiB.
func ResidentMemory(pids map[string]int) (map[string]float64, error) {
	out := map[string]float64{}
	for name, pid := range pids {
		if name == "up" {
			continue // this process
		}
		n, err := Resident(pid)
		if err != nil {
			return nil, fmt.Errorf("the memory of %s: %w", name, err)
		}
		out[name] = float64(n) / (1 << 20)
	}
	return out, nil
}
