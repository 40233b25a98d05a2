package e2e_test

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
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
	"sync/atomic"
	"syscall"
	"testing"

	collectorlogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlpcommon "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// otlpReceiver is an OTLP/HTTP receiver that keeps what it gets.
type otlpReceiver struct {
	*httptest.Server
	refuse  atomic.Int32 // so many requests are refused first
	partial atomic.Bool

	mu       sync.Mutex
	raw      []byte // all bodies
	resource map[string]string
	spans    []*trace.Span
	logs     []*logs.LogRecord
	headers  http.Header
}

func receiveOTLP(t testing.TB) *otlpReceiver {
	t.Helper()
	r := &otlpReceiver{resource: map[string]string{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *otlpReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if r.refuse.Add(-1) >= 0 {
		http.Error(w, "not now", http.StatusInternalServerError)
		return
	}
	var in io.Reader = req.Body
	if req.Header.Get("Content-Encoding") == "gzip" {
		in, _ = gzip.NewReader(req.Body)
	}
	body, err := io.ReadAll(in)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raw = append(r.raw, body...)
	r.headers = req.Header.Clone()
	var answer proto.Message
	switch req.URL.Path {
	case "/v1/traces":
		var m collectortrace.ExportTraceServiceRequest
		err = proto.Unmarshal(body, &m)
		for _, rs := range m.ResourceSpans {
			r.keep(rs.Resource.Attributes)
			for _, ss := range rs.ScopeSpans {
				r.spans = append(r.spans, ss.Spans...)
			}
		}
		out := &collectortrace.ExportTraceServiceResponse{}
		if r.partial.Load() {
			out.PartialSuccess = &collectortrace.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: "one too many"}
		}
		answer = out
	case "/v1/logs":
		var m collectorlogs.ExportLogsServiceRequest
		err = proto.Unmarshal(body, &m)
		for _, rl := range m.ResourceLogs {
			r.keep(rl.Resource.Attributes)
			for _, sl := range rl.ScopeLogs {
				r.logs = append(r.logs, sl.LogRecords...)
			}
		}
		answer = &collectorlogs.ExportLogsServiceResponse{}
	default:
		err = fmt.Errorf("no path %s", req.URL.Path)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, _ := proto.Marshal(answer)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(out)
}

func (r *otlpReceiver) keep(resource []*otlpcommon.KeyValue) {
	for _, kv := range resource {
		r.resource[kv.Key] = kv.Value.GetStringValue()
	}
}

// got is what came so far.
func (r *otlpReceiver) got() (spans []*trace.Span, records []*logs.LogRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans), slices.Clone(r.logs)
}

func attr(list []*otlpcommon.KeyValue, key string) string {
	for _, kv := range list {
		if kv.Key == key {
			if a := kv.Value.GetArrayValue(); a != nil {
				return fmt.Sprint(a.Values)
			}
			return kv.Value.GetStringValue()
		}
	}
	return ""
}

// otel runs countersign otel against a receiver.
func (s *system) otel(t testing.TB, endpoint string, args ...string) result {
	t.Helper()
	cmd := exec.Command(program("countersign"), append([]string{"otel", "--ready-file", s.ready}, args...)...)
	return command(t, cmd, "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint, "OTEL_EXPORTER_OTLP_HEADERS=x-token=abc", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test")
}

const (
	traceID      = "0af7651916cd43dd8448eb211c80319c"
	parentID     = "b7ad6b7169203331"
	traceparent  = "00-" + traceID + "-" + parentID + "-01"
	otelSecret   = "hunter2-in-the-open"
	otelPassword = "password"
)

// traced is a session with a call that comes with a trace, one that has none, and
// one that ran although it was denied.
func tracedSession(t *testing.T, s *system, sess string) {
	t.Helper()
	r := s.runtime(t)
	good := allowedCall(sess, "call-traced").with("metadata.traceparent", traceparent).with("tool_input."+otelPassword, otelSecret)
	plain, bad := allowedCall(sess, "call-plain"), deniedCall(sess, "call-bad")
	for _, call := range []object{good, plain, bad} {
		r.admit(t, "agenthook", call.bytes())
		r.publish(t, call)
		r.publish(t, postToolUse(call))
	}
}

// What is sent of a session: spans with parents and GenAI attributes, log
// records in their traces, and nothing of any argument.
func TestOtelSession(t *testing.T) {
	s := shared(t)
	const sess = "s-otel-1"
	tracedSession(t, s, sess)
	s.settle(t)
	r := receiveOTLP(t)
	out := s.otel(t, r.URL, "--session", sess).want(t, 0)
	checkOtel(t, r, sess)
	if !strings.Contains(out.out, "4 spans and") || r.headers.Get("X-Token") != "abc" {
		t.Errorf("%s, headers %v", out.out, r.headers)
	}
	// The same evidence has the same identifiers: a backend can tell doubles.
	before, _ := r.got()
	s.otel(t, r.URL, "--session", sess).want(t, 0)
	after, _ := r.got()
	for i, span := range before {
		if !bytes.Equal(span.SpanId, after[len(before)+i].SpanId) || !bytes.Equal(span.TraceId, after[len(before)+i].TraceId) {
			t.Errorf("span %d has other identifiers the second time", i)
		}
	}
	r.partial.Store(true)
	if out := s.otel(t, r.URL, "--session", sess).want(t, 1); !strings.Contains(out.err, "did not take all") {
		t.Errorf("a batch that was taken in part: %s", out.err)
	}
	s.otel(t, r.URL, "--session", "nobody").want(t, 1).oneLine(t, "no record of this session")
	s.otel(t, r.URL).want(t, 2).oneLine(t, "--session", "--follow")
	cmd := exec.Command(program("countersign"), "otel", "--ready-file", s.ready, "--session", sess)
	command(t, cmd, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc").want(t, 2).oneLine(t, "http/protobuf")
	r.Close()
	s.otel(t, r.URL, "--session", sess).want(t, 1).oneLine(t, "sending traces")
}

func checkOtel(t *testing.T, r *otlpReceiver, sess string) {
	t.Helper()
	spans, records := r.got()
	if r.resource["service.name"] != "countersign" || r.resource["countersign.tenant"] != "acme" || r.resource["deployment.environment.name"] != "test" {
		t.Errorf("resource %v", r.resource)
	}
	for _, secret := range []string{otelSecret, "marker-call", "/workspace/"} {
		if bytes.Contains(r.raw, []byte(secret)) {
			t.Errorf("%q was sent", secret)
		}
	}
	byCall, ids := map[string]*trace.Span{}, map[string]bool{}
	for _, span := range spans {
		byCall[attr(span.Attributes, "gen_ai.tool.call.id")] = span // of what was denied and ran all the same, the execution
		ids[string(span.SpanId)] = true
		if attr(span.Attributes, "gen_ai.operation.name") != "execute_tool" || attr(span.Attributes, "gen_ai.conversation.id") != sess ||
			span.Name != "execute_tool "+attr(span.Attributes, "gen_ai.tool.name") || span.StartTimeUnixNano == 0 || span.EndTimeUnixNano < span.StartTimeUnixNano {
			t.Errorf("span %v", span)
		}
	}
	good, plain, bad := byCall["call-traced"], byCall["call-plain"], byCall["call-bad"]
	if len(spans) != 4 || len(ids) != 4 || good == nil || plain == nil || bad == nil {
		t.Fatalf("%d spans with %d identifiers: %v", len(spans), len(ids), spans)
	}
	if hex.EncodeToString(good.TraceId) != traceID || hex.EncodeToString(good.ParentSpanId) != parentID || good.Status.Code != trace.Status_STATUS_CODE_UNSET {
		t.Errorf("the traced call: %v", good)
	}
	if len(plain.ParentSpanId) != 0 || bytes.Equal(plain.TraceId, good.TraceId) || bytes.Equal(plain.TraceId, bad.TraceId) {
		t.Errorf("the call without a trace: %v", plain)
	}
	decisions, findings := 0, 0
	for _, l := range records {
		call := byCall[attr(l.Attributes, "gen_ai.tool.call.id")]
		switch l.EventName {
		case "countersign.decision":
			decisions++
			if call == nil || !bytes.Equal(l.TraceId, call.TraceId) {
				t.Errorf("a decision outside its call's trace: %v", l)
			}
		case "countersign.finding":
			findings++
			if attr(l.Attributes, "countersign.finding.rule") == "executed_despite_deny" && (l.SeverityNumber < logs.SeverityNumber_SEVERITY_NUMBER_ERROR || !bytes.Equal(l.TraceId, bad.TraceId) || !bytes.Equal(l.SpanId, bad.SpanId)) {
				t.Errorf("the finding: %v", l)
			}
		}
	}
	if decisions != 3 || findings == 0 {
		t.Errorf("%d decisions, %d findings", decisions, findings)
	}
}

// A follower sends everything once, whatever happens between: it is killed, the
// collector refuses for a while.
func TestOtelFollow(t *testing.T) {
	t.Parallel()
	s := start(t)
	r := receiveOTLP(t)
	position := filepath.Join(t.TempDir(), "position")
	run := func() *proc {
		cmd := exec.Command(program("countersign"), "otel", "--ready-file", s.ready, "--follow", "--since", "1h", "--position", position)
		cmd.Env, cmd.Stderr = cleanEnv("OTEL_EXPORTER_OTLP_ENDPOINT="+r.URL), os.Stderr
		p, err := launch(cmd)
		ok(t, err)
		t.Cleanup(func() { p.signal(syscall.SIGKILL) })
		return p
	}
	decisions := func() (seqs []int64) {
		_, records := r.got()
		for _, l := range records {
			for _, kv := range l.Attributes {
				if l.EventName == "countersign.decision" && kv.Key == "countersign.log.seq" {
					seqs = append(seqs, kv.Value.GetIntValue())
				}
			}
		}
		return seqs
	}
	heard := func(n int) {
		eventually(t, fmt.Sprintf("%d decisions at the collector", n), func() error {
			if got := len(decisions()); got < n {
				return fmt.Errorf("%d so far", got)
			}
			return nil
		})
	}
	rt := s.runtime(t)
	admit := func(from, n int) {
		for i := range n {
			rt.admit(t, "agenthook", allowedCall("s-otel-follow", fmt.Sprintf("call-%d", from+i)).with("tool_input.password", otelSecret).bytes())
		}
	}
	admit(0, 5)
	p := run()
	heard(5)
	r.refuse.Store(3) // the follower waits, and drops nothing
	admit(5, 5)
	heard(10)
	before := kept(t, position, 0)
	eventually(t, "the position is kept", func() error {
		if at := kept(t, position, 0); at < uint64(slices.Max(decisions())) {
			return fmt.Errorf("%d, was %d", at, before)
		}
		return nil
	})
	p.signal(syscall.SIGTERM)
	ok(t, p.wait())
	admit(10, 5) // while no follower runs
	p = run()
	heard(15)
	p.signal(syscall.SIGTERM)
	ok(t, p.wait())
	seqs := decisions()
	slices.Sort(seqs)
	if n := len(slices.Compact(slices.Clone(seqs))); n != 15 || len(seqs) != 15 {
		t.Errorf("%d decisions, %d of them different: %v", len(seqs), n, seqs)
	}
	if bytes.Contains(r.raw, []byte(otelSecret)) || bytes.Contains(r.raw, []byte("marker-call")) {
		t.Error("something of the arguments was sent")
	}
}

// kept is the sequence in a position file.
func kept(t testing.TB, file string, none uint64) uint64 {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		return none
	}
	var at struct{ After uint64 }
	ok(t, json.Unmarshal(b, &at))
	return at.After
}

// A real collector reads what is sent: one on PATH (otelcol), or with
// COUNTERSIGN_OTELCOL=build the one of tools/otelcol.
func TestOtelCollector(t *testing.T) {
	collector := otelcol(t)
	s := shared(t)
	const sess = "s-otel-collector"
	tracedSession(t, s, sess)
	s.settle(t)
	dir := t.TempDir()
	file, config := filepath.Join(dir, "out.jsonl"), filepath.Join(dir, "config.yaml")
	endpoint := freeAddress(t)
	ok(t, os.WriteFile(config, []byte(fmt.Sprintf(`receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {file: {path: %q, flush_interval: 100ms}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    traces: {receivers: [otlp], exporters: [file]}
    logs: {receivers: [otlp], exporters: [file]}
`, endpoint, file)), 0o600))
	cmd := exec.Command(collector, "--config", config)
	cmd.Env, cmd.Stderr = cleanEnv(), os.Stderr
	p, err := launch(cmd)
	ok(t, err)
	t.Cleanup(func() { p.signal(syscall.SIGKILL) })
	eventually(t, "the collector listens", func() error {
		c, err := net.Dial("tcp", endpoint)
		if err == nil {
			err = c.Close()
		}
		return err
	})
	s.otel(t, "http://"+endpoint, "--session", sess).want(t, 0)
	p.signal(syscall.SIGTERM)
	ok(t, p.wait())
	text, err := os.ReadFile(file)
	ok(t, err)
	for _, want := range []string{traceID, `"parentSpanId":"` + parentID, "execute_tool write_file", "gen_ai.tool.call.id", "call-plain", "countersign.decision", "countersign.finding", `"service.name"`, `"countersign.tenant"`} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the collector did not write %s:\n%s", want, text)
		}
	}
	for _, secret := range []string{otelSecret, "marker-call"} {
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("the collector has %q", secret)
		}
	}
}

func otelcol(t *testing.T) string {
	t.Helper()
	needSystem(t)
	if os.Getenv("COUNTERSIGN_OTELCOL") == "build" {
		out := filepath.Join(t.TempDir(), "otelcol")
		cmd := exec.Command("go", "build", "-o", out, ".")
		cmd.Dir, cmd.Env = filepath.Join(root, "tools", "otelcol"), append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building tools/otelcol: %v\n%s", err, text)
		}
		return out
	}
	path, err := exec.LookPath("otelcol")
	if err != nil {
		t.Skip("no OpenTelemetry collector on PATH (otelcol); COUNTERSIGN_OTELCOL=build builds the one of tools/otelcol")
	}
	return path
}

// freeAddress is a loopback address without a listener.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	defer l.Close()
	return l.Addr().String()
}
