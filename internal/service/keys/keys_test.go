package keys

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEnsureCreatesOnceAndKeeps(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	if err := Ensure(dir, ReceiptFile, MasterFile); err != nil {
		t.Fatal(err)
	}
	first, err := Receipt(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := Ensure(dir, ReceiptFile, MasterFile, CheckpointFile); err != nil {
		t.Fatal(err)
	}
	second, err := Receipt(dir)
	if err != nil {
		t.Fatal(err)
	}
	if first.ID != second.ID {
		t.Errorf("the receipt key changed from %s to %s", first.ID, second.ID)
	}
	for _, f := range []string{ReceiptFile, MasterFile, CheckpointFile} {
		info, err := os.Stat(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %04o, want 0600", f, info.Mode().Perm())
		}
	}
}

func TestSeedRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := Seed(dir, MasterFile); !errors.Is(err, ErrMissing) {
		t.Errorf("missing file: %v", err)
	}
	path := filepath.Join(dir, MasterFile)
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"readable by others": {strings.Repeat("ab", 32), 0o644, "may be read by others"},
		"too short":          {"abcd", 0o600, "not a key file"},
		"not hex":            {strings.Repeat("zz", 32), 0o600, "not a key file"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			_, err := Seed(dir, MasterFile)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), c.text) {
				t.Error("the error shows the key")
			}
		})
	}
}
