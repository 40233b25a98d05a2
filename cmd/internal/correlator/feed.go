package correlator

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
)

const (
	feedBatch = 256 // messages that one decoder takes at once
	feedDepth = 16  // batches between the reader and the core
)

// feed decodes what the reader reads, in parallel, and hands it to the core in
// order. It is bounded by feedDepth: a core that has to wait makes the reader
// wait, and the server.
type feed struct {
	core    *correlation.Correlator
	jobs    chan *batch // for whichever decoder is free
	ordered chan *batch // for the core
}

// batch is some messages, or the word that there are no more for now.
type batch struct {
	msgs    []events.LogMessage
	inputs  []correlation.Input
	decoded chan struct{} // closed when inputs are there
	idle    bool
}

func newFeed(core *correlation.Correlator) *feed {
	return &feed{core: core, jobs: make(chan *batch, feedDepth), ordered: make(chan *batch, feedDepth)}
}

// start runs the decoders and the reader.
func (f *feed) start(g *errgroup.Group, ctx context.Context, read func() error) {
	for range runtime.GOMAXPROCS(0) {
		d := f.core.NewDecoder()
		g.Go(func() error { return f.decode(ctx, d) })
	}
	g.Go(read)
}

func (f *feed) decode(ctx context.Context, d *correlation.Decoder) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b := <-f.jobs:
			b.inputs = make([]correlation.Input, len(b.msgs))
			for i, m := range b.msgs {
				b.inputs[i] = d.Decode(m)
			}
			close(b.decoded)
		}
	}
}

func (f *feed) put(ctx context.Context, msgs []events.LogMessage) error {
	b := &batch{msgs: msgs, decoded: make(chan struct{})}
	return send(ctx, b, f.ordered, f.jobs)
}

// idle says in the order of the messages that there are no more for now.
func (f *feed) idle(ctx context.Context) error {
	return send(ctx, &batch{idle: true}, f.ordered)
}

func send(ctx context.Context, b *batch, to ...chan *batch) error {
	for _, c := range to {
		select {
		case c <- b:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
