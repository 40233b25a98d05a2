package format

import (
	"cmp"
	"maps"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	hookschema "github.com/countersign-dev/countersign/schemas/agenthook"
)

// agentHookEncoder writes the events that asked for admission in their evidence form (agenthook.md,
// H-02): the redacted event with the verdict added.
type agentHookEncoder struct {
	out     *lineWriter
	pending *pendingRequests
}

func newAgentHook(w *lineWriter) encoder { return &agentHookEncoder{w, newPendingRequests(w)} }

func (e *agentHookEncoder) end() error {
	e.pending.countRemaining()
	return nil
}

func (e *agentHookEncoder) add(i Item) error {
	r := i.Record
	switch r.Kind {
	case evidence.KindRequest:
		if e.out.protocolOf(r) == subject.ProtoAgentHook {
			e.pending.put(r)
		}
	case evidence.KindDecision:
		d, ok := readRecord[events.Decision](e.out, r)
		if !ok || d.Protocol != subject.ProtoAgentHook {
			return nil
		}
		req, there := e.pending.pop(d.DecisionID)
		if !there {
			e.out.countSkipped(SkippedNoRequest)
			return nil
		}
		return e.writeStamped(d, req)
	}
	return nil
}

// writeStamped writes one event, if it is a valid one.
func (e *agentHookEncoder) writeStamped(d events.Decision, req request) error {
	valid := req.body != nil && len(hookschema.Validate(strictjson.FromTree(req.body))) == 0 && agenthook.AdmissionCapable(textAt(req.body, "event_type"))
	if !valid {
		e.out.countSkipped(SkippedInvalid)
		return nil
	}
	event := maps.Clone(req.body)
	sent, _ := event["metadata"].(map[string]any)
	meta := maps.Clone(sent)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["admission_verdict"] = admissionVerdict(d)
	delete(meta, "approval") // the request's own statement about it is only a claim
	if d.Approval != nil {
		meta["approval"] = approvalBlock(*d.Approval, d.Verdict)
	}
	addRedactionNote(meta, req.record)
	event["metadata"] = meta
	line, err := strictjson.Canonical(event)
	if err != nil {
		e.out.countSkipped(SkippedInvalid)
		return nil
	}
	return e.out.writeLine(line)
}

// agentHookVerdicts maps Countersign's verdicts to AgentHook's.
var agentHookVerdicts = map[events.Verdict]string{events.Allow: "allow", events.Ask: "ask", events.Defer: "ask", events.Deny: "deny"}

// admissionVerdict is the verdict of the decision record. It ignores the event's own statement.
func admissionVerdict(d events.Decision) map[string]any {
	v := scalarMap("verdict", cmp.Or(agentHookVerdicts[d.Verdict], "deny"), "subscriber", "countersign", "decided_at", d.DecidedAt.String(),
		"claim_reference", d.DecisionID, "reason", cmp.Or(append(decidingCodes(d), "")...))
	if d.Policy != nil && d.Policy.Name != "" {
		v["policy_id"] = d.Policy.Name
	}
	return v
}

// agentHookStatuses are the approval statuses that AgentHook knows; a consumed approval was approved.
var agentHookStatuses = map[string]string{"pending": "pending", "approved": "approved", "denied": "denied", "expired": "expired", "cancelled": "cancelled", "consumed": "approved"}

func approvalBlock(a events.ApprovalRef, v events.Verdict) map[string]any {
	out := scalarMap("workflow_id", a.WorkflowID, "action_id", a.ActionID, "requested_at", a.RequestedAt.String(), "expires_at", a.ExpiresAt.String(), "resume_policy", a.ResumePolicy)
	out["required"] = true
	out["status"] = cmp.Or(agentHookStatuses[a.Status], map[bool]string{true: "approved", false: "pending"}[v == events.Allow])
	return out
}

// addRedactionNote adds the paths of our redactions to the event's own redaction block.
func addRedactionNote(meta map[string]any, r evidence.Record) {
	var fields []any
	block, _ := meta["redaction"].(map[string]any)
	if sent, is := block["fields"].([]any); is {
		fields = append(fields, sent...)
	}
	known := map[string]bool{}
	for _, f := range fields {
		s, _ := f.(string)
		known[s] = true
	}
	for _, red := range r.Redactions {
		place, inBody := strings.CutPrefix(red.Path, "/body/")
		place = pointerToDots.Replace(place)
		if inBody && !known[place] {
			known[place] = true
			fields = append(fields, place)
		}
	}
	if len(fields) == 0 {
		return
	}
	block = maps.Clone(block)
	if block == nil {
		block = map[string]any{}
	}
	block["applied"], block["fields"] = true, fields
	meta["redaction"] = block
}

var pointerToDots = strings.NewReplacer("/", ".", "~1", "/", "~0", "~")
