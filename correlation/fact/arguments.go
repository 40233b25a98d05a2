package fact

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Arguments are a call's arguments as one message has them: their canonical form and its
// digests, or only the digest that a decision has.
type Arguments struct {
	DecisionDigest string   // a decision's args_digest; then all other fields are empty
	Known          bool     // the message had arguments
	PlainSum       Sum256   // SHA-256 of the canonical form
	RecordDigest   string   // digest for records: under the session's key, or the tenant's; "" without a key
	Canonical      []byte   // the canonical form; nil if it is not kept
	RedactedPaths  []string // paths that the producer reports as redacted
}

// Sum256 is a SHA-256.
type Sum256 [sha256.Size]byte

// DigestKeyers compute digests of arguments. Either may be nil. Records and decisions have the
// session's digest, and the tenant's where the session has no key.
type DigestKeyers struct {
	Tenant  *digest.Keyer
	Session *digest.SessionKeyer
}

// NewArguments makes arguments from their canonical form. redacted are the paths that the
// producer redacted.
func NewArguments(canonical []byte, keys DigestKeyers, redacted []string) Arguments {
	a := Arguments{Known: true, PlainSum: sha256.Sum256(canonical), Canonical: canonical, RedactedPaths: redacted}
	if a.RecordDigest = keys.Session.Digest(a.PlainSum); a.RecordDigest == "" && keys.Tenant != nil {
		a.RecordDigest = digest.Format(digest.PrefixKeyed, keys.Tenant.Sum(canonical))
	}
	return a
}

// DigestLike returns the digest of a in the form of like; "" if it cannot be computed.
func (a *Arguments) DigestLike(like string) string {
	switch {
	case !a.Known:
		return ""
	case a.RecordDigest != "" && digest.ComparableForm(like) == digest.ComparableForm(a.RecordDigest):
		return a.RecordDigest
	case strings.HasPrefix(like, digest.PrefixPlain):
		return digest.PrefixPlain + hex.EncodeToString(a.PlainSum[:])
	}
	return "" // it is under another key
}

// Comparison is the result of comparing two arguments.
type Comparison int

const (
	ArgsUnknown Comparison = iota // one is missing, or a redaction hides the difference
	ArgsEqual
	ArgsDifferent
)

// CompareArguments compares two arguments. A difference does not count if a redaction could
// explain it (AgentHook digest, H-12).
func CompareArguments(a, b *Arguments) Comparison {
	switch {
	case a.DecisionDigest != "" && b.DecisionDigest != "":
		return CompareToDecision(a, b.DecisionDigest)
	case a.DecisionDigest != "":
		return compareToDigest(b, a.DecisionDigest)
	case b.DecisionDigest != "":
		return compareToDigest(a, b.DecisionDigest)
	case !a.Known || !b.Known:
		return ArgsUnknown
	case a.PlainSum == b.PlainSum:
		return ArgsEqual
	case len(a.RedactedPaths)+len(b.RedactedPaths) == 0:
		return ArgsDifferent
	}
	return compareMasked(a, b)
}

func compareText(a, b string, canCompare bool) Comparison {
	switch {
	case !canCompare:
		return ArgsUnknown
	case a == b: // both digests are on the log, so an equal text reveals nothing
		return ArgsEqual
	}
	return ArgsDifferent
}

// CompareToDecision compares arguments with the digest of a recorded verdict, which may be "".
func CompareToDecision(a *Arguments, d string) Comparison {
	switch {
	case d == "":
		return ArgsUnknown
	case a.DecisionDigest != "":
		return compareText(a.DecisionDigest, d, digest.ComparableForm(a.DecisionDigest) == digest.ComparableForm(d))
	}
	return compareToDigest(a, d)
}

func compareToDigest(a *Arguments, d string) Comparison {
	if a.Known && a.RecordDigest == d {
		return ArgsEqual
	}
	own := a.DigestLike(d)
	c := compareText(own, d, own != "")
	if c == ArgsDifferent && len(a.RedactedPaths) > 0 {
		return ArgsUnknown
	}
	return c
}

func compareMasked(a, b *Arguments) Comparison {
	if a.Canonical == nil || b.Canonical == nil {
		return ArgsUnknown
	}
	paths := append(append([]string{}, a.RedactedPaths...), b.RedactedPaths...)
	if maskedCanonical(a.Canonical, paths) == maskedCanonical(b.Canonical, paths) {
		return ArgsUnknown // only redacted places differ
	}
	return ArgsDifferent
}

// maskedCanonical is the canonical form of arguments without the redacted places.
func maskedCanonical(raw []byte, paths []string) string {
	tree, err := strictjson.Parse(raw, strictjson.Limits{})
	if err != nil {
		return ""
	}
	for _, p := range paths {
		segments := argumentPath(p)
		if len(segments) == 0 {
			return "" // all arguments are redacted
		}
		removePath(tree, segments)
	}
	b, err := strictjson.Canonical(tree)
	if err != nil {
		return ""
	}
	return string(b)
}

// removePath removes the value at a path; the segment "*" matches every member.
func removePath(node any, segments []string) {
	switch n := node.(type) {
	case map[string]any:
		for key, child := range n {
			if key != segments[0] && segments[0] != "*" {
				continue
			}
			if len(segments) == 1 {
				delete(n, key)
			} else {
				removePath(child, segments[1:])
			}
		}
	case []any:
		for i, child := range n {
			if !matchesIndex(segments[0], i) {
				continue
			}
			if len(segments) == 1 {
				n[i] = nil
			} else {
				removePath(child, segments[1:])
			}
		}
	}
}

func matchesIndex(segment string, i int) bool {
	if segment == "*" || segment == "" {
		return true
	}
	n := 0
	for _, c := range segment {
		if c < '0' || c > '9' || n > 1<<20 {
			return false
		}
		n = n*10 + int(c-'0')
	}
	return n == i
}

// ConcernsArguments reports whether a redacted path lies in the arguments.
func ConcernsArguments(path string) bool {
	segments := splitPath(path)
	return len(segments) > 0 && !envelopeMembers[segments[0]] &&
		(segments[0] != "metadata" || (len(segments) > 1 && segments[1] == "tool_input_executed"))
}

// envelopeMembers are the members outside the arguments that a redacted path may begin with.
// Any other first segment is the name of an argument.
var envelopeMembers = map[string]bool{
	"annotations": true, "resource": true, "agent_id": true, "session_id": true, "correlation_id": true, "source": true,
}

// argumentPath converts a redacted path to segments below the arguments. Publishers write JSON
// pointers, dotted paths and JSONPath.
func argumentPath(path string) []string {
	segments := splitPath(path)
	if len(segments) > 0 && segments[0] == "metadata" {
		segments = segments[1:]
	}
	if len(segments) > 0 && (segments[0] == "tool_input" || segments[0] == "tool_input_executed") {
		segments = segments[1:]
	}
	return segments
}

func splitPath(path string) []string {
	if rest, ok := strings.CutPrefix(path, "/"); ok {
		segments := strings.Split(rest, "/")
		for i, s := range segments {
			segments[i] = strictjson.UnescapePointer(s)
		}
		return segments
	}
	path = strings.TrimPrefix(strings.TrimPrefix(path, "$"), ".")
	if path == "" {
		return nil
	}
	return strings.Split(strings.NewReplacer("[", ".", "]", "", "'", "", `"`, "").Replace(path), ".")
}

// SumPrefix is the first 8 bytes of PlainSum.
func (a *Arguments) SumPrefix() uint64 { return binary.BigEndian.Uint64(a.PlainSum[:]) }

// UnmaskedTree parses the canonical form and removes the redacted places.
func (a Arguments) UnmaskedTree(paths []string) (any, bool) {
	tree, err := strictjson.Parse(a.Canonical, strictjson.Limits{})
	if err != nil {
		return nil, false
	}
	for _, p := range paths {
		if segments := argumentPath(p); len(segments) > 0 {
			removePath(tree, segments)
		}
	}
	return tree, true
}
