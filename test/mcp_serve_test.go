package e2e_test

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
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
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// served is `countersign-mcp serve` before three servers: kit is a command, far speaks HTTP without
// sessions, old HTTP with sessions. Two callers have tokens.
type served struct {
	wrapped
	url    string
	cmd    *exec.Cmd
	ended  chan error
	tokens [2]string

	mu      sync.Mutex
	seen    []string                // headers Authorization that the servers got
	servers map[string]http.Handler // those that speak HTTP, by path
}

func startServed(t *testing.T) *served {
	t.Helper()
	s := start(t, "--policy", policyDir(t, "mcp.yaml", strings.ReplaceAll(mcpPolicies, `"mcp__kit__*"`, `"mcp__kit__*", "mcp__far__*", "mcp__old__*"`)))
	v := &served{wrapped: wrapped{s, t.TempDir(), cleanEnv("XDG_CONFIG_HOME="+t.TempDir(), "COUNTERSIGN_READY_FILE="+s.ready)}, ended: make(chan error, 1)}
	registration := filepath.Join(t.TempDir(), "web2.json")
	ok(t, os.WriteFile(registration, []byte(`{"schema":"https://schemas.countersign.dev/countersign/publisher-registration/v1","publisher":"web2","gateway":"acme-gateway"}`), 0o600))
	s.run(t, "publisher", "put", registration).want(t, 0)
	var made struct{ Token string }
	ok(t, json.Unmarshal([]byte(s.run(t, "token", "create", "--role", "runtime", "--for", "web2", "--json").want(t, 0).out), &made))
	v.tokens = [2]string{s.gateway(t).Roles["runtime"].Token, made.Token}
	v.serve(t, v.upstreams(t))
	return v
}

// upstreams starts the two servers that speak HTTP, and returns the flags that name all three.
func (v *served) upstreams(t *testing.T) []string {
	t.Helper()
	self, err := os.Executable()
	ok(t, err)
	v.servers = map[string]http.Handler{"/far": overHTTP(true), "/old": overHTTP(false)}
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.mu.Lock()
		v.seen = append(v.seen, r.URL.Path+" "+r.Header.Get("Authorization"))
		h := v.servers[r.URL.Path]
		v.mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(far.Close)
	t.Cleanup(far.CloseClientConnections)
	token := filepath.Join(t.TempDir(), "token")
	ok(t, os.WriteFile(token, []byte("upstream-token\n"), 0o600))
	return []string{"--upstream", "kit=" + self, "--upstream", "far=" + far.URL + "/far", "--upstream", "old=" + far.URL + "/old", "--upstream-token", "far=" + token}
}

// overHTTP is a new server, which knows no session.
func overHTTP(stateless bool) http.Handler {
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return kitServer("Makes a file.") },
		&mcp.StreamableHTTPOptions{Stateless: stateless, PropagateRequestCancellation: true})
}

func (v *served) serve(t *testing.T, flags []string) {
	t.Helper()
	v.cmd = exec.Command(program("countersign-mcp"), append([]string{"serve", "--listen", "127.0.0.1:0", "--hold", "3s"}, flags...)...)
	v.cmd.Dir, v.cmd.Env = v.dir, append(v.env, mcpServerEnv+"=Makes a file.")
	v.url = strings.TrimSuffix(listening(t, v.cmd, "serving kit at ", v.ended), "/kit")
}

// listening starts a program and returns the address that follows some words on its standard error.
func listening(t *testing.T, cmd *exec.Cmd, words string, ended chan error) (url string) {
	t.Helper()
	out, err := cmd.StderrPipe()
	ok(t, err)
	ok(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for url == "" && lines.Scan() {
		_, url, _ = strings.Cut(lines.Text(), words)
	}
	if url == "" {
		t.Fatal("the gate does not listen")
	}
	go func() {
		_, _ = io.Copy(io.Discard, out) // its notes
		ended <- cmd.Wait()
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, usually
	return url
}

// The decision point as ToolHive and Docker's gateway ask it, before the real gateway.
func testDecide(t *testing.T, v *served) {
	secret := filepath.Join(t.TempDir(), "secret")
	ok(t, os.WriteFile(secret, []byte("0123456789abcdef\n"), 0o600))
	cmd := exec.Command(program("countersign-mcp"), "decide", "--listen", "127.0.0.1:0", "--toolhive-secret", secret, "--docker", "kit")
	cmd.Env = v.env
	ended := make(chan error, 1)
	url := listening(t, cmd, "deciding at ", ended)
	post := func(path, body string, header ...string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), "POST", url+path, strings.NewReader(body))
		ok(t, err)
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		answer, err := http.DefaultClient.Do(r)
		ok(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		ok(t, err)
		return answer.StatusCode, string(text)
	}
	for path, want := range map[string]string{"allowed-docker": "", "forbidden-docker": `"isError":true`} {
		status, text := post("/v1/interceptors/docker", `{"method":"tools/call","params":{"name":"touch","arguments":{"path":"`+path+`"}}}`)
		if status != http.StatusOK || want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	for path, want := range map[string]string{"allowed-hive": `"allowed":true`, "forbidden-hive": `"allowed":false`} {
		body := `{"version":"v0.1.0","uid":"u1","principal":null,"mcp_request":{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"touch","arguments":{"path":"` + path + `"}}},"context":{"server_name":"kit"}}`
		stamp := fmt.Sprint(time.Now().Unix())
		sum := hmac.New(sha256.New, []byte("0123456789abcdef"))
		sum.Write([]byte(stamp + "." + body))
		status, text := post("/v1/webhooks/toolhive", body, "X-ToolHive-Timestamp", stamp, "X-ToolHive-Signature", fmt.Sprintf("sha256=%x", sum.Sum(nil)))
		if status != http.StatusOK || !strings.Contains(text, want) || !strings.Contains(text, `"uid":"u1"`) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	ok(t, cmd.Process.Signal(syscall.SIGTERM))
	ok(t, <-ended)
}

// bearer adds a token to requests.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func (v *served) dial(t *testing.T, server, version string, caller int, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test-client", Version: "9"}, o)
	c.AddRoots(&mcp.Root{URI: "file:///allowed", Name: "r"}) //nolint:staticcheck // SA1019: clients of older revisions answer
	session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: v.url + "/" + server, HTTPClient: &http.Client{Transport: bearer(v.tokens[caller])}},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	ok(t, err)
	t.Cleanup(func() { _ = session.Close() }) // some tests have closed it
	return session
}

// The SDK's own client through `serve`, before a command and before servers that speak HTTP, in all
// revisions; two callers that have nothing in common.
func TestMCPServe(t *testing.T) {
	t.Parallel()
	v := startServed(t)
	t.Run("calls", func(t *testing.T) { testServeCalls(t, v) })
	t.Run("callers", func(t *testing.T) { testServeCallers(t, v) })
	t.Run("doors", func(t *testing.T) { testServeDoors(t, v) })
	t.Run("passes", func(t *testing.T) { testServePasses(t, v) })
	t.Run("restart", func(t *testing.T) { testServeRestart(t, v) })
	t.Run("typescript", func(t *testing.T) { testServeTypeScript(t, v) })
	t.Run("claude-code", func(t *testing.T) { testServeClaudeCode(t, v) })
	t.Run("decide", func(t *testing.T) { testDecide(t, v) })
	t.Run("agentgateway", func(t *testing.T) { testDecideAgentGateway(t, v) })
	ok(t, v.cmd.Process.Signal(syscall.SIGTERM))
	ok(t, <-v.ended)
	v.settle(t)
	if found := v.run(t, "findings", "--json").out; found != "" {
		t.Errorf("findings:\n%s", found)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, seen := range v.seen {
		if seen != "/old " && seen != "/far Bearer upstream-token" {
			t.Errorf("a server got the header Authorization: %s", seen)
		}
	}
}

func testServeCalls(t *testing.T, v *served) {
	for _, at := range []string{"kit", "kit 2025-11-25", "kit 2025-06-18", "far", "far 2025-11-25", "old 2025-11-25", "old 2025-06-18"} {
		server, version, _ := strings.Cut(at, " ")
		c := v.dial(t, server, version, 0, nil)
		if got := list(t, c); got != "linger question touch" {
			t.Errorf("%s: tools %s", at, got)
		}
		allowed, denied := filepath.Join(v.dir, "allowed-"+at), filepath.Join(v.dir, "forbidden-"+at)
		r, text := touch(t, c, "touch", allowed)
		if _, err := os.Stat(allowed); r.IsError || r.Meta["kit/echo"] != "back" || err != nil {
			t.Errorf("%s: an allowed call: %s, %v", at, text, err)
		}
		r, text = touch(t, c, "touch", denied)
		if _, err := os.Stat(denied); !r.IsError || !strings.Contains(text, "This word is forbidden. (deny)") || err == nil {
			t.Errorf("%s: a denied call: %s", at, text)
		}
		ok(t, c.Close())
	}
}

// What one caller was allowed, another is not; sessions and accepted definitions are a caller's own.
func testServeCallers(t *testing.T, v *served) {
	one, two := v.dial(t, "kit", "2025-11-25", 0, nil), v.dial(t, "kit", "2025-11-25", 1, nil)
	list(t, one)
	list(t, two)
	const path = "asked-callers"
	r, text := touch(t, one, "touch", path)
	refusal, _ := r.Meta["countersign.dev/refusal"].(map[string]any)
	workflow, _ := refusal["workflow_id"].(string)
	if workflow == "" {
		t.Fatalf("a call that waits for a person: %s", text)
	}
	v.run(t, "approvals", "approve", workflow, "--yes", "--reason", "looked at it").want(t, 0)
	if r, text := touch(t, two, "touch", path); !r.IsError || strings.Contains(text, workflow) || v.exists(path) {
		t.Errorf("another caller's approval: %s", text)
	}
	if r, text := touch(t, one, "touch", path); r.IsError || !v.exists(path) {
		t.Errorf("after the approval: %s", text)
	}
	if r, _ := touch(t, one, "touch", path); !r.IsError {
		t.Error("one approval, two calls")
	}
	// Without a session, too, the repeated call is the one that was approved.
	free := v.dial(t, "kit", "", 1, nil)
	list(t, free)
	r, text = touch(t, free, "touch", "asked-free")
	refusal, _ = r.Meta["countersign.dev/refusal"].(map[string]any)
	if workflow, _ = refusal["workflow_id"].(string); workflow == "" {
		t.Fatalf("without a session: %s", text)
	}
	v.run(t, "approvals", "approve", workflow, "--yes", "--reason", "looked at it").want(t, 0)
	if r, text := touch(t, free, "touch", "asked-free"); r.IsError || !v.exists("asked-free") {
		t.Errorf("without a session, after the approval: %s", text)
	}
	for caller, want := range []int{http.StatusAccepted, http.StatusNotFound} {
		status, _, _ := v.raw(t, "POST", "/kit", v.tokens[caller], `{"jsonrpc":"2.0","method":"notifications/x"}`, "Mcp-Session-Id", one.ID())
		if status != want {
			t.Errorf("caller %d in the session of caller 0: status %d, want %d", caller, status, want)
		}
	}
	pins, err := filepath.Glob(filepath.Join(strings.TrimPrefix(v.env[len(v.env)-2], "XDG_CONFIG_HOME="), "countersign/mcp-pins/callers/*/kit.json"))
	if ok(t, err); len(pins) != 2 {
		t.Errorf("files with accepted definitions: %v", pins)
	}
}

// raw sends a request with headers, given by name and value.
func (v *served) raw(t *testing.T, method, path, token, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, v.url+path, strings.NewReader(body))
	ok(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i+1 < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	answer, err := http.DefaultClient.Do(r)
	ok(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	ok(t, err)
	return answer.StatusCode, answer.Header, string(text)
}

// What a request needs before a server sees anything of it.
func testServeDoors(t *testing.T, v *served) {
	const ping, listTools = `{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"touch","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	token := v.tokens[0]
	modern := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "touch"}
	with := func(name, value string) []string { return append(append([]string{}, modern...), name, value) }
	for name, c := range map[string]struct {
		method, path, token, body string
		header                    []string
		status                    int
	}{
		"no token":                {"POST", "/kit", "", ping, nil, 401},
		"no token, no server":     {"POST", "/none", "", ping, nil, 401},
		"a wrong token":           {"POST", "/kit", "x" + token, ping, nil, 401},
		"a token of another role": {"POST", "/kit", v.gateway(t).Roles["subscriber"].Token, ping, nil, 403},
		"another server":          {"POST", "/none", token, ping, nil, 404},
		"another host":            {"POST", "/kit", token, ping, []string{"Host", "evil.example"}, 403},
		"a web page":              {"POST", "/kit", token, ping, []string{"Origin", "https://evil.example"}, 403},
		"a page without origin":   {"POST", "/kit", token, ping, []string{"Origin", "null"}, 403},
		"no session":              {"POST", "/kit", token, ping, nil, 400},
		"a made-up session":       {"POST", "/kit", token, ping, []string{"Mcp-Session-Id", "x"}, 404},
		"a GET without session":   {"GET", "/kit", token, "", nil, 400},
		"a batch":                 {"POST", "/kit", token, "[" + ping + "]", nil, 400},
		"a member twice":          {"POST", "/kit", token, `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`, nil, 400},
		"a form":                  {"POST", "/kit", token, ping, []string{"Content-Type", "text/plain"}, 415},
		"too much":                {"POST", "/kit", token, `{"x":"` + strings.Repeat("x", 5<<20) + `"}`, nil, 413},
		"a revision to come":      {"POST", "/kit", token, ping, []string{"Mcp-Protocol-Version", "2031-01-01"}, 400},
		"another method above":    {"POST", "/kit", token, listTools, with("Mcp-Method", "tools/list"), 400},
		"another tool above":      {"POST", "/kit", token, listTools, with("Mcp-Name", "linger"), 400},
		"another revision within": {"POST", "/kit", token, strings.Replace(listTools, "2026", "2025", 1), modern, 400},
		"a PUT":                   {"PUT", "/kit", token, ping, nil, 405},
	} {
		status, header, text := v.raw(t, c.method, c.path, c.token, c.body, c.header...)
		if status != c.status || strings.Contains(text, token) {
			t.Errorf("%s: status %d, want %d: %s", name, status, c.status, text)
		}
		if scheme := header.Get("WWW-Authenticate"); c.status == 401 && scheme != "Bearer" {
			t.Errorf("%s: WWW-Authenticate: %s", name, scheme)
		}
	}
}

// Progress, cancellation, questions of the server and resources pass, with and without a session.
func testServePasses(t *testing.T, v *served) {
	for _, at := range []string{"kit 2025-11-25", "kit", "far", "old 2025-11-25"} {
		server, version, _ := strings.Cut(at, " ")
		progress := make(chan string, 8)
		c := v.dial(t, server, version, 0, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			progress <- r.Params.Message
		}})
		list(t, c)
		path := filepath.Join(v.dir, "allowed-canceled-"+at)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			params := &mcp.CallToolParams{Name: "linger", Arguments: touchInput{path}, Meta: mcp.Meta{}}
			params.SetProgressToken("p1")
			_, err := c.CallTool(ctx, params)
			done <- err
		}()
		if text := <-progress; text != "begun" {
			t.Errorf("%s: progress: %s", at, text)
		}
		cancel()
		if err := <-done; err == nil {
			t.Errorf("%s: a cancelled call has a result", at)
		}
		eventually(t, at+": the server learns of the cancellation", func() error {
			_, err := os.Stat(path)
			return err
		})
		if r, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "kit://note"}); err != nil || r.Contents[0].Text != "a note" {
			t.Errorf("%s: a resource: %v, %v", at, r, err)
		}
		if version != "" {
			if r, text := touch(t, c, "question", "allowed-question"); r.IsError || text != "file:///allowed" {
				t.Errorf("%s: the server's question to the client: %s", at, text)
			}
		}
		ok(t, c.Close())
	}
}

// When a server was started again, the session that it does not know is over for the client, too, which begins anew.
func testServeRestart(t *testing.T, v *served) {
	c := v.dial(t, "old", "2025-11-25", 0, nil)
	list(t, c)
	v.mu.Lock()
	v.servers["/old"] = overHTTP(false)
	v.mu.Unlock()
	params := &mcp.CallToolParams{Name: "touch", Arguments: touchInput{filepath.Join(v.dir, "allowed-restart")}}
	if _, err := c.CallTool(t.Context(), params); err == nil || !strings.Contains(err.Error(), "the server has ended the session") || v.exists("allowed-restart") {
		t.Errorf("a call in a session that the server does not know: %v", err)
	}
	eventually(t, "the client's session ends", func() error {
		status, _, text := v.raw(t, "POST", "/old", v.tokens[0], `{"jsonrpc":"2.0","method":"notifications/x"}`, "Mcp-Session-Id", c.ID())
		if status != http.StatusNotFound {
			return errorf("status %d: %s", status, text)
		}
		return nil
	})
	again := v.dial(t, "old", "2025-11-25", 0, nil)
	list(t, again)
	if r, text := touch(t, again, "touch", params.Arguments.(touchInput).Path); r.IsError || !v.exists("allowed-restart") {
		t.Errorf("in a new session: %s", text)
	}
}

// typescriptOverHTTP makes the client of typescriptClient one that speaks HTTP.
var typescriptOverHTTP = strings.NewReplacer(
	`import {StdioClientTransport} from '@modelcontextprotocol/sdk/client/stdio.js';`, `import {StreamableHTTPClientTransport} from '@modelcontextprotocol/sdk/client/streamableHttp.js';`,
	`const [command, ...args] = process.argv.slice(2);`, `const [url, token, dir] = process.argv.slice(2);`,
	`new StdioClientTransport({command, args, env: process.env})`, `new StreamableHTTPClientTransport(new URL(url), {requestInit: {headers: {Authorization: 'Bearer ' + token}}})`,
	`arguments: {path}`, `arguments: {path: dir + path}`, `path: 'allowed-ts`, `path: dir + 'allowed-ts`,
)

func testServeTypeScript(t *testing.T, v *served) {
	packages := filepath.Join(agentsDir(t), "mcp-typescript", "node_modules")
	if _, err := os.Stat(filepath.Join(packages, "@modelcontextprotocol/sdk")); err != nil {
		t.Skip("the TypeScript SDK of MCP is not installed: run make agents")
	}
	script := filepath.Join(t.TempDir(), "client.mjs")
	ok(t, os.WriteFile(script, []byte(typescriptOverHTTP.Replace(typescriptClient)), 0o600))
	ok(t, os.Symlink(packages, filepath.Join(filepath.Dir(script), "node_modules")))
	for _, server := range []string{"kit", "old"} {
		dir := t.TempDir() + "/"
		cmd := exec.Command("node", script, v.url+"/"+server, v.tokens[0], dir)
		out := command(t, cmd).want(t, 0).out
		for what, want := range map[string]string{
			"tools ": `"touch"`, "allowed-ts ": `allowed-ts"}`, "forbidden-ts ": "This word is forbidden",
			"asked-ts ": `"countersign.dev/refusal":{"code":"ask"`, "progress ": "begun", "aborted ": "enough", "after ": "allowed-ts-2",
		} {
			if line := lineWith(out, what); !strings.HasPrefix(line, what) || !strings.Contains(line, want) {
				t.Errorf("%s: %s: %q, want %q in\n%s", server, what, line, want, out)
			}
		}
		files, err := filepath.Glob(dir + "*-ts*")
		ok(t, err)
		for _, file := range files {
			if name := filepath.Base(file); name != "allowed-ts" && name != "allowed-ts-2" && name != "allowed-ts-canceled" {
				t.Errorf("%s: %s was made", server, name)
			}
		}
	}
}
