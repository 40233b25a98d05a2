package admitter

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// reachWeb1 registers the publisher web1 as reached through the rig's gateway.
func reachWeb1(tb testing.TB, n *servicetest.NATS) {
	tb.Helper()
	const doc = `{"schema": "https://schemas.countersign.dev/countersign/publisher-registration/v1", "publisher": "web1", "gateway": "` + servicetest.Gateway + `"}`
	_, err := bucket(tb, n, "operator", streams.BucketPublishers).Put(tb.Context(), publisher.Key(servicetest.Tenant, "registration.web1"), []byte(doc))
	servicetest.OK(tb, err)
}

// decisionIn reads the decision that a reply names, and the headers of the request's copy.
func decisionIn(t *testing.T, n *servicetest.NATS, reply *nats.Msg) (d events.Decision, request events.LogMessage) {
	t.Helper()
	id := reply.Header.Get(events.HeaderDecisionID)
	for _, m := range n.Log() {
		if id != "" && m.HeaderValue("ce-id") == id {
			servicetest.OK(t, json.Unmarshal(m.Body, &d))
		}
		if id != "" && m.HeaderValue(events.HeaderDecisionID) == id {
			request = m
		}
	}
	return d, request
}

// A gateway that was taken over speaks for the publishers that are registered as reached through
// it, and for no other. Each record says through which gateway a request came.
func TestAttackGatewayAsksForOthers(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	reachWeb1(t, n)
	serve(t, n)
	request := file(t, "requests/pre-tool-use.json")
	gateway := n.Conn(servicetest.Gateway)
	for name, c := range map[string]struct {
		nc              *nats.Conn
		header          []string
		source, through string
		refused         bool
	}{
		"registered":                 {gateway, []string{events.HeaderPublisher, "web1", events.HeaderGateway, "forged"}, "web1", servicetest.Gateway, false},
		"connects directly":          {gateway, []string{events.HeaderPublisher, servicetest.Runtime}, "", servicetest.Gateway, true},
		"registered nowhere":         {gateway, []string{events.HeaderPublisher, "web2"}, "", servicetest.Gateway, true},
		"names no publisher":         {gateway, nil, "", servicetest.Gateway, true},
		"names two publishers":       {gateway, []string{events.HeaderPublisher, "web1", "countersign-publisher", "web2"}, "", servicetest.Gateway, true},
		"a publisher claims another": {n.Conn(servicetest.Runtime), []string{events.HeaderPublisher, "web1", events.HeaderGateway, servicetest.Gateway}, servicetest.Runtime, "", false},
	} {
		reply := ask(t, c.nc, "gov.admit.acme.agenthook", request, c.header...)
		d, copied := decisionIn(t, n, reply)
		if d.Source != c.source || d.Gateway != c.through || copied.HeaderValue(events.HeaderGateway) != c.through {
			t.Errorf("%s: recorded as %q through %q (request: %v)", name, d.Source, d.Gateway, copied.Header)
		}
		denied := d.Verdict == events.Deny && len(d.Reasons) == 1 && d.Reasons[0].Code == admission.CodeUnknownSource
		if denied != c.refused || c.refused && reply.Header.Get(events.HeaderReceipt) != "" {
			t.Errorf("%s: %s %v", name, d.Verdict, d.Reasons)
		}
	}
}
