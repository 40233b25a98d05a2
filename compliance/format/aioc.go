package format

import (
	"math"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
)

// proposal is one decided aioc proposal: the decision, what the redacted request
// says around it, and the words of the trace event that the admitter committed
// with it.
type proposal struct {
	events.Decision
	item     Item
	turn     int64
	kind     string // tool or handoff
	name     string // the tool, or the agent that takes over
	decision string
	reason   string
	trace    aioc.PolicyEvaluated
}

// maxUntraced is how many decisions wait for their trace event.
const maxUntraced = 64

// proposals puts request, decision and trace event together.
type proposals struct {
	w        *writer
	wait     *waiting
	untraced []*proposal // oldest first
	done     func(*proposal) error
}

func newProposals(w *writer, done func(*proposal) error) *proposals {
	return &proposals{w: w, wait: newWaiting(w), done: done}
}

var aiocKinds = map[string]string{subject.ProtoTool: "tool", subject.ProtoHandoff: "handoff"}

// take reads one record.
func (p *proposals) take(i Item) error {
	r := i.Record
	switch r.Kind {
	case evidence.KindRequest:
		if aiocKinds[p.w.protocolOf(r)] != "" {
			p.wait.put(r)
		}
	case evidence.KindDecision:
		return p.decided(i)
	case evidence.KindEvent:
		return p.traced(r)
	}
	return nil
}

func (p *proposals) decided(i Item) error {
	d, ok := read[events.Decision](p.w, i.Record)
	kind := aiocKinds[d.Protocol]
	if !ok || kind == "" {
		return nil
	}
	req, there := p.wait.take(d.DecisionID)
	if !there {
		p.w.leave(LeftNoRequest)
		return nil
	}
	turn, ok := wholeAt(req.body, "turn")
	if !ok || turn < 1 {
		p.w.leave(LeftNoTurn)
		return nil
	}
	out := &proposal{Decision: d, item: i, turn: turn, kind: kind, name: d.Tool, decision: first(aiocDecisions[d.Verdict], aioc.Deny),
		reason: first(append(deciding(d), "no_reason_recorded")...)}
	if kind == "handoff" {
		out.name = first(textAt(req.body, "toAgentName"), d.Tool)
	}
	out.name = first(out.name, "unknown")
	out.Agent = first(d.Agent, "unknown")
	p.untraced = append(p.untraced, out)
	if len(p.untraced) > maxUntraced {
		return p.flush(1)
	}
	return nil
}

// wholeAt is a whole number in a tree.
func wholeAt(tree any, name string) (int64, bool) {
	n, ok := number64(at(tree, name))
	if !ok || n != math.Trunc(n) || math.Abs(n) > 1<<53 {
		return 0, false
	}
	return int64(n), true
}

// aiocDecisions are aioc's words for our verdicts.
var aiocDecisions = map[events.Verdict]string{events.Allow: aioc.Allow, events.Ask: aioc.RequireApproval, events.Defer: aioc.RequireApproval, events.Deny: aioc.Deny}

// traced takes the words of a trace event for its decision, if they agree: the
// first one is the admitter's, which commits it together with the decision whose
// id nobody else knows yet.
func (p *proposals) traced(r evidence.Record) error {
	id := header(r, events.HeaderDecisionID)
	for n, w := range p.untraced {
		if id == "" || w.DecisionID != id {
			continue
		}
		if t, err := aioc.DecodePolicyEvaluated(r.Body); err == nil && t.Decision == w.decision && t.Turn == w.turn {
			w.trace = t
			w.reason = first(t.Reason, w.reason)
		}
		return p.flush(n + 1)
	}
	return nil
}

// flush hands on the n oldest.
func (p *proposals) flush(n int) error {
	ready := p.untraced[:n]
	p.untraced = p.untraced[n:]
	for _, w := range ready {
		if err := p.done(w); err != nil {
			return err
		}
	}
	return nil
}

func (p *proposals) end() error {
	err := p.flush(len(p.untraced))
	p.wait.end()
	return err
}

// policyVersion is what decided: the trace event's word, else the digest of the
// policies.
func (w *proposal) policyVersion() string {
	if w.trace.PolicyVersion != "" || w.Policy == nil {
		return w.trace.PolicyVersion
	}
	return w.Policy.Digest
}

// metadata has what aioc's records have no field for. Digests are keyed.
func (w *proposal) metadata() map[string]any {
	m := scalars("argsDigest", w.ArgsDigest, "decisionId", w.DecisionID, "verdict", string(w.Verdict))
	if w.Approval != nil {
		m["workflowId"] = w.Approval.WorkflowID
	}
	return m
}

// sessionEnds are the events by which a session ends, and how. aioc has none of
// its own; a run whose session ends in another protocol ends with it.
var sessionEnds = map[string]string{
	"SessionEnd": "completed", "agent.session.completed": "completed", "agent.session.errored": "failed", "agent.session.cancelled": "failed",
}

// ended says how the event of a record ends its session, "" if it does not.
func (w *writer) ended(r evidence.Record) string {
	if r.Kind != evidence.KindEvent {
		return ""
	}
	p, err := w.Space.Parse(r.Subject)
	if err != nil {
		return ""
	}
	return sessionEnds[p.Type]
}
