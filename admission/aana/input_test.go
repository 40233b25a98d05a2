package aana

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aana"
	"github.com/countersign-dev/countersign/events/strictjson"
)

const leaked = "hunter2-secret"

// TestBadInput: always the contract's own refusal, a reason code, and no value.
func TestBadInput(t *testing.T) {
	good := func(more ...doc) doc { return event(wire.Write, wire.Confirmed, more...) }
	raw := func(old, changed string) string { return strings.Replace(body(t, good()), old, changed, 1) }
	for name, k := range map[string]struct {
		in    any
		error string // path: message, or the start of it
		code  string // of the first reason
	}{
		"nothing":                {"", "event: not_json", "not_json"},
		"null":                   {"null", "event: not_object", "not_object"},
		"list":                   {"[]", "event: not_object", "not_object"},
		"text":                   {`"` + leaked + `"`, "event: not_object", "not_object"},
		"number":                 {"7", "event: not_object", "not_object"},
		"truncated":              {raw("}]", ""), "evidence_refs: not_json", "not_json"},
		"twice the same key":     {raw(`{`, `{"tool_name":"`+leaked+`",`), "tool_name: duplicate_key", "duplicate_key"},
		"key in other case":      {raw(`{`, `{"Tool_Name":"`+leaked+`",`), "tool_name: case_collision", "case_collision"},
		"not UTF-8":              {raw("move_parcel", "\xff"), "event: invalid_utf8", "invalid_utf8"},
		"two values":             {raw("{", "{} {"), "event: trailing_data", "trailing_data"},
		"number beyond a double": {raw(`"parcel":19`, `"parcel":9007199254740993`), "proposed_arguments.parcel: unsafe_integer", "unsafe_integer"},
		"deep":                   {raw(`"parcel":19`, `"parcel":`+strings.Repeat("[", 70)+strings.Repeat("]", 70)), "proposed_arguments.parcel.0.0", "too_deep"},
		"large":                  {raw(`"parcel":19`, `"parcel":"`+strings.Repeat("x", 1<<20)+`"`), "event: too_large", "too_large"},
		"empty object":           {"{}", "event: required: missing property authorization_state", "schema_invalid"},
		"unknown category":       {good(doc{"tool_category": leaked}), "tool_category: enum: must be one of", "schema_invalid"},
		"unknown state":          {good(doc{"authorization_state": leaked}), "authorization_state: enum", "schema_invalid"},
		"unknown domain":         {good(doc{"risk_domain": leaked}), "risk_domain: enum", "schema_invalid"},
		"unknown route":          {good(doc{"recommended_route": leaked}), "recommended_route: enum", "schema_invalid"},
		"route of other checks":  {good(doc{"recommended_route": "revise"}), "recommended_route: enum", "schema_invalid"},
		"category in other case": {good(doc{"tool_category": "Write"}), "tool_category: enum", "schema_invalid"},
		"another version":        {good(doc{"schema_version": "aana.agent_tool_precheck.v2"}), "schema_version: const", "unknown_schema_version"},
		"version null":           {good(doc{"schema_version": json.RawMessage("null")}), "schema_version: type", "schema_invalid"},
		"extra key":              {good(doc{"tool_call_id": leaked}), "tool_call_id: additionalProperties", "schema_invalid"},
		"extra key in evidence":  {good(doc{"evidence_refs": refs(ref("approval", doc{"verified": leaked}))}), "evidence_refs.0.verified: additionalProperties", "schema_invalid"},
		"extra key in freshness": {good(doc{"evidence_refs": refs(ref("approval", doc{"freshness": doc{"status": "fresh", "x": leaked}}))}), "evidence_refs.0.freshness.x: additionalProperties", "schema_invalid"},
		"refs absent":            {good(doc{"evidence_refs": nil}), "event: required: missing property evidence_refs", "schema_invalid"},
		"refs null":              {good(doc{"evidence_refs": json.RawMessage("null")}), "evidence_refs: type", "schema_invalid"},
		"refs as object":         {good(doc{"evidence_refs": ref("approval")}), "evidence_refs: type", "schema_invalid"},
		"refs as text":           {good(doc{"evidence_refs": leaked}), "evidence_refs: type", "schema_invalid"},
		"ref a number":           {good(doc{"evidence_refs": refs(42)}), "evidence_refs.0: type", "schema_invalid"},
		"ref null":               {good(doc{"evidence_refs": refs(nil)}), "evidence_refs.0: type", "schema_invalid"},
		"ref blank":              {good(doc{"evidence_refs": refs(" ")}), "evidence_refs.0: type", "schema_invalid"},
		"ref empty":              {good(doc{"evidence_refs": refs(doc{})}), "evidence_refs.0: required: missing property source_id", "schema_invalid"},
		"ref without an id":      {good(doc{"evidence_refs": refs(ref("approval", doc{"source_id": ""}))}), "evidence_refs.0.source_id: minLength", "schema_invalid"},
		"kind unknown":           {good(doc{"evidence_refs": refs(ref(leaked))}), "evidence_refs.0.kind: enum", "schema_invalid"},
		"kind null":              {good(doc{"evidence_refs": refs(ref("approval", doc{"kind": json.RawMessage("null")}))}), "evidence_refs.0.kind: type", "schema_invalid"},
		"trust of the system":    {good(doc{"evidence_refs": refs(ref("approval", doc{"trust_tier": "system"}))}), "evidence_refs.0.trust_tier: enum", "schema_invalid"},
		"freshness current":      {good(doc{"evidence_refs": refs(ref("approval", doc{"freshness": doc{"status": "current"}}))}), "evidence_refs.0.freshness.status: enum", "schema_invalid"},
		"freshness empty":        {good(doc{"evidence_refs": refs(ref("approval", doc{"freshness": doc{}}))}), "evidence_refs.0.freshness: required", "schema_invalid"},
		"freshness text":         {good(doc{"evidence_refs": refs(ref("approval", doc{"freshness": "fresh"}))}), "evidence_refs.0.freshness: type", "schema_invalid"},
		"tool absent":            {good(doc{"tool_name": nil}), "event: required: missing property tool_name", "schema_invalid"},
		"tool empty":             {good(doc{"tool_name": ""}), "tool_name: minLength", "schema_invalid"},
		"tool null":              {good(doc{"tool_name": json.RawMessage("null")}), "tool_name: type", "schema_invalid"},
		"tool a number":          {good(doc{"tool_name": 5}), "tool_name: type", "schema_invalid"},
		"tool too long":          {good(doc{"tool_name": strings.Repeat("x", call.MaxField+1)}), "tool_name: field_too_long", "field_too_long"},
		"request id too long":    {good(doc{"request_id": strings.Repeat("x", call.MaxField+1)}), "request_id: field_too_long", "field_too_long"},
		"arguments absent":       {good(doc{"proposed_arguments": nil}), "event: required: missing property proposed_arguments", "schema_invalid"},
		"arguments null":         {good(doc{"proposed_arguments": json.RawMessage("null")}), "proposed_arguments: type", "schema_invalid"},
		"arguments a list":       {good(doc{"proposed_arguments": refs()}), "proposed_arguments: type", "schema_invalid"},
		"arguments text":         {good(doc{"proposed_arguments": leaked}), "proposed_arguments: type", "schema_invalid"},
		"route absent":           {good(doc{"recommended_route": nil}), "event: required: missing property recommended_route", "schema_invalid"},
		"subject text":           {good(doc{"authorization_subject": leaked}), "authorization_subject: type", "schema_invalid"},
		"subject type unknown":   {good(doc{"authorization_subject": doc{"subject_type": leaked}}), "authorization_subject.subject_type: enum", "schema_invalid"},
		"intent a number":        {good(doc{"user_intent": 5}), "user_intent: type", "schema_invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(t, hard, k.in)
			if d.said() != "refuse schema_validation_failed" || d.Opinion.Verdict != events.Deny || !d.Opinion.Malformed {
				t.Fatalf("%s %+v", d.said(), d.Opinion)
			}
			if got := d.Envelope.Errors[0]; !strings.HasPrefix(got.Path+": "+got.Message, k.error) {
				t.Errorf("%+v, want %s", d.Envelope.Errors, k.error)
			}
			if d.Opinion.Reasons[0].Code != k.code {
				t.Errorf("%v", d.codes())
			}
			if strings.Contains(d.raw, leaked) {
				t.Errorf("a value in %s", d.raw)
			}
			e := d.Envelope
			if e.Gate != "fail" || e.CandidateGate != "fail" || e.AIx.Score != 0.15 || e.Execution.Reason != executionInvalid || e.Execution.Observed.ErrorCount != len(e.Errors) {
				t.Errorf("%+v", e)
			}
			if diff := cmp.Diff([]string{reasonSchemaFailed}, e.Reasons); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRefusalHasNoOtherKeys: of an event that is not valid, the contract shows
// nothing that would have to be believed.
func TestRefusalHasNoOtherKeys(t *testing.T) {
	d := decide(t, hard, event(wire.Write, wire.Confirmed, doc{"recommended_route": "execute"}))
	var m map[string]any
	if err := json.Unmarshal([]byte(d.raw), &m); err != nil {
		t.Fatal(err)
	}
	want := []string{"aix", "architecture_decision", "candidate_gate", "contract_version", "execution_policy", "gate_decision", "hard_blockers", "reasons",
		"recommended_action", "route", "tool_name", "validation_errors"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(m))); diff != "" {
		t.Error(diff)
	}
	if m["tool_name"] != "move_parcel" {
		t.Error(m["tool_name"])
	}
	a := m["architecture_decision"].(map[string]any)
	if a["evidence_integrity"] != nil || a["authorization_report"] != nil || a["tool_category"] != "write" || a["authorization_state"] != "confirmed" {
		t.Errorf("%v", a)
	}
	if d := decide(t, hard, `{"tool_name":5,"tool_category":"x","risk_domain":"y","authorization_state":"z"}`); d.Envelope.ToolName != nil ||
		d.Envelope.Architecture.Category != nil || d.Envelope.Architecture.Domain != nil || d.Envelope.Architecture.State != notDeclared {
		t.Errorf("%+v", d.Envelope)
	}
}

// The reference's SDK guesses; what it cannot guess is refused under another
// name.
func TestReferenceEntry(t *testing.T) {
	bare := func(more ...doc) doc {
		return change(doc{"tool_name": "t", "tool_category": "public_read", "authorization_state": "none"}, more...)
	}
	for name, k := range map[string]struct {
		in   any
		want string
	}{
		"defaults":             {bare(), "accept"},
		"extra keys":           {bare(doc{"x": 1}), "accept"},
		"another version":      {bare(doc{"schema_version": "v9"}), "accept"},
		"no tool":              {bare(doc{"tool_name": nil}), "accept"},
		"bad category":         {bare(doc{"tool_category": "admin"}), "refuse contract_normalization_failed"},
		"bad route":            {bare(doc{"recommended_route": "execute"}), "refuse contract_normalization_failed"},
		"null":                 {"null", "refuse contract_normalization_failed"},
		"list":                 {"[]", "refuse contract_normalization_failed"},
		"empty tool":           {bare(doc{"tool_name": ""}), "refuse schema_validation_failed"},
		"bad freshness":        {bare(doc{"evidence_refs": refs(ref("other", doc{"freshness": "current"}))}), "refuse schema_validation_failed"},
		"marked, extra keys":   {bare(doc{"schema_version": wire.ContractVersion, "x": 1}), "refuse schema_validation_failed"},
		"marked, no defaults":  {bare(doc{"schema_version": wire.ContractVersion}), "refuse schema_validation_failed"},
		"marked, bad category": {event("admin", wire.None, doc{"schema_version": wire.ContractVersion}), "refuse schema_validation_failed"},
		"marked, blank ref":    {bare(doc{"schema_version": wire.ContractVersion, "evidence_refs": refs("")}), "refuse contract_normalization_failed"},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(t, sdk, k.in)
			if d.said() != k.want {
				t.Errorf("%s, want %s", d.said(), k.want)
			}
			if strings.HasSuffix(k.want, CodeNormalizationFailed) {
				e := d.Envelope
				if e.AIx.Score != 0 || e.AIx.Components != (Components{}) || e.Reasons[0] != reasonFailClosed || e.Errors[0].Path != "event" || !d.Opinion.Malformed {
					t.Errorf("%+v", e)
				}
			}
		})
	}
	if d := decide(t, sdk, bare(doc{"tool_name": nil})); *d.Envelope.ToolName != "None" || d.Call.Tool != "None" {
		t.Error("the reference names a missing tool None")
	}
}

func TestCall(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	in := event(wire.Write, wire.Confirmed, doc{"request_id": "req-1", "agent_id": "bot", "proposed_arguments": doc{"b": 1.5, "a": doc{"z": 1, "y": nil}}})
	r := request(t, hard, in)
	r.Header = map[string][]string{events.HeaderSession: {"s1"}, events.HeaderToolCallID: {"c1"}, events.HeaderAgent: {"bot"}, events.HeaderTrace: {trace}}
	c, o := Evaluator{}.Read(r)
	if c.EventID != "req-1" || c.EventIDAsSent != "req-1" || c.Agent != "bot" || c.Session != "s1" || c.ToolCallID != "c1" || c.Tool != "move_parcel" || c.Traceparent != trace {
		t.Errorf("%+v", c)
	}
	if string(c.ArgsCanonical) != `{"a":{"y":null,"z":1},"b":1.5}` || o.Verdict != events.Allow {
		t.Errorf("%s %s", c.ArgsCanonical, o.Verdict)
	}
	for name, h := range map[string]map[string][]string{
		"another agent": {events.HeaderAgent: {"imposter"}}, "two sessions": {events.HeaderSession: {"s1", "s2"}}, "two calls": {events.HeaderToolCallID: {"c1", "c2"}},
	} {
		r.Header = h
		c, o := Evaluator{}.Read(r)
		if !o.Malformed || o.Reasons[0].Code != call.CodeHeaderConflict || c.ProtocolState.(readState).result.Errors[0] != (ValidationError{"event", call.CodeHeaderConflict}) {
			t.Errorf("%s: %+v", name, o)
		}
	}
	r.Header = map[string][]string{events.HeaderSession: {strings.Repeat("x", call.MaxField+1)}}
	if c, o := (Evaluator{}).Read(r); !o.Malformed || c.Session != "" {
		t.Errorf("%+v", o)
	}
	r.Header = nil
	_, o = Evaluator{}.Read(r)
	var codes []string
	for _, reason := range o.Reasons {
		codes = append(codes, reason.Code)
	}
	if !slices.Contains(codes, call.CodeNoToolCallID) || !slices.Contains(codes, call.CodeWeakScope) || o.Verdict != events.Allow {
		t.Errorf("%v", codes)
	}
	// Without a tool there is no call that an id could name.
	r = request(t, hard, "{}")
	if c, _ := (Evaluator{}).Read(r); c.ToolCallID != "" || c.ArgsCanonical != nil {
		t.Errorf("%+v", c)
	}
	if c, _ := (Evaluator{}).Read(request(t, hard, event(wire.PublicRead, wire.None, doc{"proposed_arguments": doc{}}))); string(c.ArgsCanonical) != "{}" {
		t.Errorf("%s", c.ArgsCanonical)
	}
}

func TestDotted(t *testing.T) {
	for pointer, want := range map[string]string{"": "event", "/a": "a", "/a/0/b": "a.0.b", "/a~1b/c~0d": "a/b.c~d"} {
		if got := dottedPath(pointer); got != want {
			t.Errorf("%s: %s", pointer, got)
		}
	}
}

func TestWords(t *testing.T) {
	for v, want := range map[events.Verdict]string{events.Allow: "accept", events.Ask: "ask", events.Defer: "defer", events.Deny: "refuse", "": "refuse", "maybe": "refuse"} {
		if got := (Evaluator{}).NativeVerdict(v); got != want {
			t.Errorf("%q: %s", v, got)
		}
	}
	for r, want := range map[wire.Route]events.Verdict{"accept": "allow", "ask": "ask", "defer": "defer", "refuse": "deny", "": "deny", "revise": "deny"} {
		if got := verdictOf(r); got != want {
			t.Errorf("%q: %s", r, got)
		}
	}
	if !(Evaluator{}).HasNativeEvaluator() {
		t.Error("policies could loosen")
	}
}

// FuzzRead: no panic, no allow without an acceptable event, and the same answer
// twice; an allow is exactly an envelope that executes.
func FuzzRead(f *testing.F) {
	for _, c := range wire.Categories() {
		for _, s := range wire.States() {
			f.Add([]byte(body(f, event(c, s))), false)
			f.Add([]byte(body(f, event(c, s, doc{"schema_version": wire.ContractVersion, "evidence_refs": refs("a", thin("approval", "confirmed"))}))), true)
		}
	}
	for _, in := range []string{"", "null", "[]", "{}", `{"evidence_refs":{"a":1}}`, `{"tool_category":"public_read","authorization_state":"none"}`, `{"tool_name":"a","Tool_Name":"b"}`} {
		f.Add([]byte(in), true)
		f.Add([]byte(in), false)
	}
	f.Fuzz(func(t *testing.T, raw []byte, loose bool) {
		p := hard
		if loose {
			p = sdk
		}
		d := decide(t, p, string(raw))
		tree, err := strictjson.ParseObject(raw, strictjson.DefaultLimits)
		if d.Opinion.Verdict == events.Allow && err != nil {
			t.Fatal("allowed what cannot be parsed")
		}
		if d.Opinion.Verdict == events.Allow && p == hard && tree["schema_version"] != nil && tree["schema_version"] != wire.ContractVersion {
			t.Fatal("allowed another version")
		}
		if d.Opinion.Malformed && d.Opinion.Verdict != events.Deny || len(d.Opinion.Reasons) == 0 {
			t.Fatalf("%+v", d.Opinion)
		}
		checkGate(t, d)
		if !json.Valid([]byte(d.raw)) || d.raw != decide(t, p, string(raw)).raw {
			t.Fatal("another answer the second time")
		}
	})
}
