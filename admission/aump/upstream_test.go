package aump

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// suiteCase is one case of the published conformance manifest.
type suiteCase struct {
	ID, Category, Schema, Path, Mandate, Action, Expect string
	BridgeType                                          string          `json:"bridge_type"`
	Context                                             json.RawMessage `json:"context"`
	ReasonCodes                                         []string        `json:"reason_codes"`
}

type suite struct {
	Defaults struct{ Now time.Time }
	Cases    []suiteCase
}

func loadSuite(t *testing.T) suite {
	t.Helper()
	var s suite
	if err := json.Unmarshal(upstream(t, "conformance/manifest.json"), &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Cases) < 29 || s.Defaults.Now.IsZero() {
		t.Fatalf("%d cases at %s", len(s.Cases), s.Defaults.Now)
	}
	return s
}

// validateKinds are our kinds for the manifest's schemas.
var validateKinds = map[string]string{"mandate": KindMandate, "profile": KindProfile, "evidence-event": KindEvidence}

// TestUpstreamConformance runs every case of the published suite, the actions
// under both profiles.
func TestUpstreamConformance(t *testing.T) {
	s := loadSuite(t)
	ran := map[string]int{}
	for _, tc := range s.Cases {
		t.Run(tc.ID, func(t *testing.T) {
			ran[tc.Category]++
			switch tc.Category {
			case "schema":
				expectReport(t, tc, validateKinds[tc.Schema], nil, s.Defaults.Now)
			case "mandate":
				expectReport(t, tc, KindMandate, nil, s.Defaults.Now)
			case "evidence":
				expectReport(t, tc, KindEvidence, upstream(t, "conformance/"+tc.Mandate), s.Defaults.Now)
			case "bridge":
				expectReport(t, tc, tc.BridgeType, nil, s.Defaults.Now)
			case "action":
				for _, p := range []call.Profile{call.ProfileReferenceSDK, call.ProfileHardened} {
					expectDecision(t, tc, p, s.Defaults.Now)
				}
			default:
				t.Errorf("category %q is not run", tc.Category)
			}
		})
	}
	t.Logf("%d cases: %v", len(s.Cases), ran)
}

func expectReport(t *testing.T, tc suiteCase, kind string, against []byte, now time.Time) {
	t.Helper()
	r, err := Validate(kind, upstream(t, "conformance/"+tc.Path), against, now)
	if err != nil || r.Valid != (tc.Expect == "valid") || r.Valid != (len(r.Errors) == 0) {
		t.Errorf("%+v, %v", r, err)
	}
	if tc.ReasonCodes != nil && !sameCodes(r.ReasonCodes, tc.ReasonCodes) {
		t.Errorf("codes %v, want %v", r.ReasonCodes, tc.ReasonCodes)
	}
}

// upstreamPaths are the paths that the published evaluators give, which the
// manifest does not assert.
var upstreamPaths = map[string]string{
	"action.buyer.accept_ping_pong.allowed":    "[]",
	"action.buyer.over_budget.denied":          "[$.authority.budget.max_total_minor]",
	"action.buyer.currency_mismatch.denied":    "[$.authority.budget.currency]",
	"action.buyer.disclose_purpose.allowed":    "[]",
	"action.buyer.reveal_reservation.denied":   "[$.proposed_action.disclosures[0].field]",
	"action.shopping.checkout_ready.escalates": "[$.escalation.required_conditions]",
	"action.shopping.low_confidence.escalates": "[$.escalation.confidence_threshold]",
	// The hardened profile adds that only a person can say whether
	// local_buyer_001 is one of local_buyers; see below.
	"action.seller.offer_below_target.escalates": "[$.escalation.required_conditions]",
}

func expectDecision(t *testing.T, tc suiteCase, p call.Profile, now time.Time) {
	t.Helper()
	m := compileTree(t, upstream(t, "conformance/"+tc.Mandate))
	r := request(holding(m), envelope(m, string(upstream(t, "conformance/"+tc.Action)), string(tc.Context)), now)
	r.Profile = p
	a := ask(t, r)
	codes := strictStrings(a.reply["reason_codes"])
	if a.reply["decision"] != tc.Expect || !sameCodes(codes, tc.ReasonCodes) {
		t.Errorf("%s: %s, want %s %v", p, a, tc.Expect, tc.ReasonCodes)
	}
	want := upstreamPaths[tc.ID]
	if p == call.ProfileHardened && tc.ID == "action.seller.offer_below_target.escalates" {
		want = "[$.purpose.allowed_counterparties $.escalation.required_conditions]"
	}
	if got := fmt.Sprint(a.reply["paths"]); got != want {
		t.Errorf("%s: paths %s, want %s", p, got, want)
	}
	ref := a.reply["mandate_ref"].(map[string]any)
	if ref["id"] != m.ID || ref["hash"] != m.Hash || ref["version"] != "0.1.0" {
		t.Errorf("reference %v", ref)
	}
}

func strictStrings(v any) []string {
	var list []string
	for _, s := range v.([]any) {
		list = append(list, s.(string))
	}
	return list
}

// sameCodes compares as the published runners do: as multisets.
func sameCodes(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// TestUpstreamVectors runs the vectors of the specification. One of them has a
// placeholder for its hash, which only the reference's profile lets pass.
func TestUpstreamVectors(t *testing.T) {
	now := time.Date(2026, 4, 25, 18, 0, 0, 0, time.UTC)
	var vector struct {
		Payload        json.RawMessage `json:"payload"`
		ProposedAction json.RawMessage `json:"proposed_action"`
	}
	if err := json.Unmarshal(upstream(t, "test-vectors/valid-marketplace-buyer.json"), &vector); err != nil {
		t.Fatal(err)
	}
	if r, err := Validate(KindMandate, vector.Payload, nil, now); err != nil || !r.Valid {
		t.Errorf("%+v %v", r, err)
	}
	if err := json.Unmarshal(upstream(t, "test-vectors/invalid-over-budget-action.json"), &vector); err != nil {
		t.Fatal(err)
	}
	buyer := compileTree(t, upstream(t, "examples/marketplace-buyer.json"))
	const denied = "denied [hard_constraint_violation price_above_budget] [$.authority.budget.max_total_minor]"
	if a := ask(t, request(holding(buyer), envelope(buyer, string(vector.ProposedAction), ""), now)); a.String() != denied {
		t.Error(a)
	}
	r := request(holding(buyer), upstream(t, "test-vectors/evaluate-action-denied-request.json"), now)
	if a := ask(t, r); a.String() != "denied [schema_invalid] [$.mandate_ref.hash]" {
		t.Error(a)
	}
	r.Profile = call.ProfileReferenceSDK
	if a := ask(t, r); a.String() != denied {
		t.Error(a)
	}
	published, err := strictjson.ReadObject(upstream(t, "test-vectors/evaluate-action-denied-response.json"), strictjson.DefaultLimits)
	if err != nil || schemas.Default().Validate("aump/action-evaluation.response", published) != nil {
		t.Error("the published response breaks our schema")
	}
}

// TestUpstreamExamples: the examples are valid, and those of the mandates that
// the suite has too are the same mandates.
func TestUpstreamExamples(t *testing.T) {
	now := time.Date(2026, 4, 25, 18, 0, 0, 0, time.UTC)
	for example, twin := range map[string]string{
		"marketplace-buyer.json": "mandates/marketplace-buyer.valid.json", "marketplace-seller.json": "mandates/marketplace-seller.valid.json",
		"delegated-shopping.json": "mandates/delegated-shopping.valid.json", "profile.json": "",
	} {
		kind := KindMandate
		if twin == "" {
			kind = KindProfile
		} else if a, b := compileTree(t, upstream(t, "examples/"+example)), compileTree(t, upstream(t, "conformance/"+twin)); a.Hash != b.Hash {
			t.Errorf("%s: %s and %s", example, a.Hash, b.Hash)
		}
		if r, err := Validate(kind, upstream(t, "examples/"+example), nil, now); err != nil || !r.Valid {
			t.Errorf("%s: %+v %v", example, r, err)
		}
	}
}

// TestUpstreamFilesAreAllUsed: no published document of the suite is left out.
func TestUpstreamFilesAreAllUsed(t *testing.T) {
	manifest := string(upstream(t, "conformance/manifest.json"))
	root := os.Getenv("COUNTERSIGN_SHARED")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared")
	}
	dir := os.DirFS(filepath.Join(root, "upstream", "aump", "conformance"))
	files, err := fs.Glob(dir, "*/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasPrefix(f, "schemas/") && !strings.Contains(manifest, `"`+f+`"`) {
			t.Errorf("%s is in no case", f)
		}
	}
	if _, err := mandate.Load(os.DirFS(filepath.Join(root, "upstream", "aump", "conformance", "mandates"))); err != nil {
		t.Errorf("the suite's folder of mandates: %v", err)
	}
}

// TestUpstreamPageExample is the pair of messages on the protocol's page about
// action evaluation.
func TestUpstreamPageExample(t *testing.T) {
	buyer := compileTree(t, upstream(t, "conformance/mandates/marketplace-buyer.valid.json"))
	body := envelope(buyer, `{"type":"accept_deal","summary":"19 balls for 3 USD.","counterparty":"seller_agent_001",`+
		`"amount":{"currency":"USD","total_minor":300},"commitment":true}`, `{"confidence":0.92}`)
	if !strings.Contains(string(body), "sha256-e27c2259f3135f02e1803950caacd8a28504b06ef47c081844e068199dee8c52") {
		t.Fatal("another mandate")
	}
	a := ask(t, request(holding(buyer), body, time.Date(2026, 4, 25, 18, 0, 0, 0, time.UTC)))
	if a.String() != "allowed [] []" || a.call.Mandate == nil || a.call.Mandate.Hash != buyer.Hash || a.call.Action != ActionCommit {
		t.Errorf("%s %+v", a, a.call.Mandate)
	}
}

// TestUpstreamWorkedExamples: what the published evaluators say about the
// buyer's mandate, at its edges.
func TestUpstreamWorkedExamples(t *testing.T) {
	raw := upstream(t, "conformance/mandates/marketplace-buyer.valid.json")
	evening := time.Date(2026, 4, 25, 18, 0, 0, 0, time.UTC)
	expiry := time.Date(2026, 4, 26, 15, 0, 0, 0, time.UTC)
	accept := func(currency string, total int) string {
		return fmt.Sprintf(`{"type":"accept_deal","summary":"s","amount":{"currency":%q,"total_minor":%d}}`, currency, total)
	}
	ui := "authority.requires_trusted_ui_for_commitment"
	for name, tc := range map[string]struct {
		edits           []string
		action, context string
		now             time.Time
		want            string
	}{
		"at the maximum":           {nil, accept("USD", 500), "", evening, "allowed [] []"},
		"above it":                 {nil, accept("USD", 501), "", evening, "denied [hard_constraint_violation price_above_budget] [" + sharedBudget + "]"},
		"in euros":                 {nil, accept("EUR", 700), "", evening, "denied [hard_constraint_violation currency_mismatch price_above_budget] [$.authority.budget.currency " + sharedBudget + "]"},
		"payment credentials":      {nil, `{"type":"share_payment_credentials","summary":"s"}`, "", evening, "denied [scope_violation] [$.authority.permissions $.authority.prohibited_actions]"},
		"at expiry":                {nil, accept("USD", 700), "", expiry, "denied [mandate_expired hard_constraint_violation price_above_budget] [$.expires_at " + sharedBudget + "]"},
		"one second before":        {nil, accept("USD", 300), "", expiry.Add(-time.Second), "allowed [] []"},
		"confidence at threshold":  {nil, accept("USD", 300), `{"confidence":0.65}`, evening, "allowed [] []"},
		"confidence below":         {nil, accept("USD", 300), `{"confidence":0.64999}`, evening, "requires_escalation [escalation_required confidence_below_threshold] [$.escalation.confidence_threshold]"},
		"condition and confidence": {nil, accept("USD", 300), `{"conditions":["hard_constraint_conflict"],"confidence":0.1}`, evening, "requires_escalation [escalation_required confidence_below_threshold] [$.escalation.required_conditions $.escalation.confidence_threshold]"},
		"price and confidence":     {nil, accept("USD", 700), `{"confidence":0.1}`, evening, "denied [hard_constraint_violation price_above_budget] [" + sharedBudget + "]"},
		"three disclosures": {nil, `{"type":"make_offer","summary":"s","disclosures":[{"field":"purpose.summary","content":"c"},{"field":"foo.private_notes","content":"c"},{"field":"purpose.intent","content":"c"}]}`,
			"", evening, "denied [disclosure_denied] [$.proposed_action.disclosures[1].field $.proposed_action.disclosures[2].field]"},
		"supervised":              {[]string{"authority.mode", `"supervised"`}, accept("USD", 300), "", evening, "requires_escalation [escalation_required] [$.authority.mode]"},
		"trusted UI not approved": {[]string{ui, "true"}, accept("USD", 300), "", evening, "requires_escalation [escalation_required] [$." + ui + "]"},
		"trusted UI approved":     {[]string{ui, "true"}, accept("USD", 300), `{"trusted_ui_approved":true}`, evening, "allowed [] []"},
		"advisory":                {[]string{"authority.mode", `"advisory"`}, accept("USD", 300), "", evening, "allowed [] []"},
		"budget removed":          {[]string{"authority.budget", ""}, accept("USD", 1), "", evening, "denied [scope_violation] [$.authority.budget]"},
		"revoked":                 {[]string{"status", `"revoked"`}, accept("USD", 300), "", evening, "denied [mandate_inactive] [$.status]"},
	} {
		m := compileTree(t, edit(t, raw, tc.edits...))
		r := request(holding(m), envelope(m, tc.action, tc.context), tc.now)
		r.Profile = call.ProfileReferenceSDK
		if a := ask(t, r); a.String() != tc.want {
			t.Errorf("%s: %s, want %s", name, a, tc.want)
		}
	}
}
