package correlation

import (
	"bytes"
	"strings"

	aaepsession "github.com/countersign-dev/countersign/correlation/aaep"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/schemas"
)

// Small events of the usual kind that break no rule by themselves are read without
// a tree being made of them. What is read so is read the same as otherwise
// (TestFlatFacts, FuzzFlatFacts); everything else goes the long way.

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

// hookEvent is an AgentHook event, and the document that it is of if that was read
// flat.
type hookEvent struct {
	*agenthook.Event
	doc        strictjson.Value
	keys       digestKeyers
	formBuffer *formBuffer
}

// formBuffer is where the forms of flat documents are written.
type formBuffer struct {
	buf    []byte
	failed bool // a form cannot be written from the flat document
}

// writeForm lends the room to whoever writes a form.
func (w *formBuffer) writeForm(form func(b []byte) ([]byte, bool)) []byte {
	b, ok := form(w.buf[:0])
	w.buf, w.failed = b[:0], w.failed || !ok
	return b
}

func (d *Decoder) decodeFlatAgentHook(m events.LogMessage, p subject.Parsed, r *decodedEvent, data []byte, request bool) bool {
	v, ok := d.flat.Read(data, strictjson.DefaultLimits)
	if !ok || d.treesOnly || !schemas.Default().PassesAgentHook(v) || !request && !schemas.Default().PassesAgentHookProfile(v) {
		return false
	}
	e, ok := agenthook.ReadFlat(v, data)
	if !ok || !hasPlainIDs(v) {
		return false
	}
	e.CloneTexts(d.intern, strings.Clone)
	e.EventID, e.AgentID, e.ToolName = strings.Clone(e.EventID), d.intern(e.AgentID), d.intern(e.ToolName)
	f := &r.fact
	d.formBuffer.failed = false
	agentHookFact(f, hookEvent{e, v, d.argumentKeyers(p, e.EventType), &d.formBuffer}, request)
	if d.formBuffer.failed || f.lacksCallID {
		f.reset()
		return false
	}
	d.checkAgentHookSubject(m, p, r, e, request)
	f.outcome, f.lineageRefs.correlation, f.lineageRefs.trace = d.intern(f.outcome), strings.Clone(f.lineageRefs.correlation), strings.Clone(f.lineageRefs.trace)
	d.internCall(f)
	d.flatReads++
	return true
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

// reset makes a fact again what the envelope says.
func (f *fact) reset() {
	*f = fact{seq: f.seq, at: f.at, protocol: f.protocol, origin: f.origin, contentSum: f.contentSum, decisionID: f.decisionID}
}

func (d *Decoder) decodeFlatAAEP(m events.LogMessage, p subject.Parsed, r *decodedEvent, data []byte, request bool) bool {
	v, ok := d.flat.Read(data, strictjson.DefaultLimits)
	if !ok || d.treesOnly || !schemas.Default().PassesAAEP(v) {
		return false
	}
	e, ok := aaep.ReadFlat(v, data)
	if !ok {
		return false
	}
	d.formBuffer.failed = false
	core := sumOfBytes(d.formBuffer.writeForm(v.AppendCanonical))
	if d.formBuffer.failed {
		return false
	}
	e.EventID, e.Producer.AgentID, e.CorrelationID = strings.Clone(e.EventID), d.intern(e.Producer.AgentID), strings.Clone(e.CorrelationID)
	d.internPayload(e)
	aaepFact(&r.fact, e, core, func() *aaepsession.Event { return aaepsession.NewFlatEvent(e, v) }, request)
	d.checkAAEPSubject(m, p, r, e, request)
	d.internCall(&r.fact)
	d.flatReads++
	return true
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

// trimmedSum is treeSum of the event without some of its members, and of those of its
// metadata.
func (x hookEvent) trimmedSum(omit, omitMetadata *memberNames) sum {
	if !x.doc.Exists() {
		return treeSum(trimmedTree(x.Tree, omit, omitMetadata))
	}
	return sumOfBytes(x.formBuffer.writeForm(func(b []byte) ([]byte, bool) { return appendTrimmed(b, x.doc, omit, omitMetadata) }))
}

// appendTrimmed appends the form of a document without some of its members, and
// of those of its metadata, which are left out if nothing is left of them.
func appendTrimmed(b []byte, doc strictjson.Value, omit, omitMetadata *memberNames) ([]byte, bool) {
	var room [24]strictjson.Value
	b = append(b, '{')
	first := len(b)
	ok := true
	for _, m := range doc.AppendSorted(room[:0]) {
		before := len(b)
		if _, out := omit.Of(m); out {
			continue
		}
		if before > first {
			b = append(b, ',')
		}
		if m.Key() != "metadata" || m.Kind() != strictjson.KindObject || omitMetadata == nil {
			b, ok = m.AppendMember(b)
		} else {
			empty := len(b) + len(`"metadata":{}`)
			if b, ok = appendTrimmed(append(b, `"metadata":`...), m, omitMetadata, nil); len(b) == empty {
				b = b[:before]
			}
		}
		if !ok {
			return b, false
		}
	}
	return append(b, '}'), true
}

// canonicalInput is the canonical form of the event's arguments, as InputCanonical gives
// it.
func (x hookEvent) canonicalInput() (canonical []byte, there bool, err error) {
	if !x.doc.Exists() {
		return x.InputCanonical()
	}
	v := x.doc.Get("tool_input")
	return x.canonicalForm(v), v.Exists(), nil
}

// canonicalExecuted is the canonical form of the arguments that ran, as ExecutedCanonical gives
// it; nil if that is not known.
func (x hookEvent) canonicalExecuted() []byte {
	if !x.doc.Exists() {
		canonical, _, err := x.ExecutedCanonical()
		if err != nil {
			return nil
		}
		return canonical
	}
	if executed := x.doc.Get("metadata").Get("tool_input_executed"); executed.Exists() {
		return x.canonicalForm(executed)
	}
	if agenthook.IsPost(x.EventType) {
		return x.canonicalForm(x.doc.Get("tool_input"))
	}
	return nil
}

// hasExecutedArguments reports whether the event names arguments that ran, and not none.
func (x hookEvent) hasExecutedArguments() bool {
	canonical := x.canonicalExecutedMember()
	return len(canonical) > len("{}")
}

// canonicalExecutedMember is the canonical form of metadata.tool_input_executed; nil if it is
// not there or has none.
func (x hookEvent) canonicalExecutedMember() []byte {
	if x.doc.Exists() {
		return x.canonicalForm(x.doc.Get("metadata").Get("tool_input_executed"))
	}
	canonical, there, err := x.ExecutedCanonical()
	if !there || err != nil {
		return nil
	}
	return canonical
}

// canonicalForm is the canonical form of a part of a flat document, nil if it is not there.
func (x hookEvent) canonicalForm(v strictjson.Value) []byte {
	if !v.Exists() {
		return nil
	}
	return bytes.Clone(x.formBuffer.writeForm(v.AppendCanonical))
}

// coreRemainder is the part of an event's core that neither its frame nor its arguments
// have.
func (x hookEvent) coreRemainder() ([]byte, error) {
	if x.doc.Exists() {
		return x.flatCoreRemainder(), nil
	}
	rest := map[string]any{}
	for _, name := range []string{"tool_input", "evidence_phase"} {
		if v, there := x.Tree[name]; there {
			rest[name] = v
		}
	}
	if rest["tool_input"] != nil {
		rest["tool_input"] = true // args say what
	}
	if meta, ok := x.Tree["metadata"].(map[string]any); ok {
		if v, there := meta["redaction"]; there {
			rest["redaction"] = v
		}
	}
	return strictjson.Canonical(rest)
}

func (x hookEvent) flatCoreRemainder() []byte {
	b := append(make([]byte, 0, 64), '{')
	if phase := x.doc.Get("evidence_phase"); phase.Exists() {
		b, _ = phase.AppendMember(b)
		b = append(b, ',')
	}
	if redaction := x.doc.Get("metadata").Get("redaction"); redaction.Exists() {
		var ok bool
		b, ok = redaction.AppendMember(b)
		x.formBuffer.failed = x.formBuffer.failed || !ok
		b = append(b, ',')
	}
	if x.doc.Get("tool_input").Exists() {
		b = append(b, `"tool_input":true,`...)
	}
	return append(bytes.TrimSuffix(b, []byte{','}), '}')
}
