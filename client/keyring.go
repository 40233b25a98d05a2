package client

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

// maxRecord bounds a key record that is looked at, in bytes.
const maxRecord = 64 << 10

// ErrNotVouched says that no trusted checkpoint key vouches for a key record.
var ErrNotVouched = errors.New("client: no checkpoint key that is trusted here vouches for this record")

// keyring holds the receipt keys that checkpoint keys vouch for. It is safe for
// concurrent use. Only vouched records get in, so nobody can fill it.
type keyring struct {
	vouchers note.Verifiers
	pinned   bool

	mu         sync.RWMutex
	keys       signing.KeySet
	retired    signing.KeySet  // those of keys that were retired
	retiredIDs map[string]bool // ids of retired keys, known or not
}

// newKeyring trusts what the checkpoint keys in text, one a line, vouch for.
func newKeyring(text string, pinned bool) (*keyring, error) {
	var list []note.Verifier
	for _, line := range strings.Fields(text) {
		v, err := signing.CheckpointVerifier(line)
		if err != nil {
			return nil, fmt.Errorf("client: PublicKey: %w", err)
		}
		list = append(list, v)
	}
	if len(list) == 0 {
		return nil, ErrNoPublicKey
	}
	return &keyring{vouchers: note.VerifierList(list...), pinned: pinned, keys: signing.KeySet{}, retired: signing.KeySet{}, retiredIDs: map[string]bool{}}, nil
}

// addRecord takes a key record or a retirement, JSON, if a checkpoint key vouches for
// it. Both may come in any order and from anybody.
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
		return fmt.Errorf("client: not a key record: %w", err)
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

// retireKey takes a key out. Whoever has its seed could date a receipt back, so
// none of its receipts holds any more, whenever it was issued.
func (r *keyring) retireKey(kid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retiredIDs[kid] = true
	if pub, known := r.keys[kid]; known {
		r.retired[kid] = pub
		delete(r.keys, kid)
	}
}

// learnKey takes a key record that came with a receipt. What is wrong with it shows
// when the receipt is verified: its key is then not known.
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

// openReceipt checks signature and form of a receipt, and nothing else.
func (r *keyring) openReceipt(token string) (receipt.Claims, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c, err := receipt.Open(r.keys, token)
	return c, r.explainUnknownKey(token, err)
}

// verifyReceipt checks a receipt against a call.
func (r *keyring) verifyReceipt(token string, want receipt.Expectation, now time.Time) (receipt.Claims, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c, err := receipt.Verify(r.keys, token, want, now)
	return c, r.explainUnknownKey(token, err)
}

// explainUnknownKey tells a key that was retired from one that nobody knows.
func (r *keyring) explainUnknownKey(token string, err error) error {
	if !errors.Is(err, receipt.ErrUnknownKey) {
		return err
	}
	if _, again := receipt.Open(r.retired, token); again == nil {
		return receipt.ErrRetiredKey
	}
	return err
}
