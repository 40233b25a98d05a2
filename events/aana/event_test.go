package aana_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countersign-dev/countersign/events/aana"
	"github.com/countersign-dev/countersign/events/strictjson"
)

const full = `{
 "schema_version":"aana.agent_tool_precheck.v1","request_id":"req-1","agent_id":"bot","user_intent":"Hand over parcel 19.",
 "authorization_subject":{"subject_type":"client","subject_ref":"client-7"},
 "tool_name":"release_parcel","tool_category":"write","authorization_state":"confirmed","risk_domain":"commerce",
 "evidence_refs":[" desk.note ",{"source_id":"desk.scan","kind":"approval","trust_tier":"verified","redaction_status":"redacted",
  "summary":"The client confirmed it.","retrieved_at":"2026-11-20T09:00:00Z","citation_url":"https://parcels.example/4","retrieval_url":"scan:88",
  "provenance":"counter","supports":["a"],"contradicts":["b"],
  "freshness":{"status":"fresh","checked_at":"2026-11-20T09:01:00Z","max_age_hours":24,"age_hours":0.5,"source":"reader"}}],
 "proposed_arguments":{"parcel":19,"b":1.0,"a":true},"recommended_route":"accept"}`

func ptr[T any](v T) *T { return &v }

func decode(t testing.TB, doc string) *aana.Event {
	t.Helper()
	e, err := aana.Decode([]byte(doc), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestDecode(t *testing.T) {
	e := decode(t, full)
	want := &aana.Event{
		ToolName: "release_parcel", Category: aana.Write, Authorized: aana.Confirmed, RiskDomain: "commerce", Recommended: aana.Accept,
		Arguments:     map[string]any{"parcel": json.Number("19"), "b": json.Number("1.0"), "a": true},
		SchemaVersion: aana.ContractVersion, RequestID: "req-1", AgentID: "bot", UserIntent: "Hand over parcel 19.",
		Subject: &aana.Subject{Type: "client", Ref: "client-7"},
		Evidence: []aana.EvidenceRef{
			{SourceID: "desk.note", Kind: aana.KindOther, TrustTier: aana.TrustRuntime, Redaction: aana.RedactionRedacted, Summary: "Named by the runtime in plain text.",
				Provenance: "runtime_quickstart", Freshness: aana.Freshness{Status: aana.Fresh, Source: "runtime_quickstart"}},
			{SourceID: "desk.scan", Kind: aana.KindApproval, TrustTier: aana.TrustVerified, Redaction: aana.RedactionRedacted, Summary: "The client confirmed it.",
				RetrievedAt: "2026-11-20T09:00:00Z", CitationURL: "https://parcels.example/4", RetrievalURL: "scan:88", Provenance: "counter",
				Supports: []string{"a"}, Contradicts: []string{"b"},
				Freshness: aana.Freshness{Status: aana.Fresh, CheckedAt: "2026-11-20T09:01:00Z", MaxAgeHours: ptr(24.0), AgeHours: ptr(0.5), Source: "reader"}},
		},
		Tree: e.Tree, Sent: e.Sent,
	}
	if diff := cmp.Diff(want, e, cmpopts.IgnoreTypes(strictjson.Value{})); diff != "" {
		t.Error(diff)
	}
	if _, text := e.Sent["evidence_refs"].([]any)[0].(string); !text {
		t.Error("the document that was sent was changed")
	}
	if b, err := e.ArgumentsCanonical(); err != nil || string(b) != `{"a":true,"b":1,"parcel":19}` {
		t.Errorf("%s %v", b, err)
	}
	empty := decode(t, `{}`)
	if b, err := empty.ArgumentsCanonical(); b != nil || err != nil || empty.Subject != nil || empty.Evidence != nil {
		t.Errorf("%+v", empty)
	}
	if b, _ := decode(t, `{"proposed_arguments":{}}`).ArgumentsCanonical(); string(b) != "{}" {
		t.Errorf("%s", b)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for doc, want := range map[string]strictjson.Code{
		``: strictjson.NotJSON, `null`: strictjson.NotObject, `[]`: strictjson.NotObject, `"x"`: strictjson.NotObject, `7`: strictjson.NotObject,
		`{"tool_name":"a","tool_name":"b"}`: strictjson.DuplicateKey, `{"tool_name":"a","Tool_Name":"b"}`: strictjson.CaseCollision, `{} {}`: strictjson.TrailingData,
	} {
		e, err := aana.Decode([]byte(doc), strictjson.DefaultLimits)
		var se *strictjson.Error
		if e != nil || !errors.As(err, &se) || se.Code != want {
			t.Errorf("%s: %v, %v", doc, e, err)
		}
	}
	for doc, path := range map[string]string{
		`{"tool_name":5}`: "/tool_name", `{"tool_name":null}`: "/tool_name", `{"evidence_refs":"x"}`: "/evidence_refs", `{"evidence_refs":{"source_id":"x"}}`: "/evidence_refs",
		`{"evidence_refs":[42]}`: "/evidence_refs/0", `{"evidence_refs":["a"," "]}`: "/evidence_refs/1", `{"proposed_arguments":[]}`: "/proposed_arguments",
		`{"authorization_subject":"x"}`: "/authorization_subject", `{"evidence_refs":[{"freshness":"fresh"}]}`: "/evidence_refs/0/freshness",
		`{"evidence_refs":[{"freshness":{"max_age_hours":"1"}}]}`: "/evidence_refs/0/freshness/max_age_hours", `{"evidence_refs":[{"supports":[1]}]}`: "/evidence_refs/0/supports/0",
	} {
		e, err := aana.Decode([]byte(doc), strictjson.DefaultLimits)
		var fe *aana.FieldError
		if e == nil || !errors.As(err, &fe) || fe.Path != path {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

func TestOrders(t *testing.T) {
	for i, r := range []aana.Route{"accept", "ask", "defer", "refuse"} {
		if r.Strictness() != i {
			t.Error(r)
		}
	}
	for i, s := range []aana.State{"none", "user_claimed", "authenticated", "validated", "confirmed"} {
		if s.Strength() != i || aana.States()[i] != s {
			t.Error(s)
		}
	}
	if aana.Route("revise").Strictness() != 3 || aana.Route("").Strictness() != 3 || aana.State("approved").Strength() != 0 {
		t.Error("an unknown word loosens")
	}
	if aana.Stricter("ask", "defer") != "defer" || aana.Stricter("refuse", "accept") != "refuse" || aana.Stricter("execute", "accept") != "refuse" {
		t.Error("Stricter")
	}
	if len(aana.Categories()) != 4 || len(aana.RiskDomains()) != 14 {
		t.Error("vocabularies")
	}
	aana.States()[0], aana.Categories()[0], aana.RiskDomains()[0] = "x", "x", "x"
	if aana.States()[0] != "none" || aana.Categories()[0] != "public_read" || aana.RiskDomains()[0] != "devops" {
		t.Error("a caller can change a vocabulary")
	}
}

// The contract's conditions A, B and C.
func TestCoerce(t *testing.T) {
	want := map[aana.Category]string{ // by state, from none to confirmed
		aana.PublicRead: "accept accept accept accept accept", aana.PrivateRead: "ask ask accept accept accept",
		aana.Write: "ask ask ask accept accept", aana.Unknown: "defer defer defer defer defer",
	}
	for c, row := range want {
		for i, w := range strings.Fields(row) {
			if got := aana.Coerce(c, aana.States()[i], aana.Accept); string(got) != w {
				t.Errorf("%s %s: %s, want %s", c, aana.States()[i], got, w)
			}
			for _, r := range []aana.Route{aana.Ask, aana.Defer, aana.Refuse} {
				if got := aana.Coerce(c, aana.States()[i], r); got != r {
					t.Errorf("%s %s: %s became %s", c, aana.States()[i], r, got)
				}
			}
		}
	}
}
