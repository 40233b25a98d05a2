package schemas

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas/internal/schematest"
)

func TestNamesAndSources(t *testing.T) {
	r := Default()
	names := r.Names()
	for _, want := range []string{"aaep/envelope", "aaep/agent.tool.invoked", "aaep/confirmation.reply", "agenthook/envelope",
		"agenthook/action-governance.request", "agenthook/action-governance.evidence", "agenthook/approval",
		"agenthook/runtime-attestation", "agenthook/publisher-manifest", "countersign/decision", "countersign/call", "countersign/finding"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, name := range names {
		src, ok := r.Source(name)
		if doc := schematest.Parse(t, string(src)); !ok || doc["$id"] != Base+name+"/v1" {
			t.Errorf("%s: $id is %v", name, doc["$id"])
		}
	}
	names[0] = "changed"
	src, _ := r.Source("aaep/envelope")
	src[0] = 'x'
	if again, _ := r.Source("aaep/envelope"); r.Names()[0] == "changed" || again[0] == 'x' {
		t.Error("a caller can change the registry")
	}
	if _, ok := r.Source("aaep/nothing"); ok {
		t.Error("a source for a name that is not there")
	}
	if vs := r.Validate("aaep/nothing", strictjson.FromTree(map[string]any{})); !HasErrors(vs) {
		t.Error("an unknown schema lets a document pass")
	}
}

// TestKeywordsAreKnown: the library ignores a keyword that it does not know, so
// a misspelt one would demand nothing.
func TestKeywordsAreKnown(t *testing.T) {
	known := strings.Fields(`$schema $id $ref $defs title description type const enum required properties additionalProperties
		minProperties items prefixItems minItems maxItems uniqueItems minLength maxLength pattern format minimum maximum allOf anyOf if then else`)
	var walk func(name string, v any)
	walk = func(name string, v any) {
		s, ok := v.(map[string]any)
		if !ok {
			return
		}
		for k, sub := range s {
			if !slices.Contains(known, k) {
				t.Errorf("%s: keyword %s", name, k)
			}
			switch k {
			case "properties", "$defs":
				for _, p := range sub.(map[string]any) {
					walk(name, p)
				}
			case "allOf", "anyOf", "prefixItems":
				for _, p := range sub.([]any) {
					walk(name, p)
				}
			default:
				walk(name, sub)
			}
		}
	}
	for _, name := range Default().Names() {
		src, _ := Default().Source(name)
		walk(name, schematest.Parse(t, string(src)))
	}
}

func TestLoadRefuses(t *testing.T) {
	const head = `{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"` + Base + `aaep/x/v1",`
	for _, tc := range []struct{ name, text, want string }{
		{"not JSON", `{`, "aaep/x"},
		{"not a schema", head + `"type":"thing"}`, "aaep/x"},
		{"loading from outside", head + `"$ref":"https://example.org/schema"}`, errNoLoading.Error()},
		{"loading a file", head + `"$ref":"file:///etc/hostname"}`, errNoLoading.Error()},
		{"unknown format", head + `"format":"hostname"}`, "format hostname is not evaluated"},
		{"misspelt format", head + `"format":"datetime"}`, "format datetime is not evaluated"},
		{"keyword that is not evaluated", head + `"properties":{"a":{"not":{"type":"string"}}}}`, "not is not evaluated"},
		{"another one", head + `"items":{"multipleOf":2}}`, "multipleOf is not evaluated"},
		{"composite const", head + `"anyOf":[{"const":{"a":1}}]}`, "array or object is not evaluated"},
		{"boolean schema", head + `"properties":{"a":false}}`, "a boolean schema is not evaluated"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := compileSources(map[string][]byte{"aaep/x": []byte(tc.text)})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

const (
	stateChanged = `{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.state.changed","event_id":"evt_1","session_id":"sess_1",
		"timestamp":"2026-11-20T10:00:00.000Z","producer":{"agent_id":"a"},"from_state":"idle","to_state":"thinking"}`
	preToolUse = `{"event_id":"0d9f8b7a-1c2d-4e3f-8a9b-0c1d2e3f4a5b","event_type":"PreToolUse","timestamp":"2026-11-20T10:00:00Z","source":"runtime","tool_name":"t"}`
)

// TestMessages pins what people read.
func TestMessages(t *testing.T) {
	for _, tc := range []struct{ schema, over, want string }{
		{"aaep/envelope", `{"event_id":"x"}`, "/event_id: must match ^evt_[A-Za-z0-9]{1,64}$"},
		{"aaep/envelope", `{"session_id":null}`, "the document: missing property session_id"},
		{"aaep/envelope", `{"@context":"x"}`, "/@context: must be the AAEP context URI, or an array that starts with it"},
		{"aaep/envelope", `{"urgency":"x"}`, `/urgency: must be one of "background", "normal", "critical"`},
		{"aaep/envelope", `{"sequence_number":-5}`, "/sequence_number: must be at least 0"},
		{"aaep/envelope", `{"timestamp":"x"}`, "/timestamp: must be an RFC 3339 date and time with zone"},
		{"aaep/envelope", `{"producer":{"agent_id":"a","a/b~c":1}}`, "/producer/a~1b~0c: is not a known property"},
		{"aaep/agent.state.changed", `{"to_state":5}`, "/to_state: must be a string"},
		{"agenthook/envelope", `{"resource":5}`, "/resource: must be a string or an object"},
	} {
		base := stateChanged
		if strings.HasPrefix(tc.schema, "agenthook") {
			base = preToolUse
		}
		vs := Default().Validate(tc.schema, strictjson.FromTree(schematest.Edit(t, base, tc.over)))
		if len(vs) != 1 || vs[0].String() != tc.want {
			t.Errorf("%v, want %s", vs, tc.want)
		}
	}
}

func TestNoValueIsQuoted(t *testing.T) {
	schematest.NoValueIsQuoted(t, "", func(schema string, document strictjson.Value) string {
		return fmt.Sprintf("%+v", Default().Validate(schema, document))
	})
}

// TestValidCostsNothing: judging a valid event allocates nothing.
func TestValidCostsNothing(t *testing.T) {
	r := Default()
	for name, protocol := range map[string]string{"aaep/agent.tool.invoked": "aaep", "agenthook/envelope": "agenthook", "agenthook/action-governance.evidence": "agenthook"} {
		v := schematest.Message(t, protocol)
		if n := testing.AllocsPerRun(20, func() { r.Validate(name, v) }); n >= 1 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestUniqueItems(t *testing.T) {
	for text, want := range map[string]bool{
		`["a","b"]`: true, `["a","b","a"]`: false, `[1,1.0]`: false, `[1,"1"]`: true, `[{"a":1,"b":2},{"b":2.0,"a":1}]`: false,
		`[["a"],["a","a"]]`: true, `[null,false,0,"",[],{}]`: true, `[0,-0]`: false, `[]`: true,
	} {
		v, err := strictjson.Parse([]byte(text), strictjson.DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		if got := (uniqueItems{}).validate(strictjson.FromTree(v), nil); got != want {
			t.Errorf("%s unique: %v", text, got)
		}
	}
}

// TestOwnRecords: what events.Encode writes is what the schemas describe.
func TestOwnRecords(t *testing.T) {
	at := events.At(time.Date(2026, 11, 20, 9, 30, 0, 42, time.UTC))
	keyed, plain := digest.Keyed(make([]byte, digest.KeySize), []byte("x")), digest.Plain([]byte("x"))
	for _, tc := range []struct {
		schema string
		record any
	}{
		{"countersign/decision", events.Decision{DecisionID: "019342f0-0000-7000-8000-000000000001", Tenant: "acme", Protocol: "aaep",
			Source: "desk", RequestDigest: keyed, Verdict: events.Deny, Reasons: []events.Reason{}, DecidedAt: at}},
		{"countersign/decision", events.Decision{DecisionID: "019342f0-0000-7000-8000-000000000001", EventID: "e", Tenant: "acme", Protocol: "agenthook",
			Source: "desk", Agent: "a", Session: "s", ToolCallID: "c", Occurrence: 2, Tool: "t", Action: "send", ResourceKind: "email", ArgsDigest: keyed,
			RequestDigest: plain, Verdict: events.Defer, NativeVerdict: "ask", Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "needs_approval", Path: "/a", Policy: "p/r", Action: "warn", WouldVerdict: events.Ask}},
			Policy: &events.PolicyRef{Name: "p", Revision: 3, Digest: plain}, Mandate: &events.MandateRef{ID: "m", Hash: "h"},
			Approval:   &events.ApprovalRef{WorkflowID: "w", Status: "pending", ActionID: "c", RequestedAt: at, ExpiresAt: at, ResumePolicy: "publisher_waits"},
			ReceivedAt: at, DecidedAt: at, ExpiresAt: at, ReceiptHash: plain, Durability: "fsync", Traceparent: "00-x",
			CanonicalTool: "a.b", Publishers: &events.SnapshotRef{Revision: 4, Digest: plain},
			Counts: []events.Count{{Key: "k", WindowMS: 1000, Amount: 2, Total: -1}},
			Inputs: &events.DecisionInputs{Strict: true, Profile: "reference-sdk",
				Confirmation: &events.ConfirmationInput{Status: "accepted", ID: "x", Explicit: true, Understated: true, AcceptsByDefault: true, Until: at},
				Mandate:      &events.MandateInput{Revoked: true, TrustedUI: true, Approved: true, Reserved: 1, Settled: 2, Full: true, Unknown: true, Signatures: "required", SignatureState: "verified"}}}},
		{"countersign/call", events.Call{CallID: "c", Tenant: "acme", Source: "desk", Protocol: "aaep", Occurrence: 1, State: events.CallOpen, Timeline: []events.TimelineEntry{}}},
		{"countersign/call", events.Call{CallID: "c", Tenant: "acme", Source: "desk", Protocol: "aaep", Agent: "a", Session: "s", ToolCallID: "c", Occurrence: 1,
			Tool: "t", State: events.CallFailed, Outcome: "error", Verdict: events.Allow, DecisionID: "d", DecisionSeq: 1, ExecutionSeq: 2, AdmittedDigest: keyed, ExecutedDigest: keyed,
			Match: "equal", Inferred: true, WeakScope: true, Binding: events.BindingExplicit, Findings: []string{"r"}, Timeline: []events.TimelineEntry{{Step: "completed", Seq: 2, At: at, EventID: "e"}}}},
		{"countersign/finding", events.Finding{FindingID: "f", Rule: "r", Severity: events.SeverityInfo, EventIDs: []string{}, Explanation: "x"}},
		{"countersign/finding", events.Finding{FindingID: "f", Rule: "r", Severity: events.SeverityCritical, Tenant: "acme", Source: "desk", Session: "s", ToolCallID: "c",
			CallID: "c", EventIDs: []string{"e"}, Seqs: []uint64{1}, Explanation: "x", Remedy: "y", DetectedAt: at, Retracts: "g", Enforced: true}},
	} {
		b, err := events.Encode(tc.record)
		if err != nil {
			t.Fatal(err)
		}
		if vs := Default().Validate(tc.schema, strictjson.FromTree(schematest.Parse(t, string(b)))); vs != nil {
			t.Errorf("%s: %v", b, vs)
		}
	}
}

// TestOwnRecordFields: schema and Go type have the same members, so that neither
// is changed alone.
func TestOwnRecordFields(t *testing.T) {
	for schema, record := range map[string]any{
		"countersign/decision": events.Decision{}, "countersign/call": events.Call{}, "countersign/finding": events.Finding{},
	} {
		var fields []string
		for i := range reflect.TypeOf(record).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(record).Field(i).Tag.Get("json"), ",")
			fields = append(fields, name)
		}
		slices.Sort(fields)
		var known []string
		for f := range fieldsOf(libraries(t)[schema]) {
			known = append(known, f)
		}
		slices.Sort(known)
		if d := cmp.Diff(fields, known); d != "" {
			t.Errorf("%s: %s", schema, d)
		}
	}
}
