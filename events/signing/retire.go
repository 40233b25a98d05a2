package signing

import (
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
)

// UseReceipt is the use of keys that sign receipts and records.
const UseReceipt = "receipt"

// maxVouch bounds a signed note that is looked at, in bytes.
const maxVouch = 64 << 10

// ErrRetirement says that a retirement does not name a key and a time.
var ErrRetirement = errors.New("signing: a retirement must have use receipt, the id of a key and a time")

// SignRetirement signs that a key counts no more: a note of the checkpoint key over
// k.VouchText().
func SignRetirement(signer note.Signer, k events.KeyRetirement) (string, error) {
	if !wellFormed(k) {
		return "", ErrRetirement
	}
	signed, err := note.Sign(&note.Note{Text: k.VouchText()}, signer)
	if err != nil {
		return "", fmt.Errorf("retiring a key: %w", err)
	}
	return string(signed), nil
}

// CheckRetirement reports whether k is well-formed and its Vouch is by one of
// the known checkpoint keys.
func CheckRetirement(known note.Verifiers, k events.KeyRetirement) bool {
	if !wellFormed(k) || len(k.Vouch) > maxVouch {
		return false
	}
	n, err := note.Open([]byte(k.Vouch), known)
	return err == nil && n.Text == k.VouchText()
}

// wellFormed checks the fields that VouchText joins: only in their exact forms
// does its text say one thing.
func wellFormed(k events.KeyRetirement) bool {
	return k.Use == UseReceipt && isKeyID(k.KeyID) && !k.RetiredAt.IsZero()
}
