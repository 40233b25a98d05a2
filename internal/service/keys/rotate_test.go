package keys

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events/signing"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// provisioned is a directory with all keys, and what checks their vouches.
func provisioned(t *testing.T) (dir string, known note.Verifiers) {
	t.Helper()
	dir = t.TempDir()
	if err := Ensure(dir, ReceiptFile, CheckpointFile, MasterFile); err != nil {
		t.Fatal(err)
	}
	public, err := Vouch(dir, noon)
	if err != nil {
		t.Fatal(err)
	}
	v, err := signing.CheckpointVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	return dir, note.VerifierList(v)
}

func current(t *testing.T, dir string) string {
	t.Helper()
	k, err := Receipt(dir)
	if err != nil {
		t.Fatal(err)
	}
	return k.ID
}

func TestRotate(t *testing.T) {
	dir, known := provisioned(t)
	first := current(t, dir)
	old, next, err := Rotate(dir, dir, noon.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if old.KeyID != first || next.KeyID == first || current(t, dir) != next.KeyID || !next.CreatedAt.Equal(noon.Add(time.Hour)) {
		t.Errorf("from %+v to %+v; the directory has %s", old, next, current(t, dir))
	}
	for _, kid := range []string{first, next.KeyID} {
		if k, err := RecordOf(dir, kid); err != nil || k.KeyID != kid || !signing.CheckKeyRecord(known, k) {
			t.Errorf("record of %s: %+v, %v", kid, k, err)
		}
	}
	if k, err := ReceiptRecord(dir); err != nil || k != next {
		t.Errorf("receipt.json: %+v, %v", k, err)
	}
	info, err := os.Stat(filepath.Join(dir, ReceiptFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*next*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	// Whoever starts the services again changes nothing.
	if _, err := Vouch(dir, noon.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if k, _ := ReceiptRecord(dir); k != next {
		t.Errorf("provision made another record: %+v", k)
	}
}

// Several admitters have a directory each, and the checkpoint key one of its own.
func TestRotateWithACheckpointKeyElsewhere(t *testing.T) {
	vault, known := provisioned(t)
	dir := t.TempDir()
	for _, name := range []string{ReceiptFile, ReceiptRecordFile} {
		b, err := os.ReadFile(filepath.Join(vault, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := Rotate(dir, dir, noon); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), CheckpointFile) {
		t.Errorf("without a checkpoint key: %v", err)
	}
	_, next, err := Rotate(dir, vault, noon)
	if err != nil || !signing.CheckKeyRecord(known, next) {
		t.Fatalf("%+v %v", next, err)
	}
	if current(t, vault) == next.KeyID {
		t.Error("the other admitter's key was replaced")
	}
}

// While the files of a rotated key are copied to an admitter on another machine, its directory has a key with its
// record at each step: it may start at any time.
func TestRotatedFilesAreCopiedInOrder(t *testing.T) {
	vault, _ := provisioned(t)
	dir := t.TempDir()
	copied := func(name string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(vault, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	copied(ReceiptFile)
	copied(ReceiptRecordFile)
	_, next, err := Rotate(vault, vault, noon)
	if err != nil {
		t.Fatal(err)
	}
	files := RotatedFiles(next.KeyID)
	for _, name := range files {
		copied(name)
		if _, err := RecordOf(dir, current(t, dir)); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
	if k, err := ReceiptRecord(dir); len(files) != 3 || err != nil || k != next || current(t, dir) != next.KeyID {
		t.Errorf("%v: %+v, %v", files, k, err)
	}
}

// A rotation that breaks off at any step leaves a directory that an admitter can
// run from, and is finished by the next one.
func TestRotateBrokenOff(t *testing.T) {
	t.Run("before the key is in place", func(t *testing.T) {
		dir, _ := provisioned(t)
		first := current(t, dir)
		if err := createSeed(filepath.Join(dir, nextFile)); err != nil {
			t.Fatal(err)
		}
		next, err := privateKey(dir, nextFile)
		if err != nil {
			t.Fatal(err)
		}
		if k, err := RecordOf(dir, first); err != nil || current(t, dir) != k.KeyID {
			t.Errorf("%+v %v", k, err)
		}
		if _, got, err := Rotate(dir, dir, noon); err != nil || got.KeyID != next.ID {
			t.Errorf("%+v %v", got, err)
		}
	})
	t.Run("after it", func(t *testing.T) {
		dir, known := provisioned(t)
		stale, err := os.ReadFile(filepath.Join(dir, ReceiptRecordFile))
		if err != nil {
			t.Fatal(err)
		}
		_, next, err := Rotate(dir, dir, noon)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, ReceiptRecordFile), stale, 0o644); err != nil {
			t.Fatal(err)
		}
		if k, err := RecordOf(dir, current(t, dir)); err != nil || k != next || !signing.CheckKeyRecord(known, k) {
			t.Errorf("%+v %v", k, err)
		}
		if _, again, err := Rotate(dir, dir, noon); err != nil || again.KeyID == next.KeyID {
			t.Errorf("%+v %v", again, err)
		}
	})
	t.Run("a key without a record", func(t *testing.T) {
		dir, _ := provisioned(t)
		if err := os.Remove(filepath.Join(dir, ReceiptRecordFile)); err != nil {
			t.Fatal(err)
		}
		first := current(t, dir)
		if _, _, err := Rotate(dir, dir, noon); !errors.Is(err, ErrMissing) || current(t, dir) != first {
			t.Errorf("%v", err)
		}
	})
}

func TestRetire(t *testing.T) {
	dir, known := provisioned(t)
	first := current(t, dir)
	if _, err := Retire(dir, dir, first, false, noon); !errors.Is(err, ErrCurrent) {
		t.Errorf("the key that signs: %v", err)
	}
	if _, _, err := Rotate(dir, dir, noon); err != nil {
		t.Fatal(err)
	}
	k, err := Retire(dir, dir, first, false, noon.Add(time.Minute))
	if err != nil || k.KeyID != first || !signing.CheckRetirement(known, k) {
		t.Fatalf("%+v %v", k, err)
	}
	if again, err := Retire(dir, dir, first, false, noon.Add(time.Hour)); err != nil || again != k {
		t.Errorf("once more: %+v %v", again, err)
	}
	if _, err := Retire(dir, dir, "0123456789abcdef", false, noon); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("a key that nobody knows: %v", err)
	}
	foreign, err := Retire(dir, dir, "0123456789abcdef", true, noon)
	if err != nil || !signing.CheckRetirement(known, foreign) {
		t.Errorf("another admitter's key: %v", err)
	}
	if _, err := Retire(dir, dir, "../../etc", true, noon); !errors.Is(err, signing.ErrRetirement) {
		t.Errorf("no key id: %v", err)
	}
	list, err := Retirements(dir)
	if err != nil || len(list) != 2 || !slices.Contains(list, k) || !slices.Contains(list, foreign) {
		t.Errorf("%+v %v", list, err)
	}
	if err := os.WriteFile(filepath.Join(dir, RetiredFile("x")), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Retirements(dir); err == nil {
		t.Error("a damaged retirement is passed over")
	}
}
