// Package aioc reads the trace events that the admitter writes beside decisions on aioc
// proposals.
package aioc

import (
	"errors"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/subject"
)

// aioc has two protocols: proposals of a tool call, and proposals of a handoff. The admitter
// writes the trace event of RFC-0002 beside each decision.
var (
	ToolProtocol    = fact.Protocol{Token: subject.ProtoTool, TraceType: aioc.TypeToolEvaluated}
	HandoffProtocol = fact.Protocol{Token: subject.ProtoHandoff, TraceType: aioc.TypeHandoffEvaluated, HandsOver: true}
)

// IsHandoffTo reports whether the tool of a proposal hands the session to an agent.
func IsHandoffTo(tool, agent string) bool { return aioc.IsHandoffToolName(tool, agent) }

// maxTraces bounds the decisions that wait for their trace event. A trace event follows its
// decision at once.
const maxTraces = 65_536

// expectedTrace is a decision that will have a trace event.
type expectedTrace struct {
	key      fact.SourceSession
	protocol string
	received bool
}

// Traces holds the decisions with trace events, by the sum of their id.
type Traces struct {
	expected *tables.Shared[fact.Sum, *expectedTrace]
}

// NewTraces makes the part.
func NewTraces() *Traces {
	return &Traces{expected: tables.NewShared[fact.Sum, *expectedTrace](maxTraces)}
}

// Expect records a decision that will have a trace event.
func (ts *Traces) Expect(d *events.Decision) {
	if d.Protocol != ToolProtocol.Token && d.Protocol != HandoffProtocol.Token {
		return
	}
	key, id := fact.OriginOf(d.Tenant, d.Source, d.Session).Key, fact.SumOf(d.DecisionID)
	if _, known := ts.expected.Get(key.Tenant, id); !known {
		ts.expected.Put(key.Tenant, id, &expectedTrace{key: key, protocol: d.Protocol})
	}
}

// Defects of a trace event, besides those of its form.
var (
	// ErrSubject is the error for a trace event on the wrong subject.
	ErrSubject = errors.New("publisher, session or type differ")
	// ErrDuplicateTrace is the error for a second trace event of a decision. It proves no more than the
	// first.
	ErrDuplicateTrace = errors.New("the decision has its trace event")
)

// Receive checks a trace event: it must belong to a recorded decision, and have that
// decision's publisher and session. It returns the decision's id.
func (ts *Traces) Receive(m events.LogMessage, p subject.Parsed, f *fact.Fact) (decisionID string, err error) {
	e, err := aioc.DecodePolicyEvaluated(m.Body)
	if err != nil {
		return "", errors.New(fact.DecodeErrorText(err))
	}
	decisionID = m.HeaderValue(events.HeaderDecisionID)
	if named, _ := e.Metadata["decisionId"].(string); named != decisionID {
		return "", errors.New("it names another decision than its header")
	}
	t, known := ts.expected.Get(f.Key.Tenant, fact.SumOf(decisionID))
	switch {
	case !known:
		return "", errors.New("the decision that it names is not recorded before it")
	case t.key != f.Key || t.protocol != p.Protocol || e.Type != p.Type:
		return "", ErrSubject
	case t.received:
		return "", ErrDuplicateTrace
	}
	t.received = true
	return decisionID, nil
}
