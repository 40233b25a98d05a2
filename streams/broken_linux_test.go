package streams

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/streams/embedded"
)

// A server that cannot write to its store says so, and refuses that stream from then
// on, writable again or not: it must be started anew.
func TestBrokenStore(t *testing.T) {
	skipShort(t)
	if os.Getenv(inChild) == "" {
		child := exec.CommandContext(ctx(t), os.Args[0], "-test.run=^TestBrokenStore$", "-test.v")
		child.Env = append(os.Environ(), inChild+"=1")
		out, err := child.CombinedOutput()
		switch {
		case err != nil:
			t.Fatalf("%v\n%s", err, out)
		case strings.Contains(string(out), "--- SKIP"):
			t.Skipf("%s", out)
		}
		return
	}
	dir := filepath.Join(t.TempDir(), "store")
	ok(t, os.MkdirAll(dir, 0o700))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size=16m"); err != nil {
		t.Skipf("a disk that fills up needs a small file system, and mounting a tmpfs is not permitted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	f := start(t, func(c *ServerConfig) { c.StoreDir = dir })
	nc := f.conn("admitter")
	event := []Msg{{Subject: "gov.events.acme.runtime.agenthook.s1.PreToolUse", Body: make([]byte, 1<<10)}}
	ok(t, StoreAll(ctx(t), nc, event))
	filler := filepath.Join(dir, "filler")
	ok(t, fill(filler))
	if err := storeUntilBroken(t, f, nc, event); !errors.Is(err, embedded.ErrStore) || !strings.Contains(err.Error(), "no space left") {
		t.Error(err)
	}
	ok(t, os.Remove(filler))
	short, cancel := context.WithTimeout(ctx(t), time.Second)
	defer cancel()
	if err := StoreAll(short, nc, event); err == nil {
		t.Error("the server goes on by itself: what waits for Broken and starts it anew can go")
	}
}

// The log takes what its disk has room for.
func TestTheDiskIsTheLimit(t *testing.T) {
	skipShort(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size=32m"); err != nil {
		t.Skipf("a small disk needs a tmpfs, and mounting one is not permitted here: %v", err)
	}
	f := start(t, func(c *ServerConfig) { c.StoreDir = dir })
	t.Cleanup(func() { f.srv.Shutdown(); ok(t, syscall.Unmount(dir, 0)) })
	nc := f.conn("admitter")
	event := []Msg{{Subject: "gov.events.acme.runtime.agenthook.s1.PreToolUse", Body: make([]byte, 100<<10)}}
	for stored := 0; stored < 27<<20; stored += len(event[0].Body) { // three quarters are 24 MiB
		if err := StoreAll(ctx(t), nc, event); err != nil {
			t.Fatalf("after %d KiB of 32 MiB: %v", stored>>10, err)
		}
	}
	uses, err := StoreUses(ctx(t), nc, DefaultShard)
	if use := uses["test"]; err != nil || use.Used < 27<<20 || use.Limit != 1<<50 {
		t.Errorf("%+v, %v", uses, err)
	}
}

// storeUntilBroken stores messages until the server tells that it cannot, and returns what it tells.
func storeUntilBroken(t *testing.T, f *fixture, nc *nats.Conn, msgs []Msg) error {
	t.Helper()
	for end := ctx(t); ; {
		short, cancel := context.WithTimeout(end, time.Second)
		_ = StoreAll(short, nc, msgs)
		cancel()
		select {
		case err := <-f.srv.Broken():
			return err
		case <-end.Done():
			t.Fatal("the server reported no broken store")
		default:
		}
	}
}

// fill writes a file until there is no room.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for part := make([]byte, 1<<20); len(part) > 0; {
		if _, err := f.Write(part); err != nil {
			part = part[:len(part)/2]
		}
	}
	return nil
}
