package e2e_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ToolHive itself, a Go program, with the decision point as its validating webhook: what is refused does not reach the
// server, what waits for a person runs once it is approved and repeated, and nothing runs without the decision point.
func TestMCPToolHive(t *testing.T) {
	t.Parallel()
	needSystem(t)
	thv := filepath.Join(agentsDir(t), "toolhive", "thv")
	if _, err := os.Stat(thv); err != nil {
		t.Skip("ToolHive is not installed: run make agents")
	}
	s := start(t, "--policy", policyDir(t, "mcp.yaml", mcpPolicies))
	dir := t.TempDir()
	w := wrapped{s, dir, cleanEnv("HOME="+dir, "XDG_CONFIG_HOME="+dir, "COUNTERSIGN_READY_FILE="+s.ready)}
	secret := filepath.Join(dir, "secret")
	ok(t, os.WriteFile(secret, []byte("0123456789abcdef"), 0o600)) // ToolHive takes a line break for a part of it
	decide := exec.Command(program("countersign-mcp"), "decide", "--listen", "127.0.0.1:0", "--toolhive-secret", secret, "--hold", "2s")
	decide.Env = w.env
	ended := make(chan error, 1)
	decider := listening(t, decide, "deciding at ", ended)
	c := w.toolHive(t, thv, decider, secret)
	touch := func(path string) string {
		t.Helper()
		r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "touch", Arguments: touchInput{filepath.Join(dir, path)}})
		if err != nil {
			return err.Error()
		}
		if made, err := json.Marshal(r.StructuredContent); err != nil || !strings.Contains(string(made), path) {
			t.Errorf("%s: %+v, %v", path, r, err)
		}
		return "ran"
	}
	for _, step := range []struct{ path, want string }{
		{"allowed-1", "ran"}, {"forbidden-1", "Request denied by policy"}, {"asked-1", "Request denied by policy"},
	} {
		if got := touch(step.path); !strings.Contains(got, step.want) {
			t.Errorf("%s: the client was told %s, want %s", step.path, got, step.want)
		}
	}
	waits, _ := s.review(t, 0, "list")["workflows"].([]any) // nil if there are none
	if len(waits) != 1 {
		t.Fatalf("%d calls wait: %v", len(waits), waits)
	}
	s.run(t, "approvals", "approve", waits[0].(map[string]any)["workflow_id"].(string), "--yes").want(t, 0)
	if got := touch("asked-1"); got != "ran" {
		t.Errorf("approved and repeated: %s", got)
	}
	if got := touch("asked-1"); !strings.Contains(got, "Request denied by policy") {
		t.Errorf("one approval, two calls: %s", got)
	}
	ok(t, decide.Process.Signal(syscall.SIGTERM))
	ok(t, <-ended)
	if got := touch("allowed-2"); !strings.Contains(got, "Request denied by policy") {
		t.Errorf("without a decision point: %s", got)
	}
	for path, made := range map[string]bool{"allowed-1": true, "forbidden-1": false, "asked-1": true, "allowed-2": false} {
		if w.exists(path) != made {
			t.Errorf("%s exists: %t, want %t", path, !made, made)
		}
	}
}

// toolHive starts ToolHive before a server that speaks HTTP, and connects to it.
func (w wrapped) toolHive(t *testing.T, thv, decider, secret string) *mcp.ClientSession {
	t.Helper()
	server := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return kitServer("Makes a file.") }, nil))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	webhooks := filepath.Join(w.dir, "webhooks.json")
	ok(t, os.WriteFile(webhooks, object{"validating": []object{{
		"name": "countersign", "url": decider + "/v1/webhooks/toolhive", "timeout": "10s", "failure_policy": "fail", "hmac_secret_ref": secret,
		"tls_config": object{"insecure_skip_verify": true}, // plain HTTP, on loopback
	}}}.bytes(), 0o600))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	port := free.Addr().(*net.TCPAddr).Port
	ok(t, free.Close())
	cmd := exec.Command(thv, "run", "--foreground", "--name", "kit", "--proxy-port", fmt.Sprint(port), "--webhook-config", webhooks, server.URL)
	cmd.Env = append(w.env, "TOOLHIVE_DOCKER_SOCKET="+noDocker(t), "TOOLHIVE_SKIP_UPDATE_CHECK=true")
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	p, err := launch(cmd)
	ok(t, err)
	t.Cleanup(func() { p.signal(syscall.SIGTERM); _ = p.wait() })
	var session *mcp.ClientSession
	eventually(t, "ToolHive serves", func() (err error) {
		client := mcp.NewClient(&mcp.Implementation{Name: "test-client", Version: "9"}, nil)
		session, err = client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: fmt.Sprintf("http://127.0.0.1:%d/mcp", port)}, nil)
		return err
	})
	t.Cleanup(func() { _ = session.Close() }) // ToolHive may have ended
	return session
}

// noDocker answers as Docker would that has no containers: ToolHive does not start without one, and needs it for no
// server that speaks HTTP.
func noDocker(t *testing.T) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "docker") // a socket's path must be short
	ok(t, err)
	t.Cleanup(func() { ok(t, os.RemoveAll(dir)) })
	socket = filepath.Join(dir, "socket")
	l, err := net.Listen("unix", socket)
	ok(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.50")
		if strings.HasSuffix(r.URL.Path, "/json") {
			fmt.Fprint(w, "[]")
		}
	})}
	go func() { _ = server.Serve(l) }() // until it is closed
	t.Cleanup(func() { ok(t, server.Close()) })
	return socket
}
