package aump

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// corpusFile reads a document of the schemas' corpus.
func corpusFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "schemas", "testdata", "corpus", "aump", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDecodeMandate(t *testing.T) {
	m, err := DecodeMandate(corpusFile(t, "mandate/valid/full.json"), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	yes, threshold, timeout := true, 0.7, int64(3600)
	want := &Mandate{
		Version: "0.1.0", Type: TypeMandate, ID: "aump_mnd_flat_02", Status: StatusActive,
		IssuedAt: m.IssuedAt, ExpiresAt: m.ExpiresAt,
		Principal: Principal{"did:example:moreau"},
		Agent:     Agent{"agent-flat", "Flat hunter"},
		Purpose: Purpose{
			"Rent a flat in Lyon.",
			[]string{"flat"}, []string{"agency-1", "agency-2"}, []string{"agency-9"},
		},
		Authority: Authority{
			ModeSupervised, &Budget{"EUR", 130000}, []string{"ask_question", "make_offer", "accept_deal"},
			[]string{"pay_deposit_in_cash"}, &yes,
		},
		Preferences: Preferences{
			HardConstraints: []Rule{
				{ID: "two_bedrooms", Field: "attributes.bedrooms", Op: "gte", Value: json.Number("2")},
				{ID: "kind", Field: "attributes.kind", Op: "in", Value: []any{"flat", "house"}},
				{ID: "no_guarantor_fee", Field: "terms.guarantor_fee", Op: "eq", Value: false},
				{ID: "notice", Field: "terms.notice.months", Op: "exists"},
				{ID: "quiet", Protected: true},
			},
			SoftPreferences: []Rule{{ID: "balcony"}},
			PrivateNotes:    []string{"We have to be out by the end of January."},
		},
		Negotiation: Negotiation{ProtectedFields: []string{"reservation_price_minor"}},
		Disclosure: Disclosure{
			Default: DiscloseAllow, Allowed: []DisclosureRule{{"purpose.summary"}}, Prohibited: []DisclosureRule{{"preferences.private_notes"}},
		},
		Escalation: Escalation{[]string{"contract_ready"}, &threshold, []string{"none", "trusted_ui", "email"}, &timeout},
		Evidence:   EvidencePolicy{"summary_only", []string{"offer_sent", "deal_accepted"}},
		Compliance: Compliance{[]string{"familial_status"}, []string{"accept_deal"}},
		Signatures: []Signature{{"vc-sd-jwt", "ES256", "wallet-1", "e30.e30.AA"}},
		Raw:        m.Raw,
	}
	if d := cmp.Diff(want, m, cmpopts.IgnoreTypes(strictjson.Value{})); d != "" {
		t.Error(d)
	}
	if got := m.IssuedAt.UTC().Format("15:04:05.0"); got != "08:00:00.5" {
		t.Errorf("issued_at with fraction and offset is %s", got)
	}
}

func TestDecodeRequest(t *testing.T) {
	r, err := DecodeRequest(corpusFile(t, "action-evaluation.request/valid/full.json"), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	van, sure := "van-7", 0.9
	want := Action{
		Type: "book_courier", Summary: "Book the van.", Counterparty: &van, Amount: &Amount{"EUR", 3000}, // written as 3000.0
		Disclosures: []DisclosedField{{"purpose.summary", "We send parcels."}}, DownstreamRefs: []DownstreamRef{{"ucp", "c-1", "sha256-1", ""}},
		Commitment: true, Attributes: map[string]any{"category": "van", "load": map[string]any{"kg": json.Number("80")}},
		Terms: map[string]any{"refundable": true}, DecisionFactors: []string{"price"}, Tree: r.Action.Tree,
	}
	if d := cmp.Diff(want, r.Action); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(Context{Conditions: []string{"peak_hour"}, Confidence: &sure, Approval: map[string]any{"by": "desk"}}, r.Context); d != "" {
		t.Error(d)
	}
	if r.Type != TypeRequest || r.Version != Version || r.Ref.ID != "aump_mnd_courier_01" || r.Ref.URL == "" || r.Action.Tree["slot"] != "09:00" {
		t.Errorf("%+v", r)
	}
}

func TestDecodeEvidenceAndProfile(t *testing.T) {
	e, err := DecodeEvidence(corpusFile(t, "evidence-event/valid/full.json"), strictjson.DefaultLimits)
	if err != nil || e.Sequence != 1 || e.CreatedAt.IsZero() || e.Actor.Role != "runtime" || e.Action == nil || e.Action.Hash == "" ||
		e.Privacy.Redaction != "hash" || e.Hashes.PreviousEvent == "" || e.DownstreamRefs[0].URL == "" || e.Metadata["n"] != json.Number("1.5") {
		t.Errorf("%v %+v", err, e)
	}
	p, err := DecodeProfile(corpusFile(t, "profile/valid/full.json"), strictjson.DefaultLimits)
	if err != nil || p.Type != TypeProfile || p.Version != Version || len(p.SigningKeys) != 1 {
		t.Errorf("%v %+v", err, p)
	}
	if TypeOf(p.Tree()) != TypeProfile || TypeOf(nil) != "" || TypeOf(map[string]any{"aump": "x"}) != "" {
		t.Error("TypeOf")
	}
}

func TestDecodeBadInput(t *testing.T) {
	for name, tc := range map[string]struct {
		raw  string
		code strictjson.Code // or
		path string          // of the field
	}{
		"empty":             {"", strictjson.NotJSON, ""},
		"null":              {"null", strictjson.NotObject, ""},
		"array":             {"[]", strictjson.NotObject, ""},
		"key twice":         {`{"id":"a","id":"b"}`, strictjson.DuplicateKey, ""},
		"key in other case": {`{"id":"a","ID":"b"}`, strictjson.CaseCollision, ""},
		"half a surrogate":  {`{"id":"\ud800"}`, strictjson.InvalidUTF8, ""},
		"unsafe integer":    {`{"authority":{"budget":{"max_total_minor":9007199254740993}}}`, strictjson.UnsafeInteger, ""},
		"more behind it":    {`{} {}`, strictjson.TrailingData, ""},
		"id null":           {`{"id":null}`, "", "/id"},
		"head as text":      {`{"aump":"mandate"}`, "", "/aump"},
		"budget as list":    {`{"authority":{"budget":[]}}`, "", "/authority/budget"},
		"fraction of minor": {`{"authority":{"budget":{"max_total_minor":1.5}}}`, "", "/authority/budget/max_total_minor"},
		"text in a list":    {`{"authority":{"permissions":["a",1]}}`, "", "/authority/permissions/1"},
		"rule as text":      {`{"disclosure":{"allowed":["a"]}}`, "", "/disclosure/allowed/0"},
	} {
		m, err := DecodeMandate([]byte(tc.raw), strictjson.DefaultLimits)
		var syntax *strictjson.Error
		var field *FieldError
		switch {
		case tc.code != "" && (!errors.As(err, &syntax) || syntax.Code != tc.code || m != nil):
			t.Errorf("%s: %v", name, err)
		case tc.code == "" && (!errors.As(err, &field) || field.Path != tc.path || m == nil):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestResponseEncode(t *testing.T) {
	b, err := Response{Ref: ResponseRef{ID: "a"}, Decision: Allowed, Summary: "Fine."}.Encode()
	const want = `{"aump":{"version":"0.1.0","type":"action_evaluation_response"},"mandate_ref":{"id":"a","hash":"","version":""},` +
		`"decision":"allowed","reason_codes":[],"paths":[],"summary":"Fine."}`
	if err != nil || string(b) != want {
		t.Errorf("%v\n%s\n%s", err, b, want)
	}
}

// FuzzDecode: no document makes a decoder panic, and what decodes has a hash
// that survives its own canonical form.
func FuzzDecode(f *testing.F) {
	for _, name := range []string{"mandate/valid/full.json", "mandate/valid/constraints.json", "profile/valid/full.json",
		"action-evaluation.request/valid/full.json", "evidence-event/valid/full.json"} {
		f.Add(corpusFile(f, name))
	}
	f.Add([]byte(`{"signatures":[{}],"a":{"signatures":1},"b":-0}`))
	ks := KeySet{}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := DecodeMandate(raw, strictjson.DefaultLimits)
		_, _ = DecodeRequest(raw, strictjson.DefaultLimits)
		_, _ = DecodeEvidence(raw, strictjson.DefaultLimits)
		if p, _ := DecodeProfile(raw, strictjson.DefaultLimits); p != nil {
			_ = (KeySet{}).Add(p)
		}
		if m == nil {
			if err == nil {
				t.Fatal("neither a mandate nor an error")
			}
			return
		}
		ks.Verify(m)
		hash, err := MandateHash(m.Tree())
		if err != nil {
			t.Fatal(err)
		}
		canonical, err := UnsignedForm(m.Tree())
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeMandate(canonical, strictjson.DefaultLimits)
		if again == nil {
			t.Fatalf("the canonical form cannot be read: %v", err)
		}
		if h, _ := MandateHash(again.Tree()); h != hash {
			t.Fatalf("%s, then %s", hash, h)
		}
	})
}

// TestPresentUsable: a mandate is usable if no request under it is denied for the mandate alone.
func TestPresentUsable(t *testing.T) {
	begins, ends := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC), time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		change  func(*Mandate)
		refused bool
		now     time.Time
		want    bool
	}{
		"in force":               {func(*Mandate) {}, false, begins, true},
		"revoked":                {func(*Mandate) {}, true, begins, false},
		"not begun":              {func(*Mandate) {}, false, begins.Add(-time.Second), false},
		"expired":                {func(*Mandate) {}, false, ends, false},
		"suspended":              {func(m *Mandate) { m.Status = "suspended" }, false, begins, false},
		"without bounds":         {func(m *Mandate) { m.Authority.Budget = nil }, false, begins, false},
		"bounded by its purpose": {func(m *Mandate) { m.Authority.Budget, m.Purpose.AllowedCategories = nil, []string{"tea"} }, false, begins, true},
	} {
		m := &Mandate{Status: StatusActive, IssuedAt: begins, ExpiresAt: ends, Authority: Authority{Mode: ModeDelegated, Budget: &Budget{Currency: "EUR", MaxTotal: 1}}}
		tc.change(m)
		if got := m.Present("", tc.refused, tc.now).Usable; got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
