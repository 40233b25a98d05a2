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
	spareTimeout = 2 * time.Second
	// spareAgain is the pause after no other server could be connected to.
	spareAgain = time.Second

	// Refusals of an admitter that is being stopped, and of one that could not
	// record its decision.
	codeStopping    = "stopping"
	codeUnavailable = "audit_unavailable"
)

// asker sends a request and, where no answer comes, sends it again: by turns over
// a connection to another server of the cluster, if one is known. The first answer
// counts. It is safe for concurrent use.
type asker struct {
	nc *nats.Conn

	mu     sync.Mutex
	spare  *nats.Conn // nil until it is needed
	failed time.Time  // when no other server could be connected to last
	closed bool
}

type answered struct {
	reply *nats.Msg
	err   error
}

// ask returns the first answer, or the last error. pause is how long an answer is
// waited for until the request is sent again; zero: it is sent again only where no
// admitter can have acted on it, because it found none, did not leave, or came to one
// that was stopping.
func (a *asker) ask(ctx context.Context, request func() *nats.Msg, pause time.Duration) (*nats.Msg, error) {
	sending, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answered, maxAsks)
	sent, waiting := 0, 0
	send := func() {
		n := sent
		sent, waiting = sent+1, waiting+1
		go func() {
			reply, err := a.connection(n).RequestMsgWithContext(sending, request())
			answers <- answered{reply, err}
		}()
	}
	var again <-chan time.Time
	wait := pause
	if pause > 0 {
		t := time.NewTicker(pause)
		defer t.Stop()
		again = t.C
	} else {
		wait = spareAgain
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
				return last(refusal, r.err)
			}
			switch other := a.others(); {
			case sent < maxAsks && sent == 1 && (r.err == nil || other && unsent(r.err)):
				send() // at once
			case waiting > 0:
			case !other || sent == maxAsks || !unsent(r.err) && r.err != nil:
				return last(refusal, r.err)
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
			return last(refusal, ctx.Err())
		}
	}
}

func last(refusal *nats.Msg, err error) (*nats.Msg, error) {
	if refusal != nil {
		return refusal, nil
	}
	return nil, err
}

// unsent reports whether an error says that no admitter has the request.
func unsent(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrConnectionReconnecting) ||
		errors.Is(err, nats.ErrDisconnected)
}

// maySucceed reports whether another admitter may decide what this one refused: it
// had not begun with the request, or it could not record its decision, the request
// may be decided twice, and there is another server.
func (a *asker) maySucceed(reply *nats.Msg, twice bool) bool {
	switch reply.Header.Get("Nats-Service-Error") {
	case codeStopping:
		return true
	case codeUnavailable:
		return twice && a.others()
	}
	return false
}

// others reports whether another server is known than the one of the connection.
func (a *asker) others() bool { return len(a.otherServers()) > 0 }

// otherServers lists the servers that the connection knows, without its own.
func (a *asker) otherServers() (list []string) {
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

// connection is what the n-th sending goes over, from zero.
func (a *asker) connection(n int) *nats.Conn {
	if n%2 == 0 {
		return a.nc
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spare != nil && a.spare.IsConnected() && hostOf(a.spare.ConnectedUrl()) != hostOf(a.nc.ConnectedUrl()) {
		return a.spare
	}
	if a.closed || time.Since(a.failed) < spareAgain {
		return a.nc
	}
	servers := a.otherServers()
	if len(servers) == 0 {
		return a.nc
	}
	next, err := connectLike(a.nc, servers)
	if err != nil {
		a.failed = time.Now()
		return a.nc
	}
	if a.spare != nil {
		a.spare.Close()
	}
	a.spare = next
	return next
}

// connectLike connects to one of some servers as a connection was made, with its
// credentials and inboxes and without what its owner is told of it.
func connectLike(nc *nats.Conn, servers []string) (*nats.Conn, error) {
	o := nc.Opts
	o.Url, o.Servers, o.Timeout = "", servers, min(o.Timeout, spareTimeout)
	o.ClosedCB, o.DisconnectedErrCB, o.ReconnectedCB, o.ConnectedCB = nil, nil, nil, nil
	o.DisconnectedCB, o.DiscoveredServersCB, o.LameDuckModeHandler, o.ReconnectErrCB = nil, nil, nil, nil
	o.AsyncErrorCB = func(*nats.Conn, *nats.Subscription, error) {}
	o.RetryOnFailedConnect = false
	return o.Connect()
}

// close closes the connection to another server.
func (a *asker) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.spare != nil {
		a.spare.Close()
	}
}

// repeatable reports whether a request may be decided twice: it names a tool call.
// The second decision is then a retry of the same call; a request without one is a
// call of its own each time, and money that it spends is spent each time.
func repeatable(call Call) bool {
	if call.ToolCallID != "" {
		return true
	}
	var body struct {
		ToolCallID string `json:"tool_call_id"`
	}
	return json.Unmarshal(call.Body, &body) == nil && body.ToolCallID != ""
}
