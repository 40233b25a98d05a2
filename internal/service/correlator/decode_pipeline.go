package correlator

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
)

const (
	decodeBatchSize  = 64 // messages that one decoder takes at once
	maxQueuedBatches = 32 // batches between the reader and the core
)

// decodePipeline decodes messages in parallel and passes them to the core in order. It is bounded
// by maxQueuedBatches: a waiting core blocks the reader, and the reader the server. Decoders never wait
// for session keys: a batch that needs keys which are not in memory is set aside until they are
// there.
type decodePipeline struct {
	core         *correlation.Correlator
	keys         sessionSecrets
	toDecode     chan *batch // for any idle decoder
	awaitingKeys chan *batch // batches that were set aside, for any idle decoder
	ordered      chan *batch // for the core
}

// batch is a run of messages, or the notice that there are none for now. The goroutine that
// receives it from a channel owns it until decoded is closed.
type batch struct {
	msgs    []events.LogMessage
	inputs  []correlation.Input // the decoded messages; nil before decoding and if idle
	decoded chan struct{}       // closed once nothing is left to decode: at once if idle
	idle    bool
}

// readySignal is closed when the batch is decoded; for a nil batch it never is.
func (b *batch) readySignal() <-chan struct{} {
	if b == nil {
		return nil
	}
	return b.decoded
}

func newDecodePipeline(core *correlation.Correlator, keys sessionSecrets) *decodePipeline {
	return &decodePipeline{core: core, keys: keys, toDecode: make(chan *batch, maxQueuedBatches), awaitingKeys: make(chan *batch, maxQueuedBatches), ordered: make(chan *batch, maxQueuedBatches)}
}

// waitingBatches is how many batches wait to be applied, including next unless it is nil.
func (p *decodePipeline) waitingBatches(next *batch) int {
	if next == nil {
		return len(p.ordered)
	}
	return len(p.ordered) + 1
}

// start runs the decoders and the reader.
func (p *decodePipeline) start(g *errgroup.Group, ctx context.Context, read func() error) {
	for range runtime.GOMAXPROCS(0) {
		d := p.core.NewDecoder()
		g.Go(func() error { return p.runDecoder(g, ctx, d) })
	}
	g.Go(read)
}

func (p *decodePipeline) runDecoder(g *errgroup.Group, ctx context.Context, d *correlation.Decoder) error {
	for {
		b, err := p.nextBatch(ctx)
		if err != nil {
			return err
		}
		names := p.decodeBatch(d, b)
		if len(names) == 0 {
			close(b.decoded)
			continue
		}
		g.Go(func() error {
			if err := p.keys.fetchSecrets(ctx, names); err != nil {
				return err
			}
			return sendTo(ctx, b, p.awaitingKeys)
		})
	}
}

// nextBatch returns a batch to decode. Batches that were set aside come first: the core waits for
// them.
func (p *decodePipeline) nextBatch(ctx context.Context) (*batch, error) {
	select {
	case b := <-p.awaitingKeys:
		return b, nil
	default:
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case b := <-p.awaitingKeys:
		return b, nil
	case b := <-p.toDecode:
		return b, nil
	}
}

// decodeBatch decodes the messages of a batch that are not decoded yet. It returns the names of
// the keys that some of them need and that are not in memory. (A fetched key may have been
// dropped meanwhile.)
func (p *decodePipeline) decodeBatch(d *correlation.Decoder, b *batch) (names []events.SessionID) {
	first := b.inputs == nil
	if first {
		b.inputs = make([]correlation.Input, len(b.msgs))
	}
	for i, m := range b.msgs {
		if _, _, wants := b.inputs[i].NeedsSessionSecret(); !first && !wants {
			continue
		}
		b.inputs[i] = d.Decode(m)
		if tenant, session, wants := b.inputs[i].NeedsSessionSecret(); wants {
			names = append(names, sessionsecrets.SessionOfSubject(tenant, session))
		}
	}
	return names
}

func (p *decodePipeline) enqueue(ctx context.Context, msgs []events.LogMessage) error {
	b := &batch{msgs: msgs, decoded: make(chan struct{})}
	return sendTo(ctx, b, p.ordered, p.toDecode)
}

// enqueueIdle enqueues, in the order of the messages, the notice that there are no more for now.
func (p *decodePipeline) enqueueIdle(ctx context.Context) error {
	b := &batch{idle: true, decoded: make(chan struct{})}
	close(b.decoded)
	return sendTo(ctx, b, p.ordered)
}

func sendTo(ctx context.Context, b *batch, to ...chan *batch) error {
	for _, c := range to {
		select {
		case c <- b:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
