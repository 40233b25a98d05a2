// Package aioc writes runs and governance events of aioc.
package aioc

import (
	"cmp"
	"math"

	"github.com/countersign-dev/countersign/compliance/format/encode"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
)

// The formats: run records and governance events.
var (
	Run = encode.Format{Make: newRuns, About: "runs with aioc tool or handoff proposals", Fields: fields,
		Note: "A run record is written when its session ends, or at the end of the export. Beyond 10,000 open runs or 100,000 decisions and outcomes the quietest are written early, and metadata.part counts the parts."}
	Governance = encode.Format{Make: newGovernance, About: "decisions on aioc tool or handoff proposals", Fields: fields}
)

var fields = []encode.Field{
	{Names: []string{"turn"}, From: "the redacted request, and so is the target of a handoff; a proposal without a turn has no line"},
	{Names: []string{"reason", "publicReason", "resultMode", "policyVersion", "expiresAt"}, From: "the decision's trace event, if it agrees; else the first reason code and the digest of the policies"},
	{Names: []string{"runId"}, From: "the session; a proposal without one has no line"},
	{Names: []string{"id"}, From: "of a governance event, as RFC-0009 computes it; for approvals with `unknown` in place of the proposal's hash"},
	{Names: []string{"status", "completedAt"}, From: "the event that ended the session, else the last records (`metadata.derived`)"},
	{Names: []string{"items"}, From: "proposals and their outcomes, without arguments and data"},
	{Names: []string{"trace", "providerName", "model", "question", "response", "contextSnapshot"}, From: "absent, null or empty, like prompts and fingerprints; listed in `metadata.absent`"},
}

// proposal is one decided aioc proposal: the decision, values of the redacted request, and the trace
// event that the admitter committed with it.
type proposal struct {
	events.Decision
	item     encode.Item
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
	out      *encode.Writer
	pending  *encode.Requests
	untraced []*proposal // oldest first
	handle   func(*proposal) error
}

func newProposals(w *encode.Writer, done func(*proposal) error) *proposalReader {
	return &proposalReader{out: w, pending: encode.NewRequests(w, subject.ProtoTool, subject.ProtoHandoff), handle: done}
}

var kinds = map[string]string{subject.ProtoTool: "tool", subject.ProtoHandoff: "handoff"}

// readItem processes one record.
func (p *proposalReader) readItem(i encode.Item) error {
	if i.Record.Kind == evidence.KindEvent {
		return p.addTrace(i.Record)
	}
	return p.pending.Match(i.Record, func(d events.Decision, req encode.Request, there bool) error {
		return p.addDecision(i, d, req, there)
	})
}

func (p *proposalReader) addDecision(i encode.Item, d events.Decision, req encode.Request, there bool) error {
	if !there {
		p.out.CountSkipped(encode.SkippedNoRequest)
		return nil
	}
	turn, ok := integerAt(req.Body, "turn")
	if !ok || turn < 1 {
		p.out.CountSkipped(encode.SkippedNoTurn)
		return nil
	}
	out := &proposal{Decision: d, item: i, turn: turn, kind: kinds[d.Protocol], name: d.Tool, decision: cmp.Or(decisions[d.Verdict], aioc.Deny),
		reason: cmp.Or(append(encode.DecidingCodes(d), "no_reason_recorded")...)}
	if out.kind == "handoff" {
		out.name = cmp.Or(encode.TextAt(req.Body, "toAgentName"), d.Tool)
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
	n, ok := encode.FloatOf(encode.ValueAt(tree, name))
	if !ok || n != math.Trunc(n) || math.Abs(n) > 1<<53 {
		return 0, false
	}
	return int64(n), true
}

// decisions maps Countersign's verdicts to aioc's decisions.
var decisions = map[events.Verdict]string{events.Allow: aioc.Allow, events.Ask: aioc.RequireApproval, events.Defer: aioc.RequireApproval, events.Deny: aioc.Deny}

// addTrace takes the values of a trace event for its decision, if the two agree. The first trace event
// is the admitter's: the admitter commits it together with the decision, so no other publisher
// knows the decision's id before.
func (p *proposalReader) addTrace(r evidence.Record) error {
	id := encode.HeaderValue(r, events.HeaderDecisionID)
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
	p.pending.CountRemaining()
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
	m := encode.Scalars("argsDigest", w.ArgsDigest, "decisionId", w.DecisionID, "verdict", string(w.Verdict))
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
func sessionEnd(w *encode.Writer, r evidence.Record) string {
	if r.Kind != evidence.KindEvent {
		return ""
	}
	p, err := w.Space.Parse(r.Subject)
	if err != nil {
		return ""
	}
	return sessionEnds[p.Type]
}
