package client

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
)

// Verdict is the answer to Admit. The zero Verdict is deny.
type Verdict struct {
	Decision   events.Verdict // allow only if the receipt was checked
	Reason     string         // why, where it is not allow: one of the Reason constants or the admitter's code
	Err        error          // what went wrong, for a Reason of this package
	DecisionID string
	Receipt    string // compact JWS
	Reply      []byte // the protocol's own reply

	client *Client
	want   receipt.Expectation
}

// Errors of Permits.
var (
	ErrNotAllowed  = errors.New("client: not allowed")
	ErrReceiptUsed = errors.New("client: this receipt was used before; ask again")
)

// Allowed reports whether the call was admitted. An executor that cannot call
// Permits with the arguments it is about to run may go by it alone.
func (v Verdict) Allowed() bool { return v.Decision == events.Allow }

// Permits is the executor's last check, right before the tool runs: the call
// was admitted, the receipt holds now, for this call and for exactly these
// arguments (the JSON the tool is about to be run with; nil where the protocol
// has none), and it has not been used in this client before. It is nil once for
// every receipt.
func (v Verdict) Permits(args []byte) error {
	if !v.Allowed() || v.client == nil {
		return fmt.Errorf("%w: %s", ErrNotAllowed, v.Reason)
	}
	now := time.Now()
	claims, _, err := v.verify(args, now)
	if err != nil {
		return err
	}
	if !v.client.used.first(claims.Nonce, claims.ExpiresAt.Time, now) {
		return ErrReceiptUsed
	}
	return nil
}

// verify checks the receipt against the call and the arguments.
func (v Verdict) verify(args []byte, now time.Time) (c receipt.Claims, reason string, err error) {
	if v.Receipt == "" {
		return c, ReasonReceiptMissing, errors.New("client: the reply says allow, but has no receipt")
	}
	want := v.want
	if want.ArgsCanonical, err = canonical(args); err != nil {
		return c, ReasonBadArguments, fmt.Errorf("client: the arguments: %w", err)
	}
	v.client.mu.RLock()
	defer v.client.mu.RUnlock()
	if c, err = receipt.Verify(v.client.keys, v.Receipt, want, now); err != nil {
		return c, ReasonReceiptInvalid, err
	}
	return c, "", nil
}

// uses remembers which receipts have been used, until they expire.
type uses struct {
	mu      sync.Mutex
	expires map[string]time.Time // by nonce
	sweep   int                  // the size at which the expired ones are dropped
}

const firstSweep = 1024

// first reports whether this is the first use of a receipt.
func (u *uses) first(nonce string, expires, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, used := u.expires[nonce]; used {
		return false
	}
	if len(u.expires) >= max(u.sweep, firstSweep) {
		for n, e := range u.expires {
			if now.After(e) {
				delete(u.expires, n)
			}
		}
		u.sweep = 2 * len(u.expires)
	}
	if u.expires == nil {
		u.expires = map[string]time.Time{}
	}
	u.expires[nonce] = expires
	return true
}
