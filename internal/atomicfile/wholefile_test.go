package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// alone demands that a directory holds one file and no leftovers.
func alone(t *testing.T, path string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].Name() != filepath.Base(path) {
		t.Errorf("the directory holds %v", list)
	}
}

func TestWriteReplacesContentAndMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(path, []byte("a much longer old text"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "new" || info.Mode().Perm() != 0o600 {
		t.Errorf("%q, mode %04o", got, info.Mode().Perm())
	}
	alone(t, path)
}

func TestFailureLeavesTheOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if err := Write(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken in the middle")
	err := Stream(path, 0o600, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half of the ne")
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if got := read(t, path); got != "old" {
		t.Errorf("the file now holds %q", got)
	}
	alone(t, path)
}

func TestCreateKeepsWhatIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := Create(path, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Create(path, []byte("second"), 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("error %v, want fs.ErrExist", err)
	}
	if got := read(t, path); got != "first" {
		t.Errorf("the file now holds %q", got)
	}
	alone(t, path)
}

// What a killed writer has left is removed, and nothing else.
func TestRemoveLeftovers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	err := Stream(path, 0o600, func(io.Writer) error {
		list, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(list) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		return os.WriteFile(filepath.Join(filepath.Dir(path), list[0].Name()+"9"), []byte("half"), 0o600) // as of another process
	})
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(filepath.Dir(path), ".state2-9")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := RemoveLeftovers(path); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	alone(t, path)
	if err := RemoveLeftovers(filepath.Join(path+"-none", "state")); err != nil {
		t.Errorf("without a directory: %v", err)
	}
}

// TestReadPrivate: a file with secrets that others may read is refused, whatever it holds.
func TestReadPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	for mode, refused := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o640: true, 0o604: true, 0o620: true} {
		if err := os.WriteFile(path, []byte("s"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		text, err := ReadPrivate(path)
		if refused != (err != nil) || !refused && string(text) != "s" {
			t.Errorf("mode %04o: %q, %v", mode, text, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
