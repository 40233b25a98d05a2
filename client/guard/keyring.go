package guard

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
)

// maxRecord bounds the key records that are read, in bytes.
const maxRecord = 64 << 10

// ErrNotVouched reports a key record without a vouch of a trusted checkpoint key.
var ErrNotVouched = errors.New("guard: no checkpoint key that is trusted here vouches for this record")

// ErrNoPublicKey reports a guard without a checkpoint key.
var ErrNoPublicKey = errors.New("guard: Options.PublicKey is required: without it a receipt cannot be told from a forgery")

// keyring holds the receipt keys that checkpoint keys vouch for. It is safe for concurrent use.
// It accepts only vouched records, so a stranger cannot fill it.
type keyring struct {
	vouchers note.Verifiers
	pinned   bool

	mu         sync.RWMutex
	keys       signing.KeySet
	retired    signing.KeySet  // retired keys
	retiredIDs map[string]bool // ids of retired keys, known or not
}

// newKeyring trusts the checkpoint keys in text, one a line.
func newKeyring(text string, pinned bool) (*keyring, error) {
	var list []note.Verifier
	for _, line := range strings.Fields(text) {
		v, err := signing.CheckpointVerifier(line)
		if err != nil {
			return nil, fmt.Errorf("guard: PublicKey: %w", err)
		}
		list = append(list, v)
	}
	if len(list) == 0 {
		return nil, ErrNoPublicKey
	}
	return &keyring{vouchers: note.VerifierList(list...), pinned: pinned, keys: signing.KeySet{}, retired: signing.KeySet{}, retiredIDs: map[string]bool{}}, nil
}

// addRecord adds a key record or a retirement, JSON, if a checkpoint key vouches for it.
// Records may come in any order and from any source.
func (r *keyring) addRecord(record []byte) error {
	if len(record) > maxRecord {
		return ErrNotVouched
	}
	if k, err := events.DecodeRecord[events.KeyRecord](record); err == nil {
		pub, err := signing.DecodePublic(k.PublicKey)
		if err != nil || !signing.CheckKeyRecord(r.vouchers, k) {
			return ErrNotVouched
		}
		r.putKey(k.KeyID, pub)
		return nil
	}
	k, err := events.DecodeRecord[events.KeyRetirement](record)
	if err != nil {
		return fmt.Errorf("guard: not a key record: %w", err)
	}
	if !signing.CheckRetirement(r.vouchers, k) {
		return ErrNotVouched
	}
	r.retireKey(k.KeyID)
	return nil
}

func (r *keyring) putKey(kid string, pub ed25519.PublicKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retiredIDs[kid] {
		r.retired[kid] = pub
		return
	}
	r.keys[kid] = pub
}

// retireKey removes a key. A holder of its seed could backdate a receipt, so none of its
// receipts is valid any more, whenever it was issued.
func (r *keyring) retireKey(kid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retiredIDs[kid] = true
	if pub, known := r.keys[kid]; known {
		r.retired[kid] = pub
		delete(r.keys, kid)
	}
}

// learnKey adds a key record that came with a receipt. An invalid record shows when the receipt
// is verified: its key is then unknown.
func (r *keyring) learnKey(record string) {
	if r.pinned || record == "" || len(record) > maxRecord {
		return
	}
	k, err := events.DecodeRecord[events.KeyRecord]([]byte(record))
	if err != nil || r.hasKey(k.KeyID) {
		return
	}
	_ = r.addRecord([]byte(record))
}

func (r *keyring) hasKey(kid string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, known := r.keys[kid]
	return known || r.retired[kid] != nil
}

// openReceipt verifies only the signature and the form of a receipt.
func (r *keyring) openReceipt(token string) (receipt.Claims, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c, err := receipt.Open(r.keys, token)
	return c, r.explainUnknownKey(token, err)
}

// verifyReceipt verifies a receipt against a call.
func (r *keyring) verifyReceipt(token string, want receipt.Expectation, now time.Time) (receipt.Claims, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c, err := receipt.Verify(r.keys, token, want, now)
	return c, r.explainUnknownKey(token, err)
}

// explainUnknownKey distinguishes a retired key from an unknown one.
func (r *keyring) explainUnknownKey(token string, err error) error {
	if !errors.Is(err, receipt.ErrUnknownKey) {
		return err
	}
	if _, again := receipt.Open(r.retired, token); again == nil {
		return receipt.ErrRetiredKey
	}
	return err
}
