package e2e_test

import (
	"encoding/json"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// conformancePolicy allows what the suite calls.
const conformancePolicy = `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: conformance}
spec:
  match: {tools: ["mcp__url__*", "mcp__command__*"]}
  rules:
    - {name: all, when: 'true', verdict: allow, reason: conformance}
`

// The conformance suite of the MCP project against the server that the Go SDK has for it, alone and
// through `serve`, as a URL and as a command: no check that passes alone fails through the gate. make
// adapters installs the suite.
func TestMCPConformance(t *testing.T) {
	suite := filepath.Join(os.Getenv(adaptersEnv), "mcp-conformance/node_modules")
	if _, err := os.Stat(filepath.Join(suite, "@modelcontextprotocol/conformance")); err != nil {
		t.Skip("COUNTERSIGN_ADAPTERS names no installed conformance suite of MCP: make adapters")
	}
	s := start(t, "--policy", policyDir(t, "conformance.yaml", conformancePolicy))
	server := filepath.Join(t.TempDir(), "everything-server")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", server, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	build.Dir = root
	command(t, build).want(t, 0)
	address := freeAddress(t)
	alone := exec.Command(server, "-http", address, "-stateless=false")
	ok(t, alone.Start())
	t.Cleanup(func() { _ = alone.Process.Kill(); _ = alone.Wait() })
	eventually(t, "the server listens", func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			ok(t, c.Close())
		}
		return err
	})
	gate := exec.Command(program("countersign-mcp"), "serve", "--listen", "127.0.0.1:0", "--upstream", "url=http://"+address, "--upstream", "command="+server)
	gate.Env = cleanEnv("XDG_CONFIG_HOME="+t.TempDir(), "COUNTERSIGN_READY_FILE="+s.ready)
	ended := make(chan error, 1)
	at, err := url.Parse(listening(t, gate, "serving command at ", ended))
	ok(t, err)
	proxy := withToken(t, at.Host, s.gateway(t).Roles["runtime"].Token)

	want := conformance(t, suite, "http://"+address+"/")
	if len(want) < 40 {
		t.Fatalf("the suite has made %d checks", len(want))
	}
	for _, path := range []string{"/url", "/command"} {
		got := conformance(t, suite, proxy+path)
		for check, status := range want {
			// The suite says INFO where a server gives one answer as JSON, as the gate does, and not as a stream.
			if status == "SUCCESS" && got[check] != status && (got[check] != "INFO" || check != "server-sse-multiple-streams server-sse-streams-functional") {
				t.Errorf("%s: %s: %q through the gate, %s without it", path, check, got[check], status)
			}
		}
	}
	ok(t, gate.Process.Signal(syscall.SIGTERM))
	ok(t, <-ended)
	s.settle(t)
	if found := s.run(t, "findings", "--json").out; found != "" {
		t.Errorf("findings:\n%s", found)
	}
}

// withToken is a proxy that adds a token to requests: the suite has none. The gate sees its own name, and
// any other that the suite invents.
func withToken(t *testing.T, gate, token string) (address string) {
	t.Helper()
	var self string
	s := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: gate})
		if r.In.Host != self {
			r.Out.Host = r.In.Host
		}
		r.Out.Header.Set("Authorization", "Bearer "+token)
		if r.In.Header.Get("Origin") == "http://"+self {
			r.Out.Header.Set("Origin", "http://"+gate)
		}
	}})
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	self = s.Listener.Addr().String()
	return s.URL
}

// conformance runs the suite and returns the status of each check, by scenario and id.
func conformance(t *testing.T, suite, address string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(filepath.Join(suite, ".bin/node"), filepath.Join(suite, "@modelcontextprotocol/conformance/dist/index.js"), "server", "--url", address, "-o", dir)
	cmd.Env = cleanEnv("HOME=" + t.TempDir())
	command(t, cmd) // its exit code says whether all checks pass
	files, err := filepath.Glob(filepath.Join(dir, "server-*", "checks.json"))
	ok(t, err)
	status := map[string]string{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		ok(t, err)
		var checks []struct{ ID, Status string }
		ok(t, json.Unmarshal(b, &checks))
		scenario := resultTime.ReplaceAllString(strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "server-"), "")
		for _, c := range checks {
			status[scenario+" "+c.ID] = c.Status
		}
	}
	return status
}

// resultTime ends the names of the suite's folders.
var resultTime = regexp.MustCompile(`-\d{4}-\d\d-\d\dT.*$`)
