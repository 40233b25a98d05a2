package agenthook

import (
	"strings"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/agenthook"
)

// declared is what the tenant's operator has declared about the publisher of an
// event.
func declared(r call.Request, e *wire.Event) publisher.Declared {
	if r.Publishers == nil {
		return publisher.Declared{}
	}
	return r.Publishers.Declared(r.Tenant, r.Source, e.Source)
}

// limits holds an event against what is declared about its publisher.
func limits(e *wire.Event, c call.Call, d publisher.Declared, o *call.Opinion) {
	if d.Declaration == nil {
		if d.Registered {
			o.Say(events.Deny, Name, CodePublisher, "/source") // AH-C-015
		}
		return
	}
	if s := d.Support(e.EventType); s == publisher.NotExposed || s == publisher.Planned {
		o.Say(events.Deny, Name, CodeEvent, "/event_type") // AH-C-127
	}
	if d.AdmissionBound && e.EvidencePhase != wire.PhasePreCommit {
		o.Say(events.Deny, Name, CodeNotPreCommit, "/evidence_phase") // AH-C-013, AH-C-032
	}
	if d.AdmissionBound && c.Tool != "" && c.ToolCallID == "" {
		o.Say(events.Deny, Name, call.CodeNoToolCallID, "/metadata/tool_call_id") // AH-C-087
	}
	for _, h := range hooks(e) {
		if want, is := d.Fingerprint(word(h, "hook_id")), observed(h); want != "" && is != "" && is != want {
			o.Say(events.Deny, Name, CodeFingerprint, "/metadata/hook_trust") // AH-C-129
			break
		}
	}
}

// failMode records that a publisher decided by itself because no verdict came
// (SPEC section 4, AH-C-073).
func failMode(e *wire.Event, d publisher.Declared, o *call.Opinion) {
	f, there := e.FailMode()
	if !there || !f.Triggered || e.EventType != wire.ErrorOccurred {
		return
	}
	o.Say(events.Allow, Name, CodeFailMode, "/metadata")
	if e.ToolCallID() == "" || f.Outcome != "allow" && f.Outcome != "deny" {
		o.Say(events.Allow, Name, CodeFailModeUnclear, "/metadata")
	}
	if d.Declaration != nil && d.FailMode == "fail_closed" && f.Outcome != "deny" {
		o.Say(events.Allow, Name, CodeFailModeOther, "/metadata/outcome")
	}
}

// hooks are the hooks that an event speaks of, wherever it does so (H-32). What
// is no object says nothing.
func hooks(e *wire.Event) (list []map[string]any) {
	for _, v := range []any{
		e.Metadata["hook_trust"], object(e.Metadata["runtime_attestation"])["hooks"], object(e.Metadata["managed_runtime"])["hooks"],
	} {
		many, _ := v.([]any)
		if one := object(v); one != nil {
			many = []any{one}
		}
		for _, h := range many {
			if one := object(h); one != nil {
				list = append(list, one)
			}
		}
	}
	return list
}

// distrusted are the words of hook_trust for a hook that is not what it was.
var distrusted = map[string]bool{"modified": true, "untrusted": true, "disabled": true}

// hookUntrusted reports whether an event says of one of its hooks that it was
// changed. The word trusted counts for nothing against the fingerprint
// (AH-C-129).
func hookUntrusted(e *wire.Event, _ call.Call) bool {
	if e.Metadata == nil {
		return false
	}
	for _, h := range hooks(e) {
		expected := strings.ToLower(word(h, "expected_fingerprint"))
		if distrusted[word(h, "trust_status")] || expected != "" && observed(h) != "" && observed(h) != expected {
			return true
		}
	}
	return false
}

func observed(hook map[string]any) string {
	if f := word(hook, "observed_fingerprint"); f != "" {
		return strings.ToLower(f)
	}
	return strings.ToLower(word(hook, "fingerprint"))
}

// runtimeRefused reports whether an event says of its own runtime that it has
// lost what it needs.
func runtimeRefused(e *wire.Event, _ call.Call) bool {
	m := object(e.Metadata["managed_runtime"])
	approval := word(m, "approval_status")
	return word(m, "registration_status") == "revoked" || approval == "denied" || approval == "expired" ||
		word(object(m["device_registry"]), "posture") == "non_compliant"
}

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func word(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}
