package agenthook

import (
	"strings"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/agenthook"
)

// declarationOf is what the tenant's operator has declared about the publisher of an
// event.
func declarationOf(r call.Request, e *wire.Event) publisher.Declared {
	if r.Publishers == nil {
		return publisher.Declared{}
	}
	return r.Publishers.Declared(r.Tenant, r.Source, e.Source)
}

// checkDeclaration holds an event against what is declared about its publisher.
func checkDeclaration(e *wire.Event, c call.Call, d publisher.Declared, o *call.Opinion) {
	if d.Declaration == nil {
		if d.Registered {
			o.AddReason(events.Deny, Name, CodePublisher, "/source") // AH-C-015
		}
		return
	}
	if s := d.Support(e.EventType); s == publisher.NotExposed || s == publisher.Planned {
		o.AddReason(events.Deny, Name, CodeEvent, "/event_type") // AH-C-127
	}
	if d.AdmissionBound && e.EvidencePhase != wire.PhasePreCommit {
		o.AddReason(events.Deny, Name, CodeNotPreCommit, "/evidence_phase") // AH-C-013, AH-C-032
	}
	if d.AdmissionBound && c.Tool != "" && c.ToolCallID == "" {
		o.AddReason(events.Deny, Name, call.CodeNoToolCallID, "/metadata/tool_call_id") // AH-C-087
	}
	for _, h := range hooksOf(e) {
		if want, is := d.Fingerprint(textMember(h, "hook_id")), observedFingerprint(h); want != "" && is != "" && is != want {
			o.AddReason(events.Deny, Name, CodeFingerprint, "/metadata/hook_trust") // AH-C-129
			break
		}
	}
}

// recordFailMode records that a publisher decided by itself because no verdict came
// (SPEC section 4, AH-C-073).
func recordFailMode(e *wire.Event, d publisher.Declared, o *call.Opinion) {
	f, there := e.FailMode()
	if !there || !f.Triggered || e.EventType != wire.ErrorOccurred {
		return
	}
	o.AddReason(events.Allow, Name, CodeFailMode, "/metadata")
	if e.ToolCallID() == "" || f.Outcome != "allow" && f.Outcome != "deny" {
		o.AddReason(events.Allow, Name, CodeFailModeUnclear, "/metadata")
	}
	if d.Declaration != nil && d.FailMode == "fail_closed" && f.Outcome != "deny" {
		o.AddReason(events.Allow, Name, CodeFailModeOther, "/metadata/outcome")
	}
}

// hooksOf are the hooks that an event speaks of, wherever it does so (H-32). What
// is no object says nothing.
func hooksOf(e *wire.Event) (list []map[string]any) {
	for _, v := range []any{
		e.Metadata["hook_trust"], asObject(e.Metadata["runtime_attestation"])["hooks"], asObject(e.Metadata["managed_runtime"])["hooks"],
	} {
		many, _ := v.([]any)
		if one := asObject(v); one != nil {
			many = []any{one}
		}
		for _, h := range many {
			if one := asObject(h); one != nil {
				list = append(list, one)
			}
		}
	}
	return list
}

// distrustedStates are the words of hook_trust for a hook that is not what it was.
var distrustedStates = map[string]bool{"modified": true, "untrusted": true, "disabled": true}

// hookUntrusted reports whether an event says of one of its hooks that it was
// changed. The word trusted counts for nothing against the fingerprint
// (AH-C-129).
func hookUntrusted(e *wire.Event, _ call.Call) bool {
	if e.Metadata == nil {
		return false
	}
	for _, h := range hooksOf(e) {
		expected := strings.ToLower(textMember(h, "expected_fingerprint"))
		if distrustedStates[textMember(h, "trust_status")] || expected != "" && observedFingerprint(h) != "" && observedFingerprint(h) != expected {
			return true
		}
	}
	return false
}

func observedFingerprint(hook map[string]any) string {
	if f := textMember(hook, "observed_fingerprint"); f != "" {
		return strings.ToLower(f)
	}
	return strings.ToLower(textMember(hook, "fingerprint"))
}

// runtimeRefused reports whether an event says of its own runtime that it has
// lost what it needs.
func runtimeRefused(e *wire.Event, _ call.Call) bool {
	m := asObject(e.Metadata["managed_runtime"])
	approval := textMember(m, "approval_status")
	return textMember(m, "registration_status") == "revoked" || approval == "denied" || approval == "expired" ||
		textMember(asObject(m["device_registry"]), "posture") == "non_compliant"
}

func asObject(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func textMember(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}
