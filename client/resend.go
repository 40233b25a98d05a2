package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/events"
)

const (
	// resendShare sets how long the client waits before it sends the request again: a quarter
	// of the time-out.
	resendShare = 4
	// maxSends is the maximum number of times that one request is sent.
	maxSends = 4
	// secondaryTimeout is the time-out for a connection to one other server.
	secondaryTimeout = 2 * time.Second
	// secondaryRetryPause is the pause after a failed connection to the other servers.
	secondaryRetryPause = time.Second

	// Refusals of a stopping admitter, and of one that could not record its decision.
	codeStopping    = "stopping"
	codeUnavailable = "audit_unavailable"
)

// RequestSender sends a request and, without an answer, sends it again, alternating with a
// connection to another server of the cluster if one is known. The first answer counts. It is
// safe for concurrent use. The caller must Close it after the last request.
type RequestSender struct {
	nc      *nats.Conn
	options nats.Options // nc's; later the application may change its handlers, under a lock that is nc's own

	mu                sync.Mutex
	secondary         *nats.Conn // nil until needed
	secondaryFailedAt time.Time  // last time that no other server accepted a connection
	closed            bool
}

// NewRequestSender returns a sender over a connection that it does not own. The caller MUST NOT
// change nc's handlers meanwhile; later it may.
func NewRequestSender(nc *nats.Conn) *RequestSender { return &RequestSender{nc: nc, options: nc.Opts} }

// Request sends an admission request, and sends it again as Admit does, until there is an answer
// or the time is over: see Options.ResendAfter.
func (s *RequestSender) Request(ctx context.Context, request *nats.Msg, timeout time.Duration) (*nats.Msg, error) {
	return s.request(ctx, request, timeout, timeout/resendShare)
}

// request is Request with the wait before a request that names a tool call is sent again; it is not if the
// wait is not above zero.
func (s *RequestSender) request(ctx context.Context, request *nats.Msg, timeout, resendAfter time.Duration) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if !isRepeatable(request) {
		resendAfter = 0
	}
	copyOf := func() *nats.Msg { m := *request; return &m } // two may be under way at a time
	return s.sendUntilAnswered(ctx, copyOf, max(0, resendAfter))
}

type serverAnswer struct {
	reply *nats.Msg
	err   error
}

// sendUntilAnswered returns the first answer, or the last error. The error of an attempt that an admitter may have acted
// on, one that is lost with its connection or unanswered when ctx ends, outweighs all others and a refusal that may be
// replaced (TestAdmitWhoseConnectionIsLost). pause is the wait before the request is sent again. With zero it is sent
// again only if no admitter can have acted on it: there was none, the request was not sent, or the admitter was stopping.
func (s *RequestSender) sendUntilAnswered(ctx context.Context, request func() *nats.Msg, pause time.Duration) (*nats.Msg, error) {
	sending, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan serverAnswer, maxSends)
	sent, waiting := 0, 0
	send := func() {
		n := sent
		sent, waiting = sent+1, waiting+1
		go func() { answers <- s.attempt(sending, n, request) }()
	}
	var again <-chan time.Time
	if pause > 0 {
		t := time.NewTicker(pause)
		defer t.Stop()
		again = t.C
	}
	send()
	var refusal *nats.Msg // a refusal that a later answer may replace
	var doubt error       // of an attempt that an admitter may have acted on
	end := func(err error) (*nats.Msg, error) {
		switch {
		case doubt != nil:
			return nil, doubt
		case waiting > 0 && ctx.Err() != nil:
			return nil, ctx.Err()
		case refusal != nil:
			return refusal, nil
		}
		return nil, err
	}
	for {
		select {
		case r := <-answers:
			waiting--
			if errors.Is(r.err, nats.ErrDisconnected) || ctx.Err() != nil && errors.Is(r.err, ctx.Err()) {
				doubt = cmp.Or(doubt, r.err)
			}
			switch {
			case r.err == nil && !s.maySucceed(r.reply, pause > 0):
				return r.reply, nil
			case r.err == nil:
				refusal = r.reply
			case ctx.Err() != nil:
				return end(r.err)
			}
			switch other := s.hasOtherServers(); {
			case sent == 1 && (r.err == nil || other && maySendAgain(r.err, pause > 0)):
				send() // immediately
			case waiting > 0: // an answer to another attempt may still come
			case !other || sent == maxSends || r.err != nil && !maySendAgain(r.err, pause > 0):
				return end(r.err)
			case again == nil:
				t := time.NewTicker(secondaryRetryPause)
				defer t.Stop()
				again = t.C
			}
		case <-again:
			if sent < maxSends {
				send()
			}
		case <-ctx.Done():
			return end(ctx.Err())
		}
	}
}

// attempt sends the request for the n-th time, from zero, and waits for the answer. ErrReconnectBufExceeded says that it
// was not sent, ErrDisconnected that an admitter may have it.
func (s *RequestSender) attempt(ctx context.Context, n int, request func() *nats.Msg) serverAnswer {
	nc := s.connectionFor(n)
	if !nc.IsConnected() && !nc.IsClosed() { // it could keep the request, and send it after the caller was told deny
		return serverAnswer{nil, nats.ErrReconnectBufExceeded}
	}
	if nc.IsClosed() {
		return serverAnswer{nil, nats.ErrConnectionClosed}
	}
	reply, err := nc.RequestMsgWithContext(ctx, request())
	if errors.Is(err, nats.ErrConnectionClosed) { // while it waited
		err = nats.ErrDisconnected
	}
	return serverAnswer{reply, err}
}

// maySendAgain reports whether the request may be sent again after an error: the error proves that no
// admitter has it, or it may be decided twice and the connection moved to another server meanwhile.
func maySendAgain(err error, twice bool) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrReconnectBufExceeded) || twice && errors.Is(err, nats.ErrDisconnected)
}

// maySucceed reports whether another admitter may decide what this one refused: it had not
// started on the request; or it could not record its decision, the request may be decided
// twice, and there is another server.
func (s *RequestSender) maySucceed(reply *nats.Msg, twice bool) bool {
	switch reply.Header.Get("Nats-Service-Error") {
	case codeStopping:
		return true
	case codeUnavailable:
		return twice && s.hasOtherServers()
	}
	return false
}

// hasOtherServers reports whether the connection knows another server than its own.
func (s *RequestSender) hasOtherServers() bool { return len(s.otherServers()) > 0 }

// otherServers lists the servers that the connection knows, without its own.
func (s *RequestSender) otherServers() (list []string) {
	own := hostOf(s.nc.ConnectedUrl())
	for _, server := range slices.Concat(s.options.Servers, s.nc.DiscoveredServers()) {
		if h := hostOf(server); h != "" && h != own {
			list = append(list, strings.TrimSpace(server))
		}
	}
	if own == "" && len(list) < 2 { // not connected: the only known server is the one that is down
		return nil
	}
	return list
}

func hostOf(server string) string {
	server = strings.TrimSpace(server)
	if server == "" {
		return ""
	}
	if !strings.Contains(server, "://") {
		server = "nats://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return ""
	}
	return u.Host
}

// connectionFor returns the connection for the n-th attempt, from zero.
func (s *RequestSender) connectionFor(n int) *nats.Conn {
	if n%2 == 0 {
		return s.nc
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.secondary != nil && s.secondary.IsConnected() && hostOf(s.secondary.ConnectedUrl()) != hostOf(s.nc.ConnectedUrl()) {
		return s.secondary
	}
	if s.closed || time.Since(s.secondaryFailedAt) < secondaryRetryPause {
		return s.nc
	}
	servers := s.otherServers()
	if len(servers) == 0 {
		return s.nc
	}
	next, err := connectLike(s.options, servers)
	if err != nil {
		s.secondaryFailedAt = time.Now()
		return s.nc
	}
	if s.secondary != nil {
		s.secondary.Close()
	}
	s.secondary = next
	return next
}

// connectLike connects to one of some servers with the options of another connection, its
// credentials and inboxes included, without its callbacks.
func connectLike(o nats.Options, servers []string) (*nats.Conn, error) {
	o.Url, o.Servers, o.Timeout = "", servers, min(o.Timeout, secondaryTimeout)
	o.ClosedCB, o.DisconnectedErrCB, o.ReconnectedCB, o.ConnectedCB = nil, nil, nil, nil
	o.DisconnectedCB, o.DiscoveredServersCB, o.LameDuckModeHandler, o.ReconnectErrCB = nil, nil, nil, nil
	o.AsyncErrorCB = func(*nats.Conn, *nats.Subscription, error) {}
	o.RetryOnFailedConnect = false
	return o.Connect()
}

// Close closes the connection to another server.
func (s *RequestSender) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.secondary != nil {
		s.secondary.Close()
	}
}

// isRepeatable reports whether a request may be decided twice: it names a tool call. The second
// decision is then a retry of the same call. A request without one is a new call each time, and
// its money is spent each time.
func isRepeatable(request *nats.Msg) bool {
	if request.Header.Get(events.HeaderToolCallID) != "" {
		return true
	}
	type named struct {
		ToolCallID string `json:"tool_call_id"`
	}
	var body struct { // each protocol has the id in one of these
		named
		Metadata named
		CallID   string `json:"callId"`
	}
	return json.Unmarshal(request.Data, &body) == nil && cmp.Or(body.ToolCallID, body.Metadata.ToolCallID, body.CallID) != ""
}
