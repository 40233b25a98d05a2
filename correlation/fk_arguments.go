package correlation

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// arguments are a call's arguments as one message gives them: canonical bytes
// (or what is left of them), or the digest that a decision carries.
type arguments struct {
	decisionDigest string   // a decision's args_digest; then the rest is empty
	known          bool     // the message had arguments
	plainSum       sum256   // SHA-256 of the canonical form
	recordDigest   string   // digest for records: under the session's key, or the tenant's; "" without a key
	tenantSum      sum256   // digest under the tenant's key, as decisions had it before; zero without a key
	canonical      []byte   // the canonical form; nil once it was dropped
	redactedPaths  []string // paths that the producer says it redacted in them
}

type sum256 [sha256.Size]byte

// digestKeyers make digests of arguments. Either may be missing; records have the
// session's.
type digestKeyers struct {
	tenant  *digest.Keyer
	session *digest.SessionKeyer
}

func newArguments(canonical []byte, keys digestKeyers, redacted []string) arguments {
	a := arguments{known: true, plainSum: sha256.Sum256(canonical), canonical: canonical, redactedPaths: redacted}
	if keys.tenant != nil {
		a.tenantSum = keys.tenant.Sum(canonical)
	}
	if a.recordDigest = keys.session.Digest(a.plainSum); a.recordDigest == "" {
		a.recordDigest = a.tenantDigest()
	}
	return a
}

// tenantDigest is the digest under the tenant's key, "" without one.
func (a *arguments) tenantDigest() string {
	if a.tenantSum == (sum256{}) {
		return ""
	}
	return digest.Format(digest.PrefixKeyed, a.tenantSum)
}

// digestLike gives the digest of a in the form of like, "" if that cannot be had.
func (a *arguments) digestLike(like string) string {
	switch {
	case !a.known:
		return ""
	case a.recordDigest != "" && digest.ComparableForm(like) == digest.ComparableForm(a.recordDigest):
		return a.recordDigest
	case strings.HasPrefix(like, digest.PrefixPlain):
		return digest.PrefixPlain + hex.EncodeToString(a.plainSum[:])
	case strings.HasPrefix(like, digest.PrefixKeyed):
		return a.tenantDigest()
	}
	return "" // made under a key that the session does not have, or has no more
}

// comparison is the result of holding two arguments against each other.
type comparison int

const (
	argsUnknown   comparison = iota // one is not there, or a redaction hides what matters
	argsEqual                       // the same
	argsDifferent                   // not the same
)

// compareArguments holds two arguments against each other. A difference counts only
// where nothing is redacted that could explain it (AgentHook digest, H-12).
func compareArguments(a, b *arguments) comparison {
	switch {
	case a.decisionDigest != "" && b.decisionDigest != "":
		return compareToDecision(a, b.decisionDigest)
	case a.decisionDigest != "":
		return compareToDigest(b, a.decisionDigest)
	case b.decisionDigest != "":
		return compareToDigest(a, b.decisionDigest)
	case !a.known || !b.known:
		return argsUnknown
	case a.plainSum == b.plainSum:
		return argsEqual
	case len(a.redactedPaths)+len(b.redactedPaths) == 0:
		return argsDifferent
	}
	return compareMasked(a, b)
}

func compareText(a, b string, comparable bool) comparison {
	switch {
	case !comparable:
		return argsUnknown
	case a == b: // both are on the log: there is nothing to be guessed
		return argsEqual
	}
	return argsDifferent
}

// compareToDecision holds arguments against the digest of a recorded verdict, "" if it
// has none.
func compareToDecision(a *arguments, d string) comparison {
	switch {
	case d == "":
		return argsUnknown
	case a.decisionDigest != "":
		return compareText(a.decisionDigest, d, digest.ComparableForm(a.decisionDigest) == digest.ComparableForm(d))
	}
	return compareToDigest(a, d)
}

func compareToDigest(a *arguments, d string) comparison {
	if a.known && a.recordDigest == d {
		return argsEqual
	}
	own := a.digestLike(d)
	c := compareText(own, d, own != "")
	if c == argsDifferent && len(a.redactedPaths) > 0 {
		return argsUnknown
	}
	return c
}

func compareMasked(a, b *arguments) comparison {
	if a.canonical == nil || b.canonical == nil {
		return argsUnknown
	}
	paths := append(append([]string{}, a.redactedPaths...), b.redactedPaths...)
	if maskedCanonical(a.canonical, paths) == maskedCanonical(b.canonical, paths) {
		return argsUnknown // what differs is what was redacted
	}
	return argsDifferent
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

// concernsArguments reports whether a redacted path lies in a call's arguments.
func concernsArguments(path string) bool {
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
			segments[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
		}
		return segments
	}
	path = strings.TrimPrefix(strings.TrimPrefix(path, "$"), ".")
	if path == "" {
		return nil
	}
	return strings.Split(strings.NewReplacer("[", ".", "]", "", "'", "", `"`, "").Replace(path), ".")
}

func (a *arguments) sumPrefix() uint64 { return binary.BigEndian.Uint64(a.plainSum[:]) }

// unmaskedTree is the tree of arguments without the redacted places.
func (a arguments) unmaskedTree(paths []string) (any, bool) {
	tree, err := strictjson.Parse(a.canonical, strictjson.Limits{})
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
