package correlator

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/cmd/internal/sessionkeys"
	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
)

const (
	feedBatch = 64 // messages that one decoder takes at once
	feedDepth = 32 // batches between the reader and the core
)

// feed decodes what the reader reads, in parallel, and hands it to the core in
// order. It is bounded by feedDepth: a core that has to wait makes the reader
// wait, and the server.
type feed struct {
	core    *correlation.Correlator
	keys    sessionKeys
	jobs    chan *batch // for whichever decoder is free
	ordered chan *batch // for the core
	rooms   sync.Pool   // of *room
}

// batch is some messages, or the word that there are no more for now.
type batch struct {
	msgs    []events.LogMessage
	room    *room         // what they say; nil until that is decoded, and if idle
	decoded chan struct{} // closed when that is there, or will not be
	idle    bool
}

// room is where a batch is decoded. It is used again when the batch was applied.
type room struct {
	inputs []correlation.Input
	memory correlation.Memory
}

// ready is closed when a batch can be taken; of none it is not.
func (b *batch) ready() <-chan struct{} {
	if b == nil {
		return nil
	}
	return b.decoded
}

func newFeed(core *correlation.Correlator, keys sessionKeys) *feed {
	return &feed{core: core, keys: keys, jobs: make(chan *batch, feedDepth), ordered: make(chan *batch, feedDepth),
		rooms: sync.Pool{New: func() any { return new(room) }}}
}

// applied takes back the room of a batch of which nothing is needed any more.
func (f *feed) applied(b *batch) {
	if b.room == nil {
		return
	}
	clear(b.room.inputs)
	b.room.memory.Free()
	f.rooms.Put(b.room)
	b.room = nil
}

// waiting is how many batches are there to be applied, the next one, if there is one,
// counted.
func (f *feed) waiting(next *batch) int {
	if next == nil {
		return len(f.ordered)
	}
	return len(f.ordered) + 1
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
			b.room = f.rooms.Get().(*room)
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
	r := b.room
	r.inputs = slices.Grow(r.inputs[:0], len(b.msgs))[:len(b.msgs)]
	for i, m := range b.msgs {
		d.DecodeInto(&r.inputs[i], m, &r.memory)
		if tenant, session, wants := r.inputs[i].Wants(); wants {
			again, names = append(again, i), append(names, sessionkeys.Of(tenant, session))
		}
	}
	for len(again) > 0 {
		if err := f.keys.fetch(ctx, names); err != nil {
			return err
		}
		left := 0
		for k, i := range again {
			d.DecodeInto(&r.inputs[i], b.msgs[i], &r.memory)
			if _, _, wants := r.inputs[i].Wants(); wants { // it was dropped meanwhile
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
