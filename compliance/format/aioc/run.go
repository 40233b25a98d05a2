package aioc

import (
	"cmp"

	"github.com/countersign-dev/countersign/compliance/format/encode"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/evidence"
)

// Bounds of the open runs: their number, and the number of their decisions and calls together. Beyond
// a bound, the run that has been idle longest is written; what comes of it later is another part.
const (
	maxRuns     = 10_000
	maxRunItems = 100_000
)

// runRecord is aioc's run record (aioc.md 1.2) of a session with proposals. Countersign sees proposals
// and their outcomes, not the conversation: the members for the conversation are empty, and
// metadata.absent lists them.
type runRecord struct {
	RunID     string        `json:"runId"`
	Started   events.Time   `json:"startedAt"`
	Completed events.Time   `json:"completedAt"`
	Status    string        `json:"status"`
	AgentName string        `json:"agentName"`
	Question  string        `json:"question"`
	Response  string        `json:"response"`
	Context   *string       `json:"contextSnapshot"` // always null
	Redacted  bool          `json:"contextRedacted"`
	Items     []runItem     `json:"items"`
	Prompts   []string      `json:"promptSnapshots"`     // always empty
	Requests  []string      `json:"requestFingerprints"` // always empty
	Decisions []runDecision `json:"policyDecisions"`
	ErrorName string        `json:"errorName,omitempty"`
	Metadata  runMetadata   `json:"metadata"`
}

type runItem struct {
	Type   string     `json:"type"` // tool_call_item tool_call_output_item
	CallID string     `json:"callId"`
	Name   string     `json:"name,omitempty"`
	Output *runOutput `json:"output,omitempty"`
}

// runOutput is a result envelope without its data.
type runOutput struct {
	Status string  `json:"status"`
	Code   *string `json:"code"`
	Public *string `json:"publicReason"`
	Data   *string `json:"data"` // always null
}

type runDecision struct {
	At       events.Time    `json:"timestamp"`
	Turn     int64          `json:"turn"`
	CallID   string         `json:"callId"`
	Decision string         `json:"decision"`
	Reason   string         `json:"reason"`
	Public   string         `json:"publicReason,omitempty"`
	Mode     string         `json:"resultMode,omitempty"`
	Version  string         `json:"policyVersion,omitempty"`
	Resource runResource    `json:"resource"`
	Expires  string         `json:"expiresAt,omitempty"`
	Metadata map[string]any `json:"metadata"`
}

type runResource struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Action string `json:"action,omitempty"`
}

type runMetadata struct {
	Absent    []string `json:"absent"`            // members that evidence cannot fill
	Derived   []string `json:"derived,omitempty"` // members that follow from the records, not from the runtime's statement
	Part      int      `json:"part,omitempty"`    // of a run that was written in several parts, from 1
	Shard     string   `json:"shard"`
	FirstSeq  uint64   `json:"firstSeq"`
	LastSeq   uint64   `json:"lastSeq"`
	Countersg string   `json:"exporter"`
}

var runAbsent = []string{"question", "response", "contextSnapshot", "items[].arguments", "items[].output.data", "promptSnapshots", "requestFingerprints", "suspendedProposals"}

// openRun is a run that has not ended.
type openRun struct {
	runRecord
	size int
}

type runEncoder struct {
	out         *encode.Writer
	proposals   *proposalReader
	open        map[string]*openRun
	leastRecent *encode.Recent // the sessions of open runs
	parts       *encode.Recent // how many parts of a run were written, as a string of as many dots
	items       int
}

func newRuns(w *encode.Writer) encode.Encoder {
	r := &runEncoder{out: w, open: map[string]*openRun{}, leastRecent: encode.NewRecent(0), parts: encode.NewRecent(10 * maxRuns)}
	r.proposals = newProposals(w, r.addDecision)
	return r
}

func (e *runEncoder) Add(i encode.Item) error {
	if err := e.proposals.readItem(i); err != nil {
		return err
	}
	r := i.Record
	if status := sessionEnd(e.out, r); status != "" {
		if err := e.proposals.flushOldest(len(e.proposals.untraced)); err != nil {
			return err
		}
		if run := e.open[r.Session]; run != nil {
			run.Status, run.Completed, run.Metadata.LastSeq = status, r.BrokerTime, r.Seq
			return e.writeRun(r.Session, run, false)
		}
	}
	if r.Kind == evidence.KindCall && e.open[r.Session] != nil {
		c, ok := encode.ReadRecord[events.Call](e.out, r)
		if out := callOutput(c); ok && out != nil && kinds[c.Protocol] != "" {
			return e.changeRun(i, func(run *openRun) {
				run.Items = append(run.Items, runItem{Type: "tool_call_output_item", CallID: c.ToolCallID, Output: out})
			})
		}
	}
	return nil
}

// callOutput is the output of a finished call, or nil if there is none: a failed call raised an error,
// and the output of a denied call is written with the decision.
func callOutput(c events.Call) *runOutput {
	if c.State == events.CallCompleted {
		return &runOutput{Status: "ok"}
	}
	return nil
}

func (e *runEncoder) addDecision(p *proposal) error {
	r := p.item.Record
	if r.Session == "" {
		e.out.CountSkipped(encode.SkippedNoSession)
		return nil
	}
	if e.open[r.Session] == nil {
		e.open[r.Session] = &openRun{runRecord: runRecord{
			RunID: encode.SafeName(r.Session), Started: r.BrokerTime, Redacted: true, Items: []runItem{}, Prompts: []string{}, Requests: []string{},
			Metadata: runMetadata{Absent: runAbsent, Shard: r.Shard, FirstSeq: r.Seq, Countersg: "countersign " + e.out.Version},
		}}
	}
	if p.decision == aioc.Allow {
		p.trace.ResultMode = "" // an allow has none (aioc.md 2.1)
	}
	return e.changeRun(p.item, func(run *openRun) {
		run.AgentName = p.Agent
		run.Decisions = append(run.Decisions, runDecision{
			At: p.DecidedAt, Turn: p.turn, CallID: p.ToolCallID, Decision: p.decision, Reason: p.reason, Public: p.trace.PublicReason, Mode: p.trace.ResultMode,
			Version: p.policyVersion(), Resource: runResource{p.kind, p.name, p.Action}, Expires: p.trace.ExpiresAt, Metadata: p.metadata(),
		})
		name := p.name
		if p.kind == "handoff" {
			name = cmp.Or(p.Tool, name) // the name of the handoff as a tool
		}
		run.Items = append(run.Items, runItem{Type: "tool_call_item", CallID: p.ToolCallID, Name: name})
		run.ErrorName = ""
		switch {
		case p.decision == aioc.Allow:
		case p.trace.ResultMode == aioc.ModeToolResult:
			run.Items = append(run.Items, runItem{Type: "tool_call_output_item", CallID: p.ToolCallID, Output: refusedOutput(p)})
		default: // thrown: the runtime ends the run (RFC-0002)
			run.ErrorName = runtimeErrors[p.decision][p.kind]
		}
	})
}

func refusedOutput(p *proposal) *runOutput {
	status := map[string]string{aioc.Deny: "denied", aioc.RequireApproval: "approval_required"}[p.decision]
	return &runOutput{Status: status, Code: encode.TextPointer(p.reason), Public: encode.TextPointer(p.trace.PublicReason)}
}

// runtimeErrors are the errors with which a runtime ends a run (aioc.md 2.3).
var runtimeErrors = map[string]map[string]string{
	aioc.Deny:            {"tool": "ToolCallPolicyDeniedError", "handoff": "HandoffPolicyDeniedError"},
	aioc.RequireApproval: {"tool": "ToolCallApprovalRequiredError", "handoff": "HandoffApprovalRequiredError"},
}

// changeRun changes an open run, and writes runs that have been idle longest while a bound is exceeded.
func (e *runEncoder) changeRun(i encode.Item, change func(*openRun)) error {
	r := i.Record
	run := e.open[r.Session]
	change(run)
	run.Completed, run.Metadata.LastSeq = r.BrokerTime, r.Seq
	n := len(run.Items) + len(run.Decisions)
	e.items += n - run.size
	run.size = n
	e.leastRecent.Put(r.Session, "")
	for len(e.open) > maxRuns || e.items > maxRunItems {
		session, _ := e.leastRecent.OldestKey()
		if err := e.writeRun(session, e.open[session], true); err != nil {
			return err
		}
	}
	return nil
}

// writeRun writes a run; more says that the run may continue.
func (e *runEncoder) writeRun(session string, run *openRun, more bool) error {
	delete(e.open, session)
	e.leastRecent.Remove(session)
	e.items -= run.size
	if run.Status == "" {
		// The log does not say how the run ended, or that it ended.
		run.Metadata.Derived = append(run.Metadata.Derived, "status", "completedAt")
		run.Status = cmp.Or(map[bool]string{true: "failed"}[run.ErrorName != ""], "completed")
	} else if run.Status == "completed" {
		run.ErrorName = ""
	}
	if parts, _ := e.parts.Get(session); more || parts != "" {
		e.parts.Put(session, parts+".")
		run.Metadata.Part = len(parts) + 1
	}
	return e.out.WriteJSON(run.runRecord)
}

func (e *runEncoder) End() error {
	if err := e.proposals.end(); err != nil {
		return err
	}
	for session, more := e.leastRecent.OldestKey(); more; session, more = e.leastRecent.OldestKey() {
		if err := e.writeRun(session, e.open[session], false); err != nil {
			return err
		}
	}
	return nil
}
