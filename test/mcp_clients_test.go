package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Claude Code with a wrapped server and a scripted model: what the model is told of each call, and what
// ran. No hook is installed.
func TestMCPClaudeCode(t *testing.T) {
	t.Parallel()
	claudeCode.find(t)
	w := startWrapped(t)
	home := t.TempDir()
	h := hooked{w.system, home, append(w.env, "HOME="+home)}
	gate := w.command(t, "Makes a file.")
	config := filepath.Join(home, "mcp.json")
	ok(t, os.WriteFile(config, object{"mcpServers": object{"kit": object{
		"command": gate.Args[0], "args": gate.Args[1:], "env": object{mcpServerEnv: "Makes a file.", "COUNTERSIGN_READY_FILE": w.ready},
	}}}.bytes(), 0o600))
	a := claudeCode
	a.args = append([]string{"--mcp-config", config, "--strict-mcp-config", "--allowedTools", "mcp__kit__touch"}, a.args...)
	a.prepare = func(*testing.T, hooked, string) {}
	m := &model{}
	for _, path := range []string{"allowed-1", "forbidden-1", "asked-1", "asked-1", "asked-1"} {
		m.turns = append(m.turns, turn{{tool: "mcp__kit__touch", input: object{"path": path}}})
	}
	m.between = func(n int, result string) {
		if match := workflowInText.FindStringSubmatch(result); n == 3 && match != nil {
			w.run(t, "approvals", "approve", match[1], "--yes").want(t, 0)
		}
	}
	results := h.drive(t, a, w.dir, m)
	for i, want := range []string{"allowed-1", "This word is forbidden", "Workflow", "asked-1", "Workflow"} {
		if !strings.Contains(results[i], want) || (i == 0 || i == 3) && strings.Contains(results[i], "Countersign") {
			t.Errorf("call %d: the model was told %s, want %q", i, results[i], want)
		}
	}
	if !w.exists("allowed-1") || w.exists("forbidden-1") || !w.exists("asked-1") {
		t.Errorf("files: allowed %t, forbidden %t, asked %t", w.exists("allowed-1"), w.exists("forbidden-1"), w.exists("asked-1"))
	}
}

// Claude Code reaches `countersign-mcp serve` with the configuration of docs/mcp.md, which holds no token and puts none
// on a command line.
func testServeClaudeCode(t *testing.T, v *served) {
	needProgram(t, "jq")
	program := claudeCode.find(t)
	page, err := os.ReadFile(filepath.Join(root, "docs/mcp.md"))
	ok(t, err)
	line := strings.ReplaceAll(lineWith(string(page), "headersHelper"), "http://127.0.0.1:8467/files", v.url+"/kit")
	home := t.TempDir()
	ready, err := os.ReadFile(v.ready)
	ok(t, err)
	ok(t, os.WriteFile(filepath.Join(home, "ready.json"), ready, 0o600))
	cmd := exec.Command("bash", "-c", `claude() { "$CLAUDE" "$@"; }`+"\n"+line+"\nclaude mcp list")
	cmd.Dir, cmd.Env = home, append(append(v.env, "HOME="+home, "CLAUDE="+program), claudeCode.env(home, "http://127.0.0.1:1")...)
	if out := command(t, cmd).want(t, 0).out; !strings.Contains(lineWith(out, v.url+"/kit"), "Connected") {
		t.Errorf("%s\nClaude Code says:\n%s", line, out)
	}
	kept, err := os.ReadFile(filepath.Join(home, ".claude.json"))
	ok(t, err)
	if strings.Contains(line, v.tokens[0]) || strings.Contains(string(kept), v.tokens[0]) {
		t.Error("Claude Code's configuration holds the token")
	}
}

// typescriptClient uses the client of @modelcontextprotocol/sdk, which `make agents` installs.
const typescriptClient = `
import {Client} from '@modelcontextprotocol/sdk/client/index.js';
import {StdioClientTransport} from '@modelcontextprotocol/sdk/client/stdio.js';
const [command, ...args] = process.argv.slice(2);
const client = new Client({name: 'ts-client', version: '1'});
await client.connect(new StdioClientTransport({command, args, env: process.env}));
const names = (await client.listTools()).tools.map(t => t.name);
const say = (what, value) => console.log(what + ' ' + JSON.stringify(value));
say('tools', names);
for (const path of ['allowed-ts', 'forbidden-ts', 'asked-ts'])
  say(path, await client.callTool({name: 'touch', arguments: {path}}));
const abort = new AbortController();
try {
  await client.callTool({name: 'linger', arguments: {path: 'allowed-ts-canceled'}}, undefined,
    {signal: abort.signal, onprogress: p => { say('progress', p); abort.abort('enough'); }});
} catch (e) { say('aborted', String(e)); }
say('after', await client.callTool({name: 'touch', arguments: {path: 'allowed-ts-2'}}));
await client.close();
`

// The client of the TypeScript SDK, which holds structured content against output schemas.
func TestMCPTypeScript(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(agentsDir(t), "mcp-typescript")
	if _, err := os.Stat(filepath.Join(dir, "node_modules/@modelcontextprotocol/sdk")); err != nil {
		t.Skip("the TypeScript SDK of MCP is not installed: run make agents")
	}
	w := startWrapped(t)
	script := filepath.Join(t.TempDir(), "client.mjs")
	ok(t, os.WriteFile(script, []byte(typescriptClient), 0o600))
	ok(t, os.Symlink(filepath.Join(dir, "node_modules"), filepath.Join(filepath.Dir(script), "node_modules")))
	gate := w.command(t, "Makes a file.")
	cmd := exec.Command("node", append([]string{script}, gate.Args...)...)
	cmd.Dir, cmd.Env = w.dir, gate.Env
	out := command(t, cmd).want(t, 0).out
	for what, want := range map[string]string{
		"tools ": `"touch"`, "allowed-ts ": `"structuredContent":{"made":"allowed-ts"}`, "forbidden-ts ": "This word is forbidden",
		"asked-ts ": `"countersign.dev/refusal":{"code":"ask"`, "progress ": "begun", "aborted ": "enough", "after ": "allowed-ts-2",
	} {
		if line := lineWith(out, what); !strings.HasPrefix(line, what) || !strings.Contains(line, want) {
			t.Errorf("%s: %q, want %q in\n%s", what, line, want, out)
		}
	}
	if !w.exists("allowed-ts") || w.exists("forbidden-ts") || w.exists("asked-ts") || !w.exists("allowed-ts-2") {
		t.Error("not what was allowed has run")
	}
}
