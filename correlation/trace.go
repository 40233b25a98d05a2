package correlation

import (
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/subject"
)

// traceTypes are the events that the admitter itself writes in the name of a
// publisher, by type, and their protocols: what RFC-0002 wants on the log beside
// a decision. They are signed like decisions. Nobody else may write them.
var traceTypes = map[string]string{
	aioc.TypeToolEvaluated:    subject.ProtoTool,
	aioc.TypeHandoffEvaluated: subject.ProtoHandoff,
}

// traced is a decision that leaves a trace event.
type traced struct {
	key      sessionKey
	protocol string
	seen     bool
}

// expectTrace remembers a decision that leaves a trace event.
func (m *machine) expectTrace(d *events.Decision) {
	if d.Protocol != subject.ProtoTool && d.Protocol != subject.ProtoHandoff {
		return
	}
	id := traceKey(d.Tenant, d.DecisionID)
	if _, known := m.traces.get(id); !known {
		m.traces.put(id, &traced{key: originOf(d.Tenant, d.Source, d.Session).key, protocol: d.Protocol})
	}
}

func traceKey(tenant, decisionID string) sum { return sumOf("trace", tenant, decisionID) }

// trace takes a trace event. It adds nothing to its decision, which has been
// there before it, but must be what it says: signed, of a decision that is
// recorded, and under that decision's publisher and session. A second copy, which
// proves no more than the first, is a duplicate.
func (c *Correlator) trace(m events.LogMessage, p subject.Parsed, f *fact) {
	if what := c.unsigned(&m, seal{}); what != "" {
		c.forged(f, detailTrace, what)
		return
	}
	e, err := aioc.DecodePolicyEvaluated(m.Body)
	if err != nil {
		c.forged(f, detailTrace, reason(err))
		return
	}
	id := m.HeaderValue(events.HeaderDecisionID)
	if named, _ := e.Metadata["decisionId"].(string); named != id {
		c.forged(f, detailTrace, "it names another decision than its header")
		return
	}
	t, known := c.m.traces.get(traceKey(p.Tenant, id))
	switch {
	case !known:
		c.forged(f, detailTrace, "the decision that it names is not recorded before it")
	case t.key != f.key || t.protocol != p.Protocol || e.Type != p.Type:
		c.forged(f, detailTraceSubject, "publisher, session or type differ")
	case t.seen:
		c.m.stats.Duplicates++
	default:
		t.seen = true
		c.m.attachTrace(f, id)
	}
}

// attachTrace notes the event in its call's timeline. A call that its deny has
// closed was put out before, and is not put out again for it.
func (m *machine) attachTrace(f *fact, decisionID string) {
	s, ok := m.sessions.peek(f.key)
	if !ok {
		return
	}
	if c := s.decided(decisionID); c != nil {
		c.step(stepTraced, f)
	}
}
