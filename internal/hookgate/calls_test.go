package hookgate

import (
	"os"
	"path/filepath"
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
