package correlation

import (
	hooksession "github.com/countersign-dev/countersign/correlation/agenthook"
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// What an AgentHook request, decision and reply say, and the checks of admission that only AgentHook has.

// isReportOnly reports whether a request only tells of something: types that propose
// something never do, named ones that do not do unless they are said to wait, and
// unknown ones if they say so.
func isReportOnly(e *agenthook.Event) bool {
	switch {
	case agenthook.AdmissionCapable(e.EventType):
		return false
	case agenthook.IsKnownType(e.EventType):
		return e.EvidencePhase != agenthook.PhasePreCommit
	}
	return e.EvidencePhase == agenthook.PhaseObservational || e.EvidencePhase == agenthook.PhasePostHoc
}

// requestFlagsOf reads the marks of an AgentHook request. What only tells of something is
// let in whatever it tells.
func requestFlagsOf(e *agenthook.Event) (k fact.RequestFlags) {
	if isReportOnly(e) {
		return fact.FlagReportsOnly
	}
	if v, ok := e.AdmissionVerdict(); ok && v.Subscriber != ownSubscriber {
		switch v.Verdict {
		case string(events.Deny):
			k |= fact.FlagDeniedElsewhere
		case string(events.Ask):
			k |= fact.FlagAskedElsewhere
		}
	}
	if hooksession.TrustsAllHooks(e) {
		k |= fact.FlagHooksTrusted
	}
	runtime, _ := e.Metadata["managed_runtime"].(map[string]any)
	if runtime == nil {
		return k
	}
	registry, _ := runtime["device_registry"].(map[string]any)
	if runtime["registration_status"] == "revoked" || runtime["approval_status"] == "denied" || runtime["approval_status"] == "expired" ||
		registry["posture"] == "non_compliant" {
		k |= fact.FlagRuntimeRefused
	}
	return k
}

// declaredReasons are the checks that the admitter decides by what is declared of
// publishers, which is not on the log, and records. See also fingerprintReason.
var declaredReasons = map[string]string{
	"publisher_mismatch":     "AH-C-015",
	"event_type_not_exposed": "AH-C-127",
}

// fingerprintReason is that a manifest expects another fingerprint of a hook. It breaks
// AH-C-129 if the hook calls itself trusted, which the request says.
const fingerprintReason = "hook_fingerprint_mismatch"

// decisionFindings are the checks that a recorded decision breaks, or says that its
// request breaks, by itself: it contradicts what is declared of its publisher
// (AH-C-015, AH-C-127), took too long (AH-C-072), or was put off without a word on
// what it waits for (AH-C-101).
func decisionFindings(f *fact.Fact, d *events.Decision) []*catalogue.Finding {
	var notes []*catalogue.Finding
	say := func(check, what string) {
		b := fact.SingleEventFinding(check, what, f)
		b.Case = what
		notes = append(notes, b)
	}
	for _, r := range d.Reasons {
		if check := declaredReasons[r.Code]; check != "" && r.Evaluator == protoAgentHook {
			say(check, "")
		}
	}
	if d.ReceivedAt.IsZero() {
		return notes
	}
	if d.DecidedAt.Sub(d.ReceivedAt.Time) > recommendedVerdictWait {
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

// replyFindings are the checks that a recorded reply breaks (AH-C-070, AH-C-101).
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

// targetOf is what an event is done to, whatever the tool and its arguments: the
// key by which AgentHook H-09 finds attempts to get around a question. It is known
// only where action, resource kind and resource are, as they are for the admitter.
func targetOf(e *agenthook.Event) fact.Sum {
	const nobodyKnows = "unknown"
	if e.Action == "" || e.ResourceKind == "" || e.ResourceKind == nobodyKnows || e.Resource == "" || e.Resource == nobodyKnows {
		return fact.Sum{}
	}
	return fact.SumOf("target", e.Action, e.ResourceKind, e.Resource)
}

// setWebVerdict looks for the recorded verdict on a web action, which waits for it
// like a call (AH-C-145).
func (cs *calls) setWebVerdict(f *fact.Fact) {
	if !hookEventOf(f).AnnouncesWebAction() {
		return
	}
	s := cs.find(f.Key)
	if s == nil {
		return
	}
	c := s.findNamed(f.EventID, func(c *call) bool { return c.hasEvent(f.EventID) })
	if c != nil && c.lastDecision() != nil {
		hookEventOf(f).SetRecordedVerdict(string(c.lastDecision().Verdict))
	}
}

// attestations are what publishers said of their runtimes, over all of their sessions: the
// nonces of attestations, and the fingerprints of hooks. Each list is bounded by
// maxTokens; the oldest entries are forgotten.
type attestations struct {
	findings         *findings
	nonces           *tables.FIFO[fact.TokenKey, nonceUse]
	hookFingerprints *tables.FIFO[fact.TokenKey, hookFingerprint]
}

// nonceUse is the event that used a nonce last.
type nonceUse struct {
	event string
	seq   uint64
}

// hookFingerprint is the fingerprint that a hook had when it last called itself trusted.
type hookFingerprint struct {
	fingerprint fact.Sum
	event       string
	seq         uint64
}

func newAttestations(fs *findings) *attestations {
	return &attestations{findings: fs, nonces: tables.NewFIFO[fact.TokenKey, nonceUse](maxTokens), hookFingerprints: tables.NewFIFO[fact.TokenKey, hookFingerprint](maxTokens)}
}

// checkNonce notes in which attestation a nonce was used (AH-C-122).
func (as *attestations) checkNonce(w *protocolSession, f *fact.Fact) {
	if hookEventOf(f).Nonce() == "" {
		return
	}
	key := fact.TokenKey{Tenant: f.Key.Tenant, Source: f.Key.Source, Token: fact.SumOf(hookEventOf(f).Nonce())}
	if before, used := as.nonces.Get(key); used && before.event != f.EventID {
		b := fact.SingleEventFinding("AH-C-122", "its nonce was used before", f)
		b.Case, b.Events, b.Seqs = "nonce", append([]string{before.event}, b.Events...), append([]uint64{before.seq}, b.Seqs...)
		as.findings.ReportSessionFinding(f, *w.origin, b)
	}
	as.nonces.Put(key, nonceUse{f.EventID, f.Seq})
}

// checkHookFingerprints compares the hooks that a session calls trusted with what they were in
// their publisher's sessions before (AH-C-129).
func (as *attestations) checkHookFingerprints(w *protocolSession, f *fact.Fact) {
	for _, h := range hookEventOf(f).IntroducedHooks() {
		key := fact.TokenKey{Tenant: f.Key.Tenant, Source: f.Key.Source, Token: fact.SumOf(h.Hook)}
		now := hookFingerprint{fact.SumOf(h.Fingerprint), f.EventID, f.Seq}
		if before, known := as.hookFingerprints.Get(key); known && h.Unexpected && before.fingerprint != now.fingerprint {
			b := fact.SingleEventFinding("AH-C-129", "an earlier session knew it with another fingerprint", f)
			b.Case, b.Call = h.Hook, ""
			b.Events, b.Seqs = append([]string{before.event}, b.Events...), append([]uint64{before.seq}, b.Seqs...)
			as.findings.ReportSessionFinding(f, *w.origin, b)
		}
		as.hookFingerprints.Put(key, now)
	}
}

// readAgentHookReason reads a reason of AgentHook's evaluator.
func readAgentHookReason(r *events.Reason) fact.ReasonsSaid {
	return fact.ReasonsSaid{OtherFingerprint: r.Code == fingerprintReason}
}

// maxTokens bounds the nonces and hooks that are remembered, each; the oldest are forgotten.
const maxTokens = 65_536
