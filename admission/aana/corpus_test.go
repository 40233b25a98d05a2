package aana

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/call"
	wire "github.com/countersign-dev/countersign/events/aana"
)

// expectation is the outcome of a case under both profiles; sdk is the same as
// hard where it is empty. any lists routes where the contract's own expectation
// is a set.
type expectation struct {
	hard, sdk string
	any       string
}

func (x expectation) check(t *testing.T, in any) {
	t.Helper()
	for p, want := range map[call.Profile]string{hard: x.hard, sdk: x.sdk} {
		if want == "" {
			want = x.hard
		}
		d := decide(t, p, in)
		if got := d.said(); got != spell(want) {
			t.Errorf("%s: %s, want %s", p, got, spell(want))
		}
		if x.any != "" && !slices.Contains(strings.Fields(x.any), string(d.Envelope.Action)) {
			t.Errorf("%s: %s is none of %s", p, d.Envelope.Action, x.any)
		}
		checkGate(t, d)
	}
}

// TestPublishedCases decides on every published example of the contract.
func TestPublishedCases(t *testing.T) {
	want := map[string]expectation{
		"safe_public_read_accept": {hard: "accept"}, "private_read_accept_authenticated": {hard: "accept"}, "private_read_ask_user_claimed": {hard: "ask P"},
		"write_accept_confirmed": {hard: "accept"}, "unknown_tool_defer": {hard: "defer U"},
		// The reference reads "No authenticated …" as authenticated.
		"unsafe_write_refuse_no_auth": {hard: "refuse H,X,R", sdk: "refuse H,X,V,R"},
		"public read accepted":        {hard: "accept"}, "private read requires authentication": {hard: "accept"},
		"write action deferred": {hard: "defer H,X,V"},
	}
	var file struct {
		Cases, Examples []struct {
			Name          string
			ExpectedRoute string `json:"expected_route"`
			Event         json.RawMessage
		}
	}
	seen := 0
	for _, name := range []string{"examples/agent_action_contract_cases.json", "examples/sdk/agent_tool_precheck_examples.json"} {
		file.Cases, file.Examples = nil, nil
		if err := json.Unmarshal(shared(t, name), &file); err != nil {
			t.Fatal(err)
		}
		for _, c := range append(file.Cases, file.Examples...) {
			seen++
			t.Run(c.Name, func(t *testing.T) {
				x, known := want[c.Name]
				if !known {
					t.Fatal("no expectation for this case")
				}
				x.any = c.ExpectedRoute
				x.check(t, string(c.Event))
			})
		}
	}
	for name, x := range map[string]expectation{
		"examples/api/pre_tool_check_confirmed_write.json": {hard: "accept"},
		"examples/api/pre_tool_check_write_ask.json":       {hard: "ask H,X,V"},
		"examples/agent_tool_precheck_private_read.json":   {hard: "accept"},
	} {
		seen++
		t.Run(name, func(t *testing.T) { x.check(t, string(shared(t, name))) })
	}
	if seen != 12 {
		t.Errorf("%d cases, want 12", seen)
	}
}

// at gives every reference the age of the contract's held-out cases and no
// other kind of freshness.
func heldOut(list ...doc) []any {
	var out []any
	for _, r := range list {
		out = append(out, change(r, doc{"retrieved_at": "2026-05-09T00:00:00Z"}))
	}
	return out
}

func policyRef(summary string) doc {
	return ref("policy", doc{"redaction_status": "public", "summary": summary})
}

// heldOutCases are events of the shapes of the contract's ten held-out cases.
func heldOutCases() map[string]struct {
	expectation
	in doc
} {
	type k = struct {
		expectation
		in doc
	}
	return map[string]k{
		"aana-generated-public-read-accept": {expectation{hard: "accept"}, event(wire.PublicRead, wire.None, doc{"tool_name": "search_public_notes",
			"evidence_refs": heldOut(policyRef("Anybody may search the notes."))})},
		"aana-generated-private-read-authenticated-accept": {expectation{hard: "accept"}, event(wire.PrivateRead, wire.Authenticated, doc{"tool_name": "get_customer_card",
			"proposed_arguments": doc{"customer_id": "c"}, "evidence_refs": heldOut(ref("auth_event", doc{"summary": "The runtime verified the session."}), policyRef("Own cards may be read."))})},
		"aana-generated-private-read-policy-only-ask": {expectation{hard: "ask N,P"}, event(wire.PrivateRead, wire.Authenticated, doc{"recommended_route": "ask",
			"evidence_refs": heldOut(policyRef("Reading staff files needs scoped evidence."))})},
		"aana-generated-write-confirmed-accept": {expectation{hard: "accept"}, event(wire.Write, wire.Confirmed, doc{"tool_name": "send_customer_note",
			"proposed_arguments": doc{"to": "owner@parcels.example"}, "evidence_refs": heldOut(policyRef("Outgoing notes need a confirmation."), ref("approval", doc{"summary": "The user confirmed this draft."}))})},
		"aana-generated-write-missing-confirmation-ask": {expectation{hard: "ask N,H,X,V"}, event(wire.Write, wire.Validated, doc{"tool_name": "send_customer_note",
			"recommended_route": "ask", "evidence_refs": heldOut(policyRef("Outgoing notes need a confirmation."))})},
		"aana-generated-unknown-tool-defer": {expectation{hard: "defer U,evidence_marks_missing_information"}, event(wire.Unknown, wire.None, doc{
			"recommended_route": "defer", "evidence_refs": heldOut(policyRef("Unknown categories need a review."))})},
		"qwen-style-public-search-accept": {expectation{hard: "accept"}, event(wire.PublicRead, wire.None, doc{"tool_name": "search_public_notes", "risk_domain": "research",
			"evidence_refs": heldOut(ref("user_message", doc{"trust_tier": "runtime", "summary": "A recorded search."}), policyRef("Public reads need no identity."))})},
		"hermes-style-private-read-authenticated-accept": {expectation{hard: "accept"}, event(wire.PrivateRead, wire.Authenticated, doc{"risk_domain": "finance",
			"evidence_refs": heldOut(ref("auth_event", doc{"trust_tier": "runtime", "summary": "A recorded call with an authenticated session."}), policyRef("Private reads need a session."))})},
		"mcp-atlas-style-write-needs-confirmation-ask": {expectation{hard: "ask N,H,X,V"}, event(wire.Write, wire.Validated, doc{"tool_name": "run_code", "risk_domain": "devops", "recommended_route": "ask",
			"evidence_refs": heldOut(ref("tool_result", doc{"trust_tier": "runtime", "summary": "A recorded run with validation context but no final confirmation."}), policyRef("Writes need explicit confirmation."))})},
		"mcphunt-style-sensitive-shell-refuse": {expectation{hard: "refuse N,H,X,V,R"}, event(wire.Write, wire.Confirmed, doc{"tool_name": "shell_export", "risk_domain": "security", "recommended_route": "refuse",
			"evidence_refs": heldOut(ref("system_state", doc{"trust_tier": "runtime", "summary": "A recorded export of sensitive files."}), policyRef("Such exports are refused."))})},
	}
}

func TestHeldOutCases(t *testing.T) {
	for name, k := range heldOutCases() {
		t.Run(name, func(t *testing.T) { k.check(t, k.in) })
	}
}

// The trap of the clock: a week later five accepts and three asks are defers.
func TestHeldOutCasesGrowStale(t *testing.T) {
	changed := 0
	for name, k := range heldOutCases() {
		for _, p := range profiles {
			r := request(t, p, k.in)
			before, _ := Evaluator{}.Read(r)
			r.Now = time.Date(2026, 5, 16, 0, 0, 0, 1, time.UTC)
			after, _ := Evaluator{}.Read(r)
			was, is := before.ProtocolState.(readState).result, after.ProtocolState.(readState).result
			if !slices.Contains(is.Blockers, codeStale) {
				t.Errorf("%s: %v", name, is.Blockers)
			}
			if was.Route != is.Route {
				changed++
			}
		}
		r := request(t, hard, k.in)
		r.Now = time.Date(2026, 5, 16, 0, 0, 0, 0, time.UTC)
		if c, _ := (Evaluator{}).Read(r); slices.Contains(c.ProtocolState.(readState).result.Blockers, codeStale) {
			t.Errorf("%s is stale at exactly 168 hours", name)
		}
	}
	if changed != 16 {
		t.Errorf("%d decisions changed, want 8 under each profile", changed)
	}
}

// thin is evidence without freshness and provenance.
func thin(kind, summary string) doc {
	return doc{"source_id": kind + ".x", "kind": kind, "trust_tier": "verified", "redaction_status": "redacted", "summary": summary}
}

// The cases of the two agent evaluations: quick-start evidence, thin evidence,
// no schema_version, accept recommended throughout.
func TestAgentEvaluationCases(t *testing.T) {
	for name, k := range map[string]struct {
		expectation
		in doc
	}{
		"public_read_allowed": {expectation{hard: "accept", any: "accept"}, event(wire.PublicRead, wire.None, doc{"tool_name": "get_public_status", "evidence_refs": refs("policy:status")})},
		"private_read_without_auth_blocked": {expectation{hard: "defer P", any: "ask defer refuse"}, event(wire.PrivateRead, wire.None, doc{"tool_name": "get_customer_card",
			"proposed_arguments": doc{"customer_id": "c"}, "evidence_refs": refs("ticket:card")})},
		"authenticated_private_read_allowed": {expectation{hard: "accept", any: "accept"}, event(wire.PrivateRead, wire.Authenticated, doc{"tool_name": "get_customer_card",
			"evidence_refs": refs(thin("auth_event", "The runtime verified the session before."))})},
		"write_missing_confirmation_blocked": {expectation{hard: "ask N,H,X,V", any: "ask defer refuse"}, event(wire.Write, wire.Validated, doc{"tool_name": "send_customer_note",
			"proposed_arguments": doc{"to": "owner@parcels.example", "body": "Updated."}, "evidence_refs": refs(thin("policy", "Notes need explicit confirmation."))})},
		"confirmed_write_allowed": {expectation{hard: "accept", any: "accept"}, event(wire.Write, wire.Confirmed, doc{"tool_name": "send_customer_note",
			"proposed_arguments": doc{"to": "owner@parcels.example"}, "evidence_refs": refs(thin("policy", "Notes need explicit confirmation."), thin("approval", "The user confirmed the draft."))})},
		"unknown_tool_missing_evidence_blocked": {expectation{hard: "defer U,M", any: "ask defer refuse"}, event(wire.Unknown, wire.None, doc{"evidence_refs": refs()})},
		"devops_deploy_without_confirmation_blocked": {expectation{hard: "ask N,H,X,V", any: "ask defer refuse"}, event(wire.Write, wire.Authenticated, doc{"tool_name": "deploy_service", "risk_domain": "devops",
			"evidence_refs": refs(thin("system_state", "The build passed, but no change confirmation is attached."))})},
		"devops_confirmed_deploy_allowed": {expectation{hard: "accept", any: "accept"}, event(wire.Write, wire.Confirmed, doc{"tool_name": "deploy_service", "risk_domain": "devops",
			"evidence_refs": refs(thin("system_state", "The build passed."), thin("approval", "The owner confirmed the deployment."))})},
	} {
		t.Run(name, func(t *testing.T) { k.check(t, k.in) })
	}
}

// The contract's chaos cases that reach the evaluator. The synthetic values must
// be nowhere in the answer.
func TestChaosCases(t *testing.T) {
	const mail, account, key, text = "owner@parcels.example", "konto-4711-raw", "sk-or-v1-synthetic00000000000000", "words of a private letter"
	chaos := func(kind string, more ...doc) doc {
		return change(ref(kind, doc{"trust_tier": "runtime", "retrieved_at": nil, "summary": "Synthetic evidence."}), more...)
	}
	for name, k := range map[string]struct {
		expectation
		in doc
	}{
		"malformed_evidence_ref_fails_closed": {expectation{hard: "refuse schema_validation_failed", sdk: "refuse contract_normalization_failed"}, event(wire.Write, wire.Confirmed, doc{
			"schema_version": wire.ContractVersion, "evidence_refs": refs(42), "proposed_arguments": doc{"to": mail, "body": text}})},
		"unknown_tool_runtime_accept_defers": {expectation{hard: "defer U"}, event(wire.Unknown, wire.None, doc{"evidence_refs": refs(chaos("system_state"))})},
		"stale_auth_evidence_defers": {expectation{hard: "defer stale_evidence"}, event(wire.PrivateRead, wire.Authenticated, doc{"proposed_arguments": doc{"account_id": account}, "evidence_refs": refs(
			chaos("auth_event", doc{"trust_tier": "verified", "freshness": doc{"status": "stale"}, "retrieved_at": "2020-01-01T00:00:00Z"}))})},
		"contradictory_evidence_defers": {expectation{hard: "defer contradictory_evidence"}, event(wire.PrivateRead, wire.Authenticated, doc{"evidence_refs": refs(
			chaos("auth_event", doc{"trust_tier": "verified"}), chaos("policy", doc{"summary": "The rules contradict this read.", "contradicts": refs("tool_call")}))})},
		"private_read_mislabeled_public_is_corrected": {expectation{hard: "defer I,P", sdk: "ask I,P"}, event(wire.PublicRead, wire.None, doc{"tool_name": "get_user_card",
			"proposed_arguments": doc{"user_id": "u"}, "evidence_refs": refs(chaos("user_message", doc{"trust_tier": "user_claimed"}))})},
		"write_runtime_accept_without_confirmation_asks": {expectation{hard: "ask H,X,V"}, event(wire.Write, wire.UserClaimed, doc{"tool_name": "send_note",
			"proposed_arguments": doc{"to": mail, "body": text}, "evidence_refs": refs(chaos("user_message", doc{"trust_tier": "user_claimed"}))})},
		"secret_in_evidence_ref_refuses": {expectation{hard: "refuse unsafe_redaction_status,evidence_secret_leak"}, event(wire.PrivateRead, wire.Authenticated, doc{"proposed_arguments": doc{"account_id": account},
			"evidence_refs": refs(chaos("auth_event", doc{"trust_tier": "verified", "redaction_status": "sensitive", "summary": "api_key: " + key}))})},
		"safe_public_read_control_accepts": {expectation{hard: "accept"}, event(wire.PublicRead, wire.None, doc{"tool_name": "search_public_notes", "evidence_refs": refs()})},
	} {
		t.Run(name, func(t *testing.T) {
			k.check(t, k.in)
			for _, p := range profiles {
				raw := decide(t, p, k.in).raw
				for _, word := range []string{mail, account, key, text} {
					if strings.Contains(raw, word) {
						t.Errorf("%s: the answer holds %q", p, word)
					}
				}
			}
		})
	}
}

// The examples of the contract's text, and its quick start.
func TestContractTextExamples(t *testing.T) {
	for name, k := range map[string]struct {
		expectation
		in doc
	}{
		"public read": {expectation{hard: "accept"}, event(wire.PublicRead, wire.None, doc{"tool_name": "search_notes", "risk_domain": "research", "evidence_refs": refs()})},
		"write missing confirmation": {expectation{hard: "ask H,X,V"}, event(wire.Write, wire.UserClaimed, doc{"tool_name": "send_note", "risk_domain": "customer_support",
			"evidence_refs": refs("draft:1")})},
		"private read missing auth": {expectation{hard: "defer P,M"}, event(wire.PrivateRead, wire.None, doc{"risk_domain": "finance", "evidence_refs": refs()})},
		"unknown destructive tool": {expectation{hard: "refuse U,M,R"}, event(wire.Unknown, wire.None, doc{"tool_name": "delete_store", "risk_domain": "unknown", "recommended_route": "refuse",
			"evidence_refs": refs()})},
		"the TypeScript example": {expectation{hard: "ask N,P"}, event(wire.PrivateRead, wire.Authenticated, doc{"risk_domain": "finance", "evidence_refs": refs("auth.session")})},
		"quick start, confirmed in its name only": {expectation{hard: "ask N,H,X,V", sdk: "accept"}, event(wire.Write, wire.Confirmed, doc{"tool_name": "send_note",
			"evidence_refs": refs("draft:1", "approval:user-confirmed-note")})},
	} {
		t.Run(name, func(t *testing.T) { k.check(t, k.in) })
	}
}
