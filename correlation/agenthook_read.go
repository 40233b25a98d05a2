package correlation

import (
	"bytes"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/schemas"
)

// hookEvent is an AgentHook event and the object that it was read from, with the ids of events
// as NormaliseID spells them.
type hookEvent struct {
	*agenthook.Event
	doc        strictjson.Value
	keys       digestKeyers
	formBuffer *formBuffer
}

func (d *Decoder) decodeAgentHook(m events.LogMessage, p subject.Parsed, r *decodedEvent, data []byte, request bool) {
	v, err := d.document.ParseObject(data, strictjson.DefaultLimits)
	if err != nil {
		r.readError = err
		return
	}
	violations := schemas.StrictAgentHookValue(v)
	e, err := d.readAgentHook(v, data, violations, request)
	f := &r.fact
	agentHookFact(f, hookEvent{e, withPlainIDs(v), d.argumentKeyers(p, e.EventType), &d.formBuffer}, request)
	d.checkAgentHookSubject(m, p, r, e, request)
	f.outcome, f.lineageRefs.correlation, f.lineageRefs.trace = d.intern(f.outcome), strings.Clone(f.lineageRefs.correlation), strings.Clone(f.lineageRefs.trace)
	d.internCall(f)
	r.defect = eventDefect(f, err, violations)
}

// readAgentHook reads the typed event. Only an event of which a check must see the whole gets a
// tree: one that breaks a rule, is large, or has no id of its call.
func (d *Decoder) readAgentHook(v strictjson.Value, data []byte, violations []schemas.Violation, request bool) (*agenthook.Event, error) {
	if len(violations) == 0 && !d.needsTree(data) && (request || schemas.FollowsAgentHookProfile(v)) {
		if e, ok := agenthook.FromValue(v, data); ok {
			e.CloneTexts(d.intern, strings.Clone)
			e.EventID, e.AgentID, e.ToolName = strings.Clone(e.EventID), d.intern(e.AgentID), d.intern(e.ToolName)
			d.treelessReads++
			return e, nil
		}
	}
	return agenthook.FromTree(v.Tree().(map[string]any), data)
}

// trimmedSum is the sum of the event's canonical form without some of its members, and of those
// of its metadata.
func (x hookEvent) trimmedSum(omit, omitMetadata *memberNames) sum {
	return sumOfBytes(x.formBuffer.writeForm(func(b []byte) []byte { return appendTrimmed(b, x.doc, omit, omitMetadata) }))
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
	return bytes.Clone(x.formBuffer.writeForm(v.AppendCanonical))
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
func (d *Decoder) argumentKeyers(p subject.Parsed, eventType string) digestKeyers {
	if k := agentHookKinds[eventType]; k != kindPre && k != kindPost {
		return digestKeyers{}
	}
	return digestKeyers{tenant: d.digestKey(p.Tenant), session: d.sessionKeyers.keyer(p.Tenant, p.Session)}
}
