package correlation

import (
	"strings"

	"github.com/countersign-dev/countersign/correlation/fact"

	aaepsession "github.com/countersign-dev/countersign/correlation/aaep"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/schemas"
)

func decodeAAEP(d *fact.Decoder, m events.LogMessage, p subject.Parsed, r *fact.DecodedEvent, data []byte, request bool) {
	v, err := d.Document.ParseObject(data, strictjson.DefaultLimits)
	if err != nil {
		r.ReadError = err
		r.Fact.ReadRefusedNumber(data, d.Protocols(p.Protocol))
		return
	}
	violations := schemas.Default().StrictAAEPValue(v)
	e, err := readAAEPEvent(d, v, data, violations)
	core := fact.SumOfBytes(d.FormBuffer.WriteForm(v.AppendCanonical))
	aaepFact(&r.Fact, e, core, func() *aaepsession.Event {
		if e.Tree == nil {
			return aaepsession.NewValueEvent(e, v)
		}
		return aaepsession.NewEvent(e)
	}, request)
	checkAAEPSubject(d, m, p, r, e, request)
	d.InternCall(&r.Fact)
	r.Defect = fact.EventDefect(&r.Fact, err, violations)
}

// readAAEPEvent reads the typed event. Only an event of which a check must see the whole gets a tree:
// one that breaks a rule, is large, or is of a type that sessions read whole.
func readAAEPEvent(d *fact.Decoder, v strictjson.Value, data []byte, violations []schemas.Violation) (*aaep.Event, error) {
	if len(violations) == 0 && treelessTypes[v.Get("type").Text()] && !d.NeedsTree(data) {
		if e, ok := aaep.FromValue(v, data); ok {
			e.EventID, e.Producer.AgentID, e.CorrelationID = strings.Clone(e.EventID), d.Intern(e.Producer.AgentID), strings.Clone(e.CorrelationID)
			internPayload(d, e)
			d.TreelessReads++
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
func internPayload(d *fact.Decoder, e *aaep.Event) {
	switch p := e.Payload.(type) {
	case *aaep.ToolInvoked:
		p.Tool, p.ToolCallID = d.Intern(p.Tool), strings.Clone(p.ToolCallID)
	case *aaep.ToolCompleted:
		p.Tool, p.ToolCallID, p.Status = d.Intern(p.Tool), strings.Clone(p.ToolCallID), d.Intern(p.Status)
	case *aaep.StateChanged:
		p.FromState, p.ToState = d.Intern(p.FromState), d.Intern(p.ToState)
	case *aaep.OutputStreaming:
		p.OutputID = strings.Clone(p.OutputID)
	}
}
