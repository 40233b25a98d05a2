package build

import (
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/internal/names"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
	"github.com/countersign-dev/countersign/evidence/internal/scope"
)

// maskScope is the scope of a record when the message's subject holds a credential. The
// session and the event type get the form that they have in service records. A foreign
// subject becomes one token, after the tenant if it has one.
func (b *Builder) maskScope(c *redact.CleanChecker, sc recordScope, subj string, keys Keys) (recordScope, error) {
	key := keys.TenantKey(sc.Key.Tenant)
	if len(key) < digest.KeySize {
		return sc, fmt.Errorf("%w: the digest key of tenant %.64q", evidence.ErrKeys, sc.Key.Tenant)
	}
	if sc.SubjectClass == "" {
		head, rest := "", subj
		if below := strings.TrimSuffix(b.space.All(subject.Events), ">"); strings.HasPrefix(subj, below) {
			if tenant, more, ok := strings.Cut(subj[len(below):], "."); ok && !names.HoldsSecret(c, tenant) {
				head, rest = below+tenant+".", more
			}
		}
		sc.subject = head + subject.Escape(names.Mask(rest, key))
		return sc, nil
	}
	renamed := b.space.Rename(subj, func(name string) string {
		if !names.HoldsSecret(c, name) {
			return name
		}
		return names.Mask(name, key)
	})
	return recordScope{Scope: scope.Of(b.space, renamed), hasSecret: true, logSession: sc.Key, subject: subject.PrintableName(renamed)}, nil
}

// maskedSession is the session of an approval, which its body names, in its masked form.
func maskedSession(c *redact.CleanChecker, k events.SessionID, session string, keys Keys) (events.SessionID, error) {
	if _, exact := subject.Unescape(subject.Escape(session)); !exact || !names.HoldsSecret(c, session) {
		return k, nil
	}
	key := keys.TenantKey(k.Tenant)
	if len(key) < digest.KeySize {
		return k, fmt.Errorf("%w: the digest key of tenant %.64q", evidence.ErrKeys, k.Tenant)
	}
	k.Session = scope.RecordName(names.Mask(session, key))
	return k, nil
}

// isRedactedKind reports whether service records of a kind are redacted: all kinds except
// control records, which services read back from the evidence unchanged.
func isRedactedKind(kind string) bool {
	return kind == evidence.KindDecision || kind == evidence.KindCall || kind == evidence.KindFinding || kind == evidence.KindApproval
}
