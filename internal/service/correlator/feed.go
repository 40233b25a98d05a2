package correlator

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
)

const (
	feedBatch = 64 // messages that one decoder takes at once
	feedDepth = 32 // batches between the reader and the core
)

// feed decodes what the reader reads, in parallel, and hands it to the core in
// order. It is bounded by feedDepth: a core that has to wait makes the reader
// wait, and the server. Decoders never wait for session keys: a batch that needs some
// which are not in memory is put aside until they are there.
type feed struct {
	core    *correlation.Correlator
	keys    sessionKeys
	jobs    chan *batch // for whichever decoder is free
	keyed   chan *batch // the same, of batches that were put aside
	ordered chan *batch // for the core
	rooms   sync.Pool   // of *room
}

// batch is some messages, or the word that there are no more for now. Whoever takes
// it from a channel owns it, until decoded is closed.
type batch struct {
	msgs    []events.LogMessage
	room    *room         // what they say; nil until that is decoded, and if idle
	decoded chan struct{} // closed when that is there, or will not be
	idle    bool
}

// room is where a batch is decoded. It is used again when the batch was applied.
type room struct {
	inputs []correlation.Input
	left   []int // messages that are not decoded yet
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
	return &feed{core: core, keys: keys, jobs: make(chan *batch, feedDepth), keyed: make(chan *batch, feedDepth), ordered: make(chan *batch, feedDepth),
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
		g.Go(func() error { return f.decode(g, ctx, d) })
	}
	g.Go(read)
}

func (f *feed) decode(g *errgroup.Group, ctx context.Context, d *correlation.Decoder) error {
	for {
		b, err := f.next(ctx)
		if err != nil {
			return err
		}
		names := f.read(d, b)
		if len(names) == 0 {
			close(b.decoded)
			continue
		}
		g.Go(func() error {
			if err := f.keys.fetch(ctx, names); err != nil {
				return err
			}
			return send(ctx, b, f.keyed)
		})
	}
}

// next is a batch to decode. Those that were put aside come first: the core waits
// for them.
func (f *feed) next(ctx context.Context) (*batch, error) {
	select {
	case b := <-f.keyed:
		return b, nil
	default:
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case b := <-f.keyed:
		return b, nil
	case b := <-f.jobs:
		return b, nil
	}
}

// read decodes the messages of a batch that are not decoded yet, and returns the
// names of the keys that some of them need and that are not in memory. (One that was
// fetched may have been dropped meanwhile.)
func (f *feed) read(d *correlation.Decoder, b *batch) (names []evidence.SessionKey) {
	r := b.room
	if r == nil {
		r = f.rooms.Get().(*room)
		r.inputs, r.left = slices.Grow(r.inputs[:0], len(b.msgs))[:len(b.msgs)], r.left[:0]
		for i := range b.msgs {
			r.left = append(r.left, i)
		}
		b.room = r
	}
	left := r.left
	r.left = r.left[:0]
	for _, i := range left {
		d.DecodeInto(&r.inputs[i], b.msgs[i], &r.memory)
		if tenant, session, wants := r.inputs[i].Wants(); wants {
			r.left, names = append(r.left, i), append(names, sessionsecrets.Of(tenant, session))
		}
	}
	return names
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
