package aump

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	wire "github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/schemas"
)

var strictness = map[string]int{wire.Allowed: 0, wire.RequiresEscalation: 1, wire.Denied: 2}

// drawn draws an input in which every row can fire.
func drawn(t *rapid.T, base []byte) Input {
	pick := func(name string, values ...string) string { return rapid.SampledFrom(values).Draw(t, name) }
	edits := []string{
		"status", pick("status", `"active"`, `"active"`, `"active"`, `"revoked"`),
		"authority.mode", pick("mode", `"delegated"`, `"supervised"`, `"advisory"`),
		"authority.budget", pick("budget", `{"currency":"EUR","max_total_minor":100}`, `{"currency":"EUR","max_total_minor":0}`, ""),
		"authority.permissions", pick("permissions", `["accept_deal","look"]`, `["look"]`),
		"authority.prohibited_actions", pick("prohibited", `[]`, `["look"]`, `["accept_deal_without_approval"]`),
		"authority.requires_trusted_ui_for_commitment", pick("ui", "", "true", "false"),
		"purpose.allowed_counterparties", pick("allowed", `[]`, `["van-7"]`, `["buyers"]`),
		"purpose.excluded_counterparties", pick("excluded", `[]`, `["van-9"]`, `["buyers"]`),
		"escalation.required_conditions", pick("conditions", `[]`, `["x"]`),
		"escalation.confidence_threshold", pick("threshold", "", "0.5"),
		"compliance.prohibited_decision_factors", pick("factors", `[]`, `["age"]`),
		"compliance.review_required_actions", pick("review", `[]`, `["accept_deal"]`),
		"disclosure.default", pick("default", `"deny"`, `"allow"`),
		"preferences.hard_constraints", pick("constraints", `[]`, `[{"id":"c","description":"d","field":"terms.a","op":"gte","value":1}]`, `[{"id":"c","description":"d"}]`),
	}
	raw, err := edited(base, edits)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mandate.Compile(raw, nil)
	if err != nil || m.Violations != nil {
		t.Fatal(err, m)
	}
	in := Input{Mandate: m, Ref: wire.Ref{ID: m.ID, Hash: pick("hash", m.Hash, m.Hash, "sha256-x")}}
	in.Action = wire.Action{Type: pick("type", "accept_deal", "look", "other"), Commitment: rapid.Bool().Draw(t, "commitment")}
	if p := pick("counterparty", "none", "van-7", "van-9", "buyer-1", ""); p != "none" {
		in.Action.Counterparty = &p
	}
	if rapid.Bool().Draw(t, "has amount") {
		in.Action.Amount = &wire.Amount{Currency: pick("currency", "EUR", "USD"), Total: rapid.Int64Range(0, 200).Draw(t, "total")}
	}
	if rapid.Bool().Draw(t, "discloses") {
		in.Action.Disclosures = []wire.DisclosedField{{Field: pick("field", "purpose.summary", "preferences.private_notes", "x")}}
	}
	if rapid.Bool().Draw(t, "has terms") {
		in.Action.Terms = map[string]any{"a": json.Number(fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "a")))}
	}
	if rapid.Bool().Draw(t, "has factors") {
		in.Action.DecisionFactors = []string{pick("factor", "age", "price")}
	}
	if rapid.Bool().Draw(t, "has conditions") {
		in.Context.Conditions = []string{pick("condition", "x", "y")}
	}
	if rapid.Bool().Draw(t, "has confidence") {
		c := rapid.Float64Range(0, 1).Draw(t, "confidence")
		in.Context.Confidence = &c
	}
	in.Context.TrustedUIApproved = rapid.Bool().Draw(t, "claims UI")
	in.Now = noon.Add(time.Duration(rapid.IntRange(-6, 24).Draw(t, "hours")) * time.Hour)
	in.Revoked = rapid.IntRange(0, 9).Draw(t, "revoked") == 0
	in.Spend = mandate.Spend{Reserved: rapid.Int64Range(0, 60).Draw(t, "reserved"), Settled: rapid.Int64Range(0, 60).Draw(t, "settled")}
	return in
}

func TestProperties(t *testing.T) {
	base := corpusFile(t, "mandate/valid/"+courier)
	rapid.Check(t, func(t *rapid.T) {
		in := drawn(t, base)
		r := Evaluate(in)

		if fmt.Sprint(Evaluate(in)) != fmt.Sprint(r) {
			t.Fatal("not deterministic")
		}
		codes, paths := r.ReasonCodes(), r.Paths()
		if repeats(codes) || repeats(paths) {
			t.Fatalf("repeated: %v %v", codes, paths)
		}
		if (r.Decision == wire.Allowed) != (len(codes) == 0) || (len(codes) == 0) != (len(paths) == 0) || codes == nil || paths == nil {
			t.Fatalf("%s with %v %v", r.Decision, codes, paths)
		}
		denied := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Decision == wire.Denied })
		if denied != (r.Decision == wire.Denied) {
			t.Fatalf("%s: %v", r.Decision, r.Findings)
		}

		atMost := func(what string, change func(*Input)) {
			other := in
			change(&other)
			if o := Evaluate(other); strictness[o.Decision] < strictness[r.Decision] {
				t.Fatalf("%s loosens: %s to %s", what, r.Decision, o.Decision)
			}
		}
		atMost("a claim of the agent", func(i *Input) { i.Context.TrustedUIApproved, i.Context.Approval = true, true })
		atMost("revoking", func(i *Input) { i.Revoked = true })
		atMost("spending", func(i *Input) { i.Spend.Settled += 1000 })
		atMost("a further condition", func(i *Input) { i.Context.Conditions = append(slices.Clone(i.Context.Conditions), "x") })
		atMost("a further factor", func(i *Input) { i.Action.DecisionFactors = append(slices.Clone(i.Action.DecisionFactors), "age") })
		atMost("a further disclosure", func(i *Input) {
			i.Action.Disclosures = append(slices.Clone(i.Action.Disclosures), wire.DisclosedField{Field: "preferences.private_notes"})
		})
		atMost("less confidence", func(i *Input) { zero := 0.0; i.Context.Confidence = &zero })
		atMost("time after expiry", func(i *Input) { i.Now = i.Mandate.ExpiresAt })
		atMost("another hash", func(i *Input) { i.Ref.Hash = "" })
		atMost("demanding signatures", func(i *Input) { i.Signatures = mandate.SignaturesRequired })

		reference := in
		reference.Profile = call.ProfileReferenceSDK
		if o := Evaluate(reference); strictness[o.Decision] > strictness[r.Decision] {
			t.Fatalf("the hardened profile says %s, the reference's %s", r.Decision, o.Decision)
		}
	})
}

func repeats(list []string) bool {
	seen := map[string]bool{}
	for _, s := range list {
		if seen[s] {
			return true
		}
		seen[s] = true
	}
	return false
}

// FuzzRead: no request makes an evaluator panic or allow what its schema
// refuses, and every reply is a valid response without anything of the action.
func FuzzRead(f *testing.F) {
	m, err := mandate.Compile(corpusFile(f, "mandate/valid/"+flat), nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, action := range []string{book, dear, deal, to("agency-1"), `{"type":"make_offer","summary":"s","disclosures":[{"field":"preferences","content":"c"}],"terms":{"notice":{"months":1}}}`} {
		f.Add(envelope(m, action, `{"conditions":["contract_ready"],"confidence":0.2}`), false)
	}
	f.Add([]byte(`{"mandate_ref":{"id":"aump_mnd_flat_02"}}`), true)
	f.Add([]byte(`null`), false)
	at := m.IssuedAt.Add(time.Hour)
	f.Fuzz(func(t *testing.T, body []byte, lenient bool) {
		r := request(holding(m), body, at)
		if lenient {
			r.Profile = call.ProfileReferenceSDK
		}
		a := ask(t, r)
		if a.reply["decision"] != (Evaluator{}).NativeVerdict(a.opinion.Verdict) || len(a.opinion.Reasons) == 0 {
			t.Fatalf("%s, recorded %s %s", a, a.opinion.Verdict, a.recorded())
		}
		if a.opinion.Malformed && a.reply["decision"] != wire.Denied {
			t.Fatalf("malformed and %s", a)
		}
	})
}

// FuzzValidate: no document makes Validate panic, whatever it is taken for.
func FuzzValidate(f *testing.F) {
	for _, name := range []string{"mandate/valid/full.json", "profile/valid/full.json", "evidence-event/valid/full.json"} {
		f.Add(0, corpusFile(f, name))
	}
	for i, doc := range bridges {
		f.Add(3+i%5, []byte(doc.document))
	}
	compare := corpusFile(f, "mandate/valid/"+flat)
	f.Fuzz(func(t *testing.T, kind int, doc []byte) {
		k := kinds[(kind%len(kinds)+len(kinds))%len(kinds)]
		against := compare
		if !mandateKinds[k] {
			against = nil
		}
		r, err := Validate(k, doc, against, noon)
		if err != nil || r.Valid != (len(r.ReasonCodes) == 0) || r.Valid != (len(r.Errors) == 0) || len(r.Errors) > schemas.MaxViolations {
			t.Fatalf("%s: %+v %v", k, r, err)
		}
	})
}
