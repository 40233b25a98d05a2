package events

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// PolicySetKey is the key of the whole set in the bucket policies. No document has this name:
// it does not end in .yaml.
const PolicySetKey = "_set"

// PolicySetVersion is the form of PolicySet that this package writes and reads.
const PolicySetVersion = 1

// Limits of a PolicySet. The set and the record of its activation must both pass
// strictjson.DefaultLimits.
const (
	MaxPolicySet        = 768 << 10 // bytes of its JSON form
	MaxPolicySetAuthor  = 200       // characters
	MaxPolicySetMessage = 2_000
)

// PolicyDocument is one policy file as it was written.
type PolicyDocument struct {
	Name string `json:"name"` // the file's path in the set
	Text string `json:"text"` // its bytes
}

// PolicySet is everything in force after one push, as one value: readers cannot see a partial
// set, and restoring an old value is a rollback. Author and Message are unverified statements
// of the push.
type PolicySet struct {
	V          int              `json:"v"`
	Author     string           `json:"author,omitempty"`
	Message    string           `json:"message,omitempty"`
	PushedAt   Time             `json:"pushed_at,omitzero"`
	RollbackTo uint64           `json:"rollback_to,omitempty"` // the revision that it restores
	Documents  []PolicyDocument `json:"documents"`
}

// Errors of policy sets.
var (
	ErrPolicySetTooLarge = errors.New("the set of policies is too large")
	ErrPolicySet         = errors.New("not a set of policies that this program can read")
)

// Encode returns the value for PolicySetKey. ErrPolicySetTooLarge states the size.
func (s PolicySet) Encode() ([]byte, error) {
	s.V = PolicySetVersion
	if s.Documents == nil {
		s.Documents = []PolicyDocument{}
	}
	for _, d := range s.Documents {
		if !utf8.ValidString(d.Name) || !utf8.ValidString(d.Text) {
			return nil, fmt.Errorf("policy file %q is not UTF-8", d.Name)
		}
	}
	if !withinLength(s.Author, MaxPolicySetAuthor) || !withinLength(s.Message, MaxPolicySetMessage) {
		return nil, fmt.Errorf("the author may have %d characters, the message %d", MaxPolicySetAuthor, MaxPolicySetMessage)
	}
	b, err := Encode(s)
	if err == nil && len(b) > MaxPolicySet {
		return nil, fmt.Errorf("%w: %d bytes in %d files, at most %d go into one set; shorten comments, or put several tools into one policy",
			ErrPolicySetTooLarge, len(b), len(s.Documents), MaxPolicySet)
	}
	return b, err
}

func withinLength(s string, most int) bool {
	return utf8.ValidString(s) && utf8.RuneCountInString(s) <= most
}

// DecodePolicySet reads what Encode wrote, strictly: a set that is not understood must not
// decide.
func DecodePolicySet(b []byte) (PolicySet, error) {
	s, err := DecodeRecord[PolicySet](b)
	switch {
	case err != nil:
		return PolicySet{}, fmt.Errorf("%w: %w", ErrPolicySet, err)
	case s.V != PolicySetVersion:
		return PolicySet{}, fmt.Errorf("%w: its version is %d, not %d", ErrPolicySet, s.V, PolicySetVersion)
	}
	seen := make(map[string]bool, len(s.Documents))
	for _, d := range s.Documents {
		if d.Name == "" || seen[d.Name] {
			return PolicySet{}, fmt.Errorf("%w: the file name %.60q is empty or there twice", ErrPolicySet, d.Name)
		}
		seen[d.Name] = true
	}
	return s, nil
}

// maxPolicyChange bounds the encoded PolicyChange.
var maxPolicyChange = strictjson.DefaultLimits.MaxBytes

// WithinLimits returns the record, without its documents if it would otherwise be too large for
// the log's readers.
func (c PolicyChange) WithinLimits() PolicyChange {
	if b, err := Encode(c); err == nil && len(b) <= maxPolicyChange {
		return c
	}
	c.Documents, c.Omitted = nil, true
	return c
}
