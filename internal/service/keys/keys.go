// Package keys reads and creates the key files of one installation: the admitter's receipt key,
// the auditor's checkpoint key and the master key of all digests. Each is one line of hex in a
// file that only its owner may read. It also rotates and retires receipt keys (rotate.go) and
// writes the public files (vouch.go). Begin with Ensure and Vouch.
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
	ReceiptFile    = "receipt.key"    // Ed25519 seed: signs receipts and decision records; only the admitter's
	CheckpointFile = "checkpoint.key" // Ed25519 seed: signs checkpoints and receipt key records; only the auditor's
	MasterFile     = "master.key"     // keys every digest; of admitter, correlator and auditor
)

const seedSize = 32

// ErrMissing reports that a key file does not exist.
var ErrMissing = errors.New("key file missing")

// Ensure creates the named key files that are missing in dir, and dir itself if needed.
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

// Seed reads one key file. It refuses a file that other users may read.
func Seed(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	text, err := atomicfile.ReadPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s (bring it back from your backup; only for a new installation: countersign provision --keys DIR)", ErrMissing, path)
	}
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
