package admit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/streams"
)

// loadBench measures operations on a running system.
type loadBench struct {
	admitter streams.User // may use JetStream itself
	t        *target.Target
	duration time.Duration
	request  []byte
}

// maxConnections bounds the connections that the clients of one measurement share.
const maxConnections = 16

// operation is the measured operation, over a connection of the role that it needs.
type operation struct {
	role string
	do   func(ctx context.Context, nc *nats.Conn) error
}

func (b *loadBench) measureClients(ctx context.Context, what string, clients int, op func() operation) (measure.Latency, error) {
	o := op()
	conns := make([]*nats.Conn, min(clients, maxConnections))
	for i := range conns {
		nc, err := b.connect(ctx, o.role)
		if err != nil {
			return measure.Latency{}, err
		}
		defer nc.Close()
		conns[i] = nc
	}
	took := make([][]time.Duration, clients)
	begin := time.Now().Add(b.duration / measure.WarmUp)
	end := begin.Add(b.duration)
	g, ctx := errgroup.WithContext(ctx)
	for i := range clients {
		g.Go(func() error {
			for {
				start := time.Now()
				if start.After(end) {
					return nil
				}
				if err := o.do(ctx, conns[i%len(conns)]); err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
				if start.After(begin) {
					took[i] = append(took[i], time.Since(start))
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		return measure.Latency{}, err
	}
	all := slices.Concat(took...)
	if len(all) == 0 {
		return measure.Latency{}, fmt.Errorf("%s: nothing finished within %s", what, b.duration)
	}
	return measure.LatencyOf(what, clients, all, b.duration), nil
}

// connect connects in a role; the admitter's role may use JetStream itself.
func (b *loadBench) connect(ctx context.Context, role string) (*nats.Conn, error) {
	if role != string(streams.RoleAdmitter) {
		return b.t.Connect(ctx, role)
	}
	return streams.Connect(ctx, streams.ConnectOptions{
		URL: b.t.ReadyInfo().NATSURL, User: b.admitter.Name, Password: b.admitter.Password, InboxPrefix: b.admitter.Inbox(), Name: "countersign-bench",
	})
}

// ping is a request that the admitter's process answers without any work.
func (b *loadBench) ping() operation {
	return operation{target.Operator, func(ctx context.Context, nc *nats.Conn) error {
		_, err := nc.RequestWithContext(ctx, "$SRV.PING.admitter", nil)
		return err
	}}
}

// publish stores one event of the request's size in JetStream, in a message of its own, and waits
// for the acknowledgement.
func (b *loadBench) publish() operation {
	subj := subject.Space{Prefix: b.t.Prefix}.Event(b.t.Tenant, b.t.Publisher(), subject.ProtoAgentHook, "bench", "UserPromptSubmit")
	return operation{string(streams.RoleAdmitter), func(ctx context.Context, nc *nats.Conn) error {
		reply, err := nc.RequestWithContext(ctx, subj, b.request)
		if err == nil && bytes.Contains(reply.Data, []byte(`"error"`)) {
			err = fmt.Errorf("%w: %s", measure.ErrNotStored, reply.Data)
		}
		return err
	}}
}

// admit is one admission, until the verdict arrives.
func (b *loadBench) admit() operation {
	space := subject.Space{Prefix: b.t.Prefix}
	return operation{target.Runtime, func(ctx context.Context, nc *nats.Conn) error {
		reply, err := client.Request(ctx, nc, space, b.t.Tenant, client.Call{Protocol: subject.ProtoAgentHook, Body: b.request})
		if err != nil {
			return err
		}
		if v := reply.Header.Get(events.HeaderVerdict); v != string(events.Allow) {
			return errors.New("the sample request was not allowed: " + string(reply.Data))
		}
		return nil
	}}
}
