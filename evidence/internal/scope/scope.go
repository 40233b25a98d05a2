// Package scope reads what a subject says about a message.
package scope

import (
	"cmp"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
)

// Scope is what a subject says about a message.
type Scope struct {
	SubjectClass subject.Class // empty when the subject is foreign
	Kind         string        // the kind of the record if its body can be parsed
	Key          events.SessionID
	ControlKind  string // of control records: their kind

	Protocol string // of events
	State    string // of decisions: the verdict; of approvals: the status
	Workflow string // of approvals
}

// kindOfClass maps the classes of subjects to the kinds of records. Events of the type
// request are requests.
var kindOfClass = map[subject.Class]string{
	subject.Events:    evidence.KindEvent,
	subject.Decisions: evidence.KindDecision,
	subject.Calls:     evidence.KindCall,
	subject.Findings:  evidence.KindFinding,
	subject.Approvals: evidence.KindApproval,
	subject.Control:   evidence.KindControl,
}

// Of parses a subject. Tenant and session are the unescaped tokens; a token that is a
// hash, or does not unescape to UTF-8, stays as it is. The subject of an approval names no
// session; its body does.
func Of(space subject.Space, subj string) Scope {
	p, err := space.Parse(subj)
	kind, ours := kindOfClass[p.Class]
	if err != nil || !ours || !utf8.ValidString(subj) {
		return Scope{Kind: evidence.KindUnparseable}
	}
	if p.Class == subject.Events && p.Type == subject.TypeRequest {
		kind = evidence.KindRequest
	}
	return Scope{SubjectClass: p.Class, Kind: kind, ControlKind: p.Kind, Protocol: p.Protocol, State: cmp.Or(p.Verdict, p.State), Workflow: subject.PrintableName(p.Workflow),
		Key: events.SessionID{Tenant: subject.PrintableName(p.Tenant), Session: subject.PrintableName(p.Session)}}
}

// RecordName converts a tenant or session name from a body to the form that subjects have:
// hashed if the token would be too long.
func RecordName(name string) string {
	value, _ := subject.Unescape(subject.Escape(name))
	return subject.PrintableName(value)
}

// MaxCached bounds how many scopes a cache of them holds.
const MaxCached = 4096
