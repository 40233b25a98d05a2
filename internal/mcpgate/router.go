package mcpgate

import (
	"errors"
	"slices"
	"sync"

	"github.com/countersign-dev/countersign/mcp"
)

// router gives what a relay says to its client to the HTTP answers on which the client waits. It is the
// io.Writer of the relay's client side.
type router struct {
	log *logger

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
}

// routed is a message on its way to the client.
type routed struct {
	line  []byte
	final bool // it answers the request
}

func newStream(m mcp.Message) *stream {
	return &stream{m.ID.Key(), m.ProgressToken(), make(chan routed, 16), make(chan struct{}), make(chan struct{})}
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

// Write gives one message to its stream. It waits for a slow reader, for as long as that reads at all.
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
	select {
	case s.lines <- routed{line, m.Method == ""}:
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
