package keys

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/atomicfile"
)

// nextFile is a new receipt key that does not sign yet.
const nextFile = "receipt.next.key"

// Errors of rotation that callers decide on.
var (
	ErrCurrent    = errors.New("this key signs at present")
	ErrUnknownKey = errors.New("no record of this key")
)

// RecordFile and RetiredFile name the public files of a receipt key: its record, and its
// retirement.
func RecordFile(kid string) string  { return "receipt-" + kid + ".json" }
func RetiredFile(kid string) string { return "retired-" + kid + ".json" }

// RotatedFiles names the files of a new receipt key in the order in which they are copied to an admitter elsewhere:
// that of Rotate, so that the directory has the record of its key at each step.
func RotatedFiles(kid string) []string {
	return []string{RecordFile(kid), ReceiptFile, ReceiptRecordFile}
}

// RetiredEntry is the entry of the keys bucket for the retirement of a key; the key's record is
// under its id.
func RetiredEntry(kid string) string { return kid + ".retired" }

// Rotate replaces the receipt key in dir by a new one; its record is what the checkpoint key in
// checkpointDir signs. An admitter that watches dir signs with it from then on. The old key's
// seed is deleted; its record stays, to check what it signed.
//
// The key file is replaced last but one, in one step. If Rotate is interrupted before that, the
// old key stays in use and the next rotation continues with the new one. If it is interrupted
// after that, receipt.json is out of date, and RecordOf finds the record nevertheless.
func Rotate(dir, checkpointDir string, now time.Time) (old, next events.KeyRecord, err error) {
	signer, known, err := checkpointKey(checkpointDir)
	if err != nil {
		return old, next, err
	}
	current, err := Receipt(dir)
	if err != nil {
		return old, next, err
	}
	if old, err = RecordOf(dir, current.ID); err != nil {
		return old, next, fmt.Errorf("the present key has no record, so what it signed cannot be checked (countersign provision --keys %s makes one): %w", dir, err)
	}
	if err := writeJSON(dir, RecordFile(old.KeyID), old); err != nil {
		return old, next, err
	}
	if err := createSeed(filepath.Join(dir, nextFile)); err != nil {
		return old, next, err
	}
	key, err := privateKey(dir, nextFile)
	if err != nil {
		return old, next, err
	}
	if next, err = vouchedRecord(signer, known, key, now); err != nil {
		return old, next, err
	}
	if err := writeJSON(dir, RecordFile(next.KeyID), next); err != nil {
		return old, next, err
	}
	if err := replaceFile(filepath.Join(dir, nextFile), filepath.Join(dir, ReceiptFile)); err != nil {
		return old, next, fmt.Errorf("putting the new key in place: %w", err)
	}
	return old, next, writeJSON(dir, ReceiptRecordFile, next)
}

// replaceFile renames a file over another and keeps the other's owner: the administrator rotates,
// and the service must be able to read the file.
func replaceFile(from, to string) error {
	if info, err := os.Stat(to); err == nil && os.Geteuid() == 0 {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			if err := os.Chown(from, int(st.Uid), int(st.Gid)); err != nil {
				return err
			}
		}
	}
	return os.Rename(from, to)
}

// vouchedRecord makes the signed record of a key.
func vouchedRecord(signer note.Signer, known note.Verifiers, key signing.PrivateKey, now time.Time) (k events.KeyRecord, err error) {
	k = events.KeyRecord{KeyID: key.ID, Use: signing.UseReceipt, Algorithm: "EdDSA", PublicKey: signing.EncodePublic(key.Public()), CreatedAt: events.At(now)}
	if k.Vouch, err = signing.SignKeyRecord(signer, k); err != nil {
		return k, err
	}
	if !signing.CheckKeyRecord(known, k) {
		return k, errors.New("the checkpoint key's word for the new key does not verify")
	}
	return k, nil
}

// Retire writes a receipt key's retirement, signed by the checkpoint key in checkpointDir; the
// admitter that watches dir publishes it. The current signing key is refused with ErrCurrent. A
// key without a record in dir is refused with ErrUnknownKey unless foreign is set, which is for
// keys of other admitters.
func Retire(dir, checkpointDir, kid string, foreign bool, now time.Time) (events.KeyRetirement, error) {
	k := events.KeyRetirement{KeyID: kid, Use: signing.UseReceipt, RetiredAt: events.At(now)}
	signer, _, err := checkpointKey(checkpointDir)
	if err != nil {
		return k, err
	}
	if current, err := Receipt(dir); err == nil && current.ID == kid {
		return k, fmt.Errorf("%w: rotate it first (countersign keys rotate --keys %s)", ErrCurrent, dir)
	}
	if done, err := readRetirement(filepath.Join(dir, RetiredFile(kid))); err == nil && done.KeyID == kid {
		return done, nil
	}
	if _, err := RecordOf(dir, kid); err != nil && !foreign {
		return k, fmt.Errorf("%w in %s: %.40q (is it another admitter's? see countersign keys list)", ErrUnknownKey, dir, kid)
	}
	if k.Vouch, err = signing.SignRetirement(signer, k); err != nil {
		return k, err
	}
	return k, writeJSON(dir, RetiredFile(kid), k)
}

// Retirements reads the retirements in dir, ordered by key id.
func Retirements(dir string) (list []events.KeyRetirement, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, RetiredFile("*")))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	for _, path := range paths {
		k, err := readRetirement(path)
		if err != nil {
			return nil, err
		}
		list = append(list, k)
	}
	return list, nil
}

func readRetirement(path string) (events.KeyRetirement, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return events.KeyRetirement{}, err
	}
	k, err := events.DecodeRecord[events.KeyRetirement](b)
	if err != nil {
		return k, fmt.Errorf("%s is not the retirement of a key: %w", path, err)
	}
	return k, nil
}

// RecordOf reads the record of one receipt key: from receipt.json if it is that key's, otherwise
// from its kept record.
func RecordOf(dir, kid string) (events.KeyRecord, error) {
	k, err := ReceiptRecord(dir)
	if err == nil && k.KeyID == kid {
		return k, nil
	}
	kept, keptErr := readRecord(filepath.Join(dir, RecordFile(kid)))
	switch {
	case keptErr == nil && kept.KeyID == kid:
		return kept, nil
	case err != nil:
		return events.KeyRecord{}, err
	case keptErr != nil && !errors.Is(keptErr, fs.ErrNotExist):
		return events.KeyRecord{}, keptErr
	}
	return events.KeyRecord{}, fmt.Errorf("%w: %s in %s belongs to another receipt key: run `countersign provision` where the checkpoint key is, and copy the file again",
		ErrMissing, ReceiptRecordFile, dir)
}

func readRecord(path string) (k events.KeyRecord, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return k, err
	}
	if err := json.Unmarshal(b, &k); err != nil {
		return k, fmt.Errorf("%s is not a key record: %w", path, err)
	}
	return k, nil
}

// checkpointKey reads the checkpoint key in dir and returns it with its verifier.
func checkpointKey(dir string) (note.Signer, note.Verifiers, error) {
	signer, public, err := Checkpoint(dir)
	if err != nil {
		return nil, nil, err
	}
	v, err := signing.CheckpointVerifier(public)
	if err != nil {
		return nil, nil, err
	}
	return signer, note.VerifierList(v), nil
}

func writeJSON(dir, name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if strings.ContainsAny(name, `/\`) {
		return fmt.Errorf("%.60q is not the name of a file in a key directory", name)
	}
	if old, err := os.ReadFile(filepath.Join(dir, name)); err == nil && string(old) == string(text)+"\n" {
		return nil
	}
	return atomicfile.Write(filepath.Join(dir, name), append(text, '\n'), 0o644)
}
