package evidence

import (
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// maskScope is the scope of a record when the message's subject holds a credential. The
// session and the event type get the form that they have in service records. A foreign
// subject becomes one token, after the tenant if it has one.
func (b *Builder) maskScope(c *redact.CleanChecker, sc recordScope, subj string, keys Keys) (recordScope, error) {
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
	return recordScope{subjectScope: scopeOf(b.space, renamed), hasSecret: true, logSession: sc.key, subject: printableName(renamed)}, nil
}

// maskedSession is the session of an approval, which its body names, in its masked form.
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

// isRedactedKind reports whether service records of a kind are redacted: all kinds except
// control records, which services read back from the evidence unchanged.
func isRedactedKind(kind string) bool {
	return kind == KindDecision || kind == KindCall || kind == KindFinding || kind == KindApproval
}
