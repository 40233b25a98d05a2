package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/retry"
)

// Defaults of ReadOptions.
const (
	DefaultReadBatch = 4096
	DefaultReadBytes = 16 << 20
	DefaultIdleEvery = time.Second

	readHeartbeat  = time.Second
	readRetry      = 200 * time.Millisecond
	readRetryMax   = 2 * time.Second
	consumerIdle   = 10 * time.Second // the server drops an abandoned consumer after this
	readAPITimeout = 5 * time.Second
)

// ReadOptions say what to read. Zero values mean the defaults.
type ReadOptions struct {
	Stream string // required
	// From is the first sequence to deliver; 0 means 1.
	From uint64
	// Filter, if not empty, lists the subjects to deliver (wildcards allowed). Other messages
	// are skipped, so the delivered sequences have gaps.
	Filter []string
	// Since, if not zero, skips messages that were stored before it. It requires From 0 and a
	// Filter.
	Since time.Time
	// MaxBatch and MaxBytes bound the batch of one call of handle (a single message may be
	// larger than MaxBytes).
	MaxBatch int
	MaxBytes int
	// Idle, if set, is called when everything in the stream has been handled, and then every
	// IdleEvery while nothing comes. It is never called at the same time as handle. Its error
	// ends the reading.
	Idle      func() error
	IdleEvery time.Duration
	Log       zerolog.Logger
	// Gap, if set, is called for sequences that the stream no longer has (both ends included).
	// It returns nil if they are known to have been erased; reading then continues after them.
	// Its error ends the reading, unless it is made by RetryLater. Without Gap every gap is a
	// *GapError. With a Filter it is not called, because missing messages cannot be told from
	// messages that do not match.
	Gap func(from, to uint64) error

	// Stalled, if set, is called whenever the consumer stood still although the stream's
	// leader holds more, before the consumer is recreated.
	Stalled func()

	// heartbeat of the server; after four intervals without a message reading starts over.
	heartbeat time.Duration
	// stallAfter is how long the consumer may stand still while the leader has more.
	stallAfter time.Duration
}

// ReadLog delivers a stream in strict sequence order from o.From on, without gaps, in batches, and
// follows it until ctx ends (it returns ctx's error), handle or Idle fails (it returns that
// error), or the stream is not the one that was read so far (*GapError, ErrRewound, ErrRecreated). It survives
// lost connections, server restarts, vanished consumers and consumers that stand still on a
// lagging replica: it continues at the next sequence. Whether everything is handled is measured
// by what the stream's leader holds. handle owns the slice and must not change headers or bodies.
//
// With a Filter it delivers all matching messages in order; the server's own count of deliveries
// shows that none was lost.
//
// It uses a push consumer with flow control, so the server bounds the unacknowledged data in flight
// (32 MiB). The server's statements about a message (sequence, time) come in its reply subject,
// which no publisher can forge.
func ReadLog(ctx context.Context, js jetstream.JetStream, o ReadOptions, handle func(batch []events.LogMessage) error) error {
	switch {
	case o.Stream == "":
		return errors.New("ReadLog: ReadOptions.Stream is empty")
	case !o.Since.IsZero() && (o.From != 0 || len(o.Filter) == 0):
		return errors.New("ReadLog: ReadOptions.Since needs a Filter and no From")
	}
	o.From = max(1, o.From)
	if o.MaxBatch <= 0 {
		o.MaxBatch = DefaultReadBatch
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultReadBytes
	}
	if o.IdleEvery <= 0 {
		o.IdleEvery = DefaultIdleEvery
	}
	if o.heartbeat <= 0 {
		o.heartbeat = readHeartbeat
	}
	if o.stallAfter <= 0 {
		o.stallAfter = DefaultStallAfter
	}
	r := &logReader{js: js, nc: js.Conn(), options: o, handle: handle, next: o.From}
	pauses := retry.New(readRetry, readRetryMax)
	for {
		before := r.next
		err := r.readSession(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var again *retryError
		if !errors.As(err, &again) {
			return err
		}
		if r.next != before {
			pauses.Reset()
		}
		wait := pauses.Next()
		o.Log.Warn().Err(again.err).Str("stream", o.Stream).Uint64("next", r.next).Dur("retry_in", wait).Msg("reading the log interrupted")
		if err := retry.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// retryError marks an error that a new session may resolve.
type retryError struct{ err error }

func (e *retryError) Error() string { return e.err.Error() }

// RetryLater marks an error of ReadOptions.Gap as temporary: reading starts over.
func RetryLater(err error) error { return &retryError{err} }

func retryableError(format string, args ...any) error {
	return &retryError{fmt.Errorf(format, args...)}
}

// logReader is the state of one ReadLog across sessions. One goroutine owns it.
type logReader struct {
	js          jetstream.JetStream
	nc          *nats.Conn
	options     ReadOptions
	handle      func([]events.LogMessage) error
	next        uint64    // the sequence to deliver next
	created     time.Time // the stream's incarnation, once known
	shortSince  time.Time // since when the stream is shorter than what was read; zero if it is not
	avoidServer string    // the server on which a consumer last stood still
	clearUpTo   uint64    // the leader holds nothing to deliver from next up to this sequence

	// Of the current session.
	host  string // the server that runs the consumer; "" if not known
	stall StallDetector
	order uint64 // number of deliveries so far
	batch []events.LogMessage
	bytes int
}

// readSession reads with one consumer until an error occurs.
func (r *logReader) readSession(ctx context.Context) error {
	st, err := r.checkStream(ctx)
	if err != nil {
		return err
	}
	in := newInbox()
	sub, err := r.nc.Subscribe(r.nc.NewInbox(), in.put)
	if err != nil {
		return retryableError("subscribing: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	// The server's flow control bounds what is pending, not the client.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return retryableError("subscribing: %w", err)
	}
	down := r.nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer r.nc.RemoveStatusListener(down)
	backlog, err := r.backlogEnd(ctx, st.LastSeq)
	if err != nil {
		return err
	}
	name, err := r.placeConsumer(ctx, sub.Subject)
	if err != nil {
		return err
	}
	defer r.dropConsumer(name)
	return r.followStream(ctx, in, down, backlog)
}

// backlogEnd returns the sequence up to which messages must be handled for the reader to be caught
// up: the leader's last sequence or, with a Filter, its last one of those subjects. The
// consumer's pending count is not used, because its replica may lag.
func (r *logReader) backlogEnd(ctx context.Context, last uint64) (uint64, error) {
	if len(r.options.Filter) == 0 {
		return last, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readAPITimeout)
	defer cancel()
	since := r.options.Since
	if r.next > 1 {
		since = time.Time{} // the messages before Since are skipped already
	}
	due, err := lastDue(ctx, r.js, r.options.Stream, r.options.Filter, since)
	if err != nil {
		return 0, retryableError("%w", err)
	}
	return due, nil
}

// maxPlacements is how often a consumer is created to get it onto another server than before.
const maxPlacements = 6

// placeConsumer creates the consumer. The server chooses where it runs; if it runs where the last
// one stood still, placeConsumer deletes and recreates it a few times.
func (r *logReader) placeConsumer(ctx context.Context, deliver string) (name string, err error) {
	for n := 1; ; n++ {
		name = "read-" + nuid.Next()
		if r.host, err = r.createConsumer(ctx, name, deliver); err != nil {
			return "", err
		}
		if r.host == "" || r.host != r.avoidServer || n == maxPlacements {
			return name, nil
		}
		r.dropConsumer(name)
	}
}

// checkStream checks that the stream is still the one that was read.
func (r *logReader) checkStream(ctx context.Context) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, readAPITimeout)
	defer cancel()
	st, err := StreamState(ctx, r.js, r.options.Stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && r.created.IsZero():
		return st, err
	case err != nil:
		return st, retryableError("%w", err)
	case !r.created.IsZero() && !st.Created.Equal(r.created):
		return st, fmt.Errorf("%w: %s was created at %v when reading began, now at %v", ErrRecreated, r.options.Stream, r.created, st.Created)
	case st.LastSeq+1 < r.next:
		return st, r.checkRewound(st)
	case st.FirstSeq > r.next && len(r.options.Filter) == 0: // no message may come that shows the gap
		if err := r.handleGap(r.next, st.FirstSeq); err != nil {
			return st, err
		}
		r.next = st.FirstSeq
	}
	r.created, r.shortSince = st.Created, time.Time{}
	return st, nil
}

// rewoundAfter is how long a replicated stream must have been too short. A leader that is cut off
// from the other servers steps down within 10 s.
const rewoundAfter = 15 * time.Second

// checkRewound handles a stream that is shorter than what was read. With replicas, a former leader
// may have answered, so the stream is asked again for a while.
func (r *logReader) checkRewound(st State) error {
	if r.shortSince.IsZero() {
		r.shortSince = time.Now()
	}
	if st.Replicas > 1 && time.Since(r.shortSince) < rewoundAfter {
		return retryableError("the server that answered has stream %s up to sequence %d, but %d was already stored", r.options.Stream, st.LastSeq, r.next-1)
	}
	return fmt.Errorf("%w: %s ends at sequence %d, but %d was already stored", ErrRewound, r.options.Stream, st.LastSeq, r.next-1)
}

// handleGap handles a gap: want was expected, and got came.
func (r *logReader) handleGap(want, got uint64) error {
	if r.options.Gap == nil {
		return &GapError{Stream: r.options.Stream, Want: want, Got: got}
	}
	return r.options.Gap(want, got-1)
}

// createConsumer creates a consumer and returns the server that runs it, if known.
func (r *logReader) createConsumer(ctx context.Context, name, deliver string) (host string, err error) {
	config := map[string]any{
		"name": name, "deliver_subject": deliver, "deliver_policy": "by_start_sequence", "opt_start_seq": r.next,
		"ack_policy": "none", "replay_policy": "instant", "max_deliver": 1, "mem_storage": true, "num_replicas": 1,
		"flow_control": true, "idle_heartbeat": r.options.heartbeat, "inactive_threshold": consumerIdle,
	}
	if len(r.options.Filter) > 0 {
		config["filter_subjects"] = r.options.Filter
	}
	if !r.options.Since.IsZero() && r.next == 1 { // nothing was handled yet
		config["deliver_policy"], config["opt_start_time"] = "by_start_time", r.options.Since.UTC()
		delete(config, "opt_start_seq")
	}
	req, err := json.Marshal(map[string]any{"stream_name": r.options.Stream, "config": config})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, readAPITimeout)
	defer cancel()
	msg, err := r.nc.RequestWithContext(ctx, "$JS.API.CONSUMER.CREATE."+r.options.Stream+"."+name, req)
	if err != nil {
		return "", retryableError("creating a consumer: %w", err)
	}
	var resp struct {
		Error   *apiError `json:"error"`
		Cluster struct {
			Leader string `json:"leader"`
		} `json:"cluster"`
	}
	if err := json.Unmarshal(msg.Data, &resp); err != nil {
		return "", retryableError("creating a consumer: the answer is not JSON")
	}
	if resp.Error != nil {
		return "", retryableError("creating a consumer: %w", resp.Error)
	}
	return resp.Cluster.Leader, nil
}

// dropConsumer deletes a consumer, so that the server does not keep it until it times out.
func (r *logReader) dropConsumer(name string) {
	_ = r.nc.Publish("$JS.API.CONSUMER.DELETE."+r.options.Stream+"."+name, nil)
}

// followStream handles incoming messages. seen is the stream's last known sequence; the reader is
// caught up when everything up to it is handled.
func (r *logReader) followStream(ctx context.Context, in *inbox, down <-chan nats.Status, seen uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.batch, r.bytes, r.order = nil, 0, 0
	r.stall = StallDetector{After: r.options.stallAfter}
	lookEvery := r.options.stallAfter * 2 / 3
	look := time.NewTimer(retry.UntilTick(lookEvery))
	defer look.Stop()
	looks, looking, before := make(chan leaderState, 1), false, uint64(0)
	idle := time.NewTimer(0)
	defer idle.Stop()
	patience := 4 * r.options.heartbeat
	silence := time.NewTimer(patience)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case s := <-down:
			return retryableError("connection: %v", s)
		case <-silence.C:
			if in.isWaiting() { // the server has spoken while Idle took its time
				silence.Reset(patience)
				continue
			}
			return retryableError("no word from the server within %v", patience)
		case <-idle.C:
			if r.next > seen && r.options.Idle != nil {
				if err := r.options.Idle(); err != nil {
					return err
				}
			}
			idle.Reset(r.options.IdleEvery)
		case <-in.wake:
			last, err := r.drainInbox(ctx, in)
			if err != nil {
				return err
			}
			silence.Reset(patience) // not before: handle may take its time
			if seen = max(seen, last); r.next > seen {
				idle.Reset(0)
			}
		case <-look.C:
			look.Reset(retry.UntilTick(lookEvery))
			if !looking && r.next == before {
				looking = true
				go func(next, answered uint64) { looks <- r.askLeader(ctx, next, answered) }(r.next, r.clearUpTo)
			}
			before = r.next
		case l := <-looks:
			looking = false
			var err error
			if seen, err = r.checkStall(ctx, l, in, seen); err != nil {
				return err
			}
		}
	}
}

// leaderState is the answer of the stream's leader when the reader was at next.
type leaderState struct {
	next, due, last uint64
	err             error
}

func (r *logReader) askLeader(ctx context.Context, next, answered uint64) leaderState {
	ctx, cancel := context.WithTimeout(ctx, readAPITimeout)
	defer cancel()
	l := leaderState{next: next}
	l.due, l.last, l.err = nextDue(ctx, r.js, r.options.Stream, r.options.Filter, max(next, answered+1))
	return l
}

// checkStall compares the leader's answer with the reader's position. It returns the new value of
// seen; its error ends the session of a consumer that stands still.
func (r *logReader) checkStall(ctx context.Context, l leaderState, in *inbox, seen uint64) (uint64, error) {
	switch {
	case l.err != nil || l.next != r.next:
		return seen, nil // the leader does not answer, or the reader has moved since
	case l.due == 0:
		r.clearUpTo = max(r.clearUpTo, l.last)
		r.stall.Observe(r.next, 0, time.Now())
		return r.next - 1, nil
	}
	seen = max(seen, l.due)
	if !r.stall.Observe(r.next, l.due, time.Now()) {
		return seen, nil
	}
	// Messages that came while this goroutine was busy count as progress.
	if last, err := r.drainInbox(ctx, in); err != nil || r.next != l.next {
		return max(seen, last), err
	}
	r.avoidServer = r.host
	if r.options.Stalled != nil {
		r.options.Stalled()
	}
	return seen, retryableError("the consumer on server %q has stood at sequence %d for %v although the stream's leader has %d: it is made anew", r.host, r.next, r.options.stallAfter, l.due)
}
