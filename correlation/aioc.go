package correlation

import (
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/subject"
)

// aioc has two protocols: proposals of a tool call and proposals of a handoff. Beside a
// decision the admitter writes the event that RFC-0002 wants.
var (
	toolProtocol    = &protocolRow{Protocol: fact.Protocol{Token: subject.ProtoTool, TraceType: aioc.TypeToolEvaluated}, wordCode: 3, missingCheck: missingOfRequests}
	handoffProtocol = &protocolRow{
		Protocol: fact.Protocol{Token: subject.ProtoHandoff, TraceType: aioc.TypeHandoffEvaluated, HandsOver: true},
		wordCode: 4, missingCheck: missingOfRequests,
	}
)

// expectedTrace is a decision that leaves a trace event.
type expectedTrace struct {
	key      fact.SessionKey
	protocol string
	received bool
}

// expectTrace remembers a decision that leaves a trace event.
func (ad *admissions) expectTrace(d *events.Decision) {
	if rowOf(d.Protocol).TraceType == "" {
		return
	}
	id := traceKey(d.Tenant, d.DecisionID)
	if _, known := ad.expectedTraces.Get(id); !known {
		ad.expectedTraces.Put(id, &expectedTrace{key: fact.OriginOf(d.Tenant, d.Source, d.Session).Key, protocol: d.Protocol})
	}
}

// findTrace is the trace event that a decision leaves.
func (ad *admissions) findTrace(tenant, decisionID string) (t *expectedTrace, known bool) {
	return ad.expectedTraces.Get(traceKey(tenant, decisionID))
}

func traceKey(tenant, decisionID string) fact.Sum { return fact.SumOf("trace", tenant, decisionID) }

// applyTrace takes a trace event. It adds nothing to its decision, which has been
// there before it, but must be what it says: signed, of a decision that is
// recorded, and under that decision's publisher and session. A second copy, which
// proves no more than the first, is a duplicate.
func (c *Correlator) applyTrace(m events.LogMessage, p subject.Parsed, f *fact.Fact) {
	if what := c.signatureDefect(&m, fact.VerifiedSignature{}); what != "" {
		c.reportForged(f, caseTrace, what)
		return
	}
	e, err := aioc.DecodePolicyEvaluated(m.Body)
	if err != nil {
		c.reportForged(f, caseTrace, fact.DecodeErrorText(err))
		return
	}
	id := m.HeaderValue(events.HeaderDecisionID)
	if named, _ := e.Metadata["decisionId"].(string); named != id {
		c.reportForged(f, caseTrace, "it names another decision than its header")
		return
	}
	t, known := c.engine.admissions.findTrace(p.Tenant, id)
	switch {
	case !known:
		c.reportForged(f, caseTrace, "the decision that it names is not recorded before it")
	case t.key != f.Key || t.protocol != p.Protocol || e.Type != p.Type:
		c.reportForged(f, caseTraceSubject, "publisher, session or type differ")
	case t.received:
		c.engine.stats.Duplicates++
	default:
		t.received = true
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
