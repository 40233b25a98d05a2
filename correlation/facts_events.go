package correlation

import (
	"maps"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/aaepsession"
	"github.com/countersign-dev/countersign/correlation/hooksession"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// setCall names the call that a fact is about.
func (f *fact) setCall(callID, tool string) {
	f.callID, f.tool = show(callID), show(tool)
	f.setSlot(slotOf(callID, tool))
}

// agentHookKinds are the types that mean something for a call; see also
// agentHookKind.
var agentHookKinds = map[string]kind{
	agenthook.PreToolUse:      kindPre,
	agenthook.PostToolUse:     kindPost,
	agenthook.ToolUseBlocked:  kindStopped,
	agenthook.ErrorOccurred:   kindError,
	agenthook.ToolUseResumed:  kindGrant,
	agenthook.ApprovalGranted: kindGrant,
	agenthook.ApprovalDenied:  kindGrant,
	agenthook.SessionEnd:      kindSessionEnd,
}

// impliedStatus is what an approval event means where it has no approval block.
var impliedStatus = map[string]string{
	agenthook.ToolUseResumed: statusApproved, agenthook.ApprovalGranted: statusApproved, agenthook.ApprovalDenied: "denied",
}

// agentHookFact reads an AgentHook event; request tells that it is the admitter's
// copy of a request.
func agentHookFact(f *fact, x hookEvent, request bool) {
	e := x.Event
	f.kind, f.eventID, f.agent = agentHookKinds[e.EventType], e.EventID, show(e.AgentID)
	f.setCall(e.ToolCallID(), e.ToolName)
	f.preCommit = e.EvidencePhase == agenthook.PhasePreCommit
	if request {
		f.marks = marksOf(e)
	} else {
		f.hook = hooksession.NewEvent(e)
	}
	agentHookLineage(f, e)
	if e.CorrelationID != "" {
		f.links = []string{agenthook.NormaliseID(e.CorrelationID)}
	}
	agentHookClaims(f, e)
	if retry, ok := e.Retry(); ok && retry.PreviousToolCallID != "" {
		f.previous = slotOf(retry.PreviousToolCallID, "")
	}
	agentHookTimes(f, e)
	switch f.kind {
	case kindPre:
		if request {
			f.kind = kindRequest
		}
		f.frame = x.sum(frameOmits, frameMetadataOmits)
		f.args = inputArguments(x)
		f.core = coreOf(f, x)
		f.target = targetOf(e)
		if r, ok := e.Risk(); ok && r.RequiresHumanApproval != nil {
			f.human = *r.RequiresHumanApproval
		}
		if t, ok := e.ToolIdentity(); ok {
			f.canonical = show(t.CanonicalName)
		}
	case kindPost:
		agentHookPost(f, x)
	case kindError:
		agentHookError(f, e)
	case kindStopped:
		f.outcome, f.claim = "blocked", claim{verdict: events.Deny, seq: f.seq}
	case kindGrant:
		if f.hook != nil && f.hook.VoidApproval {
			f.kind = kindOther
			break
		}
		a := f.approval.value()
		a.status = first(a.status, impliedStatus[e.EventType])
		f.approval = a.ifKnown()
	}
	if f.eventID != "" && f.core == (sum{}) {
		f.core = x.sum(coreOmits, coreMetadataOmits)
	}
	if request && f.kind != kindRequest {
		f.kind = kindAsked
	}
}

func agentHookClaims(f *fact, e *agenthook.Event) {
	if v, ok := e.AdmissionVerdict(); ok {
		f.claim = claim{verdict: claimed(v.Verdict), seq: f.seq, decidedAt: instant(v.DecidedAt)}
	}
	if f.hook != nil && f.hook.VoidApproval {
		return
	}
	if a, ok := e.Approval(); ok {
		f.approval = approval{
			status: a.Status, workflow: show(a.WorkflowID), action: show(a.ActionID),
			decidedAt: instant(a.DecidedAt), expiresAt: instant(a.ExpiresAt), resume: show(a.ResumePolicy),
		}.ifKnown()
		f.receiptOf = agenthook.NormaliseID(a.DecisionRef)
		f.reference = f.receiptOf
	}
}

func inputArguments(x hookEvent) arguments {
	canonical, there, err := x.input()
	switch {
	case err != nil:
		return arguments{}
	case !there:
		canonical = []byte("{}") // no arguments are no arguments, however it is said
	}
	return newArguments(canonical, x.keys, redactedArguments(x.Event))
}

func redactedArguments(e *agenthook.Event) []string {
	var paths []string
	for _, p := range e.RedactedFields() {
		if concernsArguments(p) {
			paths = append(paths, p)
		}
	}
	return paths
}

func agentHookPost(f *fact, e hookEvent) {
	f.ran = ranYes
	if x, ok := e.Execution(); ok {
		f.outcome, f.startedAt, f.mutation = show(x.Outcome), instant(x.StartedAt), strings.TrimSpace(x.MutationReason) != ""
		if x.DidNotRun(e.executedSome()) {
			f.ran = ranNo
		}
	}
	if canonical := e.ran(); canonical != nil {
		f.args = newArguments(canonical, e.keys, redactedArguments(e.Event))
	}
	f.unnamed = f.slot.id == "" && f.previous != (slotKey{})
}

func agentHookError(f *fact, e *agenthook.Event) {
	mode, is := e.FailMode()
	switch {
	case is && mode.Triggered && mode.Outcome == string(events.Allow):
		f.kind = kindFailOpen
	case is && mode.Triggered:
		f.kind, f.outcome, f.claim = kindStopped, "denied", claim{verdict: events.Deny, seq: f.seq}
	case is || !e.Closes():
		f.kind = kindOther
	default:
		f.outcome = "failed"
	}
}

// aaepFact reads an AAEP event. core is the sum of its document, and inSession
// makes of it what its session wants to know.
func aaepFact(f *fact, e *aaep.Event, core sum, inSession func() *aaepsession.Event, request bool) {
	f.eventID, f.agent = e.EventID, show(e.Producer.AgentID)
	f.setCall(e.ToolCallID(), e.Tool())
	if !request {
		f.aaep = inSession()
	}
	aaepLineage(f, e)
	f.core, f.frame, f.said.at = core, core, e.Time
	switch p := e.Payload.(type) {
	case *aaep.ToolInvoked:
		f.kind = kindPre
		if p.ExpectedDurationMS != nil && *p.ExpectedDurationMS > 0 {
			f.expected = time.Duration(min(*p.ExpectedDurationMS, maxExpected.Milliseconds())) * time.Millisecond
		}
	case *aaep.ToolCompleted:
		f.kind, f.outcome, f.ran = kindPost, show(p.Status), ranYes
		f.said.durationMS = number(p.DurationMS)
		if p.Status == "error" || p.Status == "timeout" {
			f.ran = ranMaybe
		}
	}
	switch {
	case e.IsTerminal():
		f.kind = kindSessionEnd
	case e.IsReply():
		f.kind = kindAnswer
	}
	if request && f.kind == kindPre {
		f.kind = kindRequest
	} else if request {
		f.kind = kindAsked
	}
}

// What a request and the evidence forms of its event may differ in (AH-C-050),
// and what a frame leaves out beside it.
var (
	coreOmits          = strictjson.NamesOf(map[string]bool{"annotations": true})
	coreMetadataOmits  = strictjson.NamesOf(map[string]bool{"admission_verdict": true, "approval": true})
	frameOmits         = strictjson.NamesOf(map[string]bool{"annotations": true, "tool_input": true, "evidence_phase": true})
	frameMetadataOmits = strictjson.NamesOf(map[string]bool{"admission_verdict": true, "approval": true, "redaction": true})
)

// names are names of members.
type names = strictjson.Names[bool]

// withPlainIDs copies a tree with each UUID that names an event as NormaliseID
// spells it, so that the spelling of an id makes no other event.
func withPlainIDs(tree map[string]any) map[string]any {
	cp := maps.Clone(tree)
	for _, name := range []string{"event_id", "correlation_id"} {
		if id, ok := cp[name].(string); ok {
			cp[name] = agenthook.NormaliseID(id)
		}
	}
	meta, _ := cp["metadata"].(map[string]any)
	web, _ := meta["web"].(map[string]any)
	parent, _ := web["parent_event_id"].(string)
	if plain := agenthook.NormaliseID(parent); plain != parent {
		meta, web = maps.Clone(meta), maps.Clone(web)
		web["parent_event_id"], meta["web"], cp["metadata"] = plain, web, meta
	}
	return cp
}

// plainIDs reports whether withPlainIDs changes nothing in a flat document.
func plainIDs(v strictjson.Value) bool {
	parent := v.Get("metadata").Get("web").Get("parent_event_id")
	for _, id := range []strictjson.Value{v.Get("event_id"), v.Get("correlation_id"), parent} {
		if id.Kind() == strictjson.KindString && agenthook.NormaliseID(id.Text()) != id.Text() {
			return false
		}
	}
	return true
}

// trimmed copies a tree without some members of it and of its metadata.
func trimmed(tree map[string]any, omit, omitMetadata *names) map[string]any {
	dropped := func(n *names) func(string, any) bool {
		return func(key string, _ any) bool { _, out := n.Get(key); return out }
	}
	cp := withPlainIDs(tree)
	maps.DeleteFunc(cp, dropped(omit))
	if meta, ok := cp["metadata"].(map[string]any); ok {
		meta = maps.Clone(meta)
		maps.DeleteFunc(meta, dropped(omitMetadata))
		if cp["metadata"] = meta; len(meta) == 0 {
			delete(cp, "metadata")
		}
	}
	return cp
}

// coreOf is the core of an event whose frame and arguments are known: what the
// frame leaves out, beside it.
func coreOf(f *fact, x hookEvent) sum {
	if !f.args.known {
		return sum{}
	}
	b, err := x.rest()
	if err != nil {
		return sum{}
	}
	return sumOf(string(f.frame[:]), string(f.args.plain[:]), string(b))
}

func treeSum(tree map[string]any) sum {
	b, err := strictjson.Canonical(tree)
	if err != nil {
		return sum{}
	}
	return sumOfBytes(b)
}
