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

// Small events of the usual kind that break no rule by themselves are read without
// a tree being made of them. What is read so is read the same as otherwise
// (TestFlatFacts, FuzzFlatFacts); everything else goes the long way.

// maxInterned bounds the texts that a Decoder keeps, and maxInternedText their
// length.
const (
	maxInterned     = 4096
	maxInternedText = 128
)

// own gives a text that comes again and again once for all, and does not hold on
// to the message that it is of.
func (d *Decoder) own(s string) string {
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
	doc   strictjson.Value
	keys  keyers
	forms *forms
}

// forms is where the forms of flat documents are written.
type forms struct {
	room   []byte
	failed bool // a form cannot be written from the flat document
}

// write lends the room to whoever writes a form.
func (w *forms) write(form func(b []byte) ([]byte, bool)) []byte {
	b, ok := form(w.room[:0])
	w.room, w.failed = b[:0], w.failed || !ok
	return b
}

func (d *Decoder) flatAgentHook(m events.LogMessage, p subject.Parsed, r *reading, data []byte, request bool) bool {
	v, ok := d.flat.Read(data, strictjson.DefaultLimits)
	if !ok || d.longWay || !schemas.Default().PassesAgentHook(v) || !request && !schemas.Default().PassesAgentHookProfile(v) {
		return false
	}
	e, ok := agenthook.ReadFlat(v, data)
	if !ok || !plainIDs(v) {
		return false
	}
	e.Keep(d.own, strings.Clone)
	e.EventID, e.AgentID, e.ToolName = strings.Clone(e.EventID), d.own(e.AgentID), d.own(e.ToolName)
	f := &r.fact
	d.forms.failed = false
	agentHookFact(f, hookEvent{e, v, d.keyers(p, e.EventType), &d.forms}, request)
	if d.forms.failed || f.unnamed {
		f.reset()
		return false
	}
	d.fromAgentHook(m, p, r, e, request)
	f.outcome, f.lineage.correlation, f.lineage.trace = d.own(f.outcome), strings.Clone(f.lineage.correlation), strings.Clone(f.lineage.trace)
	d.keepCall(f)
	d.flatReads++
	return true
}

// keepCall makes a call's id independent of its message.
func (d *Decoder) keepCall(f *fact) {
	id := strings.Clone(f.callID)
	if f.slot.id == f.callID {
		f.slot.id = id
	}
	if f.callID = id; f.slot.tool != "" {
		f.slot.tool = d.own(f.slot.tool)
	}
}

// reset makes a fact again what the envelope says.
func (f *fact) reset() {
	*f = fact{seq: f.seq, at: f.at, protocol: f.protocol, origin: f.origin, content: f.content, decisionID: f.decisionID}
}

func (d *Decoder) flatAAEP(m events.LogMessage, p subject.Parsed, r *reading, data []byte, request bool) bool {
	v, ok := d.flat.Read(data, strictjson.DefaultLimits)
	if !ok || d.longWay || !schemas.Default().PassesAAEP(v) {
		return false
	}
	e, ok := aaep.ReadFlat(v, data)
	if !ok {
		return false
	}
	d.forms.failed = false
	core := sumOfBytes(d.forms.write(v.AppendCanonical))
	if d.forms.failed {
		return false
	}
	e.EventID, e.Producer.AgentID, e.CorrelationID = strings.Clone(e.EventID), d.own(e.Producer.AgentID), strings.Clone(e.CorrelationID)
	d.keepPayload(e)
	aaepFact(&r.fact, e, core, func() *aaepsession.Event { return aaepsession.NewFlatEvent(e, v) }, request)
	d.fromAAEP(m, p, r, e, request)
	d.keepCall(&r.fact)
	d.flatReads++
	return true
}

// keepPayload makes the texts of a payload that sessions remember independent of
// their message.
func (d *Decoder) keepPayload(e *aaep.Event) {
	switch p := e.Payload.(type) {
	case *aaep.ToolInvoked:
		p.Tool, p.ToolCallID = d.own(p.Tool), strings.Clone(p.ToolCallID)
	case *aaep.ToolCompleted:
		p.Tool, p.ToolCallID, p.Status = d.own(p.Tool), strings.Clone(p.ToolCallID), d.own(p.Status)
	case *aaep.StateChanged:
		p.FromState, p.ToState = d.own(p.FromState), d.own(p.ToState)
	case *aaep.OutputStreaming:
		p.OutputID = strings.Clone(p.OutputID)
	}
}

// sum is treeSum of the event without some of its members, and of those of its
// metadata.
func (x hookEvent) sum(omit, omitMetadata *names) sum {
	if !x.doc.There() {
		return treeSum(trimmed(x.Tree, omit, omitMetadata))
	}
	return sumOfBytes(x.forms.write(func(b []byte) ([]byte, bool) { return appendTrimmed(b, x.doc, omit, omitMetadata) }))
}

// appendTrimmed appends the form of a document without some of its members, and
// of those of its metadata, which are left out if nothing is left of them.
func appendTrimmed(b []byte, doc strictjson.Value, omit, omitMetadata *names) ([]byte, bool) {
	var room [24]strictjson.Value
	b = append(b, '{')
	first := len(b)
	ok := true
	for _, m := range doc.Sorted(room[:0]) {
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

// input is the canonical form of the event's arguments, as InputCanonical gives
// it.
func (x hookEvent) input() (canonical []byte, there bool, err error) {
	if !x.doc.There() {
		return x.InputCanonical()
	}
	v := x.doc.Get("tool_input")
	return x.form(v), v.There(), nil
}

// ran is the canonical form of the arguments that ran, as ExecutedCanonical gives
// it; nil if that is not known.
func (x hookEvent) ran() []byte {
	if !x.doc.There() {
		canonical, _, err := x.ExecutedCanonical()
		if err != nil {
			return nil
		}
		return canonical
	}
	if executed := x.doc.Get("metadata").Get("tool_input_executed"); executed.There() {
		return x.form(executed)
	}
	if agenthook.IsPost(x.EventType) {
		return x.form(x.doc.Get("tool_input"))
	}
	return nil
}

// executedSome reports whether the event names arguments that ran, and not none.
func (x hookEvent) executedSome() bool {
	canonical := x.executedForm()
	return len(canonical) > len("{}")
}

// executedForm is the canonical form of metadata.tool_input_executed; nil if it is
// not there or has none.
func (x hookEvent) executedForm() []byte {
	if x.doc.There() {
		return x.form(x.doc.Get("metadata").Get("tool_input_executed"))
	}
	canonical, there, err := x.ExecutedCanonical()
	if !there || err != nil {
		return nil
	}
	return canonical
}

// form is the canonical form of a part of a flat document, nil if it is not there.
func (x hookEvent) form(v strictjson.Value) []byte {
	if !v.There() {
		return nil
	}
	return bytes.Clone(x.forms.write(v.AppendCanonical))
}

// rest is the part of an event's core that neither its frame nor its arguments
// have.
func (x hookEvent) rest() ([]byte, error) {
	if x.doc.There() {
		return x.flatRest(), nil
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

func (x hookEvent) flatRest() []byte {
	b := append(make([]byte, 0, 64), '{')
	if phase := x.doc.Get("evidence_phase"); phase.There() {
		b, _ = phase.AppendMember(b)
		b = append(b, ',')
	}
	if redaction := x.doc.Get("metadata").Get("redaction"); redaction.There() {
		var ok bool
		b, ok = redaction.AppendMember(b)
		x.forms.failed = x.forms.failed || !ok
		b = append(b, ',')
	}
	if x.doc.Get("tool_input").There() {
		b = append(b, `"tool_input":true,`...)
	}
	return append(bytes.TrimSuffix(b, []byte{','}), '}')
}
