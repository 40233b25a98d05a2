// Package ingest puts publishers' events onto the log. Publishers use the subjects and
// acknowledgements of JetStream, but reach only this service and never JetStream itself. The
// service builds the log's message from the event, refuses headers that would steer the server,
// applies quotas, and appends in groups.
//
// The events of one connection are stored and acknowledged in the order in which they were sent.
// For that, only the instance that holds the shard's lease is active; the others stand by. The
// active instance acknowledges an event only after the server has stored it durably. While no
// instance is active, a publisher gets "no responders", as from JetStream when it is away. Begin
// with Run; message.go has the checks of an event, package quota the limits.
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
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/lease"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/quota"
	"github.com/countersign-dev/countersign/streams"
)

// ServiceName is the name of the service, of its lease and of its queue group.
const ServiceName = "ingest"

// Bounds of the events that wait to be stored. Beyond them an event is refused as JetStream
// refuses it ("too many requests").
const (
	MaxPending      = 65536
	MaxPendingBytes = 64 << 20
)

// Options of Run. All are required unless stated otherwise.
type Options struct {
	Stream string
	Space  subject.Space
	// Log is the connection on which events are appended.
	Log *nats.Conn
	// Connect opens the connection on which events arrive. Each lease term has its own and closes
	// it at the end: then the server has certainly dropped the subscriptions of the term.
	Connect func(context.Context) (nc *nats.Conn, release func(), err error)
	Lease   lease.Options
	// PublishSingly means that acknowledgements do not wait for the disk, so that a batch would only be
	// slower.
	PublishSingly bool
	Meter         *quota.Meter
	// MaySpeakFor decides for which publishers a gateway may speak; nil: for none.
	MaySpeakFor GatewayCheck
	// OnQuotaExceeded is called for the first refusal of a publisher in a window. It must not block. It
	// may be nil.
	OnQuotaExceeded func(tenant, publisher string, e quota.Excess)
	Metrics         *metrics.Ingest
	Logger          zerolog.Logger
	// OnRole is called once, when the service is active or on standby.
	OnRole func()
}

// Run serves whenever this instance holds the lease, until ctx ends. Then it accepts nothing
// more, finishes what it has accepted, and releases the lease.
func Run(ctx context.Context, o Options) error {
	js, err := jetstream.New(o.Log)
	if err != nil {
		return err
	}
	kv, err := js.KeyValue(ctx, streams.BucketLeases)
	if err != nil {
		return fmt.Errorf("opening the leases bucket (run `countersign provision` first): %w", err)
	}
	roleKnown := sync.OnceFunc(func() {
		if o.OnRole != nil {
			o.OnRole()
		}
	})
	for ctx.Err() == nil {
		l, err := o.holdLease(ctx, kv, roleKnown)
		if err != nil {
			break // ctx ended
		}
		err = o.serveTerm(ctx, l, roleKnown)
		l.Release()
		if err != nil && ctx.Err() == nil {
			o.Logger.Error().Err(err).Msg("taking events in")
			_ = retry.Sleep(ctx, retryAfter)
		}
	}
	return nil
}

// retryAfter is the pause after a failed term.
const retryAfter = time.Second

// holdLease waits for the lease. The lease outlives ctx until it is released: accepted events are
// finished under it.
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

// leaseTerm is the time during which this instance holds the lease.
type leaseTerm struct {
	Options
	requests  *nats.Conn
	lease     *lease.Lease
	committer *streams.Committer
	refusals  zerolog.Logger // each at most one line a second
	doubts    zerolog.Logger

	mu      sync.Mutex
	idle    *sync.Cond // signals that pending is zero
	pending int
	bytes   int
}

func (o Options) newTerm(l *lease.Lease, requests *nats.Conn) *leaseTerm {
	t := &leaseTerm{Options: o, lease: l, requests: requests}
	t.idle = sync.NewCond(&t.mu)
	t.refusals = o.Logger.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Second})
	t.doubts = o.Logger.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Second})
	return t
}

// serveTerm accepts events until ctx ends or the lease is lost.
func (o Options) serveTerm(ctx context.Context, l *lease.Lease, roleKnown func()) error {
	requests, release, err := o.Connect(ctx)
	if err != nil {
		return err
	}
	defer release()
	t := o.newTerm(l, requests)
	options := streams.CommitterOptions{Stream: o.Stream, MaxPending: MaxPending, Guard: t.checkLease}
	if o.PublishSingly {
		options.BatchAbove = streams.NeverBatch
	}
	if t.committer, err = streams.NewCommitter(o.Log, options); err != nil {
		return err
	}
	defer t.committer.Close() // finishPending closes it, too
	present, err := micro.AddService(requests, micro.Config{
		Name: ServiceName, Version: buildinfo.SemVer(), Description: "Countersign ingest: takes events in and puts them on the log",
		Metadata: map[string]string{"shard": o.Stream},
	})
	if err != nil {
		return fmt.Errorf("registering the micro service: %w", err)
	}
	defer func() { _ = present.Stop() }()
	// The queue group ensures that two instances that both consider themselves lease holders
	// never store one event twice.
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
	o.Metrics.Taking(true)
	defer o.Metrics.Taking(false)
	roleKnown()
	select {
	case <-ctx.Done():
	case <-l.Context().Done():
		err = context.Cause(l.Context())
	}
	deadline := time.Now().Add(StopTimeout)
	t.drainSubscription(sub)
	t.finishPending(deadline)
	return err
}

// StopTimeout bounds the end of a term, whatever the server does; the release of the lease may take a second more.
const StopTimeout = 10 * time.Second

const flushTimeout = 5 * time.Second

// drainSubscription handles the events that have arrived, and no more.
func (t *leaseTerm) drainSubscription(sub *nats.Subscription) {
	if !t.requests.IsConnected() { // no answer can be sent
		_ = sub.Unsubscribe()
		return
	}
	closed := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(closed) })
	if err := sub.Drain(); err != nil { // the connection is gone, with its messages
		_ = sub.Unsubscribe()
		return
	}
	select {
	case <-closed:
	case <-time.After(flushTimeout):
		_ = sub.Unsubscribe()
	}
}

// finishPending waits until every accepted event is settled, and sends the answers. Events that
// are not settled in time are refused: JetStream may be away for longer than a shutdown may take.
// A commit that has begun by then may end.
func (t *leaseTerm) finishPending(deadline time.Time) {
	late := false
	timer := time.AfterFunc(time.Until(deadline)-streams.DefaultCommitTimeout, func() {
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
	_ = t.requests.FlushTimeout(time.Until(deadline)) // without time left, none
}

var errNotActive = errors.New("this instance may have lost the lease")

// checkLease prevents sending under a lease that another instance may hold: events held by a
// process that was suspended must not be stored behind those of its successor. A paused machine is
// a limit (ADR 5).
func (t *leaseTerm) checkLease() error {
	if !t.lease.Valid() {
		return errNotActive
	}
	return nil
}

// acceptEvent handles one event. Calls come one at a time, in the order of arrival, and never
// block.
func (t *leaseTerm) acceptEvent(m *nats.Msg) {
	msg, at, refused := logMessage(t.Space, t.Stream, m, t.MaySpeakFor)
	if refused == nil {
		refused = t.checkQuota(at, quota.Cost(m.Header, m.Data))
	}
	if refused == nil {
		refused = t.appendEvent(m, msg)
	}
	if refused != nil {
		t.sendRefusal(m, refused)
	}
}

// checkQuota applies the quotas.
func (t *leaseTerm) checkQuota(at eventAddress, bytes int) *refusal {
	e, ok := t.Meter.Take(time.Now(), at.tenant, at.publisher, bytes)
	if ok {
		return nil
	}
	if e.First && t.OnQuotaExceeded != nil {
		t.OnQuotaExceeded(at.tenant, at.publisher, e)
	}
	return &refusal{429, streams.CodeQuota, e.String(), reasonQuota}
}

func (t *leaseTerm) appendEvent(m *nats.Msg, msg streams.Msg) *refusal {
	size := len(m.Subject) + quota.HeaderBytes(m.Header) + len(m.Data)
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

// acknowledge answers once the log has an event, or certainly does not have it. In doubt it sends
// no answer: the publisher's request times out.
func (t *leaseTerm) acknowledge(m *nats.Msg, seq uint64, err error) {
	switch {
	case err == nil:
		t.Metrics.Stored()
		t.sendReply(m, encodeAck(t.Stream, seq))
	case errors.Is(err, streams.ErrRefused):
		t.refusals.Warn().Err(err).Msg("an event was not stored (at most one line a second)")
		t.sendRefusal(m, refusalOf(err))
	default:
		t.Metrics.Refused(reasonAmbiguous)
		t.doubts.Error().Err(err).Msg("it is not known whether an event is stored (at most one line a second)")
	}
}

// refusalOf is the refusal for an error that is ErrRefused. It hides the server's statements
// about the log from publishers.
func refusalOf(err error) *refusal {
	switch {
	case errors.Is(err, streams.ErrTooLarge):
		return refusedSize
	case errors.Is(err, streams.ErrHeaderName):
		return refusedName
	case errors.Is(err, streams.ErrBusy):
		return refusedBusy
	}
	return refusedForNow
}

func (t *leaseTerm) sendRefusal(m *nats.Msg, refused *refusal) {
	t.Metrics.Refused(refused.reason)
	t.sendReply(m, refused.encodeAck(t.Stream))
}

// sendReply replies only on a subject that the server made for a request from another account: a
// reply subject chosen by the sender could be one of the services'.
func (t *leaseTerm) sendReply(m *nats.Msg, body []byte) {
	if !streams.IsAnswerable(m.Reply) {
		return
	}
	if err := t.requests.Publish(m.Reply, body); err != nil {
		t.Logger.Warn().Err(err).Msg("an acknowledgement could not be sent")
	}
}
