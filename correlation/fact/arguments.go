package fact

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Arguments are a call's arguments as one message gives them: canonical bytes
// (or what is left of them), or the digest that a decision carries.
type Arguments struct {
	DecisionDigest string   // a decision's args_digest; then the rest is empty
	Known          bool     // the message had arguments
	PlainSum       Sum256   // SHA-256 of the canonical form
	RecordDigest   string   // digest for records: under the session's key, or the tenant's; "" without a key
	TenantSum      Sum256   // digest under the tenant's key, as decisions had it before; zero without a key
	Canonical      []byte   // the canonical form; nil once it was dropped
	RedactedPaths  []string // paths that the producer says it redacted in them
}

type Sum256 [sha256.Size]byte

// DigestKeyers make digests of arguments. Either may be missing; records have the
// session's.
type DigestKeyers struct {
	Tenant  *digest.Keyer
	Session *digest.SessionKeyer
}

func NewArguments(canonical []byte, keys DigestKeyers, redacted []string) Arguments {
	a := Arguments{Known: true, PlainSum: sha256.Sum256(canonical), Canonical: canonical, RedactedPaths: redacted}
	if keys.Tenant != nil {
		a.TenantSum = keys.Tenant.Sum(canonical)
	}
	if a.RecordDigest = keys.Session.Digest(a.PlainSum); a.RecordDigest == "" {
		a.RecordDigest = a.tenantDigest()
	}
	return a
}

// tenantDigest is the digest under the tenant's key, "" without one.
func (a *Arguments) tenantDigest() string {
	if a.TenantSum == (Sum256{}) {
		return ""
	}
	return digest.Format(digest.PrefixKeyed, a.TenantSum)
}

// DigestLike gives the digest of a in the form of like, "" if that cannot be had.
func (a *Arguments) DigestLike(like string) string {
	switch {
	case !a.Known:
		return ""
	case a.RecordDigest != "" && digest.ComparableForm(like) == digest.ComparableForm(a.RecordDigest):
		return a.RecordDigest
	case strings.HasPrefix(like, digest.PrefixPlain):
		return digest.PrefixPlain + hex.EncodeToString(a.PlainSum[:])
	case strings.HasPrefix(like, digest.PrefixKeyed):
		return a.tenantDigest()
	}
	return "" // made under a key that the session does not have, or has no more
}

// Comparison is the result of holding two arguments against each other.
type Comparison int

const (
	ArgsUnknown   Comparison = iota // one is not there, or a redaction hides what matters
	ArgsEqual                       // the same
	ArgsDifferent                   // not the same
)

// CompareArguments holds two arguments against each other. A difference counts only
// where nothing is redacted that could explain it (AgentHook digest, H-12).
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
	case a == b: // both are on the log: there is nothing to be guessed
		return ArgsEqual
	}
	return ArgsDifferent
}

// CompareToDecision holds arguments against the digest of a recorded verdict, "" if it
// has none.
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
		return ArgsUnknown // what differs is what was redacted
	}
	return ArgsDifferent
}

// maskedCanonical gives the canonical form of arguments without the redacted places.
func maskedCanonical(raw []byte, paths []string) string {
	tree, err := strictjson.Parse(raw, strictjson.Limits{})
	if err != nil {
		return ""
	}
	for _, p := range paths {
		segments := argumentPath(p)
		if len(segments) == 0 {
			return "" // all of it is redacted
		}
		removePath(tree, segments)
	}
	b, err := strictjson.Canonical(tree)
	if err != nil {
		return ""
	}
	return string(b)
}

// removePath removes the place that segments lead to; "*" leads everywhere.
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

// ConcernsArguments reports whether a redacted path lies in a call's arguments.
func ConcernsArguments(path string) bool {
	segments := splitPath(path)
	return len(segments) > 0 && !envelopeMembers[segments[0]] &&
		(segments[0] != "metadata" || (len(segments) > 1 && segments[1] == "tool_input_executed"))
}

// envelopeMembers are the envelope's members that a redacted path may name beside
// the arguments; any other first segment is taken for an argument's name.
var envelopeMembers = map[string]bool{
	"annotations": true, "resource": true, "agent_id": true, "session_id": true, "correlation_id": true, "source": true,
}

// argumentPath is a redacted path as segments below the arguments. Publishers
// write JSON pointers, dotted paths and JSONPath.
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

func (a *Arguments) SumPrefix() uint64 { return binary.BigEndian.Uint64(a.PlainSum[:]) }

// UnmaskedTree is the tree of arguments without the redacted places.
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
