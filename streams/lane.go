package streams

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// MaxBatch is how many messages the server takes in one atomic batch.
	MaxBatch = 1000

	// laneWindow is how many single publishes are in flight at most.
	laneWindow = 1024
	// maxRoundBytes bounds what is in flight in one round.
	maxRoundBytes = 32 << 20
)

// lane publishes rounds of messages and collects their acknowledgements. It
// belongs to one goroutine. A round's replies carry its number, so late ones of
// an earlier round are told apart and dropped.
type lane struct {
	nc      *nats.Conn
	sub     *nats.Subscription
	acks    chan *nats.Msg
	down    chan nats.Status
	inbox   string
	stream  string // expected in acknowledgements; empty: any
	timeout time.Duration
	round   uint64
}

// outcome of one message.
type outcome struct {
	seq uint64
	err error
}

func newLane(nc *nats.Conn, stream string, timeout time.Duration) (*lane, error) {
	// Late replies of a round that was given up may meet those of the next.
	return newLaneFor(nc, stream, timeout, 2*laneWindow+MaxBatch)
}

// newLaneFor makes a lane that so many replies can wait in.
func newLaneFor(nc *nats.Conn, stream string, timeout time.Duration, replies int) (*lane, error) {
	l := &lane{nc: nc, inbox: nc.NewInbox(), stream: stream, timeout: timeout, acks: make(chan *nats.Msg, replies)}
	sub, err := nc.ChanSubscribe(l.inbox+".*.*", l.acks)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	l.sub = sub
	l.down = nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	return l, nil
}

func (l *lane) close() {
	_ = l.sub.Unsubscribe()
	l.nc.RemoveStatusListener(l.down)
}

// begin starts a round and forgets what happened before it.
func (l *lane) begin() {
	l.round++
	for len(l.down) > 0 {
		<-l.down
	}
}

func (l *lane) reply(i int) string {
	return l.inbox + "." + strconv.FormatUint(l.round, 36) + "." + strconv.Itoa(i)
}

// next waits for a reply of this round: its index and the message.
func (l *lane) next(ctx context.Context, timer *time.Timer) (int, *nats.Msg, error) {
	prefix := l.inbox + "." + strconv.FormatUint(l.round, 36) + "."
	for {
		select {
		case msg := <-l.acks:
			if rest, ours := strings.CutPrefix(msg.Subject, prefix); ours {
				if i, err := strconv.Atoi(rest); err == nil {
					return i, msg, nil
				}
			}
		case s := <-l.down:
			return 0, nil, fmt.Errorf("%w: the connection was lost before the acknowledgement (%v)", ErrDoubt, s)
		case <-timer.C:
			return 0, nil, fmt.Errorf("%w: no acknowledgement within %v", ErrDoubt, l.timeout)
		case <-ctx.Done():
			return 0, nil, fmt.Errorf("%w: %w", ErrDoubt, ctx.Err())
		}
	}
}

// singles publishes every message by itself, pipelined, in order.
func (l *lane) singles(ctx context.Context, msgs []Msg, last nats.Header) []outcome {
	out := make([]outcome, len(msgs))
	l.begin()
	timer := time.NewTimer(l.timeout)
	defer timer.Stop()
	settled := make([]bool, len(msgs))
	fail := func(from int, err error) []outcome {
		for i := range msgs {
			switch {
			case settled[i]:
			case i < from: // handed to the connection
				out[i].err = fmt.Errorf("%w: %v", ErrDoubt, err)
			default:
				out[i].err = fmt.Errorf("%w: not sent: %v", ErrRefused, err)
			}
		}
		return out
	}
	sent, done := 0, 0
	for done < len(msgs) {
		for sent < len(msgs) && sent-done < laneWindow {
			h := msgs[sent].Header
			if sent == len(msgs)-1 && last != nil {
				h = merge(h, last)
			}
			err := l.nc.PublishMsg(&nats.Msg{Subject: msgs[sent].Subject, Reply: l.reply(sent), Header: h, Data: msgs[sent].Body})
			if err = sendError(err); errors.Is(err, ErrRefused) {
				return fail(sent, err)
			} else if err != nil {
				return fail(sent+1, err)
			}
			sent++
		}
		i, msg, err := l.next(ctx, timer)
		if err != nil {
			return fail(sent, err)
		}
		if i < 0 || i >= sent || settled[i] {
			continue
		}
		a, err := readAck(msg, l.stream)
		out[i], settled[i] = outcome{a.Seq, err}, true
		done++
	}
	return out
}

// neverSent are the errors of a publish that come before anything is written.
var neverSent = []error{
	nats.ErrReconnectBufExceeded, nats.ErrConnectionClosed, nats.ErrConnectionDraining,
	nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrHeadersNotSupported, nats.ErrInvalidConnection,
}

func sendError(err error) error {
	if err == nil {
		return nil
	}
	for _, e := range neverSent {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	return fmt.Errorf("%w: %w", ErrDoubt, err)
}

// merge gives a header with the entries of both; neither is changed.
func merge(a, b map[string][]string) nats.Header {
	out := make(nats.Header, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}
