package signing

import (
	"crypto/ed25519"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
)

// vouchedRecord is a record that the checkpoint key vouches for.
type vouchedRecord interface {
	Check() error
	VouchText() (string, error)
}

// SignErasure signs an erasure record: a note of the checkpoint key over e.VouchText().
func SignErasure(signer note.Signer, e events.Erasure) (string, error) { return signVouch(signer, e) }

// CheckErasure reports whether e is well-formed and its Vouch is by one of the
// known checkpoint keys.
func CheckErasure(known note.Verifiers, e events.Erasure) bool { return checkVouch(known, e, e.Vouch) }

// SignExpiry signs an expiry record: a note of the checkpoint key over e.VouchText().
func SignExpiry(signer note.Signer, e events.Expiry) (string, error) { return signVouch(signer, e) }

// CheckExpiry reports whether e is well-formed and its Vouch is by one of the
// known checkpoint keys.
func CheckExpiry(known note.Verifiers, e events.Expiry) bool { return checkVouch(known, e, e.Vouch) }

func signVouch(signer note.Signer, r vouchedRecord) (string, error) {
	if err := r.Check(); err != nil {
		return "", err
	}
	text, err := r.VouchText()
	if err != nil {
		return "", err
	}
	signed, err := note.Sign(&note.Note{Text: text}, signer)
	if err != nil {
		return "", fmt.Errorf("signing an %T: %w", r, err)
	}
	return string(signed), nil
}

func checkVouch(known note.Verifiers, r vouchedRecord, by string) bool {
	if r.Check() != nil || len(by) > maxVouch {
		return false
	}
	text, err := r.VouchText()
	if err != nil {
		return false
	}
	n, err := note.Open([]byte(by), known)
	return err == nil && n.Text == text
}

// ErrKeyRecord says that the record of a receipt key is not well-formed.
var ErrKeyRecord = errors.New("signing: key record")

// SignKeyRecord signs that a key is one of ours: a note over k.VouchText().
func SignKeyRecord(signer note.Signer, k events.KeyRecord) (string, error) {
	if _, err := ReceiptKey(k); err != nil {
		return "", err
	}
	signed, err := note.Sign(&note.Note{Text: k.VouchText()}, signer)
	if err != nil {
		return "", fmt.Errorf("vouching for a key: %w", err)
	}
	return string(signed), nil
}

// CheckKeyRecord reports whether k is a well-formed receipt key and its Vouch is by
// one of the known checkpoint keys.
func CheckKeyRecord(known note.Verifiers, k events.KeyRecord) bool {
	if _, err := ReceiptKey(k); err != nil || len(k.Vouch) > maxVouch {
		return false
	}
	n, err := note.Open([]byte(k.Vouch), known)
	return err == nil && n.Text == k.VouchText()
}

// ReceiptKey gives the public key of a receipt key's record. It checks the fields that VouchText joins: only in their exact forms
// does its text name one key.
func ReceiptKey(k events.KeyRecord) (ed25519.PublicKey, error) {
	pub, err := DecodePublic(k.PublicKey)
	if err != nil || EncodePublic(pub) != k.PublicKey || k.Use != UseReceipt || k.Algorithm != "EdDSA" || k.KeyID != KeyID(pub) {
		return nil, fmt.Errorf("%w: a key record must be use receipt, alg EdDSA, and a kid that fits its key", ErrKeyRecord)
	}
	return pub, nil
}
