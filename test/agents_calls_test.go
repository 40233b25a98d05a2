package e2e_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// agentPolicies add to hookPolicies that sub-agents may be started, and what tools of MCP servers may do.
const agentPolicies = hookPolicies + `---
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: agents-test}
spec:
  match: {protocols: [agenthook]}
  rules:
    - {name: helpers, when: 'agent_tool.kind == "agent"', verdict: allow, reason: helper}
    - {name: no, when: 'agent_tool.kind == "mcp" && args.path.contains("forbidden")', verdict: deny, reason: forbidden_word, message: This word is forbidden.}
    - {name: yes, when: 'agent_tool.kind == "mcp" && args.path.contains("allowed")', verdict: allow, reason: harmless}
`

// Calls that a model makes at once, calls of sub-agents and of MCP servers, and calls that are made again because they
// were refused or an answer was cut off, the model's or the gateway's: each is asked for once, what is refused
// does not run, and what runs is linked with its admission, the sub-agent's with the session that started it.
func TestAgentsCalls(t *testing.T) {
	t.Parallel()
	needSystem(t)
	s := sync.OnceValue(func() *system { return start(t, "--policy", policyDir(t, "agents.yaml", agentPolicies)) })
	for _, a := range realAgents {
		t.Run(a.name, func(t *testing.T) {
			a.findForLong(t)
			behindCut := *s()
			behindCut.ready = cutOff(t, behindCut.ready, "allowed-cut")
			h := behindCut.hook(t, a.name, "4s")
			testCalls(t, h, a)
			if a.name == codex.name && os.Getenv(agentsEnv) != "" {
				testCodexTerminals(t, h)
			}
		})
	}
}

// ranCommand is a command whose file has a line for each time that it ran.
func ranCommand(file string) toolCall {
	return toolCall{command: "touch " + file + "; echo ran >> " + file}
}

func testCalls(t *testing.T, h hooked, a codingAgent) {
	dir := t.TempDir()
	touch := func(file string) toolCall {
		return toolCall{tool: a.mcpTool, input: object{"path": filepath.Join(dir, file)}}
	}
	helped := make(chan struct{})
	m := &model{
		cut: true,
		turns: []turn{
			{ranCommand("allowed-1"), ranCommand("forbidden-1"), ranCommand("asked-1")},
			{ranCommand("asked-1")},
			{ranCommand("forbidden-1")},
			{ranCommand("allowed-cut")},
			{ranCommand("allowed-cut")},
			{touch("allowed-mcp"), touch("forbidden-mcp")},
			{a.helper},
		},
		sub: &model{turns: []turn{{ranCommand("allowed-sub")}, {ranCommand("forbidden-sub")}}, between: func(n int, _ string) {
			if n == 2 {
				close(helped)
			}
		}},
	}
	m.between = func(n int, result string) {
		switch w := workflowInText.FindStringSubmatch(result); {
		case n == 3 && w != nil:
			h.run(t, "approvals", "approve", w[1], "--yes").want(t, 0)
		case n == m.calls(): // an agent that does not wait for its sub-agent would end before it
			select {
			case <-helped:
			case <-time.After(patience):
				t.Error("the sub-agent was not told of its calls")
			}
		}
	}
	out := h.converse(t, a, dir, m)
	told(t, "", m.results, "", "This word is forbidden", "Workflow", "", "This word is forbidden", "the gateway does not answer", "", "", "This word is forbidden", "")
	told(t, "the sub-agent's ", m.sub.results, "", "This word is forbidden")
	for file, want := range map[string]string{"allowed-1": "ran\n", "asked-1": "ran\n", "allowed-cut": "ran\n", "allowed-sub": "ran\n", "allowed-mcp": ""} {
		if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(text) != want {
			t.Errorf("%s: %v, %q", file, err, text)
		}
	}
	if refused, err := filepath.Glob(filepath.Join(dir, "forbidden*")); err != nil || len(refused) > 0 {
		t.Errorf("refused calls have run: %v, %v", refused, err)
	}
	h.settle(t)
	linked(t, h, a, out)
	if t.Failed() {
		t.Log(out)
	}
}

// What Codex writes to a shell that was allowed does not reach its hooks. The doctor says so, and how to close it: then
// nothing is written.
func testCodexTerminals(t *testing.T, h hooked) {
	env := append(slices.Clone(h.env), "PATH="+filepath.Join(agentsDir(t), "codex/node_modules/.bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	h.env = env
	const hint = "codex features disable unified_exec_tty"
	if out := h.countersign(t, "hook", "doctor", codex.name).want(t, 1).out; !strings.Contains(lineWith(out, "what codex says"), hint) {
		t.Errorf("doctor: %s", out)
	}
	a, dir := codex, t.TempDir()
	a.prepare = func(t *testing.T, h hooked, server string) {
		codex.prepare(t, h, server)
		off := exec.Command(codex.find(t), strings.Fields(hint)[1:]...)
		off.Env = env
		command(t, off).want(t, 0)
	}
	m := &model{turns: []turn{
		{{tool: "exec_command", input: object{"cmd": "ls; exec bash", "tty": true, "yield_time_ms": 300}}},
		{{tool: "write_stdin", input: object{"session_id": 0, "chars": "touch forbidden\n"}}},
		{{tool: "exec_command", input: object{"cmd": "ls; exec bash", "yield_time_ms": 300}}},
	}}
	m.between = func(n int, result string) {
		if id := terminalInText.FindStringSubmatch(result); n == 1 && id != nil {
			m.turns[1][0].input["session_id"] = json.Number(id[1])
		}
	}
	results := h.drive(t, a, dir, m)
	if _, err := os.Stat(filepath.Join(dir, "forbidden")); err == nil || !strings.Contains(results[2], "exited") {
		t.Errorf("what was written to a shell ran, or it waits for input: %v; the model was told %q", err, results)
	}
	if out := h.countersign(t, "hook", "doctor", codex.name).want(t, 1).out; !strings.Contains(lineWith(out, "what codex says"), "/hooks") { // nobody trusts them here
		t.Errorf("doctor: %s", out)
	}
}

// terminalInText is how Codex names a command that runs.
var terminalInText = regexp.MustCompile(`session ID (\d+)`)

// told holds what a model was told of its calls against a part of each text; an empty one is a call that ran.
func told(t *testing.T, whose string, results []string, want ...string) {
	t.Helper()
	if len(results) != len(want) {
		t.Fatalf("the model was told of %d of %scalls, want %d: %q", len(results), whose, len(want), results)
	}
	for i, part := range want {
		if !strings.Contains(results[i], part) || part == "" && refusal.MatchString(results[i]) {
			t.Errorf("%scall %d: the model was told %s, want %q", whose, i, results[i], part)
		}
	}
}

// linked holds the calls on record against the script of testCalls. The agent's output names its session.
func linked(t *testing.T, h hooked, a codingAgent, out string) {
	t.Helper()
	states, ofSubAgents := map[string]int{}, 0
	var session, lines string
	for line := range strings.Lines(h.run(t, "calls", "--json").want(t, 0).out) {
		var row struct {
			Call struct {
				Session, State, Match, Agent string
				Parent                       struct{ Session string }
			}
		}
		ok(t, json.Unmarshal([]byte(line), &row))
		c := row.Call
		if of := cmp.Or(c.Parent.Session, c.Session); !strings.Contains(out, of) {
			continue
		} else if c.Agent != "" || c.Parent.Session != "" {
			ofSubAgents++
		} else {
			session = of
		}
		states[c.State+c.Match]++
		lines += line
	}
	// The call whose answer was cut off may be allowed on record: the gate reports that it was blocked.
	if want := map[string]int{"completedequal": 6, "denied": 5}; !maps.Equal(states, want) {
		t.Errorf("calls on record: %v, want %v\n%s", states, want, lines)
	}
	if want := map[bool]int{true: 2, false: 0}[a.marksSubAgents]; ofSubAgents != want {
		t.Errorf("%d calls are a sub-agent's, want %d\n%s", ofSubAgents, want, lines)
	}
	h.verified(t, 0, "--session", session)
}

// cutOff puts a server in front of the gateway that breaks off the first answer to an event with a word, and
// returns a ready file that names it.
func cutOff(t *testing.T, ready, word string) string {
	t.Helper()
	var info object
	text, err := os.ReadFile(ready)
	ok(t, err)
	ok(t, json.Unmarshal(text, &info))
	gateway := info["gateway_url"].(string)
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		forward, err := http.NewRequestWithContext(r.Context(), r.Method, gateway+r.URL.Path, bytes.NewReader(body))
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		forward.Header = r.Header
		answer, err := http.DefaultClient.Do(forward)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer answer.Body.Close()
		for name, values := range answer.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.StatusCode)
		if bytes.Contains(body, []byte(word)) && answer.ContentLength > 1 {
			once.Do(func() {
				_, _ = io.CopyN(w, answer.Body, answer.ContentLength/2)
				panic(http.ErrAbortHandler)
			})
		}
		_, _ = io.Copy(w, answer.Body)
	}))
	t.Cleanup(server.Close)
	info["gateway_url"] = server.URL
	path := filepath.Join(t.TempDir(), "ready.json")
	ok(t, os.WriteFile(path, info.bytes(), 0o600))
	return path
}
