package correlation

import (
	"strings"

	aaepsession "github.com/countersign-dev/countersign/correlation/aaep"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/schemas"
)

func (d *Decoder) decodeAAEP(m events.LogMessage, p subject.Parsed, r *decodedEvent, data []byte, request bool) {
	v, err := d.document.ParseObject(data, strictjson.DefaultLimits)
	if err != nil {
		r.readError = err
		r.fact.readRefusedNumber(data)
		return
	}
	violations := schemas.StrictAAEPValue(v)
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
