package correlation

import (
	"github.com/countersign-dev/countersign/correlation/aioc"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// The rows of aioc; how its trace events are read is in package correlation/aioc.
var (
	toolProtocol    = &protocolRow{Protocol: aioc.ToolProtocol, wordCode: 3, missingCheck: missingOfRequests}
	handoffProtocol = &protocolRow{Protocol: aioc.HandoffProtocol, wordCode: 4, missingCheck: missingOfRequests, isHandoffTo: aioc.IsHandoffTo}
)

// applyTrace takes a trace event, which must be signed as decisions are.
func (c *Correlator) applyTrace(m events.LogMessage, p subject.Parsed, f *fact.Fact) {
	if what := c.signatureDefect(&m, fact.VerifiedSignature{}); what != "" {
		c.reportForged(f, caseTrace, what)
		return
	}
	switch id, defect := c.engine.traces.Receive(m, p, f); {
	case defect == aioc.ErrSubject:
		c.reportForged(f, caseTraceSubject, defect.Error())
	case defect == aioc.ErrAgain:
		c.engine.stats.Duplicates++
	case defect != nil:
		c.reportForged(f, caseTrace, defect.Error())
	default:
		c.engine.calls.attachTrace(f, id)
	}
}

// attachTrace notes the event in its call's timeline. A call that its deny has
// closed was emitted before, and is not emitted again for it.
func (cs *calls) attachTrace(f *fact.Fact, decisionID string) {
	s := cs.find(f.Key)
	if s == nil {
		return
	}
	if c := s.callOfDecision(decisionID); c != nil {
		c.addStep(stepTraced, f)
	}
}
