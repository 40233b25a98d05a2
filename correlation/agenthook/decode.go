package agenthook

import (
	"bytes"
	"cmp"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/schemas"
	hookschema "github.com/countersign-dev/countersign/schemas/agenthook"
)

// Protocol is how AgentHook's messages are read.
var Protocol = fact.Protocol{
	Token: subject.ProtoAgentHook,
	Decode: func(d *fact.Decoder, in fact.EventMessage, r *fact.DecodedEvent) {
		decodeAgentHook(d, in.Message, in.Subject, r, in.Data, in.Request)
	},
	DecodesRequests: true, ReadRecorded: readAgentHook, ReadReason: readAgentHookReason, CheckDecision: decisionFindings,
	SessionKeyed: true,
}

// hookEvent is an AgentHook event and the object that it was read from, with the ids of events
// as events.NormaliseID spells them.
type hookEvent struct {
	*agenthook.Event
	doc        strictjson.Value
	keys       fact.DigestKeyers
	formBuffer *fact.FormBuffer
}

func decodeAgentHook(d *fact.Decoder, m events.LogMessage, p subject.Parsed, r *fact.DecodedEvent, data []byte, request bool) {
	v, err := strictjson.ReadObject(data, strictjson.DefaultLimits)
	if err != nil {
		r.ReadError = err
		return
	}
	violations := hookschema.Strict(v)
	e, err := agenthook.FromValue(v, data)
	e.ShareWords(d.Intern)
	f := &r.Fact
	agentHookFact(f, hookEvent{e, withPlainIDs(v), argumentKeyers(d, p, e.EventType), &d.FormBuffer}, request)
	checkAgentHookSubject(d, m, p, r, e, request)
	f.Outcome = d.Intern(f.Outcome)
	r.Defect = fact.EventDefect(f, err, violations)
}

// trimmedSum is the sum of the event's canonical form without some of its members, and of those
// of its metadata.
func (x hookEvent) trimmedSum(omit, omitMetadata fact.MemberNames) fact.Sum {
	return fact.SumOfBytes(x.formBuffer.WriteForm(func(b []byte) []byte { return fact.AppendTrimmed(b, x.doc, omit, omitMetadata) }))
}

// canonicalInput is the canonical form of the event's arguments, nil if it has none.
func (x hookEvent) canonicalInput() []byte { return x.canonicalObject(x.doc.Get("tool_input")) }

// canonicalExecuted is the canonical form of the arguments that ran, nil if that is not known.
func (x hookEvent) canonicalExecuted() []byte {
	if executed := x.canonicalExecutedMember(); executed != nil {
		return executed
	}
	if agenthook.IsPost(x.EventType) {
		return x.canonicalInput()
	}
	return nil
}

// hasExecutedArguments reports whether the event names arguments that ran, and not none.
func (x hookEvent) hasExecutedArguments() bool {
	return len(x.canonicalExecutedMember()) > len("{}")
}

// canonicalExecutedMember is the canonical form of metadata.tool_input_executed, nil if it is no
// object.
func (x hookEvent) canonicalExecutedMember() []byte {
	return x.canonicalObject(x.doc.Get("metadata").Get("tool_input_executed"))
}

// canonicalObject is the canonical form of an object, nil of anything else.
func (x hookEvent) canonicalObject(v strictjson.Value) []byte {
	if v.Kind() != strictjson.KindObject {
		return nil
	}
	return bytes.Clone(x.formBuffer.WriteForm(v.AppendCanonical))
}

// coreRemainder is the part of an event's core that neither its frame nor its arguments have.
func (x hookEvent) coreRemainder() []byte {
	b := append(make([]byte, 0, 64), '{')
	if phase := x.doc.Get("evidence_phase"); phase.Exists() {
		b = append(phase.AppendMember(b), ',')
	}
	if redaction := x.doc.Get("metadata").Get("redaction"); redaction.Exists() {
		b = append(redaction.AppendMember(b), ',')
	}
	switch x.doc.Get("tool_input").Kind() {
	case 0:
	case strictjson.KindNull:
		b = append(b, `"tool_input":null,`...)
	default:
		b = append(b, `"tool_input":true,`...)
	}
	return append(bytes.TrimSuffix(b, []byte{','}), '}')
}

// argumentKeyers are the keys for the arguments of an AgentHook event, if it has any.
func argumentKeyers(d *fact.Decoder, p subject.Parsed, eventType string) fact.DigestKeyers {
	if k := agentHookKinds[eventType]; k != fact.KindPre && k != fact.KindPost {
		return fact.DigestKeyers{}
	}
	return fact.DigestKeyers{Tenant: d.DigestKey(p.Tenant), Session: d.SessionKeyers.Keyer(p.Tenant, p.Session)}
}

// checkAgentHookSubject holds an event against the message that it came in.
func checkAgentHookSubject(d *fact.Decoder, m events.LogMessage, p subject.Parsed, r *fact.DecodedEvent, e *agenthook.Event, request bool) {
	session := e.SessionID
	if request {
		session = cmp.Or(session, m.HeaderValue(events.HeaderSession))
		r.Fact.SetCall(cmp.Or(e.ToolCallID(), m.HeaderValue(events.HeaderToolCallID)), e.ToolName)
	} else if !fact.SameSubjectType(p.Type, e.EventType) {
		r.Contradictions = append(r.Contradictions, "its type is not the event_type of the event")
	}
	r.SetSession(p, d.Intern(session))
}

func readAgentHook(f *fact.Fact, raw []byte) fact.RecordedLine {
	if reply, is := replyOf(raw); is {
		f.Kind, f.EventID, f.VerdictClaim = fact.KindAdmissionReply, reply.EventID, fact.VerdictClaim{Verdict: fact.ParseClaimedVerdict(reply.Decision), Seq: f.Seq}
		if a := reply.Metadata.Approval; a != nil {
			f.Approval = fact.Approval{ResumePolicy: fact.BoundID(a.ResumePolicy), Status: a.Status, Workflow: fact.BoundID(a.WorkflowID), Action: fact.BoundID(a.ActionID), ExpiresAt: fact.ParseInstant(a.ExpiresAt)}.PointerOrNil()
		}
		f.EventFindings = replyFindings(f, reply)
		if wrong := approvalDefect(raw); wrong != "" { // as of an event: it approves nothing
			f.Approval = nil
			f.EventFindings = append(f.EventFindings, fact.SingleEventFinding("AH-C-100", wrong, f))
		}
		return fact.RecordedLine{Fact: f}
	}
	e, err := agenthook.Decode(raw, strictjson.DefaultLimits)
	if e == nil {
		return fact.RecordedLine{Fact: f, Err: err, Unreadable: true}
	}
	f.Origin = fact.OriginOf("", e.Source, e.SessionID)
	agentHookFact(f, hookEvent{Event: e, doc: withPlainIDs(e.Doc), formBuffer: new(fact.FormBuffer)}, false)
	return fact.RecordedLine{Fact: f, Err: err, Time: e.Time, Violations: hookschema.Strict(e.Doc)}
}

// approvalDefect says where the approval block of a reply does not follow its schema;
// "" if it does, or is not there.
func approvalDefect(raw []byte) string {
	v, err := strictjson.ReadObject(raw, strictjson.DefaultLimits)
	if err != nil {
		return ""
	}
	block := v.Get("metadata").Get("approval")
	if !block.Exists() {
		return ""
	}
	wrong := schemas.Default().Validate("agenthook/approval", block)
	if len(wrong) == 0 {
		return ""
	}
	return catalogue.CodeAtPath(wrong[0].Keyword, "/metadata/approval"+wrong[0].Path)
}

// replyOf tells an admission reply from an event: it has no event_type.
func replyOf(raw []byte) (agenthook.Reply, bool) {
	var shape struct {
		EventType any `json:"event_type"`
	}
	if err := strictjson.Unmarshal(raw, &shape); err != nil || shape.EventType != nil {
		return agenthook.Reply{}, false
	}
	reply, err := agenthook.ParseReply(raw)
	return reply, err == nil && reply.Decision != "" && reply.EventID != ""
}
