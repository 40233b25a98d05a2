package mcpgate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/gateclient"
	"github.com/countersign-dev/countersign/mcp"
)

const goodToken = "cst_00112233445566778899_abcdefghijabcdefghijabcdefghijabcdefghij123"

// door is a server of Serve without a listener, before a gateway that knows one token.
type door struct {
	*server
	gateway *httptest.Server
	log     buffer
}

func newDoor(t *testing.T, command ...string) *door {
	t.Helper()
	d := &door{}
	d.gateway = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/caller" && r.Header.Get("Authorization") == "Bearer "+goodToken:
			fmt.Fprint(w, `{"tenant":"acme","user":"runtime","role":"runtime"}`)
		case r.URL.Path == "/v1/caller":
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(d.gateway.Close)
	peer, pins := peerAt(t, d.gateway.URL), filepath.Join(t.TempDir(), "pins")
	s, cancel := newServer(ServeOptions{
		Upstreams: []Upstream{{Name: "kit", Command: command}}, Peer: func() (gateclient.Peer, error) { return peer, nil }, Hold: time.Second,
		Pins: func(string, string) (PinFile, error) { return PinFile{path: pins, own: true}, nil }, Err: &d.log,
	}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8467})
	d.server = s
	t.Cleanup(func() {
		s.stop()
		cancel()
	})
	return d
}

func (d *door) send(body string, header ...string) *httptest.ResponseRecorder {
	return d.do(http.MethodPost, body, header...)
}

func (d *door) do(method, body string, header ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, d.request(method, body, header...))
	return w
}

func (d *door) request(method, body string, header ...string) *http.Request {
	r := httptest.NewRequest(method, "http://127.0.0.1:8467/kit", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+goodToken)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// kit is a server whose processes each list a tool of their own, in two parts.
const kit = `while read -r line; do
id=$(echo "$line" | sed 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/')
case "$line" in
*initialize*) echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}';;
*'"cursor":"next"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[{"name":"t'$$'","inputSchema":{}}]}}';;
*tools/list*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[{"name":"t","inputSchema":{}}],"nextCursor":"next"}}';;
esac; done`

// begin begins a session.
func (d *door) begin(t *testing.T) (id string) {
	t.Helper()
	w := d.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
	if id = w.Header().Get(mcp.HeaderSession); w.Code != 200 || id == "" {
		t.Fatalf("initialize: %d %s", w.Code, w.Body)
	}
	return id
}

// A session with many requests is still there: one more is told to wait, and what needs no answer passes.
func TestRequestsOfSessionAreBounded(t *testing.T) {
	d := newDoor(t, "/bin/sh", "-c", kit) // it answers no ping
	session := []string{mcp.HeaderSession, d.begin(t)}
	ping := func(id int) *httptest.ResponseRecorder {
		return d.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, id), session...)
	}
	router := d.sessions[session[1]].conn.router
	waiting := func() int {
		router.mu.Lock()
		defer router.mu.Unlock()
		return len(router.posts)
	}
	var all sync.WaitGroup
	for id := range maxOfSession {
		all.Go(func() { ping(id) })
	}
	if !awaits(func() bool { return waiting() == maxOfSession }) {
		t.Fatalf("%d requests wait", waiting())
	}
	if w := ping(maxOfSession); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("one more request: %d %s", w.Code, w.Body)
	}
	if w := d.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`, session...); w.Code != http.StatusAccepted || waiting() != maxOfSession-1 {
		t.Errorf("a cancellation: %d, %d requests wait", w.Code, waiting())
	}
	if w := d.do(http.MethodDelete, "", session...); w.Code != http.StatusNoContent {
		t.Fatalf("the end of the session: %d", w.Code)
	}
	all.Wait()
	if w := ping(0); w.Code != http.StatusNotFound {
		t.Errorf("after the end: %d", w.Code)
	}
}

// A session that its client cannot use ends with the answer to its initialize.
func TestUselessSessionsEnd(t *testing.T) {
	const begin = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`
	json := map[string]string{"Content-Type": "application/json"}
	good := answer(200, json, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`)
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		body  string
		stays int
	}{
		"an answer":             {good, begin, 1},
		"an error":              {answer(200, json, `{"jsonrpc":"2.0","id":0,"error":{"code":1,"message":"not now"}}`), begin, 0},
		"an unknown revision":   {answer(200, json, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2031-01-01"}}`), begin, 0},
		"a refusal of the gate": {good, strings.Replace(begin, `"params":{`, `"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2031-01-01"},`, 1), 0},
		"a server that is down": {answer(502, nil, ""), begin, 0},
		"a client that is gone": {nil, begin, 0},
	} {
		ctx, hangUp := context.WithCancel(t.Context())
		serve := c.serve
		if serve == nil {
			serve = func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				hangUp()
				<-r.Context().Done()
			}
		}
		d := remoteDoor(t, serve)
		d.ServeHTTP(httptest.NewRecorder(), d.request(http.MethodPost, c.body).WithContext(ctx))
		hangUp()
		d.mu.Lock()
		if len(d.sessions) != c.stays || len(d.conns) != c.stays || d.sessionCount != c.stays {
			t.Errorf("%s: %d sessions, %d connections, %d counted", name, len(d.sessions), len(d.conns), d.sessionCount)
		}
		d.mu.Unlock()
	}
}

// idleSession is a session of a caller that nothing has used for a while. It counts its end.
func (d *door) idleSession(seat *seat, id string, idle time.Duration, ends *atomic.Int32) {
	c := &conn{relay: newRelay(nil, nil, false, nil, nil), ended: make(chan struct{}), end: func() { ends.Add(1) }}
	c.ctx, c.cancel = context.WithCancel(d.ctx)
	d.sessions[id], d.conns[c] = &session{id: id, seat: seat, conn: c, used: time.Now().Add(-idle)}, true
	seat.sessions++
	d.sessionCount++
}

// When there is no room, an idle session gives way: the caller's own that has been idle for the longest time, or one of
// a caller who has more. What was used a moment ago stays.
func TestIdleSessionsGiveWay(t *testing.T) {
	d := newDoor(t)
	var ends, others atomic.Int32
	one, two, three := &seat{}, &seat{}, &seat{}
	for i := range maxOfCaller {
		d.idleSession(one, fmt.Sprint("one-", i), time.Duration(i)*time.Second, &ends)
	}
	if err := d.reserve(one); !errors.Is(err, errBusy) || ends.Load() != 0 {
		t.Errorf("sessions that are in use: %v, %d ended", err, ends.Load())
	}
	for _, id := range []string{"one-3", "one-9"} {
		d.sessions[id].used = time.Now().Add(-2 * giveWayTime)
	}
	d.sessions["one-9"].requests = 1 // a call that takes long
	if err := d.reserve(one); err != nil || ends.Load() != 1 || d.sessions["one-3"] != nil || one.sessions != maxOfCaller {
		t.Errorf("an idle session: %v, %d ended, %d are there", err, ends.Load(), one.sessions)
	}
	for i := range maxSessions - maxOfCaller {
		d.idleSession(two, fmt.Sprint("two-", i), 2*giveWayTime, &others)
	}
	if err := d.reserve(three); err != nil || others.Load() != 1 || ends.Load() != 1 || d.sessionCount != maxSessions {
		t.Errorf("another caller at a full gate: %v, of one caller %d ended, of the other %d; %d sessions", err, ends.Load(), others.Load(), d.sessionCount)
	}
	if err := d.reserve(&seat{sessions: maxSessions}); !errors.Is(err, errBusy) {
		t.Errorf("a caller who has more than all others: %v", err)
	}
}

// Callers are not sessions: many of them, who hold nothing, keep nobody away. At the bound, the one that has been away for
// the longest time gives way.
func TestManyCallers(t *testing.T) {
	d := newDoor(t)
	base, err := d.o.Peer()
	if err != nil {
		t.Fatal(err)
	}
	come := func(user string) error {
		_, err := d.seatOf(base.As(goodToken, user), d.o.Upstreams[0])
		return err
	}
	for i := range maxSessions + 1 {
		if err := come(fmt.Sprint("user-", i)); err != nil {
			t.Fatalf("caller %d: %v", i, err)
		}
	}
	d.mu.Lock()
	for i := 0; len(d.seats) < maxSeats; i++ {
		d.seats[seatKey{fmt.Sprint("busy-", i), "kit"}] = &seat{sessions: 1}
	}
	d.mu.Unlock()
	for i, gone := range []string{"user-0", "user-1"} {
		if err := come(fmt.Sprint("new-", i)); err != nil || d.seats[seatKey{gone, "kit"}] != nil || len(d.seats) != maxSeats {
			t.Errorf("a caller beyond the bound: %v; %d seats", err, len(d.seats))
		}
	}
	d.mu.Lock()
	for _, t := range d.seats {
		t.sessions = 1
	}
	d.mu.Unlock()
	if err := come("late"); !errors.Is(err, errBusy) {
		t.Errorf("a caller while all others have sessions: %v", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.seats, func(_ seatKey, t *seat) bool { return t.gate == nil })
}

// While the gate stops, clients are told so: to end sessions would not help them.
func TestRequestsWhileServeStops(t *testing.T) {
	d := newDoor(t, "/bin/sh", "-c", kit)
	d.mu.Lock()
	d.stopping = true
	d.mu.Unlock()
	w := d.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "5" || !strings.Contains(w.Body.String(), "the gate is stopping: try again") {
		t.Errorf("a caller's first request: %d %s", w.Code, w.Body)
	}
	_, opened := d.open(&seat{upstream: d.o.Upstreams[0]}, true)
	for name, err := range map[string]error{"no more sessions": d.reserve(&seat{}), "no more servers": opened} {
		w := httptest.NewRecorder()
		if d.refuseSession(w, "", err); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: %v: %d %s", name, err, w.Code, w.Body)
		}
	}
}

// However the address of the gate is written: clients write the host in lower case, and leave out the default port.
func TestSpellingsOfPublicURL(t *testing.T) {
	address := func(port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }
	for _, c := range []struct {
		url    string
		port   int
		host   string
		origin string
		status int // 401: the host may be named
	}{
		{"https://MCP.Example", 8467, "mcp.example", "https://mcp.example", 401},
		{"https://MCP.Example", 8467, "MCP.example:443", "https://mcp.example", 401},
		{"https://mcp.example:443/", 8467, "mcp.example", "https://mcp.example", 401},
		{"https://mcp.example:443", 8467, "mcp.example:443", "", 401},
		{"https://mcp.example:8443", 8467, "mcp.example:8443", "https://mcp.example:8443", 401},
		{"https://mcp.example:8443", 8467, "mcp.example", "", 403},
		{"https://mcp.example", 8467, "mcp.example:80", "", 403},
		{"https://mcp.example", 8467, "mcp.example", "http://mcp.example", 403},
		{"https://[2001:DB8::1]:443", 8467, "[2001:db8::1]", "https://[2001:db8::1]", 401},
		{"", 80, "localhost", "", 401},
		{"", 8467, "localhost", "", 403},
	} {
		s, cancel := newServer(ServeOptions{PublicURL: c.url}, address(c.port))
		r := httptest.NewRequest(http.MethodPost, "/kit", nil)
		if r.Host = c.host; c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != c.status {
			t.Errorf("%s: %s from %q: %d, want %d", c.url, c.host, c.origin, w.Code, c.status)
		}
		cancel()
	}
}

// A browser asks, without a token, whether a page may send a request, and reads in each answer whether the page may see
// it. It may for the origins of --origin, however they are written, and for no other.
func TestWebPages(t *testing.T) {
	d := newDoor(t, "/bin/sh", "-c", kit)
	s, cancel := newServer(ServeOptions{
		Origins: []string{"https://App.Example:443/", "http://localhost:6274"}, Upstreams: d.o.Upstreams, Peer: d.o.Peer, Pins: d.o.Pins, Hold: d.o.Hold, Err: d.o.Err,
	}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8467})
	defer cancel()
	defer s.stop()
	d.server = s
	for origin, allowed := range map[string]bool{"https://app.example": true, "http://localhost:6274": true, "https://App.Example": false, "http://app.example": false, "https://app.example.evil": false, "http://localhost": false, "null": false} {
		asks := d.do(http.MethodOptions, "", "Origin", origin, "Authorization", "none", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type,mcp-param-path")
		h := asks.Header()
		if !allowed {
			if w := d.send(longRequest, "Origin", origin); asks.Code != http.StatusForbidden || w.Code != http.StatusForbidden || h.Get("Access-Control-Allow-Origin")+w.Header().Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s: %d %v, %d %v", origin, asks.Code, h, w.Code, w.Header())
			}
			continue
		}
		if asks.Code != http.StatusNoContent || h.Get("Access-Control-Allow-Origin") != origin || h.Get("Access-Control-Allow-Headers") != "authorization,content-type,mcp-param-path" || !strings.Contains(h.Get("Access-Control-Allow-Methods"), "DELETE") {
			t.Errorf("%s: the question: %d %v", origin, asks.Code, h)
		}
		for status, header := range map[int][]string{200: nil, 401: {"Authorization", "none"}} {
			w := d.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, append(header, "Origin", origin)...)
			if h := w.Header(); w.Code != status || h.Get("Access-Control-Allow-Origin") != origin || !strings.Contains(h.Get("Access-Control-Expose-Headers"), mcp.HeaderSession) || h.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s: a request: %d %v", origin, w.Code, h)
			}
		}
	}
	if w := d.do(http.MethodOptions, "", "Authorization", "none"); w.Code != http.StatusUnauthorized || w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("OPTIONS without an origin: %d %v", w.Code, w.Header())
	}
	for origin, valid := range map[string]bool{"https://app.example": true, "https://App.Example:443/": true, "moz-extension://1f": true, "*": false, "null": false, "app.example": false, "https://app.example/page": false, "https://u@app.example": false, "": false} {
		o := d.o
		o.Listen, o.Origins = "127.0.0.1:0", []string{origin}
		if err := o.Check(); (err == nil) != valid {
			t.Errorf("--origin %q: %v", origin, err)
		}
	}
}

// A client learns where to sign in if there is such a place, and is not sent there when that would not help.
func TestWhereToSignIn(t *testing.T) {
	const document, noDocument = `{"authorization_servers":["https://login.example"],"bearer_methods_supported":["header"],"resource":"http://127.0.0.1:8467/kit"}`, "there is no such document"
	for _, c := range []struct {
		servers        []string
		err            error
		status         int
		challenge, doc string
	}{
		{nil, gateclient.ErrCaller, 401, "Bearer", noDocument},
		{[]string{"https://login.example"}, gateclient.ErrCaller, 401, `Bearer resource_metadata="http://127.0.0.1:8467/.well-known/oauth-protected-resource/kit"`, document},
		{[]string{"https://login.example"}, gateclient.ErrRole, 403, "", document},
		{[]string{"https://login.example"}, errors.New("no answer"), 503, "", document},
	} {
		d := newDoor(t)
		d.o.AuthorizationAt = c.servers
		d.callers.identify = func(context.Context, gateclient.Peer) (gateclient.Peer, error) { return gateclient.Peer{}, c.err }
		for range 2 { // looked up, and remembered
			if w := d.send(longRequest); w.Code != c.status || w.Header().Get("WWW-Authenticate") != c.challenge {
				t.Errorf("%v: %d %v", c, w.Code, w.Header())
			}
		}
		for _, path := range []string{"/kit", "/kit/"} {
			w, r := httptest.NewRecorder(), d.request(http.MethodGet, "")
			r.URL.Path = metadataPath + path
			if d.ServeHTTP(w, r); !strings.Contains(w.Body.String(), c.doc) {
				t.Errorf("%v: the metadata of %s: %d %s", c, path, w.Code, w.Body)
			}
		}
	}
}

// What one session's server has listed is nothing that another session's server has.
func TestAcceptedPerSession(t *testing.T) {
	d := newDoor(t, "/bin/sh", "-c", kit)
	one, two := d.begin(t), d.begin(t)
	own := regexp.MustCompile(`t[0-9]+`).FindString(d.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"next"}}`, mcp.HeaderSession, one).Body.String())
	if own == "" {
		t.Fatal("the server has not listed its own tool")
	}
	for session, want := range map[string]string{one: "(no_verdict)", two: "(not_listed)"} {
		if w := d.send(strings.Replace(call, `"t"`, `"`+own+`"`, 1), mcp.HeaderSession, session); !strings.Contains(w.Body.String(), want) {
			t.Errorf("a call: %s, want %s", w.Body, want)
		}
	}
}

// For a client that calls a tool without asking for the list the gate asks, once, for all parts of it, with
// what the protocol needs and no more. The client sees nothing of it.
func TestGateAsksForTheList(t *testing.T) {
	r := newRig(t, answer(503, nil, `{}`))
	r.catalogue.listed = false
	meta := `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","secret":1}`
	calls := func(name string, answers ...string) (client string, asked []mcp.Message) {
		t.Helper()
		line := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"` + name + `","_meta":` + meta + `}}` + "\n"
		seen, server := make(chan string), &lines{make(chan string)}
		r.server.w = server
		go func() {
			err := r.fromClient(t.Context(), []byte(line))
			r.judging.Wait()
			seen <- fmt.Sprint(r.toClient.take(), err)
		}()
		for {
			select {
			case client = <-seen:
				return client, asked
			case text := <-server.all:
				m, err := mcp.Parse([]byte(text))
				if err != nil || len(asked) >= len(answers) {
					t.Fatalf("the server is asked %s, %v", text, err)
				}
				if err := r.fromServer([]byte(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,` + answers[len(asked)] + `}`)); err != nil {
					t.Fatal(err)
				}
				asked = append(asked, m)
			}
		}
	}
	client, asked := calls("b", `"error":{"code":1,"message":"not now"}`)
	if !strings.Contains(client, "(not_listed)") || len(asked) != 1 {
		t.Errorf("a server without a list: %s", client)
	}
	client, asked = calls("b", `"result":{"tools":[{"name":"a"}],"nextCursor":"c1"}`, `"result":{"tools":[{"name":"b"}]}`)
	if !strings.Contains(client, "(no_verdict)") || len(asked) != 2 {
		t.Fatalf("a listed tool: %s after %v", client, asked)
	}
	if got := string(asked[1].Params); got != `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"cursor":"c1"}` {
		t.Errorf("the server was asked %s", got)
	}
	if client, asked = calls("c"); !strings.Contains(client, "(not_listed)") || len(asked) != 0 {
		t.Errorf("a tool that is not in the list: %s", client)
	}
	if len(r.asked) != 0 {
		t.Errorf("%d requests are still remembered", len(r.asked))
	}
}

// lines is a server that reads one line at a time.
type lines struct{ all chan string }

func (l *lines) Write(line []byte) (int, error) {
	l.all <- string(line)
	return len(line), nil
}

// While the gateway is away a stream goes on for a bounded time only: its token may be revoked.
func TestStreamsEndWithoutGateway(t *testing.T) {
	d := newDoor(t, "/bin/sh", "-c", kit)
	now := time.Now()
	d.now = func() time.Time { return now }
	d.callers.now = d.now
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8467/kit", nil)
	r.Header.Set("Authorization", "Bearer "+goodToken)
	out := d.answerTo(httptest.NewRecorder(), r, "runtime")
	now = now.Add(2 * lostTime)
	if !out.known() {
		t.Fatal("a valid token is not known")
	}
	d.gateway.Close()
	now = now.Add(lostTime - time.Second)
	if !out.known() {
		t.Error("a stream ends as soon as the gateway is away")
	}
	now = now.Add(2 * time.Second)
	if out.known() {
		t.Error("without an answer of the gateway, the stream goes on")
	}
}

// A stream of one user ends when its token becomes another user's.
func TestStreamsEndWithTheirUser(t *testing.T) {
	user := "dana"
	d := newDoor(t, "/bin/sh", "-c", kit)
	now := time.Now()
	d.now = func() time.Time { return now }
	d.callers.now = d.now
	d.callers.identify = func(_ context.Context, p gateclient.Peer) (gateclient.Peer, error) { return p.As(goodToken, user), nil }
	out := d.answerTo(httptest.NewRecorder(), d.request(http.MethodGet, ""), user)
	if !out.known() {
		t.Fatal("the user's own token is not known")
	}
	user = "kim"
	if now = now.Add(2 * trustTime); out.known() {
		t.Error("the stream goes on with another user's token")
	}
}

// A server that reads no input is ended, and its session.
func TestServerThatReadsNothing(t *testing.T) {
	d := newDoor(t, "/bin/sh", "-c", `read -r line; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}'; exec sleep 1000`)
	d.input = 50 * time.Millisecond
	id := d.begin(t)
	w := d.send(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"`+strings.Repeat("x", 1<<20)+`"}}`, mcp.HeaderSession, id)
	if w.Code != http.StatusBadGateway {
		t.Errorf("the answer: %d %s", w.Code, w.Body)
	}
	until := time.After(patience)
	for {
		d.mu.Lock()
		over := len(d.sessions) == 0 && len(d.conns) == 0
		d.mu.Unlock()
		if over {
			return
		}
		select {
		case <-until:
			t.Fatal("the session and its process are still there")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stream sends a request over a connection, and returns its answer, a stream of which the beginning was read: twenty signs of
// life.
func (d *door) stream(t *testing.T, method, body, session string) io.Reader {
	t.Helper()
	s := httptest.NewServer(d)
	t.Cleanup(s.Close)
	r := d.request(method, body, mcp.HeaderSession, session)
	r.URL.Host, r.RequestURI = s.Listener.Addr().String(), ""
	s.Client().Timeout = patience
	answer, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != eventStream || answer.Header.Get("X-Accel-Buffering") != "no" {
		t.Fatalf("%d %v", answer.StatusCode, answer.Header)
	}
	signs := make([]byte, 20*len(":\n\n"))
	if _, err := io.ReadFull(answer.Body, signs); err != nil || strings.Trim(string(signs), ":\n") != "" {
		t.Errorf("the stream of a %s: %q, %v", method, signs, err)
	}
	return answer.Body
}

// The answer to a request that takes long begins as a stream before it is there, and says it if the server ends. Streams
// last longer than a request may take to arrive.
func TestLongRequests(t *testing.T) {
	const begin = `read -r line; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}'; read -r line; read -r line; `
	for name, c := range map[string]struct{ then, want string }{
		"an answer": {`echo '{"jsonrpc":"2.0","id":7,"result":{}}'; cat`, `"result":{}`},
		"an end":    {`exit`, serverEnded},
	} {
		d := newDoor(t, "/bin/sh", "-c", begin+c.then)
		d.alive, d.arrival = 5*time.Millisecond, 50*time.Millisecond
		id := d.begin(t)
		d.stream(t, http.MethodGet, "", id)
		answer := d.stream(t, http.MethodPost, longRequest, id)                       // the server does not answer it
		d.send(`{"jsonrpc":"2.0","method":"notifications/x"}`, mcp.HeaderSession, id) // now it does
		if rest, err := io.ReadAll(answer); err != nil || !strings.Contains(string(rest), `data: {`) || !strings.Contains(string(rest), c.want) {
			t.Errorf("%s: the client got %s, %v", name, rest, err)
		}
	}
}

// A body that is announced and never comes keeps no connection, whether anything reads it or not.
func TestBodiesThatNeverCome(t *testing.T) {
	d := newDoor(t)
	d.arrival = 50 * time.Millisecond
	s := httptest.NewServer(d)
	defer s.Close()
	for request, want := range map[string]string{
		"POST /kit": "400 ", "POST /kit/": "400 ", "POST /other": "404 ", "PUT /kit": "405 ", "GET /kit": "400 ", "DELETE /kit": "400 ",
		"POST /kit\nContent-Type: text/plain": "415 ", "POST /kit\nAuthorization: none": "401 ",
	} {
		line, header, _ := strings.Cut(request, "\n")
		for _, given := range []string{"Host: 127.0.0.1:8467", "Content-Length: 10", "Content-Type: application/json", "Authorization: Bearer " + goodToken} {
			if name, _, _ := strings.Cut(given, ":"); !strings.HasPrefix(header, name) {
				header += "\n" + given
			}
		}
		connection, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = connection.SetDeadline(time.Now().Add(patience))
		fmt.Fprint(connection, strings.ReplaceAll(line+" HTTP/1.1\n"+strings.TrimSpace(header)+"\n\n", "\n", "\r\n"))
		if answer, err := io.ReadAll(connection); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+want) {
			t.Errorf("%s: %.100s, %v", request, answer, err)
		}
		connection.Close()
	}
}

// Old sessions end side by side, and the server goes on meanwhile.
func TestSweepIsSideBySide(t *testing.T) {
	d := newDoor(t)
	seat := &seat{upstream: d.o.Upstreams[0], used: time.Now()}
	var all sync.WaitGroup
	const sessions = 8
	all.Add(sessions)
	for i := range sessions {
		c := &conn{relay: newRelay(nil, nil, false, nil, nil), ended: make(chan struct{}), end: func() {
			all.Done()
			all.Wait() // for the ends of all others
		}}
		c.ctx, c.cancel = context.WithCancel(d.ctx)
		n := &session{id: fmt.Sprint(i), seat: seat, conn: c}
		d.sessions[n.id], d.conns[c] = n, true
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.sweep(time.Now())
		d.stop() // waits for them
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("one end waits for another")
	}
	if len(d.sessions)+len(d.conns) != 0 {
		t.Errorf("%d sessions and %d connections are left", len(d.sessions), len(d.conns))
	}
}

// Only what can be a token is looked up.
func TestBearerToken(t *testing.T) {
	for value, want := range map[string]bool{
		"Bearer " + goodToken: true, "bearer " + goodToken: true, "Bearer eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJkYW5hIn0.c2ln": true,
		"": false, "Bearer": false, "Basic " + goodToken: false, "Bearer x" + goodToken: false, "Bearer a.b": false, "Bearer a..c": false, "Bearer a.b.c.d": false,
		"Bearer a.b.c\n": true, "Bearer a b.c.d": false, "Bearer " + strings.Repeat("a", maxToken) + ".b.c": false,
	} {
		if _, ok := bearerToken(http.Header{"Authorization": {value}}); ok != want {
			t.Errorf("%.80q: %t", value, ok)
		}
	}
	if _, ok := bearerToken(http.Header{"Authorization": {"Bearer " + goodToken, "Bearer " + goodToken}}); ok {
		t.Error("two headers Authorization are one")
	}
}

// Invented tokens keep no known caller waiting; refusals are remembered, and one token is asked for once.
func TestLookups(t *testing.T) {
	c, now := newCallers(), time.Now()
	c.now = func() time.Time { return now }
	var mu sync.Mutex
	asked, begun, hold := map[string]int{}, make(chan struct{}, 256), make(chan struct{})
	c.identify = func(ctx context.Context, p gateclient.Peer) (gateclient.Peer, error) {
		user := p.User()
		mu.Lock()
		asked[user]++
		mu.Unlock()
		if strings.HasPrefix(user, "invented") {
			begun <- struct{}{}
			<-hold
			return gateclient.Peer{}, gateclient.ErrCaller
		}
		return p, nil
	}
	find := func(token, remote string) error {
		_, err := c.find(t.Context(), gateclient.Peer{}.As(token, token), remote)
		return err
	}
	if err := find("known", "10.0.0.1"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range maxLookups {
		all.Go(func() { _ = find(fmt.Sprint("invented-", i), fmt.Sprint("10.0.0.", i/maxOfRemote)) })
		<-begun
		if i == maxOfRemote-1 {
			if err := find("new", "10.0.0.0"); !errors.Is(err, errUnavailable) {
				t.Errorf("beyond the places of one address: %v", err)
			}
			if err := find("another", "10.0.0.9"); err != nil {
				t.Errorf("from another address: %v", err)
			}
		}
	}
	now = now.Add(2 * trustTime)
	if err := find("known", "10.0.0.1"); err != nil {
		t.Errorf("a known caller, while others are looked up: %v", err)
	}
	if err := find("new", "10.0.0.9"); !errors.Is(err, errUnavailable) {
		t.Errorf("beyond all places: %v", err)
	}
	for range 2 { // they wait for the first one's answer
		all.Go(func() { _ = find("invented-0", "10.0.0.0") })
	}
	close(hold)
	all.Wait()
	if err := find("invented-0", "10.0.0.0"); !errors.Is(err, gateclient.ErrCaller) || asked["invented-0"] != 1 {
		t.Errorf("a token that was refused: %v, asked for %d times", err, asked["invented-0"])
	}
	now = now.Add(refuseTime)
	if err := find("invented-0", "10.0.0.0"); !errors.Is(err, gateclient.ErrCaller) || asked["invented-0"] != 2 {
		t.Errorf("after a while: %v, asked for %d times", err, asked["invented-0"])
	}
	if len(c.places) != 0 || len(c.running) != 0 {
		t.Errorf("places that are still taken: %v", c.places)
	}
}

// A stream that its server closes, or that breaks off, goes on behind its last event; without ids the request
// is lost, and in vain the gate does not try for ever.
func TestStreamsAreResumed(t *testing.T) {
	const id, progress, result = "id: %s\nretry: 1\ndata:\n\n", `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`, `{"jsonrpc":"2.0","id":7,"result":{}}`
	for name, c := range map[string]struct {
		streams []string // of the POST, and of each GET
		events  string   // that the GETs name
		want    string
	}{
		"goes on":          {[]string{fmt.Sprintf(id, "e1"), "id: e2\ndata: " + progress + "\n\n", "data: " + result + "\n\n"}, "e1 e2", progress + result},
		"breaks within":    {[]string{fmt.Sprintf(id, "e1"), "id: e2\ndata: {\"jsonr", "id: e2\ndata: " + result + "\n\n"}, "e1 e1", result},
		"breaks at an end": {[]string{fmt.Sprintf(id, "e1") + "id: e2\ndata: " + progress + "\n", "id: e2\ndata: " + progress + "\n\ndata: " + result + "\n\n"}, "e1", progress + result},
		"without ids":      {[]string{"data: " + progress + "\n\n"}, "", progress + "lost"},
		"nothing new":      {[]string{fmt.Sprintf(id, "e1"), "", "", "", "", ""}, "e1 e1 e1 e1 e1", "lost"},
		"an unfit id":      {[]string{fmt.Sprintf(id, "e\t1")}, "", "lost"},
		"the server knows": {[]string{fmt.Sprintf(id, "e1")}, "e1", "lost"}, // no such stream: 404
	} {
		var events []string
		turn := 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				events = append(events, r.Header.Get("Last-Event-ID"))
			}
			if turn == len(c.streams) {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.Header().Set("Content-Type", eventStream)
			fmt.Fprint(w, c.streams[turn])
			turn++
		}))
		r := newRig(t, answer(503, nil, `{}`))
		client := &lines{make(chan string)}
		u := newRemote(t.Context(), s.URL, func() (string, error) { return "", nil }, s.Client(), false, r.gate.log)
		u.relay, r.server.w, r.client.w = r.relay, u, client
		if err := r.fromClient(t.Context(), []byte(`{"jsonrpc":"2.0","id":7,"method":"x/long"}`+"\n")); err != nil {
			t.Fatal(err)
		}
		got := ""
		for !strings.HasSuffix(got, "lost") && !strings.HasSuffix(got, result) {
			line := strings.TrimSpace(<-client.all)
			if strings.Contains(line, `"error"`) {
				line = "lost"
			}
			got += line
		}
		u.end()
		s.Close()
		if got != c.want || strings.Join(events, " ") != c.events {
			t.Errorf("%s: the client got %s, want %s; asked for behind %q, want %s", name, got, c.want, events, c.events)
		}
	}
}

// A call is asked for under the token that it came with, whichever token of the user another request has shown since:
// that of a revoked token is refused.
func TestCallsUnderTheirOwnToken(t *testing.T) {
	const otherToken = "cst_ffffffffffffffffffff_abcdefghijabcdefghijabcdefghijabcdefghij123"
	d := newDoor(t, "/bin/sh", "-c", kit)
	asked := make(chan string, 1)
	d.gateway.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/caller" {
			fmt.Fprint(w, `{"tenant":"acme","user":"runtime","role":"runtime"}`)
			return
		}
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"PreToolUse"`) {
			asked <- r.Header.Get("Authorization")
		}
		w.WriteHeader(http.StatusUnauthorized)
	})
	session := []string{mcp.HeaderSession, d.begin(t)}
	d.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, session...)
	body, slow := io.Pipe()
	r, over := d.request(http.MethodPost, "", session...), make(chan struct{})
	r.Body = body
	go func() { defer close(over); d.ServeHTTP(httptest.NewRecorder(), r) }()
	if _, err := io.WriteString(slow, call[:20]); err != nil { // its token was looked up
		t.Fatal(err)
	}
	d.send(`{"jsonrpc":"2.0","method":"notifications/x"}`, append(session, "Authorization", "Bearer "+otherToken)...)
	if _, err := io.WriteString(slow, call[20:]); err != nil {
		t.Fatal(err)
	}
	slow.Close()
	<-over
	close(asked)
	if got := <-asked; got != "Bearer "+goodToken {
		t.Errorf("the call was asked for under %q", got)
	}
}

// A call is reported although the gateway refuses the newest token of its user by then: under its own token.
func TestReportsWithoutTheNewestToken(t *testing.T) {
	const otherToken = "cst_ffffffffffffffffffff_abcdefghijabcdefghijabcdefghijabcdefghij123"
	d := newDoor(t, "/bin/sh", "-c", kit)
	var session []string
	reported := make(chan string, 1)
	d.gateway.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch text := string(body); {
		case r.URL.Path == "/v1/caller": // both were accepted a moment ago
			fmt.Fprint(w, `{"tenant":"acme","user":"runtime","role":"runtime"}`)
		case strings.Contains(text, `"PreToolUse"`):
			d.send(`{"jsonrpc":"2.0","method":"notifications/x"}`, append(session, "Authorization", "Bearer "+otherToken)...)
			w.Header().Set("Countersign-Verdict", "deny")
			fmt.Fprint(w, denies)
		case r.Header.Get("Authorization") != "Bearer "+goodToken:
			w.WriteHeader(http.StatusUnauthorized)
		case strings.Contains(text, `"PostToolUse"`), strings.Contains(text, `"ToolUseBlocked"`):
			reported <- text
		}
	})
	session = []string{mcp.HeaderSession, d.begin(t)}
	d.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, session...)
	d.send(call, session...)
	awaitReport := func(kind string) {
		t.Helper()
		select {
		case got := <-reported:
			if !strings.Contains(got, kind) {
				t.Errorf("instead of %s there is %s", kind, got)
			}
		case <-time.After(patience):
			t.Errorf("there is no %s; the log says %s", kind, d.log.take())
		}
	}
	awaitReport("ToolUseBlocked")
	peer, err := d.o.Peer()
	if err != nil {
		t.Fatal(err)
	}
	gate := d.sessions[session[1]].seat.gate
	ran := Admitted{call: mcp.Call{Server: "kit", Name: "t", Arguments: []byte("{}")}, id: "mcp-9", asker: gateclient.NewAsker(peer.As(goodToken, "runtime"))}
	gate.Report(ran, time.Now(), mcp.Succeeded)
	awaitReport("PostToolUse")
	gate.NotRun(ran)
	awaitReport("ToolUseBlocked")
}
