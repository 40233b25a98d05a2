package admitter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
	"github.com/countersign-dev/countersign/streams"
)

// lastTwo are the newest request and decision of the log.
func lastTwo(t *testing.T, n *servicetest.NATS) (request events.LogMessage, d events.Decision) {
	t.Helper()
	log := n.Log()
	requests, decisions := of(log, "gov.events."), of(log, "gov.decisions.")
	if len(requests) == 0 || len(decisions) == 0 {
		t.Fatal("nothing is in the log")
	}
	d, err := events.DecodeRecord[events.Decision](decisions[len(decisions)-1].Body)
	servicetest.OK(t, err)
	return requests[len(requests)-1], d
}

// A message can have as many bytes as the server takes, and the log's copy has
// headers beside it. A request that leaves no room for them is denied, and the
// denial is recorded; its digest stands in for it. That goes for headers as well.
func TestRequestThatTheLogCannotHold(t *testing.T) {
	n := servicetest.StartWith(t, streams.Shard{}, func(c *streams.ServerConfig) { c.TenantMaxPayload = streams.DefaultMaxPayload })
	put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	s := serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	full := int(nc.MaxPayload())
	good := file(t, "requests/pre-tool-use.json")
	master, err := keys.Master(n.Keys)
	servicetest.OK(t, err)
	store, err := sessionsecrets.Open(t.Context(), n.JS("admitter"), master)
	servicetest.OK(t, err)
	keyed := func(session string, b []byte) string {
		if session == "" {
			return digest.Keyed(master.Tenant("acme"), b)
		}
		key, there, err := store.Lookup(t.Context(), sessionsecrets.SessionOfName("acme", session))
		if err != nil || !there {
			t.Fatalf("session %.40q has no key: %v", session, err)
		}
		return key.Digests.Digest(b)
	}
	seen := 0
	for name, m := range map[string]*nats.Msg{
		"a body as large as can be":      {Data: bytes.Repeat([]byte(" "), full)},
		"a body just below that":         {Data: bytes.Repeat([]byte(" "), full-300)},
		"a valid request, padded":        {Data: append(bytes.Clone(good), bytes.Repeat([]byte(" "), full-len(good)-64)...)},
		"a header of nearly everything":  {Data: good, Header: nats.Header{events.HeaderTrace: {strings.Repeat("t", full-len(good)-100)}}},
		"headers that JetStream refuses": {Data: good, Header: nats.Header{events.HeaderSession: {strings.Repeat("s", 66_000)}}},
		"a session of nearly everything": {Data: good, Header: nats.Header{events.HeaderSession: {strings.Repeat("s", full-len(good)-100)}}},
	} {
		m.Subject = "gov.admit.acme.agenthook"
		reply, err := nc.RequestMsg(m, servicetest.Guard)
		servicetest.OK(t, err)
		seen++
		request, d := lastTwo(t, n)
		if reply.Header.Get(events.HeaderVerdict) != "deny" || reply.Header.Get(events.HeaderReceipt) != "" || readNative(t, reply.Data).Decision != "deny" ||
			reply.Header.Get("Nats-Service-Error-Code") != "413" || reply.Header.Get("Nats-Service-Error") != "too_large" {
			t.Errorf("%s: %v %.200s", name, reply.Header, reply.Data)
		}
		if d.DecisionID != reply.Header.Get(events.HeaderDecisionID) || d.Verdict != events.Deny || d.RequestDigest == "" || d.Reasons[len(d.Reasons)-1].Code != "too_large" {
			t.Errorf("%s: the record is %+v", name, d)
		}
		var copied struct {
			Withheld struct {
				Bytes         int
				Reason        string
				RequestDigest string `json:"request_digest"`
			}
		}
		servicetest.OK(t, json.Unmarshal(request.Body, &copied))
		if w := copied.Withheld; w.Bytes != len(m.Data) || w.Reason != "too_large" || w.RequestDigest != keyed(d.Session, m.Data) || d.RequestDigest != keyed(d.Session, request.Body) || request.HeaderValue(events.HeaderDecisionID) != d.DecisionID {
			t.Errorf("%s: in its place stands %.300s", name, request.Body)
		}
		if n := len(of(n.Log(), "gov.decisions.")); n != seen {
			t.Errorf("%s: %d decisions after %d requests", name, n, seen)
		}
	}
	if got := ask(t, nc, "gov.admit.acme.agenthook", good).Header.Get(events.HeaderVerdict); got != "allow" {
		t.Errorf("the next request is answered %s", got)
	}
	s.Running()
	if problems := fmt.Sprint(s.Health.Report()); strings.Contains(problems, "cannot be recorded") {
		t.Errorf("a large request makes the admitter unwell: %s", problems)
	}
}

// The log's copy of a request has the headers that were decided on, to the letter:
// none that was not looked at, and both of two that contradict each other.
func TestCopiesHaveTheHeadersThatDecided(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "all.yaml", []byte("apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: all}\nspec: {rules: [{name: r, when: 'true', verdict: allow, reason: ok}]}\n"))
	serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	body := []byte(`{"agentName":"Desk","toolName":"send_mail","rawArguments":"{}","runContext":{},"turn":1}`)
	for name, c := range map[string]struct {
		header  nats.Header
		session string
		copied  []string
		verdict string
	}{
		"as it is":           {nats.Header{"Countersign-Session": {"s1"}}, "s1", []string{"s1"}, "allow"},
		"another case":       {nats.Header{"countersign-session": {"victim"}}, "", nil, "allow"},
		"both":               {nats.Header{"Countersign-Session": {"s1"}, "countersign-session": {"victim"}, "COUNTERSIGN-SESSION": {"victim"}}, "s1", []string{"s1", "victim"}, "deny"},
		"both the same":      {nats.Header{"Countersign-Session": {"s1"}, "countersign-session": {"s1"}}, "s1", []string{"s1"}, "allow"},
		"twice the same":     {nats.Header{"Countersign-Session": {"s1", "s1"}}, "s1", []string{"s1"}, "allow"},
		"contradictory":      {nats.Header{"Countersign-Session": {"s1", "victim"}}, "s1", []string{"s1", "victim"}, "deny"},
		"contradictory late": {nats.Header{"Countersign-Session": {"s1", "s1", "s1", "victim"}}, "s1", []string{"s1", "victim"}, "deny"},
		"not UTF-8":          {nats.Header{"Countersign-Session": {"\xff"}}, "", []string{"\xff"}, "deny"},
		"a signature":        {nats.Header{"Countersign-Session": {"s1"}, events.HeaderSignature: {"x"}, events.HeaderDecisionID: {"mine"}}, "s1", []string{"s1"}, "allow"},
	} {
		m := &nats.Msg{Subject: "gov.admit.acme.tool", Header: c.header, Data: body}
		reply, err := nc.RequestMsg(m, servicetest.Guard)
		servicetest.OK(t, err)
		var request events.LogMessage
		for _, m := range of(n.Log(), "gov.events.") {
			if strings.HasSuffix(m.Subject, ".request") {
				request = m
			}
		}
		_, d := lastTwo(t, n)
		if v := reply.Header.Get(events.HeaderVerdict); v != c.verdict || d.Session != c.session || !slices.Equal(request.Header["Countersign-Session"], c.copied) {
			t.Errorf("%s: %s, session %q, the copy has %q", name, v, d.Session, request.Header["Countersign-Session"])
		}
		for key, values := range request.Header {
			if strings.EqualFold(key, "countersign-session") && key != "Countersign-Session" || key == events.HeaderSignature || slices.Contains(values, "mine") {
				t.Errorf("%s: the copy has %s: %q", name, key, values)
			}
		}
	}
}
