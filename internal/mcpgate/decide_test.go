package mcpgate

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/gateclient"
)

const toolHiveSecret = "0123456789abcdef0123"

// newDecider is a decider before a gateway.
func newDecider(t *testing.T, gateway http.Handler) *Decider {
	t.Helper()
	s := httptest.NewServer(gateway)
	t.Cleanup(s.Close)
	dir := t.TempDir()
	for name, text := range map[string]string{"token": "secret-token", "key": "countersign.dev/checkpoint+0+A"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := gateclient.Config{Gateway: s.URL, TokenFile: filepath.Join(dir, "token"), PublicKeyFile: filepath.Join(dir, "key"), Tenant: "acme", Publisher: "runtime"}
	d := NewDecider(DecideOptions{Peer: config.Peer, Hold: time.Second, Secrets: []string{"another-secret-0000", toolHiveSecret}, Docker: "docker", Err: &buffer{}})
	t.Cleanup(d.Close)
	return d
}

func (d *Decider) ask(path, body string, header map[string]string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

// signed are the headers of a body that was signed at a time.
func signed(secret, body string, at time.Time) map[string]string {
	stamp := fmt.Sprint(at.Unix())
	sum := hmac.New(sha256.New, []byte(secret))
	sum.Write([]byte(stamp + "." + body))
	return map[string]string{"X-ToolHive-Timestamp": stamp, "X-ToolHive-Signature": fmt.Sprintf("sha256=%x", sum.Sum(nil))}
}

func toolHiveBody(server, message string) string {
	return `{"version":"v0.1.0","uid":"u-1","timestamp":"2026-11-26T00:00:00Z","principal":{"subject":"dana"},"mcp_request":` + message + `,"context":{"server_name":"` + server + `","source_ip":"192.0.2.1","transport":"sse"}}`
}

const denies = `{"event_id":"x","decision":"deny","reason":"too risky"}`

// ToolHive is answered as its webhooks are; whatever is no decision has status 422, which is a denial
// under every failure policy.
func TestToolHive(t *testing.T) {
	d := newDecider(t, answer(200, map[string]string{"Countersign-Verdict": "deny"}, denies))
	now := time.Now()
	d.now = func() time.Time { return now }
	governed := toolHiveBody("files", call)
	for name, c := range map[string]struct {
		body   string
		header map[string]string
		status int
		want   string
	}{
		"a denied call":               {governed, signed(toolHiveSecret, governed, now), 200, `"allowed":false`},
		"the older secret":            {governed, signed("another-secret-0000", governed, now), 200, `"allowed":false`},
		"what needs no admission":     {toolHiveBody("files", `{ "jsonrpc":"2.0",`+"\n"+`"id":1,"method":"tools/list"}`), nil, 200, `"allowed":true`},
		"no signature":                {governed, map[string]string{}, 422, "signature"},
		"another body":                {governed, signed(toolHiveSecret, governed+" ", now), 422, "signature"},
		"another secret":              {governed, signed("x"+toolHiveSecret, governed, now), 422, "signature"},
		"no secret":                   {governed, signed("", governed, now), 422, "signature"},
		"an old signature":            {governed, signed(toolHiveSecret, governed, now.Add(-6*time.Minute)), 422, "time"},
		"a signature to come":         {governed, signed(toolHiveSecret, governed, now.Add(6*time.Minute)), 422, "time"},
		"another version":             {strings.Replace(governed, "v0.1.0", "v9", 1), nil, 422, "version"},
		"no uid":                      {strings.Replace(governed, "u-1", "", 1), nil, 422, "version"},
		"a batch":                     {toolHiveBody("files", "["+call+"]"), nil, 422, "passed on"},
		"a method twice":              {toolHiveBody("files", `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`), nil, 422, "passed on"},
		"no message":                  {toolHiveBody("files", `null`), nil, 422, "passed on"},
		"a call without an id":        {toolHiveBody("files", `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"t"}}`), nil, 200, `"allowed":false`},
		"input for a running call":    {toolHiveBody("files", `{"jsonrpc":"2.0","id":1,"method":"tasks/update","params":{}}`), nil, 200, `"allowed":false`},
		"such input without an id":    {toolHiveBody("files", `{"jsonrpc":"2.0","method":"tasks/update","params":{}}`), nil, 200, `"allowed":false`},
		"a server that is none":       {toolHiveBody("a__b", call), nil, 200, `"reason":"bad_call"`},
		"arguments that are none":     {toolHiveBody("files", strings.Replace(call, `{}`, `{"a":1,"A":2}`, 1)), nil, 200, `"reason":"bad_call"`},
		"a body that is too long":     {strings.Repeat(" ", maxBody) + governed, nil, 422, ""},
		"a signed body that is empty": {"", nil, 422, "version"},
	} {
		if c.header == nil {
			c.header = signed(toolHiveSecret, c.body, now)
		}
		w := d.ask(ToolHivePath, c.body, c.header)
		text := w.Body.String()
		if w.Code != c.status || !strings.Contains(text, c.want) || strings.Contains(text, "secret") && !strings.Contains(text, "secret which is known") {
			t.Errorf("%s: %d %s, want %d and %s", name, w.Code, text, c.status, c.want)
		}
		var a struct{ Version, UID string }
		if w.Code == 200 && (json.Unmarshal(w.Body.Bytes(), &a) != nil || a.Version != "v0.1.0" || a.UID != "u-1") {
			t.Errorf("%s: the answer is not to the request: %s", name, text)
		}
	}
	down := newDecider(t, answer(503, nil, `{}`))
	if w := down.ask(ToolHivePath, governed, signed(toolHiveSecret, governed, time.Now())); w.Code != 422 {
		t.Errorf("without a gateway: %d %s", w.Code, w.Body)
	}
}

// Docker's gateway goes on if an answer is empty, whatever its status: every refusal and every failure has
// a body.
func TestDocker(t *testing.T) {
	d := newDecider(t, answer(200, map[string]string{"Countersign-Verdict": "deny"}, denies))
	for name, c := range map[string]struct{ body, want string }{
		"a denied call":        {`{"method":"tools/call","params":{"name":"t","arguments":{}}}`, "too risky"},
		"no body":              {``, "bad_call"},
		"garbage":              {`hello`, "bad_call"},
		"a method twice":       {`{"method":"ping","method":"tools/call","params":{"name":"t"}}`, "bad_call"},
		"another case":         {`{"method":"ping","Method":"tools/call","params":{"name":"t"}}`, "bad_call"},
		"no params":            {`{"method":"tools/call"}`, "bad_call"},
		"an argument twice":    {`{"method":"tools/call","params":{"name":"t","arguments":{"a":1,"a":2}}}`, "bad_call"},
		"too long":             {`{"method":"tools/call","x":"` + strings.Repeat("x", maxBody) + `"}`, "bad_call"},
		"what is not governed": {`{"method":"tools/list","params":{}}`, ""},
	} {
		w := d.ask(DockerPath, c.body, nil)
		var result struct{ IsError bool }
		_ = json.Unmarshal(w.Body.Bytes(), &result)
		if w.Code != 200 || result.IsError != (c.want != "") || (w.Body.Len() == 0) != (c.want == "") || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %q", name, w.Code, w.Body)
		}
	}
	governed := `{"method":"tools/call","params":{"name":"t","arguments":{}}}`
	d.o.Docker = ""
	down := newDecider(t, answer(503, nil, `{}`))
	for name, w := range map[string]*httptest.ResponseRecorder{
		"without --docker": d.ask(DockerPath, governed, nil), "without a gateway": down.ask(DockerPath, governed, nil),
		"from a web page": d.ask(DockerPath, governed, map[string]string{"Origin": "http://localhost"}), "elsewhere": d.ask("/", governed, nil),
	} {
		if w.Body.Len() == 0 {
			t.Errorf("%s: an empty answer, status %d: Docker's gateway goes on", name, w.Code)
		}
	}
}

// One caller's call that waits for a person is not the identical one of another.
func TestCallersOfGateways(t *testing.T) {
	var workflows []string
	d := newDecider(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var event struct {
			Type string `json:"event_type"`
		}
		_ = json.NewDecoder(r.Body).Decode(&event)
		if event.Type == "PreToolUse" {
			workflows = append(workflows, r.Header.Get("Countersign-Workflow-Id"))
			answer(200, map[string]string{"Countersign-Verdict": "ask"}, `{"event_id":"x","decision":"ask","reason":"?","metadata":{"approval":{"workflow_id":"w1"}}}`)(w, r)
		}
	}))
	one := toolHiveBody("files", call)
	two := strings.Replace(one, "dana", "eve", 1)
	for _, body := range []string{one, two, one} {
		w := d.ask(ToolHivePath, body, signed(toolHiveSecret, body, time.Now()))
		if !bytes.Contains(w.Body.Bytes(), []byte(`"workflow_id":"w1"`)) {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	// Each call is asked for, and once more before it is refused.
	if got := fmt.Sprintf("%q", workflows); got != `["" "w1" "" "w1" "w1" "w1"]` {
		t.Errorf("the calls went on waiting for the workflows %s", got)
	}
}

// What is no question is answered as a denial, too, and Docker's gateway on this machine only: it shows no
// secret.
func TestDecideRefusesWhatItDoesNotKnow(t *testing.T) {
	d := newDecider(t, answer(503, nil, `{}`))
	for name, c := range map[string]struct{ path, origin string }{"another path": {ToolHivePath + "/", ""}, "a web page": {ToolHivePath, "https://evil.example"}} {
		header := signed(toolHiveSecret, "{}", time.Now())
		if c.origin != "" {
			header["Origin"] = c.origin
		}
		if w := d.ask(c.path, "{}", header); w.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	if err := Decide(t.Context(), DecideOptions{Listen: "0.0.0.0:0", Cert: "cert.pem", Key: "key.pem", Docker: "tools"}); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("Docker's gateway beyond loopback: %v", err)
	}
}
