package signing

import (
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
)

// Expire signs an expiry record: a note of the checkpoint key over e.VouchText().
func Expire(signer note.Signer, e events.Expiry) (string, error) {
	if err := e.Check(); err != nil {
		return "", err
	}
	text, err := e.VouchText()
	if err != nil {
		return "", err
	}
	signed, err := note.Sign(&note.Note{Text: text}, signer)
	if err != nil {
		return "", fmt.Errorf("signing an expiry: %w", err)
	}
	return string(signed), nil
}

// CheckExpiry reports whether e is well-formed and its Vouch is by one of the
// known checkpoint keys.
func CheckExpiry(known note.Verifiers, e events.Expiry) bool {
	if e.Check() != nil || len(e.Vouch) > maxVouch {
		return false
	}
	text, err := e.VouchText()
	if err != nil {
		return false
	}
	n, err := note.Open([]byte(e.Vouch), known)
	return err == nil && n.Text == text
}
