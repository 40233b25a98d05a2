package admitter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/ingest"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/internal/service/supervise"
	"github.com/countersign-dev/countersign/internal/testkit"
	"github.com/countersign-dev/countersign/streams"
)

func rigEnv() daemon.Env { return daemon.Env{Health: daemon.NewHealth()} }

const (
	keySubject    = "gov.control.GOV.key"
	policySubject = "gov.control.GOV.policy"
)

func TestKeyIsInTheLogBeforeTheFirstDecision(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	// What the bucket holds says nothing about the log.
	k, err := keys.ReceiptRecord(n.Keys)
	servicetest.OK(t, err)
	record, err := events.Encode(k)
	servicetest.OK(t, err)
	_, err = bucket(t, n, "admitter", streams.BucketKeys).Put(t.Context(), k.KeyID, record)
	servicetest.OK(t, err)

	for range 2 { // the second one finds it there
		s := serve(t, n)
		ask(t, n.Conn(servicetest.Runtime), "gov.admit.acme.agenthook", file(t, "requests/pre-tool-use.json"))
		servicetest.OK(t, s.Stop())
	}
	log := n.Log()
	published := of(log, keySubject)
	if len(published) != 1 || published[0].Seq > of(log, "gov.decisions.")[0].Seq {
		t.Fatalf("%d key records, the first decision at %d", len(published), of(log, "gov.decisions.")[0].Seq)
	}
	got, err := events.DecodeRecord[events.KeyRecord](published[0].Body)
	servicetest.OK(t, err)
	if got != k {
		t.Errorf("published %+v", got)
	}
}

func TestRefusesAKeyRecordOfAnotherKey(t *testing.T) {
	n, other := servicetest.Start(t, streams.Shard{}), t.TempDir()
	servicetest.OK(t, keys.Ensure(other, keys.ReceiptFile, keys.MasterFile))
	f := flags(n)
	f.Keys = other
	if err := Run(t.Context(), f, rigEnv()); !errors.Is(err, keys.ErrMissing) || !strings.Contains(err.Error(), "countersign provision") {
		t.Errorf("error %v", err)
	}
}

func TestPoliciesAreReloaded(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	body := file(t, "requests/pre-tool-use.json")
	answer := func() string { return readNative(t, ask(t, nc, "gov.admit.acme.agenthook", body).Data).Reason }
	problem := func() string { return s.Health.Report().Problems["policies"] }

	if got := answer(); got != "no_policy" {
		t.Errorf("empty bucket: %s", got)
	}
	servicetest.Eventually(t, "health says that there is none", func() bool { return strings.Contains(problem(), "no policy") })
	put(t, n, "mail.yaml", []byte("kind: Nonsense\n"))
	servicetest.Eventually(t, "a broken policy is refused", func() bool { return answer() == "policy_error" })
	// A set decides before its state is in the health report.
	servicetest.Eventually(t, "health names the document", func() bool { return strings.Contains(problem(), "mail.yaml:") })
	put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	servicetest.Eventually(t, "the mended one decides", func() bool { return answer() == "Mail to colleagues is fine." })
	servicetest.Eventually(t, "health is good again", func() bool { return s.Health.Report().Status == daemon.StatusOK })
	servicetest.OK(t, bucket(t, n, "operator", streams.BucketPolicies).Delete(t.Context(), "mail.yaml"))
	servicetest.Eventually(t, "a policy that was taken back decides no more", func() bool { return answer() == "no_policy" })
	checkPolicyRecords(t, n.Log())
	n.CheckLinked(events.ControlPolicy)
}

// checkPolicyRecords demands that what a decision went by is in the log before
// it.
func checkPolicyRecords(t *testing.T, log []events.LogMessage) {
	t.Helper()
	known := map[uint64]string{}
	for _, m := range log {
		if m.Subject == policySubject {
			c, err := events.DecodeRecord[events.PolicyChange](m.Body)
			servicetest.OK(t, err)
			known[c.Revision] = c.Digest
		}
		if d, err := events.DecodeRecord[events.Decision](m.Body); err == nil && d.Policy != nil {
			if digest, there := known[d.Policy.Revision]; !there || digest != d.Policy.Digest {
				t.Errorf("decision at %d goes by %+v; the log knows %v", m.Seq, *d.Policy, known)
			}
		}
	}
	if len(known) < 3 {
		t.Errorf("changes in the log: %v", known)
	}
}

func TestDeniesWhileTheServerIsAwayAndRecovers(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	s := serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	body := file(t, "requests/pre-tool-use.json")
	ask(t, nc, "gov.admit.acme.agenthook", body)
	n.Stop()
	servicetest.Eventually(t, "the admitter says that it is cut off", func() bool { return s.Health.Report().Problems["nats"] != "" })
	if _, err := nc.Request("gov.admit.acme.agenthook", body, servicetest.Guard); err == nil {
		t.Error("an answer without a server")
	}
	n.Restart()
	servicetest.Eventually(t, "it is healthy again", func() bool { return s.Health.Report().Status == daemon.StatusOK })
	s.Running()
	nc = n.Conn(servicetest.Runtime)
	servicetest.Eventually(t, "it answers again", func() bool {
		reply, err := nc.Request("gov.admit.acme.agenthook", body, servicetest.Guard)
		return err == nil && reply.Header.Get(events.HeaderVerdict) == "allow"
	})
	// A policy that is taken back now must be taken back.
	put(t, n, "mail.yaml", []byte("kind: Nonsense\n"))
	servicetest.Eventually(t, "it still follows the policies", func() bool {
		return readNative(t, ask(t, nc, "gov.admit.acme.agenthook", body).Data).Reason == "policy_error"
	})
}

// TestSubscriptionsEndWithTheirConnection: an admitter that left its queue groups while the
// connection was lost is a member of each of them once when the server is back. A member without
// a service would take every second request.
func TestSubscriptionsEndWithTheirConnection(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	counts := metrics.New(ServiceName)
	s := servicetest.Run(t, func(ctx context.Context, env daemon.Env) error {
		env.Metrics = counts
		return Run(ctx, flags(n), env)
	}).AwaitReady()
	taking := func(value string) bool {
		return bytes.Contains(counts.Text(), []byte(`countersign_admissions_open{service="admitter",shard="GOV"} `+value+"\n"))
	}
	if !taking("1") {
		t.Errorf("ready, and the metrics do not say that requests are taken:\n%s", counts.Text())
	}
	n.Stop()
	servicetest.Eventually(t, "the admitter has noticed", func() bool { return s.Health.Report().Problems["jetstream"] != "" && taking("0") })
	n.Restart()
	servicetest.Eventually(t, "it is healthy again", func() bool { return s.Health.Report().Status == daemon.StatusOK && taking("1") })
	nc, body := n.Conn(servicetest.Runtime), file(t, "requests/pre-tool-use.json")
	const event = "gov.events.acme.rt1.agenthook.s1.PreToolUse"
	for _, subject := range []string{"gov.admit.acme.agenthook", event} {
		servicetest.Eventually(t, subject+" is served again", func() bool {
			_, err := nc.Request(subject, body, time.Second)
			return err == nil
		})
		for i := range 40 {
			if _, err := nc.Request(subject, body, servicetest.Guard); err != nil {
				t.Fatalf("request %d on %s: %v", i, subject, err)
			}
		}
	}
}

func TestAReplacedLogGetsTheKeyAgain(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	serve(t, n)
	n.Stop()
	n.Recreate()
	servicetest.Eventually(t, "the key is published", func() bool { return len(of(n.Log(), keySubject)) > 0 })
}

// TestALogReplacedDuringTheStartGetsTheKey: the server was replaced after the start had published the
// key, and before reconnects were looked at.
func TestALogReplacedDuringTheStartGetsTheKey(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	nc := n.Conn("admitter")
	before := nc.Stats().Reconnects
	stop, err := s.startDependencies(t.Context(), nc)
	servicetest.OK(t, err)
	defer stop()
	n.Stop()
	n.Recreate()
	servicetest.Eventually(t, "the admitter is connected again", func() bool { return nc.Stats().Reconnects != before && nc.IsConnected() })
	servicetest.OK(t, s.beginRechecks(t.Context(), nc, before))
	if keys := of(n.Log(), keySubject); len(keys) != 1 {
		t.Errorf("%d keys in the log", len(keys))
	}
}

// TestAKeyThatCannotBePublishedIsNoProblemOfDurability: the health report names the part that fails.
func TestAKeyThatCannotBePublishedIsNoProblemOfDurability(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	s.rechecking.Store(true)
	nc := n.Conn("admitter")
	stop, err := s.startDependencies(t.Context(), nc)
	servicetest.OK(t, err)
	defer stop()
	_, err = bucket(t, n, "admitter", streams.BucketKeys).Put(t.Context(), keys.RetiredEntry(s.keys.signer.Load().key.ID), []byte("{}"))
	servicetest.OK(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.handleReconnect(ctx, nc) }()
	for range 2 { // the second round begins after the first has reported
		servicetest.Eventually(t, "the key cannot be published", func() bool { return s.env.Health.Report().Problems["receipt_key"] != "" })
		s.env.Health.Set("receipt_key", "")
	}
	cancel()
	<-done
	if p := s.env.Health.Report().Problems["durability"]; p != "" {
		t.Errorf("durability: %s", p)
	}
}

func TestStopAnswersWhatIsUnderWay(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	inbox, err := nc.SubscribeSync(nc.NewInbox() + ".*")
	servicetest.OK(t, err)
	const asked = 50
	prefix := strings.TrimSuffix(inbox.Subject, "*")
	for range asked {
		servicetest.OK(t, nc.PublishRequest("gov.admit.acme.agenthook", prefix+"r", file(t, "requests/pre-tool-use.json")))
	}
	servicetest.OK(t, nc.Flush())
	servicetest.OK(t, s.Stop())
	servicetest.OK(t, nc.Flush())
	for i := range asked {
		m, err := inbox.NextMsg(servicetest.Guard)
		if err != nil {
			t.Fatalf("%d of %d were answered: %v", i, asked, err)
		}
		if m.Header.Get(events.HeaderVerdict) != "deny" && m.Header.Get("Status") != "503" {
			t.Errorf("answer %v", m.Header)
		}
	}
	if _, err := nc.Request("gov.admit.acme.agenthook", nil, servicetest.Guard); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("after the stop: %v", err)
	}
}

// A stop ends before the supervisor kills, also while the server does not answer: each part waits as long as it may.
func TestStopFitsItsGrace(t *testing.T) {
	field, _ := reflect.TypeFor[Flags]().FieldByName("Timeout")
	record, err := time.ParseDuration(field.Tag.Get("default"))
	servicetest.OK(t, err)
	for what, longest := range map[string]time.Duration{
		"events, and the release of their lease":        ingest.StopTimeout + time.Second,
		"requests":                                      stopTimeout,
		"the commit of a request that came at the last": flushTimeout + record + streams.DefaultCommitTimeout,
	} {
		if longest >= supervise.StopGrace {
			t.Errorf("%s: %s, of %s", what, longest, supervise.StopGrace)
		}
	}
}

func TestPolicyChangeThatCannotBeRecordedIsRecordedLater(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	p := newPolicyStore(s)
	n.Stop()
	p.loadSet(t.Context())
	if len(p.changes.pending) != 1 || s.env.Health.Report().Problems["policy_log"] == "" {
		t.Fatalf("%d changes wait; health %+v", len(p.changes.pending), s.env.Health.Report())
	}
	if s.config.Load() == nil {
		t.Error("the change has no effect")
	}
	n.Restart()
	servicetest.Eventually(t, "the change is recorded", func() bool { p.changes.recordPending(t.Context()); return len(p.changes.pending) == 0 })
	if got := of(n.Log(), policySubject); len(got) != 1 {
		t.Errorf("%d changes in the log", len(got))
	}
	if got := s.env.Health.Report().Problems["policy_log"]; got != "" {
		t.Errorf("health still says %q", got)
	}
}

func TestOccurrences(t *testing.T) {
	o := newOccurrenceTracker(2)
	at := func(id string) int {
		return o.currentOccurrence(events.Decision{Tenant: "t", Source: "s", Session: "x", ToolCallID: id})
	}
	end := func(id string, n int) {
		o.noteClosed(events.Call{Tenant: "t", Source: "s", Session: "x", ToolCallID: id, Occurrence: n})
	}
	if at("") != 0 || at("a") != 1 || at("a") != 1 {
		t.Error("nothing closed yet")
	}
	end("a", 1)
	end("b", 3)
	end("b", 2) // late
	if at("a") != 2 || at("b") != 4 {
		t.Errorf("a %d, b %d", at("a"), at("b"))
	}
	end("a", 2)
	end("c", 1)
	if at("a") != 3 || at("b") != 4 || at("c") != 2 {
		t.Errorf("a %d, b %d, c %d", at("a"), at("b"), at("c"))
	}
	for i := range 100 { // ids without further calls are forgotten, the others are not
		end("a", 2)
		end(fmt.Sprint("new", i), 1)
	}
	if at("a") != 3 || at("b") != 1 || at("new99") != 2 || len(o.recent)+len(o.previous) > 4 {
		t.Errorf("a %d, b %d, %d remembered", at("a"), at("b"), len(o.recent)+len(o.previous))
	}
	if o.currentOccurrence(events.Decision{Tenant: "t", Source: "other", Session: "x", ToolCallID: "a"}) != 1 {
		t.Error("another source has the same occurrence")
	}
}

// After a lost connection the library's watch notices only much later what it
// missed; the admitter does not wait for that.
func TestPoliciesAreReadAgainAfterALostConnection(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	p := newPolicyStore(s)
	f := unstartedFollower(t, n, s, p)
	servicetest.OK(t, f.openWatch(ctx))
	f.updates = make(chan jetstream.KeyValueEntry) // deaf
	done, back := make(chan struct{}), make(chan nats.Status, 1)
	go func() { defer close(done); f.followChanges(ctx, back) }()
	revision := put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	back <- nats.CONNECTED
	servicetest.Eventually(t, "the new policy decides", func() bool { return s.config.Load().Revision == revision })
	cancel()
	<-done
	closeWatch(f.watch)
}

// TestTheSameRequestTwiceIsARetry: what client.Admit does when an answer does not
// come. Both are decided, recorded and answered as the same occurrence of the call.
func TestTheSameRequestTwiceIsARetry(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	serve(t, n)
	serve(t, n) // whichever admitter is asked
	nc := n.Conn(servicetest.Runtime)
	receipts := map[string]bool{}
	for range 4 {
		reply := ask(t, nc, "gov.admit.acme.agenthook", file(t, "requests/pre-tool-use.json"))
		if reply.Header.Get(events.HeaderVerdict) != "allow" {
			t.Fatalf("%s", reply.Data)
		}
		receipts[reply.Header.Get(events.HeaderReceipt)] = true
	}
	decisions := of(n.Log(), "gov.decisions.")
	if len(decisions) != 4 || len(receipts) != 4 {
		t.Errorf("%d decisions, %d receipts", len(decisions), len(receipts))
	}
	for _, m := range decisions {
		d, err := events.DecodeRecord[events.Decision](m.Body)
		servicetest.OK(t, err)
		if d.Occurrence != 1 {
			t.Errorf("occurrence %d", d.Occurrence)
		}
	}
}

// TestADecisionOutlivesItsMembership: JetStream was away, and the admitter left the queue group and
// joined it again while a decision was being recorded. The caller gets what the log says.
func TestADecisionOutlivesItsMembership(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	s.env.Ready = func() error { return nil }
	recording, goOn := make(chan struct{}), make(chan struct{})
	var err error
	s.committer, err = streams.NewCommitter(n.Conn("admitter"), streams.CommitterOptions{Stream: s.flags.Stream, Sign: func(m []streams.Msg) error {
		close(recording)
		<-goOn
		return s.keys.signBatch(m)
	}})
	servicetest.OK(t, err)
	defer s.committer.Close()
	ctx, cancel := context.WithCancel(t.Context())
	down, done := make(chan bool), make(chan error, 1)
	go func() { done <- s.serveRequests(ctx, down) }()
	servicetest.Eventually(t, "it takes requests", func() bool { return s.requests.Load() != nil })
	first := s.requests.Load()

	nc := n.Conn(servicetest.Runtime)
	answer := nc.NewInbox()
	inbox, err := nc.SubscribeSync(answer)
	servicetest.OK(t, err)
	servicetest.OK(t, nc.PublishRequest("gov.admit.acme.agenthook", answer, file(t, "requests/pre-tool-use.json")))
	<-recording
	down <- true
	down <- false
	servicetest.Eventually(t, "the connection of the first membership is closed", first.IsClosed)
	close(goOn)
	m, err := inbox.NextMsg(servicetest.Guard)
	servicetest.OK(t, err)
	if decisions := of(n.Log(), "gov.decisions."); len(decisions) != 1 || m.Header.Get(events.HeaderDecisionSeq) != fmt.Sprint(decisions[0].Seq) {
		t.Errorf("answer %v for %d decisions on the log", m.Header, len(decisions))
	}
	cancel()
	servicetest.OK(t, <-done)
}

// TestHealthSaysThatNoRequestsAreTaken: JetStream is back, and the admitter cannot connect again for requests.
func TestHealthSaysThatNoRequestsAreTaken(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	s.env.Ready = func() error { return nil }
	ctx, cancel := context.WithCancel(t.Context())
	down, done := make(chan bool), make(chan error, 1)
	go func() { done <- s.serveRequests(ctx, down) }()
	servicetest.Eventually(t, "it takes requests", func() bool { return s.requests.Load() != nil })
	first := s.requests.Load()
	down <- true
	s.env.Health.Set("log", "the last decision could not be recorded")
	n.Stop()
	down <- false
	problem := func() string { return s.env.Health.Report().Problems["requests"] }
	servicetest.Eventually(t, "the health report says why it takes none", func() bool { return strings.Contains(problem(), "no NATS server answers") })
	n.Restart()
	servicetest.Eventually(t, "it takes requests again, and says so", func() bool { return s.requests.Load() != first && problem() == "" })
	servicetest.Eventually(t, "what failed before is no problem any more", func() bool { return s.env.Health.Report().Problems["log"] == "" })
	cancel()
	servicetest.OK(t, <-done)
}

// TestUnrecordedDecisionsAreNotALineEach: while the log takes nothing, the admitter's own log does not fill the
// disk, too. The metric counts all.
func TestUnrecordedDecisionsAreNotALineEach(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{MaxBytes: 64 << 10})
	counts := metrics.New(ServiceName)
	var lines testkit.Log
	servicetest.Run(t, func(ctx context.Context, env daemon.Env) error {
		env.Metrics, env.Log = counts, zerolog.New(&lines)
		return Run(ctx, flags(n), env)
	}).AwaitReady()
	nc, body := n.Conn(servicetest.Runtime), file(t, "requests/pre-tool-use.json")
	begun, refused := time.Now(), 0
	for refused < 100 {
		if ask(t, nc, "gov.admit.acme.agenthook", body).Header.Get(events.HeaderDecisionID) == "" {
			refused++
		}
	}
	most := 2 + int(time.Since(begun)/time.Second)
	if got := lines.Count("could not be recorded; the answer is deny"); got < 1 || got > most {
		t.Errorf("%d lines of %d refusals, at most %d", got, refused, most)
	}
	if want := fmt.Sprintf(`countersign_admissions_refused_total{code="audit_unavailable",service="admitter"} %d`+"\n", refused); !bytes.Contains(counts.Text(), []byte(want)) {
		t.Errorf("not counted:\n%s", counts.Text())
	}
}

// TestRequestsWithoutReplyAreNotALineEach: what nothing can answer counts for the quota, and does not fill the disk.
func TestRequestsWithoutReplyAreNotALineEach(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	f, counts := flags(n), metrics.New(ServiceName)
	f.PublisherAdmissions, f.QuotaBurst, f.MaxInflight = 1, 5*time.Second, 2000
	var lines testkit.Log
	servicetest.Run(t, func(ctx context.Context, env daemon.Env) error {
		env.Metrics, env.Log = counts, zerolog.New(&lines)
		return Run(ctx, f, env)
	}).AwaitReady()
	nc, begun := n.Conn(servicetest.Runtime), time.Now()
	for range 200 {
		servicetest.OK(t, nc.Publish("gov.admit.acme.agenthook", []byte("{}")))
	}
	reviewer := n.Conn("dana")
	for range 200 {
		servicetest.OK(t, reviewer.Publish("gov.resolve.acme", []byte("{}")))
	}
	servicetest.OK(t, reviewer.Flush())
	servicetest.Eventually(t, "one finding of the quota", func() bool { return len(of(n.Log(), "gov.findings.")) == 1 })
	servicetest.Eventually(t, "all are dropped", func() bool {
		return bytes.Contains(counts.Text(), []byte(`countersign_admissions_unanswerable_total{service="admitter"} 200`))
	})
	if got, most := lines.Count("without a usable reply subject"), 2+int(time.Since(begun)/time.Second); got < 1 || got > most {
		t.Errorf("%d lines, at most %d", got, most)
	}
}
