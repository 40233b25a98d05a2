// Package ingest is how events get onto the log: a service that publishers reach
// by the subjects and the acknowledgements of JetStream, while no publisher
// reaches JetStream itself. It makes the log's message new from what comes in,
// refuses headers that would steer the server, applies quotas, and appends in
// groups.
//
// What one connection sends stands on the log in that order, and is acknowledged
// in that order. For that, one instance of a shard is active, the one that holds
// the lease; the others stand by. The active instance answers nothing before the
// server has stored it durably. While no instance is active a publisher gets the
// same "no responders" as from a JetStream that is away.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/buildinfo"
	"github.com/countersign-dev/countersign/internal/service/lease"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/streams"
)

// ServiceName is the name of the service, of its lease and of its queue group.
const ServiceName = "ingest"

// Bounds of what waits to be stored. Beyond them an event is refused as JetStream
// refuses it ("too many requests").
const (
	MaxPending      = 65536
	MaxPendingBytes = 64 << 20
)

// Options of Run. All but Health are required unless said otherwise.
type Options struct {
	Stream string
	Space  subject.Space
	// Log is where events are appended.
	Log *nats.Conn
	// Connect makes the connection on which events come in. Each term of activity has
	// its own, and closes it: then the server has certainly forgotten the
	// subscriptions of an earlier term, whatever has become of the connection.
	Connect func(context.Context) (nc *nats.Conn, release func(), err error)
	Lease   lease.Options
	// Single says that an acknowledgement does not wait for the disk, so that a batch
	// would only be slower.
	Single bool
	Meter  *Meter
	// Exceeded is told of the first refusal of a publisher in a window; it must not
	// block. It may be nil.
	Exceeded func(tenant, publisher string, e Excess)
	Metrics  *metrics.Ingest // nil counts nothing
	Logger   zerolog.Logger
	// Settled is called once, when the service is active or stands by.
	Settled func()
}

// Run serves whenever this instance holds the lease, until ctx ends. Then it
// takes nothing more, finishes what it has taken, and gives the lease back.
func Run(ctx context.Context, o Options) error {
	js, err := jetstream.New(o.Log)
	if err != nil {
		return err
	}
	kv, err := js.KeyValue(ctx, streams.BucketLeases)
	if err != nil {
		return fmt.Errorf("opening the leases bucket (run `countersign provision` first): %w", err)
	}
	settled := sync.OnceFunc(func() {
		if o.Settled != nil {
			o.Settled()
		}
	})
	for ctx.Err() == nil {
		l, err := o.holdLease(ctx, kv, settled)
		if err != nil {
			break // ctx ended
		}
		err = o.serveTerm(ctx, l, settled)
		l.Release()
		if err != nil && ctx.Err() == nil {
			o.Logger.Error().Err(err).Msg("taking events in")
			select {
			case <-ctx.Done():
			case <-time.After(retryAfter):
			}
		}
	}
	return nil
}

// retryAfter is the pause after a term that failed.
const retryAfter = time.Second

// holdLease waits for the lease. The lease outlives ctx, until it is released: what
// was taken has to be finished under it.
func (o Options) holdLease(ctx context.Context, kv jetstream.KeyValue, standby func()) (*lease.Lease, error) {
	waiting, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, giveUp)
	l, err := lease.Hold(waiting, kv, o.Lease, func(holder string) {
		o.Logger.Info().Str("active", holder).Msg("another instance takes events in; standing by")
		standby()
	})
	if !stop() && err == nil { // ctx ended meanwhile, and with it the lease's context
		l.Release()
		return nil, ctx.Err()
	}
	return l, err
}

// leaseTerm is the time for which this instance holds the lease.
type leaseTerm struct {
	Options
	requests  *nats.Conn
	lease     *lease.Lease
	committer *streams.Committer

	mu      sync.Mutex
	idle    *sync.Cond // pending is zero
	pending int
	bytes   int
}

// serveTerm takes events in until ctx ends or the lease is lost.
func (o Options) serveTerm(ctx context.Context, l *lease.Lease, settled func()) error {
	requests, release, err := o.Connect(ctx)
	if err != nil {
		return err
	}
	defer release()
	t := &leaseTerm{Options: o, lease: l, requests: requests}
	t.idle = sync.NewCond(&t.mu)
	options := streams.CommitterOptions{Stream: o.Stream, MaxPending: MaxPending, Guard: t.checkLease}
	if o.Single {
		options.BatchAbove = streams.NeverBatch
	}
	if t.committer, err = streams.NewCommitter(o.Log, options); err != nil {
		return err
	}
	defer t.committer.Close() // again: finish does it, too
	present, err := micro.AddService(requests, micro.Config{
		Name: ServiceName, Version: buildinfo.SemVer(), Description: "Countersign ingest: takes events in and puts them on the log",
		Metadata: map[string]string{"shard": o.Stream},
	})
	if err != nil {
		return fmt.Errorf("registering the micro service: %w", err)
	}
	defer func() { _ = present.Stop() }()
	// The queue group sees to it that two instances that both believe to hold the
	// lease never store one event twice.
	sub, err := requests.QueueSubscribe(o.Space.All(subject.Ingest), ServiceName, t.acceptEvent)
	if err != nil {
		return err
	}
	_ = sub.SetPendingLimits(MaxPending, MaxPendingBytes)
	if err := requests.FlushTimeout(flushTimeout); err != nil {
		_ = sub.Unsubscribe()
		return err
	}
	o.Logger.Info().Msg("taking events in")
	settled()
	select {
	case <-ctx.Done():
	case <-l.Context().Done():
		err = context.Cause(l.Context())
	}
	t.drainSubscription(sub)
	t.finishPending()
	return err
}

const flushTimeout = 5 * time.Second

// drainSubscription takes what has arrived already, and nothing more.
func (t *leaseTerm) drainSubscription(sub *nats.Subscription) {
	if !t.requests.IsConnected() { // nothing can be answered
		_ = sub.Unsubscribe()
		return
	}
	closed := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(closed) })
	if err := sub.Drain(); err != nil { // the connection is gone, and with it what it held
		_ = sub.Unsubscribe()
		return
	}
	select {
	case <-closed:
	case <-time.After(flushTimeout):
		_ = sub.Unsubscribe()
	}
}

// finishPending waits until everything that was taken is settled, and sends the answers.
// What is not by then is refused: JetStream may be away for longer than a stop may
// take.
func (t *leaseTerm) finishPending() {
	late := false
	timer := time.AfterFunc(finishTimeout, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		late = true
		t.idle.Broadcast()
	})
	defer timer.Stop()
	t.mu.Lock()
	for t.pending > 0 && !late {
		t.idle.Wait()
	}
	t.mu.Unlock()
	t.committer.Close()
	_ = t.requests.FlushTimeout(flushTimeout)
}

const finishTimeout = 10 * time.Second

var errNotActive = errors.New("this instance may have lost the lease")

// checkLease refuses to send under a lease that may be another's: what a process that
// was stopped for a while still holds must not come behind what its successor has
// stored.
func (t *leaseTerm) checkLease() error {
	if !t.lease.Valid() {
		return errNotActive
	}
	return nil
}

// acceptEvent takes one event. It is called for one after the other, in the order of
// arrival, and never waits.
func (t *leaseTerm) acceptEvent(m *nats.Msg) {
	msg, at, no := logMessage(t.Space, t.Stream, m)
	if no == nil {
		no = t.checkQuota(at, Cost(m.Data))
	}
	if no == nil {
		no = t.appendEvent(m, msg)
	}
	if no != nil {
		t.sendRefusal(m, no)
	}
}

// checkQuota applies the quotas.
func (t *leaseTerm) checkQuota(at eventAddress, bytes int) *refusal {
	e, ok := t.Meter.Take(time.Now(), at.tenant, at.publisher, bytes)
	if ok {
		return nil
	}
	if e.First && t.Exceeded != nil {
		t.Exceeded(at.tenant, at.publisher, e)
	}
	return &refusal{429, codeQuota, e.String(), reasonQuota}
}

func (t *leaseTerm) appendEvent(m *nats.Msg, msg streams.Msg) *refusal {
	size := len(m.Data) + len(m.Subject)
	t.mu.Lock()
	full := t.bytes+size > MaxPendingBytes && t.pending > 0
	if !full {
		t.pending, t.bytes = t.pending+1, t.bytes+size
	}
	t.mu.Unlock()
	if full {
		return refusedBusy
	}
	err := t.committer.AppendAsync(msg, func(seq uint64, err error) {
		t.acknowledge(m, seq, err)
		t.releaseBytes(size)
	})
	if err != nil {
		t.releaseBytes(size)
		return refusalOf(err)
	}
	return nil
}

func (t *leaseTerm) releaseBytes(size int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes -= size
	if t.pending--; t.pending == 0 {
		t.idle.Broadcast()
	}
}

// acknowledge answers once the log has an event, or certainly has not. In doubt there
// is no answer: the publisher learns by its own time-out that it cannot know.
func (t *leaseTerm) acknowledge(m *nats.Msg, seq uint64, err error) {
	switch {
	case err == nil:
		t.Metrics.Stored()
		t.sendReply(m, encodeAck(t.Stream, seq))
	case errors.Is(err, streams.ErrRefused):
		t.Logger.Warn().Err(err).Msg("an event was not stored")
		t.sendRefusal(m, refusalOf(err))
	default:
		t.Metrics.Refused(reasonAmbiguous)
		t.Logger.Error().Err(err).Msg("it is not known whether an event is stored")
	}
}

// refusalOf is what a publisher is told of an error that is ErrRefused. What the
// server said about the log is not for publishers.
func refusalOf(err error) *refusal {
	switch {
	case errors.Is(err, streams.ErrTooLarge):
		return refusedSize
	case errors.Is(err, streams.ErrBusy):
		return refusedBusy
	}
	return refusedForNow
}

func (t *leaseTerm) sendRefusal(m *nats.Msg, no *refusal) {
	t.Metrics.Refused(no.reason)
	t.sendReply(m, no.encodeAck(t.Stream))
}

// sendReply replies on the subject that the server made for a request from another
// account, and on no other: a reply subject of the sender's choice could be one of
// the services'.
func (t *leaseTerm) sendReply(m *nats.Msg, body []byte) {
	if !streams.IsAnswerable(m.Reply) {
		return
	}
	if err := t.requests.Publish(m.Reply, body); err != nil {
		t.Logger.Warn().Err(err).Msg("an acknowledgement could not be sent")
	}
}

// String names the limit to the publisher.
func (e Excess) String() string {
	return fmt.Sprintf("the %s's quota of %d %s per second is exceeded; send more slowly, or ask the operator for more", e.Of, e.Limit, e.What)
}
