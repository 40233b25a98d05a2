package hookgate

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/hook"
	"github.com/countersign-dev/countersign/internal/gateclient"
)

// stops are inputs of agents that stop.
var stops = map[string]string{
	"claude-code": `{"session_id":"s","hook_event_name":"Stop","last_assistant_message":"my answer"}`,
	"codex":       `{"session_id":"s","hook_event_name":"Stop","last_assistant_message":"my answer"}`,
	"gemini":      `{"session_id":"s","hook_event_name":"AfterAgent","prompt":"hello","prompt_response":"my answer"}`,
	"cursor":      `{"conversation_id":"s","hook_event_name":"stop","status":"completed"}`,
}

// A report that fails refuses nothing, in no agent's words: Gemini CLI, for one, would answer once more.
func TestReportsRefuseNothing(t *testing.T) {
	for agent, input := range stops {
		a, _ := hook.Find(agent)
		for name, g := range gateways {
			if name == "silence" && agent != "gemini" {
				continue // it takes the budget
			}
			s := httptest.NewServer(g.serve)
			var edit func(*gateclient.Config)
			if name == "silence" {
				edit = hastily
			}
			p := settle(t, s.URL, edit)
			out, errs, code := run(a, p.config, []byte(input))
			if stored := code == 0; stored && out != a.Allow.Stdout || !stored && (code != exitReport || out != "" || !strings.Contains(errs, "not on record")) {
				t.Errorf("%s, %s: exit %d, %q, %q", agent, name, code, out, errs)
			}
			s.Close()
		}
		ctx, cancel := context.WithCancel(t.Context())
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}))
		p := settle(t, s.URL, nil)
		g := &gate{agent: a, now: time.Now}
		work, end := context.WithCancel(t.Context())
		out := within(ctx, g.fail, func(chan<- time.Duration) hook.Output {
			g.configure(ConfigPath(p.config, false))
			return g.answer(work, strings.NewReader(input))
		})
		if out.Stdout != "" || out.Exit != exitReport || !strings.Contains(out.Stderr, errInterrupted.Error()) {
			t.Errorf("%s, interrupted: %+v", agent, out)
		}
		end()
		s.Close()
	}
}

// The report of a call that ran is sent again, the same event, while the gateway restarts or has no place. Others are
// sent once: the agent waits for them.
func TestReportsAreSentAgain(t *testing.T) {
	const ran = `{"session_id":"s","hook_event_name":"PostToolUse","tool_name":"t","tool_use_id":"c","tool_input":{}}`
	for _, tt := range []struct {
		input  string
		first  http.HandlerFunc
		tries  int
		stored bool
	}{
		{ran, answer(503, nil, `{"error":"stopping","message":"send it again"}`), 2, true},
		{ran, answer(429, nil, `{"error":"rate_limited","message":"more slowly"}`), 2, true},
		{ran, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 2, true},
		{ran, answer(413, nil, `{"error":"request_too_large","message":"no"}`), 1, false},
		{ran, answer(401, nil, `{"error":"unauthorized","message":"no"}`), 1, false},
		{stops["claude-code"], answer(503, nil, `{"error":"stopping","message":"send it again"}`), 1, false},
	} {
		var sent []string
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if sent = append(sent, string(body)); len(sent) == 1 {
				tt.first(w, r)
				return
			}
			answer(200, nil, `{"event_id":"x","decision":"allow","reason":""}`)(w, r)
		}))
		_, errs, code := run(hook.Agents[0], settle(t, s.URL, nil).config, []byte(tt.input))
		s.Close()
		if len(sent) != tt.tries || len(sent) == 2 && sent[0] != sent[1] || (code == 0) != tt.stored {
			t.Errorf("%s: exit %d, %q, %q", tt.input, code, errs, sent)
		}
	}
}

// The result of a tool, such as an image, may be large. It is not recorded, and what ran is.
func TestLargeResults(t *testing.T) {
	kind, _ := recorded(t, "claude-code", `{"session_id":"s","hook_event_name":"PostToolUse","tool_name":"Read","tool_use_id":"c","tool_input":{},"tool_response":"`+
		strings.Repeat("x", 16<<20)+`"}`, nil)
	if kind != "PostToolUse" {
		t.Errorf("on record is %q", kind)
	}
}

// recorded runs the gate and returns the metadata of the event that it sends.
func recorded(t *testing.T, agent, input string, edit func(*gateclient.Config)) (eventType string, metadata map[string]any) {
	t.Helper()
	var event struct {
		Type     string         `json:"event_type"`
		Metadata map[string]any `json:"metadata"`
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if event.Type == "" { // a refused call is reported, too
			_ = json.NewDecoder(r.Body).Decode(&event)
		}
		answer(200, map[string]string{"Countersign-Verdict": "deny"}, `{"event_id":"x","decision":"deny","reason":"no"}`)(w, r)
	}))
	defer s.Close()
	a, _ := hook.Find(agent)
	run(a, settle(t, s.URL, edit).config, []byte(input))
	return event.Type, event.Metadata
}

// Texts of prompts and answers are on record only with --prompts.
func TestTextsOnRecord(t *testing.T) {
	prompt := `{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":"my prompt"}`
	for _, tt := range []struct {
		agent, input, eventType, member, text string
	}{
		{"claude-code", prompt, "UserPromptSubmit", "prompt", "my prompt"},
		{"claude-code", stops["claude-code"], "ModelResponse", "response_content", "my answer"},
		{"codex", stops["codex"], "ModelResponse", "response_content", "my answer"},
		{"gemini", stops["gemini"], "ModelResponse", "response_content", "my answer"},
	} {
		for _, on := range []bool{false, true} {
			got, metadata := recorded(t, tt.agent, tt.input, func(c *gateclient.Config) { c.Prompts = on })
			want := any(nil)
			if on {
				want = tt.text
			}
			raw, _ := json.Marshal(metadata)
			if got != tt.eventType || metadata[tt.member] != want || !on && strings.Contains(string(raw), "my ") {
				t.Errorf("%s %s, switched on %t: %s", tt.agent, got, on, raw)
			}
		}
	}
}

// Of identical calls without an id the last one is the one that a report is about: the one before may have ended without
// a report, as after a person's "no" at the agent's own prompt.
func TestReportOfRepeatedCall(t *testing.T) {
	a, _ := hook.Find("copilot")
	for event, input := range map[string]string{
		"postToolUse":        `{"sessionId":"s","toolName":"bash","toolArgs":{"command":"npm test"},"toolResult":{"resultType":"success"}}`,
		"postToolUseFailure": `{"sessionId":"s","toolName":"bash","toolArgs":{"command":"npm test"},"error":"no"}`,
	} {
		g := &gate{agent: a, now: time.Now}
		g.configure(ConfigPath(settle(t, "http://127.0.0.1:1", nil).config, false))
		e, err := a.Read("preToolUse", []byte(`{"sessionId":"s","toolName":"bash","toolArgs":{"command":"npm test"}}`))
		if err != nil {
			t.Fatal(err)
		}
		key, err := sameCallKey(a.Name, e)
		if err != nil {
			t.Fatal(err)
		}
		var last waiting
		for range 2 {
			last = mustPropose(t, g, key, e)
			if err := g.opened(key, e, last, ""); err != nil {
				t.Fatal(err)
			}
		}
		report, err := a.Read(event, []byte(input))
		if err != nil {
			t.Fatal(err)
		}
		if of, err := g.reported(report); err != nil || of.Admitted != last.CallID {
			t.Errorf("%s is about %q, want %q, %v", event, of.Admitted, last.CallID, err)
		}
	}
}

// Where an agent gives no id of a call, the gate makes one, and the record says so. It says nothing of the arguments: gates
// with another memory give the same call another id.
func TestDerivedIDs(t *testing.T) {
	for agent, derives := range map[string]bool{"gemini": true, "copilot": true, "claude-code": false, "opencode": false} {
		a, _ := hook.Find(agent)
		_, metadata := recorded(t, agent, string(a.Probe("s", "some_tool")), nil)
		id, _ := metadata["tool_call_id"].(string)
		if strings.HasPrefix(id, derivedPrefix) != derives || id == "" || (metadata["tool_call_id_derived"] == true) != derives {
			t.Errorf("%s: %v", agent, metadata)
		}
		if _, again := recorded(t, agent, string(a.Probe("s", "some_tool")), nil); (again["tool_call_id"] == id) == derives {
			t.Errorf("%s: the same call is %v and %v", agent, id, again["tool_call_id"])
		}
	}
}
