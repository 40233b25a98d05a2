package correlator

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/cmd/internal/sessionkeys"
	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
)

const (
	feedBatch = 128 // messages that one decoder takes at once
	feedDepth = 32  // batches between the reader and the core
)

// feed decodes what the reader reads, in parallel, and hands it to the core in
// order. It is bounded by feedDepth: a core that has to wait makes the reader
// wait, and the server.
type feed struct {
	core    *correlation.Correlator
	keys    sessionKeys
	jobs    chan *batch // for whichever decoder is free
	ordered chan *batch // for the core
}

// batch is some messages, or the word that there are no more for now.
type batch struct {
	msgs    []events.LogMessage
	inputs  []correlation.Input
	decoded chan struct{} // closed when inputs are there, or none will be
	idle    bool
}

// ready is closed when a batch can be taken; of none it is not.
func (b *batch) ready() <-chan struct{} {
	if b == nil {
		return nil
	}
	return b.decoded
}

func newFeed(core *correlation.Correlator, keys sessionKeys) *feed {
	return &feed{core: core, keys: keys, jobs: make(chan *batch, feedDepth), ordered: make(chan *batch, feedDepth)}
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
			if err := f.read(ctx, d, b); err != nil {
				return err
			}
			close(b.decoded)
		}
	}
}

// read decodes a batch, and again what needs keys that are not in memory.
func (f *feed) read(ctx context.Context, d *correlation.Decoder, b *batch) error {
	var again []int
	var names []evidence.SessionKey
	for i, m := range b.msgs {
		b.inputs[i] = d.Decode(m)
		if tenant, session, wants := b.inputs[i].Wants(); wants {
			again, names = append(again, i), append(names, sessionkeys.Of(tenant, session))
		}
	}
	for len(again) > 0 {
		if err := f.keys.fetch(ctx, names); err != nil {
			return err
		}
		left := 0
		for k, i := range again {
			b.inputs[i] = d.Decode(b.msgs[i])
			if _, _, wants := b.inputs[i].Wants(); wants { // it was dropped meanwhile
				again[left], names[left] = i, names[k]
				left++
			}
		}
		again, names = again[:left], names[:left]
	}
	return nil
}

func (f *feed) put(ctx context.Context, msgs []events.LogMessage) error {
	b := &batch{msgs: msgs, decoded: make(chan struct{})}
	return send(ctx, b, f.ordered, f.jobs)
}

// idle says in the order of the messages that there are no more for now.
func (f *feed) idle(ctx context.Context) error {
	b := &batch{idle: true, decoded: make(chan struct{})}
	close(b.decoded)
	return send(ctx, b, f.ordered)
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
