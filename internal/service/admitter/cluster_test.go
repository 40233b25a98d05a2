package admitter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/correlator"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// serveAt runs an admitter that knows some servers of a cluster.
func serveAt(t *testing.T, c *servicetest.Cluster, url string, accept bool) *servicetest.Service {
	t.Helper()
	f := flags(c.NATS)
	f.Server, f.Replicated = url, accept
	return servicetest.Run(t, func(ctx context.Context, env daemon.Env) error { return daemon.RunAgain(ctx, env, again(f)) }).AwaitReady()
}

func again(f Flags) func(context.Context, daemon.Env) error {
	return func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) }
}

// requestIn is the example request in a session of its own, as another call.
func requestIn(t *testing.T, session string) client.Call {
	t.Helper()
	var body map[string]any
	servicetest.OK(t, json.Unmarshal(file(t, "requests/pre-tool-use.json"), &body))
	body["session_id"], body["tool_call_id"], body["event_id"] = session, "call-"+session, "11111111-1111-4111-8111-"+fmt.Sprintf("%012x", time.Now().UnixNano()&0xffffffffffff)
	text, err := json.Marshal(body)
	servicetest.OK(t, err)
	return client.Call{Protocol: "agenthook", Body: text, Session: session, ToolCallID: "call-" + session}
}

// isLong reports whether `make cluster` runs the tests.
func isLong() bool { return os.Getenv("COUNTERSIGN_CLUSTER") != "" }

// onlyLong skips a test that `make cluster` runs.
func onlyLong(t *testing.T) {
	t.Helper()
	if !isLong() {
		t.Skip("takes half a minute or more: make cluster")
	}
}

// TestClusterServerIsStopped: three servers, admitters at two of them and one client.
// The server that the client and one admitter are on stops (SIGSTOP: connections
// stay). Every request is answered by the other admitter; make cluster holds how soon. When the server goes
// on so does its admitter. On the way: replicas that are not synced are unhealthy
// unless that is accepted, and an admitter starts while the server is away.
func TestClusterServerIsStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers take seconds to elect leaders")
	}
	c := servicetest.StartCluster(t, [3]string{"always", "2m", "always"})
	put(t, c.NATS, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	const dead = 2
	c.LeadElsewhere(dead)
	here := serveAt(t, c, c.URLOf(dead), true)
	there := serveAt(t, c, c.URLWithout(dead), false)
	if p := here.Health.Report().Problems; len(p) != 0 {
		t.Errorf("replicas that are accepted as durable: %v", p)
	}
	if p := there.Health.Report().Problems["durability"]; !strings.Contains(p, "replicated") || !strings.Contains(p, "--accept-replicated") {
		t.Errorf("replicas that are not synced: %q", p)
	}

	timeout := servicetest.Guard // an answer on a busy machine may be late
	if isLong() {
		timeout = 5 * time.Second
	}
	ask := func(nc *client.Client, i int) time.Duration {
		begun := time.Now()
		v := nc.Admit(t.Context(), requestIn(t, fmt.Sprintf("s-%d", i)))
		took := time.Since(begun)
		if v.Decision == "" || v.DecisionID == "" {
			t.Errorf("request %d: %s %s %v after %v", i, v.Decision, v.Reason, v.Err, took)
		}
		return took
	}
	public, err := os.ReadFile(c.Keys + "/checkpoint.pub")
	servicetest.OK(t, err)
	asker, err := client.New(c.ConnAt(servicetest.Runtime, dead), client.Options{Tenant: servicetest.Tenant, Publisher: servicetest.Runtime, PublicKey: string(public), Timeout: timeout})
	servicetest.OK(t, err)
	defer asker.Close()
	for i := range 20 {
		ask(asker, i)
	}
	readsComeFromTheLeader(t, c)
	writersWaitForEachOther(t, c)
	c.Pause(dead)
	paused := time.Now()
	const slow = 3 * time.Second // on a busy machine
	longest, late := time.Duration(0), 0
	for i := 100; time.Since(paused) < 8*time.Second; i++ {
		took := ask(asker, i)
		longest = max(longest, took)
		if time.Since(paused) > 5*time.Second && took > slow {
			late++
		}
	}
	t.Logf("longest answer %v, %d slow ones after 5 s", longest, late)
	if late > 0 && isLong() {
		t.Errorf("%d answers took more than %v although the server had been dead for 5 s", late, slow)
	}
	// An admitter starts without it, and says who is missing.
	begun := serveAt(t, c, c.URLWithout(dead), false)
	if p := begun.Health.Report().Problems["durability"]; !strings.Contains(p, "n3 is away; with fewer than 2 nothing can be recorded") {
		t.Errorf("with a server away: %q", p)
	}
	c.Resume(dead)
	servicetest.Eventually(t, "the admitter at the stopped server is well again", func() bool {
		_ = asker.Admit(t.Context(), requestIn(t, "s-well")) // it says that it records again once it has
		return len(here.Health.Report().Problems) == 0
	})
	for i := range 20 {
		ask(asker, 1000+i)
	}
	here.Running()
	there.Running()
}

// TestClusterAdmitterLeavesTheQueueGroup: two of three servers are stopped, so the
// third reaches no leader. Its admitter leaves the queue group, so that a request is
// refused at once and not after a time-out, and comes back with JetStream.
func TestClusterAdmitterLeavesTheQueueGroup(t *testing.T) {
	onlyLong(t)
	c := servicetest.StartCluster(t, [3]string{"always", "always", "always"})
	put(t, c.NATS, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	s := serveAt(t, c, c.URLOf(0), false)
	nc := c.ConnAt(servicetest.Runtime, 0)
	call := requestIn(t, "s-1")
	if reply := ask(t, nc, "gov.admit.acme.agenthook", call.Body); reply.Header.Get(events.HeaderDecisionID) == "" {
		t.Fatalf("no decision: %s", reply.Data)
	}
	c.Pause(1)
	c.Pause(2)
	servicetest.Eventually(t, "the admitter says that JetStream is away", func() bool { return s.Health.Report().Problems["jetstream"] != "" })
	servicetest.Eventually(t, "no admitter is listening", func() bool {
		_, err := nc.Request("gov.admit.acme.agenthook", call.Body, time.Second)
		return err != nil && strings.Contains(err.Error(), "no responders")
	})
	s.Running()
	c.Resume(1)
	c.Resume(2)
	servicetest.Eventually(t, "it answers again", func() bool {
		reply, err := nc.Request("gov.admit.acme.agenthook", requestIn(t, "s-2").Body, time.Second)
		return err == nil && reply.Header.Get(events.HeaderDecisionID) != ""
	})
	s.Running()
}

// writersWaitForEachOther: the server refuses a write while another one of the key is not stored on
// the replicas yet. Two ledgers change one account at the same moment and have all the money; of two
// writers of one approval workflow, the later one sees the other's change.
func writersWaitForEachOther(t *testing.T, c *servicetest.Cluster) {
	t.Helper()
	const each = 10
	var writing sync.WaitGroup
	for writer := range 2 {
		l, stop := ledgerOn(t, c.NATS)
		defer stop()
		a := keeper(t, c.NATS)
		writing.Go(func() {
			for i := range each {
				if _, _, err := reserve(t, l, fmt.Sprintf("c%d-%d", writer, i), 1000/2/each); err != nil {
					t.Errorf("money: %v", err)
				}
				out, _ := pendingStep(a, time.Now().Add(time.Hour))
				w := out.Consumption.Approval.Next
				w.Slot = strings.Repeat(fmt.Sprint(i), 64)
				key := approval.StoreKey(w.Tenant, w.Slot)
				_, err := a.writeWorkflow(t.Context(), key, w, 0)
				if err != nil && (!errors.Is(err, errConflict) || a.index.lookup(key).revision == 0) {
					t.Errorf("approval: %v", err)
				}
			}
		})
	}
	writing.Wait()
}

// readsComeFromTheLeader: a key that was acknowledged is found by connections to all
// three servers.
func readsComeFromTheLeader(t *testing.T, c *servicetest.Cluster) {
	t.Helper()
	js := c.JS("auditor")
	kv, err := streams.OpenBucket(t.Context(), js, streams.BucketSessionSecrets)
	servicetest.OK(t, err)
	var readers []func(string) error
	for i := range 3 {
		at, err := streams.OpenBucket(t.Context(), newJS(t, c.ConnAt("correlator", i)), streams.BucketSessionSecrets)
		servicetest.OK(t, err)
		readers = append(readers, func(key string) error { _, err := at.Get(t.Context(), key); return err })
	}
	for i := range 50 {
		key := fmt.Sprintf("k%d", i)
		_, err := kv.Create(t.Context(), key, []byte("v"))
		servicetest.OK(t, err)
		for _, read := range readers {
			if err := read(key); err != nil {
				t.Fatalf("key %d was acknowledged and is not found: %v", i, err)
			}
		}
	}
}

func newJS(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	servicetest.OK(t, err)
	return js
}

// TestClusterLeaderIsStopped: the server that leads the log stops while requests come
// in. They are answered again once the others have elected a leader, every decision
// that was answered is in the log, and none is there twice.
func TestClusterLeaderIsStopped(t *testing.T) {
	onlyLong(t)
	c := servicetest.StartCluster(t, [3]string{"always", "always", "always"})
	put(t, c.NATS, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	dead := c.Leader(streams.DefaultShard)
	for i := range 3 {
		serveAt(t, c, c.URLWithout((dead+1+i)%3), false)
	}
	public, err := os.ReadFile(c.Keys + "/checkpoint.pub")
	servicetest.OK(t, err)
	asker, err := client.New(c.ConnAt(servicetest.Runtime, dead), client.Options{Tenant: servicetest.Tenant, Publisher: servicetest.Runtime, PublicKey: string(public)})
	servicetest.OK(t, err)
	defer asker.Close()
	decided := map[string]bool{}
	var lastServed, gap = time.Now(), time.Duration(0)
	end := time.Now().Add(30 * time.Second)
	for i := 0; time.Now().Before(end); i++ {
		if i == 20 {
			c.Pause(dead)
		}
		v := asker.Admit(t.Context(), requestIn(t, fmt.Sprintf("s-%d", i)))
		if v.DecisionID != "" {
			decided[v.DecisionID] = true
			gap, lastServed = max(gap, time.Since(lastServed)), time.Now()
		}
	}
	c.Resume(dead)
	t.Logf("%d decisions answered, longest time without one %v", len(decided), gap)
	if time.Since(lastServed) > 5*time.Second || gap > 20*time.Second {
		t.Errorf("not served again: the last answer is %v old, the longest pause was %v", time.Since(lastServed), gap)
	}
	logged := map[string]int{}
	for _, m := range of(c.Log(), "gov.decisions.") {
		logged[m.HeaderValue("ce-id")]++
	}
	for id := range decided {
		if logged[id] != 1 {
			t.Errorf("decision %s was answered and is in the log %d times", id, logged[id])
		}
	}
}

// TestClusterCorrelatorOutlivesNewSessions: requests in new sessions, as many as come;
// admitters and correlators ask for the keys of each at the same moment. Correlators
// that read buckets by any replica ended within seconds.
func TestClusterCorrelatorOutlivesNewSessions(t *testing.T) {
	onlyLong(t)
	c := servicetest.StartCluster(t, [3]string{"always", "always", "always"})
	put(t, c.NATS, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	for range 2 {
		serveAt(t, c, c.URL(), false)
	}
	var correlators []*servicetest.Service
	for range 2 {
		f := correlator.Flags{Flags: c.Flags("correlator"), MissingAfter: 15 * time.Minute, StateEvery: 200_000}
		correlators = append(correlators, servicetest.Run(t, func(ctx context.Context, env daemon.Env) error {
			return daemon.RunAgain(ctx, env, func(ctx context.Context, env daemon.Env) error { return correlator.Run(ctx, f, env) })
		}).AwaitReady())
	}
	public, err := os.ReadFile(c.Keys + "/checkpoint.pub")
	servicetest.OK(t, err)
	var all sync.WaitGroup
	var asked atomic.Int64
	end := time.Now().Add(10 * time.Second)
	for worker := range 32 {
		asker, err := client.New(c.Conn(servicetest.Runtime), client.Options{Tenant: servicetest.Tenant, Publisher: servicetest.Runtime, PublicKey: string(public)})
		servicetest.OK(t, err)
		defer asker.Close()
		all.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				if v := asker.Admit(t.Context(), requestIn(t, fmt.Sprintf("w%d-%d", worker, i))); v.DecisionID != "" {
					asked.Add(1)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d decisions in as many new sessions", asked.Load())
	for _, s := range correlators {
		s.Running()
	}
}

// TestClusterFullDisk: the disk of one server is full, so its replicas lag. Readers
// whose consumers the server placed there come to the end of the log all the same.
func TestClusterFullDisk(t *testing.T) {
	onlyLong(t)
	small := t.TempDir()
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=32m"); err != nil {
		t.Skipf("a small disk cannot be made: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(small, syscall.MNT_DETACH) })
	c := servicetest.StartCluster(t, [3]string{"always", "always", "always"}, small)
	c.LeadElsewhere(0)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	const readers, messages = 12, 600
	var stalls, done atomic.Int64
	var reading sync.WaitGroup
	for range readers {
		js := newJS(t, c.Conn("auditor"))
		reading.Go(func() {
			err := streams.ReadLog(ctx, js, streams.ReadOptions{Stream: streams.DefaultShard, Stalled: func() { stalls.Add(1) }}, func(b []events.LogMessage) error {
				if b[len(b)-1].Seq >= messages {
					return errStopSearch
				}
				return nil
			})
			if errors.Is(err, errStopSearch) {
				done.Add(1)
			}
		})
	}
	nc := c.Conn(servicetest.Runtime)
	for i := range messages {
		m := streams.Msg{Subject: "gov.events.acme.rt1.aaep.s1.agent.tool.invoked", Body: []byte(fmt.Sprintf("{%q:%d,%q:%q}", "n", i, "pad", strings.Repeat("x", 100<<10)))}
		servicetest.Eventually(t, "an event is stored", func() bool { return streams.PublishEvents(ctx, nc, []streams.Msg{m}) == nil })
	}
	reading.Wait()
	t.Logf("%d consumers stood still and were made anew", stalls.Load())
	if done.Load() != readers {
		t.Errorf("%d of %d readers came to the end of the log", done.Load(), readers)
	}
}
