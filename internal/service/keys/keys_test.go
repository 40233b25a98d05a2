package keys

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events/signing"
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

// A public checkpoint key is given as it is or by the name of its file, wherever one is given.
func TestReadCheckpointKey(t *testing.T) {
	dir := t.TempDir()
	if err := Ensure(dir, ReceiptFile, CheckpointFile); err != nil {
		t.Fatal(err)
	}
	public, err := Vouch(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	private, _, err := signing.NewCheckpointKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ given, problem string }{
		"the key":           {public, ""},
		"with a line end":   {" " + public + "\n", ""},
		"its file":          {filepath.Join(dir, CheckpointPublicFile), ""},
		"no file":           {filepath.Join(dir, "absent"), "no such file"},
		"another file":      {filepath.Join(dir, ReceiptRecordFile), "neither a public checkpoint key nor a file"},
		"a private key":     {private, "neither a public checkpoint key nor a file"},
		"the key cut short": {public[:len(public)-9], "neither a public checkpoint key nor a file"},
	} {
		got, err := ReadCheckpointKey(c.given)
		voucher, same := CheckpointVerifier(t.TempDir(), c.given)
		switch {
		case c.problem == "" && (err != nil || got != strings.TrimSpace(public) || same != nil || voucher.Name() != signing.CheckpointKeyName):
			t.Errorf("%s: %q %v %v", name, got, err, same)
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem) || same == nil || strings.Contains(err.Error(), "PRIVATE")):
			t.Errorf("%s: %v %v", name, err, same)
		}
	}
	if _, err := CheckpointVerifier(dir, ""); err != nil {
		t.Errorf("of the directory: %v", err)
	}
	if _, err := CheckpointVerifier(t.TempDir(), ""); !errors.Is(err, ErrMissing) {
		t.Errorf("of a directory without one: %v", err)
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
