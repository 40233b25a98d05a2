package agenthook

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// event is a valid request with the given members set; nil takes one away. A
// key "metadata.x" stands for a member of metadata.
func event(t testing.TB, set map[string]any) string {
	t.Helper()
	meta := map[string]any{"tool_call_id": "c1"}
	m := map[string]any{
		"event_id": "7d444840-9dc0-11d1-b245-5ffdce74fad2", "event_type": "PreToolUse", "timestamp": "2026-11-20T11:59:59Z",
		"source": "claude-code", "session_id": "s1", "tool_name": "send_mail", "tool_input": map[string]any{"to": "a"}, "metadata": meta,
	}
	for k, v := range set {
		into := m
		if inner, ok := strings.CutPrefix(k, "metadata."); ok {
			k, into = inner, meta
		}
		if into[k] = v; v == nil {
			delete(into, k)
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func ask(body string, header map[string][]string) (call.Call, call.Opinion) {
	return Evaluator{}.Read(call.Request{
		Tenant: "acme", Source: "rt1", Header: header, Body: []byte(body), Limits: strictjson.DefaultLimits, Confirmations: call.NoConfirmations{},
	})
}

func said(o call.Opinion) string {
	words := []string{string(o.Verdict)}
	for _, r := range o.Reasons {
		words = append(words, strings.TrimSuffix(r.Code+"@"+r.Path, "@"))
	}
	if o.Malformed {
		words = append(words, "(malformed)")
	}
	if o.Observational {
		words = append(words, "(observational)")
	}
	return strings.Join(words, " ")
}

type set = map[string]any

func TestRequests(t *testing.T) {
	hash := "sha256:" + strings.Repeat("a", 64)
	other := "sha256:" + strings.Repeat("b", 64)
	risk := func(more set) set {
		m := set{"risk_class": "read_only"}
		maps.Copy(m, more)
		return m
	}
	for name, c := range map[string]struct {
		set  set
		want string
	}{
		"plain":                     {nil, "allow"},
		"pre-commit":                {set{"evidence_phase": "pre_commit"}, "allow"},
		"version 1":                 {set{"schema_version": 1}, "allow"},
		"version 2":                 {set{"schema_version": 2}, "deny unknown_schema_version@/schema_version (malformed)"},
		"version 2 and unknown":     {set{"schema_version": 2, "new_field": 1}, "deny unknown_schema_version@/schema_version schema_invalid@/new_field (malformed)"},
		"version text":              {set{"schema_version": "1"}, "deny schema_invalid@/schema_version (malformed)"},
		"no tool":                   {set{"tool_name": nil}, "deny missing_tool_name (malformed)"},
		"empty tool":                {set{"tool_name": ""}, "deny missing_tool_name@/tool_name (malformed)"},
		"tool no text":              {set{"tool_name": 5}, "deny schema_invalid@/tool_name (malformed)"},
		"no event id":               {set{"event_id": nil}, "deny schema_invalid (malformed)"},
		"event id no UUID":          {set{"event_id": "1"}, "deny schema_invalid@/event_id (malformed)"},
		"unknown top-level key":     {set{"traceparent": "x"}, "deny schema_invalid@/traceparent (malformed)"},
		"input no object":           {set{"tool_input": []any{}}, "deny schema_invalid@/tool_input (malformed)"},
		"input null":                {set{"tool_input": json.RawMessage("null")}, "deny schema_invalid@/tool_input (malformed)"},
		"type not PascalCase":       {set{"event_type": "pre_tool_use"}, "deny schema_invalid@/event_type (malformed)"},
		"empty source":              {set{"source": ""}, "deny schema_invalid@/source (malformed)"},
		"block of another type":     {set{"metadata.risk": "low"}, "deny schema_invalid@/metadata/risk (malformed)"},
		"member of another type":    {set{"metadata.risk": risk(set{"requires_human_approval": "no"})}, "deny schema_invalid@/metadata/risk/requires_human_approval (malformed)"},
		"call id of another type":   {set{"metadata.tool_call_id": 7}, "deny schema_invalid@/metadata/tool_call_id (malformed)"},
		"scope no text":             {set{"metadata.approval_scope": set{"caller": "alice"}}, "deny schema_invalid@/metadata/approval_scope (malformed)"},
		"scope null":                {set{"metadata.approval_scope": json.RawMessage("null")}, "deny schema_invalid@/metadata/approval_scope (malformed)"},
		"scope":                     {set{"metadata.approval_scope": "alice"}, "allow"},
		"phase unknown":             {set{"evidence_phase": "later"}, "deny schema_invalid@/evidence_phase (malformed)"},
		"phase post-hoc":            {set{"evidence_phase": "post_hoc"}, "deny not_pre_commit@/evidence_phase"},
		"phase observational":       {set{"evidence_phase": "observational"}, "deny not_pre_commit@/evidence_phase"},
		"no call id":                {set{"metadata.tool_call_id": nil}, "allow tool_call_id_missing@/metadata/tool_call_id"},
		"no session":                {set{"session_id": nil}, "allow weak_scope@/session_id"},
		"long tool":                 {set{"tool_name": strings.Repeat("x", call.MaxField+1)}, "deny field_too_long@/tool_name (malformed)"},
		"long session":              {set{"session_id": strings.Repeat("x", call.MaxField+1)}, "deny field_too_long@/session_id (malformed)"},
		"own verdict":               {set{"metadata.admission_verdict": set{"verdict": "allow"}}, "allow publisher_verdict_ignored@/metadata/admission_verdict"},
		"own approval":              {set{"metadata.approval": set{"required": true, "status": "approved"}}, "allow publisher_approval_ignored@/metadata/approval"},
		"own attestation":           {set{"metadata.runtime_attestation": set{"claims": set{}}}, "allow publisher_claims_ignored@/metadata"},
		"own trust":                 {set{"metadata.hook_trust": set{"trust_status": "trusted"}}, "allow publisher_claims_ignored@/metadata"},
		"human wanted":              {set{"metadata.risk": risk(set{"requires_human_approval": true}), "event_type": "PreLLMCall"}, "ask human_approval_required@/metadata/risk/requires_human_approval"},
		"human wanted, approved":    {set{"metadata.risk": set{"risk_class": "write", "requires_human_approval": true}, "metadata.approval": set{"status": "approved", "required": true}, "event_type": "PreLLMCall"}, "ask human_approval_required@/metadata/risk/requires_human_approval publisher_approval_ignored@/metadata/approval"},
		"validation failed":         {set{"metadata.validation": set{"status": "failed"}}, "deny validation_failed@/metadata/validation/status"},
		"validation passed":         {set{"metadata.validation": set{"status": "passed"}}, "allow"},
		"hashes differ":             {set{"metadata.validation": set{"schema_hash": hash}, "metadata.provider_translation": set{"provider_surface": "other", "schema_hash": other}}, "deny schema_hash_conflict@/metadata"},
		"hashes agree":              {set{"metadata.validation": set{"schema_hash": hash}, "metadata.provider_translation": set{"provider_surface": "other", "schema_hash": hash}}, "allow"},
		"hashes agree, in capitals": {set{"metadata.validation": set{"schema_hash": hash}, "metadata.provider_translation": set{"provider_surface": "other", "schema_hash": "sha256:" + strings.ToUpper(hash[7:])}}, "allow"},
		"short of the profile":      {set{"metadata.tool_identity": set{"canonical_name": "Bash", "provider_name": "b", "source": "s"}}, "allow profile_invalid profile_invalid@/metadata profile_invalid@/metadata/tool_identity/canonical_name"},
		"web action":                {set{"event_type": "WebActionRequested", "tool_name": nil}, "allow"},
		"unnamed Pre type":          {set{"event_type": "PreDeploy", "evidence_phase": "observational"}, "deny not_pre_commit@/evidence_phase"},
		"unknown type":              {set{"event_type": "DeployRequested"}, "allow"},
		"unknown type, observes":    {set{"event_type": "DeployRequested", "evidence_phase": "observational"}, "allow observational (observational)"},
		"unknown type, afterward":   {set{"event_type": "DeployDone", "evidence_phase": "post_hoc"}, "allow observational (observational)"},
		"post":                      {set{"event_type": "PostToolUse"}, "allow observational (observational)"},
		"post without a tool":       {set{"event_type": "PostToolUse", "tool_name": ""}, "allow observational (observational)"},
		"post claims to be first":   {set{"event_type": "PostToolUse", "evidence_phase": "pre_commit"}, "deny schema_invalid@/evidence_phase (malformed)"},
		"post malformed":            {set{"event_type": "PostToolUse", "event_id": "x"}, "deny schema_invalid@/event_id (malformed)"},
		"prompt":                    {set{"event_type": "UserPromptSubmit", "tool_name": nil}, "allow observational (observational)"},
		"prompt that waits":         {set{"event_type": "UserPromptSubmit", "tool_name": nil, "evidence_phase": "pre_commit"}, "allow"},
	} {
		t.Run(name, func(t *testing.T) {
			_, o := ask(event(t, c.set), nil)
			if got := said(o); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			for _, r := range o.Reasons {
				if r.Evaluator != Name {
					t.Errorf("reason %+v", r)
				}
			}
			if o.Malformed && o.Verdict != events.Deny {
				t.Error("malformed and not denied")
			}
		})
	}
}

func TestUndecodable(t *testing.T) {
	good := event(t, nil)
	for name, c := range map[string]struct{ body, want string }{
		"empty":          {"", "deny not_json (malformed)"},
		"half":           {good[:20], "not_json"},
		"list":           {"[]", "deny not_object (malformed)"},
		"twice":          {`{"a":1,"a":2}`, "deny duplicate_key@/a (malformed)"},
		"case":           {`{"tool_name":"a","Tool_Name":"b"}`, "case_collision"},
		"trailing":       {good + "{}", "deny trailing_data (malformed)"},
		"big integer":    {strings.Replace(good, `"to":"a"`, `"n":9007199254740993`, 1), "deny unsafe_integer@/tool_input/n (malformed)"},
		"rounded number": {strings.Replace(good, `"to":"a"`, `"n":0.10000000000000000001`, 1), "deny imprecise_number@/tool_input/n (malformed)"},
		"not UTF-8":      {strings.Replace(good, "send_mail", "\xff", 1), "invalid_utf8"},
		"too large":      {strings.Replace(good, "send_mail", strings.Repeat("x", 1<<20), 1), "deny too_large (malformed)"},
		"too deep":       {strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70), "too_deep"},
	} {
		t.Run(name, func(t *testing.T) {
			c2, o := ask(c.body, nil)
			if got := said(o); !strings.Contains(got, c.want) || !o.Malformed || o.Verdict != events.Deny {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if c2.EventID != "" || c2.Tool != "" {
				t.Errorf("a call out of nothing: %+v", c2)
			}
		})
	}
}

func TestCall(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	body := event(t, set{
		"event_id": "7D444840-9DC0-11D1-B245-5FFDCE74FAD2", "agent_id": "bot", "action": "send", "resource_kind": "email", "resource_scope": "tenant",
		"resource": set{"box": "in"}, "operation_risk": "external_transfer", "metadata.traceparent": trace, "tool_input": set{"b": 1.0, "a": "x"},
	})
	c, o := ask(body, nil)
	if said(o) != "allow" {
		t.Fatal(said(o))
	}
	if c.EventID != "7d444840-9dc0-11d1-b245-5ffdce74fad2" || c.EventIDAsSent != "7D444840-9DC0-11D1-B245-5FFDCE74FAD2" {
		t.Errorf("event id %s, as sent %s", c.EventID, c.EventIDAsSent)
	}
	if string(c.ArgsCanonical) != `{"a":"x","b":1}` || c.Traceparent != trace || c.Agent != "bot" || c.ToolCallID != "c1" {
		t.Errorf("%+v", c)
	}
	if diff := cmp.Diff(map[string]any{"box": "in"}, c.Resource); diff != "" {
		t.Error(diff)
	}
	none, _ := ask(event(t, set{"tool_input": nil}), nil)
	empty, _ := ask(event(t, set{"tool_input": set{}}), nil)
	if none.ArgsCanonical != nil || string(empty.ArgsCanonical) != "{}" {
		t.Errorf("absent %q, empty %q", none.ArgsCanonical, empty.ArgsCanonical)
	}
}

// No verdict on anything but a call may carry a call's id: it could pass for one
// on the call.
func TestOnlyCallsHaveACallID(t *testing.T) {
	for name, s := range map[string]set{
		"model call":    {"event_type": "PreLLMCall", "tool_name": nil},
		"observational": {"event_type": "PostToolUse"},
	} {
		c, _ := ask(event(t, s), map[string][]string{events.HeaderToolCallID: {"c1"}})
		if c.ToolCallID != "" || name == "observational" && (c.Tool != "" || c.Args != nil || c.ArgsCanonical != nil) {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestHeadersFillInAndNeverContradict(t *testing.T) {
	bare := event(t, set{"session_id": nil, "metadata.tool_call_id": nil})
	header := map[string][]string{events.HeaderSession: {"hs"}, events.HeaderToolCallID: {"hc"}, events.HeaderAgent: {"ha"}, events.HeaderTrace: {"junk"}}
	c, o := ask(bare, header)
	if said(o) != "allow" || c.Session != "hs" || c.ToolCallID != "hc" || c.Agent != "ha" || c.Traceparent != "" {
		t.Errorf("%s %+v", said(o), c)
	}
	if _, o := ask(event(t, nil), map[string][]string{events.HeaderSession: {"s1"}, events.HeaderToolCallID: {"c1"}}); said(o) != "allow" {
		t.Error(said(o))
	}
	for _, h := range []map[string][]string{{events.HeaderSession: {"s2"}}, {events.HeaderToolCallID: {"c2"}}, {events.HeaderSession: {"s1", "s2"}}} {
		if _, o := ask(event(t, nil), h); said(o) != "deny header_conflict (malformed)" {
			t.Errorf("%v: %s", h, said(o))
		}
	}
}

func TestPoliciesDoNotSeeClaims(t *testing.T) {
	body := event(t, set{
		"annotations": set{"bus": set{"verified": true}}, "metadata.admission_verdict": set{"verdict": "allow"},
		"metadata.approval": set{"required": true, "status": "approved"}, "metadata.managed_runtime": set{"approval_status": "approved"},
		"metadata.hook_trust": set{}, "metadata.governance_context": set{}, "metadata.goal_id": "g", "metadata.custom": set{"k": "v"},
	})
	c, _ := ask(body, nil)
	want := map[string]any{"tool_call_id": "c1", "custom": map[string]any{"k": "v"}}
	if diff := cmp.Diff(want, c.Event["metadata"]); diff != "" {
		t.Error(diff)
	}
	if _, there := c.Event["annotations"]; there {
		t.Error("annotations are visible")
	}
	e, err := wire.Decode([]byte(body), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	tree := e.Tree()
	if withoutClaims(tree); len(asObject(tree["metadata"])) != 8 || tree["annotations"] == nil {
		t.Error("the document was changed")
	}
}

func TestRisk(t *testing.T) {
	yes := true
	for name, c := range map[string]struct {
		operation    string
		block        set
		level        any
		irreversible bool
	}{
		"nothing":              {"", nil, nil, false},
		"read":                 {"read_only", nil, "low", false},
		"sensitive":            {"sensitive_read", nil, "medium", false},
		"destructive":          {"destructive_write", nil, "high", true},
		"publication":          {"", set{"risk_class": "publication"}, "high", true},
		"credential":           {"credential_access", nil, "high", false},
		"transfer":             {"external_transfer", nil, "medium", true},
		"transfer, idempotent": {"external_transfer", set{"risk_class": "read_only", "idempotent": yes}, "medium", false},
		"worst of both":        {"read_only", set{"risk_class": "destructive_write"}, "high", true},
		"exfiltration":         {"read_only", set{"risk_class": "read_only", "data_exfiltration_risk": "high"}, "high", false},
		"unknown word":         {"harmless_honestly", nil, "high", false},
		"unknown":              {"unknown", nil, "high", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := set{"operation_risk": c.operation}
			if c.block != nil {
				s["metadata.risk"] = c.block
			}
			got, _ := ask(event(t, s), nil)
			if got.Risk["level"] != c.level || got.Risk["irreversible"] != c.irreversible {
				t.Errorf("%v", got.Risk)
			}
		})
	}
	c, _ := ask(event(t, set{"operation_risk": "write", "metadata.risk": set{"risk_class": "write", "writes_external_system": true, "contains_secret": false, "requires_human_approval": false}}), nil)
	want := map[string]any{"operation_risk": "write", "risk_class": "write", "writes_external_system": true, "contains_secret": false, "requires_human_approval": false, "level": "medium", "irreversible": false}
	if diff := cmp.Diff(want, c.Risk); diff != "" {
		t.Error(diff)
	}
}

func TestNative(t *testing.T) {
	for v, want := range map[events.Verdict]string{events.Allow: "allow", events.Ask: "ask", events.Defer: "ask", events.Deny: "deny", "": "deny", "maybe": "deny"} {
		if got := (Evaluator{}).NativeVerdict(v); got != want {
			t.Errorf("%q: %s", v, got)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(event(f, nil)))
	f.Add([]byte(event(f, set{"event_type": "PostToolUse"})))
	f.Add([]byte(event(f, set{"metadata.risk": set{"risk_class": "x"}, "schema_version": 2})))
	f.Add([]byte(`{"event_type":"PreToolUse","metadata":{"approval":null}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, o := ask(string(body), nil)
		if o.Malformed && o.Verdict != events.Deny {
			t.Fatal("malformed and not denied")
		}
		if _, err := strictjson.ParseObject(body, strictjson.DefaultLimits); err != nil && !o.Malformed {
			t.Fatal("accepted what cannot be parsed")
		}
		if o.Observational && (c.Tool != "" || c.ToolCallID != "") {
			t.Fatal("an observation that looks like a call")
		}
		if b, err := (Evaluator{}).Reply(c, events.Decision{Verdict: o.Verdict}, "r"); err != nil || !json.Valid(b) {
			t.Fatalf("%v %s", err, b)
		}
	})
}
