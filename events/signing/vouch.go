package signing

import (
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
)

// vouched is a record that the checkpoint key vouches for.
type vouched interface {
	Check() error
	VouchText() (string, error)
}

// Erase signs an erasure record: a note of the checkpoint key over e.VouchText().
func Erase(signer note.Signer, e events.Erasure) (string, error) { return vouch(signer, e) }

// CheckErasure reports whether e is well-formed and its Vouch is by one of the
// known checkpoint keys.
func CheckErasure(known note.Verifiers, e events.Erasure) bool { return checkVouch(known, e, e.Vouch) }

// Expire signs an expiry record: a note of the checkpoint key over e.VouchText().
func Expire(signer note.Signer, e events.Expiry) (string, error) { return vouch(signer, e) }

// CheckExpiry reports whether e is well-formed and its Vouch is by one of the
// known checkpoint keys.
func CheckExpiry(known note.Verifiers, e events.Expiry) bool { return checkVouch(known, e, e.Vouch) }

func vouch(signer note.Signer, r vouched) (string, error) {
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

func checkVouch(known note.Verifiers, r vouched, by string) bool {
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
