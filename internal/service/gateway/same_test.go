package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/protocol"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// others are policies for the protocols that the examples have none for.
const others = `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata:
  name: others
spec:
  match:
    tenants: [acme]
    protocols: [aana, aump, tool, handoff]
  rules:
    - name: late
      when: 'protocol == "handoff" && has(event.turn) && event.turn == 2'
      verdict: ask
      reason: late_handoff
    - name: rest
      when: 'protocol != "handoff"'
      verdict: allow
      reason: known
`

// exampleHash is the hash that the example of an AUMP request names.
const exampleHash = "sha256-2d6d903ded938950df3d04a19085ea140a2c8762705165804e7388b5852a3a9c"

// asked is one request, and what came of it over NATS and over HTTP.
type asked struct {
	protocol, path string
	header         nats.Header
	body           []byte
	direct         *nats.Msg
	status         int
	webHeader      http.Header
	web            []byte
}

// ask sends a request over NATS.
func (a *asked) ask(ctx context.Context, nc *nats.Conn) (err error) {
	a.direct, err = nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: "gov.admit.acme." + a.protocol, Header: a.header, Data: a.body})
	return err
}

// verdict is what the answer over NATS says; malformed for a request that no verdict is for.
func (a *asked) verdict() string {
	if a.direct.Header.Get("Nats-Service-Error-Code") != "" {
		return "malformed"
	}
	return a.direct.Header.Get(events.HeaderVerdict)
}

// natively is the path of the protocol's own endpoint, where that hands the request on and answers in the
// admitter's words; "" otherwise.
func (a *asked) natively() string {
	switch malformed := a.verdict() == "malformed"; {
	case a.protocol == subject.ProtoAgentHook && !malformed:
		return "/event"
	case a.protocol == subject.ProtoAANA && !malformed:
		return "/pre-tool-check"
	case a.protocol == subject.ProtoAUMP && !malformed && !bytes.Contains(a.direct.Data, []byte("mandate_not_found")):
		return "/aump/mandates/" + courierID + ":evaluateAction"
	case a.protocol == subject.ProtoTool || a.protocol == subject.ProtoHandoff:
		return "/aioc/" + a.protocol
	}
	return ""
}

// askBoth sends a request over NATS and over HTTP.
func (r *rig) askBoth(ctx context.Context, nc *nats.Conn, a *asked) error {
	if err := a.ask(ctx, nc); err != nil {
		return err
	}
	var list []string
	for name, v := range a.header {
		list = append(list, name, v[0])
	}
	res, body := r.do("POST", a.path, "runtime", a.body, list...)
	a.status, a.webHeader, a.web = res.StatusCode, res.Header, body
	return nil
}

// withoutVarying is a body without what differs between two answers to one request.
func withoutVarying(tb testing.TB, body []byte) any {
	if !json.Valid(body) {
		return string(body)
	}
	return canCompare(tb, body)
}

// recorded is what the log has of a decision: all messages, without what differs between two decisions of one request.
func recorded(tb testing.TB, log []events.LogMessage, decision string) (list []any) {
	for _, m := range log {
		if decision == "" || m.HeaderValue(events.HeaderDecisionID) != decision && m.HeaderValue("ce-id") != decision {
			continue
		}
		header := maps.Clone(m.Header)
		maps.DeleteFunc(header, func(name string, _ []string) bool {
			return strings.HasPrefix(name, "Nats-") || slices.Contains([]string{events.HeaderDecisionID, events.HeaderGateway, events.HeaderSignature, "ce-id", "ce-time"}, name)
		})
		body := any(string(m.Body))
		if m.HeaderValue(events.HeaderSignature) != "" { // the admitter's own
			body = withoutVarying(tb, m.Body)
			delete(body.(map[string]any), "timestamp") // of aioc's trace events
		}
		list = append(list, fmt.Sprint(m.Subject, " ", header), body)
	}
	return list
}

// gatewayOf is the gateway that the record of a decision names.
func gatewayOf(tb testing.TB, log []events.LogMessage, decision string) string {
	tb.Helper()
	at := slices.IndexFunc(log, func(m events.LogMessage) bool { return m.HeaderValue("ce-id") == decision })
	if at < 0 {
		tb.Fatalf("no decision %s", decision)
	}
	d, err := events.DecodeRecord[events.Decision](log[at].Body)
	servicetest.OK(tb, err)
	return d.Gateway
}

// Whatever is asked, in each of the six protocols, has over NATS and over HTTP the same answer and the same records.
func TestGeneratedRequestsAreAnsweredAsOverNATS(t *testing.T) {
	r := start(t)
	hash := r.putCourier(servicetest.Tenant, courierID, "sam")
	r.put(streams.BucketPolicies, "others.yaml", []byte(others))
	r.admitter()
	nc := r.nats.Conn(servicetest.Runtime)
	seeds := map[string][]string{
		subject.ProtoAgentHook: {"pre-tool-use.json", "pre-tool-use-denied.json", "pre-tool-use-external.json"}, subject.ProtoAAEP: {"aaep-tool-invoked.json", "aaep-irreversible.json"},
		subject.ProtoAANA: {"aana-public-read.json", "aana-write.json", "aana-refused.json"}, subject.ProtoAUMP: {"aump-action.json"}, subject.ProtoTool: {"tool-call.json"}, subject.ProtoHandoff: {"handoff.json"},
	}
	m := newMutator(25)
	var all []*asked
	for _, protocol := range slices.Sorted(maps.Keys(seeds)) {
		for i := range 20 {
			id := fmt.Sprintf("call_%s%05d", protocol, i) // no two requests are about one call
			text := example(t, "requests/"+seeds[protocol][i%len(seeds[protocol])])
			a := &asked{protocol: protocol, path: "/v1/admit/" + protocol, header: nats.Header{}}
			a.body = m.document(t, text, "call-mail-1", id, "call_flights1", id, "call-1", id, "call-2", id, exampleHash, hash)
			if protocol == subject.ProtoAANA || protocol == subject.ProtoAUMP || i%8 == 7 { // the bodies of others say it, or contradict it
				a.header = nats.Header{events.HeaderSession: {"s-1"}, events.HeaderToolCallID: {id}, events.HeaderAgent: {"agent-parcels"}}
			}
			all = append(all, a)
		}
	}
	each := func(f func(context.Context, int, *asked) error) {
		t.Helper()
		group, ctx := errgroup.WithContext(t.Context())
		group.SetLimit(8)
		for i, a := range all {
			group.Go(func() error { return f(ctx, i, a) })
		}
		servicetest.OK(t, group.Wait())
	}
	each(func(ctx context.Context, _ int, a *asked) error { return a.ask(ctx, nc) }) // opens the workflows that both others find
	each(func(ctx context.Context, i int, a *asked) error {
		if path := a.natively(); path != "" && i%2 == 0 {
			a.path = path
		}
		return r.askBoth(ctx, nc, a)
	})
	log, verdicts := r.nats.Log(), map[string]int{}
	for _, a := range all {
		if d, w := withoutVarying(t, a.direct.Data), withoutVarying(t, a.web); !reflect.DeepEqual(d, w) {
			t.Errorf("%s %.300s: over NATS %.600s, over HTTP %.600s", a.path, a.body, a.direct.Data, a.web)
		}
		if refused := a.direct.Header.Get("Nats-Service-Error-Code"); (a.status == http.StatusOK) != (refused == "") {
			t.Errorf("%s %s: HTTP status %d, over NATS %q", a.path, a.body, a.status, refused)
		}
		for _, name := range []string{events.HeaderVerdict, events.HeaderMode, events.HeaderWorkflow} {
			if d, w := a.direct.Header.Get(name), a.webHeader.Get(name); d != w {
				t.Errorf("%s %s: %s is %q over NATS and %q over HTTP", a.path, a.body, name, d, w)
			}
		}
		if d, w := a.direct.Header.Get(events.HeaderReceipt), a.webHeader.Get(events.HeaderReceipt); (d == "") != (w == "") {
			t.Errorf("%s %s: a receipt came over one of both only", a.path, a.body)
		}
		direct, web := a.direct.Header.Get(events.HeaderDecisionID), a.webHeader.Get(events.HeaderDecisionID)
		if d, w := recorded(t, log, direct), recorded(t, log, web); len(d) < 4 || !reflect.DeepEqual(d, w) {
			t.Errorf("%s %.300s: recorded over NATS as %.600v, over HTTP as %.600v", a.path, a.body, d, w)
		}
		if d, w := gatewayOf(t, log, direct), gatewayOf(t, log, web); d != "" || w != servicetest.Gateway {
			t.Errorf("%s %.300s: the records name the gateways %q over NATS and %q over HTTP", a.path, a.body, d, w)
		}
		verdicts[a.protocol+" "+a.verdict()]++
	}
	for protocol := range seeds { // the property says nothing about requests that are all alike
		kinds := 0
		for _, verdict := range []string{"allow", "ask", "deny", "malformed"} {
			if verdicts[protocol+" "+verdict] > 0 {
				kinds++
			}
		}
		if kinds < 2 {
			t.Errorf("%s has too few kinds of answers: %v", protocol, verdicts)
		}
	}
}

// stored are the publisher's events on the log, as text, without what says through which gateway they came.
func (r *rig) stored() (list []string) {
	r.tb.Helper()
	for _, m := range r.nats.Log() {
		if strings.HasPrefix(m.Subject, "gov.events.acme."+servicetest.Runtime+".") {
			header := maps.Clone(m.Header)
			maps.DeleteFunc(header, func(name string, _ []string) bool {
				return strings.HasPrefix(name, "Nats-") || name == events.HeaderGateway
			})
			list = append(list, fmt.Sprintf("%s %v %q", m.Subject, header, m.Body))
		}
	}
	return list
}

// Whatever is published, in each protocol that has events, is on the log over HTTP as it is over NATS.
func TestGeneratedEventsAreStoredAsOverNATS(t *testing.T) {
	r := start(t)
	r.admitter()
	evidence, err := os.ReadFile("../../../schemas/testdata/corpus/aump/evidence-event/valid/minimal.json")
	servicetest.OK(t, err)
	lines := func(name string) [][]byte {
		return bytes.Split(bytes.TrimSpace(example(t, "sessions/"+name)), []byte("\n"))
	}
	seeds := map[string][][]byte{subject.ProtoAgentHook: lines("agenthook-mail.jsonl"), subject.ProtoAAEP: lines("aaep-flight.jsonl"), subject.ProtoAUMP: {evidence}}
	if got := slices.Sorted(maps.Keys(seeds)); !slices.Equal(got, protocol.Published()) {
		t.Fatalf("events of %v, of %v there are none here", protocol.Published(), got)
	}
	m := newMutator(52)
	bodies := map[string][][]byte{}
	for _, name := range protocol.Published() {
		for i := range 24 {
			bodies[name] = append(bodies[name], m.document(t, seeds[name][i%len(seeds[name])]))
		}
	}
	for _, name := range protocol.Published() {
		sender := client.Sender{Tenant: servicetest.Tenant, Publisher: servicetest.Runtime, Session: "s-1"}
		msgs, err := sender.Messages(name, bodies[name]...)
		servicetest.OK(t, err)
		servicetest.OK(t, streams.PublishEvents(t.Context(), r.nats.Conn(servicetest.Runtime), msgs))
	}
	direct := r.stored()
	for _, name := range protocol.Published() {
		for i, body := range bodies[name] {
			path := "/v1/events/" + name
			if e, err := agenthook.Decode(body, strictjson.DefaultLimits); name == subject.ProtoAgentHook && i%2 == 0 && err == nil && agenthook.ValidTypeName(e.EventType) && e.EventType != "PreToolUse" {
				path = "/event"
			}
			var header []string
			if protocol.Rows[name].NamesNoSession {
				header = []string{events.HeaderSession, "s-1"}
			}
			if res, answer := r.do("POST", path, "runtime", body, header...); res.StatusCode != http.StatusOK {
				t.Errorf("%s %s: %d %s", path, body, res.StatusCode, answer)
			}
		}
	}
	web := r.stored()[len(direct):]
	if len(direct) != len(web) || len(direct) == 0 {
		t.Fatalf("%d events over NATS, %d over HTTP", len(direct), len(web))
	}
	for i := range direct {
		if direct[i] != web[i] {
			t.Errorf("over NATS %.500s, over HTTP %.500s", direct[i], web[i])
		}
	}
}
