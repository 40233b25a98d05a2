package storage

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// niceValue reads the nice value in the stat file of a process or a thread.
func niceValue(t testing.TB, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // from the third field on, see proc_pid_stat(5)
	n, err := strconv.Atoi(string(fields[16]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// engineRaises is the thread whose priority the engine itself raises, where it may (as root): it
// measures the process's memory a few times a second and works on no query.
const engineRaises = "MemoryWorker"

// The admitter and NATS, for which a verdict waits, get the processor before the engine does: all
// threads of the engine have a lower priority than its parent, and no thread of the parent has
// that priority except the one that is reserved for the engine.
func TestEngineRunsAtLowerPriority(t *testing.T) {
	own := niceValue(t, "/proc/self/stat")
	lower := min(own+engineNice, 19)
	if lower == own {
		t.Skip("this process already has the lowest priority")
	}
	e := startEngine(t, t.TempDir(), 0)
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", e.PID()))
	if err != nil || len(threads) < 2 {
		t.Fatalf("threads of the engine: %v, %v", threads, err)
	}
	for _, file := range threads {
		name, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "comm"))
		if strings.TrimSpace(string(name)) == engineRaises {
			continue
		}
		if got := niceValue(t, file); got != lower {
			t.Errorf("%s: nice value %d, want %d", file, got, lower)
		}
	}
	threads, err = filepath.Glob("/proc/self/task/*/stat")
	if err != nil {
		t.Fatal(err)
	}
	lowered := 0
	for _, file := range threads {
		if niceValue(t, file) != own {
			lowered++
		}
	}
	if lowered != 1 {
		t.Errorf("%d threads of this process have a lower priority, want the engine's alone", lowered)
	}
}
