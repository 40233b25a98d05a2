package admitter

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/quota"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// A publisher that asks more often than its quota allows is denied without a
// record; its siblings are not, and there is one finding that is signed.
func TestAdmissionQuota(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	f := flags(n)
	f.PublisherAdmissions, f.PublisherEvents, f.QuotaBurst = 1, 1, 5*time.Second
	servicetest.Run(t, func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) }).AwaitReady()
	nc := n.Conn(servicetest.Runtime)
	decided, refused := 0, 0
	for _, reply := range askAtOnce(t, nc, "gov.admit.acme.agenthook", file(t, "requests/pre-tool-use.json"), 20) {
		switch {
		case reply.Header.Get(events.HeaderDecisionID) != "":
			decided++
		case reply.Header.Get(events.HeaderVerdict) == "deny" && reply.Header.Get("Nats-Service-Error") == codeQuota && reply.Header.Get(events.HeaderReceipt) == "":
			refused++
		default:
			t.Fatalf("%v %s", reply.Header, reply.Data)
		}
	}
	if decided < 5 || refused < 5 {
		t.Errorf("%d decided, %d refused", decided, refused)
	}
	if reply := ask(t, n.Conn("rt2"), "gov.admit.acme.agenthook", file(t, "requests/pre-tool-use.json")); reply.Header.Get(events.HeaderDecisionID) == "" {
		t.Errorf("a sibling: %v", reply.Header)
	}
	askAtOnce(t, nc, "gov.events.acme.rt1.agenthook.s1.X", []byte("{}"), 10)
	servicetest.Eventually(t, "one finding for requests, one for events", func() bool { return len(of(n.Log(), "gov.findings.")) == 2 })
	reviewsAreMetered(t, n)
	if got := len(of(n.Log(), "gov.decisions.")); got != decided+1 {
		t.Errorf("%d decisions, %d answered", got, decided+1)
	}
	for _, m := range of(n.Log(), "gov.findings.") {
		r, err := events.DecodeRecord[events.Finding](m.Body)
		servicetest.OK(t, err)
		if m.Subject != "gov.findings.acme.medium.~" || r.Rule != ruleQuota || !strings.Contains(r.Explanation, servicetest.Runtime) && !strings.Contains(r.Explanation, "dana") || m.HeaderValue(events.HeaderSignature) == "" {
			t.Errorf("%s %+v", m.Subject, r)
		}
	}
}

// reviewsAreMetered: a reviewer writes a record for each workflow that is none, and no more of them
// than a quota allows.
func reviewsAreMetered(t *testing.T, n *servicetest.NATS) {
	t.Helper()
	recorded, refused := 0, 0
	for _, reply := range askAtOnce(t, n.Conn("dana"), "gov.resolve.acme", []byte(`{"action":"show","workflow_id":"wf-0"}`), 20) {
		switch code := reply.Header.Get("Nats-Service-Error"); code {
		case string(approval.CodeUnknown):
			recorded++
		case codeQuota:
			refused++
		default:
			t.Fatalf("%v %s", reply.Header, reply.Data)
		}
	}
	if recorded < 5 || refused < 5 || recorded != len(of(n.Log(), "gov.control.GOV.resolve")) {
		t.Errorf("%d recorded, %d refused", recorded, refused)
	}
	servicetest.Eventually(t, "a finding about the reviewer", func() bool { return len(of(n.Log(), "gov.findings.")) == 3 })
}

// askAtOnce sends requests before the first one is answered, so that the pace of this process does not
// matter to a quota.
func askAtOnce(t *testing.T, nc *nats.Conn, subj string, body []byte, n int) (list []*nats.Msg) {
	t.Helper()
	answers, err := nc.SubscribeSync(nc.NewInbox())
	servicetest.OK(t, err)
	for range n {
		servicetest.OK(t, nc.PublishRequest(subj, answers.Subject, body))
	}
	for range n {
		reply, err := answers.NextMsg(servicetest.Guard)
		servicetest.OK(t, err)
		list = append(list, reply)
	}
	return list
}

// The headers of a request count against the quota of bytes.
func TestAdmissionQuotaOfHeaders(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	s.admissionQuota = quota.NewMeter(quota.Quotas{Publisher: quota.Rate{Bytes: 10_000}, Burst: time.Second})
	refused := 0
	for range 3 {
		r := preToolUse(t)
		r.header["Ce-X"] = []string{strings.Repeat("x", 9000)}
		s.admitRequest(t.Context(), r, time.Now())
		if readNative(t, r.body).Reason == codeQuota {
			refused++
		}
	}
	if refused != 2 {
		t.Errorf("%d of 3 requests are refused", refused)
	}
}

func TestQuotaFlags(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	f := flags(n)
	f.TenantBytes = -1
	if err := Run(t.Context(), f, daemon.Env{}); err == nil {
		t.Error("a limit below zero is accepted")
	}
}
