package streams

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams/embedded"
)

// dense collects what ReadLog delivers and fails on anything out of order.
type dense struct {
	t    *testing.T
	next uint64
	want uint64 // stop after this sequence
}

var errEnough = errors.New("enough")

func (d *dense) handle(batch []events.LogMessage) error {
	for _, m := range batch {
		if m.Seq != d.next {
			d.t.Errorf("sequence %d, want %d", m.Seq, d.next)
		}
		d.next = m.Seq + 1
	}
	if d.next > d.want {
		return errEnough
	}
	return nil
}

func TestReadLogFrom(t *testing.T) {
	f := start(t)
	ok(t, StoreAll(ctx(t), f.conn("admitter"), events64("runtime", 100)))
	js := f.js(f.conn("auditor"))
	for _, from := range []uint64{0, 1, 50, 100} {
		d := &dense{t: t, next: max(1, from), want: 100}
		if err := ReadLog(ctx(t), js, ReadOptions{Stream: DefaultShard, From: from, MaxBatch: 7}, d.handle); !errors.Is(err, errEnough) {
			t.Error(from, err)
		}
	}
	idle := func() error { return errEnough }
	if err := ReadLog(ctx(t), js, ReadOptions{Stream: DefaultShard, From: 101, Idle: idle}, nil); !errors.Is(err, errEnough) {
		t.Errorf("from the end: %v", err)
	}
	if err := ReadLog(ctx(t), js, ReadOptions{Stream: DefaultShard, From: 102}, nil); !errors.Is(err, ErrRewound) {
		t.Errorf("beyond the end: %v, want ErrRewound", err)
	}
	if err := ReadLog(ctx(t), f.js(f.conn("provisioner")), ReadOptions{Stream: "NONE"}, nil); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("no stream: %v", err)
	}
}

func TestReadLogLimitsAndContent(t *testing.T) {
	f := start(t)
	msgs := events64("runtime", 300)
	for i := range msgs {
		msgs[i].Body = make([]byte, 500)
		msgs[i].Header["ce-note"] = []string{strings.Repeat("n", 500)}
	}
	ok(t, StoreAll(ctx(t), f.conn("admitter"), msgs))
	d := &dense{t: t, next: 1, want: 300}
	err := ReadLog(ctx(t), f.js(f.conn("auditor")), ReadOptions{Stream: DefaultShard, MaxBatch: 50, MaxBytes: 10_000}, func(b []events.LogMessage) error {
		if len(b) > 10 {
			t.Errorf("%d messages of 1 KB in a batch of 10 KB", len(b))
		}
		if m := b[0]; m.Subject != msgs[0].Subject || m.HeaderValue("ce-id") == "" || time.Since(m.Time) > time.Minute || m.Time.Location() != time.UTC {
			t.Errorf("%+v", m)
		}
		return d.handle(b)
	})
	if !errors.Is(err, errEnough) {
		t.Error(err)
	}
}

// More than the server's flow control window, and a slow reader: nothing is
// lost, nothing comes twice.
func TestReadLogFlowControl(t *testing.T) {
	f := start(t, func(c *ServerConfig) { c.SyncInterval = "1m" })
	msgs := events64("runtime", 1000)
	for i := range msgs {
		msgs[i].Body = make([]byte, 16<<10)
	}
	nc := f.conn("admitter")
	for range 5 {
		ok(t, StoreAll(ctx(t), nc, msgs)) // 80 MB
	}
	d := &dense{t: t, next: 1, want: 5000}
	if err := ReadLog(ctx(t), f.js(f.conn("auditor")), ReadOptions{Stream: DefaultShard, MaxBatch: 64}, d.handle); !errors.Is(err, errEnough) {
		t.Error(err)
	}
}

func TestReadLogIdle(t *testing.T) {
	f := start(t)
	rt := f.conn("admitter")
	d := &dense{t: t, next: 1, want: 3}
	idles := 0
	err := ReadLog(ctx(t), f.js(f.conn("auditor")), ReadOptions{Stream: DefaultShard, IdleEvery: time.Millisecond, Idle: func() error {
		idles++ // each idle call, the first on an empty log, brings the next event
		return StoreAll(ctx(t), rt, []Msg{event("runtime", idles)})
	}}, d.handle)
	if !errors.Is(err, errEnough) || idles < 3 {
		t.Error(err, idles)
	}
}

// The reader survives two restarts of the server while events keep coming.
func TestReadLogServerRestart(t *testing.T) {
	f := start(t)
	rt := f.conn("admitter")
	publish := func(n int) {
		for { // the connection may still be reconnecting
			err := StoreAll(ctx(t), rt, events64("runtime", n))
			if err == nil {
				return
			}
			if !errors.Is(err, ErrRefused) {
				t.Error(err)
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	progress := make(chan uint64, 10000)
	run, cancel := context.WithCancel(ctx(t))
	done := make(chan error, 1)
	js := f.js(f.conn("auditor"))
	d := &dense{t: t, next: 1, want: 1 << 62}
	go func() {
		done <- ReadLog(run, js, ReadOptions{Stream: DefaultShard}, func(b []events.LogMessage) error {
			defer func() { progress <- d.next - 1 }()
			return d.handle(b)
		})
	}()
	until := func(seq uint64) {
		for got := uint64(0); got < seq; {
			select {
			case got = <-progress:
			case <-time.After(guard):
				t.Fatalf("the reader is stuck at %d, want %d", got, seq)
			}
		}
	}
	for round := range 3 {
		publish(100)
		until(uint64(100 * (round + 1)))
		if round < 2 {
			f.stop()
			eventually(t, func() bool { return rt.Status() != nats.CONNECTED })
			f.restart()
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// looseServer has a log that an attacker with the server's files, or an
// administrator, has made deletable.
func looseServer(t *testing.T) (*fixture, jetstream.JetStream, jetstream.Stream) {
	t.Helper()
	skipShort(t)
	srv, err := embedded.Start(context.Background(), fmt.Appendf(nil, "host: 127.0.0.1\nport: -1\nserver_name: loose\njetstream { store_dir: %q }\nauthorization { user: admin, password: pw-admin }", t.TempDir()), zerolog.Nop())
	ok(t, err)
	t.Cleanup(srv.Shutdown)
	f := &fixture{tb: t, srv: srv}
	js := f.js(f.conn("admin"))
	st, err := js.CreateStream(ctx(t), jetstream.StreamConfig{Name: DefaultShard, Subjects: []string{"gov.events.>"}})
	ok(t, err)
	for i := range 10 {
		m := event("admin", i)
		_, err := js.Publish(ctx(t), m.Subject, m.Body)
		ok(t, err)
	}
	return f, js, st
}

func TestReadLogGap(t *testing.T) {
	for _, tt := range []struct {
		name      string
		damage    func(jetstream.Stream) error
		want, got uint64
	}{
		{"deleted in the middle", func(s jetstream.Stream) error { return s.DeleteMsg(context.Background(), 5) }, 5, 6},
		{"erased in the middle", func(s jetstream.Stream) error { return s.SecureDeleteMsg(context.Background(), 5) }, 5, 6},
		{"cut off at the head", func(s jetstream.Stream) error {
			return s.Purge(context.Background(), jetstream.WithPurgeSequence(4))
		}, 1, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, js, st := looseServer(t)
			ok(t, tt.damage(st))
			d := &dense{t: t, next: 1, want: 10}
			err := ReadLog(ctx(t), js, ReadOptions{Stream: DefaultShard}, d.handle)
			var gap *GapError
			if !errors.As(err, &gap) || gap.Want != tt.want || gap.Got != tt.got {
				t.Errorf("%v, want gap %d..%d", err, tt.want, tt.got)
			}
			if d.next > tt.want {
				t.Errorf("read on to %d", d.next)
			}
		})
	}
}

// A log of which nothing is left is not read to its end before the gap is explained.
func TestReadLogEmptied(t *testing.T) {
	_, js, st := looseServer(t)
	ok(t, st.Purge(ctx(t)))
	idle := errors.New("idle")
	read := func(explain error) error {
		return ReadLog(ctx(t), js, ReadOptions{
			Stream: DefaultShard, Gap: func(uint64, uint64) error { return explain }, Idle: func() error { return idle },
		}, func([]events.LogMessage) error { return nil })
	}
	unexplained := &GapError{Stream: DefaultShard, Want: 1, Got: 11}
	if err := read(unexplained); !errors.Is(err, unexplained) {
		t.Errorf("a gap that is not explained: %v", err)
	}
	if err := read(nil); !errors.Is(err, idle) {
		t.Errorf("a gap that is explained: %v", err)
	}
}

// The consumer vanishes, and with it deliveries: the reader makes another. The
// stream is created anew while the reader follows: it stops.
func TestReadLogConsumerLostStreamRecreated(t *testing.T) {
	_, js, st := looseServer(t)
	d := &dense{t: t, next: 1, want: 1 << 62}
	reached := make(chan uint64, 100)
	done := make(chan error, 1)
	go func() {
		done <- ReadLog(ctx(t), js, ReadOptions{Stream: DefaultShard, heartbeat: 150 * time.Millisecond}, func(b []events.LogMessage) error {
			err := d.handle(b)
			reached <- d.next - 1
			return err
		})
	}()
	until := func(seq uint64) {
		for got := uint64(0); got < seq; {
			select {
			case got = <-reached:
			case err := <-done:
				t.Fatal(err)
			case <-time.After(2 * guard):
				t.Fatal("stuck")
			}
		}
	}
	until(10)
	for name := range st.ConsumerNames(ctx(t)).Name() {
		ok(t, js.DeleteConsumer(ctx(t), DefaultShard, name))
	}
	_, err := js.Publish(ctx(t), event("admin", 1).Subject, nil)
	ok(t, err)
	until(11)
	ok(t, js.DeleteStream(ctx(t), DefaultShard))
	_, err = js.CreateStream(ctx(t), jetstream.StreamConfig{Name: DefaultShard, Subjects: []string{"gov.events.>"}})
	ok(t, err)
	for i := range 20 { // longer than the old one: only its creation time tells
		_, err = js.Publish(ctx(t), event("admin", i).Subject, nil)
		ok(t, err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, ErrRecreated) {
			t.Errorf("%v, want ErrRecreated", err)
		}
	case <-time.After(2 * guard):
		t.Fatal("the reader follows another stream")
	}
}

// No consumer stays behind.
func TestReadLogCleansUp(t *testing.T) {
	f := start(t)
	f.settle("runtime")
	f.readAll()
	st, err := f.js(f.conn("provisioner")).Stream(ctx(t), DefaultShard)
	ok(t, err)
	eventually(t, func() bool {
		info, err := st.Info(ctx(t))
		ok(t, err)
		return info.State.Consumers == 0
	})
}

func TestStateHelpers(t *testing.T) {
	f := start(t)
	js := f.js(f.conn("auditor"))
	m, err := LastBySubject(ctx(t), js, DefaultShard, "gov.decisions.>")
	if m != nil || err != nil {
		t.Error(m, err)
	}
	f.settle("runtime")
	m, err = LastBySubject(ctx(t), js, DefaultShard, "gov.events.acme.>")
	if err != nil || m == nil || m.Seq != 1 || string(m.Body) != `{"n":-1}` || m.HeaderValue("ce-id") != "-1" {
		t.Error(m, err)
	}
	if m, err = MessageAt(ctx(t), js, DefaultShard, 2); m != nil || err != nil {
		t.Error(m, err)
	}
	if _, err = StreamState(ctx(t), f.js(f.conn("operator")), "NONE"); err == nil || !strings.Contains(err.Error(), "provisioned") {
		t.Error(err)
	}
	created := time.Date(2026, 11, 20, 7, 41, 50, 123456789, time.FixedZone("x", 3600))
	if got := IncarnationName("GOV", created); got != "GOV@20261120T064150.123456789Z" {
		t.Error(got)
	}
	if got := IncarnationName("GOV", time.Unix(0, 0)); got != "GOV@19700101T000000.000000000Z" {
		t.Error(got)
	}
}

func TestParseDelivery(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want delivery
		ok   bool
	}{
		{"$JS.ACK.GOV.c.1.17.3.1700000000000000001.4", delivery{17, 3, 1700000000000000001, 4}, true},
		{"$JS.ACK._.hash.GOV.c.1.17.3.1700000000000000001.4", delivery{17, 3, 1700000000000000001, 4}, true},
		{"$JS.ACK.dom.hash.GOV.c.1.17.3.1700000000000000001.4.rnd", delivery{17, 3, 1700000000000000001, 4}, true},
		{"$JS.ACK.GOV.c.1.17.3.1700000000000000001", delivery{}, false},
		{"$JS.ACK.GOV.c.1.x.3.1.4", delivery{}, false},
		{"$JS.FC.GOV.c.1.17.3.1.4", delivery{}, false},
		{"", delivery{}, false},
	} {
		if got, isOK := parseDelivery(tt.in); got != tt.want || isOK != tt.ok {
			t.Errorf("%s: %+v %v", tt.in, got, isOK)
		}
	}
}

// A delivery lost between server and client is no gap of the log: read again.
func TestReadLogLostDelivery(t *testing.T) {
	at := func(seq, order int) *nats.Msg {
		return &nats.Msg{Subject: "gov.events.a.b.c.d.e", Reply: fmt.Sprintf("$JS.ACK.GOV.c.1.%d.%d.1.0", seq, order)}
	}
	for _, tt := range []struct {
		name       string
		seq, order int
		retry, gap bool
	}{
		{"next", 12, 2, false, false}, {"lost on the way", 13, 3, true, false}, {"missing in the log", 13, 2, false, true},
		{"delivered twice", 11, 2, false, true}, {"server began again", 12, 1, true, false},
	} {
		r := &logReader{next: 11, options: ReadOptions{Stream: "GOV", MaxBatch: 100, MaxBytes: 1 << 20}}
		_, err := r.acceptMessage(at(11, 1))
		ok(t, err)
		_, err = r.acceptMessage(at(tt.seq, tt.order))
		var retry *retryError
		var gap *GapError
		if errors.As(err, &retry) != tt.retry || errors.As(err, &gap) != tt.gap {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func FuzzParseDelivery(f *testing.F) {
	f.Add("$JS.ACK.GOV.c.1.17.3.1700000000000000001.4")
	f.Add("$JS.ACK.d.h.GOV.c.1.17.3.1.4.x")
	f.Add("$JS.ACK........")
	f.Fuzz(func(_ *testing.T, s string) { parseDelivery(s) })
}
