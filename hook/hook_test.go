package hook

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/agenttool"
	"github.com/countersign-dev/countersign/events/strictjson"
	hookschema "github.com/countersign-dev/countersign/schemas/agenthook"
)

// inputs are inputs as agents write them, with what they mean. Members that no agent needs are left
// out.
var inputs = []struct {
	agent, event, input string
	want                Event
	args                string
}{
	{"claude-code", "", `{"session_id":"s","cwd":"/w","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"ls"},"tool_use_id":"toolu_1","agent_id":"sub"}`,
		Event{Kind: Before, Session: "s", Tool: "Bash", CallID: "toolu_1", CWD: "/w", Worker: "sub"}, `{"command":"ls"}`},
	{"claude-code", "", `{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"mcp__kit__touch","tool_use_id":"t","tool_input":{},"mcp_server":{"name":"kit","source":"dynamic"}}`,
		Event{Kind: Before, Session: "s", Tool: "mcp__kit__touch", CallID: "t", MCP: true}, `{}`},
	{"claude-code", "", `{"session_id":"s","hook_event_name":"PostToolUseFailure","tool_name":"Bash","tool_input":{"command":"ls"},"tool_use_id":"t","duration_ms":12,"error":"x"}`,
		Event{Kind: After, Session: "s", Tool: "Bash", CallID: "t", Failed: true, Took: 12 * time.Millisecond}, `{"command":"ls"}`},
	{"claude-code", "", `{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":"hello"}`, Event{Kind: Prompt, Session: "s", Prompt: "hello"}, ""},
	{"claude-code", "", `{"session_id":"s","hook_event_name":"SessionStart","source":"startup"}`, Event{Kind: SessionStart, Session: "s"}, ""},
	{"claude-code", "", `{"session_id":"s","hook_event_name":"SessionStart","source":"compact"}`, Event{Kind: Ignored, Session: "s"}, ""},
	{"claude-code", "", `{"session_id":"s","hook_event_name":"Notification"}`, Event{Kind: Ignored, Session: "s"}, ""},
	{"claude-code", "", `{"session_id":"s","hook_event_name":"Stop","stop_hook_active":false,"last_assistant_message":"hello"}`, Event{Kind: Response, Session: "s", Answer: "hello"}, ""},
	{"claude-code", "", `{"session_id":"s","hook_event_name":"SubagentStart","agent_id":"sub","agent_type":"Explore"}`, Event{Kind: Handoff, Session: "s", Worker: "sub"}, ""},
	{"claude-code", "", `{"session_id":"s","hook_event_name":"SubagentStop","agent_id":"sub","last_assistant_message":"hello"}`,
		Event{Kind: Response, Session: "s", Worker: "sub", Answer: "hello"}, ""},
	{"claude-code", "", `{"session_id":"s","hook_event_name":"StopFailure","error":"rate_limit"}`, Event{Kind: Failure, Session: "s", Error: "rate_limit"}, ""},
	{"claude-code", "", `{"session_id":"s","hook_event_name":"StopFailure","error":"hello, this is a message"}`, Event{Kind: Failure, Session: "s"}, ""},
	{"codex", "", `{"session_id":"s","turn_id":"1","hook_event_name":"Stop","model":"m","last_assistant_message":null}`, Event{Kind: Response, Session: "s", Model: "m"}, ""},
	{"codex", "", `{"session_id":"s","turn_id":"1","hook_event_name":"SubagentStart","agent_id":"sub"}`, Event{Kind: Handoff, Session: "s", Worker: "sub"}, ""},
	{"codex", "", `{"session_id":"s","turn_id":"1","hook_event_name":"SubagentStop","agent_id":"sub"}`, Event{Kind: Response, Session: "s", Worker: "sub"}, ""},
	{"gemini", "", `{"session_id":"s","hook_event_name":"AfterAgent","prompt":"hello","prompt_response":"hello"}`, Event{Kind: Response, Session: "s", Answer: "hello"}, ""},
	{"cursor", "", `{"conversation_id":"s","hook_event_name":"stop","status":"completed"}`, Event{Kind: Response, Session: "s"}, ""},
	{"cursor", "", `{"conversation_id":"s","hook_event_name":"stop","status":"error"}`, Event{Kind: Failure, Session: "s"}, ""},
	{"copilot", "agentStop", `{"sessionId":"s","stopReason":"end_turn"}`, Event{Kind: Response, Session: "s"}, ""},
	{"copilot", "errorOccurred", `{"sessionId":"s","error":{"name":"Timeout","message":"hello"}}`, Event{Kind: Failure, Session: "s", Error: "Timeout"}, ""},
	{"codex", "", `{"session_id":"s","turn_id":"1","hook_event_name":"PreToolUse","model":"m","tool_name":"Bash","tool_input":{"command":"ls"},"tool_use_id":"call_1"}`,
		Event{Kind: Before, Session: "s", Tool: "Bash", CallID: "call_1", Model: "m"}, `{"command":"ls"}`},
	{"gemini", "", `{"session_id":"s","hook_event_name":"BeforeTool","tool_name":"run_shell_command","tool_input":{"command":"ls"}}`,
		Event{Kind: Before, Session: "s", Tool: "run_shell_command"}, `{"command":"ls"}`},
	{"gemini", "", `{"session_id":"s","hook_event_name":"AfterTool","tool_name":"read_file","tool_input":{"path":"a"},"tool_response":{"error":{"message":"no"}}}`,
		Event{Kind: After, Session: "s", Tool: "read_file", Failed: true}, `{"path":"a"}`},
	{"gemini", "", `{"session_id":"s","hook_event_name":"AfterTool","tool_name":"run_shell_command","tool_input":{"command":"exit 3"},"tool_response":{"llmContent":"Exit Code: 3"}}`,
		Event{Kind: After, Session: "s", Tool: "run_shell_command", Unsure: true}, `{"command":"exit 3"}`},
	{"cursor", "", `{"conversation_id":"s","cursor_version":"2.1","hook_event_name":"preToolUse","tool_name":"Shell","tool_input":{"command":"ls"},"tool_use_id":"t"}`,
		Event{Kind: Before, Session: "s", Tool: "Shell", CallID: "t", Version: "2.1"}, `{"command":"ls"}`},
	{"cursor", "", `{"conversation_id":"s","hook_event_name":"beforeShellExecution","command":"ls \"x\""}`,
		Event{Kind: Before, Session: "s", Tool: "Shell"}, `{"command":"ls \"x\""}`},
	{"cursor", "", `{"conversation_id":"s","hook_event_name":"beforeMCPExecution","tool_name":"touch","tool_input":"{\"a\":1}"}`,
		Event{Kind: Before, Session: "s", Tool: "MCP:touch"}, `{"a":1}`},
	{"copilot", "preToolUse", `{"sessionId":"s","timestamp":1,"cwd":"/w","toolName":"bash","toolArgs":{"command":"ls"}}`,
		Event{Kind: Before, Session: "s", Tool: "bash", CWD: "/w"}, `{"command":"ls"}`},
	{"copilot", "postToolUse", `{"sessionId":"s","toolName":"bash","toolArgs":"{\"command\":\"ls\"}","toolResult":{"resultType":"failure"}}`,
		Event{Kind: After, Session: "s", Tool: "bash", Failed: true}, `{"command":"ls"}`},
	{"copilot", "postToolUse", `{"sessionId":"s","toolName":"bash","toolArgs":{"command":"exit 3"},"toolResult":{"resultType":"success","textResultForLlm":"<shellId: 0 completed with exit code 3>"}}`,
		Event{Kind: After, Session: "s", Tool: "bash", Unsure: true}, `{"command":"exit 3"}`},
	{"copilot", "postToolUseFailure", `{"sessionId":"s","toolName":"view","toolArgs":{"path":"a"},"error":"Path does not exist"}`,
		Event{Kind: After, Session: "s", Tool: "view", Failed: true}, `{"path":"a"}`},
	{"copilot", "postToolUse", `{"sessionId":"s","toolName":"view","toolArgs":{"path":"a"},"toolResult":{"resultType":"success"}}`,
		Event{Kind: After, Session: "s", Tool: "view"}, `{"path":"a"}`},
	{"cursor", "", `{"conversation_id":"s","hook_event_name":"postToolUseFailure","tool_name":"Read","tool_input":{"file_path":"a"},"tool_use_id":"t","failure_type":"error"}`,
		Event{Kind: After, Session: "s", Tool: "Read", CallID: "t", Failed: true}, `{"file_path":"a"}`},
	{"cursor", "", `{"conversation_id":"s","hook_event_name":"postToolUseFailure","tool_name":"Read","tool_input":{},"tool_use_id":"t","failure_type":"permission_denied"}`,
		Event{Kind: Ignored, Session: "s", Tool: "Read", CallID: "t"}, ""},
	{"cursor", "", `{"conversation_id":"s","hook_event_name":"postToolUseFailure","tool_name":"MCP:pay","tool_input":{},"tool_use_id":"t","failure_type":"timeout"}`,
		Event{Kind: After, Session: "s", Tool: "MCP:pay", CallID: "t", Unsure: true}, `{}`},
	{"cursor", "", `{"conversation_id":"s","hook_event_name":"postToolUseFailure","tool_name":"MCP:pay","tool_input":{},"tool_use_id":"t","failure_type":"error","is_interrupt":true}`,
		Event{Kind: After, Session: "s", Tool: "MCP:pay", CallID: "t", Unsure: true}, `{}`},
	{"cursor", "", `{"conversation_id":"s","hook_event_name":"postToolUse","tool_name":"Shell","tool_input":{"command":"exit 3"},"tool_use_id":"t","tool_output":"{\"exitCode\":3}"}`,
		Event{Kind: After, Session: "s", Tool: "Shell", CallID: "t", Unsure: true}, `{"command":"exit 3"}`},
	{"cursor", "", `{"conversation_id":"s","hook_event_name":"afterShellExecution","command":"exit 3","output":""}`,
		Event{Kind: After, Session: "s", Tool: "Shell", Unsure: true}, `{"command":"exit 3"}`},
	{"cline", "", `{"taskId":"s","hookName":"tool_result","tool_result":{"id":"c","name":"execute_command","input":{"command":"exit 3"}}}`,
		Event{Kind: After, Session: "s", Tool: "execute_command", CallID: "c", Unsure: true}, `{"command":"exit 3"}`},
	{"cline", "PostToolUse", `{"taskId":"s","postToolUse":{"toolName":"execute_command","parameters":{"command":"exit 3"},"success":false}}`,
		Event{Kind: After, Session: "s", Tool: "execute_command", Failed: true}, `{"command":"exit 3"}`},
	{"opencode", "", `{"event":"tool.execute.after","tool":"pay_invoice","sessionID":"s","callID":"c","args":{},"exit":"x"}`,
		Event{Kind: After, Session: "s", Tool: "mcp__pay_invoice", CallID: "c"}, `{}`},
	{"codex", "", `{"session_id":"s","hook_event_name":"PostToolUse","tool_name":"Bash","tool_use_id":"c","tool_input":{"command":"exit 3"},"tool_response":""}`,
		Event{Kind: After, Session: "s", Tool: "Bash", CallID: "c", Unsure: true}, `{"command":"exit 3"}`},
	{"codex", "", `{"session_id":"s","hook_event_name":"PostToolUse","tool_name":"mcp__kit__touch","tool_use_id":"c","tool_input":{}}`,
		Event{Kind: After, Session: "s", Tool: "mcp__kit__touch", CallID: "c"}, `{}`},
	{"claude-code", "", `{"session_id":"s","hook_event_name":"PostToolUse","tool_name":"Bash","tool_use_id":"c","tool_input":{"command":"ls"}}`,
		Event{Kind: After, Session: "s", Tool: "Bash", CallID: "c"}, `{"command":"ls"}`},
	{"opencode", "", `{"event":"tool.execute.after","tool":"bash","sessionID":"s","callID":"c","args":{"command":"ls"},"exit":0}`,
		Event{Kind: After, Session: "s", Tool: "bash", CallID: "c"}, `{"command":"ls"}`},
	{"opencode", "", `{"event":"tool.execute.after","tool":"bash","sessionID":"s","callID":"c","args":{"command":"exit 3"},"exit":3}`,
		Event{Kind: After, Session: "s", Tool: "bash", CallID: "c", Failed: true}, `{"command":"exit 3"}`},
	{"opencode", "", `{"event":"tool.execute.after","tool":"bash","sessionID":"s","callID":"c","args":{"command":"sleep 9"},"exit":null}`,
		Event{Kind: After, Session: "s", Tool: "bash", CallID: "c", Unsure: true}, `{"command":"sleep 9"}`},
	{"copilot", "preToolUse", `{"sessionId":"s","toolName":"kit-touch","toolArgs":{}}`, Event{Kind: Before, Session: "s", Tool: "kit-touch", MCP: true}, `{}`},
	{"cline", "", `{"taskId":"s","hookName":"tool_call","tool_call":{"id":"c","name":"kit__touch","input":{}}}`,
		Event{Kind: Before, Session: "s", Tool: "kit__touch", CallID: "c", MCP: true}, `{}`},
	{"cline", "", `{"taskId":"s","clineVersion":"3","hookName":"tool_call","tool_call":{"id":"c","name":"editor","input":{"path":"a"}},"preToolUse":{"toolName":"x","parameters":{}}}`,
		Event{Kind: Before, Session: "s", Tool: "editor", CallID: "c", Version: "3"}, `{"path":"a"}`},
	{"cline", "PreToolUse", `{"taskId":"s","preToolUse":{"toolName":"execute_command","parameters":{"command":"ls"}}}`,
		Event{Kind: Before, Session: "s", Tool: "execute_command"}, `{"command":"ls"}`},
	{"opencode", "", `{"event":"tool.execute.before","directory":"/w","tool":"bash","sessionID":"s","callID":"c","args":{"command":"ls"}}`,
		Event{Kind: Before, Session: "s", Tool: "bash", CallID: "c", CWD: "/w"}, `{"command":"ls"}`},
	{"opencode", "", `{"event":"tool.execute.before","tool":"update_plan","sessionID":"s","callID":"c","args":{}}`,
		Event{Kind: Before, Session: "s", Tool: "mcp__update_plan", CallID: "c"}, `{}`},
	{"opencode", "", `{"event":"chat.message","directory":"/w","sessionID":"s","model":"m","prompt":"hello"}`,
		Event{Kind: Prompt, Session: "s", CWD: "/w", Model: "m", Prompt: "hello"}, ""},
	{"opencode", "", `{"event":"session.created","directory":"/w","sessionID":"s2","parentID":"s"}`,
		Event{Kind: SessionStart, Session: "s2", Parent: "s", CWD: "/w"}, ""},
	{"opencode", "", `{"event":"session.idle","directory":"/w","sessionID":"s"}`, Event{Kind: Response, Session: "s", CWD: "/w"}, ""},
	{"opencode", "", `{"event":"session.error","sessionID":"s","error":"ProviderAuthError"}`, Event{Kind: Failure, Session: "s", Error: "ProviderAuthError"}, ""},
}

func TestRead(t *testing.T) {
	for _, tt := range inputs {
		a, _ := Find(tt.agent)
		got, err := a.Read(tt.event, []byte(tt.input))
		if err != nil {
			t.Errorf("%s %s: %v", tt.agent, tt.input, err)
			continue
		}
		if string(got.Input) != tt.args {
			t.Errorf("%s: arguments %s, want %s", tt.input, got.Input, tt.args)
		}
		if got.Input = nil; !equal(got, tt.want) {
			t.Errorf("%s:\n%+v, want\n%+v", tt.input, got, tt.want)
		}
	}
}

func equal(a, b Event) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// What cannot be understood is an error, which the gate turns into a refusal: an input that could be
// a call is never taken for something else.
func TestReadRefuses(t *testing.T) {
	for _, a := range Agents {
		for _, input := range []string{"", "null", "[]", `"x"`, "{", `{"a":1} x`, `{"hook_event_name":"PreToolUse"}`, `{"hook_event_name":"BeforeTool","tool_name":"x"}`,
			`{"hook_event_name":"preToolUse","tool_name":"x"}`, `{"session_id":"s","conversation_id":"s","hook_event_name":"beforeDelete","tool_name":"x"}`,
			`{"session_id":"s","hook_event_name":"BeforeToolX","tool_name":"x"}`, `{"session_id":"s","hook_event_name":"pretooluse","tool_name":"x"}`, `{"taskId":"s","hookName":"PreToolUseV2"}`, `{"hookName":"tool_call","taskId":"s"}`, `{}`} {
			e, err := a.Read("", []byte(input))
			if err == nil {
				t.Errorf("%s takes %s for %+v", a.Name, input, e)
			}
			if err != nil && !errors.Is(err, ErrInput) {
				t.Errorf("%s %s: %v", a.Name, input, err)
			}
		}
		if _, err := a.Read("", []byte(`{}`)); err == nil {
			t.Errorf("%s: an input without an event is understood", a.Name)
		}
	}
	for _, tt := range inputs { // what two readers could read differently
		a, _ := Find(tt.agent)
		members := tt.input[1 : len(tt.input)-1]
		for _, input := range []string{"{" + members + "," + members + "}", "{" + members + `,"x":"` + "\xff" + `"}`, strings.Replace(tt.input, `"s","preToolUse":{`, `"s","preToolUse":{"toolName":"x",`, 1)} {
			if e, err := a.Read(tt.event, []byte(input)); input != tt.input && !errors.Is(err, ErrInput) {
				t.Errorf("%s takes %s for %+v", a.Name, input, e)
			}
		}
	}
}

// The exact bytes of a refusal and of an allow, agent by agent.
func TestOutputs(t *testing.T) {
	want := map[string][2]string{
		"claude-code": {"", `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no"}}`},
		"codex":       {"", `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no"}}`},
		"gemini":      {"{}", `{"decision":"deny","reason":"no"}`},
		"cursor":      {`{"permission":"allow"}`, `{"agent_message":"no","continue":false,"permission":"deny","user_message":"no"}`},
		"copilot":     {"{}", `{"permissionDecision":"deny","permissionDecisionReason":"no"}`},
		"cline":       {`{"cancel":false}`, `{"cancel":true,"errorMessage":"no"}`},
		"opencode":    {`{"decision":"allow"}`, `{"decision":"deny","reason":"no"}`},
	}
	for _, a := range Agents {
		refused := a.Refuse("no")
		if got := [2]string{strings.TrimSpace(a.Allow.Stdout), strings.TrimSpace(refused.Stdout)}; got != want[a.Name] {
			t.Errorf("%s: %q", a.Name, got)
		}
		if a.Defer != nil && (a.Name != "claude-code" ||
			strings.TrimSpace(a.Defer.Answer("later").Stdout) != `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"defer","permissionDecisionReason":"later"}}`) {
			t.Errorf("%s defers with %+v", a.Name, a.Defer.Answer("later"))
		}
		if a.Allow.Exit != 0 || refused.Exit != 0 || len(a.Past) == 0 {
			t.Errorf("%s: exit codes %d and %d, %d holes", a.Name, a.Allow.Exit, refused.Exit, len(a.Past))
		}
		name := ""
		if a.Name == "copilot" {
			name = "preToolUse"
		}
		if e, err := a.Read(name, a.Probe("s", "bash")); err != nil || e.Kind != Before || e.Session != "s" || e.Tool != "bash" {
			t.Errorf("%s: the probe is read as %+v, %v", a.Name, e, err)
		}
	}
}

// Every event is a valid AgentHook event, and those of calls fit AHP-013's profile.
func TestAgentHookEvents(t *testing.T) {
	at := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for _, tt := range inputs {
		a, _ := Find(tt.agent)
		e, err := a.Read(tt.event, []byte(tt.input))
		if err != nil || e.Kind == Ignored {
			continue
		}
		id := e.CallID
		if id == "" && len(e.Input) > 0 {
			id = "derived-1"
		}
		raw, err := e.AgentHook(a.Name, Envelope{ID: "6f1d2c1e-7a44-4a8e-9d0b-3c5a7be1f001", Time: at, CallID: id, Derived: e.CallID == "", Adapter: "v1", Approval: Approval{"wf-1", "01a21769-d6cf-7a64-a867-98a2421eba7f"}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := agenthook.Decode(raw, strictjson.DefaultLimits)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		v := hookschema.Strict(got.Doc)
		if hookschema.ProfileCovers(got.EventType) {
			v = append(v, hookschema.ValidateProfile(got.Doc, hookschema.FormRequest)...)
		}
		if len(v) > 0 {
			t.Errorf("%s: %v", raw, v)
		}
		if strings.Contains(string(raw), "hello") {
			t.Errorf("the prompt is in %s", raw)
		}
	}
}

// A call is on record as one that succeeded only if the agent says so.
func TestOutcomes(t *testing.T) {
	for want, e := range map[string]Event{"succeeded": {}, "failed": {Failed: true}, unknown: {Unsure: true}} {
		if got := e.execution(time.Now())["outcome"]; got != want {
			t.Errorf("%+v: %s, want %s", e, got, want)
		}
	}
}

// The report of a call is no larger than the question, so that a gateway that takes one takes both; arguments have the
// bytes that the agent wrote.
func TestSizeOfEvents(t *testing.T) {
	const overhead = 1500
	arguments := []byte(`{"path":"a","text":"` + strings.Repeat("<b>&", 1000) + `"}`)
	for _, kind := range []Kind{Before, After} {
		raw, err := Event{Kind: kind, Session: "s", Tool: "write_file", CallID: "c", Input: arguments, Took: time.Second}.AgentHook("a",
			Envelope{ID: "6f1d2c1e-7a44-4a8e-9d0b-3c5a7be1f001", CallID: "c", Adapter: "v1", Approval: Approval{"wf-1", "01a21769-d6cf-7a64-a867-98a2421eba7f"}})
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > len(arguments)+overhead || strings.HasSuffix(string(raw), "\n") {
			t.Errorf("%s: %d bytes for arguments of %d", kind, len(raw), len(arguments))
		}
	}
}

// What an agent answered is recorded by its length alone, like a prompt, unless texts are switched on; it is cut then.
func TestTextsOfEvents(t *testing.T) {
	long := strings.Repeat("ä", maxAnswer)
	for _, tt := range []struct {
		event    Event
		on       bool
		metadata map[string]any
	}{
		{Event{Kind: Prompt, Prompt: "hello"}, false, map[string]any{"prompt_chars": 5.0}},
		{Event{Kind: Prompt, Prompt: "hello"}, true, map[string]any{"prompt_chars": 5.0, "prompt": "hello"}},
		{Event{Kind: Response, Answer: "hellö"}, false, map[string]any{"response_chars": 5.0}},
		{Event{Kind: Response, Answer: "hellö"}, true, map[string]any{"response_chars": 5.0, "response_content": "hellö"}},
		{Event{Kind: Response, Answer: "x" + long}, true, map[string]any{"response_chars": maxAnswer + 1.0, "response_content": "x" + long[:maxAnswer-2]}},
		{Event{Kind: Failure}, true, map[string]any{"error_type": "unknown"}},
		{Event{Kind: Failure, Error: "rate_limit"}, false, map[string]any{"error_type": "rate_limit"}},
	} {
		raw, err := tt.event.AgentHook("a", Envelope{Prompts: tt.on})
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Metadata map[string]any }
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		delete(got.Metadata, "agent")
		delete(got.Metadata, "agent_version")
		if !maps.Equal(got.Metadata, tt.metadata) {
			t.Errorf("%+v: %v, want %v", tt.event.Kind, got.Metadata, tt.metadata)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, tt := range inputs {
		f.Add(tt.agent, tt.event, []byte(tt.input))
	}
	f.Fuzz(func(t *testing.T, agent, event string, input []byte) {
		a, ok := Find(agent)
		if !ok {
			return
		}
		e, err := a.Read(event, input)
		if err != nil {
			return
		}
		if e.Kind == Before && (e.Tool == "" || e.Session == "" || !isObject(e.Input)) {
			t.Errorf("%q is a call without tool, session or arguments: %+v", input, e)
		}
	})
}

// The argument that names what is acted on is the one that policies see: both read one table.
func TestResource(t *testing.T) {
	for input, want := range map[[2]string]string{
		{"Read", `{"file_path":"/a"}`}:                          "/a",
		{"NotebookEdit", `{"notebook_path":"a.ipynb"}`}:         "a.ipynb",
		{"list_directory", `{"dir_path":"src"}`}:                "src",
		{"Grep", `{"pattern":"x"}`}:                             "x",
		{"Grep", `{"pattern":"x","path":"src"}`}:                "src",
		{"WebFetch", `{"url":"https://a/","prompt":"p"}`}:       "https://a/",
		{"Task", `{"subagent_type":"reviewer"}`}:                "reviewer",
		{"invoke_agent", `{"agent_name":"generalist"}`}:         "generalist",
		{"Bash", `{"command":"ls"}`}:                            unknown,
		{"mcp__kit__read", `{"path":"a"}`}:                      unknown,
		{"Read", `[]`}:                                          unknown,
		{"Write", `{"file_path":1,"absolute_path":"/b","x":1}`}: "/b",
	} {
		if got := (Event{Tool: input[0], Input: []byte(input[1])}).resource(); got != want {
			t.Errorf("%s %s: %q, want %q", input[0], input[1], got, want)
		}
	}
}

// The version of an agent is on record: from its input, else from its environment, else as unknown.
func TestVersion(t *testing.T) {
	for value, want := range map[string]string{
		"claude-code_2-1-330_harness": "2.1.330", "claude-code_2-1-330_agent": "2.1.330", "": "", "another": "", "claude-code_": "", "another_2-1-330_agent": "",
		"claude-code_2-1-330": "", "claude-code_a b_agent": "", "claude-code__agent": "",
	} {
		env := func(name string) string { return map[string]string{"AI_AGENT": value}[name] }
		if got := claudeCode.Version(env); got != want {
			t.Errorf("%q: version %q, want %q", value, got, want)
		}
	}
	for _, tt := range inputs {
		a, _ := Find(tt.agent)
		e, err := a.Read(tt.event, []byte(tt.input))
		if err != nil || e.Kind == Ignored {
			continue
		}
		raw, err := e.AgentHook(a.Name, Envelope{ID: "x"})
		if err != nil {
			t.Fatal(err)
		}
		want := `"agent_version":"unknown"`
		if tt.want.Version != "" {
			want = `"agent_version":"` + tt.want.Version + `"`
		}
		if !strings.Contains(string(raw), want) {
			t.Errorf("%s lacks %s", raw, want)
		}
	}
}

// A tool of an MCP server is one in AHP-013's blocks and in the catalogue that policies read, however the agent
// joins the names; an agent's own tools stay what they are.
func TestServersTools(t *testing.T) {
	for _, tt := range []struct {
		agent, tool, source string
		kind                agenttool.Kind
	}{
		{"claude-code", "mcp__kit__touch", "mcp_tools_call", agenttool.MCP},
		{"copilot", "kit-touch", "mcp_tools_call", agenttool.MCP},
		{"copilot", "web-kit-bash", "mcp_tools_call", agenttool.MCP},
		{"copilot", "bash", "shell_command", agenttool.Shell},
		{"copilot", "report_intent", "native_runtime_tool", agenttool.Plan},
		{"copilot", "-touch", "native_runtime_tool", agenttool.Other},
		{"cline", "kit__touch", "mcp_tools_call", agenttool.MCP},
		{"cline", "read_files", "native_runtime_tool", agenttool.Read},
		{"cline", "run_commands", "shell_command", agenttool.Shell},
		{"opencode", "kit_touch", "mcp_tools_call", agenttool.MCP},
		{"codex", "kit-touch", "native_runtime_tool", agenttool.Other}, // by another agent's rule
	} {
		a, _ := Find(tt.agent)
		name := map[string]string{"copilot": "preToolUse"}[tt.agent]
		e, err := a.Read(name, a.Probe("s", tt.tool))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := e.AgentHook(a.Name, Envelope{ID: "x", CallID: "c"})
		if err != nil {
			t.Fatal(err)
		}
		var event map[string]any
		if err := json.Unmarshal(raw, &event); err != nil {
			t.Fatal(err)
		}
		metadata := event["metadata"].(map[string]any)
		got := [2]any{metadata["tool_identity"].(map[string]any)["source"], metadata["provider_translation"].(map[string]any)["provider_surface"]}
		if got != [2]any{tt.source, tt.source} {
			t.Errorf("%s %s: %v, want %s", tt.agent, tt.tool, got, tt.source)
		}
		if kind := agenttool.Describe(e.Tool, map[string]any{}, event).Kind; kind != string(tt.kind) {
			t.Errorf("%s %s: kind %s, want %s", tt.agent, tt.tool, kind, tt.kind)
		}
	}
}
