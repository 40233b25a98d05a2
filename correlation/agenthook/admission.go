package agenthook

import (
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/subject"
)

// The statements of AgentHook requests, decisions and replies, and AgentHook's own checks of
// admission.

// requestFlagsOf returns the flags of an AgentHook request. A report-only request is let in
// whatever it says.
func requestFlagsOf(e *agenthook.Event) (k fact.RequestFlags) {
	if e.OnlyReports() {
		return fact.FlagReportsOnly
	}
	if v := e.AdmissionVerdict; v != nil && v.Subscriber != ownSubscriber {
		switch v.Verdict {
		case string(events.Deny):
			k |= fact.FlagDeniedElsewhere
		case string(events.Ask):
			k |= fact.FlagAskedElsewhere
		}
	}
	if TrustsAllHooks(e) {
		k |= fact.FlagHooksTrusted
	}
	runtime := e.Metadata.Get("managed_runtime")
	approval := runtime.MemberText("approval_status")
	if runtime.MemberText("registration_status") == "revoked" || approval == "denied" || approval == "expired" ||
		runtime.Get("device_registry").MemberText("posture") == "non_compliant" {
		k |= fact.FlagRuntimeRefused
	}
	return k
}

// declaredReasons are reasons of checks that the admitter makes with the declarations of
// publishers, which are not on the log, and their checks. See also fingerprintReason.
var declaredReasons = map[string]string{
	"publisher_mismatch":     "AH-C-015",
	"event_type_not_exposed": "AH-C-127",
}

// fingerprintReason is the reason that a manifest expects another fingerprint of a hook. It
// breaks AH-C-129 if the request calls the hook trusted.
const fingerprintReason = "hook_fingerprint_mismatch"

// decisionFindings are the checks that a recorded decision breaks by itself, or shows that its
// request breaks: a contradiction to the publisher's declaration (AH-C-015, AH-C-127), a late
// decision (AH-C-072), or a defer that does not say what it waits for (AH-C-101).
func decisionFindings(f *fact.Fact, d *events.Decision) []*catalogue.Finding {
	var notes []*catalogue.Finding
	say := func(check, what string) {
		found := fact.SingleEventFinding(check, what, f)
		found.Case = what
		notes = append(notes, found)
	}
	for _, r := range d.Reasons {
		if check := declaredReasons[r.Code]; check != "" && r.Evaluator == subject.ProtoAgentHook {
			say(check, "")
		}
	}
	if d.ReceivedAt.IsZero() {
		return notes
	}
	if d.DecidedAt.Sub(d.ReceivedAt.Time) > fact.RecommendedVerdictWait {
		say("AH-C-072", "")
	}
	if d.Verdict == events.Ask || d.Verdict == events.Defer {
		if lacks := missingApprovalField(d.Approval); lacks != "" {
			say("AH-C-101", lacks+" is missing")
		}
	}
	return notes
}

func missingApprovalField(a *events.ApprovalRef) string {
	switch {
	case a == nil || a.WorkflowID == "":
		return "the workflow"
	case a.ActionID == "":
		return "the action"
	case a.ExpiresAt.IsZero():
		return "the time until which it waits"
	case a.ResumePolicy == "":
		return "how to go on"
	}
	return ""
}

// replyFindings are the checks that a recorded reply breaks by itself (AH-C-070, AH-C-101).
func replyFindings(f *fact.Fact, r agenthook.Reply) []*catalogue.Finding {
	var notes []*catalogue.Finding
	if v := events.Verdict(r.Decision); v != events.Allow && v != events.Deny && v != events.Ask {
		notes = append(notes, fact.SingleEventFinding("AH-C-070", "the decision is none of allow, deny and ask", f))
	} else if r.Reason == "" {
		notes = append(notes, fact.SingleEventFinding("AH-C-070", "it gives no reason", f))
	}
	if a := r.Metadata.Approval; r.Decision == string(events.Ask) && (a == nil || a.WorkflowID == "") {
		notes = append(notes, fact.SingleEventFinding("AH-C-101", "the workflow is missing", f))
	}
	return notes
}

// targetOf identifies what an event acts on, whatever its tool and arguments. By this key
// AgentHook H-09 finds attempts to bypass an approval. It is zero unless action, resource kind
// and resource are known, as they are to the admitter.
func targetOf(e *agenthook.Event) fact.Sum {
	const nobodyKnows = "unknown"
	if e.Action == "" || e.ResourceKind == "" || e.ResourceKind == nobodyKnows || e.Resource == "" || e.Resource == nobodyKnows {
		return fact.Sum{}
	}
	return fact.SumOf("target", e.Action, e.ResourceKind, e.Resource)
}

// readAgentHookReason decodes a reason of AgentHook's evaluator.
func readAgentHookReason(r *events.Reason) fact.ReasonsSaid {
	return fact.ReasonsSaid{OtherFingerprint: r.Code == fingerprintReason}
}

// ownSubscriber is the subscriber's name in Countersign's own verdicts.
const ownSubscriber = "countersign"
