package signing

import (
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
)

// Erase signs an erasure record: a note of the checkpoint key over
// e.VouchText().
func Erase(signer note.Signer, e events.Erasure) (string, error) {
	if err := e.Check(); err != nil {
		return "", err
	}
	text, err := e.VouchText()
	if err != nil {
		return "", err
	}
	signed, err := note.Sign(&note.Note{Text: text}, signer)
	if err != nil {
		return "", fmt.Errorf("signing an erasure: %w", err)
	}
	return string(signed), nil
}

// CheckErasure reports whether e is well-formed and its Vouch is by one of the
// known checkpoint keys.
func CheckErasure(known note.Verifiers, e events.Erasure) bool {
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
