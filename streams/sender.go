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
	// MaxBatch is the greatest number of messages in one atomic batch of the server.
	MaxBatch = 1000

	// senderWindow is the greatest number of single publishes in flight.
	senderWindow = 1024
	// maxRoundBytes bounds the bytes in flight in one round.
	maxRoundBytes = 32 << 20
)

// sender publishes rounds of messages and collects their acknowledgements. It belongs to one
// goroutine. The reply subjects of a round contain its number, so that late replies of an
// earlier round can be dropped.
type sender struct {
	nc      *nats.Conn
	sub     *nats.Subscription
	acks    chan *nats.Msg
	down    chan nats.Status
	inbox   string
	stream  string // expected in acknowledgements; empty: any
	timeout time.Duration
	round   uint64
}

// publishOutcome is the outcome of one message.
type publishOutcome struct {
	seq uint64
	err error
}

func newSender(nc *nats.Conn, stream string, timeout time.Duration) (*sender, error) {
	// Late replies of an abandoned round may wait together with those of the next one.
	return newSenderFor(nc, stream, timeout, 2*senderWindow+MaxBatch)
}

// newSenderFor makes a sender with a buffer for the given number of replies.
func newSenderFor(nc *nats.Conn, stream string, timeout time.Duration, replies int) (*sender, error) {
	s := &sender{nc: nc, inbox: nc.NewInbox(), stream: stream, timeout: timeout, acks: make(chan *nats.Msg, replies)}
	sub, err := nc.ChanSubscribe(s.inbox+".*.*", s.acks)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	s.sub = sub
	s.down = nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	return s, nil
}

func (s *sender) close() {
	_ = s.sub.Unsubscribe()
	s.nc.RemoveStatusListener(s.down)
}

// startRound starts a round and drops status changes from before it.
func (s *sender) startRound() {
	s.round++
	for len(s.down) > 0 {
		<-s.down
	}
}

func (s *sender) replySubject(i int) string {
	return s.inbox + "." + strconv.FormatUint(s.round, 36) + "." + strconv.Itoa(i)
}

// nextReply waits for a reply of this round and returns its index and the message.
func (s *sender) nextReply(ctx context.Context, timer *time.Timer) (int, *nats.Msg, error) {
	prefix := s.inbox + "." + strconv.FormatUint(s.round, 36) + "."
	for {
		select {
		case msg := <-s.acks:
			if rest, ours := strings.CutPrefix(msg.Subject, prefix); ours {
				if i, err := strconv.Atoi(rest); err == nil {
					return i, msg, nil
				}
			}
		case s := <-s.down:
			return 0, nil, fmt.Errorf("%w: the connection was lost before the acknowledgement (%v)", ErrAmbiguous, s)
		case <-timer.C:
			return 0, nil, fmt.Errorf("%w: no acknowledgement within %v", ErrAmbiguous, s.timeout)
		case <-ctx.Done():
			return 0, nil, fmt.Errorf("%w: %w", ErrAmbiguous, ctx.Err())
		}
	}
}

// publishEach publishes every message singly, pipelined, in order. The last one gets the headers
// in last.
func (s *sender) publishEach(ctx context.Context, msgs []Msg, last nats.Header) []publishOutcome {
	out := make([]publishOutcome, len(msgs))
	s.startRound()
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	settled := make([]bool, len(msgs))
	fail := func(from int, err error) []publishOutcome {
		for i := range msgs {
			switch {
			case settled[i]:
			case i < from: // handed to the connection
				out[i].err = fmt.Errorf("%w: %v", ErrAmbiguous, err) //nolint:errorlint // the cause is text: it must not count as another outcome
			default:
				out[i].err = fmt.Errorf("%w: not sent: %v", ErrRefused, err) //nolint:errorlint // as above
			}
		}
		return out
	}
	if !s.nc.IsConnected() { // the connection of an application could keep the messages and send them later
		return fail(0, nats.ErrDisconnected)
	}
	sent, done := 0, 0
	for done < len(msgs) {
		for sent < len(msgs) && sent-done < senderWindow {
			h := msgs[sent].Header
			if sent == len(msgs)-1 && last != nil {
				h = mergeHeaders(h, last)
			}
			err := s.nc.PublishMsg(&nats.Msg{Subject: msgs[sent].Subject, Reply: s.replySubject(sent), Header: h, Data: msgs[sent].Body})
			if err = sendError(err); errors.Is(err, ErrRefused) {
				return fail(sent, err)
			} else if err != nil {
				return fail(sent+1, err)
			}
			sent++
		}
		i, msg, err := s.nextReply(ctx, timer)
		if err != nil {
			return fail(sent, err)
		}
		if i < 0 || i >= sent || settled[i] {
			continue
		}
		a, err := readAck(msg, s.stream)
		out[i], settled[i] = publishOutcome{a.Seq, err}, true
		done++
	}
	return out
}

// neverSent are the errors of a publish that occur before anything is written.
var neverSent = []error{
	nats.ErrReconnectBufExceeded, nats.ErrConnectionClosed, nats.ErrConnectionDraining,
	nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrBadHeaderMsg, nats.ErrHeadersNotSupported, nats.ErrInvalidConnection,
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
	return fmt.Errorf("%w: %w", ErrAmbiguous, err)
}

// mergeHeaders returns a header with the entries of both and changes neither.
func mergeHeaders(a, b map[string][]string) nats.Header {
	out := make(nats.Header, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}
