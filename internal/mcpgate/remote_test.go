package mcpgate

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/service/shares"
	"github.com/countersign-dev/countersign/mcp"
)

// A request that is over takes back no later one with the same id.
func TestRemoteKeepsLaterRequests(t *testing.T) {
	server := httptest.NewServer(answer(200, map[string]string{"Content-Type": "application/json"}, `{"jsonrpc":"2.0","id":7,"result":{}}`))
	defer server.Close()
	r := newRig(t, answer(503, nil, `{}`))
	u := newRemote(t.Context(), server.URL, func() (string, error) { return "", nil }, http.DefaultClient, false, r.gate.log)
	defer u.stop()
	u.relay = r.relay
	line := []byte(`{"jsonrpc":"2.0","id":7,"method":"ping"}`)
	m, err := mcp.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	over, later := false, false
	newer := &posted{hangUp: func() { later = true }}
	u.asked[m.ID.Key()] = newer
	u.ask(t.Context(), &posted{hangUp: func() { over = true }, over: make(chan struct{})}, m, line)
	if u.asked[m.ID.Key()] != newer || !over || later {
		t.Errorf("%v, over %v, the later one taken back %v", u.asked, over, later)
	}
}

// roundTrip is a transport of HTTP.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Over HTTP, a request that its server does not have yet is not sent any more once its cancellation is.
func TestCancellationFollowsItsPost(t *testing.T) {
	begun, canceled, over := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	transport := func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if strings.Contains(string(body), mcp.MethodCanceled) {
			close(canceled)
			return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody}, nil
		}
		close(begun)
		select {
		case <-r.Context().Done():
			over <- nil
		case <-canceled:
			over <- errors.New("the request is sent after its cancellation")
		}
		return nil, errors.New("not sent")
	}
	r := newRig(t, answer(503, nil, `{}`))
	u := newRemote(t.Context(), "http://server.test", func() (string, error) { return "", nil }, &http.Client{Transport: roundTrip(transport)}, false, r.gate.log)
	defer u.end()
	u.relay, r.server.w = r.relay, u
	r.fromTheClient(t, strings.TrimSpace(longRequest))
	<-begun
	r.fromTheClient(t, strings.TrimSpace(cancelsLong))
	if err := <-over; err != nil {
		t.Error(err)
	}
	<-canceled // the server is told all the same: it may have read the request
}

// A request that its server has is not hung up: the server ends it as it likes.
func TestCancellationOfASentPost(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); string(body) == strings.TrimSpace(longRequest) {
			close(begun)
			<-release
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	defer close(release)
	r := newRig(t, answer(503, nil, `{}`))
	u := newRemote(t.Context(), server.URL, func() (string, error) { return "", nil }, server.Client(), false, r.gate.log)
	u.relay, r.server.w = r.relay, u
	r.fromTheClient(t, strings.TrimSpace(longRequest))
	<-begun
	r.fromTheClient(t, strings.TrimSpace(cancelsLong))
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.asked) != 1 {
		t.Error("the request was hung up")
	}
}

// While a session ends, nothing more is sent to its server: the end does not wait for what begins meanwhile.
func TestEndingSessionSendsNothing(t *testing.T) {
	r := newRig(t, answer(503, nil, `{}`))
	var u *remote
	methods, late := make(chan string, 3), errors.New("none")
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		methods <- req.Method
		if req.Method == http.MethodDelete {
			_, late = u.Write([]byte(longRequest))
		}
	}))
	defer server.Close()
	u = newRemote(t.Context(), server.URL, func() (string, error) { return "", nil }, server.Client(), false, r.gate.log)
	u.relay, u.session = r.relay, "s"
	u.end()
	if first := <-methods; first != http.MethodDelete || len(methods) != 0 || !errors.Is(late, errEnding) || len(u.asked) != 0 {
		t.Errorf("%s, then %d more; a request meanwhile: %v; %d are asked", first, len(methods), late, len(u.asked))
	}
}

// The pauses between a server's streams are those that it asks for. They grow while it fails, and no longer.
func TestPausesBetweenStreams(t *testing.T) {
	steps := []struct {
		status int
		stream string
		pause  time.Duration // after it
	}{
		{401, "", time.Second}, {429, "", 2 * time.Second}, {503, "", 4 * time.Second}, {200, ":\n\n", time.Second}, {200, ":\n\n", time.Second},
		{200, "retry: 3000\n\n", 3 * time.Second}, {503, "", 3 * time.Second}, {503, "", 3 * time.Second}, {503, "", 4 * time.Second}, {200, "retry: 1\n\n", minResume}, {200, "retry: 9000000\n\n", maxResume},
		{404, "", 0},
	}
	synctest.Test(t, func(t *testing.T) {
		last, turn := time.Now(), 0
		transport := func(*http.Request) (*http.Response, error) {
			if turn > 0 {
				if pause := time.Since(last); pause != steps[turn-1].pause {
					t.Errorf("step %d: the pause after it is %s, want %s", turn-1, pause, steps[turn-1].pause)
				}
			}
			last = time.Now()
			step := steps[turn]
			turn++
			return &http.Response{StatusCode: step.status, Header: http.Header{"Content-Type": {eventStream}}, Body: io.NopCloser(strings.NewReader(step.stream))}, nil
		}
		u := newRemote(t.Context(), "http://server.test", func() (string, error) { return "", nil }, &http.Client{Transport: roundTrip(transport)}, false, nil)
		defer u.stop()
		if u.listen(); turn != len(steps) {
			t.Errorf("%d of %d steps", turn, len(steps))
		}
	})
}

// remoteDoor is a door before a server that speaks HTTP.
func remoteDoor(t *testing.T, serve http.HandlerFunc) *door {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	d := newDoor(t)
	d.o.Upstreams[0].URL = server.URL
	return d
}

// When a server does not know a session any more, the client's session is over too: the client begins anew, as it does
// with the server itself.
func TestForgottenSession(t *testing.T) {
	for name, again := range map[string]string{"a request": `{"jsonrpc":"2.0","id":2,"method":"ping"}`, "a notification": `{"jsonrpc":"2.0","method":"notifications/x"}`} {
		d := remoteDoor(t, func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); !strings.Contains(string(body), "initialize") {
				http.Error(w, "session not found", http.StatusNotFound)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set(mcp.HeaderSession, "s1")
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`)
		})
		id := d.begin(t)
		if w := d.send(again, mcp.HeaderSession, id); name == "a request" && !strings.Contains(w.Body.String(), "the server has ended the session") {
			t.Errorf("%s: the client is told %d %s", name, w.Code, w.Body)
		}
		over := func() bool { return d.send(again, mcp.HeaderSession, id).Code == http.StatusNotFound }
		if !awaits(over) {
			t.Errorf("%s: the client's session goes on", name)
		}
		if d.begin(t) == id {
			t.Errorf("%s: a new session has the id of the old one", name)
		}
	}
}

// awaits waits until a condition holds, and reports whether it does.
func awaits(holds func() bool) bool {
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if holds() {
			return true
		}
	}
	return false
}

// A server that answers with a status alone is not a riddle: client and log are told it. What it refused has not run.
func TestStatusWithoutResponse(t *testing.T) {
	for status, outcome := range map[int]string{200: mcp.Unknown, 202: mcp.Unknown, 307: mcp.Unknown, 400: mcp.Failed, 401: mcp.Failed, 404: mcp.Failed, 429: mcp.Failed, 502: mcp.Unknown} {
		g := &recorder{}
		r := newRig(t, g.ServeHTTP)
		server := httptest.NewServer(answer(status, map[string]string{"Content-Type": "text/html"}, "<html>"))
		defer server.Close()
		u := newRemote(t.Context(), server.URL, func() (string, error) { return "", nil }, server.Client(), false, r.gate.log)
		u.relay, r.server.w = r.relay, u
		m, err := mcp.Parse([]byte(call))
		if err != nil {
			t.Fatal(err)
		}
		// As after its admission.
		q := &request{Message: m, governed: true, sent: true, written: make(chan struct{}), began: time.Now()}
		q.admitted = Admitted{call: mcp.Call{Server: "kit", Name: "t", Arguments: []byte("{}")}, id: "mcp-1"}
		r.asked[m.ID.Key()] = q
		if err := r.pass(q, []byte(call)); err != nil {
			t.Fatal(err)
		}
		u.work.wait()
		r.gate.reports.wait()
		told, want := r.toClient.take()+r.log.take(), fmt.Sprintf("the server answered with status %d", status)
		if n := strings.Count(told, want); status/100 == 2 && n != 0 || status/100 != 2 && n != 2 {
			t.Errorf("status %d: client and log have %s", status, told)
		}
		if done := g.of("PostToolUse"); len(done) != 1 || !strings.Contains(fmt.Sprint(done), "outcome:"+outcome) {
			t.Errorf("status %d: on record is %v, want %s", status, done, outcome)
		}
		u.stop()
	}
}

// Over HTTP, a request whose answer cannot be passed on fails at once, though its stream goes on.
func TestUnreadAnswerOverHTTP(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", eventStream)
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"id\":8,\"result\":\"\\ud83d\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"\\ud83d\"}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-release
	}))
	defer server.Close()
	defer close(release)
	r := newRig(t, answer(503, nil, `{}`))
	u := newRemote(t.Context(), server.URL, func() (string, error) { return "", nil }, server.Client(), false, r.gate.log)
	defer u.stop()
	client := &lines{make(chan string)}
	u.relay, r.server.w, r.client.w = r.relay, u, client
	if err := r.fromClient(t.Context(), []byte(longRequest)); err != nil {
		t.Fatal(err)
	}
	if got := <-client.all; !strings.Contains(got, `"id":7,`) || !strings.Contains(got, "the server's answer") {
		t.Errorf("the client got %s", got)
	}
}

// What a server sends to keep a stream open is held by nothing, so it counts in no room, however much of it comes. An event
// counts while it comes, whatever stands between its lines.
func TestKeptOpenStreams(t *testing.T) {
	const most = 1 << 20
	part := strings.Repeat("data: "+strings.Repeat(" ", 1<<10)+"\n:\n", most>>10)
	for name, c := range map[string]struct {
		text    string
		noRoom  bool
		holding int64 // at most, at any time
	}{
		"comments that end like events": {strings.Repeat(": ping - 2026-11-28 00:00:00.000000+00:00\r\n\r\n", 4*most/45), false, 128 << 10},
		"comments alone":                {strings.Repeat(": ping\n", 4*most/7), false, 128 << 10},
		"events without data":           {strings.Repeat("event: ping\nid: 1\n\n", 4*most/19), false, 128 << 10},
		"an event without room":         {part, true, most},
	} {
		all, held := shares.New(most), int64(0)
		u := &remote{room: room{all: all, of: shares.Caller{Tenant: "one"}}}
		body := io.TeeReader(strings.NewReader(c.text), writerFunc(func([]byte) { held = max(held, all.Held()) }))
		err := u.read(&http.Response{Body: io.NopCloser(body), Header: http.Header{"Content-Type": {eventStream}}}, nil, &position{})
		if errors.Is(err, shares.ErrNoRoom) != c.noRoom || held > c.holding || all.Held() != 0 {
			t.Errorf("%s: %v; %d bytes were held, %d are", name, err, held, all.Held())
		}
	}
}
