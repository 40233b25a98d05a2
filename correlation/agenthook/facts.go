package agenthook

import (
	"cmp"
	"strings"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// agentHookKinds are the kinds of the types that matter for a call.
var agentHookKinds = map[string]fact.Kind{
	agenthook.PreToolUse:      fact.KindPre,
	agenthook.PostToolUse:     fact.KindPost,
	agenthook.ToolUseBlocked:  fact.KindStopped,
	agenthook.ErrorOccurred:   fact.KindError,
	agenthook.ToolUseResumed:  fact.KindApproval,
	agenthook.ApprovalGranted: fact.KindApproval,
	agenthook.ApprovalDenied:  fact.KindApproval,
	agenthook.SessionEnd:      fact.KindSessionEnd,
}

// impliedStatus is the status of an approval event without an approval block.
var impliedStatus = map[string]string{
	agenthook.ToolUseResumed: fact.StatusApproved, agenthook.ApprovalGranted: fact.StatusApproved, agenthook.ApprovalDenied: fact.StatusDenied,
}

// agentHookFact sets f to the fact of an AgentHook event. request says that it is the
// admitter's copy of a request.
func agentHookFact(f *fact.Fact, x hookEvent, request bool) {
	e := x.Event
	f.Kind, f.EventID, f.Agent = agentHookKinds[e.EventType], e.EventID, fact.BoundID(e.AgentID)
	f.SetCall(e.ToolCallID(), e.ToolName)
	f.PreCommit = e.EvidencePhase == agenthook.PhasePreCommit
	if request {
		f.RequestFlags = requestFlagsOf(e)
	} else {
		f.Event = NewEvent(e)
	}
	agentHookLineage(f, e)
	if e.CorrelationID != "" {
		f.RelatedEventIDs = []string{events.NormaliseID(e.CorrelationID)}
	}
	agentHookClaims(f, e)
	if retry := e.Retry; retry != nil && retry.PreviousToolCallID != "" {
		f.RetriedKey = fact.CallKeyOf(retry.PreviousToolCallID, "")
	}
	agentHookTimes(f, e)
	switch f.Kind {
	case fact.KindPre:
		if request {
			f.Kind = fact.KindRequest
		}
		f.FrameSum = x.trimmedSum(fact.FrameOmits, fact.FrameMetadataOmits)
		f.Args = inputArguments(x)
		f.CoreSum = coreOf(f, x)
		f.TargetSum = targetOf(e)
		if r := e.Risk; r != nil && r.RequiresHumanApproval != nil {
			f.NeedsHuman = *r.RequiresHumanApproval
		}
		if t := e.ToolIdentity; t != nil {
			f.CanonicalTool = fact.BoundID(t.CanonicalName)
		}
	case fact.KindPost:
		agentHookPost(f, x)
	case fact.KindError:
		agentHookError(f, e)
	case fact.KindStopped:
		f.Outcome, f.VerdictClaim = "blocked", fact.VerdictClaim{Verdict: events.Deny, Seq: f.Seq}
	case fact.KindApproval:
		if EventOf(f) != nil && EventOf(f).VoidApproval {
			f.Kind = fact.KindOther
			break
		}
		a := f.Approval.ValueOrZero()
		a.Status = cmp.Or(a.Status, impliedStatus[e.EventType])
		f.Approval = a.PointerOrNil()
	}
	if f.EventID != "" && f.CoreSum == (fact.Sum{}) {
		f.CoreSum = x.trimmedSum(fact.CoreOmits, fact.CoreMetadataOmits)
	}
	if request && f.Kind != fact.KindRequest {
		f.Kind = fact.KindOtherRequest
	}
}

func agentHookClaims(f *fact.Fact, e *agenthook.Event) {
	if v := e.AdmissionVerdict; v != nil {
		f.VerdictClaim = fact.VerdictClaim{Verdict: fact.ParseClaimedVerdict(v.Verdict), Seq: f.Seq, DecidedAt: fact.ParseInstant(v.DecidedAt)}
	}
	if EventOf(f) != nil && EventOf(f).VoidApproval {
		return
	}
	if a := e.Approval; a != nil {
		f.Approval = fact.Approval{
			Status: a.Status, Workflow: fact.BoundID(a.WorkflowID), Action: fact.BoundID(a.ActionID),
			DecidedAt: fact.ParseInstant(a.DecidedAt), ExpiresAt: fact.ParseInstant(a.ExpiresAt), ResumePolicy: fact.BoundID(a.ResumePolicy),
		}.PointerOrNil()
		f.ReceiptDecisionID = events.NormaliseID(a.DecisionRef)
		f.DecisionRef = f.ReceiptDecisionID
	}
}

func inputArguments(x hookEvent) fact.Arguments {
	canonical := x.canonicalInput()
	if canonical == nil {
		canonical = []byte("{}") // missing and empty arguments are equal
	}
	return fact.NewArguments(canonical, x.keys, redactedArguments(x.Event))
}

func redactedArguments(e *agenthook.Event) []string {
	var paths []string
	for _, p := range e.RedactedFields() {
		if fact.ConcernsArguments(p) {
			paths = append(paths, p)
		}
	}
	return paths
}

func agentHookError(f *fact.Fact, e *agenthook.Event) {
	mode := e.FailMode
	switch {
	case mode != nil && mode.Triggered && mode.Outcome == string(events.Allow):
		f.Kind = fact.KindFailOpen
	case mode != nil && mode.Triggered:
		f.Kind, f.Outcome, f.VerdictClaim = fact.KindStopped, "denied", fact.VerdictClaim{Verdict: events.Deny, Seq: f.Seq}
	case mode != nil || !e.ClosesCall():
		f.Kind = fact.KindOther
	default:
		f.Outcome = "failed"
	}
}

func agentHookTimes(f *fact.Fact, e *agenthook.Event) {
	f.ProducerTimes.HappenedAt = e.Time
	if retry := e.Retry; retry != nil {
		f.ProducerTimes.Attempt = fact.NonNegative(retry.Attempt)
	}
	if f.Kind != fact.KindPost {
		return
	}
	f.ProducerTimes.SetDuration(e.DurationMS())
	if x := e.Execution; x != nil {
		f.ProducerTimes.CompletedAt = fact.ParseInstant(x.CompletedAt)
	}
}

// coreOf is the core of an event whose frame and arguments are known: their sums, and what the
// frame leaves out.
func coreOf(f *fact.Fact, x hookEvent) fact.Sum {
	if !f.Args.Known {
		return fact.Sum{}
	}
	return fact.SumOf(string(f.FrameSum[:]), string(f.Args.PlainSum[:]), string(x.coreRemainder()))
}

// withPlainIDs returns an object in which UUIDs of events are spelled as by events.NormaliseID, so
// that another spelling makes no other event.
func withPlainIDs(v strictjson.Value) strictjson.Value {
	for _, keys := range eventIDs {
		id := v
		for _, key := range keys {
			id = id.Get(key)
		}
		if plain := events.NormaliseID(id.Text()); plain != id.Text() {
			v = v.WithText(plain, keys...)
		}
	}
	return v
}

// eventIDs are where an event names events.
var eventIDs = [][]string{{"event_id"}, {"correlation_id"}, {"metadata", "web", "parent_event_id"}}

func agentHookLineage(f *fact.Fact, e *agenthook.Event) {
	l := &f.LineageRefs
	l.Trace, l.AnnouncesHandoff = fact.ValidTraceparent(e.Trace()), e.EventType == agenthook.AgentHandoff
	l.SetCorrelation(events.NormaliseID(e.CorrelationID))
	if e.EventType == agenthook.GoalSet || e.EventType == agenthook.GoalStatus {
		l.ParentSession = goalParent(e.Metadata)
	}
}

func agentHookPost(f *fact.Fact, e hookEvent) {
	f.Effect = fact.HadEffect
	if x := e.Execution; x != nil {
		f.Outcome, f.StartedAt, f.HasMutationReason = fact.BoundID(x.Outcome), fact.ParseInstant(x.StartedAt), strings.TrimSpace(x.MutationReason) != ""
		if x.DidNotRun(e.hasExecutedArguments()) {
			f.Effect = fact.NoEffect
		}
	}
	if canonical := e.canonicalExecuted(); canonical != nil {
		f.Args = fact.NewArguments(canonical, e.keys, redactedArguments(e.Event))
	}
	f.LacksCallID = f.CallKey.ID == "" && f.RetriedKey != (fact.CallKey{})
}

// EventOf is the Event of a fact; nil for requests and decisions.
func EventOf(f *fact.Fact) *Event {
	e, _ := f.Event.(*Event)
	return e
}

// goalParent is the parent session of a goal (AHP-010), in a block of its own or
// among the metadata.
func goalParent(metadata strictjson.Value) string {
	if goal := objectMember(metadata, "goal"); goal.Exists() {
		metadata = goal
	}
	return stringMember(metadata, "parent_session_id")
}
