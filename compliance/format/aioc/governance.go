package aioc

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/countersign-dev/countersign/compliance/format/encode"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
)

// governanceSchema is the schema version of the events (aioc.md 1.3).
const governanceSchema = "aioc.governance_event.v0"

// governanceEvent is one governance event. It never has a trace of prompts, because Countersign sees
// none. Evidence never has a plain hash of arguments or of a proposal; the keyed digest is in the
// metadata.
type governanceEvent struct {
	Schema    string            `json:"schemaVersion"`
	ID        string            `json:"id"`
	Type      string            `json:"type"`
	At        events.Time       `json:"occurredAt"`
	Severity  string            `json:"severity"`
	RunID     string            `json:"runId"`
	AgentName string            `json:"agentName,omitempty"`
	Status    string            `json:"status,omitempty"` // of the end of a run
	Subject   governanceSubject `json:"subject"`
	Policy    *governancePolicy `json:"policy,omitempty"`
	Metadata  map[string]any    `json:"metadata,omitempty"`
}

type governanceSubject struct {
	Kind   string `json:"kind"` // run tool handoff approval
	Name   string `json:"name,omitempty"`
	Turn   int64  `json:"turn,omitempty"`
	CallID string `json:"callId,omitempty"`
}

type governancePolicy struct {
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	Public   string `json:"publicReason,omitempty"`
	Version  string `json:"policyVersion,omitempty"`
	Mode     string `json:"resultMode,omitempty"`
	Expires  string `json:"expiresAt,omitempty"`
}

// governanceTypes is the table of RFC-0009 for decisions.
var governanceTypes = map[string]struct{ typ, severity string }{
	aioc.Allow:           {"aioc.policy.allowed", "info"},
	aioc.Deny:            {"aioc.policy.denied", "warn"},
	aioc.RequireApproval: {"aioc.approval.required", "warn"},
}

// governanceRuns is the table of RFC-0009 for the end of a run.
var governanceRuns = map[string]struct{ typ, severity string }{
	"completed": {"aioc.run.completed", "info"},
	"failed":    {"aioc.run.failed", "error"},
}

// governanceEncoder writes governance events in the order in which they happened. The original
// implementation writes the end of a run first, because it writes nothing earlier.
type governanceEncoder struct {
	out       *encode.Writer
	proposals *proposalReader
	runs      *encode.Recent // agents of the runs that had a proposal
}

func newGovernance(w *encode.Writer) encode.Encoder {
	g := &governanceEncoder{out: w, runs: encode.NewRecent(maxRuns)}
	g.proposals = newProposals(w, g.writeDecision)
	return g
}

func (g *governanceEncoder) Add(i encode.Item) error {
	if err := g.proposals.readItem(i); err != nil {
		return err
	}
	status := sessionEnd(g.out, i.Record)
	if _, known := g.runs.Get(i.Record.Session); status == "" || !known {
		return nil
	}
	if err := g.proposals.flushOldest(len(g.proposals.untraced)); err != nil {
		return err
	}
	agent, _ := g.runs.Get(i.Record.Session)
	g.runs.Remove(i.Record.Session)
	kind := governanceRuns[status]
	return g.out.WriteJSON(governanceEvent{
		Schema: governanceSchema, ID: governanceID(kind.typ, encode.SafeName(i.Record.Session), "run"), Type: kind.typ, At: i.Record.BrokerTime, Severity: kind.severity,
		RunID: encode.SafeName(i.Record.Session), AgentName: agent, Status: status, Subject: governanceSubject{Kind: "run"},
		Metadata: map[string]any{"countersign": encode.ProofOf(i, "")},
	})
}

func (g *governanceEncoder) End() error { return g.proposals.end() }

func (g *governanceEncoder) writeDecision(p *proposal) error {
	session := p.item.Record.Session
	if session == "" {
		g.out.CountSkipped(encode.SkippedNoSession)
		return nil
	}
	g.runs.Put(session, p.Agent)
	kind := governanceTypes[p.decision]
	m := p.metadata()
	m["countersign"] = encode.ProofOf(p.item, p.DecisionID)
	subject := governanceSubject{p.kind, p.name, p.turn, p.ToolCallID}
	key := "policy:" + strconv.FormatInt(p.turn, 10) + ":" + p.ToolCallID + ":" + p.decision
	if p.decision == aioc.RequireApproval {
		// Evidence has no plain hash of the proposal, so RFC-0009's "unknown" stands for it.
		subject.Kind, key = "approval", "approval:"+strconv.FormatInt(p.turn, 10)+":"+p.ToolCallID+":unknown"
	}
	return g.out.WriteJSON(governanceEvent{
		Schema: governanceSchema, ID: governanceID(kind.typ, encode.SafeName(session), key), Type: kind.typ, At: p.DecidedAt, Severity: kind.severity, RunID: encode.SafeName(session),
		AgentName: p.Agent, Subject: subject, Metadata: m,
		Policy: &governancePolicy{p.decision, p.reason, p.trace.PublicReason, p.policyVersion(), p.trace.ResultMode, p.trace.ExpiresAt},
	})
}

// governanceID is deterministic, as RFC-0009 requires.
func governanceID(typ, run, key string) string {
	sum := sha256.Sum256([]byte(governanceSchema + "|" + typ + "|" + run + "|" + key))
	return hex.EncodeToString(sum[:])
}
