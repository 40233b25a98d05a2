package evidence

import (
	"cmp"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events/subject"
)

// subjectScope is what a subject says about a message.
type subjectScope struct {
	class  subject.Class // empty when the subject is foreign
	kind   string        // the kind of the record if its body can be parsed
	key    SessionID
	member string // of control records: their kind

	protocol string // of events
	state    string // of decisions: the verdict; of approvals: the status
	workflow string // of approvals
}

// kindOfClass maps the classes of subjects to the kinds of records. Events of the type
// request are requests.
var kindOfClass = map[subject.Class]string{
	subject.Events:    KindEvent,
	subject.Decisions: KindDecision,
	subject.Calls:     KindCall,
	subject.Findings:  KindFinding,
	subject.Approvals: KindApproval,
	subject.Control:   KindControl,
}

// scopeOf parses a subject. Tenant and session are the unescaped tokens; a token that is a
// hash, or does not unescape to UTF-8, stays as it is. The subject of an approval names no
// session; its body does.
func scopeOf(space subject.Space, subj string) subjectScope {
	p, err := space.Parse(subj)
	kind, ours := kindOfClass[p.Class]
	if err != nil || !ours || !utf8.ValidString(subj) {
		return subjectScope{kind: KindUnparseable}
	}
	if p.Class == subject.Events && p.Type == subject.TypeRequest {
		kind = KindRequest
	}
	return subjectScope{class: p.Class, kind: kind, member: p.Kind, protocol: p.Protocol, state: cmp.Or(p.Verdict, p.State), workflow: printableName(p.Workflow),
		key: SessionID{Tenant: printableName(p.Tenant), Session: printableName(p.Session)}}
}

func printableName(value string) string {
	if !utf8.ValidString(value) {
		return subject.Escape(value)
	}
	return value
}

// tokenValue converts a tenant or session name from a body to the form that subjects have:
// hashed if the token would be too long.
func tokenValue(name string) string {
	value, _ := subject.Unescape(subject.Escape(name))
	return printableName(value)
}
