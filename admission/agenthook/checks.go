package agenthook

import (
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/agenthook"
	hookschema "github.com/countersign-dev/countersign/schemas/agenthook"
)

func validID(id string) bool {
	_, err := uuid.Parse(id)
	return err == nil && len(id) == 36
}

// check is one check of a valid request. With verdict allow its reason is only recorded.
type check struct {
	code, path string
	verdict    events.Verdict
	applies    func(*wire.Event, call.Call) bool
}

var checks = []check{
	{CodeNotPreCommit, "/evidence_phase", events.Deny, func(e *wire.Event, _ call.Call) bool {
		return e.EvidencePhase != "" && e.EvidencePhase != wire.PhasePreCommit // AH-C-013
	}},
	{CodeValidationFailed, "/metadata/validation/status", events.Deny, func(e *wire.Event, _ call.Call) bool {
		return e.Validation != nil && e.Validation.Status == "failed" // AH-C-037
	}},
	{CodeHashConflict, "/metadata", events.Deny, hashConflict}, // AH-C-036
	{CodeEarlierVerdict, "/metadata/admission_verdict/verdict", events.Deny, func(e *wire.Event, _ call.Call) bool {
		return earlierVerdict(e) == events.Deny // AH-C-086
	}},
	{CodeHookUntrusted, "/metadata/hook_trust", events.Deny, hookUntrusted}, // AH-C-130
	{CodeRuntime, "/metadata/managed_runtime", events.Deny, runtimeRefused}, // AH-C-134
	{CodeContract, "/metadata/runtime_contract/signature_status", events.Deny, func(e *wire.Event, _ call.Call) bool {
		return e.Metadata.Get("runtime_contract").MemberText("signature_status") == "invalid" // AH-C-132
	}},
	{CodeHumanApproval, "/metadata/risk/requires_human_approval", events.Ask, func(e *wire.Event, _ call.Call) bool {
		r := e.Risk
		return r != nil && r.RequiresHumanApproval != nil && *r.RequiresHumanApproval // AH-C-042
	}},
	{CodeEarlierVerdict, "/metadata/admission_verdict/verdict", events.Ask, func(e *wire.Event, _ call.Call) bool {
		return earlierVerdict(e) == events.Ask // AH-C-086
	}},
	{call.CodeNoToolCallID, "/metadata/tool_call_id", events.Allow, func(_ *wire.Event, c call.Call) bool {
		return c.Tool != "" && c.ToolCallID == "" // AH-C-087
	}},
	{call.CodeWeakScope, "/session_id", events.Allow, func(_ *wire.Event, c call.Call) bool { return c.Session == "" }},
	{CodeVerdictIgnored, "/metadata/admission_verdict", events.Allow, func(e *wire.Event, _ call.Call) bool {
		return e.AdmissionVerdict != nil // AH-C-082
	}},
	{CodeApprovalIgnored, "/metadata/approval", events.Allow, func(e *wire.Event, _ call.Call) bool {
		return e.Approval != nil // AH-C-105
	}},
	{CodeClaimsIgnored, "/metadata", events.Allow, claimsTrust}, // AH-C-088
	{CodeSurface, "/metadata/provider_translation/provider_surface", events.Allow, func(e *wire.Event, _ call.Call) bool {
		i, p := e.ToolIdentity, e.ProviderTranslation
		return i != nil && p != nil && i.Source != "" && p.ProviderSurface != "" && i.Source != p.ProviderSurface // AH-C-035
	}},
}

func runChecks(e *wire.Event, c call.Call, d publisher.Declared, o *call.Opinion) {
	checkDeclaration(e, c, d, o)
	for _, k := range checks {
		if k.applies(e, c) && !hasReason(o, k.code, k.path) {
			o.AddReason(k.verdict, Name, k.code, k.path)
		}
	}
	checkProfile(e, d, o)
}

func hasReason(o *call.Opinion, code, path string) bool {
	return slices.ContainsFunc(o.Reasons, func(r events.Reason) bool { return r.Code == code && r.Path == path })
}

// eventForm is the form of an event: with a verdict on it, it is evidence.
func eventForm(e *wire.Event) hookschema.Form {
	if e.AdmissionVerdict != nil {
		return hookschema.FormEvidence
	}
	return hookschema.FormRequest
}

// checkProfile records where an event that uses members of the action-governance profile
// violates it. The profile is a SHOULD for the publisher (AH-C-030), so violations do not
// refuse the event; wrong types are refused earlier. A publisher that is registered for the
// profile must state all that it demands before a call (AH-C-031), in its form (AH-C-034),
// unless its manifest declares the event as partial.
func checkProfile(e *wire.Event, d publisher.Declared, o *call.Opinion) {
	bound := d.Declaration != nil && d.ActionGovernance
	if e.ToolIdentity == nil && e.Risk == nil && !bound || !hookschema.ProfileCovers(e.EventType) {
		return
	}
	bound = bound && d.Support(e.EventType) != publisher.Partial
	vs := hookschema.ValidateProfile(e.Doc, eventForm(e)) // in order of Path
	for i := 0; i < len(vs); {
		path, verdict := vs[i].Path, events.Allow
		for ; i < len(vs) && vs[i].Path == path; i++ {
			if bound && (vs[i].Check == "AH-C-031" || vs[i].Check == "AH-C-034") {
				verdict = events.Deny
			}
		}
		o.AddReason(verdict, Name, CodeProfile, path)
	}
}

// earlierVerdict is the verdict of another subscriber that the event states, allow if there is
// none. A verdict of this subscriber is ignored: an event that is sent again after an approval
// may carry it.
func earlierVerdict(e *wire.Event) events.Verdict {
	v := e.AdmissionVerdict
	switch {
	case v == nil || v.Subscriber == Subscriber || v.Verdict == "allow":
		return events.Allow
	case v.Verdict == "ask":
		return events.Ask
	}
	return events.Deny
}

func hashConflict(e *wire.Event, _ call.Call) bool {
	hashes := e.SchemaHashes()
	return slices.ContainsFunc(hashes, func(h string) bool { return h != hashes[0] })
}

// claimMembers are the members of metadata in which a publisher makes claims in its own favour.
// They and annotations are hidden from policies, so that no policy can mistake a claim for
// authority.
var claimMembers = map[string]bool{
	"admission_verdict": true, "approval": true, "managed_runtime": true, "governance_context": true, "hook_trust": true,
	"runtime_contract": true, "runtime_attestation": true, "attestation": true,
	"goal_id": true, "goal_source": true, "goal_status": true, "terminal_scope": true, "constraints": true,
}

// claimsTrust reports claims other than the two that have their own code.
func claimsTrust(e *wire.Event, _ call.Call) bool {
	for m := range e.Metadata.All() {
		if k := m.Key(); claimMembers[k] && k != "admission_verdict" && k != "approval" {
			return true
		}
	}
	return false
}

// withoutClaims returns the document without claims. It shares what it can with tree and does
// not change it.
func withoutClaims(tree map[string]any) map[string]any {
	meta, _ := tree["metadata"].(map[string]any)
	_, annotated := tree["annotations"]
	found := false
	for k := range meta {
		found = found || claimMembers[k]
	}
	if !found && !annotated {
		return tree
	}
	clean := maps.Clone(tree)
	delete(clean, "annotations")
	if found {
		kept := maps.Clone(meta)
		maps.DeleteFunc(kept, func(k string, _ any) bool { return claimMembers[k] })
		clean["metadata"] = kept
	}
	return clean
}
