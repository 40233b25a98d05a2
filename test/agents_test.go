package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// agentsEnv names the directory into which `make agents` installs the agents. Without it the one in
// the user's cache is used; an agent that is not there is not tested, visibly.
const agentsEnv = "COUNTERSIGN_AGENTS"

// loopbackEnv, if set, says that the tests run in a network of loopback alone.
const loopbackEnv = "COUNTERSIGN_LOOPBACK"

// codingAgent is a real agent that is run headless with a scripted model.
type codingAgent struct {
	name    string // as `countersign hook` takes it
	title   string // in docs/hooks.md
	program string // below the directory of agents
	hooks   string // the file below its home in which install puts the gate
	timeout string // in that file, of a minute
	watched bool   // the shell around the gate has a limit, too
	// A signal to all that it has started leaves its hooks the time to answer: Codex's say nothing any more.
	answered bool
	args     []string
	env      func(home, server string) []string
	prepare  func(t *testing.T, h hooked, server string) // writes the agent's own settings
	speaks   dialect                                     // what its model server speaks
	mcpTool  string                                      // what it calls the tool touch of the MCP server kit, which prepare configures
	helper   toolCall                                    // starts a sub-agent
	// It says of a call that it is a sub-agent's, or of a session that it is.
	marksSubAgents bool
	past           []string // tools whose calls did not ask its hooks, sorted, with the arguments that TestAgentsTools makes
}

func agentsDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(agentsEnv); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	ok(t, err)
	return filepath.Join(cache, "countersign-agents")
}

func (a codingAgent) find(t *testing.T) string {
	t.Helper()
	needSystem(t)
	file := filepath.Join(agentsDir(t), a.name, "node_modules", a.program)
	if _, err := os.Stat(file); err != nil {
		t.Skip("the agent is not installed: run make agents")
	}
	return file
}

// packageName is the package to which its program belongs.
func (a codingAgent) packageName() string {
	parts := strings.Split(a.program, "/")
	if strings.HasPrefix(a.program, "@") {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

// findForLong finds the agent for a test that `make test` runs with one agent alone.
func (a codingAgent) findForLong(t *testing.T) {
	t.Helper()
	if a.name != codex.name && os.Getenv(agentsEnv) == "" {
		t.Skip("make agents tries it with this agent")
	}
	a.find(t)
}

// installedVersion is the version of a package that is installed for an agent.
func installedVersion(t *testing.T, agent, name string) string {
	t.Helper()
	var made struct{ Version string }
	text, err := os.ReadFile(filepath.Join(agentsDir(t), agent, "node_modules", name, "package.json"))
	ok(t, err)
	ok(t, json.Unmarshal(text, &made))
	return made.Version
}

// dialect is the interface of a model server.
type dialect struct {
	serves  func(path string) bool
	results func(body []byte) []string                 // of the calls in a conversation, in order
	call    func(w io.Writer, n int, calls []toolCall) // answers with calls; n tells those of one conversation apart
	end     func(w io.Writer, n int)                   // answers with a text
}

// toolCall is a call that a model makes. Without a tool it is one of the agent's shell, with a command.
type toolCall struct {
	tool    string // as the agent offers it
	input   object
	command string
}

// turn is what a model answers with at once.
type turn []toolCall

// each makes a turn of each command.
func each(commands ...string) (turns []turn) {
	for _, c := range commands {
		turns = append(turns, turn{{command: c}})
	}
	return turns
}

// model is a scripted model server. After the results of one turn it gives the next, and a farewell after the last
// one. What the agent told the model of each call is in results.
type model struct {
	dialect
	mu      sync.Mutex
	turns   []turn
	results []string
	between func(n int, result string) // called before the answer to the nth result
	sub     *model                     // answers the agent's sub-agents
	plan    func(body []byte) []turn   // makes the turns from the first request with tools
	cut     bool                       // breaks off its first answer with a call
}

// userPrompt is what the user says to each agent. A conversation without it is a sub-agent's.
const userPrompt = "Do as you are told."

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || !m.serves(r.URL.Path) {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if m.sub != nil && !bytes.Contains(body, []byte(userPrompt)) {
		m.sub.dialect = m.dialect
		m.sub.answer(w, body, 100)
		return
	}
	m.answer(w, body, 0)
}

// answer goes on with a conversation. The calls of different conversations differ in their numbers.
func (m *model) answer(w http.ResponseWriter, body []byte, first int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, result := range m.dialect.results(body) {
		if n < len(m.results) {
			continue
		}
		m.results = append(m.results, result)
		if m.between != nil {
			m.between(len(m.results), result)
		}
	}
	if m.turns == nil && m.plan != nil {
		m.turns = m.plan(body)
	}
	n, next := len(m.results), m.next()
	// A request that offers no tools asks for something else: a title of the conversation.
	if next == nil || !bytes.Contains(body, []byte(`"tools":[{`)) {
		m.end(w, first+n)
		return
	}
	if m.cut {
		m.cut = false
		var whole bytes.Buffer
		m.call(&whole, first+n, next)
		w.Header().Set("Content-Length", fmt.Sprint(whole.Len()))
		at := bytes.LastIndex(whole.Bytes(), []byte("event: "))
		if at < 0 {
			at = whole.Len() / 2
		}
		_, _ = w.Write(whole.Bytes()[:at])
		panic(http.ErrAbortHandler)
	}
	m.call(w, first+n, next)
}

// next is the turn after the calls whose results are known, nil after the last one.
func (m *model) next() turn {
	n := 0
	for _, t := range m.turns {
		if n == len(m.results) {
			return t
		}
		n += len(t)
	}
	return nil
}

// calls is the number of calls of all turns.
func (m *model) calls() (n int) {
	for _, t := range m.turns {
		n += len(t)
	}
	return n
}

// event writes a server-sent event whose data name its type.
func event(w io.Writer, kind string, data object) {
	data["type"] = kind
	fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, data.bytes())
}

// items finds the objects of a list in a JSON document that have a type.
func items(raw json.RawMessage, kind string) (found []map[string]json.RawMessage) {
	var list []map[string]json.RawMessage
	_ = json.Unmarshal(raw, &list) // a text has no items
	for _, i := range list {
		if string(i["type"]) == `"`+kind+`"` {
			found = append(found, i)
		}
	}
	return found
}

// messagesAPI is Anthropic's, with the shell as Claude Code calls it.
var messagesAPI = messagesWith("Bash")

func messagesWith(shell string) dialect {
	return dialect{
		serves: func(path string) bool { return strings.HasSuffix(path, "/v1/messages") },
		results: func(body []byte) (results []string) {
			var r struct {
				Messages []struct{ Content json.RawMessage }
			}
			_ = json.Unmarshal(body, &r) // a request without messages has no results
			for _, m := range r.Messages {
				for _, i := range items(m.Content, "tool_result") {
					results = append(results, string(i["content"]))
				}
			}
			return results
		},
		call: func(w io.Writer, n int, calls []toolCall) {
			var blocks []object
			for i, c := range calls {
				if c.tool == "" {
					c = toolCall{tool: shell, input: object{"command": c.command, "description": "as told"}}
				}
				blocks = append(blocks, object{"type": "tool_use", "id": fmt.Sprint("toolu_", n+i), "name": c.tool, "input": object{}},
					object{"type": "input_json_delta", "partial_json": string(c.input.bytes())})
			}
			sayMessage(w, n, "tool_use", blocks...)
		},
		end: func(w io.Writer, n int) {
			sayMessage(w, n, "end_turn", object{"type": "text", "text": ""}, object{"type": "text_delta", "text": "Done."})
		},
	}
}

// sayMessage writes an answer; each block is followed by its content.
func sayMessage(w io.Writer, n int, stop string, blocks ...object) {
	event(w, "message_start", object{"message": object{"id": fmt.Sprint("msg_", n), "type": "message", "role": "assistant", "model": "scripted", "content": []any{},
		"usage": object{"input_tokens": 1, "output_tokens": 1}}})
	for i := 0; i < len(blocks); i += 2 {
		event(w, "content_block_start", object{"index": i / 2, "content_block": blocks[i]})
		event(w, "content_block_delta", object{"index": i / 2, "delta": blocks[i+1]})
		event(w, "content_block_stop", object{"index": i / 2})
	}
	event(w, "message_delta", object{"delta": object{"stop_reason": stop}, "usage": object{"output_tokens": 1}})
	event(w, "message_stop", object{})
}

// responsesAPI is OpenAI's.
var responsesAPI = dialect{
	serves: func(path string) bool { return strings.HasSuffix(path, "/responses") },
	results: func(body []byte) (results []string) {
		var r struct{ Input json.RawMessage }
		_ = json.Unmarshal(body, &r) // a request without input has no results
		for _, i := range items(r.Input, "function_call_output") {
			results = append(results, string(i["output"]))
		}
		return results
	},
	call: func(w io.Writer, n int, calls []toolCall) {
		var list []object
		for i, c := range calls {
			if c.tool == "" {
				c = toolCall{tool: "exec_command", input: object{"cmd": c.command}}
			}
			item := object{"type": "function_call", "id": fmt.Sprint("fc_", n+i), "call_id": fmt.Sprint("call_", n+i), "name": c.tool, "arguments": string(c.input.bytes())}
			if at := strings.LastIndex(c.tool, "__"); at > 0 { // of an MCP server
				item["namespace"], item["name"] = c.tool[:at], c.tool[at+2:]
			}
			list = append(list, item)
		}
		sayResponse(w, n, list...)
	},
	end: func(w io.Writer, n int) {
		sayResponse(w, n, object{"type": "message", "role": "assistant", "id": fmt.Sprint("msg_", n), "content": []object{{"type": "output_text", "text": "Done."}}})
	},
}

func sayResponse(w io.Writer, n int, list ...object) {
	id := fmt.Sprint("resp_", n)
	event(w, "response.created", object{"response": object{"id": id}})
	for i, item := range list {
		event(w, "response.output_item.done", object{"output_index": i, "item": item})
	}
	event(w, "response.completed", object{"response": object{"id": id, "usage": object{"input_tokens": 1, "input_tokens_details": nil, "output_tokens": 1, "output_tokens_details": nil, "total_tokens": 2}}})
}

// generateAPI is Gemini's.
var generateAPI = dialect{
	serves: func(path string) bool { return strings.HasSuffix(path, ":streamGenerateContent") },
	results: func(body []byte) (results []string) {
		var r struct {
			Contents []struct {
				Parts []struct {
					Result *struct{ Response json.RawMessage } `json:"functionResponse"`
				}
			}
		}
		_ = json.Unmarshal(body, &r) // a request without contents has no results
		for _, c := range r.Contents {
			for _, p := range c.Parts {
				if p.Result != nil {
					results = append(results, string(p.Result.Response))
				}
			}
		}
		return results
	},
	call: func(w io.Writer, _ int, calls []toolCall) {
		var parts []object
		for _, c := range calls {
			if c.tool == "" {
				c = toolCall{tool: "run_shell_command", input: object{"command": c.command, "description": "as told"}}
			}
			parts = append(parts, object{"functionCall": object{"name": c.tool, "args": c.input}})
		}
		sayCandidate(w, parts...)
	},
	end: func(w io.Writer, _ int) { sayCandidate(w, object{"text": "Done."}) },
}

func sayCandidate(w io.Writer, parts ...object) {
	answer := object{"candidates": []object{{"content": object{"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}
	fmt.Fprintf(w, "data: %s\n\n", answer.bytes())
}

// addSettings adds members to a JSON file of the agent's.
func addSettings(t *testing.T, path string, add object) {
	t.Helper()
	settings := object{}
	if text, err := os.ReadFile(path); err == nil {
		ok(t, json.Unmarshal(text, &settings))
	}
	for name, value := range add {
		settings[name] = value
	}
	ok(t, os.MkdirAll(filepath.Dir(path), 0o700))
	ok(t, os.WriteFile(path, settings.bytes(), 0o600))
}

// kitCommand is the MCP server that this test program is, as most agents' settings have it.
func kitCommand(t *testing.T) object {
	t.Helper()
	self, err := os.Executable()
	ok(t, err)
	return object{"command": self, "env": object{mcpServerEnv: "Makes a file."}}
}

// Each agent itself permits every command: what is refused is refused by the gate.
var claudeCode = codingAgent{
	name: "claude-code", title: "Claude Code", program: "@anthropic-ai/claude-code-linux-x64/claude", speaks: messagesAPI, hooks: ".claude/settings.json", timeout: `"timeout": 60`, answered: true,
	mcpTool:        "mcp__kit__touch",
	past:           []string{"CronDelete", "ExitWorktree", "NotebookEdit", "TaskStop"}, // it refuses these arguments itself: there is no such thing
	marksSubAgents: true, helper: toolCall{tool: "Agent", input: object{"description": "help", "prompt": "Help.", "subagent_type": "general-purpose"}},
	args: []string{"-p", userPrompt, "--output-format", "json"},
	env: func(home, server string) []string {
		return []string{"ANTHROPIC_BASE_URL=" + server, "ANTHROPIC_API_KEY=dummy", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1",
			"DISABLE_ERROR_REPORTING=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "CLAUDE_CODE_TMPDIR=" + home}
	},
	prepare: func(t *testing.T, h hooked, _ string) {
		addSettings(t, filepath.Join(h.home, ".claude/settings.json"), object{"permissions": object{"allow": []string{"Bash", "mcp__kit"}}})
		addSettings(t, filepath.Join(h.home, ".claude.json"), object{"mcpServers": object{"kit": kitCommand(t)}})
	},
}

var codex = codingAgent{
	name: "codex", title: "Codex", program: "@openai/codex/bin/codex.js", speaks: responsesAPI, hooks: ".codex/hooks.json", timeout: `"timeout": 60`, watched: true,
	mcpTool: "mcp__kit__touch", past: []string{"write_stdin"}, marksSubAgents: true, helper: toolCall{tool: "multi_agent_v1__spawn_agent", input: object{"message": "Help."}},
	args: []string{"exec", "--dangerously-bypass-hook-trust", "--skip-git-repo-check", "--json", userPrompt},
	env: func(home, _ string) []string {
		return []string{"CODEX_HOME=" + filepath.Join(home, ".codex"), "SCRIPTED_KEY=dummy"}
	},
	prepare: func(t *testing.T, h hooked, server string) {
		ok(t, os.WriteFile(filepath.Join(h.home, ".codex/config.toml"), fmt.Appendf(nil, `model = "scripted"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.scripted]
name = "scripted"
base_url = "%s/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
[mcp_servers.kit]
command = %q
env = {%s = "Makes a file."}
`, server, kitCommand(t)["command"], mcpServerEnv), 0o600))
	},
}

var gemini = codingAgent{
	name: "gemini", title: "Gemini CLI", program: "@google/gemini-cli/bundle/gemini.js", speaks: generateAPI, hooks: ".gemini/settings.json", timeout: `"timeout": 60`, answered: true, watched: true,
	mcpTool: "mcp_kit_touch", helper: toolCall{tool: "invoke_agent", input: object{"agent_name": "generalist", "prompt": "Help."}},
	args: []string{"-m", "gemini-2.5-flash", "--approval-mode", "yolo", "--skip-trust", "-o", "json", "-p", userPrompt},
	env: func(_, server string) []string {
		return []string{"GEMINI_API_KEY=dummy", "GOOGLE_GEMINI_BASE_URL=" + server}
	},
	prepare: func(t *testing.T, h hooked, _ string) {
		addSettings(t, filepath.Join(h.home, ".gemini/settings.json"), object{
			"security":   object{"auth": object{"selectedType": "gemini-api-key"}, "folderTrust": object{"enabled": false}},
			"mcpServers": object{"kit": kitCommand(t)},
			"privacy":    object{"usageStatisticsEnabled": false}, "general": object{"disableAutoUpdate": true, "disableUpdateNag": true},
		})
	},
}

var openCode = codingAgent{
	name: "opencode", title: "OpenCode", program: "opencode-linux-x64/bin/opencode", speaks: messagesWith("bash"), hooks: ".config/opencode/plugins/countersign.js", timeout: `limit = 60`,
	mcpTool: "kit_touch", marksSubAgents: true, helper: toolCall{tool: "task", input: object{"description": "help", "prompt": "Help.", "subagent_type": "general"}},
	args: []string{"run", "--format", "json", userPrompt},
	env: func(home, _ string) []string {
		return []string{"XDG_CONFIG_HOME=" + filepath.Join(home, ".config"), "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
			"OPENCODE_DISABLE_DEFAULT_PLUGINS=1", "OPENCODE_DISABLE_SHARE=1", "TMPDIR=" + home}
	},
	prepare: func(t *testing.T, h hooked, server string) {
		dir := filepath.Join(h.home, ".config/opencode")
		kit := kitCommand(t)
		addSettings(t, filepath.Join(dir, "opencode.json"), object{"mcp": object{"kit": object{"type": "local", "command": []any{kit["command"]}, "environment": kit["env"]}}, "autoupdate": false, "enabled_providers": []string{"kit"}, "model": "kit/scripted", "small_model": "kit/scripted", "permission": object{"doom_loop": "allow", "bash": "allow"},
			"provider": object{"kit": object{"npm": "@ai-sdk/anthropic", "options": object{"baseURL": server + "/v1", "apiKey": "dummy"},
				"models": object{"scripted": object{"name": "scripted"}}}}})
		// These spare it the installation of the types for plugins, which needs the registry of npm.
		wants := object{"dependencies": object{"@opencode-ai/plugin": installedVersion(t, "opencode", "opencode-ai")}}
		addSettings(t, filepath.Join(dir, "package.json"), wants)
		addSettings(t, filepath.Join(dir, "package-lock.json"), object{"name": "opencode", "lockfileVersion": 3, "requires": true, "packages": object{"": wants}})
		ok(t, os.MkdirAll(filepath.Join(dir, "node_modules"), 0o700))
	},
}

// copilot needs no login with a model server of one's own.
var copilot = codingAgent{
	name: "copilot", title: "Copilot CLI", program: "@github/copilot-linux-x64/copilot", speaks: messagesWith("bash"), hooks: ".copilot/hooks/countersign.json", timeout: `"timeoutSec": 60`, watched: true,
	args: []string{"-p", userPrompt, "--allow-all-tools", "--disable-builtin-mcps", "--disable-client-telemetry", "--output-format", "json"},
	env: func(_, server string) []string {
		return []string{"COPILOT_PROVIDER_BASE_URL=" + server, "COPILOT_PROVIDER_TYPE=anthropic", "COPILOT_PROVIDER_API_KEY=dummy", "COPILOT_MODEL=scripted", "COPILOT_OFFLINE=true", "COPILOT_AUTO_UPDATE=false"}
	},
	prepare: func(*testing.T, hooked, string) {},
}

// realAgents are those that run here.
var realAgents = []codingAgent{claudeCode, codex, gemini, openCode}

// converse runs an agent in a directory with a scripted model until it ends and returns what it wrote. More
// arguments follow the agent's own.
func (h hooked) converse(t *testing.T, a codingAgent, dir string, m *model, more ...string) string {
	t.Helper()
	p, out := h.begin(t, a, dir, m, more...)
	if err := p.wait(); err != nil {
		p.signal(syscall.SIGKILL)
		t.Logf("%s: %v\n%s", a.name, err, out.String())
	}
	return out.String()
}

// begin starts an agent, as the leader of a group of processes, and returns what it writes until it ends.
func (h hooked) begin(t *testing.T, a codingAgent, dir string, m *model, more ...string) (*proc, *bytes.Buffer) {
	t.Helper()
	m.dialect = a.speaks
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	a.prepare(t, h, server.URL)
	cmd := exec.Command("setsid", slices.Concat([]string{a.find(t)}, a.args, more)...)
	cmd.Dir = dir
	cmd.Env = append(append(h.env, a.env(h.home, server.URL)...), "PWD="+dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := launch(cmd)
	ok(t, err)
	return p, &out
}

// stopped sends a signal to an agent, and to all that it has started, while a call of it waits for a person. The
// gate refuses, and the call does not run, then or after the approval.
func (h hooked) stopped(t *testing.T, a codingAgent, dir string, sig syscall.Signal) {
	t.Helper()
	pending := func() (ids []string) {
		for _, w := range h.review(t, 0, "list")["workflows"].([]any) {
			ids = append(ids, w.(map[string]any)["workflow_id"].(string))
		}
		return ids
	}
	before := pending()
	gate, said := filepath.Join(t.TempDir(), "gate"), filepath.Join(t.TempDir(), "said")
	ok(t, os.WriteFile(gate, fmt.Appendf(nil, "#!/bin/bash\nexec %s \"$@\" > >(trap '' HUP INT TERM; exec tee -a %s)\n", program("countersign-hook"), said), 0o700))
	h.replace(t, a, program("countersign-hook"), gate)
	defer h.replace(t, a, gate, program("countersign-hook"))
	p, out := h.begin(t, a, dir, &model{turns: each("touch asked-stopped")})
	var waits string
	eventually(t, a.name+" waits for a person", func() error {
		for _, id := range pending() {
			if !slices.Contains(before, id) {
				waits = id
				return nil
			}
		}
		return errors.New("no call waits")
	})
	ok(t, syscall.Kill(-p.pid, sig))
	ok(t, ignoreExit(p.wait()))
	if a.answered {
		eventually(t, "the gate refuses after the signal", func() error {
			if text, _ := os.ReadFile(said); !strings.Contains(string(text), "interrupted") {
				return fmt.Errorf("it said %q", text)
			}
			return nil
		})
	}
	h.run(t, "approvals", "approve", waits, "--yes").want(t, 0)
	if _, err := os.Stat(filepath.Join(dir, "asked-stopped")); err == nil {
		t.Errorf("%s ran the call on its way out, after %v\n%s", a.name, sig, out.String())
	}
}

// ignoreExit leaves out that a program ended with another code than 0, or by a signal.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// drive runs an agent and returns what the model was told of each call. The proof of a refusal is there: a
// file that is missing proves nothing alone.
func (h hooked) drive(t *testing.T, a codingAgent, dir string, m *model) []string {
	t.Helper()
	out := h.converse(t, a, dir, m)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.results) != m.calls() {
		t.Fatalf("the model was told of %d calls, want %d: %q\n%s", len(m.results), m.calls(), m.results, out)
	}
	return m.results
}

// Real agents, with the gate that install put into their configuration: an allowed command leaves its
// file, a refused one does not and the model is told why; an approved one runs once, when it is
// repeated, and not with other arguments; with a gateway that stands still, or is gone, nothing runs, and nothing when the
// agent is stopped while a call waits. What ran is on record.
func TestAgents(t *testing.T) {
	if os.Getenv(loopbackEnv) != "" {
		all, err := net.Interfaces()
		ok(t, err)
		for _, i := range all {
			if i.Flags&net.FlagLoopback == 0 {
				t.Fatalf("the agents can reach more than loopback: %s", i.Name)
			}
		}
	}
	for _, a := range realAgents {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			a.find(t)
			testAgent(t, a)
		})
	}
}

func testAgent(t *testing.T, a codingAgent) {
	h := startHooked(t, a.name, "5s")
	dir := t.TempDir()
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	// What is approved is the fourth call and the last, not the sixth: it has other arguments.
	m := &model{turns: each("touch allowed-1", "touch forbidden-1", "touch asked-1", "touch asked-1", "touch asked-1", "touch asked-1 asked-2", "touch asked-1")}
	m.between = func(n int, result string) {
		if n == 3 || n == 5 {
			if w := workflowInText.FindStringSubmatch(result); w != nil {
				h.run(t, "approvals", "approve", w[1], "--yes").want(t, 0)
			}
		}
		if n == 3 && exists("asked-1") {
			t.Error("the command ran before the approval")
		}
	}
	results := h.drive(t, a, dir, m)
	for i, want := range []string{"", "This word is forbidden", "Workflow", "", "Workflow", "Workflow", ""} {
		if want != "" && !strings.Contains(results[i], want) || want == "" && strings.Contains(results[i], "Countersign") {
			t.Errorf("call %d: the model was told %s, want %q", i, results[i], want)
		}
	}
	if !exists("allowed-1") || exists("forbidden-1") || !exists("asked-1") || exists("asked-2") {
		t.Errorf("files: allowed %t, forbidden %t, asked %t, asked with other arguments %t", exists("allowed-1"), exists("forbidden-1"), exists("asked-1"), exists("asked-2"))
	}
	h.settle(t)
	var sessions []string
	ran := 0
	for line := range strings.Lines(h.run(t, "calls", "--json").want(t, 0).out) {
		var row struct {
			Call struct{ Session, Match, State string }
		}
		ok(t, json.Unmarshal([]byte(line), &row))
		sessions = append(sessions, row.Call.Session)
		if row.Call.State == "completed" {
			ran++
			if row.Call.Match != "equal" {
				t.Errorf("what ran is not what was admitted: %s", line)
			}
		}
	}
	if len(sessions) < 6 || ran != 3 {
		t.Fatalf("%d calls are on record, %d of them ran", len(sessions), ran)
	}
	h.verified(t, 0, "--session", sessions[0])
	version := `"agent_version":"` + installedVersion(t, a.name, a.packageName()) + `"`
	out := h.run(t, "chain", "--session", sessions[0], "--json").out
	for _, part := range []string{version, `"event_type":"ModelResponse"`} { // the agent has stopped
		if !strings.Contains(out, part) {
			t.Errorf("the chain lacks %s: %s", part, out)
		}
	}

	h.stopped(t, a, dir, syscall.SIGTERM)
	h.stopped(t, a, dir, syscall.SIGINT)

	gateway := h.info(t).PIDs["gateway"]
	ok(t, syscall.Kill(gateway, syscall.SIGSTOP))
	results = h.drive(t, a, dir, &model{turns: each("touch still-1")})
	ok(t, syscall.Kill(gateway, syscall.SIGCONT))
	if !strings.Contains(results[0], "Countersign refused") || exists("still-1") {
		t.Errorf("with a gateway that stands still the model was told %s; the file exists: %t", results[0], exists("still-1"))
	}
	ok(t, h.stop())
	results = h.drive(t, a, dir, &model{turns: each("touch gone-1")})
	if !strings.Contains(results[0], "Countersign refused") || exists("gone-1") {
		t.Errorf("without a gateway the model was told %s; the file exists: %t", results[0], exists("gone-1"))
	}
}

// A headless run of Claude Code ends with a call that waits for a person. Resumed, it gives the same call
// again: approved, it runs, once; denied, the model is told so.
func TestClaudeCodeDefers(t *testing.T) {
	t.Parallel()
	claudeCode.find(t)
	h := startHooked(t, claudeCode.name, "2s", "--defer")
	if out := h.countersign(t, "hook", "doctor", claudeCode.name).out; !strings.Contains(out, "headless runs of claude-code that wait") {
		t.Errorf("doctor: %s", out)
	}
	dir := t.TempDir()
	lines := func() int {
		text, err := os.ReadFile(filepath.Join(dir, "asked"))
		if err != nil {
			return 0
		}
		return strings.Count(string(text), "\n")
	}
	resume := claudeCode
	resume.args = []string{"-p", "--output-format", "json"}
	m := &model{turns: each("echo ran >> asked", "echo ran >> asked", "ls")}
	run := func(a codingAgent, calls int, more ...string) (session string) {
		t.Helper()
		var ended struct {
			Session string              `json:"session_id"`
			Reason  string              `json:"stop_reason"`
			Call    struct{ ID string } `json:"deferred_tool_use"`
		}
		out := h.converse(t, a, dir, m, more...)
		ok(t, json.Unmarshal([]byte(out), &ended))
		want := "end_turn"
		if calls < m.calls() {
			want = "tool_deferred"
		}
		if ended.Reason != want || want == "tool_deferred" && ended.Call.ID != fmt.Sprint("toolu_", calls) || len(m.results) != calls {
			t.Fatalf("the run ended with %q and the model was told %q, want %s after %d results\n%s", ended.Reason, m.results, want, calls, out)
		}
		return ended.Session
	}
	waiting := func() string {
		t.Helper()
		list := h.review(t, 0, "list")["workflows"].([]any)
		if len(list) != 1 {
			t.Fatalf("%d calls wait: %v", len(list), list)
		}
		return list[0].(map[string]any)["workflow_id"].(string)
	}

	session := run(claudeCode, 0)
	first := waiting()
	run(resume, 0, "--resume", session) // nobody has decided
	if again := waiting(); again != first || lines() != 0 {
		t.Fatalf("resumed before the approval, the call waits as %s, not %s; it ran %d times", again, first, lines())
	}
	h.run(t, "approvals", "approve", first, "--yes").want(t, 0)
	run(resume, 1, "--resume", session) // the model repeats the call, which needs an approval of its own
	second := waiting()
	if second == first || lines() != 1 {
		t.Fatalf("after the approval the call ran %d times; %s waits, after %s", lines(), second, first)
	}
	h.run(t, "approvals", "deny", second, "--reason", "not again").want(t, 0)
	run(resume, 3, "--resume", session)
	if lines() != 1 || strings.Contains(m.results[0], "Countersign") || !strings.Contains(m.results[1], "Countersign refused") || strings.Contains(m.results[2], "Countersign") {
		t.Errorf("the call ran %d times; the model was told %q", lines(), m.results)
	}
	h.settle(t)
	calls := h.run(t, "calls", "--session", session, "--json").want(t, 0).out
	ran := 0 // each run of the agent asks anew, under the same id
	for line := range strings.Lines(calls) {
		if strings.Contains(line, `"tool_call_id":"toolu_0"`) && strings.Contains(line, `"match":"equal"`) && strings.Contains(line, `"state":"completed"`) {
			ran++
		}
	}
	if ran != 1 {
		t.Errorf("the deferred call is linked %d times with what ran: %s", ran, calls)
	}
	h.verified(t, 0, "--session", session)
}
