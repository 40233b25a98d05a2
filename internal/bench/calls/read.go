package calls

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/bench/callplan"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/bench/spending"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/streams"
)

// checkpointReader is a reader of the evidence: it looks whether the newest checkpoint is signed
// by the auditor and whether the row at its end can be read. Rows are stored in order, so all
// rows before it can be read, too.
type checkpointReader struct {
	js      jetstream.JetStream
	conn    clickhouse.Conn
	known   note.Verifiers
	cost    time.Duration // processor time of the servers for one look that finds a new checkpoint
	covered atomic.Uint64 // the size of the newest checkpoint that was seen
}

// lookEvery is how often the reader looks while calls are made, and awaitEvery how often it does
// when all are made and their evidence is awaited.
const (
	lookEvery  = 500 * time.Millisecond
	awaitEvery = 100 * time.Millisecond
)

// priceLooks is how many looks are made to find out what one costs.
const priceLooks = 50

// newCheckpointReader waits for the first checkpoint, and measures what a look costs while no
// calls are made.
func newCheckpointReader(ctx context.Context, ready target.Ready, js jetstream.JetStream, conn clickhouse.Conn) (*checkpointReader, error) {
	key, err := signing.CheckpointVerifier(ready.PublicKey)
	if err != nil {
		return nil, err
	}
	r := &checkpointReader{js: js, conn: conn, known: note.VerifierList(key)}
	if err := r.await(ctx, 1, drainTimeout, func(uint64) {}); err != nil {
		return nil, err
	}
	before, err := spending.ProcessorTimes(ready.PIDs)
	if err != nil {
		return nil, err
	}
	for range priceLooks {
		r.covered.Store(0) // each look asks for the row, too
		if err := r.look(ctx); err != nil {
			return nil, err
		}
	}
	after, err := spending.ProcessorTimes(ready.PIDs)
	for _, name := range []string{"nats", "clickhouse"} {
		r.cost += (after[name] - before[name]) / priceLooks
	}
	return r, err
}

// errEarlyCheckpoint would make the measured lags too short.
var errEarlyCheckpoint = errors.New("a checkpoint was published before its rows could be read")

func (r *checkpointReader) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout) // an overloaded server answers late
	defer cancel()
	m, err := streams.LastBySubject(ctx, r.js, streams.StreamCheckpoints, subject.Space{}.Checkpoints(streams.DefaultShard))
	if err != nil || m == nil {
		return err
	}
	c, err := tree.OpenCheckpoint(string(m.Body), r.known)
	if err != nil || uint64(c.Size) == r.covered.Load() {
		return err
	}
	var rows uint64
	if err := r.conn.QueryRow(ctx, "SELECT count() FROM evidence WHERE shard = ? AND seq = ?", c.Shard, uint64(c.Size)).Scan(&rows); err != nil {
		return fmt.Errorf("reading the row at the end of a checkpoint: %w", err)
	}
	if rows != 1 {
		return fmt.Errorf("%w: sequence %d of %s, %d rows", errEarlyCheckpoint, c.Size, c.Shard, rows)
	}
	r.covered.Store(uint64(c.Size))
	return nil
}

// watch looks regularly until stop, which returns the number of looks.
func (r *checkpointReader) watch(ctx context.Context) (stop func() (looks int, err error)) {
	end := repeat(lookEvery, func() error { return r.look(ctx) })
	return func() (int, error) {
		looks, err := end()
		if ctx.Err() != nil {
			err = nil // the caller has that error
		}
		return looks, err
	}
}

// repeat looks at once and then regularly, until a look fails or stop is called. stop waits for the
// look that runs, and returns the number of looks and the error of the last one.
func repeat(every time.Duration, look func() error) (stop func() (looks int, err error)) {
	end, done := make(chan struct{}), make(chan error, 1)
	looks := 0
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			looks++
			if err := look(); err != nil {
				done <- err
				return
			}
			select {
			case <-tick.C:
			case <-end:
				done <- nil
				return
			}
		}
	}()
	return func() (int, error) {
		close(end)
		err := <-done
		return looks, err
	}
}

// await looks until a checkpoint covers a sequence. It tells what is covered so far.
func (r *checkpointReader) await(ctx context.Context, seq uint64, most time.Duration, tell func(covered uint64)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("after %s no checkpoint covers sequence %d", most, seq))
	defer cancel()
	for {
		if err := r.look(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		if r.covered.Load() >= seq {
			return nil
		}
		tell(r.covered.Load())
		if err := sleepUntil(ctx, time.Now().Add(awaitEvery)); err != nil {
			return context.Cause(ctx)
		}
	}
}

// coverage reads all checkpoints, with the times of the log.
func (r *checkpointReader) coverage(ctx context.Context) (c callplan.Coverage, err error) {
	for m, err := range streams.MessagesBack(ctx, r.js, streams.StreamCheckpoints) {
		if err != nil {
			return nil, err
		}
		p, err := tree.OpenCheckpoint(string(m.Body), r.known)
		if err != nil {
			return nil, err
		}
		c = append(c, callplan.StoredAt{Seq: uint64(p.Size), At: m.Time})
	}
	slices.Reverse(c)
	return c, nil
}

// awaitCorrelator waits until the correlator has consumed a sequence.
func awaitCorrelator(ctx context.Context, js jetstream.JetStream, seq uint64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, drainTimeout, fmt.Errorf("after %s the correlator has not consumed sequence %d", drainTimeout, seq))
	defer cancel()
	for {
		m, err := streams.LastBySubject(ctx, js, streams.DefaultShard, subject.Space{}.Control(streams.DefaultShard, events.ControlCursor))
		if err == nil && m != nil {
			var c events.Cursor
			if c, err = events.DecodeRecord[events.Cursor](m.Body); err == nil && c.Consumed >= seq {
				return nil
			}
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err := sleepUntil(ctx, time.Now().Add(awaitEvery)); err != nil {
			return context.Cause(ctx)
		}
	}
}

// callsLog is what a measurement wrote to the log.
type callsLog struct {
	from, to uint64
	messages int
	commits  int                 // single messages and atomic batches
	batches  int                 // of these
	findings []callplan.StoredAt // by the last sequence of their evidence
	rules    map[string]int
	sample   []streams.Msg
}

// sampleMessages is how many messages the floor appends at most.
const sampleMessages = 20_000

// Headers of an atomic batch, which the server keeps.
const (
	batchHeader  = "Nats-Batch-Id"
	commitHeader = "Nats-Batch-Commit"
)

// readCallsLog reads the log from a sequence on, at least to another, until it is read.
func readCallsLog(ctx context.Context, js jetstream.JetStream, from, to uint64) (l callsLog, err error) {
	l = callsLog{from: from, to: to, rules: map[string]int{}}
	err = streams.ReadLog(ctx, js, streams.ReadOptions{Stream: streams.DefaultShard, From: from, Idle: func() error { return measure.ErrDone }}, func(batch []events.LogMessage) error {
		for i := range batch {
			if err := l.add(&batch[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, measure.ErrDone) {
		err = nil
	}
	return l, err
}

func (l *callsLog) add(m *events.LogMessage) error {
	p, err := subject.Space{}.Parse(m.Subject)
	if err != nil {
		return err
	}
	if p.Class == subject.Findings {
		f, err := events.DecodeRecord[events.Finding](m.Body)
		if err != nil {
			return err
		}
		l.rules[f.Rule]++
		if len(f.Seqs) > 0 {
			l.findings = append(l.findings, callplan.StoredAt{Seq: slices.Max(f.Seqs), At: m.Time})
		}
	}
	if m.Seq > l.to { // after the counters were read
		return nil
	}
	l.messages++
	batched := m.HeaderValue(batchHeader) != ""
	if last := batched && m.HeaderValue(commitHeader) != ""; last || !batched {
		l.commits++
		if last {
			l.batches++
		}
	}
	if len(l.sample) < sampleMessages {
		l.sample = append(l.sample, appendable(m, p.Class))
	}
	return nil
}

// floorSubject takes the messages of the floor that the admitter may not publish under their own
// subject.
const floorSubject = "bench"

// appendable is a message as the admitter can append it: without the headers that steer the
// server.
func appendable(m *events.LogMessage, class subject.Class) streams.Msg {
	out := streams.Msg{Subject: m.Subject, Header: map[string][]string{}, Body: m.Body}
	if class != subject.Events && class != subject.Decisions && class != subject.Approvals {
		out.Subject = subject.Space{}.Event("acme", floorSubject, subject.ProtoAgentHook, "floor", string(class))
	}
	for name, values := range m.Header {
		if !strings.HasPrefix(strings.ToLower(name), "nats-") {
			out.Header[name] = values
		}
	}
	return out
}
