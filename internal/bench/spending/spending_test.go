package spending

import (
	"maps"
	"os"
	"testing"
	"time"
)

// TestProcessState: the name of a program may hold parentheses and spaces.
func TestProcessState(t *testing.T) {
	p, ok := parseProcessState("7 (a) b (c) S 3 7 7 0 -1 4194560 1 2 3 4 100 20 30 4 20 0 1 0 5 6 7")
	if !ok || p.parent != 3 || p.own != 1200*time.Millisecond || p.used != 1540*time.Millisecond {
		t.Errorf("%+v, %v", p, ok)
	}
	for _, bad := range []string{"", "7 (a", "7 (a) S 3", "7 (a) S 3 7 7 0 -1 1 1 2 3 4 x 20 30 4 20"} {
		if _, ok := parseProcessState(bad); ok {
			t.Errorf("%q is read", bad)
		}
	}
}

// TestSumByProcess: children count for their parent unless they are named, and strangers for no
// process.
func TestSumByProcess(t *testing.T) {
	states := map[int]processState{
		1: {parent: 0, used: time.Hour}, 10: {parent: 1, used: 1}, 20: {parent: 10, used: 2}, 21: {parent: 20, used: 4}, 22: {parent: 21, used: 8}, 30: {parent: 10, used: 16}, 99: {parent: 1, used: 32}, 11: {parent: 10, used: 64},
	}
	got, err := sumByProcess(states, map[string]int{"generator": 10, "nats": 20, "clickhouse": 30})
	want := map[string]time.Duration{"generator": 1 + 64, "nats": 2 + 4 + 8, "clickhouse": 16}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := sumByProcess(states, map[string]int{"auditor": 40}); err == nil {
		t.Error("a process that does not run has a processor time")
	}
}

// TestMemory: a process that runs has memory, and had at least as much at its peak.
func TestMemory(t *testing.T) {
	now, err := Resident(os.Getpid())
	if peak := PeakMemory(os.Getpid()); err != nil || now <= 1<<20 || peak < now {
		t.Errorf("%d B now, %d B at most, %v", now, peak, err)
	}
	if n, err := Resident(-1); err == nil || PeakMemory(-1) != 0 {
		t.Errorf("no process has %d B", n)
	}
}
