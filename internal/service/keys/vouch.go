package keys

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/atomicfile"
)

// Names of the public files in a key directory.
const (
	CheckpointPublicFile = "checkpoint.pub" // the verifier key that outsiders need
	ReceiptRecordFile    = "receipt.json"   // the receipt key's record, vouched for by the checkpoint key
)

// Vouch writes the public files of dir: the checkpoint key's public half and
// the receipt key's record with the checkpoint key's word for it. It needs both
// private keys and is run once, where they are made. now goes into a new
// record; an existing one that still fits is kept.
func Vouch(dir string, now time.Time) (publicKey string, err error) {
	signer, publicKey, err := Checkpoint(dir)
	if err != nil {
		return "", err
	}
	if err := writePublic(dir, CheckpointPublicFile, []byte(publicKey+"\n")); err != nil {
		return "", err
	}
	receipt, err := Receipt(dir)
	if err != nil {
		return "", err
	}
	verifier, err := signing.CheckpointVerifier(publicKey)
	if err != nil {
		return "", err
	}
	if k, err := RecordOf(dir, receipt.ID); err == nil && signing.CheckKeyRecord(note.VerifierList(verifier), k) {
		return publicKey, writeJSON(dir, ReceiptRecordFile, k)
	}
	k, err := vouchedRecord(signer, note.VerifierList(verifier), receipt, now)
	if err != nil {
		return "", err
	}
	return publicKey, writeJSON(dir, ReceiptRecordFile, k)
}

func writePublic(dir, name string, data []byte) error {
	path := filepath.Join(dir, name)
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	return atomicfile.Write(path, data, 0o644)
}

// Checkpoint reads the auditor's signing key and gives its public half.
func Checkpoint(dir string) (note.Signer, string, error) {
	seed, err := Seed(dir, CheckpointFile)
	if err != nil {
		return nil, "", err
	}
	private, public, err := signing.NewCheckpointKey(bytes.NewReader(seed))
	if err != nil {
		return nil, "", err
	}
	signer, err := signing.CheckpointSigner(private)
	return signer, public, err
}

// CheckpointVerifier is the public checkpoint key: given as text, or read from
// checkpoint.pub in dir.
func CheckpointVerifier(dir, text string) (note.Verifier, error) {
	if text == "" {
		b, err := os.ReadFile(filepath.Join(dir, CheckpointPublicFile))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s (`countersign provision` writes it where the checkpoint key is; copy it here or give the key itself)",
				ErrMissing, filepath.Join(dir, CheckpointPublicFile))
		}
		if err != nil {
			return nil, err
		}
		text = string(b)
	}
	v, err := signing.CheckpointVerifier(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("%.60q is not a public checkpoint key: %w", text, err)
	}
	return v, nil
}

// ReceiptRecord reads the admitter's vouched public key.
func ReceiptRecord(dir string) (events.KeyRecord, error) {
	path := filepath.Join(dir, ReceiptRecordFile)
	k, err := readRecord(path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, fmt.Errorf("%w: %s (`countersign provision` writes it where the checkpoint key is; copy it here)", ErrMissing, path)
	}
	return k, err
}
