package mcpgate

import (
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/countersign-dev/countersign/internal/service/shares"
	"github.com/countersign-dev/countersign/mcp"
)

// router gives what a relay says to its client to the HTTP answers on which the client waits. It is the
// io.Writer of the relay's client side.
type router struct {
	log  *logger
	room room

	mu     sync.Mutex
	posts  []*stream // requests without an answer, the oldest first
	events *stream   // of the client's GET, if there is one
}

// stream is one HTTP answer.
type stream struct {
	key   string // of the request's id; "" for a GET
	token string // of its progress
	lines chan routed
	gone  chan struct{} // closed when nothing reads lines any more
	over  chan struct{} // closed when there is no answer to come: the client has cancelled
	held  int64         // bytes of what is to be written; of the router's mu
}

// room is what a caller of Serve may hold of the bytes that all callers share.
type room struct {
	all *shares.Shares
	of  shares.Caller
}

// heldMemory bounds the bytes of all long bodies and answers that are held at once.
const heldMemory = 256 << 20

// read is in, which takes what is read from the room.
func (r room) read(in io.Reader) *shares.Reader {
	return &shares.Reader{Reader: in, Shares: r.all, Caller: r.of}
}

// routed is a message on its way to the client.
type routed struct {
	line  []byte
	final bool // it answers the request
}

// size are the bytes that count in the room.
func (m routed) size() int64 { return max(0, int64(len(m.line))-shares.Free) }

func newStream(m mcp.Message) *stream {
	return &stream{key: m.ID.Key(), token: m.ProgressToken(), lines: make(chan routed, 16), gone: make(chan struct{}), over: make(chan struct{})}
}

// Why a request of a client is not taken.
var (
	errUsedID = errors.New("the id is that of a request without an answer")
	errFull   = errors.New("too many requests of this session have no answer: wait for some")
)

// add registers the answer of a request. The error is errUsedID or errFull.
func (r *router) add(m mcp.Message) (*stream, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.find(m.ID.Key()) != nil:
		return nil, errUsedID
	case len(r.posts) >= maxOfSession:
		return nil, errFull
	}
	s := newStream(m)
	r.posts = append(r.posts, s)
	return s, nil
}

// listen registers the client's GET; nil if there is one.
func (r *router) listen() *stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events != nil {
		return nil
	}
	r.events = newStream(mcp.Message{})
	return r.events
}

// remove ends a stream. Its reader calls it.
func (r *router) remove(s *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(s.gone)
	r.room.all.Release(r.room.of, s.held)
	if r.events == s {
		r.events = nil
	}
	r.posts = slices.DeleteFunc(r.posts, func(p *stream) bool { return p == s })
}

// cancel ends the answer of a request that the client has cancelled: there will be none.
func (r *router) cancel(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.find(key); s != nil {
		close(s.over)
		r.posts = slices.DeleteFunc(r.posts, func(p *stream) bool { return p == s })
	}
}

func (r *router) find(key string) *stream {
	i := slices.IndexFunc(r.posts, func(s *stream) bool { return s.key == key })
	if i < 0 {
		return nil
	}
	return r.posts[i]
}

// hold takes the room for a message of a stream, and reports whether there was some. written gives it back, or remove.
func (r *router) hold(s *stream, m routed) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-s.gone:
		return true // it is not written
	default:
	}
	n := m.size()
	if n > 0 && !r.room.all.Take(r.room.of, n) {
		return false
	}
	s.held += n
	return true
}

// written reports that a message of a stream was written. The stream's reader calls it, before remove.
func (r *router) written(s *stream, m routed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.held -= m.size()
	r.room.all.Release(r.room.of, m.size())
}

// errNoRoom is why a long request is not taken, and noRoomForAnswer what its client gets in place of a long answer.
var errNoRoom = errors.New("too many bytes of requests and answers are held for this caller")

const noRoomForAnswer = "the gate has no room for the server's answer: the client does not read the others"

// Write gives one message to its stream. It waits for a slow reader, for as long as that reads at all. An answer for which
// there is no room becomes an error; another message is dropped.
func (r *router) Write(line []byte) (int, error) {
	m, err := mcp.Parse(line)
	if err != nil {
		return 0, err
	}
	s := r.route(m)
	if s == nil {
		r.log.note("a message has no client that waits for it: dropped")
		return len(line), nil
	}
	message := routed{line, m.Method == ""}
	if !r.hold(s, message) {
		r.log.note(errNoRoom.Error())
		if !message.final {
			return len(line), nil
		}
		if message.line, err = mcp.Failure(m.ID, noRoomForAnswer); err != nil {
			return 0, err
		}
	}
	select {
	case s.lines <- message:
	case <-s.gone:
	case <-s.over:
	}
	return len(line), nil
}

// route finds the stream for a message: for an answer that of its request, for progress that of the
// request with the token, for anything else the GET, or the newest request.
func (r *router) route(m mcp.Message) *stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.Method == "" {
		return r.find(m.ID.Key())
	}
	if token := m.ProgressToken(); token != "" && m.IsNotification() {
		if i := slices.IndexFunc(r.posts, func(s *stream) bool { return s.token == token }); i >= 0 {
			return r.posts[i]
		}
	}
	if r.events != nil || len(r.posts) == 0 {
		return r.events
	}
	return r.posts[len(r.posts)-1]
}
