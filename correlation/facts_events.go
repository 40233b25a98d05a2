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
	f.callID, f.tool = boundID(callID), boundID(tool)
	f.setCallKey(callKeyOf(callID, tool))
}

// agentHookKinds are the types that mean something for a call; see also
// agentHookKind.
var agentHookKinds = map[string]factKind{
	agenthook.PreToolUse:      kindPre,
	agenthook.PostToolUse:     kindPost,
	agenthook.ToolUseBlocked:  kindStopped,
	agenthook.ErrorOccurred:   kindError,
	agenthook.ToolUseResumed:  kindApproval,
	agenthook.ApprovalGranted: kindApproval,
	agenthook.ApprovalDenied:  kindApproval,
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
	f.kind, f.eventID, f.agent = agentHookKinds[e.EventType], e.EventID, boundID(e.AgentID)
	f.setCall(e.ToolCallID(), e.ToolName)
	f.preCommit = e.EvidencePhase == agenthook.PhasePreCommit
	if request {
		f.requestFlags = requestFlagsOf(e)
	} else {
		f.hook = hooksession.NewEvent(e)
	}
	agentHookLineage(f, e)
	if e.CorrelationID != "" {
		f.relatedEventIDs = []string{agenthook.NormaliseID(e.CorrelationID)}
	}
	agentHookClaims(f, e)
	if retry, ok := e.Retry(); ok && retry.PreviousToolCallID != "" {
		f.retriedKey = callKeyOf(retry.PreviousToolCallID, "")
	}
	agentHookTimes(f, e)
	switch f.kind {
	case kindPre:
		if request {
			f.kind = kindRequest
		}
		f.frameSum = x.trimmedSum(frameOmits, frameMetadataOmits)
		f.args = inputArguments(x)
		f.coreSum = coreOf(f, x)
		f.targetSum = targetOf(e)
		if r, ok := e.Risk(); ok && r.RequiresHumanApproval != nil {
			f.needsHuman = *r.RequiresHumanApproval
		}
		if t, ok := e.ToolIdentity(); ok {
			f.canonicalTool = boundID(t.CanonicalName)
		}
	case kindPost:
		agentHookPost(f, x)
	case kindError:
		agentHookError(f, e)
	case kindStopped:
		f.outcome, f.verdictClaim = "blocked", verdictClaim{verdict: events.Deny, seq: f.seq}
	case kindApproval:
		if f.hook != nil && f.hook.VoidApproval {
			f.kind = kindOther
			break
		}
		a := f.approval.valueOrZero()
		a.status = firstNonEmpty(a.status, impliedStatus[e.EventType])
		f.approval = a.pointerOrNil()
	}
	if f.eventID != "" && f.coreSum == (sum{}) {
		f.coreSum = x.trimmedSum(coreOmits, coreMetadataOmits)
	}
	if request && f.kind != kindRequest {
		f.kind = kindOtherRequest
	}
}

func agentHookClaims(f *fact, e *agenthook.Event) {
	if v, ok := e.AdmissionVerdict(); ok {
		f.verdictClaim = verdictClaim{verdict: parseClaimedVerdict(v.Verdict), seq: f.seq, decidedAt: parseInstant(v.DecidedAt)}
	}
	if f.hook != nil && f.hook.VoidApproval {
		return
	}
	if a, ok := e.Approval(); ok {
		f.approval = approval{
			status: a.Status, workflow: boundID(a.WorkflowID), action: boundID(a.ActionID),
			decidedAt: parseInstant(a.DecidedAt), expiresAt: parseInstant(a.ExpiresAt), resumePolicy: boundID(a.ResumePolicy),
		}.pointerOrNil()
		f.receiptDecisionID = agenthook.NormaliseID(a.DecisionRef)
		f.decisionRef = f.receiptDecisionID
	}
}

func inputArguments(x hookEvent) arguments {
	canonical, there, err := x.canonicalInput()
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
	f.effect = hadEffect
	if x, ok := e.Execution(); ok {
		f.outcome, f.startedAt, f.hasMutationReason = boundID(x.Outcome), parseInstant(x.StartedAt), strings.TrimSpace(x.MutationReason) != ""
		if x.DidNotRun(e.hasExecutedArguments()) {
			f.effect = noEffect
		}
	}
	if canonical := e.canonicalExecuted(); canonical != nil {
		f.args = newArguments(canonical, e.keys, redactedArguments(e.Event))
	}
	f.lacksCallID = f.callKey.id == "" && f.retriedKey != (callKey{})
}

func agentHookError(f *fact, e *agenthook.Event) {
	mode, is := e.FailMode()
	switch {
	case is && mode.Triggered && mode.Outcome == string(events.Allow):
		f.kind = kindFailOpen
	case is && mode.Triggered:
		f.kind, f.outcome, f.verdictClaim = kindStopped, "denied", verdictClaim{verdict: events.Deny, seq: f.seq}
	case is || !e.ClosesCall():
		f.kind = kindOther
	default:
		f.outcome = "failed"
	}
}

// aaepFact reads an AAEP event. core is the sum of its document, and inSession
// makes of it what its session wants to know.
func aaepFact(f *fact, e *aaep.Event, core sum, inSession func() *aaepsession.Event, request bool) {
	f.eventID, f.agent = e.EventID, boundID(e.Producer.AgentID)
	f.setCall(e.ToolCallID(), e.Tool())
	if !request {
		f.aaep = inSession()
	}
	aaepLineage(f, e)
	f.coreSum, f.frameSum, f.producerTimes.happenedAt = core, core, e.Time
	switch p := e.Payload.(type) {
	case *aaep.ToolInvoked:
		f.kind = kindPre
		if p.ExpectedDurationMS != nil && *p.ExpectedDurationMS > 0 {
			f.expectedDuration = time.Duration(min(*p.ExpectedDurationMS, maxExpectedDuration.Milliseconds())) * time.Millisecond
		}
	case *aaep.ToolCompleted:
		f.kind, f.outcome, f.effect = kindPost, boundID(p.Status), hadEffect
		f.producerTimes.durationMS = nonNegative(p.DurationMS)
		if p.Status == "error" || p.Status == "timeout" {
			f.effect = maybeEffect
		}
	}
	switch {
	case e.IsTerminal():
		f.kind = kindSessionEnd
	case e.IsReply():
		f.kind = kindQuestionReply
	}
	if request && f.kind == kindPre {
		f.kind = kindRequest
	} else if request {
		f.kind = kindOtherRequest
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

// memberNames are names of members.
type memberNames = strictjson.Names[bool]

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

// hasPlainIDs reports whether withPlainIDs changes nothing in a flat document.
func hasPlainIDs(v strictjson.Value) bool {
	parent := v.Get("metadata").Get("web").Get("parent_event_id")
	for _, id := range []strictjson.Value{v.Get("event_id"), v.Get("correlation_id"), parent} {
		if id.Kind() == strictjson.KindString && agenthook.NormaliseID(id.Text()) != id.Text() {
			return false
		}
	}
	return true
}

// trimmedTree copies a tree without some members of it and of its metadata.
func trimmedTree(tree map[string]any, omit, omitMetadata *memberNames) map[string]any {
	dropped := func(n *memberNames) func(string, any) bool {
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
	b, err := x.coreRemainder()
	if err != nil {
		return sum{}
	}
	return sumOf(string(f.frameSum[:]), string(f.args.plainSum[:]), string(b))
}

func treeSum(tree map[string]any) sum {
	b, err := strictjson.Canonical(tree)
	if err != nil {
		return sum{}
	}
	return sumOfBytes(b)
}
