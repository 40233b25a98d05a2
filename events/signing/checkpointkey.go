package signing

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// CheckpointKeyName is the name of every checkpoint key in note signatures.
const CheckpointKeyName = "countersign.dev/checkpoint"

// ErrCheckpointKey reports a text that is not a checkpoint key in the form of
// golang.org/x/mod/sumdb/note, named CheckpointKeyName.
var ErrCheckpointKey = errors.New("signing: not a checkpoint key; its name must be " + CheckpointKeyName)

// NewCheckpointKey makes a checkpoint key from 32 bytes of seed. skey is the
// secret signer key and vkey the public verifier key, both in the text form of
// golang.org/x/mod/sumdb/note.
func NewCheckpointKey(seed io.Reader) (skey, vkey string, err error) {
	var b [ed25519.SeedSize]byte
	if _, err := io.ReadFull(seed, b[:]); err != nil {
		return "", "", fmt.Errorf("%w: no seed: %w", ErrCheckpointKey, err)
	}
	pub := ed25519.NewKeyFromSeed(b[:]).Public().(ed25519.PublicKey)
	if vkey, err = note.NewEd25519VerifierKey(CheckpointKeyName, pub); err != nil {
		return "", "", err
	}
	hash := strings.Split(vkey, "+")[1]
	secret := base64.StdEncoding.EncodeToString(append([]byte{1}, b[:]...)) // 1: Ed25519
	return "PRIVATE+KEY+" + CheckpointKeyName + "+" + hash + "+" + secret, vkey, nil
}

// CheckpointSigner reads a signer key. Errors never quote it.
func CheckpointSigner(skey string) (note.Signer, error) {
	s, err := note.NewSigner(strings.TrimSpace(skey))
	if err != nil || s.Name() != CheckpointKeyName {
		return nil, fmt.Errorf("%w (signer key)", ErrCheckpointKey)
	}
	return s, nil
}

// CheckpointVerifier reads a verifier key.
func CheckpointVerifier(vkey string) (note.Verifier, error) {
	v, err := note.NewVerifier(strings.TrimSpace(vkey))
	if err != nil || v.Name() != CheckpointKeyName {
		return nil, fmt.Errorf("%w (verifier key)", ErrCheckpointKey)
	}
	return v, nil
}
