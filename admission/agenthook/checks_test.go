package agenthook

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// registry is a tenant with one registered publisher, rt1, for each of some families, and an
// unregistered manifest.
func registry(t testing.TB) publisher.Registry {
	t.Helper()
	const fp = "sha256:00000000000000000000000000000000000000000000000000000000000000aa"
	manifest := func(source string, partial bool) set {
		types := set{"PreDeploy": "planned"}
		for _, e := range strings.Fields("SessionStart SessionEnd UserPromptSubmit PostLLMCall ModelResponse PreToolUse PostToolUse AgentHandoff ErrorOccurred") {
			types[e] = "supported"
		}
		if types["PreLLMCall"] = "not_exposed"; partial {
			types["PreToolUse"] = "partial"
		}
		return set{
			"schema": "https://agenthook.org/schemas/publisher-manifest.v1.json", "schema_version": "1.0", "publisher_id": "com.example." + source, "display_name": "T",
			"maintainer": set{"name": "T", "url": "https://t.example"}, "runtime": set{"vendor": "T", "name": "T", "versions_tested": []any{}},
			"agenthook":   set{"version": "0.2", "source": source, "events": types},
			"entrypoints": set{"command": "c", "installer": "i"}, "config": set{"files": []any{}}, "limitations": []any{},
			"verification": set{"self_attested": true, "conformance": "pending", "last_tested": "2026-11-20", "commands": []any{}},
			"hook_trust":   set{"hook_id": "gate", "runtime": "r", "hook_event": "PreToolUse", "fingerprint": fp},
		}
	}
	var docs []publisher.Document
	add := func(m set) {
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		p, err := publisher.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, publisher.Document{Tenant: "acme", Name: p.Name, Data: data})
	}
	register := func(source string, partial bool, profiles ...any) {
		add(set{"schema": "https://schemas.countersign.dev/countersign/publisher-registration/v1", "publisher": "rt1", "profiles": profiles,
			"fail_mode": "fail_closed", "manifest": manifest(source, partial)})
	}
	register("plain", false, []any{}...)
	register("bound", false, "admission-bound")
	register("governed", false, "action-governance")
	register("partly", true, "action-governance")
	add(manifest("codex", false))
	s := publisher.Compile(docs, 1)
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return s
}

func askDeclared(reg publisher.Registry, source, body string) (call.Call, call.Opinion) {
	return Evaluator{}.Read(call.Request{
		Tenant: "acme", Source: source, Body: []byte(body), Limits: strictjson.DefaultLimits, Confirmations: call.NoConfirmations{}, Publishers: reg,
	})
}

// governed is what the action-governance profile demands of a PreToolUse.
func governed(more set) set {
	s := set{
		"action": "send", "resource_kind": "email", "resource": "outbox", "resource_scope": "tenant", "operation_risk": "external_transfer",
		"metadata.tool_identity": set{"canonical_name": "email.send", "provider_name": "send_mail", "source": "native_runtime_tool"},
		"metadata.risk":          set{"risk_class": "external_side_effect"},
	}
	for k, v := range more {
		s[k] = v
	}
	return s
}

// Every check of the specification that admission can make by itself, by its
// identifier. Those that need the ledger, the approvals or the outcome are made
// where those are.
func TestChecks(t *testing.T) {
	reg := registry(t)
	const hash, other = "sha256:00000000000000000000000000000000000000000000000000000000000000aa", "sha256:00000000000000000000000000000000000000000000000000000000000000bb"
	hook := func(m set) set {
		h := set{"hook_id": "gate", "runtime": "r", "hook_event": "PreToolUse", "trust_status": "trusted"}
		for k, v := range m {
			h[k] = v
		}
		return set{"metadata.hook_trust": h}
	}
	fail := func(m set) set {
		s := set{"event_type": "ErrorOccurred", "tool_name": nil, "metadata.error_type": "admission_fail_mode", "metadata.fail_mode_triggered": true, "metadata.outcome": "deny"}
		for k, v := range m {
			s[k] = v
		}
		return s
	}
	for name, c := range map[string]struct {
		source string // of the event; rt1 sends it
		set    set
		want   string
	}{
		// AH-C-012, AH-C-013: too late for a verdict.
		"AH-C-012 post claims to be first": {"", set{"event_type": "PostToolUse", "evidence_phase": "pre_commit"}, "deny schema_invalid@/evidence_phase (malformed)"},
		"AH-C-013 post hoc":                {"", set{"evidence_phase": "post_hoc"}, "deny not_pre_commit@/evidence_phase"},
		"AH-C-013 bound without a phase":   {"bound", nil, "deny not_pre_commit@/evidence_phase"},
		"AH-C-013 bound, observational":    {"bound", set{"evidence_phase": "observational"}, "deny not_pre_commit@/evidence_phase"},
		"AH-C-013 bound with the phase":    {"bound", set{"evidence_phase": "pre_commit"}, "allow"},
		"AH-C-013 not bound":               {"plain", nil, "allow"},

		// AH-C-015: the identity of a registered publisher.
		"AH-C-015 another family":     {"aider", nil, "deny publisher_mismatch@/source"},
		"AH-C-015 another's manifest": {"codex", nil, "deny publisher_mismatch@/source"},

		// AH-C-030, AH-C-031, AH-C-034: the action-governance profile.
		"AH-C-030 claimed only":             {"plain", set{"metadata.risk": set{"risk_class": "write"}}, "allow profile_invalid profile_invalid@/metadata"},
		"AH-C-031 bare, held to it":         {"governed", nil, "deny profile_invalid profile_invalid@/metadata"},
		"AH-C-031 one field short":          {"governed", governed(set{"resource_scope": nil}), "deny profile_invalid"},
		"AH-C-031 no call id":               {"governed", governed(set{"metadata.tool_call_id": nil}), "deny tool_call_id_missing@/metadata/tool_call_id profile_invalid@/metadata"},
		"AH-C-031 unknown is said":          {"governed", governed(set{"resource_kind": "unknown", "resource": "unknown", "resource_scope": "unknown"}), "allow"},
		"AH-C-031 limitation declared":      {"partly", nil, "allow profile_invalid profile_invalid@/metadata"},
		"AH-C-031 whole":                    {"governed", governed(nil), "allow"},
		"AH-C-034 name not canonical":       {"governed", governed(set{"metadata.tool_identity": set{"canonical_name": "Bash", "provider_name": "b", "source": "s"}}), "deny profile_invalid@/metadata/tool_identity/canonical_name"},
		"AH-C-030 a type it does not cover": {"governed", set{"event_type": "WebActionRequested", "tool_name": nil}, "allow"},

		// AH-C-032: the evidence form of a governed call.
		"AH-C-032 request form":            {"governed", governed(set{"evidence_phase": "pre_commit"}), "allow"},
		"AH-C-032 evidence form":           {"governed", governed(set{"evidence_phase": "pre_commit", "metadata.admission_verdict": set{"verdict": "allow", "subscriber": "countersign"}}), "allow publisher_verdict_ignored@/metadata/admission_verdict"},
		"AH-C-032 evidence form, no phase": {"bound", set{"metadata.admission_verdict": set{"verdict": "allow"}}, "deny not_pre_commit@/evidence_phase publisher_verdict_ignored@/metadata/admission_verdict"},

		"AH-C-035 two surfaces": {"plain", governed(set{"metadata.provider_translation": set{"provider_surface": "mcp_tools_call"}}), "allow tool_surface_mismatch@/metadata/provider_translation/provider_surface"},
		"AH-C-036 two schemas":  {"plain", set{"metadata.validation": set{"schema_hash": hash}, "metadata.provider_translation": set{"provider_surface": "other", "schema_hash": other}}, "deny schema_hash_conflict@/metadata"},
		"AH-C-037 not valid":    {"plain", set{"metadata.validation": set{"status": "failed"}}, "deny validation_failed@/metadata/validation/status"},
		"AH-C-042 human wanted": {"plain", set{"event_type": "PreToolUse", "metadata.risk": set{"risk_class": "read_only", "requires_human_approval": true}}, "ask human_approval_required@/metadata/risk/requires_human_approval profile_invalid profile_invalid@/metadata"},

		// AH-C-044: what waits for a verdict gets one.
		"AH-C-044 validated, a gate":  {"plain", set{"event_type": "ToolCallValidated", "evidence_phase": "pre_commit"}, "allow"},
		"AH-C-044 validated, no gate": {"plain", set{"event_type": "ToolCallValidated"}, "allow observational (observational)"},

		// AH-C-073: the publisher decided by itself. There is nothing left to decide.
		"AH-C-073 denied":             {"plain", fail(nil), "allow observational fail_mode_event@/metadata (observational)"},
		"AH-C-073 let pass":           {"codexx", fail(set{"metadata.outcome": "allow"}), "allow observational fail_mode_event@/metadata (observational)"},
		"AH-C-073 let pass, not to":   {"plain", fail(set{"metadata.outcome": "allow"}), "allow observational fail_mode_event@/metadata fail_mode_contradicted@/metadata/outcome (observational)"},
		"AH-C-073 of no call":         {"plain", fail(set{"metadata.tool_call_id": nil}), "allow observational fail_mode_event@/metadata fail_mode_incomplete@/metadata (observational)"},
		"AH-C-073 without an outcome": {"codexx", fail(set{"metadata.outcome": nil}), "allow observational fail_mode_event@/metadata fail_mode_incomplete@/metadata (observational)"},
		"AH-C-073 another error":      {"plain", fail(set{"metadata.fail_mode_triggered": nil, "metadata.error_type": "timeout"}), "allow observational (observational)"},
		"AH-C-073 on another event":   {"plain", set{"metadata.error_type": "admission_fail_mode", "metadata.fail_mode_triggered": true}, "allow"},

		// AH-C-082, AH-C-088, AH-C-105: claims never loosen.
		"AH-C-082 own verdict":  {"plain", set{"metadata.risk": set{"risk_class": "write", "requires_human_approval": true}, "event_type": "PreLLM", "metadata.admission_verdict": set{"verdict": "allow", "subscriber": "x"}}, "ask human_approval_required@/metadata/risk/requires_human_approval publisher_verdict_ignored@/metadata/admission_verdict"},
		"AH-C-088 trust":        {"plain", hook(nil), "allow publisher_claims_ignored@/metadata"},
		"AH-C-105 own approval": {"plain", set{"metadata.approval": set{"required": true, "status": "approved"}}, "allow publisher_approval_ignored@/metadata/approval"},
		"AH-C-136 own context":  {"plain", set{"metadata.governance_context": set{"task_source": "user"}}, "allow publisher_claims_ignored@/metadata"},

		// AH-C-086: several subscribers, the strictest stands.
		"AH-C-086 another denied":     {"plain", set{"metadata.admission_verdict": set{"verdict": "deny", "subscriber": "dlp"}}, "deny earlier_verdict@/metadata/admission_verdict/verdict publisher_verdict_ignored@/metadata/admission_verdict"},
		"AH-C-086 another asked":      {"plain", set{"metadata.admission_verdict": set{"verdict": "ask", "subscriber": "dlp"}}, "ask earlier_verdict@/metadata/admission_verdict/verdict publisher_verdict_ignored@/metadata/admission_verdict"},
		"AH-C-086 a word of its own":  {"plain", set{"metadata.admission_verdict": set{"verdict": "Allow", "subscriber": "dlp"}}, "deny earlier_verdict@/metadata/admission_verdict/verdict publisher_verdict_ignored@/metadata/admission_verdict"},
		"AH-C-086 nobody said it":     {"plain", set{"metadata.admission_verdict": set{"verdict": "deny"}}, "deny earlier_verdict@/metadata/admission_verdict/verdict publisher_verdict_ignored@/metadata/admission_verdict"},
		"AH-C-051 our own of earlier": {"plain", set{"metadata.admission_verdict": set{"verdict": "ask", "subscriber": "countersign"}}, "allow publisher_verdict_ignored@/metadata/admission_verdict"},

		"AH-C-087 no call id":        {"plain", set{"metadata.tool_call_id": nil}, "allow tool_call_id_missing@/metadata/tool_call_id"},
		"AH-C-087 bound, no call id": {"bound", set{"metadata.tool_call_id": nil, "evidence_phase": "pre_commit"}, "deny tool_call_id_missing@/metadata/tool_call_id"},
		"AH-C-087 bound, no tool":    {"bound", set{"event_type": "PreDeployment", "tool_name": nil, "metadata.tool_call_id": nil, "evidence_phase": "pre_commit"}, "allow"},

		// AH-C-127: what the manifest says is not there.
		"AH-C-127 not exposed":   {"plain", set{"event_type": "PreLLMCall", "tool_name": nil}, "deny event_type_not_exposed@/event_type"},
		"AH-C-127 planned":       {"plain", set{"event_type": "PreDeploy", "tool_name": nil}, "deny event_type_not_exposed@/event_type"},
		"AH-C-127 partial":       {"partly", governed(nil), "allow"},
		"AH-C-127 not mentioned": {"plain", set{"event_type": "WebActionRequested", "tool_name": nil}, "allow"},
		"AH-C-127 only told of":  {"plain", set{"event_type": "PostLLMCall", "tool_name": nil}, "allow observational (observational)"},

		// AH-C-129, AH-C-130: hooks that are not what they were.
		"AH-C-129 not as expected":        {"plain", hook(set{"expected_fingerprint": hash, "observed_fingerprint": other}), "deny hook_fingerprint_mismatch@/metadata/hook_trust hook_not_trusted@/metadata/hook_trust publisher_claims_ignored@/metadata"},
		"AH-C-129 not as in the manifest": {"plain", hook(set{"fingerprint": other}), "deny hook_fingerprint_mismatch@/metadata/hook_trust publisher_claims_ignored@/metadata"},
		"AH-C-129 as in the manifest":     {"plain", hook(set{"fingerprint": strings.ToUpper(hash)}), "allow publisher_claims_ignored@/metadata"},
		"AH-C-129 another hook":           {"plain", hook(set{"hook_id": "x", "fingerprint": other}), "allow publisher_claims_ignored@/metadata"},
		"AH-C-130 modified":               {"plain", hook(set{"trust_status": "modified"}), "deny hook_not_trusted@/metadata/hook_trust publisher_claims_ignored@/metadata"},
		"AH-C-130 one of several":         {"plain", set{"metadata.hook_trust": []any{set{"trust_status": "trusted"}, set{"trust_status": "untrusted"}}}, "deny hook_not_trusted@/metadata/hook_trust publisher_claims_ignored@/metadata"},
		"AH-C-130 in the attestation":     {"plain", set{"metadata.runtime_attestation": set{"hooks": []any{set{"trust_status": "disabled"}}}}, "deny hook_not_trusted@/metadata/hook_trust publisher_claims_ignored@/metadata"},
		"AH-C-130 in the runtime":         {"plain", set{"metadata.managed_runtime": set{"hooks": set{"trust_status": "modified"}}}, "deny hook_not_trusted@/metadata/hook_trust publisher_claims_ignored@/metadata"},
		"AH-C-130 nonsense says nothing":  {"plain", set{"metadata.hook_trust": []any{"trusted", 7.0}}, "allow publisher_claims_ignored@/metadata"},

		"AH-C-132 invalid contract": {"plain", set{"metadata.runtime_contract": set{"signature_status": "invalid"}}, "deny runtime_contract_invalid@/metadata/runtime_contract/signature_status publisher_claims_ignored@/metadata"},
		"AH-C-134 revoked":          {"plain", set{"metadata.managed_runtime": set{"registration_status": "revoked"}}, "deny runtime_not_approved@/metadata/managed_runtime publisher_claims_ignored@/metadata"},
		"AH-C-134 expired":          {"plain", set{"metadata.managed_runtime": set{"approval_status": "expired"}}, "deny runtime_not_approved@/metadata/managed_runtime publisher_claims_ignored@/metadata"},
		"AH-C-134 not compliant":    {"plain", set{"metadata.managed_runtime": set{"device_registry": set{"posture": "non_compliant"}}}, "deny runtime_not_approved@/metadata/managed_runtime publisher_claims_ignored@/metadata"},
		"AH-C-134 all is well":      {"plain", set{"metadata.managed_runtime": set{"registration_status": "registered", "approval_status": "approved"}}, "allow publisher_claims_ignored@/metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			more := set{}
			if c.source != "" {
				more["source"] = c.source
			}
			for k, v := range c.set {
				more[k] = v
			}
			source := "rt1"
			if c.source == "codexx" || c.source == "" {
				source = "rt2" // not registered
			}
			if _, o := askDeclared(reg, source, event(t, more)); said(o) != c.want {
				t.Errorf("got  %s\nwant %s", said(o), c.want)
			}
		})
	}
}

// An unregistered manifest applies to every publisher of its family.
func TestUnregisteredManifest(t *testing.T) {
	reg := registry(t)
	if _, o := askDeclared(reg, "rt2", event(t, set{"source": "codex", "event_type": "PreLLMCall", "tool_name": nil})); said(o) != "deny event_type_not_exposed@/event_type" {
		t.Error(said(o))
	}
	if _, o := askDeclared(reg, "rt2", event(t, set{"source": "plain", "event_type": "PreLLMCall", "tool_name": nil})); said(o) != "allow" {
		t.Error("a registration spoke for a publisher that it does not name: " + said(o))
	}
}

// Every type that proposes something waits for a verdict, and no other does.
func TestAdmissionCapable(t *testing.T) {
	for eventType, capable := range map[string]bool{
		"PreToolUse": true, "PreLLMCall": true, "PreAnything": true, "WebActionRequested": true, "WebResultSelected": true,
		"WebSearchRequested": false, "WebSearchResultsReturned": false, "WebPageRead": false, "WebActionCompleted": false, "EvidenceUsedInOutput": false,
		"PostToolUse": false, "PostLLMCall": false, "ModelResponse": false, "SessionStart": false, "SessionEnd": false, "UserPromptSubmit": false,
		"AgentHandoff": false, "ErrorOccurred": false, "ToolCallValidated": false, "ToolCallRedacted": false, "ToolCallRetried": false,
		"ApprovalRequested": false, "ApprovalGranted": false, "ApprovalDenied": false, "ToolUseResumed": false, "ToolUseBlocked": false,
		"RuntimeContractLoaded": false, "GoalSet": false, "GoalStatus": false,
		"Preview": true, // no word of the protocol's: unless it says that it only tells, it asks
	} {
		c, o := ask(event(t, set{"event_type": eventType, "metadata.execution": set{"outcome": "succeeded"}}), nil)
		if o.Observational == capable || o.Malformed {
			t.Errorf("%s: %s", eventType, said(o))
		}
		if o.Observational && (c.Tool != "" || c.ToolCallID != "" || len(o.Reasons) != 1) {
			t.Errorf("%s was evaluated: %s", eventType, said(o))
		}
	}
}

// The verdict on the end of a call that says that it waits is none on the call, which has run or was blocked.
func TestEndOfACallThatWaits(t *testing.T) {
	for name, more := range map[string]set{
		"a result": {"event_type": "PostToolUse"}, "a blocked call": {"event_type": "ToolUseBlocked"}, "an error": {"event_type": "ErrorOccurred"},
		"a phase that is no text": {"event_type": "PostToolUse", "evidence_phase": 7}, "another member, too": {"event_type": "PostToolUse", "session_id": 7},
	} {
		if more["evidence_phase"] == nil {
			more["evidence_phase"] = "pre_commit"
		}
		c, o := ask(event(t, more), nil)
		if o.Observational || c.Tool != "" || c.ToolCallID != "" || c.Args != nil || c.ArgsCanonical != nil {
			t.Errorf("%s: %s, of the tool %q and call %q", name, said(o), c.Tool, c.ToolCallID)
		}
	}
	header := map[string][]string{events.HeaderToolCallID: {"c1"}}
	if c, o := ask(event(t, set{"event_type": "ErrorOccurred", "evidence_phase": "pre_commit", "metadata.tool_call_id": nil}), header); c.ToolCallID != "" {
		t.Errorf("an error whose call is in the header: %s, of the call %q", said(o), c.ToolCallID)
	}
}

// Both forms of one event are judged alike, but for what is noted about the
// verdict on it: the form decides nothing.
func TestForms(t *testing.T) {
	for name, more := range map[string]set{
		"allowed": governed(set{"evidence_phase": "pre_commit"}), "asked": governed(set{"metadata.risk": set{"risk_class": "write", "requires_human_approval": true}}),
		"denied": governed(set{"metadata.validation": set{"status": "failed"}}),
	} {
		_, request := ask(event(t, more), nil)
		more["metadata.admission_verdict"] = set{"verdict": "allow", "subscriber": "countersign"}
		_, evidence := ask(event(t, more), nil)
		without := slices.DeleteFunc(slices.Clone(evidence.Reasons), func(r events.Reason) bool { return r.Code == CodeVerdictIgnored })
		if request.Verdict != evidence.Verdict || !slices.Equal(request.Reasons, without) {
			t.Errorf("%s: %s and %s", name, said(request), said(evidence))
		}
	}
}

// The upstream's own examples, as admission requests.
func TestUpstreamExamples(t *testing.T) {
	root := os.Getenv("COUNTERSIGN_SHARED")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared")
	}
	for file, want := range map[string]string{
		"sample-event.json": "allow observational (observational)",
		"examples/pre-tool-use-action-governance-email-send.json":  "ask human_approval_required@/metadata/risk/requires_human_approval earlier_verdict@/metadata/admission_verdict/verdict publisher_verdict_ignored@/metadata/admission_verdict publisher_approval_ignored@/metadata/approval",
		"examples/pre-tool-use-action-governance-mcp-call.json":    "allow publisher_verdict_ignored@/metadata/admission_verdict",
		"examples/post-tool-use-action-governance-email-send.json": "allow observational (observational)",
		"examples/pre-tool-use-normalized-resource.json":           "allow tool_call_id_missing@/metadata/tool_call_id",
		"examples/tool-use-resumed-after-approval.json":            "allow observational (observational)",
		"examples/session-start-with-attestation.json":             "allow observational (observational)",
		"examples/web-search-results-returned.json":                "allow observational (observational)",
	} {
		t.Run(file, func(t *testing.T) {
			body, err := os.ReadFile(filepath.Join(root, "upstream", "agenthook", file))
			if err != nil {
				t.Skipf("the upstream material is not here (set COUNTERSIGN_SHARED): %v", err)
			}
			c, o := ask(string(body), nil)
			if said(o) != want {
				t.Errorf("got  %s\nwant %s", said(o), want)
			}
			reply, err := Evaluator{}.Reply(c, events.Decision{Verdict: o.Verdict}, "r")
			if r, perr := wire.ParseReply(reply); err != nil || perr != nil || r.EventID == "" || r.Reason == "" || r.Decision != string(o.Verdict) { // AH-C-070
				t.Errorf("%s: %v %v", reply, err, perr)
			}
		})
	}
}
