package mcpgate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/gateclient"
	"github.com/countersign-dev/countersign/internal/service/shares"
	"github.com/countersign-dev/countersign/mcp"
)

// metadataPath is that of RFC 9728, with the server's path behind it.
const metadataPath = "/.well-known/oauth-protected-resource"

// ServeHTTP answers one request. What a caller without a valid token is told does not depend on which
// servers there are.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Of a body that nothing here reads, net/http reads the rest before it answers; that may never come.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.arrival))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if !slices.Contains(s.hosts, strings.ToLower(r.Host)) || !s.allowsOrigin(r.Header.Values("Origin")) {
		fail(w, http.StatusForbidden, "", mcp.CodeInvalid, "the header Host or Origin names another place than this gate (--public-url, --origin)", nil)
		return
	}
	if s.answerBrowser(w, r) {
		return
	}
	name := strings.Trim(r.URL.Path, "/") // some clients end it with one
	if rest, is := strings.CutPrefix(r.URL.Path, metadataPath); is {
		s.serveMetadata(w, r, strings.Trim(rest, "/"))
		return
	}
	peer, err := s.signIn(r)
	if err != nil {
		s.refuseCaller(w, name, err)
		return
	}
	i := slices.IndexFunc(s.o.Upstreams, func(u Upstream) bool { return u.Name == name })
	if i < 0 {
		fail(w, http.StatusNotFound, "", mcp.CodeInvalid, "there is no such server", nil)
		return
	}
	t, err := s.seatOf(peer, s.o.Upstreams[i])
	if err != nil {
		s.refuseSession(w, "", err)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), callerKey{}, peer))
	switch r.Method {
	case http.MethodPost:
		s.post(w, r, t)
	case http.MethodGet:
		s.get(w, r, t)
	case http.MethodDelete:
		s.delete(w, r, t)
	default:
		w.Header().Set("Allow", allowedMethods)
		fail(w, http.StatusMethodNotAllowed, "", mcp.CodeInvalid, "send POST, GET or DELETE", nil)
	}
}

// allowsOrigin refuses web pages of other origins: a browser sends theirs. Pages of the gate itself there are none.
func (s *server) allowsOrigin(origins []string) bool {
	return len(origins) == 0 || len(origins) == 1 && (origins[0] == originOf(s.base) || slices.Contains(s.origins, origins[0]))
}

// originOf is the origin of a URL as browsers write it, "" if the URL names no host.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + spellings(u.Scheme, u.Host)[0]
}

// answerBrowser says in the header that a page of an allowed origin may send the request and read the answer (CORS). It
// reports whether the request was the browser's own, which asks just that, and has no token.
func (s *server) answerBrowser(w http.ResponseWriter, r *http.Request) (asked bool) {
	origin, header := r.Header.Get("Origin"), w.Header()
	if !slices.Contains(s.origins, origin) {
		return false
	}
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Access-Control-Expose-Headers", mcp.HeaderSession+", WWW-Authenticate, Retry-After")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	header.Set("Access-Control-Allow-Methods", allowedMethods)
	header.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers")) // as any other client may
	w.WriteHeader(http.StatusNoContent)
	return true
}

const allowedMethods = "POST, GET, DELETE"

// fail answers with an error in JSON-RPC, which clients show.
func fail(w http.ResponseWriter, status int, id mcp.ID, code int, message string, data any) {
	body, err := mcp.Error(id, code, message, data)
	if err != nil {
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone needs no answer
}

func (s *server) refuseCaller(w http.ResponseWriter, name string, err error) {
	if !errors.Is(err, gateclient.ErrCaller) {
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, "", mcp.CodeInternal, "the gateway does not answer: no token can be looked up", nil)
		return
	}
	if errors.Is(err, gateclient.ErrRole) { // to sign in again would not help
		fail(w, http.StatusForbidden, "", mcp.CodeInvalid, "the token is not one of a runtime (countersign token create --role runtime)", nil)
		return
	}
	challenge := "Bearer"
	if len(s.o.AuthorizationAt) > 0 {
		challenge += ` resource_metadata="` + s.base + metadataPath
		if mcp.CheckServerName(name) == nil { // whether there is such a server or not
			challenge += "/" + name
		}
		challenge += `"`
	}
	w.Header().Set("WWW-Authenticate", challenge)
	fail(w, http.StatusUnauthorized, "", mcp.CodeInvalid, "no valid bearer token of a runtime (countersign token create --role runtime)", nil)
}

func (s *server) refuseSession(w http.ResponseWriter, id mcp.ID, err error) {
	switch {
	case errors.Is(err, errStopping):
		w.Header().Set("Retry-After", "5")
		fail(w, http.StatusServiceUnavailable, id, mcp.CodeInternal, "the gate is stopping: try again", nil)
	case errors.Is(err, errBusy):
		w.Header().Set("Retry-After", "5")
		fail(w, http.StatusTooManyRequests, id, mcp.CodeInternal, "too many sessions: end some, or try again", nil)
	default:
		s.log.print(err.Error())
		fail(w, http.StatusBadGateway, id, mcp.CodeInternal, "the server cannot be started", nil)
	}
}

// serveMetadata says where a token for a server comes from, if clients can sign in somewhere. Names of servers are not
// checked: it tells the same of every one.
func (s *server) serveMetadata(w http.ResponseWriter, r *http.Request, name string) {
	if len(s.o.AuthorizationAt) == 0 || r.Method != http.MethodGet && r.Method != http.MethodHead || name != "" && mcp.CheckServerName(name) != nil {
		fail(w, http.StatusNotFound, "", mcp.CodeInvalid, "there is no such document", nil)
		return
	}
	body, err := json.Marshal(map[string]any{
		"resource": strings.TrimSuffix(s.base+"/"+name, "/"), "bearer_methods_supported": []string{"header"}, "authorization_servers": s.o.AuthorizationAt,
	})
	if err != nil { // it is made of texts
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // a client that is gone needs no answer
}

// post takes one message of a client.
func (s *server) post(w http.ResponseWriter, r *http.Request, t *seat) {
	line, release, status := s.readBody(w, r, t)
	defer release()
	switch {
	case status == http.StatusTooManyRequests:
		refuseRequest(w, "", errNoRoom)
		return
	case status != 0:
		fail(w, status, "", mcp.CodeInvalid, "send one JSON-RPC message as application/json, of at most 4 MiB", nil)
		return
	}
	m, err := mcp.Parse(line)
	if err != nil {
		fail(w, http.StatusBadRequest, "", mcp.CodeInvalid, err.Error(), nil)
		return
	}
	revisions := r.Header.Values(mcp.HeaderRevision)
	switch {
	case len(revisions) > 1 || len(revisions) == 1 && !slices.Contains(mcp.Revisions, revisions[0]):
		data := map[string]any{"supported": mcp.Revisions, "requested": strings.Join(revisions, ", ")}
		fail(w, http.StatusBadRequest, m.ID, mcp.CodeRevision, "the gate does not know this revision of the protocol", data)
	case len(revisions) == 1 && revisions[0] >= mcp.Stateless:
		s.postStateless(w, r, t, m, line)
	default:
		s.postInSession(w, r, t, m, line)
	}
}

// readBody reads a message, with a line break behind it. status is not 0 if there is none. Its memory is the caller's
// until release.
func (s *server) readBody(w http.ResponseWriter, r *http.Request, t *seat) (line []byte, release func(), status int) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, func() {}, http.StatusUnsupportedMediaType
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.arrival)) // until the body's end
	in := s.roomOf(t).read(http.MaxBytesReader(w, r.Body, maxBody))
	body, err := io.ReadAll(in)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, in.Release, http.StatusRequestEntityTooLarge
	case errors.Is(err, shares.ErrNoRoom):
		return nil, in.Release, http.StatusTooManyRequests
	case err != nil:
		return nil, in.Release, http.StatusBadRequest
	}
	if bytes.ContainsAny(body, "\r\n") { // between members: a string cannot have one
		var b bytes.Buffer
		if json.Compact(&b, body) == nil {
			body = b.Bytes()
		}
	}
	return append(body, '\n'), in.Release, 0
}

// postStateless takes a message of a client without a session.
func (s *server) postStateless(w http.ResponseWriter, r *http.Request, t *seat, m mcp.Message, line []byte) {
	if err := m.CheckHeaders(r.Header); err != nil {
		fail(w, http.StatusBadRequest, m.ID, mcp.CodeMismatch, err.Error(), nil)
		return
	}
	if m.Method == mcp.MethodCanceled { // to hang up is to cancel
		w.WriteHeader(http.StatusAccepted)
		return
	}
	c, err := s.borrow(t)
	if err != nil {
		s.refuseSession(w, m.ID, err)
		return
	}
	answered := false
	defer func() { s.releaseConn(t, c, answered) }()
	answered = s.exchange(w, r, c, m, line, true)
}

// postInSession takes a message of a client with a session, or the one that begins it.
func (s *server) postInSession(w http.ResponseWriter, r *http.Request, t *seat, m mcp.Message, line []byte) {
	id := r.Header.Get(mcp.HeaderSession)
	begins := m.Method == "initialize" && m.IsRequest() && id == ""
	if begins {
		n, err := s.begin(t)
		if err != nil {
			s.refuseSession(w, m.ID, err)
			return
		}
		id = n.id
		w.Header().Set(mcp.HeaderSession, id)
	}
	n := s.enter(id, t)
	if n == nil {
		refuseUnknown(w, m.ID, id)
		return
	}
	defer s.leave(n)
	if answered := s.exchange(w, r, n.conn, m, line, false); begins && (!answered || !n.conn.relay.isInitialized()) {
		s.finish(n) // the client cannot use it
	}
}

// refuseUnknown answers alike for sessions that are over, and for those of other callers.
func refuseUnknown(w http.ResponseWriter, id mcp.ID, session string) {
	if session == "" {
		fail(w, http.StatusBadRequest, id, mcp.CodeInvalid, "the header Mcp-Session-Id is missing: begin with initialize", nil)
		return
	}
	fail(w, http.StatusNotFound, id, mcp.CodeInvalid, "there is no such session: begin with initialize", nil)
}

// exchange gives a message to the relay and writes what comes back for it. It reports whether the message
// was a request that has its answer.
func (s *server) exchange(w http.ResponseWriter, r *http.Request, c *conn, m mcp.Message, line []byte, stateless bool) (answered bool) {
	var answer *stream
	if m.IsRequest() {
		var err error
		if answer, err = c.router.add(m); err != nil {
			refuseRequest(w, m.ID, err)
			return false
		}
		defer c.router.remove(answer)
	}
	// A call is asked for under the token that it came with, not under the newest one of its caller.
	err := c.relay.accept(context.WithValue(c.ctx, callerKey{}, r.Context().Value(callerKey{})), m, line)
	switch {
	case errors.Is(err, mcp.ErrMessage):
		fail(w, http.StatusBadRequest, "", mcp.CodeInvalid, err.Error(), nil)
		return false
	case err != nil:
		fail(w, http.StatusBadGateway, m.ID, mcp.CodeInternal, serverEnded, nil)
		return false
	case answer == nil:
		if m.Method == mcp.MethodCanceled {
			c.router.cancel(m.CanceledID().Key())
		}
		w.WriteHeader(http.StatusAccepted)
		return false
	}
	out := s.answerTo(w, r, c.user)
	answered, gone := out.run(r.Context(), c, answer)
	if gone {
		c.relay.abandon(context.WithoutCancel(r.Context()), m, stateless)
	}
	switch {
	case answered || gone:
	case out.begun:
		if line, err := mcp.Failure(m.ID, serverEnded); err == nil {
			_ = out.message(routed{line, true}) // a client that is gone needs no answer
		}
	default:
		fail(w, http.StatusBadGateway, m.ID, mcp.CodeInternal, serverEnded, nil)
	}
	return answered
}

// serverEnded is what a client is told whose request gets no answer any more.
const serverEnded = "the server has ended"

// refuseRequest answers a request that the router does not take.
func refuseRequest(w http.ResponseWriter, id mcp.ID, err error) {
	if errors.Is(err, errFull) || errors.Is(err, errNoRoom) {
		w.Header().Set("Retry-After", "5")
		fail(w, http.StatusTooManyRequests, id, mcp.CodeInternal, err.Error(), nil)
		return
	}
	fail(w, http.StatusBadRequest, "", mcp.CodeInvalid, err.Error(), nil)
}

// get is the stream of what a session's server says by itself.
func (s *server) get(w http.ResponseWriter, r *http.Request, t *seat) {
	id := r.Header.Get(mcp.HeaderSession)
	n := s.enter(id, t)
	if n == nil {
		refuseUnknown(w, "", id)
		return
	}
	defer s.leave(n)
	events := n.conn.router.listen()
	if events == nil {
		fail(w, http.StatusConflict, "", mcp.CodeInvalid, "the session has such a stream", nil)
		return
	}
	defer n.conn.router.remove(events)
	out := s.answerTo(w, r, t.user)
	_ = out.connection.SetReadDeadline(time.Time{}) // the stream may be long
	if out.begin() == nil {
		out.run(r.Context(), n.conn, events)
	}
}

// delete ends a session.
func (s *server) delete(w http.ResponseWriter, r *http.Request, t *seat) {
	id := r.Header.Get(mcp.HeaderSession)
	n := s.enter(id, t)
	if n == nil {
		refuseUnknown(w, "", id)
		return
	}
	defer s.leave(n)
	s.finish(n)
	w.WriteHeader(http.StatusNoContent)
}

// answerWriter writes messages as one JSON document, or as server-sent events if there is more than the
// answer, or the answer takes long.
type answerWriter struct {
	w          http.ResponseWriter
	connection *http.ResponseController
	begun      bool
	alive      time.Duration // keepAliveTime
	known      func() bool   // whether the caller's token is still that of the same user
}

// lostTime is how long a stream goes on while the gateway does not say whether its token is still valid.
const lostTime = time.Minute

// answerTo begins an answer with what only user may read.
func (s *server) answerTo(w http.ResponseWriter, r *http.Request, user string) *answerWriter {
	heard := s.now()
	return &answerWriter{w: w, connection: http.NewResponseController(w), alive: s.alive, known: func() bool {
		p, err := s.signIn(r)
		if err == nil {
			heard = s.now()
			return p.User() == user
		}
		return errors.Is(err, errUnavailable) && s.now().Sub(heard) < lostTime
	}}
}

// keepAliveTime is how often an answer without messages shows that it is there. Clients and proxies give up one that shows
// nothing, some after a minute.
const keepAliveTime = 15 * time.Second

// run writes a stream's messages until it has its answer, its client is gone, or its server is.
func (a *answerWriter) run(client context.Context, c *conn, s *stream) (answered, gone bool) {
	ticker := time.NewTicker(a.alive)
	defer ticker.Stop()
	for {
		var err error
		select {
		case message := <-s.lines:
			if err = a.message(message); err == nil && message.final {
				return true, false
			}
			c.router.written(s, message)
		case <-s.over:
			_ = a.begin() // an empty stream: there is no answer to what was cancelled
			return true, false
		case <-ticker.C:
			if !a.known() { // revoked
				return false, true
			}
			err = a.comment()
		case <-client.Done():
			return false, true
		case <-c.relay.closed:
			return a.rest(s), false
		case <-c.ended:
			return a.rest(s), false
		}
		if err != nil {
			return false, true
		}
	}
}

// rest writes what was said before the server ended.
func (a *answerWriter) rest(s *stream) (answered bool) {
	for {
		select {
		case message := <-s.lines:
			if a.message(message) != nil || message.final {
				return message.final
			}
		default:
			return false
		}
	}
}

func (a *answerWriter) begin() error {
	if a.begun {
		return nil
	}
	a.begun = true
	a.w.Header().Set("Content-Type", eventStream)
	a.w.Header().Set("X-Accel-Buffering", "no") // nginx would hold single messages back
	a.w.WriteHeader(http.StatusOK)
	return a.connection.Flush()
}

func (a *answerWriter) message(m routed) error {
	_ = a.connection.SetWriteDeadline(time.Now().Add(writeTime)) // a connection without deadlines has none
	line := bytes.TrimRight(m.line, "\r\n")
	if m.final && !a.begun {
		a.begun = true
		a.w.Header().Set("Content-Type", "application/json")
		_, err := a.w.Write(line)
		return err
	}
	if err := a.begin(); err != nil {
		return err
	}
	for _, part := range [][]byte{[]byte("event: message\ndata: "), line, []byte("\n\n")} { // together they would be a copy
		if _, err := a.w.Write(part); err != nil {
			return err
		}
	}
	return a.connection.Flush()
}

// comment shows that the answer is still to come. It begins the stream if need be: every client must be able to read one.
func (a *answerWriter) comment() error {
	_ = a.connection.SetWriteDeadline(time.Now().Add(writeTime))
	if err := a.begin(); err != nil {
		return err
	}
	if _, err := a.w.Write([]byte(":\n\n")); err != nil {
		return err
	}
	return a.connection.Flush()
}
