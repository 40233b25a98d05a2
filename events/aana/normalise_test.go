package aana_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events/aana"
	"github.com/countersign-dev/countersign/events/strictjson"
)

func tree(t testing.TB, doc string) map[string]any {
	t.Helper()
	m, err := strictjson.ParseObject([]byte(doc), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const (
	fromString = `{"freshness":{"source":"runtime_quickstart","status":"fresh"},"kind":"other","provenance":"runtime_quickstart","redaction_status":"redacted","source_id":"a","summary":"Named by the runtime in plain text.","trust_tier":"runtime"}`
	fromBare   = `{"freshness":{"status":"unknown"},"kind":"other","provenance":"runtime","redaction_status":"unknown","source_id":"a","trust_tier":"unknown"}`
)

func TestNormalise(t *testing.T) {
	for doc, want := range map[string]string{
		`{"evidence_refs":["a"]}`:                                `{"evidence_refs":[` + fromString + `]}`,
		`{"evidence_refs":[" a\t"]}`:                             `{"evidence_refs":[` + fromString + `]}`,
		`{"evidence_refs":[{"source_id":"a"}]}`:                  `{"evidence_refs":[` + fromBare + `]}`,
		`{"evidence_refs":[]}`:                                   `{"evidence_refs":[]}`,
		`{"evidence_refs":[" ","",42,null,[],true]}`:             `{"evidence_refs":[" ","",42,null,[],true]}`,
		`{"evidence_refs":null}`:                                 `{"evidence_refs":null}`,
		`{"evidence_refs":"a"}`:                                  `{"evidence_refs":"a"}`,
		`{"evidence_refs":{"x.confirmed":1}}`:                    `{"evidence_refs":{"x.confirmed":1}}`,
		`{"tool_name":"t"}`:                                      `{"tool_name":"t"}`,
		`{"evidence_refs":[{"kind":null,"freshness":{},"x":1}]}`: `{"evidence_refs":[{"freshness":{},"kind":null,"provenance":"runtime","redaction_status":"unknown","trust_tier":"unknown","x":1}]}`,
	} {
		in := tree(t, doc)
		before := text(t, in)
		if got := text(t, aana.Normalise(in)); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", doc, got, want)
		}
		if text(t, in) != before {
			t.Errorf("%s was changed", doc)
		}
	}
}

const required = `"tool_name":"t","tool_category":"write","authorization_state":"validated","risk_domain":"hr","proposed_arguments":{},"recommended_route":"accept"`

func TestNormaliseSDKRefs(t *testing.T) {
	const marker = `"schema_version":"aana.agent_tool_precheck.v1"`
	for refs, want := range map[string]string{
		``:                                   `[]`,
		`,"evidence_refs":null`:              `[]`,
		`,"evidence_refs":["a"]`:             `[` + fromString + `]`,
		`,"evidence_refs":"a"`:               `[` + fromString + `]`,
		`,"evidence_refs":[" a "]`:           `[` + fromString + `]`,
		`,"evidence_refs":{"source_id":"a"}`: `[` + fromBare + `]`,
		`,"evidence_refs":[{"source_id":"a","summary":7,"retrieved_at":true,"citation_url":false}]`:                 `[` + strings.NewReplacer(`{"freshness"`, `{"citation_url":"False","freshness"`, `"source_id":"a"`, `"retrieved_at":"True","source_id":"a","summary":"7"`).Replace(fromBare) + `]`,
		`,"evidence_refs":[{"source_id":"a","summary":null,"supports":null,"provenance":null,"contradicts":["x"]}]`: `[` + strings.Replace(fromBare, `{"freshness"`, `{"contradicts":["x"],"freshness"`, 1) + `]`,
		`,"evidence_refs":[{"source_id":"a","freshness":null}]`:                                                     `[` + fromBare + `]`,
		`,"evidence_refs":[{"source_id":"a","freshness":{}}]`:                                                       `[` + fromBare + `]`,
		`,"evidence_refs":[{"source_id":"a","freshness":"unknown"}]`:                                                `[` + fromBare + `]`,
		`,"evidence_refs":[{"source_id":"a","trust_tier":"verified","freshness":null}]`:                             `[` + strings.NewReplacer(`"status":"unknown"`, `"status":"fresh"`, `"trust_tier":"unknown"`, `"trust_tier":"verified"`).Replace(fromBare) + `]`,
		`,"evidence_refs":[{"source_id":"a","trust_tier":"runtime","freshness":{"age_hours":1}}]`:                   `[` + strings.NewReplacer(`{"status":"unknown"}`, `{"age_hours":1,"status":"fresh"}`, `"trust_tier":"unknown"`, `"trust_tier":"runtime"`).Replace(fromBare) + `]`,
		`,"evidence_refs":[{"source_id":"a","freshness":null,"retrieved_at":"t"}]`:                                  `[` + strings.NewReplacer(`"status":"unknown"`, `"status":"fresh"`, `"source_id"`, `"retrieved_at":"t","source_id"`).Replace(fromBare) + `]`,
	} {
		for _, head := range []string{required, marker + "," + required} {
			in := tree(t, `{`+head+refs+`}`)
			before := text(t, in)
			out, err := aana.NormaliseSDK(in)
			if err != nil {
				t.Errorf("%s: %v", refs, err)
				continue
			}
			if got := text(t, out["evidence_refs"]); got != want {
				t.Errorf("%s\ngot  %s\nwant %s", refs, got, want)
			}
			if text(t, in) != before {
				t.Errorf("%s was changed", refs)
			}
		}
	}
	for _, refs := range []string{`[" "]`, `""`, `[42]`, `[null]`, `[[]]`, `false`, `{}`, `[{}]`, `[{"source_id":" "}]`, `[{"source_id":5}]`, `[{"source_id":"a","x":1}]`,
		`[{"source_id":"a","kind":"draft"}]`, `[{"source_id":"a","kind":null}]`, `[{"source_id":"a","trust_tier":"system"}]`,
		`[{"source_id":"a","redaction_status":"unredacted"}]`, `[{"source_id":"a","summary":["secret-value"]}]`} {
		for _, head := range []string{required, marker + "," + required} {
			_, err := aana.NormaliseSDK(tree(t, `{`+head+`,"evidence_refs":`+refs+`}`))
			if !errors.Is(err, aana.ErrNotNormal) || strings.Contains(err.Error(), "secret-value") {
				t.Errorf("%s: %v", refs, err)
			}
		}
	}
}

func TestNormaliseSDKRebuilds(t *testing.T) {
	doc := tree(t, `{"tool_name":5,"tool_category":"unknown","authorization_state":"none","schema_version":"v9","extra":1,
		"request_id":7,"agent_id":"","user_intent":null,"authorization_subject":{"subject_type":"user"}}`)
	out, err := aana.NormaliseSDK(doc)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"schema_version": aana.ContractVersion, "tool_name": "5", "tool_category": "unknown", "authorization_state": "none", "risk_domain": "unknown",
		"proposed_arguments": map[string]any{}, "recommended_route": "defer", "evidence_refs": []any{}, "request_id": "7",
		"authorization_subject": map[string]any{"subject_type": "user"},
	}
	if diff := cmp.Diff(want, out); diff != "" {
		t.Error(diff)
	}
	if out, err := aana.NormaliseSDK(tree(t, `{"tool_category":"public_read","authorization_state":"none","request_id":false,"agent_id":0}`)); err != nil || out["tool_name"] != "None" || out["request_id"] != nil || out["agent_id"] != nil {
		t.Errorf("%v %v", out, err)
	}
	for _, change := range []string{
		`"tool_category":"admin"`, `"tool_category":null`, `"authorization_state":"banana"`, `"recommended_route":"execute"`, `"recommended_route":null`,
		`"risk_domain":"space"`, `"proposed_arguments":null`, `"proposed_arguments":[]`, `"tool_name":{}`, `"user_intent":["x"]`, `"authorization_subject":"x"`,
	} {
		in := tree(t, `{`+required+`}`)
		for k, v := range tree(t, `{`+change+`}`) {
			in[k] = v
		}
		if _, err := aana.NormaliseSDK(in); !errors.Is(err, aana.ErrNotNormal) {
			t.Errorf("%s: %v", change, err)
		}
	}
	// With the marker only the evidence is normalised.
	marked, err := aana.NormaliseSDK(tree(t, `{"schema_version":"aana.agent_tool_precheck.v1","extra":1}`))
	if diff := cmp.Diff(map[string]any{"schema_version": aana.ContractVersion, "extra": json.Number("1"), "evidence_refs": []any{}}, marked); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// FuzzDecode: no panic, errors of the two kinds, normalising twice is
// normalising once, and the document survives whole.
func FuzzDecode(f *testing.F) {
	for _, doc := range []string{full, `{}`, `[]`, `null`, `{"evidence_refs":["a",{"source_id":"b"},null]}`, `{"evidence_refs":{"a":1}}`, `{` + required + `,"evidence_refs":"x"}`,
		`{"schema_version":"aana.agent_tool_precheck.v1","evidence_refs":[{"source_id":"a","freshness":1}]}`, `{"a":1,"A":2}`} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		e, err := aana.Decode(doc, strictjson.DefaultLimits)
		var se *strictjson.Error
		if errors.As(err, &se) {
			if e != nil {
				t.Fatal("an event of no JSON")
			}
			return
		}
		var fe *aana.FieldError
		if err != nil && (!errors.As(err, &fe) || fe.Path == "") {
			t.Fatalf("an error of another kind: %v", err)
		}
		sent, cerr := strictjson.Canonical(e.Sent)
		want, werr := strictjson.CanonicalBytes(doc)
		if cerr != nil || werr != nil || string(sent) != string(want) {
			t.Fatalf("the document did not survive: %s %v\n%s %v", sent, cerr, want, werr)
		}
		if diff := cmp.Diff(e.Tree, aana.Normalise(e.Tree)); diff != "" {
			t.Fatal(diff)
		}
		if _, err := e.ArgumentsCanonical(); err != nil {
			t.Fatal(err)
		}
		once, err := aana.NormaliseSDK(e.Sent)
		if err != nil {
			if !errors.Is(err, aana.ErrNotNormal) {
				t.Fatal(err)
			}
			return
		}
		if twice, err := aana.NormaliseSDK(once); err != nil || cmp.Diff(once, twice) != "" {
			t.Fatalf("%v %s", err, cmp.Diff(once, twice))
		}
	})
}
