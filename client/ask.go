package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// askAgainShare of the time-out is how long an answer is waited for until the
	// request is sent again: a quarter.
	askAgainShare = 4
	// maxAsks is how often one request is sent at most.
	maxAsks = 4
	// spareTimeout is for a connection to one other server.
	secondaryTimeout = 2 * time.Second
	// spareAgain is the pause after no other server could be connected to.
	secondaryRetryPause = time.Second

	// Refusals of an admitter that is being stopped, and of one that could not
	// record its decision.
	codeStopping    = "stopping"
	codeUnavailable = "audit_unavailable"
)

// requestSender sends a request and, where no answer comes, sends it again: by turns over
// a connection to another server of the cluster, if one is known. The first answer
// counts. It is safe for concurrent use.
type requestSender struct {
	nc *nats.Conn

	mu                sync.Mutex
	secondary         *nats.Conn // nil until it is needed
	secondaryFailedAt time.Time  // when no other server could be connected to last
	closed            bool
}

type serverAnswer struct {
	reply *nats.Msg
	err   error
}

// sendUntilAnswered returns the first answer, or the last error. pause is how long an answer is
// waited for until the request is sent again; zero: it is sent again only where no
// admitter can have acted on it, because it found none, did not leave, or came to one
// that was stopping.
func (a *requestSender) sendUntilAnswered(ctx context.Context, request func() *nats.Msg, pause time.Duration) (*nats.Msg, error) {
	sending, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan serverAnswer, maxAsks)
	sent, waiting := 0, 0
	send := func() {
		n := sent
		sent, waiting = sent+1, waiting+1
		go func() {
			reply, err := a.connectionFor(n).RequestMsgWithContext(sending, request())
			answers <- serverAnswer{reply, err}
		}()
	}
	var again <-chan time.Time
	wait := pause
	if pause > 0 {
		t := time.NewTicker(pause)
		defer t.Stop()
		again = t.C
	} else {
		wait = secondaryRetryPause
	}
	send()
	var refusal *nats.Msg // that may not be the last word
	for {
		select {
		case r := <-answers:
			waiting--
			switch {
			case r.err == nil && !a.maySucceed(r.reply, pause > 0):
				return r.reply, nil
			case r.err == nil:
				refusal = r.reply
			case ctx.Err() != nil:
				return refusalOrError(refusal, r.err)
			}
			switch other := a.hasOtherServers(); {
			case sent < maxAsks && sent == 1 && (r.err == nil || other && isUnsent(r.err)):
				send() // at once
			case waiting > 0:
			case !other || sent == maxAsks || !isUnsent(r.err) && r.err != nil:
				return refusalOrError(refusal, r.err)
			case again == nil:
				t := time.NewTicker(wait)
				defer t.Stop()
				again = t.C
			}
		case <-again:
			if sent < maxAsks {
				send()
			}
		case <-ctx.Done():
			return refusalOrError(refusal, ctx.Err())
		}
	}
}

func refusalOrError(refusal *nats.Msg, err error) (*nats.Msg, error) {
	if refusal != nil {
		return refusal, nil
	}
	return nil, err
}

// isUnsent reports whether an error says that no admitter has the request.
func isUnsent(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrConnectionReconnecting) ||
		errors.Is(err, nats.ErrDisconnected)
}

// maySucceed reports whether another admitter may decide what this one refused: it
// had not begun with the request, or it could not record its decision, the request
// may be decided twice, and there is another server.
func (a *requestSender) maySucceed(reply *nats.Msg, twice bool) bool {
	switch reply.Header.Get("Nats-Service-Error") {
	case codeStopping:
		return true
	case codeUnavailable:
		return twice && a.hasOtherServers()
	}
	return false
}

// hasOtherServers reports whether another server is known than the one of the connection.
func (a *requestSender) hasOtherServers() bool { return len(a.otherServers()) > 0 }

// otherServers lists the servers that the connection knows, without its own.
func (a *requestSender) otherServers() (list []string) {
	own := hostOf(a.nc.ConnectedUrl())
	for _, s := range append(append([]string{}, a.nc.Opts.Servers...), a.nc.DiscoveredServers()...) {
		if h := hostOf(s); h != "" && h != own {
			list = append(list, strings.TrimSpace(s))
		}
	}
	if own == "" && len(list) < 2 { // not connected: one server is the one that is away
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

// connectionFor is what the n-th sending goes over, from zero.
func (a *requestSender) connectionFor(n int) *nats.Conn {
	if n%2 == 0 {
		return a.nc
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.secondary != nil && a.secondary.IsConnected() && hostOf(a.secondary.ConnectedUrl()) != hostOf(a.nc.ConnectedUrl()) {
		return a.secondary
	}
	if a.closed || time.Since(a.secondaryFailedAt) < secondaryRetryPause {
		return a.nc
	}
	servers := a.otherServers()
	if len(servers) == 0 {
		return a.nc
	}
	next, err := connectLike(a.nc, servers)
	if err != nil {
		a.secondaryFailedAt = time.Now()
		return a.nc
	}
	if a.secondary != nil {
		a.secondary.Close()
	}
	a.secondary = next
	return next
}

// connectLike connects to one of some servers as a connection was made, with its
// credentials and inboxes and without what its owner is told of it.
func connectLike(nc *nats.Conn, servers []string) (*nats.Conn, error) {
	o := nc.Opts
	o.Url, o.Servers, o.Timeout = "", servers, min(o.Timeout, secondaryTimeout)
	o.ClosedCB, o.DisconnectedErrCB, o.ReconnectedCB, o.ConnectedCB = nil, nil, nil, nil
	o.DisconnectedCB, o.DiscoveredServersCB, o.LameDuckModeHandler, o.ReconnectErrCB = nil, nil, nil, nil
	o.AsyncErrorCB = func(*nats.Conn, *nats.Subscription, error) {}
	o.RetryOnFailedConnect = false
	return o.Connect()
}

// close closes the connection to another server.
func (a *requestSender) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.secondary != nil {
		a.secondary.Close()
	}
}

// isRepeatable reports whether a request may be decided twice: it names a tool call.
// The second decision is then a retry of the same call; a request without one is a
// call of its own each time, and money that it spends is spent each time.
func isRepeatable(call Call) bool {
	if call.ToolCallID != "" {
		return true
	}
	var body struct {
		ToolCallID string `json:"tool_call_id"`
	}
	return json.Unmarshal(call.Body, &body) == nil && body.ToolCallID != ""
}
