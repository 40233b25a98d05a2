// Package agenthook writes AgentHook events with their verdicts.
package agenthook

import (
	"cmp"
	"maps"
	"strings"

	"github.com/countersign-dev/countersign/compliance/format/encode"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	hookschema "github.com/countersign-dev/countersign/schemas/agenthook"
)

// Evidence has the events that asked for admission, in their evidence form.
var Evidence = encode.Format{Make: newEncoder, About: "decisions on AgentHook events", Fields: []encode.Field{
	{Names: []string{"metadata.admission_verdict", "metadata.approval"}, From: "the decision; `claim_reference` is its id, `defer` is `ask`"},
	{Names: []string{"metadata.redaction"}, From: "what redaction took out"},
	{Names: []string{"evidence_phase"}, From: "as it was sent, like all the rest of the redacted event that asked"},
}}

// encoder writes the events that asked for admission in their evidence form (agenthook.md,
// H-02): the redacted event with the verdict added.
type encoder struct {
	out     *encode.Writer
	pending *encode.Requests
}

func newEncoder(w *encode.Writer) encode.Encoder {
	return &encoder{w, encode.NewRequests(w, subject.ProtoAgentHook)}
}

func (e *encoder) End() error {
	e.pending.CountRemaining()
	return nil
}

func (e *encoder) Add(i encode.Item) error {
	return e.pending.Match(i.Record, func(d events.Decision, req encode.Request, there bool) error {
		if !there {
			e.out.CountSkipped(encode.SkippedNoRequest)
			return nil
		}
		return e.writeStamped(d, req)
	})
}

// writeStamped writes one event, if it is a valid one.
func (e *encoder) writeStamped(d events.Decision, req encode.Request) error {
	valid := req.Body != nil && len(hookschema.Validate(strictjson.FromTree(req.Body))) == 0 && agenthook.AdmissionCapable(encode.TextAt(req.Body, "event_type"))
	if !valid {
		e.out.CountSkipped(encode.SkippedInvalid)
		return nil
	}
	event := maps.Clone(req.Body)
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
	addRedactionNote(meta, req.Record)
	event["metadata"] = meta
	line, err := strictjson.Canonical(event)
	if err != nil {
		e.out.CountSkipped(encode.SkippedInvalid)
		return nil
	}
	return e.out.WriteLine(line)
}

// verdicts maps Countersign's verdicts to AgentHook's.
var verdicts = map[events.Verdict]string{events.Allow: "allow", events.Ask: "ask", events.Defer: "ask", events.Deny: "deny"}

// admissionVerdict is the verdict of the decision record. It ignores the event's own statement.
func admissionVerdict(d events.Decision) map[string]any {
	v := encode.Scalars("verdict", cmp.Or(verdicts[d.Verdict], "deny"), "subscriber", "countersign", "decided_at", d.DecidedAt.String(),
		"claim_reference", d.DecisionID, "reason", cmp.Or(append(encode.DecidingCodes(d), "")...))
	if d.Policy != nil && d.Policy.Name != "" {
		v["policy_id"] = d.Policy.Name
	}
	return v
}

// statuses are the approval statuses that AgentHook knows; a consumed approval was approved.
var statuses = map[string]string{"pending": "pending", "approved": "approved", "denied": "denied", "expired": "expired", "cancelled": "cancelled", "consumed": "approved"}

func approvalBlock(a events.ApprovalRef, v events.Verdict) map[string]any {
	out := encode.Scalars("workflow_id", a.WorkflowID, "action_id", a.ActionID, "requested_at", a.RequestedAt.String(), "expires_at", a.ExpiresAt.String(), "resume_policy", a.ResumePolicy)
	out["required"] = true
	out["status"] = cmp.Or(statuses[a.Status], map[bool]string{true: "approved", false: "pending"}[v == events.Allow])
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
