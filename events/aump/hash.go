package aump

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"regexp"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// hashPrefix is the prefix of every AUMP hash.
const hashPrefix = "sha256-"

var hashForm = regexp.MustCompile(`^sha256-[0-9a-fA-F]{64}$`)

// NormaliseHash returns a hash in the form for comparisons, with digits in lower case. ok is
// false for a text that is no AUMP hash.
func NormaliseHash(h string) (normal string, ok bool) {
	if !hashForm.MatchString(h) {
		return "", false
	}
	return strings.ToLower(h), true
}

// hashValue returns "sha256-<hex>" of the RFC 8785 form of a value from strictjson.
func hashValue(v any) (string, error) {
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

// UnsignedForm is the RFC 8785 form of a mandate without its top-level signatures: the input of
// its hash and its signatures.
func UnsignedForm(tree map[string]any) ([]byte, error) {
	if _, signed := tree["signatures"]; signed {
		tree = maps.Clone(tree)
		delete(tree, "signatures")
	}
	return strictjson.Canonical(tree)
}

// MandateHash identifies a mandate by its content, regardless of its signatures.
func MandateHash(tree map[string]any) (string, error) {
	b, err := UnsignedForm(tree)
	if err != nil {
		return "", err
	}
	return hashOf(b), nil
}

// EventHash is the required value of hashes.event_hash of an evidence event: the hash of the
// event without that member. AUMP does not define the computation; this is the form of mandate
// hashes.
func EventHash(tree map[string]any) (string, error) {
	hashes, ok := tree["hashes"].(map[string]any)
	if ok {
		hashes = maps.Clone(hashes)
		delete(hashes, "event_hash")
		tree = maps.Clone(tree)
		tree["hashes"] = hashes
	}
	return hashValue(tree)
}
