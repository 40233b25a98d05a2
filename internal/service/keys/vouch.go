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
	CheckpointPublicFile = "checkpoint.pub" // verifier key for outsiders
	ReceiptRecordFile    = "receipt.json"   // the receipt key's record, signed by the checkpoint key
)

// Vouch writes the public files of dir: the checkpoint key's public half, and the receipt key's
// record signed by the checkpoint key. It needs both private keys and runs once, where they are
// made. now is the time in a new record; an existing record of the current key is kept.
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

// Checkpoint reads the auditor's signing key and returns it with its public half.
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

// ReadCheckpointKey returns a public checkpoint key that a flag or COUNTERSIGN_PUBLIC_KEY gives: the
// key itself, or the name of a file that holds it.
func ReadCheckpointKey(given string) (string, error) {
	text := given
	if b, err := os.ReadFile(given); err == nil {
		text = string(b)
	} else if !strings.Contains(given, "+") { // a key contains plus signs, so this is a file name
		return "", fmt.Errorf("reading the public key: %w", err)
	}
	text = strings.TrimSpace(text)
	if _, err := signing.CheckpointVerifier(text); err != nil {
		return "", fmt.Errorf("neither a public checkpoint key nor a file that holds one: %w", err) // it may be a private one
	}
	return text, nil
}

// CheckpointVerifier returns the public checkpoint key that is given as ReadCheckpointKey reads it
// or, if none is, the one of checkpoint.pub in dir.
func CheckpointVerifier(dir, given string) (note.Verifier, error) {
	if given == "" {
		given = filepath.Join(dir, CheckpointPublicFile)
		if _, err := os.Stat(given); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s (`countersign provision` writes it where the checkpoint key is; copy it here or give the key itself)", ErrMissing, given)
		}
	}
	text, err := ReadCheckpointKey(given)
	if err != nil {
		return nil, err
	}
	return signing.CheckpointVerifier(text)
}

// ReceiptRecord reads the admitter's signed public key record.
func ReceiptRecord(dir string) (events.KeyRecord, error) {
	path := filepath.Join(dir, ReceiptRecordFile)
	k, err := readRecord(path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, fmt.Errorf("%w: %s (`countersign provision` writes it where the checkpoint key is; copy it here)", ErrMissing, path)
	}
	return k, err
}
