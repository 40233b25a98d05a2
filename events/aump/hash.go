package aump

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"regexp"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// hashPrefix starts every hash that AUMP writes.
const hashPrefix = "sha256-"

var hashForm = regexp.MustCompile(`^sha256-[0-9a-fA-F]{64}$`)

// NormaliseHash gives a hash in the one form in which hashes are compared, with
// its digits in lower case. ok is false for anything that is no AUMP hash.
func NormaliseHash(h string) (normal string, ok bool) {
	if !hashForm.MatchString(h) {
		return "", false
	}
	return strings.ToLower(h), true
}

// Hash is "sha256-<hex>" of the RFC 8785 form of a value from strictjson.
func Hash(v any) (string, error) {
	b, err := strictjson.Canonical(v)
	if err != nil {
		return "", err
	}
	return hashOf(b), nil
}

func hashOf(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return hashPrefix + hex.EncodeToString(sum[:])
}

// UnsignedForm is the RFC 8785 form of a mandate without its top-level signatures:
// what its hash is made of and what its signatures sign.
func UnsignedForm(tree map[string]any) ([]byte, error) {
	if _, signed := tree["signatures"]; signed {
		tree = maps.Clone(tree)
		delete(tree, "signatures")
	}
	return strictjson.Canonical(tree)
}

// MandateHash names a mandate by its content, whoever signed it.
func MandateHash(tree map[string]any) (string, error) {
	b, err := UnsignedForm(tree)
	if err != nil {
		return "", err
	}
	return hashOf(b), nil
}

// EventHash is what hashes.event_hash of an evidence event must be: the hash of
// the event without that member. AUMP does not say how it is computed; this is
// the form of mandate hashes.
func EventHash(tree map[string]any) (string, error) {
	hashes, ok := tree["hashes"].(map[string]any)
	if ok {
		hashes = maps.Clone(hashes)
		delete(hashes, "event_hash")
		tree = maps.Clone(tree)
		tree["hashes"] = hashes
	}
	return Hash(tree)
}
