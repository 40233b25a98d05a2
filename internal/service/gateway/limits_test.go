package gateway

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/internal/service/shares"
	"github.com/countersign-dev/countersign/streams"
)

// wire is a connection of a caller who writes HTTP by hand.
type wire struct {
	net.Conn
	tb   testing.TB
	read *bufio.Reader
}

// trusting is a client of the tests' own gateways, whose certificates sign themselves.
var trusting = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // G402: see above

// connect opens a connection and sends the beginning of a request on it.
func (r *rig) connect(begin string) *wire {
	r.tb.Helper()
	addr, overTLS := strings.CutPrefix(r.url, "https://")
	c, err := net.Dial("tcp", strings.TrimPrefix(addr, "http://"))
	servicetest.OK(r.tb, err)
	if overTLS {
		c = tls.Client(c, trusting)
	}
	r.tb.Cleanup(func() { _ = c.Close() })
	servicetest.OK(r.tb, c.SetDeadline(time.Now().Add(servicetest.Guard)))
	w := &wire{c, r.tb, bufio.NewReader(c)}
	w.send(begin)
	return w
}

func (w *wire) send(text string) {
	w.tb.Helper()
	_, err := io.WriteString(w, text)
	servicetest.OK(w.tb, err)
}

// answer reads an answer.
func (w *wire) answer() (int, http.Header, string) {
	w.tb.Helper()
	res, err := http.ReadResponse(w.read, nil)
	servicetest.OK(w.tb, err)
	body, err := io.ReadAll(res.Body)
	servicetest.OK(w.tb, err)
	return res.StatusCode, res.Header, string(body)
}

// closedByGateway fails unless the gateway has closed the connection and said nothing more.
func (w *wire) closedByGateway(what string) {
	w.tb.Helper()
	if rest, err := io.ReadAll(w.read); len(rest) > 0 || err != nil { // a time-out of the test is an error
		w.tb.Errorf("%s: %q, %v", what, rest, err)
	}
}

// head is the head of a request without its end.
func (r *rig) head(line, who string) string {
	return line + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + r.tokens[who] + "\r\n"
}

// metric is the sum of the samples of a metric that have these labels.
func (r *rig) metric(name string, labels ...string) (sum float64) {
	r.tb.Helper()
	_, text := r.do("GET", "/metrics", "", nil)
	for line := range strings.Lines(string(text)) {
		series, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "} ")
		if !strings.HasPrefix(series, name+"{") || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(series, l) }) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		servicetest.OK(r.tb, err)
		sum += n
	}
	return sum
}

func (r *rig) refusals(f gateway.Failure) float64 {
	r.tb.Helper()
	return r.metric("countersign_gateway_refused_total", fmt.Sprintf("code=%q", f))
}

// setUntilEnd sets a variable; the test calls it before it starts the gateway, which then has stopped before
// the variable is set back.
func setUntilEnd[T any](t *testing.T, variable *T, value T) {
	t.Helper()
	usual := *variable
	t.Cleanup(func() { *variable = usual })
	*variable = value
}

// A caller who begins a request and does not end it, and one who has nothing more to ask, lose their connections.
func TestReadAndIdleTimeouts(t *testing.T) {
	setUntilEnd(t, &idleTimeout, servicetest.Guard)
	r := start(t, func(f *Flags) { f.ReadTimeout = 100 * time.Millisecond })
	r.connect("GET /v1/caller HTTP/1.1\r\nHost: x\r\nX-Half: y\r\n").closedByGateway("half of a header")
	half := r.connect(r.head("POST /event", "runtime") + "Content-Length: 1000\r\n\r\n{")
	if status, _, body := half.answer(); status != http.StatusRequestTimeout || !strings.Contains(body, string(gateway.SlowBody)) {
		t.Errorf("half of a body: %d %s", status, body)
	}
	half.closedByGateway("after half of a body")
	if got := r.refusals(gateway.SlowBody); got != 1 {
		t.Errorf("%v refusals are counted", got)
	}
	servicetest.OK(t, r.service.Stop())
	idleTimeout = 50 * time.Millisecond
	r.serve()
	idle := r.connect(r.head("GET /v1/caller", "runtime") + "\r\n")
	if status, _, body := idle.answer(); status != http.StatusOK {
		t.Errorf("a whole request: %d %s", status, body)
	}
	idle.closedByGateway("an idle connection")
}

// The largest body is taken and one byte more is not, whether its length was told or not. So is a header.
func TestSizeLimits(t *testing.T) {
	const most = 4000
	r := start(t, func(f *Flags) { f.MaxBody = most })
	for size, want := range map[int]int{most: http.StatusOK, most + 1: http.StatusRequestEntityTooLarge} {
		body := bytes.Repeat([]byte(" "), size)
		copy(body, `{}`)
		if res, text := r.do("POST", "/validate-tool-precheck", "runtime", body); res.StatusCode != want {
			t.Errorf("%d bytes: %d %s", size, res.StatusCode, text)
		}
		chunked := r.connect(r.head("POST /validate-tool-precheck", "runtime") + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", size, body))
		if status, _, text := chunked.answer(); status != want {
			t.Errorf("%d bytes in chunks: %d %s", size, status, text)
		}
	}
	if got := r.refusals(gateway.BodyTooLarge); got != 2 {
		t.Errorf("%v refusals are counted", got)
	}
	large := "X-Large: " + strings.Repeat("y", maxHeader+8<<10) + "\r\n\r\n" // net/http reads 4 KiB more than it is told
	if got := r.firstLine(r.head("GET /v1/caller", "runtime") + large); got != "HTTP/1.1 431 Request Header Fields Too Large" {
		t.Errorf("a header that is too large: %s", got)
	}
}

// Callers share the memory for long bodies: one that sends them slowly leaves room for short ones and for others, and
// has its share back when the request is over.
func TestBodyMemory(t *testing.T) {
	s := &server{count: uncounted, bodies: shares.New(4 * shares.Step), flags: Flags{MaxBody: 1 << 20}} // two of them are the first caller's
	read := func(user string, body io.Reader) (release func(), code string) {
		r := httptest.NewRequest(http.MethodPost, "/event", body)
		_, release, p := s.readBody(r, token.Record{Role: token.Runtime, User: user}, s.flags.MaxBody)
		if p != nil {
			return func() {}, p.Code
		}
		return release, ""
	}
	sized := func(user string, n int) (code string) {
		release, code := read(user, bytes.NewReader(make([]byte, n)))
		release()
		return code
	}
	const long = shares.Free + 2*shares.Step
	for what, ends := range map[string]error{"whole": nil, "cut off": io.ErrUnexpectedEOF} {
		body, slow := io.Pipe()
		over := make(chan func())
		go func() { release, _ := read("rt1", body); over <- release }()
		for _, n := range []int{long - 1, 1} { // the second is read once the first has taken its share
			if _, err := slow.Write(make([]byte, n)); err != nil {
				t.Fatal(err)
			}
		}
		if got := sized("rt1", shares.Free+1); got != string(gateway.Overloaded) {
			t.Errorf("more than the share: %q", got)
		}
		if short, other := sized("rt1", shares.Free), sized("rt2", shares.Free+shares.Step); short != "" || other != "" {
			t.Errorf("a short body: %q, another caller: %q", short, other)
		}
		servicetest.OK(t, slow.CloseWithError(ends))
		release := <-over
		if held := s.bodies.Held() > 0; held != (ends == nil) {
			t.Errorf("%s: the memory is held while the request is worked on: %v", what, held)
		}
		release()
		if got := sized("rt1", long); got != "" || s.bodies.Held() != 0 {
			t.Errorf("%s: a long one afterwards: %q, %d bytes are held", what, got, s.bodies.Held())
		}
	}
}

// A user who sends too fast is told when to try again; another user is not held back.
func TestRateOfAUser(t *testing.T) {
	r := start(t, func(f *Flags) { f.Rate = 1 })
	c := r.connect("")
	for range 1000 {
		c.send(r.head("GET /v1/caller", "runtime") + "\r\n")
		status, header, body := c.answer()
		if status == http.StatusOK {
			continue
		}
		if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" || !strings.Contains(body, string(gateway.RateLimited)) {
			t.Fatalf("%d %v %s", status, header, body)
		}
		if res, body := r.do("GET", "/v1/caller", "subscriber", nil); res.StatusCode != http.StatusOK {
			t.Errorf("another user: %d %s", res.StatusCode, body)
		}
		if got := r.refusals(gateway.RateLimited); got != 1 {
			t.Errorf("%v refusals are counted", got)
		}
		return
	}
	t.Error("1000 requests in a row, at 1 a second, were let through")
}

// More requests at once than the gateway may work on are refused, and the place of one that is over is free again.
func TestMaxInflight(t *testing.T) {
	r := start(t, func(f *Flags) { f.MaxInflight = 1 })
	arrived, release := make(chan struct{}), make(chan struct{})
	stands := r.nats.Conn("admitter")
	_, err := stands.Subscribe("gov.admit.>", func(m *nats.Msg) {
		arrived <- struct{}{}
		<-release
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{events.HeaderVerdict: {"deny"}, events.HeaderDecisionID: {"d-1"}}, Data: []byte(`{"decision":"deny","reason":"x"}`)})
	})
	servicetest.OK(t, err)
	servicetest.OK(t, stands.Flush())
	pre := string(example(t, "requests/pre-tool-use.json"))
	ask := r.head("POST /event", "runtime") + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(pre), pre)
	for range 2 {
		first := r.connect(ask)
		<-arrived
		if got := r.metric("countersign_gateway_inflight"); got != 1 {
			t.Errorf("%v requests are worked on", got)
		}
		if status, header, body := r.connect(ask).answer(); status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" || !strings.Contains(body, `"decision":"deny"`) && !strings.Contains(body, string(gateway.Overloaded)) {
			t.Errorf("a second request: %d %v %s", status, header, body)
		}
		release <- struct{}{}
		if status, _, body := first.answer(); status != http.StatusOK {
			t.Errorf("the first one: %d %s", status, body)
		}
	}
	if got, verdicts := r.refusals(gateway.Overloaded), r.metric("countersign_gateway_admissions_total", `protocol="agenthook"`, `outcome="deny"`); got != 2 || verdicts != 2 {
		t.Errorf("%v refusals and %v verdicts are counted", got, verdicts)
	}
}

// A connection too many is closed at once; there is room again when another one is closed.
func TestMaxConnections(t *testing.T) {
	setUntilEnd(t, &spareConns, 0)
	r := start(t, func(f *Flags) { f.MaxStreams = 1 })
	get := r.head("GET /v1/caller", "runtime") + "\r\n"
	first := r.connect(get)
	if status, _, body := first.answer(); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	if n, err := r.connect("").Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("a connection too many: %d, %v", n, err)
	}
	servicetest.OK(t, first.Close())
	servicetest.Eventually(t, "there is room", func() bool {
		c := r.connect("")
		_, err := io.WriteString(c, get)
		n, readErr := c.Read(make([]byte, 1))
		return err == nil && readErr == nil && n == 1
	})
}

// Streams, requests that wait for an approval, AAEP subscriptions and WebSockets beyond their number are refused,
// and a place is free again when a stream ends.
func TestMaxStreams(t *testing.T) {
	r := startAAEP(t, func(f *Flags) { f.MaxStreams, f.UserStreams = 2, 2 })
	var open []*sse
	servicetest.Eventually(t, "the hub knows the log", func() bool {
		s := r.open("/v1/follow/decisions", "subscriber", "")
		if s.res.StatusCode == http.StatusOK {
			open = append(open, s)
		}
		return len(open) == 2
	})
	if got := r.metric("countersign_gateway_streams"); got != 2 {
		t.Errorf("%v streams are counted", got)
	}
	refused := func(what string, res *http.Response, body []byte) {
		t.Helper()
		if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %v %s", what, res.StatusCode, res.Header, body)
		}
	}
	refused("a third stream, of another token", r.open("/v1/follow/decisions", "lou", "").res, nil)
	for _, path := range []string{"/v1/follow/decisions", "/v1/approvals/w-1?wait=1"} {
		res, body := r.do("GET", path, "lou", nil)
		refused(path, res, body)
	}
	if got := r.refusals(gateway.TooManyStreams); got != 3 {
		t.Errorf("%v refusals are counted", got)
	}
	_ = open[0].res.Body.Close()
	servicetest.Eventually(t, "a place is free again", func() bool {
		r.nats.Publish("admitter", streams.Msg{Subject: subject.Space{Prefix: "gov"}.Decision("acme", "deny", "s"), Body: []byte(`{}`)})
		return r.open("/v1/follow/decisions", "lou", "").res.StatusCode == http.StatusOK
	})
	for i := range 3 {
		res, body := r.do("POST", "/aaep/v1/subscriptions", "lou", []byte(subscribe))
		if i < 2 && res.StatusCode != http.StatusCreated {
			t.Fatalf("subscription %d: %d %s", i, res.StatusCode, body)
		}
		if i == 2 {
			refused("a third subscription", res, body)
		}
	}
	if got := r.metric("countersign_gateway_aaep_subscriptions"); got != 2 {
		t.Errorf("%v subscriptions are counted", got)
	}
	res, body := r.do("GET", "/aaep/v1/ws", "lou", nil, "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol", "aaep.v1")
	refused("a WebSocket", res, body)
}
