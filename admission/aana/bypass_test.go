package aana

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/admission/call"
	wire "github.com/countersign-dev/countersign/events/aana"
)

// Every test here is a hole of the reference that was found by running it, or a
// way around the checks that take its place. The reference's own answers are in
// the tables where the profile reference-sdk must repeat them.

func TestHoleSummaryProvesTheOpposite(t *testing.T) {
	for _, summary := range []string{"The owner has NOT confirmed the move.", "The move is unconfirmed."} {
		in := event(wire.Write, wire.None, doc{"evidence_refs": refs(ref("other", doc{"summary": summary}))})
		// Without the marker the SDK has made ask of the accept already.
		expectation{hard: "defer A", sdk: "ask"}.check(t, in)
		in["schema_version"] = wire.ContractVersion
		expectation{hard: "defer A", sdk: "accept"}.check(t, in)
		in["authorization_state"], in["evidence_refs"] = "confirmed", refs(ref("approval", doc{"summary": summary}))
		expectation{hard: "ask N,V", sdk: "accept"}.check(t, in)
	}
}

func TestHoleUnverifiedApproval(t *testing.T) {
	for _, trust := range []string{"unverified", "unknown"} {
		expectation{hard: "ask N,V", sdk: "accept"}.check(t, event(wire.Write, wire.Confirmed, doc{"evidence_refs": refs(ref("approval", doc{"trust_tier": trust}))}))
	}
	expectation{hard: "ask N,V", sdk: "accept"}.check(t, event(wire.Write, wire.Confirmed, doc{"evidence_refs": refs(ref("approval", doc{"trust_tier": "user_claimed"}))}))
}

func TestHoleIdentifierProves(t *testing.T) {
	for id, state := range map[string]wire.State{"x.confirmed": wire.Confirmed, "x.authenticated": wire.Authenticated} {
		in := event(wire.PrivateRead, state, doc{"evidence_refs": refs(ref("other", doc{"source_id": id}))})
		expectation{hard: "ask N,P", sdk: "accept"}.check(t, in)
	}
}

func TestHoleStateIsLiftedBeforeItIsChecked(t *testing.T) {
	in := event(wire.PrivateRead, "banana", doc{"evidence_refs": refs(ref("auth_event"))})
	expectation{hard: "refuse schema_validation_failed", sdk: "refuse contract_normalization_failed"}.check(t, in)
	in["schema_version"] = wire.ContractVersion
	expectation{hard: "refuse schema_validation_failed", sdk: "accept"}.check(t, in)
	d := decide(t, sdk, in)
	if d.Envelope.State != "authenticated" || d.Envelope.Reasons[0] != reasonLiftedRead {
		t.Errorf("%s %v", d.Envelope.State, d.Envelope.Reasons)
	}
	// A word that the reference takes for a stronger state is not lifted.
	in["authorization_state"] = "logged_in"
	expectation{hard: "refuse schema_validation_failed"}.check(t, in)
	write := event(wire.Write, wire.None, doc{"schema_version": wire.ContractVersion, "evidence_refs": proof(wire.Confirmed)})
	if d := decide(t, sdk, write); d.said() != "accept" || d.Envelope.Reasons[0] != reasonLiftedWrite || d.Envelope.State != "confirmed" {
		t.Errorf("%s %v", d.said(), d.Envelope.Reasons)
	}
	expectation{hard: "defer A", sdk: "accept"}.check(t, write)
	// What cannot be lifted breaks the contract's condition.
	expectation{hard: "defer A", sdk: "refuse schema_validation_failed"}.check(t, event(wire.Write, wire.None, doc{"schema_version": wire.ContractVersion}))
	expectation{hard: "defer P", sdk: "refuse schema_validation_failed"}.check(t, event(wire.PrivateRead, wire.None, doc{"schema_version": wire.ContractVersion}))
	expectation{hard: "defer U", sdk: "refuse schema_validation_failed"}.check(t, event(wire.Unknown, wire.None, doc{"schema_version": wire.ContractVersion}))
}

func TestHoleRefsThatAreNoList(t *testing.T) {
	for _, shape := range []any{"x.confirmed", doc{"x.confirmed": 1}, ref("approval"), doc{}, "", 7, true} {
		in := event(wire.Write, wire.Confirmed, doc{"evidence_refs": shape})
		d := decide(t, hard, in)
		if d.said() != "refuse schema_validation_failed" || d.Envelope.Errors[0].Path != "evidence_refs" {
			t.Errorf("%v: %s %v", shape, d.said(), d.Envelope.Errors)
		}
	}
	// The SDK takes one reference for a list of it.
	expectation{hard: "refuse schema_validation_failed", sdk: "accept"}.check(t, event(wire.Write, wire.Confirmed, doc{"evidence_refs": ref("approval")}))
}

func TestHoleSecretsInArguments(t *testing.T) {
	for name, args := range map[string]doc{
		"model key":        {"note": "use sk-abcdefghijkl1234"},
		"cloud key":        {"deep": doc{"list": refs("x", "AKIAABCDEFGHIJKLMNOP")}},
		"assignment":       {"cmd": "export PASSWORD=correct-horse"},
		"named password":   {"password": "correct-horse"},
		"named camel case": {"dbPassword": "correct-horse"},
		"named API key":    {"x-api-key": "abcdef123456"},
		"named, in a list": {"tokens": refs("x"), "token": refs("abcdef123456")},
		"in a name":        {"sk-abcdefghijkl1234": 1},
		"social security":  {"note": "123-45-6789"},
		"card":             {"card": "4111 1111 1111 1111"},
		"card number":      {"card": 4111111111111111},
		"full-width":       {"note": "ｓｋ-abcdefghijkl1234"},
	} {
		t.Run(name, func(t *testing.T) {
			expectation{hard: "refuse proposed_arguments_secret_leak", sdk: "accept"}.check(t, event(wire.Write, wire.Confirmed, doc{"proposed_arguments": args}))
		})
	}
	for name, args := range map[string]doc{
		"personal data":   {"to": "owner@parcels.example", "phone_number": "555 123 4567"},
		"milliseconds":    {"since": 1747000000000, "until": "1747000000001"},
		"microseconds":    {"at": 1747000000000000},
		"redacted":        {"password": "[redacted]", "token": "redacted", "secret": "********", "api_key": ""},
		"page token":      {"page_size": 10, "tokens": 12345678},
		"counter":         {"n": 1234567890123456, "m": json.Number("4.1111111111e15")},
		"no name":         {"": "abcdefghijkl"},
		"ordinary":        {"skill": "sk-short", "note": "the secret of good bread: time"},
		"fifteen minutes": {"password_age": "15 minutes"},
	} {
		t.Run(name, func(t *testing.T) {
			expectation{hard: "accept"}.check(t, event(wire.Write, wire.Confirmed, doc{"proposed_arguments": args}))
		})
	}
}

func TestHoleOrderIsInBorder(t *testing.T) {
	for name, want := range map[string]string{
		"get_border_info": "accept", "get_recorder_state": "accept", "get_accounting_rules": "accept", "discard_ticketing": "accept",
		"get_order_info": "defer I,P", "get_orders": "defer I,P", "getOrderInfo": "defer I,P", "GETOrder2": "defer I,P", "getuserprofile": "defer I,P", "users": "defer I,P",
		"fetch.customer.data": "defer I,P", "ｕｓｅｒ_card": "defer I,P", "userinfo": "defer I,P",
	} {
		in := event(wire.PublicRead, wire.None, doc{"tool_name": name, "evidence_refs": refs()})
		if want == "defer I,P" {
			want = "defer I,P,M"
		}
		if d := decide(t, hard, in); d.said() != spell(want) {
			t.Errorf("%s: %s, want %s", name, d.said(), spell(want))
		}
	}
	if d := decide(t, sdk, event(wire.PublicRead, wire.None, doc{"tool_name": "get_border_info"})); d.said() != spell("defer I,P") {
		t.Error(d.said())
	}
}

func TestHolePayIsInPayload(t *testing.T) {
	for name, want := range map[string]bool{
		"update_payload": false, "sender_lookup": false, "tutorial_presets": false, "fragrance": false,
		"pay_invoice": true, "makePayment": true, "payout": true, "deletes_rows": true, "deleting": true, "deletion-run": true, "resetting": true,
		"bulk-deployments": true, "grantAccess": true, "SEND": true, "purchased": true, "revoking": true, "transferring": true, "transfers": true,
	} {
		if got := riskyByWords(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	expectation{hard: "ask X", sdk: "ask H,X"}.check(t, event(wire.Write, wire.Validated, doc{"tool_name": "update_payload"}))
	for _, verb := range riskyVerbs {
		expectation{hard: "ask H,X"}.check(t, event(wire.Write, wire.Validated, doc{"tool_name": "bulk_" + verb}))
	}
	for domain := range riskyDomains {
		expectation{hard: "ask H,X"}.check(t, event(wire.Write, wire.Validated, doc{"risk_domain": domain}))
	}
}

func TestHolePublicTurnsIdentityOff(t *testing.T) {
	for _, more := range []doc{
		{"evidence_refs": refs(ref("policy", doc{"summary": "This is public."}))}, {"user_intent": "find it"}, {"proposed_arguments": doc{"q": "opening hours"}},
	} {
		expectation{hard: "defer I,P", sdk: "accept"}.check(t, event(wire.PublicRead, wire.None, doc{"tool_name": "get_customer_card"}, more))
	}
	// The tool's own name may, in both profiles.
	expectation{hard: "accept"}.check(t, event(wire.PublicRead, wire.None, doc{"tool_name": "search_orders"}))
	expectation{hard: "accept"}.check(t, event(wire.PublicRead, wire.None, doc{"tool_name": "list_tickets"}))
	// An argument's name decides before any of them.
	expectation{hard: "defer I,P"}.check(t, event(wire.PublicRead, wire.None, doc{"tool_name": "search_public_list", "proposed_arguments": doc{"user_id": 7}}))
}

func TestIdentityKeysInDisguise(t *testing.T) {
	for _, args := range []doc{{"userId": 1}, {"USER_ID": 1}, {"user-id": 1}, {"filter": doc{"accountId": 1}}, {"list": refs(doc{"patient_id": 1})}, {"Email": "x"},
		{"userid": 1}, {"USERID": 1}, {"accountid": 1}, {"filter": doc{"orderid": 1}}, {"e-mail": "x"}, {"ｕｓｅｒｉｄ": 1}} {
		expectation{hard: "defer I,P", sdk: "accept"}.check(t, event(wire.PublicRead, wire.None, doc{"proposed_arguments": args}))
	}
	for key := range identityKeys {
		expectation{hard: "defer I,P"}.check(t, event(wire.PublicRead, wire.None, doc{"proposed_arguments": doc{key: 1}}))
	}
	expectation{hard: "accept"}.check(t, event(wire.PublicRead, wire.None, doc{"proposed_arguments": doc{"userid_format": 1, "q": "user_id"}}))
}

// A misclassified read never passes, however well it is authorized.
func TestMisclassifiedReadNeverPasses(t *testing.T) {
	in := event(wire.PublicRead, wire.Authenticated, doc{"tool_name": "get_customer_card"})
	d := decide(t, hard, in)
	if d.said() != spell("ask I") || d.Envelope.Category != "public_read" || !slices.Contains(d.Envelope.Reasons, reasonReclassified) {
		t.Errorf("%s %v", d.said(), d.Envelope.Reasons)
	}
	r := decide(t, sdk, in)
	if r.said() != spell("accept I") || r.Opinion.Verdict != "ask" || r.Envelope.Execution.Allowed {
		t.Errorf("%s %s", r.said(), r.Opinion.Verdict)
	}
}

// An accept whose gate fails is no accept. The reference leaves the route.
func TestAcceptWithHardBlockers(t *testing.T) {
	for name, in := range map[string]doc{
		"public read above its evidence":  event(wire.PublicRead, wire.Confirmed, doc{"evidence_refs": refs("note")}),
		"private read above its evidence": event(wire.PrivateRead, wire.Validated, doc{"evidence_refs": refs(ref("auth_event"))}),
	} {
		t.Run(name, func(t *testing.T) {
			expectation{hard: "ask N", sdk: "accept N"}.check(t, in)
			h, r := decide(t, hard, in), decide(t, sdk, in)
			if h.Opinion.Verdict != "ask" || r.Opinion.Verdict != "ask" || h.Envelope.Gate != "fail" || r.Envelope.Gate != "fail" || h.Opinion.DecidingCode != reasonGateFails {
				t.Errorf("%s %s %s", h.Opinion.Verdict, r.Opinion.Verdict, h.Opinion.DecidingCode)
			}
			if !strings.Contains(r.raw, `"recommended_action":"accept"`) || strings.Contains(r.raw, `"execution_allowed":true,"fail_closed"`) {
				t.Error(r.raw)
			}
		})
	}
}

// Whether an optional marker is there must not change a decision.
func TestMarkerChangesNothing(t *testing.T) {
	for _, c := range wire.Categories() {
		for _, s := range wire.States() {
			plain, marked := event(c, s), event(c, s, doc{"schema_version": wire.ContractVersion})
			if diff := cmp.Diff(decide(t, hard, plain).Envelope, decide(t, hard, marked).Envelope, cmp.AllowUnexported(EvidenceIntegrity{})); diff != "" {
				t.Errorf("%s %s: %s", c, s, diff)
			}
		}
	}
}

func TestRawArgumentsAreRefused(t *testing.T) {
	expectation{hard: "refuse proposed_arguments_unparsed", sdk: "accept"}.check(t, event(wire.Write, wire.Confirmed, doc{"proposed_arguments": doc{"__raw": "{bad"}}))
}

func TestTooMuchEvidence(t *testing.T) {
	many := make([]any, MaxEvidenceRefs+1)
	for i := range many {
		many[i] = fmt.Sprint("note.", i)
	}
	in := event(wire.Write, wire.Confirmed, doc{"evidence_refs": many})
	expectation{hard: "refuse schema_validation_failed"}.check(t, in)
	if diff := cmp.Diff([]ValidationError{{"evidence_refs", CodeTooManyRefs}}, decide(t, hard, in).Envelope.Errors); diff != "" {
		t.Error(diff)
	}
	// As much as is looked at must not make an answer that cannot be sent.
	worst := make([]any, MaxEvidenceRefs)
	for i := range worst {
		worst[i] = ref("other", doc{"source_id": strings.Repeat("é", 127) + fmt.Sprint(i), "trust_tier": "unknown", "redaction_status": "unknown", "retrieved_at": "?",
			"freshness": doc{"status": "unknown"}, "summary": "unknown conflict", "citation_url": "x"})
	}
	for _, p := range profiles {
		d := decide(t, p, event(wire.Write, wire.Confirmed, doc{"evidence_refs": worst}))
		if len(d.raw) > 900_000 || len(d.Envelope.Evidence.Issues) != maxIssues || len(d.Envelope.Evidence.WarningCodes) != 3 {
			t.Errorf("%d bytes, %d issues, %v", len(d.raw), len(d.Envelope.Evidence.Issues), d.Envelope.Evidence.WarningCodes)
		}
	}
	keys := doc{}
	for i := range 5000 {
		keys[fmt.Sprint("k", i)] = i
	}
	if d := decide(t, hard, event(wire.PublicRead, wire.None, doc{"proposed_arguments": keys})); len(d.raw) > 30_000 {
		t.Errorf("%d bytes", len(d.raw))
	}
}

// What a policy sees holds no claim of the sender's.
func TestPoliciesDoNotSeeClaims(t *testing.T) {
	d := decide(t, hard, event(wire.Write, wire.Confirmed, doc{"tool_name": "send_note", "evidence_refs": refs("approval.confirmed"), "user_intent": "hello"}))
	want := map[string]any{"risk_class": "write", "level": "high", "risk_domain": "commerce", "irreversible": true, "authorization_state": "user_claimed"}
	if diff := cmp.Diff(want, d.Call.Risk); diff != "" {
		t.Error(diff)
	}
	for _, key := range claimMembers {
		if _, there := d.Call.Event[key]; there {
			t.Errorf("%s is visible", key)
		}
	}
	if d.Call.Event["user_intent"] != "hello" || d.Call.Event["tool_category"] != "write" {
		t.Errorf("%v", d.Call.Event)
	}
	for c, level := range categoryLevels {
		if got := decide(t, hard, event(c, wire.None)).Call.Risk; got["level"] != level || got["irreversible"] != false || got["risk_class"] != string(c) {
			t.Errorf("%s: %v", c, got)
		}
	}
	if got := decide(t, hard, event(wire.PublicRead, wire.None, doc{"tool_name": "get_user_card"})).Call.Risk; got["risk_class"] != "private_read" {
		t.Errorf("%v", got)
	}
}

// An unknown profile is the hardened one.
func TestUnknownProfile(t *testing.T) {
	in := event(wire.Write, wire.Confirmed, doc{"evidence_refs": refs("x.confirmed")})
	for _, p := range []call.Profile{"", "reference", "REFERENCE-SDK"} {
		if d := decide(t, p, in); d.said() != spell("ask N,V") || d.Opinion.Reasons[0].Evaluator != Name {
			t.Errorf("%q: %s", p, d.said())
		}
	}
	if d := decide(t, sdk, in); d.Opinion.Reasons[0].Evaluator != NameReference {
		t.Error("a record does not show the profile")
	}
}
