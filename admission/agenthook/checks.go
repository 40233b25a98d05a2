package agenthook

import (
	"maps"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/schemas"
)

func validID(id string) bool {
	_, err := uuid.Parse(id)
	return err == nil && len(id) == 36
}

// check is one thing to say about a valid request. A verdict of allow only
// records it.
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
		v, ok := e.Validation()
		return ok && v.Status == "failed" // AH-C-037
	}},
	{CodeHashConflict, "/metadata", events.Deny, hashConflict}, // AH-C-036
	{CodeHumanApproval, "/metadata/risk/requires_human_approval", events.Ask, func(e *wire.Event, _ call.Call) bool {
		r, ok := e.Risk()
		return ok && r.RequiresHumanApproval != nil && *r.RequiresHumanApproval // AH-C-042
	}},
	{call.CodeNoToolCallID, "/metadata/tool_call_id", events.Allow, func(_ *wire.Event, c call.Call) bool {
		return c.Tool != "" && c.ToolCallID == "" // AH-C-087
	}},
	{call.CodeWeakScope, "/session_id", events.Allow, func(_ *wire.Event, c call.Call) bool { return c.Session == "" }},
	{CodeVerdictIgnored, "/metadata/admission_verdict", events.Allow, func(e *wire.Event, _ call.Call) bool {
		_, ok := e.AdmissionVerdict()
		return ok // AH-C-082
	}},
	{CodeApprovalIgnored, "/metadata/approval", events.Allow, func(e *wire.Event, _ call.Call) bool {
		_, ok := e.Approval()
		return ok // AH-C-105
	}},
	{CodeClaimsIgnored, "/metadata", events.Allow, claimsTrust}, // AH-C-088
}

func judge(e *wire.Event, c call.Call, o *call.Opinion) {
	for _, k := range checks {
		if k.applies(e, c) {
			o.Say(k.verdict, Name, k.code, k.path)
		}
	}
	profile(e, o)
}

// profile records where a request that speaks the language of the
// action-governance profile falls short of it. That is a SHOULD of the
// publisher's (AH-C-030) and no reason to refuse; wrong types are refused
// before.
func profile(e *wire.Event, o *call.Opinion) {
	_, identified := e.ToolIdentity()
	_, rated := e.Risk()
	if !identified && !rated || !schemas.ProfileCovers(e.EventType) {
		return
	}
	last := "none"
	for _, v := range schemas.Default().AgentHookProfile(e.Tree, schemas.FormRequest) { // in order of Path
		if v.Path != last {
			o.Say(events.Allow, Name, CodeProfile, v.Path)
		}
		last = v.Path
	}
}

func hashConflict(e *wire.Event, _ call.Call) bool {
	var hashes []string
	if b, ok := e.ToolIdentity(); ok {
		hashes = append(hashes, b.SchemaHash)
	}
	if b, ok := e.ProviderTranslation(); ok {
		hashes = append(hashes, b.SchemaHash)
	}
	if b, ok := e.Validation(); ok {
		hashes = append(hashes, b.SchemaHash)
	}
	first := ""
	for _, h := range hashes {
		switch {
		case h == "":
		case first == "":
			first = h
		case h != first:
			return true
		}
	}
	return false
}

// claims are the members of metadata in which a publisher speaks for itself.
// Policies do not see them, nor annotations, so that no policy can mistake a
// claim for authority.
var claims = map[string]bool{
	"admission_verdict": true, "approval": true, "managed_runtime": true, "governance_context": true, "hook_trust": true,
	"runtime_contract": true, "runtime_attestation": true, "attestation": true,
	"goal_id": true, "goal_source": true, "goal_status": true, "terminal_scope": true, "constraints": true,
}

// claimsTrust finds claims other than the two that have a code of their own.
func claimsTrust(e *wire.Event, _ call.Call) bool {
	for k := range e.Metadata {
		if claims[k] && k != "admission_verdict" && k != "approval" {
			return true
		}
	}
	return false
}

// withoutClaims is the document without claims. It shares all it can with tree
// and changes nothing in it.
func withoutClaims(tree map[string]any) map[string]any {
	meta, _ := tree["metadata"].(map[string]any)
	_, annotated := tree["annotations"]
	found := false
	for k := range meta {
		found = found || claims[k]
	}
	if !found && !annotated {
		return tree
	}
	clean := maps.Clone(tree)
	delete(clean, "annotations")
	if found {
		kept := maps.Clone(meta)
		maps.DeleteFunc(kept, func(k string, _ any) bool { return claims[k] })
		clean["metadata"] = kept
	}
	return clean
}
