package correlation

import (
	"bytes"
	"strings"

	"github.com/countersign-dev/countersign/correlation/aaepsession"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/schemas"
)

// An event is parsed once. Its schema, its canonical forms and its typed event are read from that
// document. A tree is made of it only for the checks that look at the whole event.

// maxInterned bounds the texts that a Decoder keeps, and maxInternedText their
// length.
const (
	maxInterned     = 4096
	maxInternedText = 128
)

// intern gives a text that comes again and again once for all, and does not hold on
// to the message that it is of.
func (d *Decoder) intern(s string) string {
	if len(s) > maxInternedText {
		return strings.Clone(s)
	}
	if known, ok := d.interned[s]; ok {
		return known
	}
	if len(d.interned) >= maxInterned || d.interned == nil {
		d.interned = make(map[string]string, 64)
	}
	s = strings.Clone(s)
	d.interned[s] = s
	return s
}

// hookEvent is an AgentHook event and the object that it was read from, with the ids of events
// as NormaliseID spells them.
type hookEvent struct {
	*agenthook.Event
	doc        strictjson.Value
	keys       digestKeyers
	formBuffer *formBuffer
}

// formBuffer is where canonical forms are written.
type formBuffer struct{ buf []byte }

// writeForm lends the buffer to form until the next call.
func (w *formBuffer) writeForm(form func(b []byte) []byte) []byte {
	b := form(w.buf[:0])
	w.buf = b[:0]
	return b
}

// needsTree reports whether an event is of a size of which the checks of sessions look at the
// tree.
func (d *Decoder) needsTree(data []byte) bool {
	return d.alwaysTree || len(data) > maxTreelessBytes || d.document.Depth() > maxTreelessDepth
}

const (
	maxTreelessBytes = 8 << 10
	maxTreelessDepth = 8
)

func (d *Decoder) decodeAgentHook(m events.LogMessage, p subject.Parsed, r *decodedEvent, data []byte, request bool) {
	v, err := d.document.ParseObject(data, strictjson.DefaultLimits)
	if err != nil {
		r.readError = err
		return
	}
	violations := schemas.Default().StrictAgentHookValue(v)
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
	if len(violations) == 0 && !d.needsTree(data) && (request || schemas.Default().FollowsAgentHookProfile(v)) {
		if e, ok := agenthook.FromValue(v, data); ok {
			e.CloneTexts(d.intern, strings.Clone)
			e.EventID, e.AgentID, e.ToolName = strings.Clone(e.EventID), d.intern(e.AgentID), d.intern(e.ToolName)
			d.treelessReads++
			return e, nil
		}
	}
	return agenthook.FromTree(v.Tree().(map[string]any), data)
}

// internCall makes a call's id independent of its message.
func (d *Decoder) internCall(f *fact) {
	id := strings.Clone(f.callID)
	if f.callKey.id == f.callID {
		f.callKey.id = id
	}
	if f.callID = id; f.callKey.tool != "" {
		f.callKey.tool = d.intern(f.callKey.tool)
	}
}

func (d *Decoder) decodeAAEP(m events.LogMessage, p subject.Parsed, r *decodedEvent, data []byte, request bool) {
	v, err := d.document.ParseObject(data, strictjson.DefaultLimits)
	if err != nil {
		r.readError = err
		r.fact.readRefusedNumber(data)
		return
	}
	violations := schemas.Default().StrictAAEPValue(v)
	e, err := d.readAAEP(v, data, violations)
	core := sumOfBytes(d.formBuffer.writeForm(v.AppendCanonical))
	aaepFact(&r.fact, e, core, func() *aaepsession.Event {
		if e.Tree == nil {
			return aaepsession.NewValueEvent(e, v)
		}
		return aaepsession.NewEvent(e)
	}, request)
	d.checkAAEPSubject(m, p, r, e, request)
	d.internCall(&r.fact)
	r.defect = eventDefect(&r.fact, err, violations)
}

// readAAEP reads the typed event. Only an event of which a check must see the whole gets a tree:
// one that breaks a rule, is large, or is of a type that sessions read whole.
func (d *Decoder) readAAEP(v strictjson.Value, data []byte, violations []schemas.Violation) (*aaep.Event, error) {
	if len(violations) == 0 && treelessTypes[v.Get("type").Text()] && !d.needsTree(data) {
		if e, ok := aaep.FromValue(v, data); ok {
			e.EventID, e.Producer.AgentID, e.CorrelationID = strings.Clone(e.EventID), d.intern(e.Producer.AgentID), strings.Clone(e.CorrelationID)
			d.internPayload(e)
			d.treelessReads++
			return e, nil
		}
	}
	return aaep.FromTree(v.Tree().(map[string]any), data)
}

// treelessTypes are the events of which sessions need no tree.
var treelessTypes = map[string]bool{
	"aaep:agent.output.streaming": true, "aaep:agent.session.cancelled": true, "aaep:agent.session.completed": true, "aaep:agent.session.started": true,
	"aaep:agent.state.changed": true, "aaep:agent.tool.completed": true, "aaep:agent.tool.invoked": true,
}

// internPayload makes the texts of a payload that sessions remember independent of
// their message.
func (d *Decoder) internPayload(e *aaep.Event) {
	switch p := e.Payload.(type) {
	case *aaep.ToolInvoked:
		p.Tool, p.ToolCallID = d.intern(p.Tool), strings.Clone(p.ToolCallID)
	case *aaep.ToolCompleted:
		p.Tool, p.ToolCallID, p.Status = d.intern(p.Tool), strings.Clone(p.ToolCallID), d.intern(p.Status)
	case *aaep.StateChanged:
		p.FromState, p.ToState = d.intern(p.FromState), d.intern(p.ToState)
	case *aaep.OutputStreaming:
		p.OutputID = strings.Clone(p.OutputID)
	}
}

// trimmedSum is the sum of the event's canonical form without some of its members, and of those
// of its metadata.
func (x hookEvent) trimmedSum(omit, omitMetadata *memberNames) sum {
	return sumOfBytes(x.formBuffer.writeForm(func(b []byte) []byte { return appendTrimmed(b, x.doc, omit, omitMetadata) }))
}

// appendTrimmed appends the canonical form of an object without some of its members, and of those
// of its metadata, which are left out if nothing is left of them.
func appendTrimmed(b []byte, doc strictjson.Value, omit, omitMetadata *memberNames) []byte {
	var room [24]strictjson.Value
	b = append(b, '{')
	first := len(b)
	for _, m := range doc.AppendSorted(room[:0]) {
		before := len(b)
		if _, out := omit.Of(m); out {
			continue
		}
		if before > first {
			b = append(b, ',')
		}
		if m.Key() != "metadata" || m.Kind() != strictjson.KindObject || omitMetadata == nil {
			b = m.AppendMember(b)
			continue
		}
		empty := len(b) + len(`"metadata":{}`)
		if b = appendTrimmed(append(b, `"metadata":`...), m, omitMetadata, nil); len(b) == empty {
			b = b[:before]
		}
	}
	return append(b, '}')
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
