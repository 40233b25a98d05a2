package aioc

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

const toolText = `{"agentName":"Stock keeper","toolName":"reorder","rawArguments":"{\"sku\":\"K-7\"}","parsedArguments":{"sku":"K-7"},"runContext":{"context":{}},"turn":2.0,"callId":"c1","runId":"r1","proposalHash":"aa","argsCanonicalJson":"{}"}`

const handoffText = `{"fromAgentName":"Greeter","toAgentName":"Returns desk","handoffPayload":{"order":"O-19"},"turn":1,"handoffName":"handoff_to_returns_desk","payloadCanonicalJson":"{}"}`

func TestDecodeTool(t *testing.T) {
	in, err := DecodeTool([]byte(toolText), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	want := &ToolPolicyInput{
		Input:     Input{Turn: 2, ProposalHash: "aa", CanonicalJSON: "{}", RunContext: map[string]any{"context": map[string]any{}}, CallID: "c1", RunID: "r1", Tree: in.Tree, Raw: []byte(toolText)},
		AgentName: "Stock keeper", ToolName: "reorder", RawArguments: `{"sku":"K-7"}`, ParsedArguments: map[string]any{"sku": "K-7"}, HasRaw: true, HasParsed: true,
	}
	if diff := cmp.Diff(want, in, cmpopts.IgnoreTypes(strictjson.Value{})); diff != "" {
		t.Error(diff)
	}
	in, err = DecodeTool([]byte(`{"parsedArguments":null}`), strictjson.DefaultLimits)
	if err != nil || !in.HasParsed || in.HasRaw || in.ParsedArguments != nil || in.Turn != 0 {
		t.Errorf("%+v %v", in, err)
	}
}

func TestDecodeHandoff(t *testing.T) {
	in, err := DecodeHandoff([]byte(handoffText), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	want := &HandoffPolicyInput{
		Input:         Input{Turn: 1, CanonicalJSON: "{}", Tree: in.Tree, Raw: []byte(handoffText)},
		FromAgentName: "Greeter", ToAgentName: "Returns desk", HandoffPayload: map[string]any{"order": "O-19"}, HandoffName: "handoff_to_returns_desk",
	}
	if diff := cmp.Diff(want, in, cmpopts.IgnoreTypes(strictjson.Value{})); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for text, path := range map[string]string{
		`{"agentName":1}`: "/agentName", `{"toolName":null}`: "/toolName", `{"rawArguments":{}}`: "/rawArguments", `{"turn":"1"}`: "/turn", `{"turn":1.5}`: "/turn",
		`{"runContext":[]}`: "/runContext", `{"proposalHash":1}`: "/proposalHash", `{"argsCanonicalJson":{}}`: "/argsCanonicalJson", `{"callId":7}`: "/callId",
	} {
		in, err := DecodeTool([]byte(text), strictjson.DefaultLimits)
		var field *FieldError
		if in == nil || !errors.As(err, &field) || field.Path != path {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"", "{", "[]", "null", `"x"`, `{"turn":1,"turn":2}`, `{"toolName":"a","ToolName":"b"}`, `{"turn":9007199254740993}`, "{\"a\":\"\xff\"}"} {
		var refused *strictjson.Error
		if in, err := DecodeTool([]byte(text), strictjson.DefaultLimits); in != nil || !errors.As(err, &refused) {
			t.Errorf("%s: %v", text, err)
		}
		if in, err := DecodeHandoff([]byte(text), strictjson.DefaultLimits); in != nil || !errors.As(err, &refused) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestParseArguments(t *testing.T) {
	for text, want := range map[string]string{
		"": "{}", " \t\r\n\v\f\u00a0\ufeff\u2028": "{}", `{"a":1}`: `{"a":1}`, " {} ": "{}", "[1]": "[1]", "null": "null", `"x"`: `"x"`, "7": "7",
		"{bad": `{"__raw":"{bad"}`, `{"a":1}x`: `{"__raw":"{\"a\":1}x"}`, "\u0085": `{"__raw":"` + "\u0085" + `"}`, "\ufeff{}": `{"__raw":"` + "\ufeff" + `{}"}`,
		"NaN": `{"__raw":"NaN"}`, "{'a':1}": `{"__raw":"{'a':1}"}`, `{"__raw":"x"}`: `{"__raw":"x"}`, "{}{}": `{"__raw":"{}{}"}`,
	} {
		got, err := ParseArguments(text, strictjson.DefaultLimits)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if diff := cmp.Diff(tree(t, want), got); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
		if raw := strings.Contains(want, "__raw"); IsRaw(got) != raw {
			t.Errorf("%q: raw is %v", text, !raw)
		}
	}
	// JSON that JavaScript reads in its own way.
	for text, code := range map[string]strictjson.Code{
		`{"a":1,"a":2}`: strictjson.DuplicateKey, `{"a":1,"A":2}`: strictjson.CaseCollision, `{"a":9007199254740993}`: strictjson.UnsafeInteger,
		`{"a":1e400}`: strictjson.ImpreciseNumber, `{"a":"\ud800"}`: strictjson.InvalidUTF8, strings.Repeat("[", 100) + strings.Repeat("]", 100): strictjson.TooDeep,
	} {
		var refused *strictjson.Error
		if v, err := ParseArguments(text, strictjson.DefaultLimits); !errors.As(err, &refused) || refused.Code != code {
			t.Errorf("%s: %v %v", text, v, err)
		}
	}
	for _, v := range []any{nil, "x", []any{RawKey}, map[string]any{"raw": 1}, map[string]any{}} {
		if IsRaw(v) {
			t.Errorf("%v is raw", v)
		}
	}
}

func TestHandoffToolName(t *testing.T) {
	for agent, want := range map[string]string{
		"Finance Specialist": "handoff_to_finance_specialist", "Finance  --  Agent!": "handoff_to_finance_agent", "": "handoff_to_agent", "財務": "handoff_to_agent",
		"__A1__b": "handoff_to_a1_b", "ÄB": "handoff_to_b", "K\u212a": "handoff_to_kk", "\u0130x": "handoff_to_i_x",
	} {
		if got := HandoffToolName(agent); got != want {
			t.Errorf("%q: %s", agent, got)
		}
		for _, suffix := range []string{"", "_2", "_3", "_10"} {
			if !IsHandoffToolName(want+suffix, agent) {
				t.Errorf("%s%s is not the name for %q", want, suffix, agent)
			}
		}
		for _, suffix := range []string{"_1", "_0", "_02", "_", "2", "_2x", "_-2", "_99999", " ", "_2_3"} {
			if IsHandoffToolName(want+suffix, agent) {
				t.Errorf("%s%s is the name for %q", want, suffix, agent)
			}
		}
		if IsHandoffToolName("", agent) || IsHandoffToolName("delete_db", agent) || IsHandoffToolName("handoff_to_", agent) {
			t.Errorf("another name for %q", agent)
		}
	}
}

func TestHandoffArgumentsBindAllThree(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range []struct {
		from, to string
		payload  any
	}{{"a", "Finance Agent", nil}, {"a", "finance-agent", nil}, {"b", "Finance Agent", nil}, {"a", "Finance Agent", map[string]any{}}} {
		b, err := HandoffArguments(c.from, c.to, c.payload)
		if err != nil || seen[string(b)] {
			t.Errorf("%s %v", b, err)
		}
		seen[string(b)] = true
	}
	if !seen[`{"fromAgentName":"a","handoffPayload":null,"toAgentName":"Finance Agent"}`] {
		t.Error(seen)
	}
}

func TestEnvelope(t *testing.T) {
	text := func(s string) *string { return &s }
	for name, c := range map[string]struct {
		result PolicyResult
		want   ToolResultEnvelope
		told   bool
	}{
		"allow":           {PolicyResult{Decision: Allow, Reason: "r", PublicReason: "p"}, ToolResultEnvelope{Status: "ok", Data: "d"}, true},
		"soft deny":       {PolicyResult{Decision: Deny, Reason: "r", PublicReason: " No. ", ResultMode: ModeToolResult}, ToolResultEnvelope{Status: "denied", Code: text("r"), PublicReason: text("No.")}, true},
		"soft, no text":   {PolicyResult{Decision: Deny, Reason: "r", PublicReason: "\ufeff ", ResultMode: ModeToolResult}, ToolResultEnvelope{Status: "denied", Code: text("r"), PublicReason: text(PublicDenied)}, true},
		"soft approval":   {PolicyResult{Decision: RequireApproval, Reason: "r", ResultMode: ModeToolResult}, ToolResultEnvelope{Status: "approval_required", Code: text("r"), PublicReason: text(PublicApproval)}, true},
		"hard deny":       {PolicyResult{Decision: Deny, Reason: "r", ResultMode: ModeThrow}, ToolResultEnvelope{}, false},
		"no mode is hard": {PolicyResult{Decision: Deny, Reason: "r"}, ToolResultEnvelope{}, false},
		"no decision":     {PolicyResult{}, ToolResultEnvelope{}, false},
	} {
		got, told := c.result.Envelope("d", nil)
		if diff := cmp.Diff(c.want, got); diff != "" || told != c.told {
			t.Errorf("%s: told %v %s", name, told, diff)
		}
	}
	soft := PolicyResult{Decision: Deny, Reason: "secret_rule", ResultMode: ModeToolResult}
	if e, _ := soft.Envelope(nil, func(string) string { return "not_allowed" }); *e.Code != "not_allowed" {
		t.Error("the internal reason is told")
	}
	for want, e := range map[string]*Refused{
		`Tool "x" denied by policy: r`:              {Kind: "tool", Name: "x", Result: PolicyResult{Decision: Deny, Reason: "r"}},
		`Handoff "A" -> "B" denied by policy: r`:    {Kind: "handoff", From: "A", Name: "B", Result: PolicyResult{Decision: Deny, Reason: "r"}},
		`Handoff "A" -> "B" requires approval: r`:   {Kind: "handoff", From: "A", Name: "B", Result: PolicyResult{Decision: RequireApproval, Reason: "r"}},
		`Tool "x" denied by policy: not_configured`: {Kind: "tool", Name: "x", Result: PolicyResult{Reason: "not_configured"}},
	} {
		if e.Error() != want {
			t.Error(e)
		}
	}
}

func TestPolicyEvaluatedRoundTrip(t *testing.T) {
	e := PolicyEvaluated{Timestamp: "2026-11-20T12:00:00.000000000Z", Level: LevelWarn, Type: TypeToolEvaluated, Agent: "a", Turn: 1, ToolName: "t",
		Decision: Deny, Reason: "policy_not_configured", ResultMode: ModeThrow}
	b, err := e.Encode()
	if err != nil || string(b) != `{"agent":"a","callId":"","decision":"deny","level":"warn","reason":"policy_not_configured","resultMode":"throw","timestamp":"2026-11-20T12:00:00.000000000Z","toolName":"t","turn":1,"type":"tool_policy_evaluated"}` {
		t.Fatalf("%v %s", err, b)
	}
	if vs := schemas.Default().Validate("aioc/tool_policy_evaluated", strictjson.FromTree(tree(t, string(b)))); vs != nil {
		t.Error(vs)
	}
	got, err := DecodePolicyEvaluated(b)
	if diff := cmp.Diff(e, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if _, err := DecodePolicyEvaluated([]byte(`{"arguments":1}`)); err == nil {
		t.Error("an unknown member passes")
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{toolText, handoffText, "{}", "[]", `{"turn":1e0}`, `{"parsedArguments":null,"rawArguments":""}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		tool, err := DecodeTool(raw, strictjson.DefaultLimits)
		if _, perr := strictjson.ParseObject(raw, strictjson.DefaultLimits); (tool == nil) != (perr != nil) || tool == nil && err == nil {
			t.Fatalf("%v, %v", err, perr)
		}
		if handoff, err := DecodeHandoff(raw, strictjson.DefaultLimits); (handoff == nil) != (tool == nil) || handoff == nil && err == nil {
			t.Fatal(err)
		}
	})
}

func FuzzParseArguments(f *testing.F) {
	for _, s := range []string{"", "{bad", `{"a":1,"a":2}`, "[]", "\ufeff", `{"__raw":1}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := ParseArguments(text, strictjson.DefaultLimits)
		if err != nil {
			var refused *strictjson.Error
			if !errors.As(err, &refused) {
				t.Fatal(err)
			}
			return
		}
		if _, err := HashTool("a", "t", v); err != nil {
			t.Fatal(err)
		}
	})
}
