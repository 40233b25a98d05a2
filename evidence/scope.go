package evidence

import (
	"cmp"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// SessionID names the chain that a record belongs to. A record without a
// session belongs to none.
type SessionID struct{ Tenant, Session string }

// subjectScope is what a subject says about a message.
type subjectScope struct {
	class  subject.Class // empty when the subject is foreign
	kind   string        // what the record is if its body can be parsed
	key    SessionID
	member string // for control records, their kind

	protocol string // of events
	state    string // of decisions the verdict, of approvals the status
	workflow string // of approvals

	hasSecret  bool      // session or event type hold a credential
	logSession SessionID // then: as the log names it, where key is what the evidence may hold
	subject    string    // likewise
}

// kindOfClass maps the classes of the log to the kinds of records; events whose type
// is request are requests.
var kindOfClass = map[subject.Class]string{
	subject.Events:    KindEvent,
	subject.Decisions: KindDecision,
	subject.Calls:     KindCall,
	subject.Findings:  KindFinding,
	subject.Approvals: KindApproval,
	subject.Control:   KindControl,
}

// scopeOf reads a subject. Tenant and session are the unescaped tokens; a token
// that was hashed, or whose text is not UTF-8, stands for itself. Approvals have
// no session in their subject: their body names it.
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

// tokenValue gives a tenant or session that a record names in its body in the
// form that subjects give: hashed where the token would be too long.
func tokenValue(name string) string {
	value, _ := subject.Unescape(subject.Escape(name))
	return printableName(value)
}

// sessionOf completes a scope with the session of a parsed approval record.
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

// headerValue returns a header's only value, or nothing when it has none or
// several.
func headerValue(h map[string][]string, name string) string {
	if v := h[name]; len(v) == 1 {
		return v[0]
	}
	return ""
}

// isValidMessage reports whether m can be a broker's.
func isValidMessage(m events.LogMessage) bool {
	return m.Seq > 0 && m.Seq <= MaxSeq && !m.Time.IsZero() && m.Time.UTC().Year() > 0 && m.Time.UTC().Year() < 10000
}

// approvalOf reads what an approval record says of its place. What cannot be
// read is empty, and no approval's place.
func approvalOf(body []byte) (a struct {
	Tenant     string `json:"tenant"`
	Status     string `json:"status"`
	Session    string `json:"session"`
	WorkflowID string `json:"workflow_id"`
}) {
	_ = strictjson.Unmarshal(body, &a)
	return a
}
