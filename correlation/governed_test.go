package correlation

import "testing"

// governedPre is what a publisher of the action-governance profile announces,
// with its verdict and an approval, governedPost what it reports then.
func governedPre(n int, call string) tree {
	e := set(pre(n), "metadata.tool_call_id", call)
	for path, v := range map[string]any{
		"evidence_phase": "pre_commit", "action": "write", "resource_kind": "api", "resource": "invoices/17", "resource_scope": "tenant",
		"operation_risk": "write", "annotations": tree{"team": "billing"},
		"metadata.tool_identity":        tree{"canonical_name": "billing.pay", "provider_name": "pay_invoice", "source": "mcp_tools_call", "schema_hash": schemaHash},
		"metadata.provider_translation": tree{"provider_surface": "mcp_tools_call", "model_facing_tool": "pay", "provider": "example", "adapter_version": "1", "schema_hash": schemaHash},
		"metadata.risk": tree{"risk_class": "financial_write", "requires_human_approval": true, "data_exfiltration_risk": "none",
			"writes_external_system": true, "idempotent": false, "contains_secret": false},
		"metadata.validation":        tree{"status": "passed", "validator": "runtime", "schema_hash": schemaHash},
		"metadata.redaction":         tree{"applied": false, "fields": []any{}, "policy_id": "none"},
		"metadata.admission_verdict": tree{"verdict": "allow", "reason": "approved", "policy_id": "p-1", "subscriber": "countersign", "decided_at": stamp(0)},
		"metadata.approval": tree{"required": true, "status": "approved", "workflow_id": "w-" + call, "reviewer_ref": "reviewer-1",
			"decided_at": stamp(0), "resume_policy": "retry_same_event"},
		"metadata.governance_context": tree{"department": "billing", "cost_center": 17, "labels": []any{"q4", "reviewed"}},
		"metadata.instance_id":        "runtime-1",
	} {
		e = set(e, path, v)
	}
	return e
}

func governedPost(n int, call string) tree {
	e := set(set(post(n), "metadata.tool_call_id", call), "evidence_phase", "post_hoc")
	return set(set(e, "metadata.tool_identity", tree{"canonical_name": "billing.pay", "provider_name": "pay_invoice", "source": "mcp_tools_call"}), "metadata.duration_ms", 1000)
}

const schemaHash = "sha256:5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e"

// governedLog is calls of such a publisher.
func governedLog(t testing.TB) *ledger {
	l := newLedger(t)
	for i := range 1000 {
		session := "s" + itoa(i%50)
		l.event(set(governedPre(2*i, "c"+itoa(i)), "session_id", session))
		l.event(set(governedPost(2*i+1, "c"+itoa(i)), "session_id", session))
	}
	return l
}

// What governs a call does not send its events the long way, whatever it says;
// that a profile is broken does.
func TestGovernedFlat(t *testing.T) {
	for _, tt := range []struct {
		name string
		e    tree
		flat bool
	}{
		{"pre", governedPre(0, "c0"), true},
		{"post", governedPost(1, "c0"), true},
		{"without a verdict", set(governedPre(0, "c0"), "metadata.admission_verdict", nil), false},
		{"identity without a name", set(governedPre(0, "c0"), "metadata.tool_identity.canonical_name", nil), false},
		{"alias", set(governedPre(0, "c0"), "tool_name", "billing.pay"), true},
		{"two schema hashes", set(governedPre(0, "c0"), "metadata.validation.schema_hash", "sha256:aa"), false},
		{"approval without a status", set(governedPre(0, "c0"), "metadata.approval.status", nil), true},
		{"approval of itself", set(governedPre(0, "c0"), "metadata.approval.reviewer_ref", "runtime-1"), true},
		{"a collector's", set(governedPre(0, "c0"), "annotations.bus", "b"), true},
		{"two durations", set(governedPost(1, "c0"), "metadata.execution.duration_ms", 7), true},
		{"fail mode", set(set(set(hook(3, "ErrorOccurred", 1), "metadata.error_type", "admission_fail_mode"), "metadata.fail_mode_triggered", true), "metadata.outcome", "allow"), true},
		{"attested", set(hook(4, "SessionStart", 0), "metadata.runtime_attestation", tree{"nonce": "n", "hooks": []any{tree{"name": "x"}}}), true},
		{"managed", set(hook(5, "SessionStart", 0), "metadata.managed_runtime", tree{"instance_id": "i", "session_id": "other"}), true},
		{"page", set(hook(6, "WebPageRead", 0), "metadata.web", tree{"action_id": "a", "url": "https://example.org"}), true},
		{"goal", set(hook(7, "GoalSet", 0), "metadata.goal", tree{"parent_session_id": "s0"}), true},
		{"model", set(hook(8, "PostLLMCall", 0), "metadata", tree{"model": "m", "tokens_input": 1, "tokens_output": 2, "total_tokens": 4}), true},
		{"secret", set(governedPre(0, "c0"), "metadata.note", "AKIA"+"ABCDEFGHIJKLMNOP"), true},
		{"contract", set(hook(9, "RuntimeContractLoaded", 0), "metadata.runtime_contract", tree{"contract_hash": "sha256:1"}), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLedger(t)
			l.event(tt.e)
			short, long := ways(l.run().core)
			m := l.msgs[len(l.msgs)-1]
			holdFlat(t, short, long, m)
			if (short.flatReads == 1) != tt.flat {
				t.Errorf("read flat: %v: %s", !tt.flat, m.Body)
			}
		})
	}
}
