package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// asks are requests of every protocol for a verdict, and stores for storing something. The other endpoints that need
// NATS are principals and the streams.
var (
	asks = []failing{
		{"AgentHook", "/event", "pre-tool-use.json", "agenthook"}, {"AAEP", "/v1/admit/aaep", "aaep-tool-invoked.json", "aaep"}, {"AANA", "/v1/admit/aana", "aana-public-read.json", "aana"},
		{"AANA pre-check", "/pre-tool-check", "aana-public-read.json", "aana"}, {"AANA, the other name", "/tool-precheck", "aana-public-read.json", "aana"},
		{"AUMP", "/aump/mandates/aump_mnd_parcels_1:evaluateAction", "aump-action.json", "aump"}, {"aioc tool", "/aioc/tool", "tool-call.json", "tool"}, {"aioc handoff", "/aioc/handoff", "handoff.json", "handoff"},
	}
	stores = []failing{
		{"AgentHook event", "/event", "", "agenthook"}, {"an event", "/v1/events/agenthook", "", "agenthook"}, {"AUMP evidence", "/aump/mandates/aump_mnd_parcels_1:appendEvidence", "", "aump"},
	}
	principals = []failing{{"AUMP, the principal", "/aump/mandates/aump_mnd_parcels_1:present", "", ""}}
)

type failing struct{ name, path, file, protocol string }

func (f failing) body(tb testing.TB) []byte {
	tb.Helper()
	switch {
	case f.file != "":
		return example(tb, "requests/"+f.file)
	case strings.HasSuffix(f.path, ":present"):
		return nil
	}
	return event(10)
}

// send sends the request; the headers are those that some bodies have no member for.
func (f failing) send(r *rig) (*http.Response, []byte) {
	r.tb.Helper()
	return r.do("POST", f.path, "runtime", f.body(r.tb), events.HeaderSession, "s-1", events.HeaderToolCallID, "call-9", events.HeaderAgent, "agent-1")
}

// checkFailure fails unless an answer is the failure in the protocol's words: AANA has it under detail, the others
// plainly. No answer may look like a permission.
func checkFailure(t *testing.T, what string, f failing, res *http.Response, body []byte, want gateway.Failure) {
	t.Helper()
	var plain struct{ Error, Message string }
	aana := struct{ Detail any }{&plain}
	into := any(&plain)
	if strings.HasSuffix(f.path, "check") {
		into = &aana
	}
	if err := json.Unmarshal(body, into); err != nil {
		t.Errorf("%s: %s: %v in %s", what, f.name, err, body)
	}
	p := gateway.ProblemOf(want)
	if res.StatusCode != p.Status || plain.Error != p.Code || plain.Message == "" || (res.Header.Get("Retry-After") == "") != (p.RetryAfter == 0) {
		t.Errorf("%s: %s: %d %v %s", what, f.name, res.StatusCode, res.Header, body)
	}
	if res.Header.Get(events.HeaderVerdict) != "" || res.Header.Get(events.HeaderReceipt) != "" || bytes.Contains(body, []byte(`allow"`)) {
		t.Errorf("%s: %s looks like a verdict: %v %s", what, f.name, res.Header, body)
	}
}

// Each failure inside is answered in the words of each protocol, and counted: no admitter, none in time, an answer
// that makes no sense, NATS that goes away while a request is under way, and NATS that is away. The full log has a test
// of its own.
func TestFailuresInEveryProtocol(t *testing.T) {
	r := startAAEP(t)
	subscription := r.subscription(t, "subscriber")
	expect := func(what string, list []failing, want gateway.Failure) {
		t.Helper()
		for _, f := range list {
			res, body := f.send(r)
			checkFailure(t, what, f, res, body, want)
		}
	}
	expect("no admitter", slices.Concat(asks, principals), gateway.NATSAway)
	expect("no ingest", stores, gateway.LogFull)
	for _, p := range []string{"agenthook", "aaep", "aana", "aump", "tool", "handoff"} {
		n := len(slices.DeleteFunc(slices.Clone(asks), func(f failing) bool { return f.protocol != p }))
		if got := r.metric("countersign_gateway_admissions_total", fmt.Sprintf("protocol=%q", p), `outcome="failed"`); int(got) != n {
			t.Errorf("%s: %v failed admissions are counted, want %d", p, got, n)
		}
	}
	stands := r.nats.Conn("admitter")
	standIn := func(subj string, f func(*nats.Msg)) *nats.Subscription {
		sub, err := stands.Subscribe(subj, f)
		servicetest.OK(t, err)
		servicetest.OK(t, stands.Flush())
		return sub
	}
	nonsense := func(m *nats.Msg) { _ = m.Respond([]byte(`{"decision":"allow"}`)) }
	for _, subj := range []string{"gov.admit.>", "gov.mandates.>"} {
		sub := standIn(subj, nonsense)
		defer func() { _ = sub.Unsubscribe() }()
	}
	expect("an answer without a verdict", slices.Concat(asks, principals), gateway.BadReply)
	r.nats.Stop()
	servicetest.Eventually(t, "the gateway notices", func() bool { res, _ := r.do("GET", "/readyz", "", nil); return res.StatusCode == 503 })
	expect("NATS away", slices.Concat(asks, stores, principals), gateway.NATSAway)
	for _, c := range []struct{ method, path, who, body string }{
		{"POST", "/aaep/v1/replies", "subscriber", string(reply(subscription))}, {"GET", "/v1/approvals/0123456789abcdef0123456789abcdef", "runtime", ""},
	} {
		res, body := r.do(c.method, c.path, c.who, []byte(c.body))
		checkFailure(t, "NATS away", failing{name: c.path, path: c.path}, res, body, gateway.NATSAway)
	}
	r.nats.Restart()
}

// A request to which nothing answers in time is a time-out in each protocol; an event may be on the log then. So is
// one whose answer cannot come, because NATS went away meanwhile.
func TestNoAnswerInTime(t *testing.T) {
	r := start(t, func(f *Flags) { f.Timeout = 150 * time.Millisecond })
	arrived := make(chan struct{}, 64)
	stands := r.nats.Conn("admitter")
	for _, subj := range []string{"gov.admit.>", "gov.mandates.>", "gov.ingest.>"} {
		_, err := stands.Subscribe(subj, func(*nats.Msg) { arrived <- struct{}{} })
		servicetest.OK(t, err)
	}
	servicetest.OK(t, stands.Flush())
	for _, f := range slices.Concat(asks, principals) {
		res, body := f.send(r)
		checkFailure(t, "no answer", f, res, body, gateway.TimedOut)
	}
	for _, f := range stores {
		res, body := f.send(r)
		checkFailure(t, "no answer", f, res, body, gateway.InDoubt)
	}
	for len(arrived) > 0 {
		<-arrived
	}
	type answer struct {
		res  *http.Response
		body []byte
	}
	got := make(chan answer, 1)
	go func() { res, body := asks[0].send(r); got <- answer{res, body} }()
	<-arrived
	r.nats.Stop()
	a := <-got
	checkFailure(t, "NATS goes away", asks[0], a.res, a.body, gateway.TimedOut)
	r.nats.Restart()
}

// Another admitter answers what one that stops has refused, and what one that died leaves without an answer. A request
// that names no tool call would be another call: it is sent again only if nobody has begun with it.
func TestAnotherAdmitterAnswers(t *testing.T) {
	r := start(t, func(f *Flags) { f.Timeout = 4 * time.Second })
	r.admitter()
	const call = `{"event_id":"6f1d2c1e-7a44-4a8e-9d0b-3c5a7be1f%03d","event_type":"PreToolUse","timestamp":"2026-11-20T09:00:00Z","source":"mail-agent","session_id":"s-1","tool_name":"send_email",` +
		`"tool_input":{"to":"dana@acme.example"},"resource_scope":"internal_network","operation_risk":"write","metadata":{"tool_call_id":"%s"}}`
	stops := func(m *nats.Msg, nc *nats.Conn) { // as the admitter: it leaves the queue group and refuses what has arrived
		if m.Sub.Unsubscribe() != nil || nc.Flush() != nil {
			return // the test fails: nobody answers
		}
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{events.HeaderVerdict: {"deny"}, "Nats-Service-Error-Code": {"503"}, "Nats-Service-Error": {"stopping"}}, Data: []byte(`{"decision":"deny"}`)})
	}
	dies := func(_ *nats.Msg, nc *nats.Conn) { nc.Close() }
	n := 0
	for _, c := range []struct {
		name, callID string
		does         func(*nats.Msg, *nats.Conn)
	}{{"one stops", "c-%d", stops}, {"one stops, the call has no id", "", stops}, {"one dies", "c-%d", dies}} {
		first := r.nats.Conn("admitter")
		var taken atomic.Bool
		_, err := first.QueueSubscribe("gov.admit.*.*", "admitter", func(m *nats.Msg) {
			if !taken.Swap(true) {
				c.does(m, first)
			}
		})
		servicetest.OK(t, err)
		servicetest.OK(t, first.Flush())
		for !taken.Load() {
			n++
			id := strings.Replace(c.callID, "%d", strconv.Itoa(n), 1)
			if res, body := r.do("POST", "/event", "runtime", fmt.Appendf(nil, call, n, id)); res.StatusCode != http.StatusOK || res.Header.Get(events.HeaderDecisionID) == "" {
				t.Errorf("%s: %d %v %s", c.name, res.StatusCode, res.Header, body)
			}
		}
		first.Close()
	}
}

// denialsOfVectors are the admitter's denials among the vectors for SDKs, by protocol.
func denialsOfVectors(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../../sdk/vectors/replies.json")
	servicetest.OK(t, err)
	var file struct {
		Answers map[string]struct{ HTTP struct{ Body string } }
	}
	servicetest.OK(t, json.Unmarshal(text, &file))
	denials := map[string]string{}
	for name, a := range file.Answers {
		if protocol, ok := strings.CutSuffix(name, " deny"); ok {
			denials[protocol] = a.HTTP.Body
		}
	}
	return denials
}

// The requests under way are answered when the gateway stops, in each protocol: those that ask, the admitter or as a
// principal, with the answer, those that store once it is durable, one that waits for an approval with the news that the
// gateway stops.
func TestStopAnswersWhatHasBegun(t *testing.T) {
	r := startAAEP(t)
	denials := denialsOfVectors(t)
	subscription := r.subscription(t, "subscriber")
	record, err := json.Marshal(events.Approval{WorkflowID: "wf-1", Tenant: servicetest.Tenant, Source: servicetest.Runtime, Status: "pending", Step: 1, ExpiresAt: events.Time{Time: time.Now().Add(time.Hour)}})
	servicetest.OK(t, err)
	r.nats.Publish("admitter", streams.Msg{Subject: subject.Space{}.Approval(servicetest.Tenant, "pending", "wf-1"), Body: record})
	arrived, release := make(chan struct{}, 64), make(chan struct{})
	stands := r.nats.Conn("admitter")
	hold := func(answer func(*nats.Msg)) func(*nats.Msg) {
		return func(m *nats.Msg) {
			arrived <- struct{}{}
			go func() { <-release; answer(m) }()
		}
	}
	const done = `{"code":"ok"}`
	for subj, answer := range map[string]func(*nats.Msg){
		"gov.admit.>": func(m *nats.Msg) {
			protocol := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{events.HeaderVerdict: {"deny"}, events.HeaderDecisionID: {"d-1"}}, Data: []byte(denials[protocol])})
		},
		"gov.mandates.>": func(m *nats.Msg) { _ = m.Respond([]byte(done)) },
		"gov.ingest.>":   func(m *nats.Msg) { _ = m.Respond([]byte(`{"stream":"GOV","seq":1}`)) },
	} {
		_, err := stands.Subscribe(subj, hold(answer))
		servicetest.OK(t, err)
	}
	servicetest.OK(t, stands.Flush()) // the server knows of it
	var under sync.WaitGroup
	for _, f := range slices.Concat(asks, stores, principals) {
		under.Go(func() {
			res, body := f.send(r)
			if res.StatusCode/100 != 2 {
				t.Errorf("%s: %d %s", f.name, res.StatusCode, body)
			}
			if f.file != "" && (string(body) != denials[f.protocol] || res.Header.Get(events.HeaderVerdict) != "deny") {
				t.Errorf("%s: %v %s", f.name, res.Header, body)
			}
			if strings.HasSuffix(f.path, ":present") && string(body) != done {
				t.Errorf("%s: %s", f.name, body)
			}
		})
	}
	under.Go(func() {
		if res, body := r.do("POST", "/aaep/v1/replies", "subscriber", reply(subscription)); res.StatusCode != http.StatusNoContent {
			t.Errorf("a reply: %d %s", res.StatusCode, body)
		}
	})
	under.Go(func() {
		res, body := r.do("GET", "/v1/approvals/wf-1?wait=30", "runtime", nil)
		checkFailure(t, "the gateway stops", failing{name: "an approval"}, res, body, gateway.Stopping)
	})
	for range len(asks) + len(stores) + len(principals) + 1 {
		<-arrived
	}
	servicetest.Eventually(t, "a request waits for an approval", func() bool { return r.metric("countersign_gateway_streams") == 1 })
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = r.service.Stop() }()
	servicetest.Eventually(t, "the gateway has begun to stop", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	close(release)
	under.Wait()
	<-stopped
}

// A panic is answered in the protocol's words by every endpoint that can panic, and logged without its text. Nothing
// works in this server, so every endpoint that needs a part of it panics.
func TestPanics(t *testing.T) {
	s := &server{count: uncounted, inflight: make(chan struct{}, 1)}
	var text bytes.Buffer
	s.env.Log, s.env.Health = zerolog.New(&text), daemon.NewHealth()
	srv := httptest.NewServer(s.routes())
	defer srv.Close()
	for _, d := range gateway.Descriptions() {
		if !slices.Contains(d.Statuses, http.StatusInternalServerError) {
			continue
		}
		method, path := d.Split()
		path = strings.NewReplacer("{target}", "agenthook", "{id}", "m", "{kind}", "decisions", "{workflow}", "w-1").Replace(path)
		text.Reset()
		req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, strings.NewReader(`{"secret of the request":1}`))
		servicetest.OK(t, err)
		req.Header.Set("Authorization", "Bearer secret of the header")
		res, err := http.DefaultClient.Do(req)
		servicetest.OK(t, err)
		body := new(bytes.Buffer)
		_, err = body.ReadFrom(res.Body)
		servicetest.OK(t, err)
		_ = res.Body.Close()
		checkFailure(t, "a panic", failing{name: d.Pattern, path: path}, res, body.Bytes(), gateway.Panicked)
		if strings.Contains(body.String()+text.String(), "secret of") || text.Len() == 0 {
			t.Errorf("%s: log %s", d.Pattern, text.String())
		}
	}
}

// What a panic says is not logged, its request keeps no place, and a gateway that stops begins nothing.
func TestPanicInAPlan(t *testing.T) {
	s := &server{count: uncounted, rates: newRates(0), inflight: make(chan struct{}, 1), flags: Flags{MaxBody: 10}}
	var text bytes.Buffer
	s.env.Log = zerolog.New(&text)
	secret, id, err := token.New(bytes.Repeat([]byte{7}, token.RandomBytes))
	servicetest.OK(t, err)
	now := time.Now()
	record, err := json.Marshal(token.Record{Hash: token.Hash(secret), Tenant: "acme", User: "rt1", Role: token.Runtime, CreatedAt: now.Add(-time.Hour), ExpiresAt: now.Add(time.Hour)})
	servicetest.OK(t, err)
	s.tokens = newTokenStore(Flags{Tenant: "acme"}, nil)
	s.tokens.confirmed = now
	s.tokens.apply(map[string][]byte{id: record})
	req, err := http.NewRequest("POST", "/event", strings.NewReader("{}"))
	servicetest.OK(t, err)
	req.Header.Set("Authorization", "Bearer "+secret)
	req.Header.Set("Content-Type", "application/json")
	out := s.answer(req, endpoint.Row{Plan: func(endpoint.Request) (endpoint.Plan, *endpoint.Problem) { panic("secret of the request") }})
	if out.Status != 500 || strings.Contains(string(out.Body)+text.String(), "secret of") || text.Len() == 0 {
		t.Errorf("%d %s, log %s", out.Status, out.Body, text.String())
	}
	if len(s.inflight) != 0 {
		t.Error("the place is not free again")
	}
	s.stopping.Store(true)
	if out := s.answer(req, endpoint.Row{}); out.Status != 503 {
		t.Errorf("stopping: %d", out.Status)
	}
}
