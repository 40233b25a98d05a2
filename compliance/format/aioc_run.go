package format

import (
	"cmp"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/evidence"
)

// Bounds of what is held of runs that are not over: how many there are, and how
// many decisions and calls they have together. What has been quiet longest is
// written when there is more, and what comes of it later is another part.
const (
	maxRuns     = 10_000
	maxRunItems = 100_000
)

// runRecord is aioc's run record (aioc.md 1.2) of a session with proposals.
// Countersign sees proposals and what became of them, not the conversation: the
// members that hold it are empty, and metadata.absent lists them.
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
	Derived   []string `json:"derived,omitempty"` // members that follow from the records, not from the runtime's word
	Part      int      `json:"part,omitempty"`    // of a run that was written in several parts, from 1
	Shard     string   `json:"shard"`
	FirstSeq  uint64   `json:"firstSeq"`
	LastSeq   uint64   `json:"lastSeq"`
	Countersg string   `json:"exporter"`
}

var runAbsent = []string{"question", "response", "contextSnapshot", "items[].arguments", "items[].output.data", "promptSnapshots", "requestFingerprints", "suspendedProposals"}

// openRun is a run that is not over.
type openRun struct {
	runRecord
	size int
}

type runs struct {
	w     *writer
	p     *proposals
	open  map[string]*openRun
	quiet *recent // the sessions of open runs
	parts *recent // how many parts were written of a run, as so many dots
	items int
}

func newRuns(w *writer) encoder {
	r := &runs{w: w, open: map[string]*openRun{}, quiet: newRecent(0), parts: newRecent(10 * maxRuns)}
	r.p = newProposals(w, r.decision)
	return r
}

func (e *runs) add(i Item) error {
	if err := e.p.take(i); err != nil {
		return err
	}
	r := i.Record
	if status := e.w.ended(r); status != "" {
		if err := e.p.flush(len(e.p.untraced)); err != nil {
			return err
		}
		if run := e.open[r.Session]; run != nil {
			run.Status, run.Completed, run.Metadata.LastSeq = status, r.BrokerTime, r.Seq
			return e.write(r.Session, run, false)
		}
	}
	if r.Kind == evidence.KindCall && e.open[r.Session] != nil {
		c, ok := read[events.Call](e.w, r)
		if out := callOutput(c); ok && out != nil && aiocKinds[c.Protocol] != "" {
			return e.extend(i, func(run *openRun) {
				run.Items = append(run.Items, runItem{Type: "tool_call_output_item", CallID: c.ToolCallID, Output: out})
			})
		}
	}
	return nil
}

// callOutput is what a finished call gave back, nil for one that gave nothing:
// what failed raised an error, and what was denied has had its output with the
// decision.
func callOutput(c events.Call) *runOutput {
	if c.State == events.CallCompleted {
		return &runOutput{Status: "ok"}
	}
	return nil
}

func (e *runs) decision(p *proposal) error {
	r := p.item.Record
	if r.Session == "" {
		e.w.leave(LeftNoSession)
		return nil
	}
	if e.open[r.Session] == nil {
		e.open[r.Session] = &openRun{runRecord: runRecord{
			RunID: name(r.Session), Started: r.BrokerTime, Redacted: true, Items: []runItem{}, Prompts: []string{}, Requests: []string{},
			Metadata: runMetadata{Absent: runAbsent, Shard: r.Shard, FirstSeq: r.Seq, Countersg: "countersign " + e.w.Version},
		}}
	}
	if p.decision == aioc.Allow {
		p.trace.ResultMode = "" // an allow has none (aioc.md 2.1)
	}
	return e.extend(p.item, func(run *openRun) {
		run.AgentName = p.Agent
		run.Decisions = append(run.Decisions, runDecision{
			At: p.DecidedAt, Turn: p.turn, CallID: p.ToolCallID, Decision: p.decision, Reason: p.reason, Public: p.trace.PublicReason, Mode: p.trace.ResultMode,
			Version: p.policyVersion(), Resource: runResource{p.kind, p.name, p.Action}, Expires: p.trace.ExpiresAt, Metadata: p.metadata(),
		})
		name := p.name
		if p.kind == "handoff" {
			name = first(p.Tool, name) // the name of the handoff as a tool
		}
		run.Items = append(run.Items, runItem{Type: "tool_call_item", CallID: p.ToolCallID, Name: name})
		run.ErrorName = ""
		switch {
		case p.decision == aioc.Allow:
		case p.trace.ResultMode == aioc.ModeToolResult:
			run.Items = append(run.Items, runItem{Type: "tool_call_output_item", CallID: p.ToolCallID, Output: refusedOutput(p)})
		default: // thrown: the runtime ends the run (RFC-0002)
			run.ErrorName = thrown[p.decision][p.kind]
		}
	})
}

func refusedOutput(p *proposal) *runOutput {
	status := map[string]string{aioc.Deny: "denied", aioc.RequireApproval: "approval_required"}[p.decision]
	return &runOutput{Status: status, Code: some(p.reason), Public: some(p.trace.PublicReason)}
}

// thrown are the errors by which a runtime ends a run (aioc.md 2.3).
var thrown = map[string]map[string]string{
	aioc.Deny:            {"tool": "ToolCallPolicyDeniedError", "handoff": "HandoffPolicyDeniedError"},
	aioc.RequireApproval: {"tool": "ToolCallApprovalRequiredError", "handoff": "HandoffApprovalRequiredError"},
}

// extend changes an open run, and makes room when there is too much.
func (e *runs) extend(i Item, change func(*openRun)) error {
	r := i.Record
	run := e.open[r.Session]
	change(run)
	run.Completed, run.Metadata.LastSeq = r.BrokerTime, r.Seq
	n := len(run.Items) + len(run.Decisions)
	e.items += n - run.size
	run.size = n
	e.quiet.put(r.Session, "")
	for len(e.open) > maxRuns || e.items > maxRunItems {
		session, _ := e.quiet.oldest()
		if err := e.write(session, e.open[session], true); err != nil {
			return err
		}
	}
	return nil
}

// write writes a run; more says that it is not over.
func (e *runs) write(session string, run *openRun, more bool) error {
	delete(e.open, session)
	e.quiet.drop(session)
	e.items -= run.size
	if run.Status == "" {
		// Nothing in the log says how the run ended, or that it did.
		run.Metadata.Derived = append(run.Metadata.Derived, "status", "completedAt")
		run.Status = cmp.Or(map[bool]string{true: "failed"}[run.ErrorName != ""], "completed")
	} else if run.Status == "completed" {
		run.ErrorName = ""
	}
	if parts, _ := e.parts.get(session); more || parts != "" {
		e.parts.put(session, parts+".")
		run.Metadata.Part = len(parts) + 1
	}
	return e.w.line(run.runRecord)
}

func (e *runs) end() error {
	if err := e.p.end(); err != nil {
		return err
	}
	for session, more := e.quiet.oldest(); more; session, more = e.quiet.oldest() {
		if err := e.write(session, e.open[session], false); err != nil {
			return err
		}
	}
	return nil
}
