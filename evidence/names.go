package evidence

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// Producers choose names: of sessions, agents, tools, calls and events. Such a name
// can be a credential, and stands in the subjects and in our own records about the
// event. The evidence copy of all of them gets the same keyed digest in its place
// (the action tokenise, under the tenant's key), so that equal names stay equal in
// the tenant and records can still be joined by them.
//
// Only credentials are taken out of names. Personal data stays there: an audit, and
// an erasure by data subject, ask for agents and users by name.

// nameTreatment is what becomes of a finding in a name or in one of our records.
func nameTreatment(detector, _, _ string) redact.Treatment {
	if redact.Releasable(detector) {
		return redact.Treatment{Action: redact.Allow}
	}
	return redact.Treatment{Action: redact.Token}
}

// nameConfig is the redaction of names and of our own records.
func (r *recordRedactor) nameConfig() redact.Config {
	return redact.Config{Treat: nameTreatment, Digest: r.keyedDigest}
}

// secretName reports whether a name holds what may not be released.
func secretName(c *redact.CleanChecker, name string) bool {
	return slices.ContainsFunc(c.Scan(name), func(sp redact.Span) bool { return !redact.Releasable(sp.Detector) })
}

// SecretName reports whether a name, of a session for instance, holds a credential:
// then the evidence has it under another name (see MaskedNames).
func SecretName(name string) bool {
	var c redact.CleanChecker
	return secretName(&c, name)
}

// MaskedNames reports whether sessions, as records name them, can be such whose own
// name is not in the evidence: it was too long, or holds a credential. Who remembers
// something by a session's own name cannot tell that it is one of them.
func MaskedNames(sessions []string) bool {
	return slices.ContainsFunc(sessions, func(s string) bool {
		_, exact := subject.Unescape(s)
		return !exact && strings.HasPrefix(s, "~h")
	})
}

// maskName gives the form of a name that the evidence may hold.
func maskName(name string, tenantKey []byte) string {
	out, _ := redact.OneText(name, "", redact.Config{Treat: nameTreatment, Digest: func(_ redact.Treatment, detector, value string) string {
		return keyedText(tenantKey, tokenPurpose, detector, value)
	}})
	return out
}

// maskScope is the scope of the record of a message whose subject holds a credential:
// the session and the event type get the form that our own records get. A subject
// that is not ours becomes one token, behind the tenant where it has one.
func (b *Builder) maskScope(c *redact.CleanChecker, sc subjectScope, subj string, keys Keys) (subjectScope, error) {
	key := keys.TenantKey(sc.key.Tenant)
	if len(key) < digest.KeySize {
		return sc, fmt.Errorf("%w: the digest key of tenant %.64q", ErrKeys, sc.key.Tenant)
	}
	if sc.class == "" {
		head, rest := "", subj
		if below := strings.TrimSuffix(b.space.All(subject.Events), ">"); strings.HasPrefix(subj, below) {
			if tenant, more, ok := strings.Cut(subj[len(below):], "."); ok && !secretName(c, tenant) {
				head, rest = below+tenant+".", more
			}
		}
		sc.subject = head + subject.Escape(maskName(rest, key))
		return sc, nil
	}
	renamed := b.space.Rename(subj, func(name string) string {
		if !secretName(c, name) {
			return name
		}
		return maskName(name, key)
	})
	out := scopeOf(b.space, renamed)
	out.logSession, out.subject, out.hasSecret = sc.key, printableName(renamed), true
	return out, nil
}

// maskedSession is the session of an approval, which its body names.
func maskedSession(c *redact.CleanChecker, k SessionID, session string, keys Keys) (SessionID, error) {
	if _, exact := subject.Unescape(subject.Escape(session)); !exact || !secretName(c, session) {
		return k, nil
	}
	key := keys.TenantKey(k.Tenant)
	if len(key) < digest.KeySize {
		return k, fmt.Errorf("%w: the digest key of tenant %.64q", ErrKeys, k.Tenant)
	}
	k.Session = tokenValue(maskName(session, key))
	return k, nil
}

// enumMembers are members of our records whose values no producer chooses. What was
// found elsewhere in the record is not looked for in them: a producer could
// otherwise have a verdict or a digest taken out of its own decision. Nor in the
// session: it must be what the subject says.
var enumMembers = map[string]bool{
	"tenant": true, "source": true, "session": true, "protocol": true, "protocols": true, "verdict": true, "native_verdict": true, "durability": true, "state": true,
	"step": true, "rule": true, "severity": true, "status": true, "act": true, "match": true, "match_reason": true, "by": true, "kind": true,
	"evaluator": true, "code": true, "policy": true, "name": true, "would": true, "key": true, "digest": true, "hash": true, "findings": true,
	"decision_id": true, "workflow_id": true, "finding_id": true, "withdraws": true, "resume_policy": true, "refused": true,
	"approver": true, "approvers": true, "reviewer_groups": true, "outcome": true,
	"args_digest": true, "request_digest": true, "receipt_hash": true, "admitted_digest": true, "executed_digest": true, "action_digest": true,
	"action_id": true, "preview_digest": true,
	"received_at": true, "decided_at": true, "expires_at": true, "requested_at": true, "changed_at": true, "detected_at": true, "at": true,
	"started_at": true, "completed_at": true, "until": true, "user": true,
}

// trustedMembers are members of our records that no producer has a part in: they are not
// looked at. Their random digits would cost most of the time of looking.
var trustedMembers = map[string]bool{
	"args_digest": true, "request_digest": true, "receipt_hash": true, "admitted_digest": true, "executed_digest": true, "action_digest": true,
	"preview_digest": true, "digest": true, "decision_id": true, "finding_id": true, "withdraws": true, "verdict": true, "state": true, "severity": true,
	"durability": true, "protocol": true, "tenant": true, "step": true, "evaluator": true, "status": true, "shard": true, "writer": true,
}

// redactServiceRecord redacts one of our records. Names of members stay: they are ours.
func (r *recordRedactor) redactServiceRecord(c *recordBody) {
	var walk func(v any, path, member string) any
	walk = func(v any, path, member string) any {
		switch v := v.(type) {
		case string:
			if trustedMembers[member] {
				return v
			}
			cfg := r.nameConfig()
			if !enumMembers[member] {
				cfg.Echoes = r.echoes
			}
			if r.scope.kind == KindFinding && (member == "explanation" || member == "remedy") {
				cfg.Treat = nil // sentences: what any detector finds in them is masked
			}
			out, hits := redact.OneText(v, path, cfg)
			c.hits = append(c.hits, hits...)
			return out
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				v[k] = walk(v[k], path+"/"+pointerToken(k), k)
			}
		case []any:
			for i := range v {
				v[i] = walk(v[i], path+"/"+strconv.Itoa(i), member)
			}
		}
		return v
	}
	c.tree = walk(c.tree, "/body", "")
	redact.SortHits(c.hits)
}

func pointerToken(k string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(k)
}

// isRedactedKind reports whether records of a kind are looked at as our own: all but
// control records, which services read back from the evidence to the letter.
func isRedactedKind(kind string) bool {
	return kind == KindDecision || kind == KindCall || kind == KindFinding || kind == KindApproval
}

// bodyRedacted reports whether something was taken out of a record's body.
func bodyRedacted(list []Redaction) bool {
	return slices.ContainsFunc(list, func(r Redaction) bool { return strings.HasPrefix(r.Path, "/body/") })
}

// redactedAt reports whether something was taken out at a place.
func redactedAt(list []Redaction, path string) bool {
	return slices.ContainsFunc(list, func(r Redaction) bool { return r.Path == path })
}

// tokenDigits are the digits that a keyed digest in a mark has.
const tokenDigits = 32

// withoutTokens replaces the digest of every token by zeros, so that texts can be
// compared without the key.
func withoutTokens(s string) string {
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
		if s = s[i+len(head):]; lowerDigits([]byte(digits)) && s[tokenDigits] == ']' {
			b.WriteString(zeroDigest)
			s = s[tokenDigits:]
		}
	}
}

var zeroDigest = strings.Repeat("0", tokenDigits)

// sameServiceRecord reports whether the evidence's body of one of our records is what
// redaction leaves of the log's, digests of names apart.
func sameServiceRecord(kind string, log, kept []byte) bool {
	tree, err := strictjson.Parse(log, strictjson.DefaultLimits)
	if err != nil {
		return false
	}
	r := recordRedactor{scope: subjectScope{kind: kind}}
	zeros := func(redact.Treatment, string, string) string { return zeroDigest }
	r.digestOverride = zeros
	c := recordBody{tree: tree}
	r.redactServiceRecord(&c)
	if r.echoes = redact.NewEchoes(c.hits); r.echoes != nil {
		again, _ := strictjson.Parse(log, strictjson.DefaultLimits)
		c = recordBody{tree: again}
		r.redactServiceRecord(&c)
	}
	text, err := appendCanonical(nil, c.tree)
	return err == nil && withoutTokens(string(text)) == withoutTokens(string(kept))
}

// sameSubject reports whether the evidence's subject is the log's, credentials in
// names apart.
func sameSubject(log, kept string) bool {
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
		if !strings.HasPrefix(token, "~") || !secretName(&c, name) {
			return false
		}
	}
	return true
}
