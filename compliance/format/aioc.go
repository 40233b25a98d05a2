package format

import (
	"cmp"
	"math"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
)

// proposal is one decided aioc proposal: the decision, values of the redacted request, and the trace
// event that the admitter committed with it.
type proposal struct {
	events.Decision
	item     Item
	turn     int64
	kind     string // tool or handoff
	name     string // the tool, or the target agent of a handoff
	decision string
	reason   string
	trace    aioc.PolicyEvaluated
}

// maxUntraced is how many decisions wait for their trace event.
const maxUntraced = 64

// proposalReader combines request, decision and trace event.
type proposalReader struct {
	out      *lineWriter
	pending  *pendingRequests
	untraced []*proposal // oldest first
	handle   func(*proposal) error
}

func newProposals(w *lineWriter, done func(*proposal) error) *proposalReader {
	return &proposalReader{out: w, pending: newPendingRequests(w), handle: done}
}

var aiocKinds = map[string]string{subject.ProtoTool: "tool", subject.ProtoHandoff: "handoff"}

// readItem processes one record.
func (p *proposalReader) readItem(i Item) error {
	r := i.Record
	switch r.Kind {
	case evidence.KindRequest:
		if aiocKinds[p.out.protocolOf(r)] != "" {
			p.pending.put(r)
		}
	case evidence.KindDecision:
		return p.addDecision(i)
	case evidence.KindEvent:
		return p.addTrace(r)
	}
	return nil
}

func (p *proposalReader) addDecision(i Item) error {
	d, ok := readRecord[events.Decision](p.out, i.Record)
	kind := aiocKinds[d.Protocol]
	if !ok || kind == "" {
		return nil
	}
	req, there := p.pending.pop(d.DecisionID)
	if !there {
		p.out.countSkipped(SkippedNoRequest)
		return nil
	}
	turn, ok := integerAt(req.body, "turn")
	if !ok || turn < 1 {
		p.out.countSkipped(SkippedNoTurn)
		return nil
	}
	out := &proposal{Decision: d, item: i, turn: turn, kind: kind, name: d.Tool, decision: cmp.Or(aiocDecisions[d.Verdict], aioc.Deny),
		reason: cmp.Or(append(decidingCodes(d), "no_reason_recorded")...)}
	if kind == "handoff" {
		out.name = cmp.Or(textAt(req.body, "toAgentName"), d.Tool)
	}
	out.name = cmp.Or(out.name, "unknown")
	out.Agent = cmp.Or(d.Agent, "unknown")
	p.untraced = append(p.untraced, out)
	if len(p.untraced) > maxUntraced {
		return p.flushOldest(1)
	}
	return nil
}

// integerAt is the whole number at a name.
func integerAt(tree any, name string) (int64, bool) {
	n, ok := floatOf(valueAt(tree, name))
	if !ok || n != math.Trunc(n) || math.Abs(n) > 1<<53 {
		return 0, false
	}
	return int64(n), true
}

// aiocDecisions maps Countersign's verdicts to aioc's decisions.
var aiocDecisions = map[events.Verdict]string{events.Allow: aioc.Allow, events.Ask: aioc.RequireApproval, events.Defer: aioc.RequireApproval, events.Deny: aioc.Deny}

// addTrace takes the values of a trace event for its decision, if the two agree. The first trace event
// is the admitter's: the admitter commits it together with the decision, so no other publisher
// knows the decision's id before.
func (p *proposalReader) addTrace(r evidence.Record) error {
	id := headerValue(r, events.HeaderDecisionID)
	for n, w := range p.untraced {
		if id == "" || w.DecisionID != id {
			continue
		}
		if t, err := aioc.DecodePolicyEvaluated(r.Body); err == nil && t.Decision == w.decision && t.Turn == w.turn {
			w.trace = t
			w.reason = cmp.Or(t.Reason, w.reason)
		}
		return p.flushOldest(n + 1)
	}
	return nil
}

// flushOldest passes on the n oldest proposals.
func (p *proposalReader) flushOldest(n int) error {
	ready := p.untraced[:n]
	p.untraced = p.untraced[n:]
	for _, w := range ready {
		if err := p.handle(w); err != nil {
			return err
		}
	}
	return nil
}

func (p *proposalReader) end() error {
	err := p.flushOldest(len(p.untraced))
	p.pending.countRemaining()
	return err
}

// policyVersion is the version that the trace event states, otherwise the digest of the policies.
func (w *proposal) policyVersion() string {
	if w.trace.PolicyVersion != "" || w.Policy == nil {
		return w.trace.PolicyVersion
	}
	return w.Policy.Digest
}

// metadata holds values that aioc's records have no field for. Digests are keyed.
func (w *proposal) metadata() map[string]any {
	m := scalarMap("argsDigest", w.ArgsDigest, "decisionId", w.DecisionID, "verdict", string(w.Verdict))
	if w.Approval != nil {
		m["workflowId"] = w.Approval.WorkflowID
	}
	return m
}

// sessionEnds maps the events that end a session to the status of the run. aioc itself has no such event; a
// run ends when another protocol ends its session.
var sessionEnds = map[string]string{
	"SessionEnd": "completed", "agent.session.completed": "completed", "agent.session.errored": "failed", "agent.session.cancelled": "failed",
}

// sessionEnd is the status with which the event of a record ends its session, or "".
func (w *lineWriter) sessionEnd(r evidence.Record) string {
	if r.Kind != evidence.KindEvent {
		return ""
	}
	p, err := w.Space.Parse(r.Subject)
	if err != nil {
		return ""
	}
	return sessionEnds[p.Type]
}
