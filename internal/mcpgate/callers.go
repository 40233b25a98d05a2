package mcpgate

import (
	"context"
	"errors"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/gateclient"
)

// Bounds of looking up callers.
const (
	maxToken    = 8 << 10
	trustTime   = 10 * time.Second // until a token is looked up again
	refuseTime  = 2 * time.Second  // until a token that was refused is
	maxCallers  = 4096             // tokens that are remembered
	maxLookups  = 32               // at once, of tokens that were accepted before; as many of all others
	maxOfRemote = 8                // of those others, from one remote address
)

// callers knows whose tokens the gateway accepts. A lookup takes a place; those of tokens that were
// accepted before have places of their own, so that invented tokens keep no known caller waiting. It is
// safe for concurrent use.
type callers struct {
	identify func(context.Context, gateclient.Peer) (gateclient.Peer, error)
	now      func() time.Time

	mu       sync.Mutex
	accepted map[gateclient.Peer]callerEntry // by the peer with the token and without a user
	refused  map[gateclient.Peer]refusedToken
	running  map[gateclient.Peer]*lookup
	places   map[string]int // taken ones: of knownPlaces, otherPlaces, and of remote addresses
}

// Keys of callers.places that are no addresses.
const knownPlaces, otherPlaces = "known", "other"

// callerEntry is a token that the gateway accepted.
type callerEntry struct {
	peer  gateclient.Peer
	until time.Time
}

// refusedToken is a token that the gateway refused, and why.
type refusedToken struct {
	err   error
	until time.Time
}

// lookup is a question to the gateway. All requests with its token wait for its answer.
type lookup struct {
	done chan struct{} // closed once peer and err are set
	peer gateclient.Peer
	err  error
}

func newCallers() *callers {
	return &callers{
		identify: func(ctx context.Context, p gateclient.Peer) (gateclient.Peer, error) {
			return gateclient.NewAsker(p).Identify(ctx)
		},
		now: time.Now, accepted: map[gateclient.Peer]callerEntry{}, refused: map[gateclient.Peer]refusedToken{},
		running: map[gateclient.Peer]*lookup{}, places: map[string]int{},
	}
}

// errUnavailable reports that the gateway could not be asked about a token.
var errUnavailable = errors.New("the gateway does not answer")

// tokenForm is that of the gateway's own tokens and of JWTs. It accepts no other.
var tokenForm = regexp.MustCompile(`^(cst_[0-9a-f]{20}_[A-Za-z0-9_-]{43}|[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+)$`)

// bearerToken is the token of a request; ok is false if there is none that could be accepted.
func bearerToken(h http.Header) (token string, ok bool) {
	values := h.Values("Authorization")
	if len(values) != 1 || len(values[0]) > maxToken {
		return "", false
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "Bearer") && tokenForm.MatchString(token)
}

// signIn returns the caller of a request, as the gateway knows its token. The error is
// gateclient.ErrCaller, which ErrRole is too, or errUnavailable.
func (s *server) signIn(r *http.Request) (gateclient.Peer, error) {
	token, ok := bearerToken(r.Header)
	if !ok {
		return gateclient.Peer{}, gateclient.ErrCaller
	}
	base, err := s.o.Peer()
	if err != nil {
		s.log.print(err.Error())
		return gateclient.Peer{}, errUnavailable
	}
	remote, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		remote = r.RemoteAddr
	}
	return s.callers.find(r.Context(), base.As(token, ""), remote)
}

// find returns the caller with a token, from memory or from the gateway.
func (c *callers) find(ctx context.Context, asked gateclient.Peer, remote string) (gateclient.Peer, error) {
	c.mu.Lock()
	known, found := c.accepted[asked]
	refused := c.refused[asked]
	switch now := c.now(); {
	case found && now.Before(known.until):
		c.mu.Unlock()
		return known.peer, nil
	case now.Before(refused.until):
		c.mu.Unlock()
		return gateclient.Peer{}, refused.err
	}
	l := c.running[asked]
	if l == nil {
		places := c.take(found, remote)
		if places == nil {
			c.mu.Unlock()
			return gateclient.Peer{}, errUnavailable
		}
		l = &lookup{done: make(chan struct{})}
		c.running[asked] = l
		go c.ask(l, asked, places)
	}
	c.mu.Unlock()
	select {
	case <-l.done:
		return l.peer, l.err
	case <-ctx.Done():
		return gateclient.Peer{}, errUnavailable
	}
}

// take takes places for a lookup; nil if there are none. The caller holds c.mu.
func (c *callers) take(known bool, remote string) (places []string) {
	switch {
	case known && c.places[knownPlaces] < maxLookups:
		places = []string{knownPlaces}
	case !known && c.places[otherPlaces] < maxLookups && c.places["from "+remote] < maxOfRemote:
		places = []string{otherPlaces, "from " + remote}
	}
	for _, p := range places {
		c.places[p]++
	}
	return places
}

// ask asks the gateway, remembers the answer, and gives the places back. It asks for all that wait, so no
// request's end stops it.
func (c *callers) ask(l *lookup, asked gateclient.Peer, places []string) {
	ctx, cancel := context.WithTimeout(context.Background(), trustTime)
	defer cancel()
	l.peer, l.err = c.identify(ctx, asked)
	if l.err != nil && !errors.Is(l.err, gateclient.ErrCaller) {
		l.err = errUnavailable
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case l.err == nil:
		c.forgetOld()
		c.accepted[asked] = callerEntry{l.peer, c.now().Add(trustTime)}
	case errors.Is(l.err, gateclient.ErrCaller):
		c.forgetOld()
		delete(c.accepted, asked)
		c.refused[asked] = refusedToken{l.err, c.now().Add(refuseTime)}
	}
	delete(c.running, asked)
	for _, p := range places {
		if c.places[p]--; c.places[p] == 0 {
			delete(c.places, p)
		}
	}
	close(l.done)
}

// forgetOld makes room for an entry: what was refused is forgotten first, accepted tokens of which nothing
// has been heard for a while come next. The caller holds c.mu.
func (c *callers) forgetOld() {
	now := c.now()
	if len(c.refused) >= maxCallers {
		clear(c.refused)
	}
	if len(c.accepted) < maxCallers {
		return
	}
	for asked, e := range c.accepted {
		if now.Sub(e.until) > idleTime {
			delete(c.accepted, asked)
		}
	}
	if len(c.accepted) >= maxCallers {
		clear(c.accepted)
	}
}
