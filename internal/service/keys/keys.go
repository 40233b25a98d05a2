// Package keys reads and creates the secret files of one installation: the
// admitter's receipt key, the auditor's checkpoint key and the master key of
// all digests. Each is one line of hex in a file that only its owner may read.
package keys

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/atomicfile"
)

// Names of the files in a key directory.
const (
	ReceiptFile    = "receipt.key"    // Ed25519 seed: signs receipts and decision records; the admitter's alone
	CheckpointFile = "checkpoint.key" // Ed25519 seed: signs checkpoints, vouches for receipt keys; the auditor's alone
	MasterFile     = "master.key"     // keys every digest; admitter, correlator and auditor
)

const seedSize = 32

// ErrMissing says that a key file is not there.
var ErrMissing = errors.New("key file missing")

// Ensure creates the missing ones of the named key files in dir, which it
// makes if need be.
func Ensure(dir string, names ...string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("creating the key directory: %w", err)
	}
	for _, name := range names {
		if err := createSeed(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func createSeed(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	seed := make([]byte, seedSize)
	if _, err := rand.Read(seed); err != nil {
		return fmt.Errorf("making %s: %w", path, err)
	}
	err := atomicfile.Create(path, []byte(hex.EncodeToString(seed)+"\n"), 0o600)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	return fmt.Errorf("creating key file: %w", err)
}

// Seed reads one key file. It refuses a file that others may read.
func Seed(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s (create it with: countersign provision --keys %s)", ErrMissing, path, dir)
	}
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s may be read by others (mode %04o): chmod 600 it, and replace the key if others had access", path, info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	seed, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(seed) != seedSize {
		return nil, fmt.Errorf("%s is not a key file: want one line of %d hex digits", path, 2*seedSize)
	}
	return seed, nil
}

// Receipt reads the admitter's signing key.
func Receipt(dir string) (signing.PrivateKey, error) { return privateKey(dir, ReceiptFile) }

func privateKey(dir, name string) (signing.PrivateKey, error) {
	seed, err := Seed(dir, name)
	if err != nil {
		return signing.PrivateKey{}, err
	}
	return signing.NewPrivateKey(seed)
}

// Master reads the master key of all digests.
func Master(dir string) (digest.Master, error) {
	seed, err := Seed(dir, MasterFile)
	if err != nil {
		return digest.Master{}, err
	}
	return digest.NewMaster(seed)
}
