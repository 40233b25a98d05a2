package hookgate

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/gateclient"
)

// counted opens a call of a key, as a process of the gate does, and returns how many are open.
func counted(t *testing.T, c calls, key string) (count int) {
	t.Helper()
	if err := c.change(key, nowFixed(), func(s *sameCall) { s.Open = append(s.Open, openCall{}); count = len(s.Open) }); err != nil {
		t.Fatal(err)
	}
	return count
}

// A process that opens the file of a call while another removes it writes to a file that the next process reads.
func TestFileRemovedBeforeItsLock(t *testing.T) {
	const key = "k"
	c := calls{dir: t.TempDir()}
	counted(t, c, key)
	racing, times := c, 0
	racing.opened = func() {
		if times++; times < 3 {
			if err := os.Remove(filepath.Join(c.dir, key)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := counted(t, racing, key); n != 1 || times != 3 {
		t.Errorf("the count is %d after %d openings", n, times)
	}
	if n := counted(t, c, key); n != 2 {
		t.Errorf("the next process counts from %d", n-1)
	}
}

// The file of an old call is removed, but not while a process uses it, nor once one has used it.
func TestOldCallsAreForgotten(t *testing.T) {
	const key = "k"
	c := calls{dir: t.TempDir()}
	age := func() {
		t.Helper()
		old := nowFixed().Add(-2 * gateclient.KeepCalls)
		if err := os.Chtimes(filepath.Join(c.dir, key), old, old); err != nil {
			t.Fatal(err)
		}
	}
	counted(t, c, key)
	age()
	if err := c.change(key, nowFixed(), func(*sameCall) { c.forgetOld(nowFixed()) }); err != nil || !c.has(key) {
		t.Errorf("a call that is in use is forgotten: %v", err)
	}
	age()
	racing := c
	racing.opened = func() {
		now := nowFixed()
		if err := os.Chtimes(filepath.Join(c.dir, key), now, now); err != nil {
			t.Fatal(err)
		}
	}
	if racing.forgetOld(nowFixed()); !c.has(key) {
		t.Error("a call that was used meanwhile is forgotten")
	}
	if c.forgetOld(nowFixed().Add(gateclient.KeepCalls)); !c.has(key) {
		t.Error("a call is forgotten too early")
	}
	if c.forgetOld(nowFixed().Add(gateclient.KeepCalls + time.Second)); c.has(key) {
		t.Error("an old call is remembered")
	}
}

// A full disk refuses a change and leaves what was there: there is room again later.
func TestFullDisk(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ) // the limit of a file's size stands for the disk: a write fails where it ends
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	room := func(n uint64) {
		t.Helper()
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: min(n, old.Max), Max: old.Max}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { room(old.Cur) })
	c := calls{dir: t.TempDir()}
	long := waiting{Event: []byte(`"` + strings.Repeat("x", 6000) + `"`), Until: nowFixed().Add(hour)}
	wait := func(key string) error {
		return c.change(key, nowFixed(), func(s *sameCall) { s.Waiting = &long })
	}
	counted(t, c, "known")
	for _, key := range []string{"known", "new"} {
		room(4096)
		if err := wait(key); !errors.Is(err, syscall.EFBIG) {
			t.Errorf("%s: on a full disk: %v", key, err)
		}
		room(old.Cur)
		before := map[string]int{"known": 1}[key]
		if n := counted(t, c, key); n != before+1 {
			t.Errorf("%s: %d calls are open, want %d", key, n, before+1)
		}
		if err := wait(key); err != nil {
			t.Errorf("%s: with room again: %v", key, err)
		}
	}
	room(4096)
	if err := c.change("known", nowFixed(), func(s *sameCall) { s.Waiting = nil }); err != nil {
		t.Errorf("what is smaller needs no room: %v", err)
	}
	room(old.Cur)
	if n := counted(t, c, "known"); n != 3 {
		t.Errorf("%d calls are open, want 3", n)
	}
}
