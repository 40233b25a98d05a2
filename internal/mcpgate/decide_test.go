package mcpgate

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/gateclient"
	"github.com/countersign-dev/countersign/mcp"
)

const toolHiveSecret = "0123456789abcdef0123"

// startDecider is a decider before a gateway.
func startDecider(t *testing.T, gateway http.Handler) *decider {
	t.Helper()
	s := httptest.NewServer(gateway)
	t.Cleanup(s.Close)
	peer := peerAt(t, s.URL)
	d := newDecider(DecideOptions{Peer: func() (gateclient.Peer, error) { return peer, nil }, Hold: time.Second, Secrets: []string{"another-secret-0000", toolHiveSecret}, Docker: "docker", Err: &buffer{}})
	t.Cleanup(d.Close)
	return d
}

func (d *decider) ask(path, body string, header map[string]string) *httptest.ResponseRecorder {
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

// dana is the caller of toolHiveBody.
const dana = `{"subject":"dana"}`

const denies = `{"event_id":"x","decision":"deny","reason":"too risky"}`

// ToolHive is answered as its webhooks are; whatever is no decision has status 422, which is a denial
// under every failure policy.
func TestToolHive(t *testing.T) {
	d := startDecider(t, answer(200, map[string]string{"Countersign-Verdict": "deny"}, denies))
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
	down := startDecider(t, answer(503, nil, `{}`))
	if w := down.ask(ToolHivePath, governed, signed(toolHiveSecret, governed, time.Now())); w.Code != 422 {
		t.Errorf("without a gateway: %d %s", w.Code, w.Body)
	}
}

// Docker's gateway goes on if an answer is empty, whatever its status: every refusal and every failure has
// a body.
func TestDocker(t *testing.T) {
	d := startDecider(t, answer(200, map[string]string{"Countersign-Verdict": "deny"}, denies))
	for name, c := range map[string]struct{ body, want string }{
		"a denied call":        {`{"method":"tools/call","params":{"name":"t","arguments":{}}}`, "too risky"},
		"no body":              {``, "bad_call"},
		"garbage":              {`hello`, "bad_call"},
		"a method twice":       {`{"method":"ping","method":"tools/call","params":{"name":"t"}}`, "bad_call"},
		"another case":         {`{"method":"ping","Method":"tools/call","params":{"name":"t"}}`, "bad_call"},
		"no params":            {`{"method":"tools/call"}`, "bad_call"},
		"a method in capitals": {`{"method":"Tools/Call","params":{"name":"t","arguments":{}}}`, "bad_call"},
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
	down := startDecider(t, answer(503, nil, `{}`))
	for name, w := range map[string]*httptest.ResponseRecorder{
		"without --docker": d.ask(DockerPath, governed, nil), "without a gateway": down.ask(DockerPath, governed, nil),
		"from a web page": d.ask(DockerPath, governed, map[string]string{"Origin": "http://localhost"}), "elsewhere": d.ask("/", governed, nil),
	} {
		if w.Body.Len() == 0 {
			t.Errorf("%s: an empty answer, status %d: Docker's gateway goes on", name, w.Code)
		}
	}
}

// asks is a gateway that has every call wait for the person of workflow w1, and notes the workflow for
// which each was sent.
func asks(workflows *[]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var event struct {
			Type string `json:"event_type"`
		}
		_ = json.NewDecoder(r.Body).Decode(&event)
		if event.Type == "PreToolUse" {
			*workflows = append(*workflows, r.Header.Get("Countersign-Workflow-Id"))
			answer(200, map[string]string{"Countersign-Verdict": "ask"}, `{"event_id":"x","decision":"ask","reason":"?","metadata":{"approval":{"workflow_id":"w1"}}}`)(w, r)
		}
	}
}

// hive asks as ToolHive does for a principal, under an id of its own.
func (d *decider) hive(t *testing.T, uid, principal, message string) string {
	t.Helper()
	body := strings.NewReplacer("u-1", uid, `{"subject":"dana"}`, principal).Replace(toolHiveBody("files", message))
	w := d.ask(ToolHivePath, body, signed(toolHiveSecret, body, d.now()))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// One caller's call that waits for a person is not the identical one of another; it is the same under the
// caller's next token.
func TestCallersOfGateways(t *testing.T) {
	var workflows []string
	d := startDecider(t, asks(&workflows))
	// ToolHive calls the subject sub (0.47.0).
	const hive, hiveLater = `{"sub":"dana","name":"Dana","claims":{"iss":"a","exp":1,"scope":"x"}}`, `{"sub":"dana","name":"D.","claims":{"iss":"a","exp":2,"scope":"y"}}`
	const dana, later, eve, elsewhere = `{"subject":"dana","claims":{"iss":"a","exp":1,"jti":"x"}}`, `{"claims":{"uti":"z","jti":"y","iss":"a","exp":2},"subject":"dana"}`,
		`{"subject":"eve","claims":{"iss":"a"}}`, `{"subject":"dana","claims":{"iss":"b"}}`
	const number, next = `{"sub":17527760684230403,"claims":{"iss":"a"}}`, `{"sub":17527760684230404,"claims":{"iss":"a"}}` // one double
	const claim, nextClaim = `{"claims":{"user_id":1152921504606846977}}`, `{"claims":{"user_id":1152921504606846978}}`
	for i, c := range []struct {
		principal string
		waits     bool
	}{{number, false}, {next, false}, {number, true}, {claim, false}, {nextClaim, false}, {dana, false}, {eve, false}, {elsewhere, false}, {later, true}, {"null", false}, {`{"groups":["x"],"claims":{"exp":1}}`, false}, {`{"groups":["x"],"claims":{"exp":2}}`, true}, {hive, true}, {hiveLater, true}} {
		workflows = nil
		text := d.hive(t, fmt.Sprint("c", i), c.principal, call)
		if !strings.Contains(text, `"workflow_id":"w1"`) || (len(workflows) > 0 && workflows[0] == "w1") != c.waits {
			t.Errorf("%s goes on waiting: want %t; sent for %q: %s", c.principal, c.waits, workflows, text)
		}
	}
}

// A session of a server that is not used ends for that of a new one, but not while a call waits for a person.
func TestServersComeAndGo(t *testing.T) {
	var workflows []string
	var ended atomic.Int64
	waits := asks(&workflows)
	d := startDecider(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case bytes.Contains(body, []byte("SessionEnd")):
			ended.Add(1)
		case bytes.Contains(body, []byte("srv-0__")):
			r.Body = io.NopCloser(bytes.NewReader(body))
			waits(w, r)
			return
		}
		answer(200, map[string]string{"Countersign-Verdict": "deny"}, denies)(w, r)
	}))
	ask := func(n int) string {
		body := strings.Replace(toolHiveBody(fmt.Sprint("srv-", n), call), "u-1", fmt.Sprint("u-", n, len(d.seen)), 1)
		return d.ask(ToolHivePath, body, signed(toolHiveSecret, body, d.now())).Body.String()
	}
	for n := range maxGates + 2 {
		if text := ask(n); strings.Contains(text, "too many") || strings.Contains(text, "w1") != (n == 0) {
			t.Fatalf("server %d: %s", n, text)
		}
	}
	for late := time.Now().Add(patience); ended.Load() != 2; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%d sessions have ended", ended.Load())
		}
	}
	if ask(0); len(workflows) != 2 || workflows[1] != "w1" || d.gates[gateKey{"srv-1", sha256.Sum256([]byte(dana))}] != nil || len(d.gates) != maxGates {
		t.Errorf("%d sessions; the call that waits was sent for %q", len(d.gates), workflows)
	}
	for _, g := range d.gates { // each has a call that runs
		g.calls.Add(1)
	}
	if text := ask(maxGates + 2); !strings.Contains(text, "too many callers") {
		t.Error(text)
	}
}

// A request that was signed once counts once, also if it is signed with the older secret.
func TestSignedRequestsAreNotReplayed(t *testing.T) {
	d := startDecider(t, answer(200, map[string]string{"Countersign-Verdict": "deny"}, denies))
	now := time.Now()
	d.now = func() time.Time { return now }
	body := toolHiveBody("files", call)
	header := signed(toolHiveSecret, body, now)
	for i, want := range []int{200, 422, 422} {
		if w := d.ask(ToolHivePath, body, header); w.Code != want {
			t.Errorf("sent %d times: %d %s", i+1, w.Code, w.Body)
		}
		now = now.Add(maxSkew / 2).Truncate(time.Second)
	}
	// What is too old by itself is forgotten once there is no room; what could be sent again never is.
	for i := range maxSeen {
		d.seen[[sha256.Size]byte{byte(i), byte(i >> 8), byte(i >> 16), 1}] = now.Add(time.Minute)
	}
	next := strings.Replace(body, "u-1", "u-2", 1)
	if w := d.ask(ToolHivePath, next, signed(toolHiveSecret, next, now)); w.Code != 422 {
		t.Errorf("without room: %d %s", w.Code, w.Body)
	}
	now = now.Add(2 * time.Minute)
	if w := d.ask(ToolHivePath, next, signed(toolHiveSecret, next, now)); w.Code != 200 || len(d.seen) != 1 {
		t.Errorf("with room again: %d %s; %d are remembered", w.Code, w.Body, len(d.seen))
	}
}

// The waiting calls of one principal take no room from those of another.
func TestWaitingCallsOfPrincipals(t *testing.T) {
	var workflows []string
	d := startDecider(t, asks(&workflows))
	g, err := d.gateOf("files", dana)
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxWaiting {
		if !g.keep(fmt.Sprint(i), waiting{call: mcp.Call{Server: "files", Name: "t", Caller: dana}, workflow: "w", until: time.Now().Add(time.Hour)}) {
			t.Fatalf("no room for call %d", i)
		}
	}
	if text := d.hive(t, "u-2", `{"subject":"dana"}`, call); !strings.Contains(text, "too many calls wait") {
		t.Errorf("beyond the bound: %s", text)
	}
	if text := d.hive(t, "u-3", `{"subject":"eve"}`, call); !strings.Contains(text, `"retry":"identical_once_approved"`) {
		t.Errorf("another principal: %s", text)
	}
}

// What is no question is answered as a denial, too, and Docker's gateway on this machine only: it shows no
// secret.
func TestDecideRefusesWhatItDoesNotKnow(t *testing.T) {
	d := startDecider(t, answer(503, nil, `{}`))
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

// While the gateway does not answer one principal's call, it is asked for those of others.
func TestPrincipalsDoNotWaitForEachOther(t *testing.T) {
	release, stuck := make(chan struct{}), make(chan struct{})
	d := startDecider(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); bytes.Contains(body, []byte(`"PreToolUse"`)) && bytes.Contains(body, []byte("mallory")) {
			close(stuck)
			<-release
		}
		answer(200, map[string]string{"Countersign-Verdict": "deny"}, denies)(w, r)
	}))
	var other sync.WaitGroup
	other.Go(func() {
		body := strings.Replace(toolHiveBody("files", call), "dana", "mallory", 1)
		d.ask(ToolHivePath, body, signed(toolHiveSecret, body, d.now()))
	})
	<-stuck
	body := toolHiveBody("files", call)
	if w := d.ask(ToolHivePath, body, signed(toolHiveSecret, body, d.now())); w.Code != 200 || !strings.Contains(w.Body.String(), "too risky") {
		t.Errorf("another principal: %d %s", w.Code, w.Body)
	}
	close(release)
	other.Wait()
}

// A decider stops in bounded time, however many sessions there are and though the gateway does not answer.
func TestDecideStopsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, log := make(chan struct{}), &buffer{}
		defer close(release)
		d := newDecider(DecideOptions{Err: log, Peer: func() (gateclient.Peer, error) {
			<-release
			return gateclient.Peer{}, errors.New("no gateway")
		}})
		const sessions = 2*maxClosing + 1
		for i := range sessions {
			g, err := d.gateOf("files", fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			g.calls.Add(-1)
		}
		begun := time.Now()
		d.Close()
		if took := time.Since(begun); took > 2*endTime {
			t.Errorf("it took %v", took)
		}
		if said := log.take(); !strings.Contains(said, fmt.Sprintf("the ends of %d sessions are not on record", sessions-maxClosing)) {
			t.Errorf("the log says %.200q", said)
		}
	})
}
