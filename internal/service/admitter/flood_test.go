package admitter

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

const (
	flooders = 2  // connections of one user that floods
	burst    = 40 // requests that each of them sends at once
)

// flood sends bursts of a request as a user of another tenant, until it is stopped. A
// burst begins when all of the one before are answered.
func flood(t *testing.T, n *servicetest.NATS, subj string, body []byte) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	for range flooders {
		nc := n.Conn("mallory")
		answers, err := nc.SubscribeSync(nc.NewInbox())
		servicetest.OK(t, err)
		sending.Go(func() {
			for ctx.Err() == nil {
				for range burst {
					if err := nc.PublishRequest(subj, answers.Subject, body); err != nil {
						t.Error(err)
						return
					}
				}
				for range burst {
					if _, err := answers.NextMsg(servicetest.Guard); err != nil {
						t.Errorf("a request of the flood is not answered: %v", err)
						return
					}
				}
			}
		})
	}
	return func() {
		cancel()
		sending.Wait()
	}
}

// One tenant sends bursts of the largest messages that it may, by several connections.
// Another tenant's requests are decided all the same, and the admitter keeps its
// connection, on which the answers to the flood come, too.
func TestFloodOfLargeRequests(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	f := flags(n)
	f.MaxInflight, f.Timeout = 2048, servicetest.Guard  // this is about connections and shares, not about the machine's speed
	f.PublisherBytes, f.QuotaBurst = 1<<20, time.Second // most are refused: the disk is not what is tried
	s := servicetest.Run(t, func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) }).AwaitReady()
	nc := n.Conn("mallory")
	servicetest.OK(t, nc.Flush()) // the server says what the account may send
	stop := flood(t, n, "gov.admit.globex.agenthook", bytes.Repeat([]byte(" "), int(nc.MaxPayload())-1024))
	defer stop()
	for i := range 10 {
		if reply := ask(t, n.Conn(servicetest.Runtime), "gov.admit.acme.agenthook", file(t, "requests/pre-tool-use.json")); reply.Header.Get(events.HeaderDecisionID) == "" {
			t.Fatalf("request %d: %v %s", i, reply.Header, reply.Data)
		}
	}
	s.Running()
}

// What a tenant's user may send holds every legal request, and is less than what a
// service may send.
func TestTenantsMessagesAreBounded(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	nc := n.Conn(servicetest.Runtime)
	servicetest.OK(t, nc.Flush())
	if got := nc.MaxPayload(); got != streams.DefaultTenantMaxPayload || got < 1<<20+64<<10 {
		t.Errorf("a runtime is told that it may send %d bytes", got)
	}
	if got := n.Conn("admitter").MaxPayload(); got != streams.DefaultMaxPayload {
		t.Errorf("a service is told that it may send %d bytes", got)
	}
}
