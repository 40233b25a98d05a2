package system

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/storage/read"
)

// OpenEvidence connects to the evidence. The caller closes the reader's DB.
func OpenEvidence(ctx context.Context, t *target.Target) (evidencereader.Reader, error) {
	dsn, err := t.DSN()
	if err != nil {
		return evidencereader.Reader{}, err
	}
	db, err := read.Open(ctx, dsn)
	if err != nil {
		return evidencereader.Reader{}, err
	}
	return evidencereader.Reader{DB: db, Stream: t.Stream, Space: subject.Space{Prefix: t.Prefix}}, nil
}

// FindEvidence finds the running system and opens its evidence. The caller closes
// the reader's DB.
func FindEvidence(ctx context.Context, f target.Flags) (*target.Target, evidencereader.Reader, error) {
	t, err := f.Resolve()
	if err != nil {
		return nil, evidencereader.Reader{}, err
	}
	l, err := OpenEvidence(ctx, t)
	return t, l, err
}

// CheckpointKey returns the public key to verify against: from a file, as given, or from the ready file. It refuses a key
// of the environment that is not the ready file's: one of the two is another system's. A key that is given by the flag alone
// is meant. The key never comes from the evidence, which cannot vouch for itself.
func CheckpointKey(flag string, t *target.Target) (string, error) {
	ready := ""
	if t != nil && t.ReadyInfo() != nil {
		ready = t.ReadyInfo().PublicKey
	}
	given := cmp.Or(flag, ready)
	if given == "" {
		return "", ui.UsageError{Err: fmt.Errorf("no public key to verify against: give --key FILE (checkpoint.pub of the installation) or COUNTERSIGN_PUBLIC_KEY, or --ready-file FILE")}
	}
	key, err := keys.ReadCheckpointKey(given)
	if err != nil {
		return "", ui.UsageError{Err: fmt.Errorf("--key: %w", err)}
	}
	if ready != "" && key != ready && flag == os.Getenv("COUNTERSIGN_PUBLIC_KEY") {
		return "", ui.UsageError{Err: fmt.Errorf("COUNTERSIGN_PUBLIC_KEY has the key %s, and the ready file has %s: unset the variable and, if its key is meant, give that with the flag", key, ready)}
	}
	return key, nil
}

// TrustedKeys returns the verifiers of CheckpointKey.
func TrustedKeys(flag string, t *target.Target) ([]note.Verifier, error) {
	key, err := CheckpointKey(flag, t)
	if err != nil {
		return nil, err
	}
	return CheckpointVerifiers(key)
}

// CheckpointVerifiers returns the verifier of one checkpoint key.
func CheckpointVerifiers(key string) ([]note.Verifier, error) {
	v, err := signing.CheckpointVerifier(key)
	if err != nil {
		return nil, err
	}
	return []note.Verifier{v}, nil
}
