package streams

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/events"
)

// inbox passes messages from the connection's goroutine to the reader's goroutine, all waiting
// ones at once.
type inbox struct {
	mu   sync.Mutex
	msgs []*nats.Msg
	wake chan struct{}
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// put adds a message. Of heartbeats without a message between them only the last one is kept: the server sends
// them on while the reader's handle does not return.
func (in *inbox) put(m *nats.Msg) {
	in.mu.Lock()
	if last := len(in.msgs) - 1; last >= 0 && isHeartbeat(m) && isHeartbeat(in.msgs[last]) {
		in.msgs[last] = m
	} else {
		in.msgs = append(in.msgs, m)
	}
	in.mu.Unlock()
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// isHeartbeat reports whether a message is the server's and requests no answer by its reply subject. A
// message of the log has one (acceptMessage).
func isHeartbeat(m *nats.Msg) bool {
	return m.Reply == "" && len(m.Header[headerStatus]) > 0 && m.Header[headerStatus][0] == "100"
}

// isWaiting reports whether messages wait.
func (in *inbox) isWaiting() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.msgs) > 0
}

// swap returns the waiting messages and replaces them by an empty slice.
func (in *inbox) swap(empty []*nats.Msg) []*nats.Msg {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := in.msgs
	in.msgs = empty[:0]
	return out
}

// drainInbox handles all waiting messages. It returns the stream's last sequence according to
// them.
func (r *logReader) drainInbox(ctx context.Context, in *inbox) (seen uint64, err error) {
	var spare []*nats.Msg
	for {
		msgs := in.swap(spare)
		if len(msgs) == 0 {
			return seen, r.flushBatch()
		}
		for i, m := range msgs {
			if r.batch == nil {
				r.batch = make([]events.LogMessage, 0, min(len(msgs)-i, r.options.MaxBatch))
			}
			last, err := r.acceptMessage(m)
			if err != nil {
				return seen, err
			}
			seen = max(seen, last)
			if ctx.Err() != nil {
				return seen, ctx.Err()
			}
		}
		clear(msgs)
		spare = msgs
	}
}

func (r *logReader) flushBatch() error {
	if len(r.batch) == 0 {
		return nil
	}
	batch := r.batch
	r.batch, r.bytes = nil, 0
	// next advances only after handle: a session that ends before that begins at the same
	// sequence again.
	if err := r.handle(batch); err != nil {
		return err
	}
	r.next = batch[len(batch)-1].Seq + 1
	return nil
}

// acceptMessage handles one delivery. A message of the log is recognised by its reply subject; its
// headers, including the status line, are the publisher's and are ignored here. Every other
// message is the server's flow control.
func (r *logReader) acceptMessage(m *nats.Msg) (seen uint64, err error) {
	d, isLog := parseDelivery(m.Reply)
	if !isLog {
		return 0, r.answerFlowControl(m)
	}
	want := r.next
	if n := len(r.batch); n > 0 {
		want = r.batch[n-1].Seq + 1
	}
	r.order++
	switch {
	case d.order != r.order:
		return 0, retryableError("delivery %d was lost on the way", r.order)
	case d.seq < want:
		return 0, &GapError{Stream: r.options.Stream, Want: want, Got: d.seq}
	case d.seq > want && len(r.options.Filter) == 0:
		if err := r.handleGap(want, d.seq); err != nil {
			return 0, err
		}
	}
	message := events.LogMessage{Seq: d.seq, Subject: m.Subject, Time: time.Unix(0, d.time).UTC(), Header: m.Header, Body: m.Data}
	r.batch = append(r.batch, message)
	r.bytes += message.Size()
	if len(r.batch) >= r.options.MaxBatch || r.bytes >= r.options.MaxBytes {
		err = r.flushBatch()
	}
	return d.seq + d.pending, err
}

const (
	headerStatus  = "Status"
	headerStalled = "Nats-Consumer-Stalled"
)

// answerFlowControl answers a flow control request, which tells the server that everything before
// it was handled.
func (r *logReader) answerFlowControl(m *nats.Msg) error {
	if len(m.Header[headerStatus]) == 0 {
		return nil
	}
	if m.Header[headerStatus][0] != "100" {
		return retryableError("the server ended the consumer: %s %s", m.Header[headerStatus][0], m.Header.Get("Description"))
	}
	reply := m.Reply
	if reply == "" {
		reply = m.Header.Get(headerStalled)
	}
	if reply == "" {
		return nil // heartbeat
	}
	if err := r.flushBatch(); err != nil {
		return err
	}
	if err := r.nc.Publish(reply, nil); err != nil {
		return retryableError("flow control: %w", err)
	}
	return nil
}

// delivery is what the server states about a message in its reply subject.
type delivery struct {
	seq, order uint64 // in the stream; in the consumer
	time       int64  // Unix nanoseconds
	pending    uint64 // messages after it
}

// parseDelivery parses "$JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<time>.<pending>", or
// its longer form, which has domain and account before the stream and a token after pending.
func parseDelivery(reply string) (delivery, bool) {
	if !strings.HasPrefix(reply, "$JS.ACK.") {
		return delivery{}, false
	}
	rest, skip := reply, 5
	switch n := strings.Count(reply, ".") + 1; {
	case n == 9:
	case n >= 11:
		skip = 7
	default:
		return delivery{}, false
	}
	var tokens [4]string
	for range skip {
		_, rest, _ = strings.Cut(rest, ".")
	}
	for i := range tokens {
		tokens[i], rest, _ = strings.Cut(rest, ".")
	}
	var d delivery
	var errs [4]error
	d.seq, errs[0] = strconv.ParseUint(tokens[0], 10, 64)
	d.order, errs[1] = strconv.ParseUint(tokens[1], 10, 64)
	d.time, errs[2] = strconv.ParseInt(tokens[2], 10, 64)
	d.pending, errs[3] = strconv.ParseUint(tokens[3], 10, 64)
	for _, err := range errs {
		if err != nil {
			return delivery{}, false
		}
	}
	return d, true
}
