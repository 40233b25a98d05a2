package admit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/cli/policycmd"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/streams"
)

// besideBatch is the batch size of the publisher beside a measurement.
const besideBatch = 100

// publishBeside sends events at a rate, in batches as publishers of many events should, until
// stop is called. stop returns the error.
func (b *loadBench) publishBeside(ctx context.Context, perSecond int) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- b.publishAt(ctx, perSecond) }()
	return func() error {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}
}

func (b *loadBench) publishAt(ctx context.Context, perSecond int) error {
	nc, err := b.t.Connect(ctx, target.Runtime)
	if err != nil {
		return err
	}
	defer nc.Close()
	tick := time.NewTicker(time.Second * besideBatch / time.Duration(perSecond))
	defer tick.Stop()
	for n := 0; ; n += besideBatch {
		events := make([][]byte, besideBatch)
		for i := range events {
			events[i] = fmt.Appendf(nil, `{"event_id":"00000000-0000-4000-8000-%012d","event_type":"UserPromptSubmit","timestamp":"2026-11-20T09:00:00Z",`+
				`"source":"bench","session_id":"beside","metadata":{"text":"%0400d"}}`, n+i, 0)
		}
		msgs, err := client.Sender{Space: subject.Space{Prefix: b.t.Prefix}, Tenant: b.t.Tenant, Publisher: b.t.Publisher()}.Messages(subject.ProtoAgentHook, events...)
		if err != nil {
			return err
		}
		if err := streams.PublishEvents(context.WithoutCancel(ctx), nc, msgs); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// replacePolicies pushes n policies and returns once the admitter uses them.
func (b *loadBench) replacePolicies(ctx context.Context, ready target.Ready, n int) error {
	nc, err := b.t.Connect(ctx, target.Runtime)
	if err != nil {
		return err
	}
	defer nc.Close()
	revision := func() (uint64, error) {
		reply, err := client.Request(ctx, nc, subject.Space{Prefix: b.t.Prefix}, b.t.Tenant, client.Call{Protocol: subject.ProtoAgentHook, Body: b.request})
		if err != nil {
			return 0, err
		}
		return revisionOf(reply.Header.Get(events.HeaderReceipt)), nil
	}
	before, err := revision()
	if err != nil {
		return err
	}
	if err := policycmd.PushPolicies(ctx, ready, measure.SamplePolicies(n)); err != nil {
		return err
	}
	for now := before; now == before || now == 0; {
		if now, err = revision(); err != nil {
			return err
		}
	}
	return nil
}
