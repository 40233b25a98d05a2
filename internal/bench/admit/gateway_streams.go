package admit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/bench/spending"
	"github.com/countersign-dev/countersign/internal/cli/target"
)

// webAdmission asks the gateway for a verdict.
type webAdmission struct {
	client     *http.Client
	url, token string
	body       []byte
}

func newWebAdmission(ready target.Ready, body []byte, clients int) *webAdmission {
	return &webAdmission{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}, url: ready.GatewayURL + "/v1/admit/agenthook",
		token: ready.Roles[target.Runtime].Token, body: body}
}

func (w *webAdmission) close() { w.client.CloseIdleConnections() }

// admit has the form of an operation; it needs no connection to NATS.
func (w *webAdmission) admit(ctx context.Context, _ *nats.Conn) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(w.body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+w.token)
	req.Header.Set("Content-Type", "application/json")
	res, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK || res.Header.Get(events.HeaderVerdict) != string(events.Allow) {
		return fmt.Errorf("over HTTP: status %d, verdict %s: %w", res.StatusCode, res.Header.Get(events.HeaderVerdict), measure.ErrNotAllowed)
	}
	return nil
}

// subscriber is a stream that has begun, on a connection without a buffer for more than a line.
type subscriber struct {
	conn net.Conn
	read *bufio.Reader
}

// subscribe opens n streams of decisions. The caller closes them.
func subscribe(ctx context.Context, ready target.Ready, n int) (list []subscriber, err error) {
	u, err := url.Parse(ready.GatewayURL)
	if err != nil {
		return nil, err
	}
	request := "GET /v1/follow/decisions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + ready.Roles[target.Subscriber].Token + "\r\n\r\n"
	for range n {
		s, err := dialStream(ctx, u, request)
		if err != nil {
			closeAll(list)
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

func dialStream(ctx context.Context, at *url.URL, request string) (subscriber, error) {
	dial := func(ctx context.Context, host string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", host)
	}
	if at.Scheme == "https" {
		dial = dialTLS
	}
	conn, err := dial(ctx, at.Host)
	if err != nil {
		return subscriber{}, err
	}
	s := subscriber{conn, bufio.NewReaderSize(conn, 512)}
	if _, err := io.WriteString(conn, request); err != nil {
		return s, errors.Join(err, conn.Close())
	}
	status, err := s.read.ReadString('\n')
	if err == nil && !strings.Contains(status, " 200 ") {
		err = fmt.Errorf("a stream is answered %s", strings.TrimSpace(status))
	}
	for err == nil { // the first comment says that the stream has begun
		var line string
		if line, err = s.read.ReadString('\n'); strings.HasPrefix(line, ": ") {
			return s, nil
		}
	}
	return s, errors.Join(err, conn.Close())
}

func closeAll(list []subscriber) {
	for _, s := range list {
		_ = s.conn.Close()
	}
}

// idleStreams opens n streams and reads how much memory the gateway has then.
func idleStreams(ctx context.Context, ready target.Ready, n int) (measure.Latency, error) {
	before, err := spending.Resident(ready.PIDs["gateway"])
	if err != nil {
		return measure.Latency{}, err
	}
	begun := time.Now()
	list, err := subscribe(ctx, ready, n)
	if err != nil {
		return measure.Latency{}, err
	}
	defer closeAll(list)
	took := time.Since(begun)
	after, err := spending.Resident(ready.PIDs["gateway"])
	return measure.Latency{What: "idle streams", Clients: n, Count: n, PerSecond: float64(n) / took.Seconds(),
		Resident: after >> 20, PerItem: float64(after-before) / 1024 / float64(n)}, err
}

// fanout asks for verdicts one after the other, and measures from each answer, when the decision is on
// the log, until each stream has shown it.
func fanout(ctx context.Context, b *loadBench, ready target.Ready, n, count int) (measure.Latency, error) {
	list, err := subscribe(ctx, ready, n)
	if err != nil {
		return measure.Latency{}, err
	}
	defer closeAll(list)
	web := newWebAdmission(ready, b.request, 1)
	defer web.close()
	return measureFanout("event to streams", list, count, func() error { return web.admit(ctx, nil) })
}

// floorEvent is as long as a decision on a stream.
var floorEvent = []byte("data: " + strings.Repeat("x", 1500) + "\n\n")

// fanoutFloor measures the same with a server that only writes.
func fanoutFloor(ctx context.Context, n, count int) (measure.Latency, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return measure.Latency{}, err
	}
	defer func() { _ = l.Close() }()
	var list []subscriber
	var out []net.Conn
	defer func() {
		closeAll(list)
		for _, c := range out {
			_ = c.Close()
		}
	}()
	for range n {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		if err != nil {
			return measure.Latency{}, err
		}
		list = append(list, subscriber{conn, bufio.NewReaderSize(conn, 512)})
		peer, err := l.Accept()
		if err != nil {
			return measure.Latency{}, err
		}
		out = append(out, peer)
	}
	return measureFanout("floor: writes alone", list, count, func() error {
		go func() {
			for _, c := range out {
				_, _ = c.Write(floorEvent) // a reader without its event is an error there
			}
		}()
		return nil
	})
}

// fanoutLimit bounds the wait for one event.
const fanoutLimit = 30 * time.Second

// measureFanout sends count events and measures when each reader has each of them.
func measureFanout(what string, list []subscriber, count int, send func() error) (measure.Latency, error) {
	var took []time.Duration
	begun := time.Now()
	for range count {
		arrived := make([]time.Time, len(list))
		failed := make([]error, len(list))
		var readers sync.WaitGroup
		for i, s := range list {
			readers.Go(func() { arrived[i], failed[i] = s.awaitEvent() })
		}
		err := send()
		sent := time.Now()
		readers.Wait()
		if err := errors.Join(append(failed, err)...); err != nil {
			return measure.Latency{}, err
		}
		for _, at := range arrived {
			took = append(took, max(0, at.Sub(sent)))
		}
	}
	return measure.LatencyOf(what, len(list), took, time.Since(begun)), nil
}

// awaitEvent reads up to the end of one event's data.
func (s subscriber) awaitEvent() (time.Time, error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(fanoutLimit)); err != nil {
		return time.Time{}, err
	}
	inData := false
	for {
		part, err := s.read.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return time.Time{}, err
		}
		inData = inData || bytes.HasPrefix(part, []byte("data: "))
		if inData && err == nil {
			return time.Now(), nil
		}
	}
}
