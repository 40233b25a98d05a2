package correlation

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// arguments are a call's arguments as one message gives them: canonical bytes
// (or what is left of them), or the digest that a decision carries.
type arguments struct {
	digest   string   // a decision's args_digest; then the rest is empty
	known    bool     // the message had arguments
	plain    sum256   // SHA-256 of the canonical form
	keyed    string   // digest for records: under the session's key, or the tenant's; "" without a key
	tenants  sum256   // digest under the tenant's key, as decisions had it before; zero without a key
	raw      []byte   // the canonical form; nil once it was dropped
	redacted []string // paths that the producer says it redacted in them
}

type sum256 [sha256.Size]byte

// keyers make digests of arguments. Either may be missing; records have the
// session's.
type keyers struct {
	tenant  *digest.Keyer
	session *digest.SessionKeyer
}

func newArguments(canonical []byte, keys keyers, redacted []string) arguments {
	a := arguments{known: true, plain: sha256.Sum256(canonical), raw: canonical, redacted: redacted}
	if keys.tenant != nil {
		a.tenants = keys.tenant.Sum(canonical)
	}
	if a.keyed = keys.session.Digest(a.plain); a.keyed == "" {
		a.keyed = a.ofTenant()
	}
	return a
}

// ofTenant is the digest under the tenant's key, "" without one.
func (a *arguments) ofTenant() string {
	if a.tenants == (sum256{}) {
		return ""
	}
	return digest.Text(digest.PrefixKeyed, a.tenants)
}

// in gives the digest of a in the form of like, "" if that cannot be had.
func (a *arguments) in(like string) string {
	switch {
	case !a.known:
		return ""
	case a.keyed != "" && digest.Form(like) == digest.Form(a.keyed):
		return a.keyed
	case strings.HasPrefix(like, digest.PrefixPlain):
		return digest.PrefixPlain + hex.EncodeToString(a.plain[:])
	case strings.HasPrefix(like, digest.PrefixKeyed):
		return a.ofTenant()
	}
	return "" // made under a key that the session does not have, or has no more
}

// comparison is the result of holding two arguments against each other.
type comparison int

const (
	unknown   comparison = iota // one is not there, or a redaction hides what matters
	equal                       // the same
	different                   // not the same
)

// compare holds two arguments against each other. A difference counts only
// where nothing is redacted that could explain it (AgentHook digest, H-12).
func compare(a, b *arguments) comparison {
	switch {
	case a.digest != "" && b.digest != "":
		return againstVerdict(a, b.digest)
	case a.digest != "":
		return againstDigest(b, a.digest)
	case b.digest != "":
		return againstDigest(a, b.digest)
	case !a.known || !b.known:
		return unknown
	case a.plain == b.plain:
		return equal
	case len(a.redacted)+len(b.redacted) == 0:
		return different
	}
	return compareMasked(a, b)
}

func sameText(a, b string, comparable bool) comparison {
	switch {
	case !comparable:
		return unknown
	case a == b: // both are on the log: there is nothing to be guessed
		return equal
	}
	return different
}

// againstVerdict holds arguments against the digest of a recorded verdict, "" if it
// has none.
func againstVerdict(a *arguments, d string) comparison {
	switch {
	case d == "":
		return unknown
	case a.digest != "":
		return sameText(a.digest, d, digest.Form(a.digest) == digest.Form(d))
	}
	return againstDigest(a, d)
}

func againstDigest(a *arguments, d string) comparison {
	if a.known && a.keyed == d {
		return equal
	}
	own := a.in(d)
	c := sameText(own, d, own != "")
	if c == different && len(a.redacted) > 0 {
		return unknown
	}
	return c
}

func compareMasked(a, b *arguments) comparison {
	if a.raw == nil || b.raw == nil {
		return unknown
	}
	paths := append(append([]string{}, a.redacted...), b.redacted...)
	if masked(a.raw, paths) == masked(b.raw, paths) {
		return unknown // what differs is what was redacted
	}
	return different
}

// masked gives the canonical form of arguments without the redacted places.
func masked(raw []byte, paths []string) string {
	tree, err := strictjson.Parse(raw, strictjson.Limits{})
	if err != nil {
		return ""
	}
	for _, p := range paths {
		segments := argumentPath(p)
		if len(segments) == 0 {
			return "" // all of it is redacted
		}
		mask(tree, segments)
	}
	b, err := strictjson.Canonical(tree)
	if err != nil {
		return ""
	}
	return string(b)
}

// mask removes the place that segments lead to; "*" leads everywhere.
func mask(node any, segments []string) {
	switch n := node.(type) {
	case map[string]any:
		for key, child := range n {
			if key != segments[0] && segments[0] != "*" {
				continue
			}
			if len(segments) == 1 {
				delete(n, key)
			} else {
				mask(child, segments[1:])
			}
		}
	case []any:
		for i, child := range n {
			if !indexes(segments[0], i) {
				continue
			}
			if len(segments) == 1 {
				n[i] = nil
			} else {
				mask(child, segments[1:])
			}
		}
	}
}

func indexes(segment string, i int) bool {
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
	return len(segments) > 0 && !notArguments[segments[0]] &&
		(segments[0] != "metadata" || (len(segments) > 1 && segments[1] == "tool_input_executed"))
}

// notArguments are the envelope's members that a redacted path may name beside
// the arguments; any other first segment is taken for an argument's name.
var notArguments = map[string]bool{
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
