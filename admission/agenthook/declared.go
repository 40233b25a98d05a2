package agenthook

import (
	"strings"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// declarationOf returns the operator's declaration about the publisher of an event.
func declarationOf(r call.Request, e *wire.Event) publisher.Declared {
	if r.Publishers == nil {
		return publisher.Declared{}
	}
	return r.Publishers.Declared(r.Tenant, r.Source, e.Source)
}

// checkDeclaration compares an event with the declaration about its publisher.
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
		if want, is := d.Fingerprint(h.MemberText("hook_id")), observedFingerprint(h); want != "" && is != "" && is != want {
			o.AddReason(events.Deny, Name, CodeFingerprint, "/metadata/hook_trust") // AH-C-129
			break
		}
	}
}

// recordFailMode records that a publisher decided by itself because it got no verdict (SPEC
// section 4, AH-C-073).
func recordFailMode(e *wire.Event, d publisher.Declared, o *call.Opinion) {
	f := e.FailMode
	if f == nil || !f.Triggered || e.EventType != wire.ErrorOccurred {
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

// hooksOf returns the hooks that an event describes, in any of its places (H-32). Values other
// than objects are ignored.
func hooksOf(e *wire.Event) (list []strictjson.Value) {
	m := e.Metadata
	for _, v := range []strictjson.Value{m.Get("hook_trust"), m.Get("runtime_attestation").Get("hooks"), m.Get("managed_runtime").Get("hooks")} {
		switch v.Kind() {
		case strictjson.KindObject:
			list = append(list, v)
		case strictjson.KindArray:
			for h := range v.All() {
				if h.Kind() == strictjson.KindObject {
					list = append(list, h)
				}
			}
		}
	}
	return list
}

// distrustedStates are the states of hook_trust for a hook that was changed.
var distrustedStates = map[string]bool{"modified": true, "untrusted": true, "disabled": true}

// hookUntrusted reports whether an event states that one of its hooks was changed. The state
// trusted does not override the fingerprint (AH-C-129).
func hookUntrusted(e *wire.Event, _ call.Call) bool {
	for _, h := range hooksOf(e) {
		expected := strings.ToLower(h.MemberText("expected_fingerprint"))
		if distrustedStates[h.MemberText("trust_status")] || expected != "" && observedFingerprint(h) != "" && observedFingerprint(h) != expected {
			return true
		}
	}
	return false
}

func observedFingerprint(hook strictjson.Value) string {
	if f := hook.MemberText("observed_fingerprint"); f != "" {
		return strings.ToLower(f)
	}
	return strings.ToLower(hook.MemberText("fingerprint"))
}

// runtimeRefused reports whether an event states that its own runtime has lost its registration
// or approval.
func runtimeRefused(e *wire.Event, _ call.Call) bool {
	m := e.Metadata.Get("managed_runtime")
	approval := m.MemberText("approval_status")
	return m.MemberText("registration_status") == "revoked" || approval == "denied" || approval == "expired" ||
		m.Get("device_registry").MemberText("posture") == "non_compliant"
}

func asObject(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}
