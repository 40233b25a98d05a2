package mcpgate

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/internal/gateclient"
	"github.com/countersign-dev/countersign/internal/service/shares"
	"github.com/countersign-dev/countersign/mcp"
)

// Bounds of what callers of Serve hold.
const (
	maxSessions   = 256              // of all callers: each may be a process
	maxSeats      = 4096             // callers before a server, with sessions and without
	maxOfCaller   = 32               // sessions and requests without a session, of one caller
	maxOfSession  = 32               // requests of one session without an answer
	maxIdle       = 4                // servers that wait for the next request without a session, of one seat
	idleTime      = 30 * time.Minute // until a session ends that nothing uses
	giveWayTime   = time.Minute      // until it ends for another one, if there is no room
	sweepInterval = time.Minute
)

// Why a caller gets no session.
var (
	errBusy     = errors.New("too many sessions") // as many as the caller may have
	errStopping = errors.New("the gate is stopping")
)

// seat is one caller's place before one server: its gate, the definitions that it accepts, its sessions.
// Nothing of it is another caller's.
type seat struct {
	upstream  Upstream
	user      string
	gate      *Gate
	catalogue *catalogue
	peer      atomic.Pointer[gateclient.Peer] // with the caller's newest token

	// The rest is the server's, under its mutex.
	used     time.Time
	sessions int // and requests without a session
	idle     []*conn
}

// session is a client's session with a server, from its initialize on.
type session struct {
	id   string
	seat *seat
	conn *conn

	// Under the server's mutex.
	used     time.Time
	requests int // HTTP requests of it that are answered now
}

// conn is a connection to a server, with the relay before it.
type conn struct {
	user   string // whose it is
	relay  *relay
	router *router
	ctx    context.Context // of what is judged
	cancel context.CancelFunc
	ended  chan struct{} // closed when the server is gone
	end    func()        // ends the server
	once   sync.Once
}

// open connects to a seat's server.
func (s *server) open(t *seat, stateless bool) (*conn, error) {
	c, err := s.connect(t, stateless)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	stopping := s.stopping
	if !stopping {
		s.conns[c] = true
	}
	s.mu.Unlock()
	if stopping {
		c.close()
		return nil, errStopping
	}
	return c, nil
}

func (s *server) connect(t *seat, stateless bool) (*conn, error) {
	c := &conn{user: t.user, router: &router{log: s.log, room: s.roomOf(t)}, ended: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	known := t.catalogue // of all requests without a session
	if !stateless {
		known = known.ofSession()
	}
	if t.upstream.URL != "" {
		u := newRemote(s.ctx, t.upstream.URL, t.upstream.token, s.client, stateless, s.log)
		c.relay = newRelay(t.gate, known, s.o.Reads, c.router, u)
		c.relay.revisions = mcp.Revisions
		u.room, u.relay, u.gone = c.router.room, c.relay, sync.OnceFunc(func() { close(c.ended) })
		c.end = u.end
		return c, nil
	}
	p, err := startProcess(t.upstream.Command, s.o.Err)
	if err != nil {
		c.cancel()
		return nil, err
	}
	input := &boundedInput{w: p.stdin, most: s.input, broken: func() {
		s.log.print("a server reads no input: it is ended")
		go s.close(c)
	}}
	c.relay = newRelay(t.gate, known, s.o.Reads, c.router, input)
	c.relay.revisions = mcp.Revisions
	c.end = func() { _ = p.end() } // it has ended, whatever its code
	go func() {
		_ = readLines(p.out, c.relay.fromServer) // the server is gone
		close(c.ended)
	}()
	return c, nil
}

// roomOf is the room of a seat's caller.
func (s *server) roomOf(t *seat) room { return room{s.memory, shares.Caller{Tenant: t.user}} }

// close ends a connection and its server, and reports the calls that have no answer. Until then stop
// finds it.
func (s *server) close(c *conn) {
	c.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

func (c *conn) close() {
	c.once.Do(func() {
		c.cancel()
		c.end()
		c.relay.close()
	})
}

// isOver reports whether the server is gone.
func (c *conn) isOver() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

type seatKey struct{ user, upstream string }

// seatOf returns the caller's seat before a server, with the caller's newest token.
func (s *server) seatOf(p gateclient.Peer, u Upstream) (*seat, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, errStopping
	}
	key := seatKey{p.User(), u.Name}
	t := s.seats[key]
	if t == nil {
		if len(s.seats) >= maxSeats && !s.dropSeat() {
			return nil, errBusy
		}
		pins, err := s.o.Pins(u.Name, p.User())
		if err != nil {
			return nil, err
		}
		t = &seat{upstream: u, user: p.User()}
		t.peer.Store(&p)
		t.gate = newGate(func() (gateclient.Peer, error) { return *t.peer.Load(), nil }, u.Name, s.o.Hold, s.o.Err)
		t.gate.page = s.o.Page
		t.catalogue = newCatalogue(u.Name, pins, t.gate)
		s.seats[key] = t
	}
	t.peer.Store(&p)
	t.used = time.Now()
	return t, nil
}

// dropSeat ends the seat without sessions that nothing has used for the longest time, and reports whether there is one.
// The caller holds s.mu.
func (s *server) dropSeat() bool {
	var oldest *seat
	var key seatKey
	for k, t := range s.seats {
		if t.sessions == 0 && (oldest == nil || t.used.Before(oldest.used)) {
			oldest, key = t, k
		}
	}
	if oldest == nil {
		return false
	}
	s.closing.Go(s.removeSeat(key, oldest))
	return true
}

// removeSeat removes a seat without sessions. The caller holds s.mu, and calls end without it.
func (s *server) removeSeat(key seatKey, t *seat) (end func()) {
	delete(s.seats, key)
	var conns []func()
	for _, c := range t.idle {
		conns = append(conns, func() { s.close(c) })
	}
	t.idle = nil
	return func() {
		sideBySide(conns)
		t.gate.Close(t.upstream.Name)
	}
}

// reserve counts a session, if the caller may have one more. Many clients end without a word: if there is no room, a
// session that nothing uses ends first.
func (s *server) reserve(t *seat) error {
	for {
		s.mu.Lock()
		if s.stopping {
			s.mu.Unlock()
			return errStopping
		}
		has := s.sessionCount < maxSessions && t.sessions < maxOfCaller
		var old *session
		if has {
			s.sessionCount++
			t.sessions++
		} else {
			old = s.takeIdle(t, time.Now())
		}
		s.mu.Unlock()
		switch {
		case has:
			return nil
		case old == nil:
			return errBusy
		}
		s.end(old)
	}
}

// takeIdle removes the session that has been idle for the longest time and may give way: one of the caller's own, or,
// if the gate is full, one of a caller who has more. The caller of takeIdle holds s.mu and ends the session.
func (s *server) takeIdle(t *seat, now time.Time) *session {
	var found *session
	for _, n := range s.sessions {
		may := n.seat == t || s.sessionCount >= maxSessions && n.seat.sessions > t.sessions
		if may && n.requests == 0 && now.Sub(n.used) > giveWayTime && (found == nil || n.used.Before(found.used)) {
			found = n
		}
	}
	if found != nil {
		delete(s.sessions, found.id)
	}
	return found
}

func (s *server) release(t *seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessionCount--
	t.sessions--
	t.used = time.Now()
}

// begin makes a session. Its id cannot be guessed, and serves its own caller only.
func (s *server) begin(t *seat) (*session, error) {
	if err := s.reserve(t); err != nil {
		return nil, err
	}
	c, err := s.open(t, false)
	if err != nil {
		s.release(t)
		return nil, err
	}
	n := &session{id: rand.Text(), seat: t, conn: c, used: time.Now()}
	s.mu.Lock()
	s.sessions[n.id] = n
	s.mu.Unlock()
	go func() {
		select {
		case <-c.ended: // the server ended by itself
		case <-c.ctx.Done():
		}
		s.finish(n)
	}()
	return n, nil
}

// enter finds a caller's session and counts a request of it. leave takes it back.
func (s *server) enter(id string, t *seat) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.sessions[id]
	if n == nil || n.seat != t {
		return nil
	}
	n.requests++
	return n
}

func (s *server) leave(n *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.requests--
	n.used = time.Now()
}

// finish ends a session, once.
func (s *server) finish(n *session) {
	s.mu.Lock()
	_, there := s.sessions[n.id]
	delete(s.sessions, n.id)
	s.mu.Unlock()
	if there {
		s.end(n)
	}
}

// end ends a session that was removed.
func (s *server) end(n *session) {
	s.close(n.conn)
	s.release(n.seat)
}

// borrow gives a server for one request without a session: one that has answered another such request of
// this caller, or a new one.
func (s *server) borrow(t *seat) (*conn, error) {
	if err := s.reserve(t); err != nil {
		return nil, err
	}
	s.mu.Lock()
	for len(t.idle) > 0 {
		c := t.idle[len(t.idle)-1]
		t.idle = t.idle[:len(t.idle)-1]
		if !c.isOver() {
			s.mu.Unlock()
			return c, nil
		}
		go s.close(c)
	}
	s.mu.Unlock()
	c, err := s.open(t, true)
	if err != nil {
		s.release(t)
	}
	return c, err
}

// releaseConn keeps a server that has answered for the next request, and ends any other.
func (s *server) releaseConn(t *seat, c *conn, answered bool) {
	s.mu.Lock()
	keep := answered && t.upstream.URL == "" && !s.stopping && len(t.idle) < maxIdle && len(s.conns) <= maxSessions && !c.isOver()
	if keep {
		t.idle = append(t.idle, c)
	}
	s.mu.Unlock()
	if !keep {
		s.close(c)
	}
	s.release(t)
}

// sweep ends, in the background, what nothing has used for a while.
func (s *server) sweep(now time.Time) {
	var first, then []func()
	s.mu.Lock()
	for _, n := range s.sessions {
		if n.requests == 0 && now.Sub(n.used) > idleTime {
			first = append(first, func() { s.finish(n) })
		}
	}
	for key, t := range s.seats {
		if t.sessions == 0 && now.Sub(t.used) > idleTime {
			then = append(then, s.removeSeat(key, t))
		}
	}
	s.mu.Unlock()
	if len(first)+len(then) > 0 {
		s.closing.Go(func() {
			sideBySide(first)
			sideBySide(then)
		})
	}
}

// maxClosing is how many ends are waited for at once: each takes seconds if a server does not end.
const maxClosing = 64

// sideBySide does all, and returns once all is done.
func sideBySide(all []func()) {
	var g errgroup.Group
	g.SetLimit(maxClosing)
	for _, one := range all {
		g.Go(func() error {
			one()
			return nil
		})
	}
	_ = g.Wait() // there are no errors
}

// stop ends all sessions and seats, side by side, each in bounded time.
func (s *server) stop() {
	var first, then []func()
	s.mu.Lock()
	s.stopping = true
	for c := range s.conns {
		first = append(first, func() { s.close(c) })
	}
	for _, t := range s.seats {
		then = append(then, func() { t.gate.Close(t.upstream.Name) })
	}
	s.seats, s.sessions = map[seatKey]*seat{}, map[string]*session{}
	s.mu.Unlock()
	sideBySide(first)
	sideBySide(then)
	s.closing.Wait()
}
