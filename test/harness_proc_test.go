package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

// process identifies a process of this machine; the start time distinguishes processes with the
// same id.
type process struct {
	pid   int
	start string
}

// stat reads a process's parent, state and start time; ok is false if the process does not exist.
func stat(pid int) (parent int, state, start string, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", "", false
	}
	// The command's name may contain blanks and parentheses.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	parent, _ = strconv.Atoi(string(f[1]))
	return parent, string(f[0]), string(f[19]), true
}

// tree lists a process and all its descendants.
func tree(pid int) (list []process) {
	children := map[int][]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		n, _ := strconv.Atoi(filepath.Base(d))
		if parent, _, _, ok := stat(n); ok {
			children[parent] = append(children[parent], n)
		}
	}
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		if _, _, start, ok := stat(queue[0]); ok {
			list = append(list, process{queue[0], start})
		}
		queue = append(queue, children[queue[0]]...)
	}
	return list
}

// alive reports whether a process runs; a zombie does not.
func (p process) alive() bool {
	_, state, start, ok := stat(p.pid)
	return ok && state != "Z" && start == p.start
}

// gone waits until none of the processes is alive.
func gone(t testing.TB, list []process) {
	t.Helper()
	eventually(t, "the process tree ends", func() error {
		if i := slices.IndexFunc(list, process.alive); i >= 0 {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", list[i].pid))
			return fmt.Errorf("process %d is alive: %s", list[i].pid, bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
		}
		return nil
	})
}

// holdDown suspends a child (SIGSTOP), so that it neither answers nor is restarted, until release
// is called.
func (s *system) holdDown(t testing.TB, name string) (release func()) {
	t.Helper()
	pid := s.info(t).PIDs[name]
	ok(t, syscall.Kill(pid, syscall.SIGSTOP))
	return func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
}
