package events

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events/strictjson"
)

func fullDecision() Decision {
	at := At(time.Date(2026, 11, 20, 12, 0, 0, 5, time.UTC))
	return Decision{DecisionID: "d", EventID: "e", Tenant: "acme", Protocol: "agenthook", Source: "rt", Session: "s", Tool: "t", Occurrence: 2,
		RequestDigest: "sha256:00", Verdict: Ask, Reasons: []Reason{{Evaluator: "x", Code: "y"}, {Evaluator: "é\n", Code: "z"}},
		Policy: &PolicyRef{Name: "p", Revision: 7, Digest: "d"}, Approval: &ApprovalRef{WorkflowID: "w", ExpiresAt: at}, DecidedAt: at,
		Counts: []Count{{Key: "k", WindowMS: 5, Amount: -1, Total: 3}}, Inputs: &DecisionInputs{Strict: true, Mandate: &MandateInput{Reserved: 4}}}
}

// holdRecord fails if a record is not decoded as the JSON library decodes it.
func holdRecord[T any](t *testing.T, raw []byte) {
	t.Helper()
	got, err := DecodeRecord[T](raw)
	var want T
	_, wantErr := strictjson.ParseObject(raw, strictjson.DefaultLimits)
	if wantErr == nil {
		wantErr = strictjson.Unmarshal(raw, &want, strictjson.RejectUnknown)
	}
	if (err == nil) != (wantErr == nil) || !reflect.DeepEqual(got, want) && err == nil {
		t.Fatalf("%s\ngot  %+v, %v\nwant %+v, %v", raw, got, err, want, wantErr)
	}
	var e, wantE *strictjson.Error
	if err != nil && (!errors.As(err, &e) || !errors.As(wantErr, &wantE) || e.Code != wantE.Code || e.Path != wantE.Path) {
		t.Fatalf("%s\ngot  %v\nwant %v", raw, err, wantErr)
	}
}

func recordSeeds(tb testing.TB) []string {
	tb.Helper()
	full, err := Encode(fullDecision())
	if err != nil {
		tb.Fatal(err)
	}
	return []string{string(full), `{}`, `{"decision_id":null}`, `{"reasons":[]}`, `{"reasons":null}`, `{"reasons":{}}`, `{"reasons":[{"code":1}]}`, `{"reasons":[null]}`, `{"occurrence":1.0}`, `{"occurrence":-0}`, `{"occurrence":"1"}`, `{"occurrence":null}`,
		`{"decided_at":"2026-11-20T12:00:00\u005a"}`, `{"decided_at":""}`, `{"decided_at":"2026-11-20T12:00:00+01:00"}`, `{"decided_at":1}`, `{"decided_at":null}`, `{"policy":null}`, `{"policy":[]}`,
		`{"policy":{"revision":-1}}`, `{"policy":{"revision":18446744073709551615}}`, `{"nope":1}`, `{"policy":{"no/pe":1}}`, `{"verdict":"x"}`, `{"inputs":{"strict":"true"}}`, `{"inputs":{"strict":null}}`, `{"DECISION_ID":"x"}`,
		`{"shard":"GOV","consumed":5,"partial":1,"outputs":2,"writer":"w"}`, `{"rules":{"a":"b","c":null}}`, `{"rules":{"a":1}}`, `{"rules":null}`, `{"rules":[]}`, `[]`, `{"rules":{}}`}
}

func holdRecords(t *testing.T, raw []byte) {
	t.Helper()
	holdRecord[Decision](t, raw)
	holdRecord[Cursor](t, raw)
	holdRecord[Approval](t, raw)
	holdRecord[Call](t, raw)
	holdRecord[Finding](t, raw)
	holdRecord[RulesChange](t, raw)
}

func TestDecodeRecord(t *testing.T) {
	for _, s := range recordSeeds(t) {
		holdRecords(t, []byte(s))
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[Decision](), reflect.TypeFor[Cursor](), reflect.TypeFor[Call](), reflect.TypeFor[Approval](), reflect.TypeFor[RulesChange]()} {
		if setterOf(typ) == nil {
			t.Errorf("%s is decoded by the library", typ)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, s := range recordSeeds(f) {
		f.Add([]byte(s))
	}
	f.Fuzz(holdRecords)
}
