package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// niceValue reads the nice value in the stat file of a process or a thread, unless it has ended meanwhile.
func niceValue(t testing.TB, file string) (nice int, lives bool) {
	t.Helper()
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return 0, false
	}
	if err != nil {
		t.Fatal(err)
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // from the third field on, see proc_pid_stat(5)
	n, err := strconv.Atoi(string(fields[16]))
	if err != nil {
		t.Fatal(err)
	}
	return n, true
}

// engineRaises is the thread whose priority the engine itself raises, where it may (as root): it
// measures the process's memory a few times a second and works on no query.
const engineRaises = "MemoryWorker"

// The admitter and NATS, for which a verdict waits, get the processor before the engine does: all
// threads of the engine have a lower priority than its parent, and no thread of the parent has
// that priority except the one that is reserved for the engine.
func TestEngineRunsAtLowerPriority(t *testing.T) {
	own := ownNice(t)
	lower := min(own+engineNice, 19)
	if lower == own {
		t.Skip("this process already has the lowest priority")
	}
	before := loweredThreads(t, own)
	e := startEngine(t, t.TempDir(), 0)
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", e.PID()))
	if err != nil || len(threads) < 2 {
		t.Fatalf("threads of the engine: %v, %v", threads, err)
	}
	for _, file := range threads {
		got, lives := niceValue(t, file)
		name, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "comm")) // afterwards: the thread takes its name before it is raised
		if lives && got != lower && strings.TrimSpace(string(name)) != engineRaises {
			t.Errorf("%s: nice value %d, want %d", file, got, lower)
		}
	}
	reserved := loweredThreads(t, own)
	maps.DeleteFunc(reserved, func(file string, _ bool) bool { return before[file] })
	if len(reserved) != 1 {
		t.Errorf("%d threads of this process got a lower priority, want the engine's alone", len(reserved))
	}
}

// ownNice is the nice value of this process: that of its threads that are not lowered.
func ownNice(t testing.TB) int {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/stat")
	if err != nil || len(files) == 0 {
		t.Fatalf("threads of this process: %v, %v", files, err)
	}
	own := 19
	for _, file := range files {
		if nice, lives := niceValue(t, file); lives {
			own = min(own, nice)
		}
	}
	return own
}

// loweredThreads are the threads of this process with another nice value than own. Each engine of
// another test that still runs has one.
func loweredThreads(t testing.TB, own int) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/stat")
	if err != nil {
		t.Fatal(err)
	}
	lowered := map[string]bool{}
	for _, file := range files {
		if nice, lives := niceValue(t, file); lives && nice != own {
			lowered[file] = true
		}
	}
	return lowered
}

// The engine runs no threads for streaming queries, which it does not have. An idle pool wakes some
// 40 times a second.
func TestEngineHasNoThreadsForStreams(t *testing.T) {
	sharedPool(t)
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", shared.engine.PID()))
	if err != nil || len(names) < 2 {
		t.Fatalf("threads of the engine: %v, %v", names, err)
	}
	for _, file := range names {
		if name, _ := os.ReadFile(file); strings.HasPrefix(string(name), "BgStrmSchPool") {
			t.Errorf("the engine runs the thread %s", name)
		}
	}
}
