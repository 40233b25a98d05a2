package correlator

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/erasures"
	"github.com/countersign-dev/countersign/internal/service/lease"
	"github.com/countersign-dev/countersign/streams"
)

const (
	idleEvery  = 250 * time.Millisecond // how often an idle shard is checked
	tickAgain  = 30 * time.Second       // until a tick is repeated that was early by the broker's clock
	maxOutputs = 900                    // outputs of one atomic batch; the server takes 1000 messages
	maxBytes   = 8 << 20                // of those outputs together; the server takes 32 MiB

	// maxWaiting is how many pending outputs make an active instance stop reading. maxStandby is
	// how many uncovered outputs a standby keeps: so far it may run ahead of the active instance
	// before it waits. Each takes 1 to 2 KB.
	maxWaiting  = 8 * maxOutputs
	maxStandby  = 1 << 17
	lookAgain   = 500 * time.Millisecond // interval at which a waiting standby reads the cursor
	roleUnknown = ""                     // until it is known which instance holds the lease
)

// worker owns the core, in the goroutine of runLoop. Beside it run the reader with its decoders, the
// election and the rules. They touch channels, the keys and what never changes.
// Its parts (ticks, rules, snapshots, erasure and so on) keep their own state: the worker
// hands them what they need of the rest.
type worker struct {
	*shardLog
	core *correlation.Correlator

	cursor      events.Cursor   // the newest known cursor
	cursorSeq   uint64          // its sequence in the log: the fence
	warnedOf    string          // another writer's settings
	pending     []pendingOutput // outputs that the cursor does not cover, in order
	head        uint64          // sequence of the last applied message
	last        events.LogMessage
	lastApplied time.Time // when it was applied, by this machine's clock

	role       string // roleUnknown, daemon.RoleStandby or daemon.RoleActive
	lease      *lease.Lease
	hasWritten bool // a write of this instance was stored
	caughtUp   bool
	isLeading  bool   // it is the active instance and has caught up
	backlogEnd uint64 // head when it began to lead
	ready      bool
	// replaySince is when this worker began to read the log again after an erasure; zero if it does not.
	replaySince time.Time
	// standBack is how long the election waits first: a standby, which asks for the lease six times in DefaultTTL, takes
	// the one that this instance has released.
	standBack time.Duration

	writing chan writeResult // of the write that is under way; nil without one
	ticks   ticks
	rules   ruleSource
	metrics workerMetrics

	snapshots snapshots
	keys      sessionSecrets
	erasure   erasureState
	collector gcTuner
	pacer     writePacer
}

// pendingOutput is an output and its origin: it is output n, from zero, of a message.
type pendingOutput struct {
	out correlation.Output
	seq uint64
	n   int
	at  time.Time // the message's broker time
}

func newWorker(f Flags, env daemon.Env, nc *nats.Conn, js jetstream.JetStream, core *correlation.Correlator) *worker {
	return newWorkerWith(f, env, nc, js, core, newWorkerMetrics(f, env, js))
}

func newWorkerWith(f Flags, env daemon.Env, nc *nats.Conn, js jetstream.JetStream, core *correlation.Correlator, c workerMetrics) *worker {
	// Two processes may have the same id, each in its container: the writer's name must be
	// unique.
	l := &shardLog{flags: f, env: env, nc: nc, js: js, writer: "correlator-" + rand.Text()}
	w := &worker{shardLog: l, core: core, metrics: c}
	w.ticks.log, w.rules = l, newRuleSource(l)
	w.erasure.log = &erasures.Log{JS: js, Stream: f.Stream, Space: f.Space()}
	w.erasure.subject = w.erasure.log.Subject()
	return w
}

// run follows the log, as a standby until this instance holds the lease.
func (w *worker) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	pipeline := newDecodePipeline(w.core, w.keys)
	pipeline.start(g, ctx, func() error {
		return streams.ReadLog(ctx, w.js, streams.ReadOptions{
			Stream: w.flags.Stream, From: w.head + 1, MaxBatch: decodeBatchSize, Log: w.env.Log, Stalled: w.env.Metrics.ReaderStalled,
			Idle: func() error { return pipeline.enqueueIdle(ctx) }, IdleEvery: idleEvery, Gap: w.erasure.gapHandler(ctx),
		}, func(batch []events.LogMessage) error { return pipeline.enqueue(ctx, batch) })
	})
	e := election{lead: make(chan *lease.Lease, 1), standby: make(chan struct{}, 1)}
	g.Go(func() error { return e.run(ctx, w) })
	g.Go(func() error { return w.rules.run(ctx) })
	g.Go(func() error { return w.runLoop(ctx, pipeline, e) })
	err := g.Wait()
	e.releaseLease()
	return err
}

// election acquires the lease in the background.
type election struct {
	lead    chan *lease.Lease
	standby chan struct{}
}

func (e election) run(ctx context.Context, w *worker) error {
	if err := retry.Sleep(ctx, w.standBack); err != nil {
		return err
	}
	l, err := w.flags.HoldLease(ctx, w.js, "correlator", w.env, func() error {
		e.standby <- struct{}{}
		return nil
	})
	if err == nil {
		e.lead <- l
	}
	return err
}

// releaseLease releases a lease that arrived too late to be used.
func (e election) releaseLease() {
	select {
	case l := <-e.lead:
		l.Release()
	default:
	}
}

// runLoop is the loop of the goroutine that owns the core.
func (w *worker) runLoop(ctx context.Context, in *decodePipeline, e election) (err error) {
	defer func() { err = w.shutDown(err) }()
	w.snapshots.stop = func() bool { return w.isUrgent(ctx, e) }
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	var decoding *batch // meanwhile pending outputs can be written
	for {
		next, lost := in.ordered, (<-chan struct{})(nil)
		if decoding != nil || w.isFull() {
			next = nil
		}
		if w.lease != nil {
			lost = w.lease.Context().Done()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-lost:
			return context.Cause(w.lease.Context())
		case decoding = <-next:
		case <-decoding.readySignal():
			err = w.applyBatch(ctx, decoding)
			decoding = nil
		case l := <-w.writing:
			err = w.handleResult(ctx, l)
		case l := <-e.lead:
			err = w.becomeActive(ctx, l)
		case <-e.standby:
			if w.role == roleUnknown {
				w.role = daemon.RoleStandby
			}
		case failed := <-w.snapshots.writing:
			w.snapshots.noteSaved(w.env, failed)
		case q := <-w.rules.changes:
			q.answer(w.core)
		case <-w.pacer.wakeSignal():
		case <-look.C:
			err = w.refreshCursor(ctx)
		}
		if err == nil {
			w.beginToLead()
			w.writeIfDue(time.Now(), in.waitingBatches(decoding))
			err = w.reportReady()
		}
		if err != nil {
			return err
		}
	}
}

// isUrgent reports, while the state is encoded, whether others wait for this instance: the lease
// has arrived and no instance is active until it is promoted, or it has to stop and keeps the
// lease until then.
func (w *worker) isUrgent(ctx context.Context, e election) bool {
	return len(e.lead) > 0 || w.lease != nil && ctx.Err() != nil
}

// shutDown settles writes and releases the lease, so that a successor can take over. err is the
// reason for the end.
//
// The successor need not wait for the snapshot: nothing is written after the last write is
// settled. A write with an unknown result can only be stored where the fence is
// (streams.AppendFenced): either the successor finds its cursor and continues behind it, or
// the successor writes first and this write is refused.
func (w *worker) shutDown(err error) error {
	if w.writing != nil {
		<-w.writing
	}
	if w.lease != nil {
		err = daemon.LeaseError(w.lease, err)
		w.lease.Release()
	}
	if errors.Is(err, errErased) {
		w.snapshots.every = math.MaxInt64 // wait for the one being written, and write no other
	}
	w.saveAtEnd()
	return err
}

// isFull reports whether so many outputs are pending that reading must wait.
func (w *worker) isFull() bool {
	if w.role == daemon.RoleActive {
		return len(w.pending) >= maxWaiting
	}
	return len(w.pending) >= maxStandby
}

// applyBatch applies a decoded batch, or handles an idle log.
func (w *worker) applyBatch(ctx context.Context, b *batch) error {
	if w.erasure.isDue(time.Now(), w.role) {
		return errErased
	}
	defer func() {
		now := time.Now()
		w.metrics.countSeen(w.core, w.head, len(b.msgs), now)
		w.saveWhenDue(now, b.idle)
		w.collector.adapt(now)
		w.reportReplay(now)
	}()
	if b.idle {
		w.caughtUp = true
		w.handleIdle(ctx, time.Now())
		return nil
	}
	w.lastApplied = time.Now()
	for i := range b.inputs {
		if err := w.applyMessage(&b.inputs[i]); err != nil {
			return err
		}
	}
	return nil
}

// applyMessage passes one message to the core and keeps the outputs that the cursor does not
// cover.
func (w *worker) applyMessage(in *correlation.Input) error {
	m := in.Message()
	outs := w.core.Step(in)
	w.head, w.last = m.Seq, m
	for n, o := range outs {
		if p := (pendingOutput{o, m.Seq, n, m.Time}); !isCovered(w.cursor, p) {
			w.pending = append(w.pending, p)
		}
	}
	// The active instance knows its own cursors.
	if in.IsCursor() && w.role != daemon.RoleActive {
		return w.applyCursor(m)
	}
	return w.erasure.note(m, w.keys, w.core)
}

// beginToLead notes that the active instance has read the log to its end.
func (w *worker) beginToLead() {
	if w.isLeading || !w.caughtUp || w.role != daemon.RoleActive {
		return
	}
	w.isLeading, w.backlogEnd = true, w.head
	close(w.rules.begin)
}

// reportReady tells the supervisor that the log is read to its end, the active instance is known
// and, if it is this one, the outputs of the log so far are written. Those of later messages do
// not count: under load some are always pending.
func (w *worker) reportReady() error {
	if w.ready || !w.caughtUp || w.role == roleUnknown || len(w.pending) > 0 && w.role == daemon.RoleActive && w.pending[0].seq <= w.backlogEnd {
		return nil
	}
	w.ready = true
	return w.env.Ready()
}
