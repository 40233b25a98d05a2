package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// agentsEnv names the directory into which `make agents` installs the agents. Without it the one in
// the user's cache is used; an agent that is not there is not tested, visibly.
const agentsEnv = "COUNTERSIGN_AGENTS"

func agentProgram(t *testing.T, path ...string) string {
	t.Helper()
	needSystem(t)
	dir := os.Getenv(agentsEnv)
	if dir == "" {
		cache, err := os.UserCacheDir()
		ok(t, err)
		dir = filepath.Join(cache, "countersign-agents")
	}
	file := filepath.Join(append([]string{dir}, path...)...)
	if _, err := os.Stat(file); err != nil {
		t.Skip("the agent is not installed: run make agents")
	}
	return file
}

// model is a scripted model server with Anthropic's Messages API. After the
// nth result of a call it gives the next command for the shell, and a farewell after the last one. What
// the agent told the model of each call is in results.
type model struct {
	mu       sync.Mutex
	commands []string
	results  []string
	between  func(n int, result string) // called before the answer to the nth result
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || !strings.HasSuffix(r.URL.Path, "/v1/messages") {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, result := range toolResults(body) {
		if n < len(m.results) {
			continue
		}
		m.results = append(m.results, result)
		if m.between != nil {
			m.between(len(m.results), result)
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	n := len(m.results)
	say := func(event string, data object) {
		data["type"] = event
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data.bytes())
	}
	say("message_start", object{"message": object{"id": fmt.Sprint("msg_", n), "type": "message", "role": "assistant", "model": "scripted", "content": []any{},
		"usage": object{"input_tokens": 1, "output_tokens": 1}}})
	stop := "end_turn"
	if n < len(m.commands) {
		stop = "tool_use"
		input := object{"command": m.commands[n], "description": "as told"}
		say("content_block_start", object{"index": 0, "content_block": object{"type": "tool_use", "id": fmt.Sprint("toolu_", n), "name": "Bash", "input": object{}}})
		say("content_block_delta", object{"index": 0, "delta": object{"type": "input_json_delta", "partial_json": string(input.bytes())}})
	} else {
		say("content_block_start", object{"index": 0, "content_block": object{"type": "text", "text": ""}})
		say("content_block_delta", object{"index": 0, "delta": object{"type": "text_delta", "text": "Done."}})
	}
	say("content_block_stop", object{"index": 0})
	say("message_delta", object{"delta": object{"stop_reason": stop}, "usage": object{"output_tokens": 1}})
	say("message_stop", object{})
}

// toolResults are the results of a conversation's calls, in order. Agents put texts of their own between
// and after them.
func toolResults(body []byte) (results []string) {
	var r struct {
		Messages []struct {
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	_ = json.Unmarshal(body, &r) // a request without messages has no results
	for _, m := range r.Messages {
		var blocks []struct {
			Type    string          `json:"type"`
			Content json.RawMessage `json:"content"`
		}
		_ = json.Unmarshal(m.Content, &blocks) // a text has no blocks
		for _, b := range blocks {
			if b.Type == "tool_result" {
				results = append(results, string(b.Content))
			}
		}
	}
	return results
}

// claude runs Claude Code headless with a scripted model and returns what the model was told of each
// call. The proof of a refusal is there: a file that is missing proves nothing alone.
func (h hooked) claude(t *testing.T, program, dir string, m *model) []string {
	t.Helper()
	server := httptest.NewServer(m)
	defer server.Close()
	cmd := exec.Command(program, "-p", "Do as you are told.", "--output-format", "json")
	cmd.Dir = dir
	cmd.Env = append(h.env, "ANTHROPIC_BASE_URL="+server.URL, "ANTHROPIC_API_KEY=dummy", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1",
		"DISABLE_ERROR_REPORTING=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "CLAUDE_CODE_TMPDIR="+t.TempDir())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := launch(cmd)
	ok(t, err)
	if err := p.wait(); err != nil {
		p.signal(syscall.SIGKILL)
		t.Logf("claude: %v\n%s", err, out.String())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.results) != len(m.commands) {
		t.Fatalf("the model was told of %d calls, want %d: %q\n%s", len(m.results), len(m.commands), m.results, out.String())
	}
	return m.results
}

// permit lets Claude Code itself run shell commands without a prompt: what is refused is refused by
// the gate.
func (h hooked) permit(t *testing.T) {
	t.Helper()
	path := filepath.Join(h.home, ".claude/settings.json")
	text, err := os.ReadFile(path)
	ok(t, err)
	var settings object
	ok(t, json.Unmarshal(text, &settings))
	settings["permissions"] = object{"allow": []string{"Bash"}}
	ok(t, os.WriteFile(path, settings.bytes(), 0o600))
}

// Claude Code itself, with the gate that install put into its configuration: an allowed command
// leaves its file, a refused one does not and the model is told why; an approved one runs once, when it is
// repeated; with a gateway that stands still, or a gate that dies, nothing runs. What ran is on record.
func TestClaudeCode(t *testing.T) {
	t.Parallel()
	program := agentProgram(t, "claude-code/node_modules/@anthropic-ai/claude-code-linux-x64/claude")
	h := startHooked(t, "5s")
	h.permit(t)
	dir := t.TempDir()
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	m := &model{commands: []string{"touch allowed-1", "touch forbidden-1", "touch asked-1", "touch asked-1", "touch asked-1"}}
	m.between = func(n int, result string) {
		if n == 3 {
			if w := workflowInText.FindStringSubmatch(result); w != nil {
				h.run(t, "approvals", "approve", w[1], "--yes").want(t, 0)
			}
			if exists("asked-1") {
				t.Error("the command ran before the approval")
			}
		}
	}
	results := h.claude(t, program, dir, m)
	for i, want := range []string{"", "This word is forbidden", "Workflow", "", "Workflow"} {
		if want != "" && !strings.Contains(results[i], want) || want == "" && strings.Contains(results[i], "Countersign") {
			t.Errorf("call %d: the model was told %s, want %q", i, results[i], want)
		}
	}
	if !exists("allowed-1") || exists("forbidden-1") || !exists("asked-1") {
		t.Errorf("files: allowed %t, forbidden %t, asked %t", exists("allowed-1"), exists("forbidden-1"), exists("asked-1"))
	}
	h.settle(t)
	var sessions []string
	for line := range strings.Lines(h.run(t, "calls", "--json").want(t, 0).out) {
		var row struct {
			Call struct{ Session, Match, State string }
		}
		ok(t, json.Unmarshal([]byte(line), &row))
		sessions = append(sessions, row.Call.Session)
		if row.Call.State == "completed" && row.Call.Match != "equal" {
			t.Errorf("what ran is not what was admitted: %s", line)
		}
	}
	if len(sessions) < 4 {
		t.Fatalf("%d calls are on record", len(sessions))
	}
	h.verified(t, 0, "--session", sessions[0])

	gateway := h.info(t).PIDs["gateway"]
	ok(t, syscall.Kill(gateway, syscall.SIGSTOP))
	results = h.claude(t, program, dir, &model{commands: []string{"touch still-1"}})
	ok(t, syscall.Kill(gateway, syscall.SIGCONT))
	if !strings.Contains(results[0], "Countersign refused") || exists("still-1") {
		t.Errorf("with a gateway that stands still the model was told %s; the file exists: %t", results[0], exists("still-1"))
	}
	for name, script := range map[string]string{"dies": "kill -SEGV $$", "fails": "exit 1", "is silent": "exit 2"} {
		h.replaceGate(t, script)
		results = h.claude(t, program, dir, &model{commands: []string{"touch dead-1"}})
		if exists("dead-1") {
			t.Errorf("with a gate that %s the command ran; the model was told %s", name, results[0])
		}
	}
}

// replaceGate makes a script the only hook, with the settings that the gate had.
func (h hooked) replaceGate(t *testing.T, script string) {
	t.Helper()
	broken := filepath.Join(h.home, "gate.sh")
	ok(t, os.WriteFile(broken, []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	path := filepath.Join(h.home, ".claude/settings.json")
	text, err := os.ReadFile(path)
	ok(t, err)
	var settings struct {
		Hooks       map[string][]object `json:"hooks"`
		Permissions object              `json:"permissions"`
	}
	ok(t, json.Unmarshal(text, &settings))
	gate := settings.Hooks["PreToolUse"]
	handler := gate[0]["hooks"].([]any)[0].(map[string]any)
	handler["command"] = broken
	ok(t, os.WriteFile(path, object{"hooks": object{"PreToolUse": gate}, "permissions": settings.Permissions}.bytes(), 0o600))
}
