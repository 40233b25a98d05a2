package admitter

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/rig"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

// serveAt runs an admitter that knows some servers of a cluster.
func serveAt(t *testing.T, c *rig.Cluster, url string, accept bool) *rig.Service {
	t.Helper()
	f := flags(c.NATS)
	f.Server, f.Replicated = url, accept
	return rig.Run(t, func(ctx context.Context, env daemon.Env) error { return daemon.RunAgain(ctx, env, again(f)) }).AwaitReady()
}

func again(f Flags) func(context.Context, daemon.Env) error {
	return func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) }
}

// requestIn is the example request in a session of its own, as another call.
func requestIn(t *testing.T, session string) client.Call {
	t.Helper()
	var body map[string]any
	rig.OK(t, json.Unmarshal(file(t, "requests/pre-tool-use.json"), &body))
	body["session_id"], body["tool_call_id"], body["event_id"] = session, "call-"+session, "11111111-1111-4111-8111-"+fmt.Sprintf("%012x", time.Now().UnixNano()&0xffffffffffff)
	text, err := json.Marshal(body)
	rig.OK(t, err)
	return client.Call{Protocol: "agenthook", Body: text, Session: session, ToolCallID: "call-" + session}
}

// onlyLong skips a test that `make cluster` runs.
func onlyLong(t *testing.T) {
	t.Helper()
	if os.Getenv("COUNTERSIGN_CLUSTER") == "" {
		t.Skip("takes half a minute or more: make cluster")
	}
}

// TestClusterServerIsStopped: three servers, admitters at two of them and one client.
// The server that the client and one admitter are on stops (SIGSTOP: connections
// stay). Every request is answered by the other admitter within the client's
// time-out, and without waiting once the dead server is noticed; when the server goes
// on so does its admitter. On the way: replicas that are not synced are unhealthy
// unless that is accepted.
func TestClusterServerIsStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers take seconds to elect leaders")
	}
	c := rig.StartCluster(t, [3]string{"always", "2m", "always"})
	put(t, c.NATS, "mail.yaml", file(t, "policies/mail.yaml"))
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

	const timeout = 5 * time.Second
	ask := func(nc *client.Client, i int) time.Duration {
		begun := time.Now()
		v := nc.Admit(t.Context(), requestIn(t, fmt.Sprintf("s-%d", i)))
		took := time.Since(begun)
		if v.Decision == "" || v.DecisionID == "" || took >= timeout {
			t.Errorf("request %d: %s %s %v after %v", i, v.Decision, v.Reason, v.Err, took)
		}
		return took
	}
	public, err := os.ReadFile(c.Keys + "/checkpoint.pub")
	rig.OK(t, err)
	asker, err := client.New(c.ConnAt(rig.Runtime, dead), client.Options{Tenant: rig.Tenant, Publisher: rig.Runtime, PublicKey: string(public), Timeout: timeout})
	rig.OK(t, err)
	defer asker.Close()
	for i := range 20 {
		ask(asker, i)
	}
	readsComeFromTheLeader(t, c)
	c.Pause(dead)
	paused := time.Now()
	longest, late := time.Duration(0), 0
	for i := 100; time.Since(paused) < 8*time.Second; i++ {
		took := ask(asker, i)
		longest = max(longest, took)
		if time.Since(paused) > 5*time.Second && took > time.Second {
			late++
		}
	}
	t.Logf("longest answer %v, %d slow ones after 5 s", longest, late)
	if late > 0 {
		t.Errorf("%d answers took more than 1 s although the server had been dead for 5 s", late)
	}
	c.Resume(dead)
	rig.Eventually(t, "the admitter at the stopped server is well again", func() bool { return len(here.Health.Report().Problems) == 0 })
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
	c := rig.StartCluster(t, [3]string{"always", "always", "always"})
	put(t, c.NATS, "mail.yaml", file(t, "policies/mail.yaml"))
	s := serveAt(t, c, c.URLOf(0), false)
	nc := c.ConnAt(rig.Runtime, 0)
	call := requestIn(t, "s-1")
	if reply := ask(t, nc, "gov.admit.acme.agenthook", call.Body); reply.Header.Get(events.HeaderDecisionID) == "" {
		t.Fatalf("no decision: %s", reply.Data)
	}
	c.Pause(1)
	c.Pause(2)
	rig.Eventually(t, "the admitter says that JetStream is away", func() bool { return s.Health.Report().Problems["jetstream"] != "" })
	rig.Eventually(t, "no admitter is listening", func() bool {
		_, err := nc.Request("gov.admit.acme.agenthook", call.Body, time.Second)
		return err != nil && strings.Contains(err.Error(), "no responders")
	})
	s.Running()
	c.Resume(1)
	c.Resume(2)
	rig.Eventually(t, "it answers again", func() bool {
		reply, err := nc.Request("gov.admit.acme.agenthook", requestIn(t, "s-2").Body, time.Second)
		return err == nil && reply.Header.Get(events.HeaderDecisionID) != ""
	})
	s.Running()
}

// readsComeFromTheLeader: a key that was acknowledged is found by connections to all
// three servers.
func readsComeFromTheLeader(t *testing.T, c *rig.Cluster) {
	t.Helper()
	js := c.JS("auditor")
	kv, err := streams.OpenBucket(t.Context(), js, streams.BucketSessionKeys)
	rig.OK(t, err)
	var readers []func(string) error
	for i := range 3 {
		at, err := streams.OpenBucket(t.Context(), newJS(t, c.ConnAt("correlator", i)), streams.BucketSessionKeys)
		rig.OK(t, err)
		readers = append(readers, func(key string) error { _, err := at.Get(t.Context(), key); return err })
	}
	for i := range 50 {
		key := fmt.Sprintf("k%d", i)
		_, err := kv.Create(t.Context(), key, []byte("v"))
		rig.OK(t, err)
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
	rig.OK(t, err)
	return js
}
