package evidence_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
)

func TestWrapKey(t *testing.T) {
	wrapping, key, nonce := evidencetest.Derived("wrapping"), evidencetest.Derived("key"), evidencetest.Derived("nonce")[:12]
	wrapped, err := evidence.WrapSessionSecret(wrapping, "acme", "s", key, nonce)
	evidencetest.Must(t, err)
	got, err := evidence.UnwrapSessionSecret(wrapping, "acme", "s", wrapped)
	evidencetest.Must(t, err)
	if !bytes.Equal(got, key) || bytes.Contains(wrapped, key[:8]) {
		t.Error("not the key, or in the clear")
	}
	for i := range wrapped {
		bad := bytes.Clone(wrapped)
		bad[i] ^= 1
		if _, err := evidence.UnwrapSessionSecret(wrapping, "acme", "s", bad); !errors.Is(err, evidence.ErrUnwrap) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
	for name, err := range map[string]error{
		"tenant":   second(evidence.UnwrapSessionSecret(wrapping, "acm", "es", wrapped)),
		"session":  second(evidence.UnwrapSessionSecret(wrapping, "acme", "t", wrapped)),
		"wrapping": second(evidence.UnwrapSessionSecret(evidencetest.Derived("other"), "acme", "s", wrapped)),
		"short":    second(evidence.UnwrapSessionSecret(wrapping, "acme", "s", wrapped[:20])),
		"nil":      second(evidence.UnwrapSessionSecret(wrapping, "acme", "s", nil)),
	} {
		if !errors.Is(err, evidence.ErrUnwrap) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"wrapping": second(evidence.WrapSessionSecret(wrapping[:31], "a", "s", key, nonce)),
		"key":      second(evidence.WrapSessionSecret(wrapping, "a", "s", key[:16], nonce)),
		"nonce":    second(evidence.WrapSessionSecret(wrapping, "a", "s", key, nonce[:8])),
	} {
		if !errors.Is(err, evidence.ErrKeys) {
			t.Errorf("short %s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
