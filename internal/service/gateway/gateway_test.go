package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/examples"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/service/admitter"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/follow"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/internal/service/tokenview"
	"github.com/countersign-dev/countersign/internal/testkit"
	"github.com/countersign-dev/countersign/streams"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"))
}

// uncounted counts for servers that no test scrapes.
var uncounted = (*metrics.Registry)(nil).Gateway(nil, nil, metrics.GatewayState{})

// rig is a gateway in front of a server; tokens by name.
type rig struct {
	tb      testing.TB
	nats    *servicetest.NATS
	service *servicetest.Service
	url     string
	tokens  map[string]string
	ids     map[string]string

	stopTokens func()
}

func example(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := examples.FS.ReadFile(name)
	servicetest.OK(tb, err)
	return b
}

func (r *rig) put(bucket, key string, value []byte) {
	r.tb.Helper()
	kv, err := r.nats.JS("operator").KeyValue(r.tb.Context(), bucket)
	servicetest.OK(r.tb, err)
	_, err = kv.Put(r.tb.Context(), key, value)
	servicetest.OK(r.tb, err)
}

// addToken makes a token, as `countersign token create` does.
func (r *rig) addToken(name, tenant, user, role string, expires time.Duration) {
	r.tb.Helper()
	random := bytes.Repeat([]byte{byte(len(r.tokens) + 1)}, token.RandomBytes)
	text, id, err := token.New(random)
	servicetest.OK(r.tb, err)
	now := time.Now().Add(-time.Hour)
	r.tokens[name], r.ids[name] = text, id
	record, err := json.Marshal(token.Record{Hash: token.Hash(text), Tenant: tenant, User: user, Role: role, CreatedAt: now, ExpiresAt: now.Add(time.Hour + expires)})
	servicetest.OK(r.tb, err)
	r.put(streams.BucketTokens, token.Key(tenant, id), record)
}

// start runs a server with policies, the publisher rt1 registered as reached through the gateway, tokens
// and a gateway. The admitter is the test's to start.
func start(tb testing.TB, change ...func(*Flags)) *rig {
	tb.Helper()
	return startOn(tb, streams.Shard{}, change...)
}

// startOn is start with a log that is provisioned as shard says.
func startOn(tb testing.TB, shard streams.Shard, change ...func(*Flags)) *rig {
	tb.Helper()
	r := &rig{tb: tb, nats: servicetest.Start(tb, shard), tokens: map[string]string{}, ids: map[string]string{}}
	for _, name := range []string{"mail", "assistant", "files"} {
		r.put(streams.BucketPolicies, name+".yaml", example(tb, "policies/assistant/"+name+".yaml"))
	}
	const doc = `{"schema": "https://schemas.countersign.dev/countersign/publisher-registration/v1", "publisher": "` + servicetest.Runtime + `", "gateway": "` + servicetest.Gateway + `"}`
	r.put(streams.BucketPublishers, publisher.Key(servicetest.Tenant, "registration."+servicetest.Runtime), []byte(doc))
	r.addToken("runtime", servicetest.Tenant, servicetest.Runtime, token.Runtime, time.Hour)
	r.addToken("direct", servicetest.Tenant, "rt2", token.Runtime, time.Hour)
	r.addToken("subscriber", servicetest.Tenant, "sam", token.Subscriber, time.Hour)
	r.addToken("reviewer", servicetest.Tenant, "dana", token.Reviewer, time.Hour)
	r.addToken("expired", servicetest.Tenant, servicetest.Runtime, token.Runtime, -time.Minute)
	r.addToken("globex", "globex", "mallory", token.Runtime, time.Hour)
	r.tokensOf("admitter")
	r.serve(change...)
	return r
}

// tokensOf answers for the tokens, with the permissions of a user.
func (r *rig) tokensOf(user string) {
	r.tb.Helper()
	stop, err := tokenview.Serve(r.tb.Context(), r.nats.JS(user), subject.Space{Prefix: "gov"}, zerolog.Nop())
	servicetest.OK(r.tb, err)
	r.tb.Cleanup(stop)
	r.stopTokens = stop
}

// A gateway that starts while no admitter answers lets no caller in, and does once there is one.
func TestStartBeforeTheAdmitter(t *testing.T) {
	r := start(t)
	servicetest.OK(t, r.service.Stop())
	r.stopTokens()
	r.serve()
	for _, path := range []string{"/readyz", "/health", "/ready", "/v1/caller"} {
		if res, body := r.do("GET", path, "runtime", nil); res.StatusCode != 503 {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
	}
	r.tokensOf("admitter")
	servicetest.Eventually(t, "the tokens count", func() bool { res, _ := r.do("GET", "/v1/caller", "runtime", nil); return res.StatusCode == 200 })
}

// AANA's clients see without a token whether there would be a verdict.
func TestAANAStatus(t *testing.T) {
	r := start(t)
	for _, path := range []string{"/health", "/ready"} {
		res, body := r.do("GET", path, "", nil)
		var got struct {
			Status, Service, Contract, Docs string
			Version                         string   `json:"service_version"`
			Claim                           string   `json:"architecture_claim"`
			Auth                            bool     `json:"auth_required"`
			Methods                         []string `json:"auth_methods"`
			Scopes                          []string `json:"auth_scopes"`
			Audit                           string   `json:"audit_logging"`
			Rate                            struct {
				Enabled bool
				Limit   int `json:"requests_per_minute"`
			} `json:"rate_limit"`
			Size struct {
				Enabled bool
				Max     int `json:"max_bytes"`
			} `json:"request_size_limit"`
			Routes []string
		}
		servicetest.OK(t, json.Unmarshal(body, &got))
		if res.StatusCode != 200 || got.Status != "ok" || got.Service == "" || got.Version == "" || got.Claim == "" || got.Contract != "aana.agent_action_contract.v1" || got.Docs != "/docs" ||
			!got.Auth || len(got.Methods) != 2 || !slices.Equal(got.Scopes, []string{token.Runtime}) || got.Audit != "enabled" || got.Rate.Enabled || got.Rate.Limit != 0 || !got.Size.Enabled || got.Size.Max != 1<<20 {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
		if want := []string{"/health", "/ready", "/pre-tool-check", "/tool-precheck", "/validate-tool-precheck"}; !slices.Equal(got.Routes, want) {
			t.Errorf("%s: routes %q", path, got.Routes)
		}
	}
	r.nats.Stop()
	for _, path := range []string{"/health", "/ready"} {
		servicetest.Eventually(t, "without NATS nothing can be asked", func() bool {
			res, body := r.do("GET", path, "", nil)
			return res.StatusCode == 503 && bytes.Contains(body, []byte(`"status":"unhealthy"`))
		})
	}
}

func (r *rig) serve(change ...func(*Flags)) {
	r.tb.Helper()
	f := Flags{Flags: r.nats.Flags(servicetest.Gateway), Tenant: servicetest.Tenant, Listen: "127.0.0.1:0", Timeout: servicetest.Guard, ReadTimeout: servicetest.Guard,
		MaxBody: 1 << 20, MaxInflight: 64, MaxStreams: 8, UserStreams: 2}
	for _, c := range change {
		c(&f)
	}
	r.service = servicetest.Run(r.tb, func(ctx context.Context, env daemon.Env) error {
		env.Listening = func(url string) { r.url = url }
		env.Metrics = metrics.New(ServiceName)
		return Run(ctx, f, env)
	}).AwaitReady()
}

func (r *rig) admitter() *servicetest.Service {
	r.tb.Helper()
	f := admitter.Flags{Flags: r.nats.Flags("admitter"), MaxInflight: 64, MemoryLimit: 2048, Timeout: servicetest.Guard / 2}
	return servicetest.Run(r.tb, func(ctx context.Context, env daemon.Env) error { return admitter.Run(ctx, f, env) }).AwaitReady()
}

// overTLS is the client of gateways with TLS.
var overTLS = &http.Client{Transport: &http.Transport{TLSClientConfig: trusting}}

func (r *rig) client() *http.Client {
	if strings.HasPrefix(r.url, "https://") {
		return overTLS
	}
	return http.DefaultClient
}

// do sends a request. headers are names and values; Content-Type is JSON unless they say otherwise.
func (r *rig) do(method, path, who string, body []byte, headers ...string) (*http.Response, []byte) {
	r.tb.Helper()
	req, err := http.NewRequestWithContext(r.tb.Context(), method, r.url+path, bytes.NewReader(body))
	servicetest.OK(r.tb, err)
	if who != "" {
		req.Header.Set("Authorization", "Bearer "+r.tokens[who])
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := r.client().Do(req)
	servicetest.OK(r.tb, err)
	defer func() { _ = res.Body.Close() }()
	out, err := io.ReadAll(res.Body)
	servicetest.OK(r.tb, err)
	checkDescribed(r, res, out)
	for _, secret := range r.tokens {
		if strings.Contains(string(out), secret) || strings.Contains(fmt.Sprint(res.Header), secret) {
			r.tb.Errorf("%s tells a token", path)
		}
	}
	return res, out
}

// decision is the record that a decision id names.
func (r *rig) decision(id string) (d events.Decision) {
	r.tb.Helper()
	for _, m := range r.nats.Log() {
		if id != "" && m.HeaderValue("ce-id") == id {
			servicetest.OK(r.tb, json.Unmarshal(m.Body, &d))
		}
	}
	return d
}

// varying are the members that differ between two decisions of one request.
var varying = []string{"decision_id", "decision_ref", "workflow_id", "received_at", "decided_at", "expires_at", "expiresAt", "recorded_at", "receipt_hash", "gateway", "occurrence", "decisionId", "latency_ms"}

func canCompare(tb testing.TB, body []byte) any {
	tb.Helper()
	var v any
	servicetest.OK(tb, json.Unmarshal(body, &v))
	var strip func(any)
	strip = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			maps.DeleteFunc(v, func(name string, _ any) bool { return slices.Contains(varying, name) })
			for _, m := range v {
				strip(m)
			}
		case []any:
			for _, m := range v {
				strip(m)
			}
		}
	}
	strip(v)
	return v
}

// Statuses of verdicts and refusals, in each protocol's words.
func TestVerdictsAndRefusals(t *testing.T) {
	r := start(t)
	r.admitter()
	pre := example(t, "requests/pre-tool-use.json")
	web := []byte(`{"event_id":"6f1d2c1e-7a44-4a8e-9d0b-3c5a7be1f0a1","event_type":"WebActionRequested","timestamp":"2026-11-25T08:56:28Z","source":"browser","session_id":"s-web","action":"publish"}`)
	waiting := []byte(`{"event_id":"6f1d2c1e-7a44-4a8e-9d0b-3c5a7be1f0a2","event_type":"UserPromptSubmit","evidence_phase":"pre_commit","timestamp":"2026-11-25T08:56:28Z","source":"browser","session_id":"s-web"}`)
	for name, c := range map[string]struct {
		path, who string
		body      []byte
		headers   []string
		status    int
		has       string
	}{
		"denied":                       {"/event", "runtime", example(t, "requests/pre-tool-use-denied.json"), nil, 200, `"decision":"deny"`},
		"AANA asks with 200":           {"/tool-precheck", "runtime", example(t, "requests/aana-write.json"), nil, 200, `"route":"ask"`},
		"AANA refuses with 200":        {"/pre-tool-check", "runtime", example(t, "requests/aana-refused.json"), nil, 200, `"route":"refuse"`},
		"AANA invalid":                 {"/pre-tool-check", "runtime", []byte(`{}`), nil, 400, `"error":"pre_tool_check_failed"`},
		"AANA without a token":         {"/pre-tool-check", "", []byte(`{}`), nil, 401, `{"detail":"Unauthorized."}`},
		"AANA wrong role":              {"/pre-tool-check", "subscriber", []byte(`{}`), nil, 403, `"error":"insufficient_scope"`},
		"AANA validates":               {"/validate-tool-precheck", "runtime", example(t, "requests/aana-write.json"), nil, 200, `"valid":true`},
		"AANA finds faults":            {"/validate-tool-precheck", "runtime", []byte(`{}`), nil, 200, `"valid":false`},
		"AUMP unknown mandate":         {"/aump/mandates/aump_mnd_parcels_1:evaluateAction", "runtime", example(t, "requests/aump-action.json"), nil, 404, `mandate_not_found`},
		"AUMP another mandate":         {"/aump/mandates/other:evaluateAction", "runtime", example(t, "requests/aump-action.json"), nil, 400, `mandate_mismatch`},
		"AUMP another's evidence":      {"/aump/mandates/other:appendEvidence", "runtime", []byte(`{"mandate_ref":{"id":"aump_mnd_1"}}`), nil, 400, `mandate_mismatch`},
		"AUMP other verb":              {"/aump/mandates/aump_mnd_parcels_1:extend", "runtime", []byte(`{}`), nil, 404, `not_found`},
		"unknown protocol":             {"/v1/admit/nonsense", "runtime", pre, nil, 404, `not_found`},
		"malformed":                    {"/v1/admit/agenthook", "runtime", []byte(`[`), nil, 400, `"decision":"deny"`},
		"direct publisher":             {"/event", "direct", pre, nil, 403, `"decision":"deny"`},
		"direct publisher's event":     {"/v1/events/agenthook", "direct", []byte(`{"event_type":"SessionStart"}`), nil, 403, `"error":"forbidden"`},
		"identity in the body":         {"/event", "runtime", pre, []string{events.HeaderPublisher, "rt2", "Nats-Request-Info", "{}"}, 200, `"decision":"allow"`},
		"no token":                     {"/event", "", pre, nil, 401, `unauthorized`},
		"expired token":                {"/event", "expired", pre, nil, 401, `unauthorized`},
		"another tenant's token":       {"/event", "globex", pre, nil, 401, `unauthorized`},
		"what exists is not told":      {"/no-such-page", "", nil, nil, 401, `unauthorized`},
		"no such page":                 {"/no-such-page", "runtime", nil, nil, 404, `not_found`},
		"two tokens":                   {"/event", "runtime", pre, []string{"Authorization", "Bearer x, Bearer y"}, 401, `unauthorized`},
		"wrong content type":           {"/event", "runtime", pre, []string{"Content-Type", "text/plain"}, 415, `unsupported_media_type`},
		"too large":                    {"/event", "runtime", make([]byte, 1<<20+1), nil, 413, `request_too_large`},
		"not CloudEvents":              {"/v1/events/agenthook", "runtime", []byte(`{}`), []string{"Content-Type", "application/cloudevents+json"}, 400, `invalid_cloudevent`},
		"no events of this protocol":   {"/v1/events/aana", "runtime", []byte(`{}`), nil, 404, `not_found`},
		"subscriber asks":              {"/event", "subscriber", pre, nil, 403, `forbidden`},
		"a proposal in small letters":  {"/event", "runtime", bytes.Replace(pre, []byte("PreToolUse"), []byte("preToolUse"), 1), nil, 400, `"decision":"deny"`},
		"a proposal in large ones":     {"/event", "runtime", bytes.Replace(pre, []byte("PreToolUse"), []byte("PRETOOLUSE"), 1), nil, 200, `Mail to colleagues is fine.`},
		"a type that is none":          {"/event", "runtime", bytes.Replace(pre, []byte("PreToolUse"), []byte("PreToolUse "), 1), nil, 400, `"decision":"deny"`},
		"no type":                      {"/event", "runtime", bytes.Replace(pre, []byte("event_type"), []byte("Event_Type"), 1), nil, 400, `"decision":"deny"`},
		"a web action":                 {"/event", "runtime", web, nil, 200, `"decision":"deny"`},
		"a model call":                 {"/event", "runtime", bytes.Replace(web, []byte("WebActionRequested"), []byte("PreLLMCall"), 1), nil, 200, `"decision":"deny"`},
		"a type of its own that waits": {"/event", "runtime", bytes.Replace(waiting, []byte("UserPromptSubmit"), []byte("DraftChecked"), 1), nil, 200, `"decision":"deny"`},
		"a web action in large ones":   {"/event", "runtime", bytes.Replace(web, []byte("WebActionRequested"), []byte("WEBACTIONREQUESTED"), 1), nil, 200, `"decision":"deny"`},
		"a known type that waits":      {"/event", "runtime", waiting, nil, 200, `"decision":"deny"`},
		"a phase in large letters":     {"/event", "runtime", bytes.Replace(waiting, []byte("pre_commit"), []byte("PRE_COMMIT"), 1), nil, 400, `"decision":"deny"`},
		"an unknown phase":             {"/event", "runtime", bytes.Replace(bytes.Replace(waiting, []byte("pre_commit"), []byte("later"), 1), []byte("UserPromptSubmit"), []byte("DraftChecked"), 1), nil, 400, `"decision":"deny"`},
		"an unknown phase of an end":   {"/event", "runtime", bytes.Replace(bytes.Replace(waiting, []byte("pre_commit"), []byte("later"), 1), []byte("UserPromptSubmit"), []byte("PostToolUse"), 1), nil, 200, `"decision":"allow"`},
		"an end that waits":            {"/event", "runtime", bytes.Replace(waiting, []byte("UserPromptSubmit"), []byte("PostToolUse"), 1), nil, 400, `stored as the end of a call`},
		"an end of another fault":      {"/event", "runtime", bytes.Replace(bytes.Replace(bytes.Replace(waiting, []byte("pre_commit"), []byte("post_hoc"), 1), []byte("UserPromptSubmit"), []byte("PostToolUse"), 1), []byte(`"s-web"`), []byte("7"), 1), nil, 400, `about which nothing can be asked: /session_id must be`},
		"an end of no phase":           {"/event", "runtime", bytes.Replace(bytes.Replace(waiting, []byte(`"pre_commit"`), []byte("7"), 1), []byte("UserPromptSubmit"), []byte("PostToolUse"), 1), nil, 400, `stored as the end of a call`},
		"an empty phase":               {"/event", "runtime", bytes.Replace(waiting, []byte("pre_commit"), nil, 1), nil, 400, `"decision":"deny"`},
		"one that only reports":        {"/event", "runtime", bytes.Replace(waiting, []byte("pre_commit"), []byte("observational"), 1), nil, 200, `"decision":"allow"`},
		"one after the fact":           {"/event", "runtime", bytes.Replace(waiting, []byte("pre_commit"), []byte("post_hoc"), 1), nil, 200, `"decision":"allow"`},
		"an unknown type":              {"/event", "runtime", bytes.Replace(bytes.Replace(waiting, []byte("UserPromptSubmit"), []byte("DraftChecked"), 1), []byte(`"evidence_phase":"pre_commit",`), nil, 1), nil, 200, `"decision":"allow"`},
		"compressed":                   {"/v1/events/agenthook", "runtime", []byte(`{}`), []string{"Content-Encoding", "gzip"}, 415, `unsupported_media_type`},
		"not compressed, by name":      {"/event", "runtime", pre, []string{"Content-Encoding", "Identity"}, 200, `"decision":"allow"`},
		"another charset":              {"/event", "runtime", pre, []string{"Content-Type", "application/json; charset=utf-16"}, 415, `unsupported_media_type`},
		"UTF-8 by name":                {"/event", "runtime", pre, []string{"Content-Type", "application/json; charset=UTF-8"}, 200, `"decision":"allow"`},
		"too many events":              {"/v1/events/agenthook", "runtime", bytes.Repeat([]byte("{}\n"), 10001), []string{"Content-Type", "application/x-ndjson"}, 413, `request_too_large`},
	} {
		res, body := r.do("POST", c.path, c.who, c.body, c.headers...)
		if res.StatusCode != c.status || !strings.Contains(string(body), c.has) {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
		if res.StatusCode != 200 && strings.Contains(string(body), `allow"`) {
			t.Errorf("%s: an error that allows: %s", name, body)
		}
	}
	for _, path := range []string{"//event", "/./event", "/x/../event", "/v1/%2e%2e/event", "/v1//caller"} { // nothing is redirected
		for auth, want := range map[string]string{"": "401 Unauthorized", "Authorization: Bearer " + r.tokens["runtime"] + "\r\n": "404 Not Found"} {
			if got := r.firstLine("POST " + path + " HTTP/1.1\r\nHost: x\r\n" + auth + "Content-Length: 0\r\n\r\n"); got != "HTTP/1.1 "+want {
				t.Errorf("%s: %s, want %s", path, got, want)
			}
		}
	}
	if got := r.firstLine("POST /event HTTP/1.1\r\nHost: x\r\nX-Large: " + strings.Repeat("y", 64<<10)); got != "HTTP/1.1 431 Request Header Fields Too Large" {
		t.Errorf("large header: %s", got)
	}
}

// A request behind one with chunks and a Content-Length is not answered: a proxy may have taken it for the body.
func TestNoRequestBehindChunks(t *testing.T) {
	r := start(t)
	auth := "Host: x\r\nAuthorization: Bearer " + r.tokens["runtime"] + "\r\n"
	behind := "GET /v1/caller HTTP/1.1\r\n" + auth + "\r\n"
	for first, want := range map[string]int{
		"GET /v1/caller HTTP/1.1\r\n" + auth + "\r\n": 3,
		"POST /v1/caller HTTP/1.1\r\n" + auth + "Transfer-Encoding: chunked\r\nContent-Length: " + fmt.Sprint(5+len(behind)) + "\r\n\r\n0\r\n\r\n": 0,
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		servicetest.OK(t, err)
		_, err = io.WriteString(c, first+behind+"GET /v1/caller HTTP/1.1\r\n"+auth+"Connection: close\r\n\r\n")
		servicetest.OK(t, err)
		servicetest.OK(t, c.SetReadDeadline(time.Now().Add(servicetest.Guard)))
		all, _ := io.ReadAll(c) // closed with unread bytes it may be reset
		_ = c.Close()
		if got := strings.Count(string(all), `"tenant"`); got != want {
			t.Errorf("%d answers to a caller, want %d, behind %.40q:\n%s", got, want, first, all)
		}
	}
}

// What AgentHook's collector kit posts passes: it leaves ids and names empty that it does not know, has no
// tool_call_id, and wants its event_id, a decision and a reason in every answer.
func TestAgentHookCollectorKit(t *testing.T) {
	r := start(t)
	r.admitter()
	for i, c := range []struct {
		kind, tool, phase string
		input, metadata   map[string]any
	}{
		{kind: "UserPromptSubmit", metadata: map[string]any{"prompt": "Where are we?", "prompt_chars": 13, "transcript_path": nil}},
		{kind: "PreToolUse", tool: "Bash", phase: "pre_commit", input: map[string]any{"command": "pwd"}, metadata: map[string]any{"control_point": "pre_action"}},
		{kind: "PostToolUse", tool: "Bash", phase: "post_hoc", input: map[string]any{"command": "pwd"}, metadata: map[string]any{"exit_code": 0}},
		{kind: "ModelResponse", tool: "llm.response", metadata: map[string]any{"response_available": true, "response_content": "Here.", "response_chars": 5}},
		{kind: "SessionStart"}, {kind: "SessionEnd"}, {kind: "ErrorOccurred", metadata: map[string]any{"error": "a test of the collector"}},
	} {
		id := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		event := map[string]any{"schema_version": 1, "event_id": id, "event_type": c.kind, "timestamp": "2026-11-20T09:00:00Z", "source": "kit", "session_id": "collector-conformance",
			"agent_id": "", "correlation_id": "", "tool_name": c.tool, "tool_input": map[string]any{}, "metadata": map[string]any{}, "annotations": map[string]any{}}
		if c.input != nil {
			event["tool_input"] = c.input
		}
		if c.metadata != nil {
			event["metadata"] = c.metadata
		}
		if c.phase != "" {
			event["evidence_phase"] = c.phase
		}
		sent, err := json.Marshal(event)
		servicetest.OK(t, err)
		res, body := r.do("POST", "/event", "runtime", sent)
		var got map[string]any
		servicetest.OK(t, json.Unmarshal(body, &got))
		_, reasoned := got["reason"].(string)
		if decision, _ := got["decision"].(string); res.StatusCode != 200 || got["event_id"] != id || !reasoned || !slices.Contains([]string{"allow", "deny", "ask"}, decision) {
			t.Errorf("%s: %d %s", c.kind, res.StatusCode, body)
		}
		if !slices.ContainsFunc(r.nats.Log(), func(m events.LogMessage) bool { return bytes.Contains(m.Body, []byte(id)) }) {
			t.Errorf("%s is not on the log", c.kind)
		}
	}
}

const slowConns = 1000

// Clients that send half of a header or of a body, and stop, keep no other caller from its answers: they take no place
// among the requests that are worked on. All of them are answered when they go on: none had been given up.
func TestSlowClientsKeepNobodyOut(t *testing.T) {
	patient := func(f *Flags) { f.ReadTimeout = servicetest.Guard } // MaxInflight stays far below their number
	t.Run("plain", func(t *testing.T) { slowClients(t, start(t, patient)) })
	t.Run("TLS", func(t *testing.T) {
		dir := t.TempDir()
		cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
		testkit.WriteCertificate(t, cert, key, 1)
		slowClients(t, start(t, patient, func(f *Flags) { f.TLSCert, f.TLSKey = cert, key }))
	})
}

func slowClients(t *testing.T, r *rig) {
	t.Helper()
	r.admitter()
	type half struct {
		*wire
		rest string
	}
	body := string(event(100))
	head := " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + r.tokens["runtime"] + "\r\n"
	var halves []half
	for i := range slowConns {
		send := "GET /v1/caller" + head
		if i%2 == 0 {
			send = "POST /event" + head + "Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n\r\n"
		}
		h := half{r.connect(send), "\r\n"}
		if i%2 == 0 { // wait until the gateway reads the body
			line, err := h.read.ReadString('\n')
			servicetest.OK(t, err)
			if line != "HTTP/1.1 100 Continue\r\n" {
				t.Fatal(line)
			}
			_, err = h.read.Discard(len("\r\n"))
			servicetest.OK(t, err)
			h.send(body[:len(body)/2])
			h.rest = body[len(body)/2:]
		}
		halves = append(halves, h)
	}
	for range 10 {
		res, answer := r.do("POST", "/event", "runtime", example(t, "requests/pre-tool-use.json"))
		if res.StatusCode != 200 || res.Header.Get(events.HeaderVerdict) != string(events.Allow) {
			t.Fatalf("another caller: %d %s", res.StatusCode, answer)
		}
	}
	for i, h := range halves { // one by one: at once they would be more than MaxInflight
		h.send(h.rest)
		if line, err := h.read.ReadString('\n'); line != "HTTP/1.1 200 OK\r\n" {
			t.Fatalf("number %d did not stand: %q, %v", i, line, err)
		}
	}
}

// firstLine sends raw bytes and reads the first line of the answer. The server does not read all of a
// header that is too large, so the write may fail.
func (r *rig) firstLine(raw string) string {
	r.tb.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	servicetest.OK(r.tb, err)
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, raw)
	line, err := bufio.NewReader(c).ReadString('\n')
	servicetest.OK(r.tb, err)
	return strings.TrimSpace(line)
}

// Events are on the log, byte for byte, before the answer.
func TestEvents(t *testing.T) {
	r := start(t)
	r.admitter()
	one := `{"event_id":"","event_type":"SessionStart","session_id":"s-7", "n": 1.0}`
	evidence := `{"id":"aump_ev_1", "mandate_ref":{"id":"aump_mnd_unheard_of"}}`
	ce := `{"specversion":"1.0","id":"e-1","source":"/x","type":"t","datacontenttype":"application/json","data":{"event_type":"SessionStart","session_id":"s-7"}}`
	for name, c := range map[string]struct {
		path, body string
		headers    []string
		stored     []string
		answer     string
	}{
		"AgentHook, with an empty id": {"/event", one, nil, []string{one}, `{"event_id":"","decision":"allow"`},
		"AUMP evidence":               {"/aump/mandates/aump_mnd_unheard_of:appendEvidence", evidence, []string{events.HeaderSession, "s-7"}, []string{evidence}, `{"stored":1}`},
		"one":                         {"/v1/events/agenthook", one, nil, []string{one}, `{"stored":1}`},
		"array":                       {"/v1/events/agenthook", "[" + one + ", " + one + "]", nil, []string{one, one}, `{"stored":2}`},
		"lines":                       {"/v1/events/agenthook", one + "\n\n" + one + "\n", []string{"Content-Type", "application/x-ndjson"}, []string{one, one}, `{"stored":2}`},
		"not JSON is evidence":        {"/v1/events/agenthook", "[{", nil, []string{"[{"}, `{"stored":1}`},
		"structured":                  {"/v1/events/agenthook", ce, []string{"Content-Type", "application/cloudevents+json"}, []string{`{"event_type":"SessionStart","session_id":"s-7"}`}, `{"stored":1}`},
		"batch": {"/v1/events/agenthook", "[" + ce + "," + ce + "]", []string{"Content-Type", "application/cloudevents-batch+json"},
			[]string{`{"event_type":"SessionStart","session_id":"s-7"}`, `{"event_type":"SessionStart","session_id":"s-7"}`}, `{"stored":2}`},
		"binary": {"/v1/events/agenthook", one, []string{"Ce-Specversion", "1.0", "Ce-Id", "e-2", "Ce-Source", "/x", "Ce-Type", "t"}, []string{one}, `{"stored":1}`},
	} {
		before := len(r.nats.Log())
		res, body := r.do("POST", c.path, "runtime", []byte(c.body), c.headers...)
		want := 200
		if strings.HasPrefix(c.path, "/aump/") {
			want = 201
		}
		if res.StatusCode != want || !strings.HasPrefix(string(body), c.answer) {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
		var got []string
		for _, m := range r.nats.Log()[before:] {
			if !strings.HasPrefix(m.Subject, "gov.events.acme."+servicetest.Runtime+".") {
				continue
			}
			got = append(got, string(m.Body))
			if m.HeaderValue(events.HeaderGateway) != servicetest.Gateway || name == "binary" && m.HeaderValue("ce-id") != "e-2" {
				t.Errorf("%s: headers %v", name, m.Header)
			}
		}
		if !slices.Equal(got, c.stored) {
			t.Errorf("%s: stored %q", name, got)
		}
	}
}

// revoke revokes a token.
func (r *rig) revoke(name, user, role string) {
	r.tb.Helper()
	now := time.Now()
	record, err := json.Marshal(token.Record{Hash: token.Hash(r.tokens[name]), Tenant: servicetest.Tenant, User: user, Role: role,
		CreatedAt: now.Add(-time.Hour), ExpiresAt: now.Add(time.Hour), RevokedAt: &now})
	servicetest.OK(r.tb, err)
	r.put(streams.BucketTokens, token.Key(servicetest.Tenant, r.ids[name]), record)
}

// A token that is revoked, and one that is made, count without a restart.
func TestTokensChangeWithoutRestart(t *testing.T) {
	r := start(t)
	status := func(who string) int {
		res, _ := r.do("POST", "/validate-tool-precheck", who, []byte(`{}`))
		return res.StatusCode
	}
	if got := status("runtime"); got != 200 {
		t.Fatal(got)
	}
	r.addToken("second", servicetest.Tenant, servicetest.Runtime, token.Runtime, time.Hour)
	if got := status("second"); got != 200 {
		t.Errorf("the first call with a new token: %d", got)
	}
	r.revoke("runtime", servicetest.Runtime, token.Runtime)
	servicetest.Eventually(t, "the revoked token does not", func() bool { return status("runtime") == 401 })
	if got := status("second"); got != 200 {
		t.Error(got)
	}
}

// An answer of the admitter that is no verdict of a decision on record is an error, and no allow.
func TestAnswersThatAreNoVerdict(t *testing.T) {
	r := start(t)
	stands := r.nats.Conn("admitter")
	for name, c := range map[string]struct {
		header nats.Header
		status int
		has    string
	}{
		"no verdict":                {nats.Header{}, 502, "bad_reply"},
		"no verdict that exists":    {nats.Header{events.HeaderVerdict: {"yes"}}, 502, "bad_reply"},
		"an allow that is an error": {nats.Header{events.HeaderVerdict: {"allow"}, "Nats-Service-Error-Code": {"500"}}, 502, "bad_reply"},
		"over the quota":            {nats.Header{events.HeaderVerdict: {"deny"}, "Nats-Service-Error-Code": {"503"}, "Nats-Service-Error": {"quota_exceeded"}}, 429, "rate_limited"},
		"not recorded":              {nats.Header{events.HeaderVerdict: {"deny"}, "Nats-Service-Error-Code": {"503"}, "Nats-Service-Error": {"audit_unavailable"}}, 503, "deny"},
	} {
		sub, err := stands.Subscribe("gov.admit.>", func(m *nats.Msg) {
			_ = m.RespondMsg(&nats.Msg{Header: c.header, Data: []byte(`{"decision":"deny","reason":"x"}`)})
		})
		servicetest.OK(t, err)
		servicetest.OK(t, stands.Flush())
		res, body := r.do("POST", "/event", "runtime", example(t, "requests/pre-tool-use.json"))
		if res.StatusCode != c.status || !strings.Contains(string(body), c.has) {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
		servicetest.OK(t, sub.Unsubscribe())
	}
	if failed, unrecorded := r.metric("countersign_gateway_admissions_total", `outcome="failed"`), r.metric("countersign_gateway_admissions_total", `outcome="unrecorded"`); failed != 3 || unrecorded != 2 {
		t.Errorf("%v failed and %v unrecorded admissions are counted", failed, unrecorded)
	}
}

// sse reads server-sent events.
type sse struct {
	res   *http.Response
	lines *bufio.Scanner
}

func (r *rig) open(path, who, last string) *sse {
	r.tb.Helper()
	req, err := http.NewRequestWithContext(r.tb.Context(), "GET", r.url+path, nil)
	servicetest.OK(r.tb, err)
	req.Header.Set("Authorization", "Bearer "+r.tokens[who])
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := http.DefaultClient.Do(req)
	servicetest.OK(r.tb, err)
	var body []byte
	if res.StatusCode != http.StatusOK { // no stream: its connection serves the next request
		body, err = io.ReadAll(res.Body)
		servicetest.OK(r.tb, err)
		_ = res.Body.Close()
	}
	checkDescribed(r, res, body)
	r.tb.Cleanup(func() { _ = res.Body.Close() })
	return &sse{res, bufio.NewScanner(res.Body)}
}

// next is the next event.
func (s *sse) next(tb testing.TB) (id, kind, data string) {
	tb.Helper()
	for s.lines.Scan() {
		name, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch {
		case name == "id":
			id = value
		case name == "event":
			kind = value
		case name == "data":
			return id, kind, value
		}
	}
	tb.Fatalf("the stream ended: %v", s.lines.Err())
	return "", "", ""
}

// A stream gives every record once and in order, across broken connections, a restarted gateway, and a
// position that the hub no longer has.
func TestStreamLosesAndRepeatsNothing(t *testing.T) {
	r := start(t)
	js := r.nats.JS("correlator")
	stop, err := follow.Serve(t.Context(), js, streams.DefaultShard, subject.Space{Prefix: "gov"}, zerolog.Nop())
	servicetest.OK(t, err)
	t.Cleanup(stop)
	written := 0
	write := func(n int) {
		for range n {
			written++
			space := subject.Space{Prefix: "gov"}
			r.nats.Publish("admitter", streams.Msg{Subject: space.Decision("acme", "deny", "s"), Body: fmt.Appendf(nil, "{\n \"n\": %d}", written)},
				streams.Msg{Subject: space.Approval("acme", "pending", "w"), Body: []byte(`{}`)}, streams.Msg{Subject: space.Decision("globex", "deny", "s"), Body: []byte(`{}`)})
		}
	}
	read, last := 0, ""
	take := func(s *sse, n int) {
		t.Helper()
		for range n {
			read++
			id, kind, data := s.next(t)
			if kind != "decisions" || data != fmt.Sprintf(`{"n":%d}`, read) {
				t.Fatalf("%s %s, want number %d", kind, data, read)
			}
			last = id
		}
	}
	var s *sse
	servicetest.Eventually(t, "the hub knows the log", func() bool { s = r.open("/v1/follow/decisions", "subscriber", ""); return s.res.StatusCode == 200 })
	s.lines.Scan() // the stream has begun
	write(3)
	take(s, 2)
	_ = s.res.Body.Close()
	write(2)
	s = r.open("/v1/follow/decisions", "subscriber", last)
	take(s, 3)
	servicetest.OK(t, r.service.Stop())
	write(4)
	r.serve()
	s = r.open("/v1/follow/decisions", "reviewer", last)
	take(s, 4)
	write(2)
	take(s, 2)
	for _, c := range []struct {
		path, who, last string
		status          int
	}{
		{"/v1/follow/decisions", "subscriber", "GOV@2020-01-01/1", 410}, {"/v1/follow/decisions", "subscriber", strings.Split(last, "/")[0] + "/99999999", 410},
		{"/v1/follow/decisions", "subscriber", "nonsense", 410}, {"/v1/follow/decisions", "subscriber", strings.Split(last, "/")[0] + "/18446744073709551615", 410},
		{"/v1/follow/decisions", "subscriber", strings.Split(last, "/")[0] + "/9223372036854775807", 410}, {"/v1/follow/decisions", "runtime", "", 403}, {"/v1/follow/calls", "reviewer", "", 403},
		{"/v1/follow/approvals", "globex", "", 401}, {"/v1/follow/secrets", "subscriber", "", 404},
	} {
		if got := r.open(c.path, c.who, c.last); got.res.StatusCode != c.status {
			t.Errorf("%s as %s: %d", c.path, c.who, got.res.StatusCode)
		}
	}
	servicetest.Eventually(t, "a stream of a token beyond its limit is refused", func() bool {
		return r.open("/v1/follow/decisions", "reviewer", "").res.StatusCode == 429
	})
}

// A stream ends with its token: what is written after the revocation is not on it.
func TestStreamOfARevokedToken(t *testing.T) {
	r := start(t)
	stop, err := follow.Serve(t.Context(), r.nats.JS("correlator"), streams.DefaultShard, subject.Space{Prefix: "gov"}, zerolog.Nop())
	servicetest.OK(t, err)
	t.Cleanup(stop)
	open := func(who string) *sse { return r.open("/v1/follow/decisions", who, "") }
	var revoked *sse
	servicetest.Eventually(t, "the hub knows the log", func() bool { revoked = open("subscriber"); return revoked.res.StatusCode == 200 })
	other := open("reviewer")
	revoked.lines.Scan() // both have begun
	other.lines.Scan()
	r.revoke("subscriber", "sam", token.Subscriber)
	servicetest.Eventually(t, "the revoked token does not count", func() bool { return open("subscriber").res.StatusCode == 401 })
	r.nats.Publish("admitter", streams.Msg{Subject: subject.Space{Prefix: "gov"}.Decision("acme", "deny", "s"), Body: []byte(`{"n":1}`)})
	if _, _, data := other.next(t); data != `{"n":1}` {
		t.Error(data)
	}
	for revoked.lines.Scan() {
		if strings.HasPrefix(revoked.lines.Text(), "data: ") {
			t.Errorf("the revoked token's stream has %s", revoked.lines.Text())
		}
	}
}

// Under a filter a stream loses and repeats nothing either: the id of a sign of life, or of a record, is where the
// next stream goes on, with any filter.
func TestFilteredStreamLosesAndRepeatsNothing(t *testing.T) {
	r := start(t)
	stop, err := follow.Serve(t.Context(), r.nats.JS("correlator"), streams.DefaultShard, subject.Space{Prefix: "gov"}, zerolog.Nop())
	servicetest.OK(t, err)
	t.Cleanup(stop)
	written := 0
	write := func(n int) {
		for range n {
			written++
			session := []string{"odd", "even"}[written%2]
			r.nats.Publish("admitter", streams.Msg{Subject: subject.Space{Prefix: "gov"}.Decision("acme", "deny", session), Body: fmt.Appendf(nil, `{"session":%q,"n":%d}`, session, written)})
		}
	}
	var s *sse
	const path = "/v1/follow/decisions?session="
	servicetest.Eventually(t, "the hub knows the log", func() bool { s = r.open(path+"even", "subscriber", ""); return s.res.StatusCode == 200 })
	s.lines.Scan() // the stream has begun
	next, last := 0, ""
	take := func(s *sse, n, step int) {
		t.Helper()
		for range n {
			next += step
			id, _, data := s.next(t)
			if !strings.HasSuffix(data, fmt.Sprintf(`"n":%d}`, next)) {
				t.Fatalf("%s, want number %d", data, next)
			}
			last = id
		}
	}
	write(8)
	next = -1
	take(s, 3, 2) // 1, 3, 5
	_ = s.res.Body.Close()
	write(5)
	s = r.open(path+"even", "subscriber", last)
	take(s, 4, 2) // 7, 9, 11, 13
	_ = s.res.Body.Close()
	write(3)
	s = r.open("/v1/follow/decisions", "subscriber", last)
	take(s, 3, 1) // 14, 15, 16, whatever their session
	for _, bad := range []string{"?rule=x", "?session=", "?session=a&session=b", "?nothing=1", "?state=a;b"} {
		if got := r.open("/v1/follow/decisions"+bad, "reviewer", "").res.StatusCode; got != 400 {
			t.Errorf("%s: %d", bad, got)
		}
	}
}
