// Package aioc reads the events that the admitter writes beside decisions on aioc proposals.
package aioc

import (
	"errors"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/subject"
)

// aioc has two protocols: proposals of a tool call and proposals of a handoff. Beside a
// decision the admitter writes the event that RFC-0002 wants.
var (
	ToolProtocol    = fact.Protocol{Token: subject.ProtoTool, TraceType: aioc.TypeToolEvaluated}
	HandoffProtocol = fact.Protocol{Token: subject.ProtoHandoff, TraceType: aioc.TypeHandoffEvaluated, HandsOver: true}
)

// IsHandoffTo reports whether the tool of a proposal hands the session to an agent.
func IsHandoffTo(tool, agent string) bool { return aioc.IsHandoffToolName(tool, agent) }

// maxTraces bounds the decisions with a trace event to be recognised; it follows its decision at once.
const maxTraces = 65_536

// expectedTrace is a decision that leaves a trace event.
type expectedTrace struct {
	key      fact.SourceSession
	protocol string
	received bool
}

// Traces are the decisions that leave a trace event, by id.
type Traces struct {
	expected *tables.FIFO[fact.Sum, *expectedTrace]
}

// NewTraces makes the part.
func NewTraces() *Traces {
	return &Traces{expected: tables.NewFIFO[fact.Sum, *expectedTrace](maxTraces)}
}

// Expect remembers a decision that leaves a trace event.
func (ts *Traces) Expect(d *events.Decision) {
	if d.Protocol != ToolProtocol.Token && d.Protocol != HandoffProtocol.Token {
		return
	}
	id := traceKey(d.Tenant, d.DecisionID)
	if _, known := ts.expected.Get(id); !known {
		ts.expected.Put(id, &expectedTrace{key: fact.OriginOf(d.Tenant, d.Source, d.Session).Key, protocol: d.Protocol})
	}
}

func traceKey(tenant, decisionID string) fact.Sum { return fact.SumOf("trace", tenant, decisionID) }

// What may be wrong with a trace event beside its form.
var (
	// errTraceSubject says that it is published where it does not belong.
	ErrSubject = errors.New("publisher, session or type differ")
	// errTraceAgain says that the decision has its trace event: a second copy proves no more than the first.
	ErrAgain = errors.New("the decision has its trace event")
)

// Receive takes a trace event. It adds nothing to its decision, which has been there before it,
// but must be what it says: of a decision that is recorded, and under that decision's publisher
// and session.
func (ts *Traces) Receive(m events.LogMessage, p subject.Parsed, f *fact.Fact) (decisionID string, err error) {
	e, err := aioc.DecodePolicyEvaluated(m.Body)
	if err != nil {
		return "", errors.New(fact.DecodeErrorText(err))
	}
	decisionID = m.HeaderValue(events.HeaderDecisionID)
	if named, _ := e.Metadata["decisionId"].(string); named != decisionID {
		return "", errors.New("it names another decision than its header")
	}
	t, known := ts.expected.Get(traceKey(p.Tenant, decisionID))
	switch {
	case !known:
		return "", errors.New("the decision that it names is not recorded before it")
	case t.key != f.Key || t.protocol != p.Protocol || e.Type != p.Type:
		return "", ErrSubject
	case t.received:
		return "", ErrAgain
	}
	t.received = true
	return decisionID, nil
}
