// Package names redacts the names that producers choose, and compares redacted records with the log.
package names

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/internal/canonical"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// Producers choose names: of sessions, agents, tools, calls and events. Such a name can be a
// credential, and it appears in subjects and in Countersign's own records about the event.
// The evidence replaces it everywhere by the same keyed digest (the action tokenise, under
// the tenant's key). Equal names stay equal within a tenant, so records can be joined by
// them.
//
// Only credentials are removed from names. Personal data stays, because audits, and erasure
// by data subject, look up agents and users by name.

// Purposes of the keyed digests that replace values.
const (
	HashPurpose  = "countersign/hash/v1\x00"
	TokenPurpose = "countersign/token/v1\x00"
)

// nameTreatment is the treatment of a finding in a name or in a service record.
func nameTreatment(detector, _, _ string) redact.Treatment {
	if redact.Releasable(detector) {
		return redact.Treatment{Action: redact.Allow}
	}
	return redact.Treatment{Action: redact.Token}
}

// HoldsSecret reports whether a name holds a value that must not be released.
func HoldsSecret(c *redact.CleanChecker, name string) bool {
	return slices.ContainsFunc(c.Scan(name), func(sp redact.Span) bool { return !redact.Releasable(sp.Detector) })
}

// Mask returns the form of a name that the evidence may hold.
func Mask(name string, tenantKey []byte) string {
	out, _ := redact.OneText(name, "", redact.Config{Treat: nameTreatment, Digest: func(_ redact.Treatment, detector, value string) string {
		return KeyedText(tenantKey, TokenPurpose, detector, value)
	}})
	return out
}

// notProducerChosen are the members of service records with values that no producer chooses.
// Values found elsewhere in the record are not searched for in them; otherwise a producer
// could have a verdict or a digest removed from its own decision. The session is in the
// list because it must agree with the subject.
var notProducerChosen = map[string]bool{
	"tenant": true, "source": true, "session": true, "protocol": true, "protocols": true, "verdict": true, "native_verdict": true, "mode": true, "durability": true, "state": true,
	"step": true, "rule": true, "severity": true, "status": true, "act": true, "match": true, "match_reason": true, "by": true, "kind": true,
	"evaluator": true, "code": true, "policy": true, "name": true, "would": true, "key": true, "digest": true, "hash": true, "findings": true,
	"decision_id": true, "workflow_id": true, "finding_id": true, "withdraws": true, "resume_policy": true, "refused": true,
	"approver": true, "approvers": true, "reviewer_groups": true, "outcome": true,
	"args_digest": true, "request_digest": true, "receipt_hash": true, "admitted_digest": true, "executed_digest": true, "action_digest": true,
	"action_id": true, "preview_digest": true,
	"received_at": true, "decided_at": true, "expires_at": true, "requested_at": true, "changed_at": true, "detected_at": true, "at": true,
	"started_at": true, "completed_at": true, "until": true, "user": true,
}

// trustedMembers are the members of service records that no producer can influence. They are
// not scanned at all: scanning their random digits would take most of the time.
var trustedMembers = map[string]bool{
	"args_digest": true, "request_digest": true, "receipt_hash": true, "admitted_digest": true, "executed_digest": true, "action_digest": true,
	"preview_digest": true, "digest": true, "decision_id": true, "finding_id": true, "withdraws": true, "verdict": true, "state": true, "severity": true,
	"durability": true, "protocol": true, "tenant": true, "step": true, "evaluator": true, "status": true, "shard": true, "writer": true,
}

// ServiceRecord is the redaction of the service records of one kind.
type ServiceRecord struct {
	Kind   string
	Digest func(t redact.Treatment, detector, value string) string // the digest that replaces a credential
	Echoes *redact.Echoes                                          // values that were found elsewhere in the record; nil at first
}

// Redact redacts a service record. The names of members stay: Countersign chooses them.
func (s ServiceRecord) Redact(tree any) (any, []redact.Hit) {
	var hits []redact.Hit
	var walk func(v any, path, member string) any
	walk = func(v any, path, member string) any {
		switch v := v.(type) {
		case string:
			if trustedMembers[member] {
				return v
			}
			out, found := redact.OneText(v, path, s.memberConfig(member))
			hits = append(hits, found...)
			return out
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				v[k] = walk(v[k], path+"/"+strictjson.EscapePointer(k), k)
			}
		case []any:
			for i := range v {
				v[i] = walk(v[i], path+"/"+strconv.Itoa(i), member)
			}
		}
		return v
	}
	tree = walk(tree, "/body", "")
	redact.SortHits(hits)
	return tree, hits
}

// IsClean reports whether no detector finds anything in the texts of a service record that Redact
// searches. member is the name of the value.
func IsClean(c *redact.CleanChecker, v strictjson.Value, member string) bool {
	if v.Kind() == strictjson.KindString {
		return trustedMembers[member] || len(c.Scan(v.Text())) == 0
	}
	for child := range v.All() {
		name := member // the items of a list are values of its member
		if v.Kind() == strictjson.KindObject {
			name = child.Key()
		}
		if !IsClean(c, child, name) {
			return false
		}
	}
	return true
}

// memberConfig is the redaction of the texts in one member.
func (s ServiceRecord) memberConfig(member string) redact.Config {
	c := redact.Config{Treat: nameTreatment, Digest: s.Digest}
	if !notProducerChosen[member] {
		c.Echoes = s.Echoes
	}
	if s.Kind == evidence.KindFinding && (member == "explanation" || member == "remedy") {
		c.Treat = nil // sentences: whatever a detector finds in them is masked
	}
	return c
}

// tokenDigits is the number of digits of a keyed digest in a placeholder.
const tokenDigits = 32

// WithoutTokens replaces the digest of every token by zeros, so that texts can be compared
// without the key.
func WithoutTokens(s string) string {
	const head = ":t-"
	var b strings.Builder
	for {
		i := strings.Index(s, head)
		if i < 0 || len(s) < i+len(head)+tokenDigits+1 {
			b.WriteString(s)
			return b.String()
		}
		digits := s[i+len(head) : i+len(head)+tokenDigits]
		b.WriteString(s[:i+len(head)])
		if s = s[i+len(head):]; strings.Trim(digits, "0123456789abcdef") == "" && s[tokenDigits] == ']' {
			b.WriteString(zeroDigest)
			s = s[tokenDigits:]
		}
	}
}

var zeroDigest = strings.Repeat("0", tokenDigits)

// SameSubject reports whether kept is the log's subject. It ignores names that hold
// credentials.
func SameSubject(log, kept string) bool {
	if log == kept {
		return true
	}
	want, have := strings.Split(log, "."), strings.Split(kept, ".")
	if len(have) > len(want) {
		return false
	}
	var c redact.CleanChecker
	for i, token := range have {
		from := want[i]
		if i == len(have)-1 {
			from = strings.Join(want[i:], ".")
		}
		if token == from {
			continue
		}
		name, _ := subject.Unescape(from)
		if !strings.HasPrefix(token, "~") || !HoldsSecret(&c, name) {
			return false
		}
	}
	return true
}

func KeyedText(key []byte, purpose, detector, value string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(purpose + redact.NormalValue(detector, value)))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// SameServiceRecord reports whether kept is what redaction makes of the log's service record.
// It ignores the digests of names.
func SameServiceRecord(kind string, log, kept []byte) bool {
	tree, err := strictjson.Parse(log, strictjson.DefaultLimits)
	if err != nil {
		return false
	}
	s := ServiceRecord{Kind: kind, Digest: func(redact.Treatment, string, string) string { return zeroDigest }}
	tree, hits := s.Redact(tree)
	if s.Echoes = redact.NewEchoes(hits); s.Echoes != nil {
		again, _ := strictjson.Parse(log, strictjson.DefaultLimits)
		tree, _ = s.Redact(again)
	}
	text, err := canonical.Append(nil, tree)
	return err == nil && WithoutTokens(string(text)) == WithoutTokens(string(kept))
}
