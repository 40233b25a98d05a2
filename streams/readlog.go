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
	// From is the first sequence to deliver; 0 is 1.
	From uint64
	// Filter, if it is not empty, names the subjects to deliver (wildcards allowed);
	// what lies between is passed over, and the sequences have gaps.
	Filter []string
	// Since, if it is not zero, leaves out what was stored before; From must be 0 and
	// Filter must not be empty then.
	Since time.Time
	// MaxBatch and MaxBytes bound one call of handle (a single message may be
	// larger than MaxBytes).
	MaxBatch int
	MaxBytes int
	// Idle, if set, is called when everything that the stream held has been
	// handled and then every IdleEvery while nothing comes, never at the same
	// time as handle. Its error ends the reading.
	Idle      func() error
	IdleEvery time.Duration
	Log       zerolog.Logger
	// Gap, if set, is asked about sequences that the stream no longer has (both
	// ends included). It returns nil if they are known to have been erased:
	// reading goes on behind them. Its error ends the reading, unless it comes from
	// Again. Without Gap every gap is a *GapError. With a Filter it is not asked:
	// what is missing there cannot be told from what does not match.
	Gap func(from, to uint64) error

	// Stalled, if set, is called whenever the consumer stood still although the
	// stream's leader holds more, before it is made anew.
	Stalled func()

	// heartbeat of the server; after four without a word reading starts over.
	heartbeat time.Duration
	// stallAfter is how long the consumer may stand still while the leader has more.
	stallAfter time.Duration
}

// ReadLog delivers a stream in strict sequence order from o.From on, without a
// gap, in batches, and follows it live until ctx ends (it returns ctx's error),
// handle or Idle fail (it returns their error), or the stream turns out not to
// be what was read so far (*GapError, ErrRewound). Lost connections, server
// restarts, vanished consumers and consumers that stand still on a replica which
// lags are survived: reading goes on at the next sequence, and whether everything
// is handled is measured by what the stream's leader holds. handle owns the slice
// and must not change headers or bodies.
//
// With a Filter it delivers what matches, all of it and in order: the server's
// own count of deliveries shows that none was lost.
//
// It uses a push consumer with flow control: unacknowledged data in flight is
// bounded by the server (32 MiB), and what the server says of a message
// (sequence, time) comes by its reply subject, which no publisher can forge.
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
	r := &reader{js: js, nc: js.Conn(), o: o, handle: handle, next: o.From}
	for wait := readRetry; ; wait = min(2*wait, readRetryMax) {
		before := r.next
		err := r.session(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var retry *retryError
		if !errors.As(err, &retry) {
			return err
		}
		if r.next != before {
			wait = readRetry
		}
		o.Log.Warn().Err(retry.err).Str("stream", o.Stream).Uint64("next", r.next).Dur("retry_in", wait).Msg("reading the log interrupted")
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// retryError marks what a new session may heal.
type retryError struct{ err error }

func (e *retryError) Error() string { return e.err.Error() }

// Again marks an error of ReadOptions.Gap that may pass: reading starts over.
func Again(err error) error { return &retryError{err} }

func retryable(format string, args ...any) error {
	return &retryError{fmt.Errorf(format, args...)}
}

// reader is the state of one ReadLog across sessions. One goroutine owns it.
type reader struct {
	js      jetstream.JetStream
	nc      *nats.Conn
	o       ReadOptions
	handle  func([]events.LogMessage) error
	next    uint64    // the sequence to deliver next
	created time.Time // the stream's incarnation, once known
	short   time.Time // since when the stream is shorter than what was read; zero if it is not
	avoid   string    // the server on which a consumer stood still last
	clear   uint64    // the leader holds nothing to deliver from next up to here

	// Of the current session.
	host  string // the server that the consumer is on; empty if it is not known
	stall Stall
	order uint64 // deliveries so far
	batch []events.LogMessage
	bytes int
}

// session reads by one consumer until something goes wrong.
func (r *reader) session(ctx context.Context) error {
	st, err := r.checkStream(ctx)
	if err != nil {
		return err
	}
	in := newInbox()
	sub, err := r.nc.Subscribe(r.nc.NewInbox(), in.put)
	if err != nil {
		return retryable("subscribing: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	// The server's flow control bounds what is pending, not the client.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return retryable("subscribing: %w", err)
	}
	down := r.nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer r.nc.RemoveStatusListener(down)
	backlog, err := r.backlog(ctx, st.LastSeq)
	if err != nil {
		return err
	}
	name, err := r.placeConsumer(ctx, sub.Subject)
	if err != nil {
		return err
	}
	defer r.dropConsumer(name)
	return r.follow(ctx, in, down, backlog)
}

// backlog is the sequence up to which the log must be handled to be caught up: the
// leader's last one or, where only some subjects are read, its last one of those.
// What the consumer says is pending does not count: its replica may lag.
func (r *reader) backlog(ctx context.Context, last uint64) (uint64, error) {
	if len(r.o.Filter) == 0 {
		return last, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readAPITimeout)
	defer cancel()
	since := r.o.Since
	if r.next > 1 {
		since = time.Time{} // what was too old is behind
	}
	due, err := LastDue(ctx, r.js, r.o.Stream, r.o.Filter, since)
	if err != nil {
		return 0, retryable("%w", err)
	}
	return due, nil
}

// maxPlacements is how often a consumer is made for it to be on another server
// than the one before.
const maxPlacements = 6

// placeConsumer creates the consumer. The server chooses where it runs; a place
// where the one before stood still is given back a few times.
func (r *reader) placeConsumer(ctx context.Context, deliver string) (name string, err error) {
	for n := 1; ; n++ {
		name = "read-" + nuid.Next()
		if r.host, err = r.createConsumer(ctx, name, deliver); err != nil {
			return "", err
		}
		if r.host == "" || r.host != r.avoid || n == maxPlacements {
			return name, nil
		}
		r.dropConsumer(name)
	}
}

// checkStream makes sure that the stream is still the one that was read.
func (r *reader) checkStream(ctx context.Context) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, readAPITimeout)
	defer cancel()
	st, err := StreamState(ctx, r.js, r.o.Stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && r.created.IsZero():
		return st, err
	case err != nil:
		return st, retryable("%w", err)
	case !r.created.IsZero() && !st.Created.Equal(r.created):
		return st, fmt.Errorf("%w: %s was created at %v when reading began, now at %v", ErrRewound, r.o.Stream, r.created, st.Created)
	case st.LastSeq+1 < r.next:
		return st, r.rewound(st)
	case st.FirstSeq > r.next && len(r.o.Filter) == 0 && r.o.Gap == nil:
		return st, &GapError{Stream: r.o.Stream, Want: r.next, Got: st.FirstSeq}
	}
	r.created, r.short = st.Created, time.Time{}
	return st, nil
}

// rewoundAfter is how long a stream with replicas must have been too short. A
// leader that is cut off from the others steps down within 10 s.
const rewoundAfter = 15 * time.Second

// rewound judges a stream that is shorter than what was read. With replicas the
// answer may be that of a leader of before, so the stream is asked again for a while.
func (r *reader) rewound(st State) error {
	if r.short.IsZero() {
		r.short = time.Now()
	}
	if st.Replicas > 1 && time.Since(r.short) < rewoundAfter {
		return retryable("the server that answered has stream %s up to sequence %d, but %d was already stored", r.o.Stream, st.LastSeq, r.next-1)
	}
	return fmt.Errorf("%w: %s ends at sequence %d, but %d was already stored", ErrRewound, r.o.Stream, st.LastSeq, r.next-1)
}

// gap is called where want had to come and got came.
func (r *reader) gap(want, got uint64) error {
	if r.o.Gap == nil {
		return &GapError{Stream: r.o.Stream, Want: want, Got: got}
	}
	return r.o.Gap(want, got-1)
}

// createConsumer tells the server that the consumer runs on, where it is known.
func (r *reader) createConsumer(ctx context.Context, name, deliver string) (host string, err error) {
	config := map[string]any{
		"name": name, "deliver_subject": deliver, "deliver_policy": "by_start_sequence", "opt_start_seq": r.next,
		"ack_policy": "none", "replay_policy": "instant", "max_deliver": 1, "mem_storage": true, "num_replicas": 1,
		"flow_control": true, "idle_heartbeat": r.o.heartbeat, "inactive_threshold": consumerIdle,
	}
	if len(r.o.Filter) > 0 {
		config["filter_subjects"] = r.o.Filter
	}
	if !r.o.Since.IsZero() && r.next == 1 { // nothing was handled yet
		config["deliver_policy"], config["opt_start_time"] = "by_start_time", r.o.Since.UTC()
		delete(config, "opt_start_seq")
	}
	req, err := json.Marshal(map[string]any{"stream_name": r.o.Stream, "config": config})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, readAPITimeout)
	defer cancel()
	msg, err := r.nc.RequestWithContext(ctx, "$JS.API.CONSUMER.CREATE."+r.o.Stream+"."+name, req)
	if err != nil {
		return "", retryable("creating a consumer: %w", err)
	}
	var resp struct {
		Error   *apiError `json:"error"`
		Cluster struct {
			Leader string `json:"leader"`
		} `json:"cluster"`
	}
	if err := json.Unmarshal(msg.Data, &resp); err != nil {
		return "", retryable("creating a consumer: the answer is not JSON")
	}
	if resp.Error != nil {
		return "", retryable("creating a consumer: %w", resp.Error)
	}
	return resp.Cluster.Leader, nil
}

// dropConsumer spares the server the wait; it is a courtesy.
func (r *reader) dropConsumer(name string) {
	_ = r.nc.Publish("$JS.API.CONSUMER.DELETE."+r.o.Stream+"."+name, nil)
}

// follow handles what comes in. seen is the stream's last sequence as far as
// it is known; the log is caught up when everything up to it is handled.
func (r *reader) follow(ctx context.Context, in *inbox, down <-chan nats.Status, seen uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.batch, r.bytes, r.order = nil, 0, 0
	r.stall = Stall{After: r.o.stallAfter}
	look := time.NewTicker(r.o.stallAfter / 2)
	defer look.Stop()
	looks, looking, before := make(chan leaderLook, 1), false, uint64(0)
	idle := time.NewTimer(0)
	defer idle.Stop()
	patience := 4 * r.o.heartbeat
	silence := time.NewTimer(patience)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case s := <-down:
			return retryable("connection: %v", s)
		case <-silence.C:
			return retryable("no word from the server within %v", patience)
		case <-idle.C:
			if r.next > seen && r.o.Idle != nil {
				if err := r.o.Idle(); err != nil {
					return err
				}
			}
			idle.Reset(r.o.IdleEvery)
		case <-in.wake:
			silence.Reset(patience)
			last, err := r.drain(ctx, in)
			if err != nil {
				return err
			}
			if seen = max(seen, last); r.next > seen {
				idle.Reset(0)
			}
		case <-look.C:
			if !looking && r.next == before {
				looking = true
				go func(next, clear uint64) { looks <- r.lookAtLeader(ctx, next, clear) }(r.next, r.clear)
			}
			before = r.next
		case l := <-looks:
			looking = false
			var err error
			if seen, err = r.judge(ctx, l, in, seen); err != nil {
				return err
			}
		}
	}
}

// leaderLook is what the stream's leader said when the reader stood at next.
type leaderLook struct {
	next, due, last uint64
	err             error
}

func (r *reader) lookAtLeader(ctx context.Context, next, clear uint64) leaderLook {
	ctx, cancel := context.WithTimeout(ctx, readAPITimeout)
	defer cancel()
	l := leaderLook{next: next}
	l.due, l.last, l.err = NextDue(ctx, r.js, r.o.Stream, r.o.Filter, max(next, clear+1))
	return l
}

// judge compares the leader's word with where the reader stands. It returns the new
// value of seen; its error ends the session of a consumer that stands still.
func (r *reader) judge(ctx context.Context, l leaderLook, in *inbox, seen uint64) (uint64, error) {
	switch {
	case l.err != nil || l.next != r.next:
		return seen, nil // the leader does not answer, or the reader has moved since
	case l.due == 0:
		r.clear = max(r.clear, l.last)
		r.stall.Observe(r.next, 0, time.Now())
		return r.next - 1, nil
	}
	seen = max(seen, l.due)
	if !r.stall.Observe(r.next, l.due, time.Now()) {
		return seen, nil
	}
	// What came while this goroutine was busy elsewhere counts.
	if last, err := r.drain(ctx, in); err != nil || r.next != l.next {
		return max(seen, last), err
	}
	r.avoid = r.host
	if r.o.Stalled != nil {
		r.o.Stalled()
	}
	return seen, retryable("the consumer on server %q has stood at sequence %d for %v although the stream's leader has %d: it is made anew", r.host, r.next, r.o.stallAfter, l.due)
}
