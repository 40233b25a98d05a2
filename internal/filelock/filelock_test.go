package filelock_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/internal/filelock"
)

func TestTry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := filelock.Try(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := filelock.Try(path); !errors.Is(err, filelock.ErrHeld) {
		t.Errorf("a held lock: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := filelock.Try(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
	if _, err := filelock.Try(filepath.Join(path, "none")); err == nil || errors.Is(err, filelock.ErrHeld) {
		t.Errorf("a file that cannot be made: %v", err)
	}
}

func TestWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := filelock.Try(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	_, err = filelock.Wait(ctx, path, func() { calls++; cancel() })
	if !errors.Is(err, filelock.ErrHeld) || !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("a lock that stays held: %v, waiting was called %d times", err, calls)
	}
	f, err := filelock.Wait(t.Context(), path, func() { calls++; _ = held.Close() })
	if err != nil || calls != 2 {
		t.Fatalf("a lock that is let go: %v, waiting was called %d times", err, calls)
	}
	_ = f.Close()
	if f, err = filelock.Wait(t.Context(), path, nil); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
}
