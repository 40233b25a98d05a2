package correlator

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// Batches that wait for session keys hold up no decoder: what needs none of them is
// decoded meanwhile, even by a single one, and they are when their keys are there.
func TestDecodersDoNotWaitForKeys(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	master, nc, store := openSecrets(t, n)
	held := newSessionSecrets(store, zerolog.Nop(), daemon.NewHealth())
	f := newDecodePipeline(correlation.New(correlation.Options{Shard: streams.DefaultShard, TenantKey: master.Tenant, SessionSecret: held.cachedSecret}), held)
	ctx, stop := context.WithCancel(t.Context())
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.runDecoder(g, ctx, f.core.NewDecoder()) })

	n.Stop()
	const event = `{"schema_version":1,"event_id":"%","event_type":"PreToolUse","timestamp":"2026-11-20T12:00:00Z","source":"rt1","session_id":"s1",` +
		`"agent_id":"a1","tool_name":"write_file","action":"write","resource_kind":"file","tool_input":{"path":"/a"},"metadata":{"tool_call_id":"c1"}}`
	wanting := []events.LogMessage{{Seq: 1, Subject: "gov.control.GOV.tick", Body: []byte("{}")},
		{Seq: 2, Subject: "gov.events.acme.rt1.agenthook.s1.PreToolUse", Body: []byte(event)}}
	servicetest.OK(t, f.enqueue(ctx, wanting[1:]))
	servicetest.OK(t, f.enqueue(ctx, wanting[1:]))
	servicetest.OK(t, f.enqueue(ctx, wanting))
	servicetest.OK(t, f.enqueue(ctx, wanting[:1]))
	var batches []*batch
	for len(f.ordered) > 0 {
		batches = append(batches, <-f.ordered)
	}
	last := len(batches) - 1
	select {
	case <-batches[last].readySignal():
	case <-time.After(time.Minute):
		t.Fatal("a batch without keys waits for those before it")
	}
	for i, b := range batches[:last] {
		select {
		case <-b.readySignal():
			t.Errorf("batch %d is decoded without its key", i)
		default:
		}
	}
	n.Restart()
	servicetest.Eventually(t, "the connection is back", func() bool { return nc.Status() == nats.CONNECTED })
	for _, b := range batches[:last] {
		<-b.readySignal()
		for i := range b.inputs {
			if _, _, wants := b.inputs[i].NeedsSessionSecret(); wants {
				t.Error("it still wants its key")
			}
		}
	}
	stop()
	if err := g.Wait(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
