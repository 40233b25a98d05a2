package evidence

import (
	"cmp"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// SessionID names the chain that a record belongs to. A record with an empty Session belongs
// to no chain.
type SessionID struct{ Tenant, Session string }

// subjectScope is what a subject says about a message.
type subjectScope struct {
	class  subject.Class // empty when the subject is foreign
	kind   string        // the kind of the record if its body can be parsed
	key    SessionID
	member string // of control records: their kind

	protocol string // of events
	state    string // of decisions: the verdict; of approvals: the status
	workflow string // of approvals

	hasSecret  bool      // session or event type holds a credential
	logSession SessionID // the session as the log names it; key is the form that the evidence may hold
	subject    string    // the subject in the form that the evidence may hold
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

// sessionOf returns the scope's session; for an approval, the one that its body names.
func sessionOf(sc subjectScope, body any) SessionID {
	key := sc.key
	if sc.kind == KindApproval {
		key.Session = tokenValue(bodySession(body))
	}
	return key
}

// bodySession is the session that the body of an approval names.
func bodySession(body any) string {
	m, _ := body.(map[string]any)
	session, _ := m["session"].(string)
	return session
}

// headerValue returns a header's value if it has exactly one, otherwise "".
func headerValue(h map[string][]string, name string) string {
	if v := h[name]; len(v) == 1 {
		return v[0]
	}
	return ""
}

// isValidMessage reports whether a broker can have sent m.
func isValidMessage(m events.LogMessage) bool {
	return m.Seq > 0 && m.Seq <= tree.MaxSeq && !m.Time.IsZero() && m.Time.UTC().Year() > 0 && m.Time.UTC().Year() < 10000
}

// approvalOf decodes what an approval record says of its subject. Members that cannot be
// decoded are empty, and match no subject.
func approvalOf(body []byte) (a struct {
	Tenant     string `json:"tenant"`
	Status     string `json:"status"`
	Session    string `json:"session"`
	WorkflowID string `json:"workflow_id"`
}) {
	_ = strictjson.Unmarshal(body, &a)
	return a
}
