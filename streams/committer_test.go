package streams

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func newCommitter(t *testing.T, f *fixture, opt CommitterOptions) *Committer {
	t.Helper()
	if opt.Stream == "" {
		opt.Stream = DefaultShard
	}
	c, err := NewCommitter(f.conn("admitter"), opt)
	ok(t, err)
	t.Cleanup(c.Close)
	return c
}

// Every Append's sequences are those of its own messages, in order, however
// they were grouped.
func TestCommitterSequences(t *testing.T) {
	f := start(t)
	for _, tt := range []struct {
		name       string
		goroutines int
		opt        CommitterOptions
	}{
		{"alone", 1, CommitterOptions{}}, {"singles", 40, CommitterOptions{BatchAbove: 1 << 20}},
		{"batches", 100, CommitterOptions{}}, {"small batches", 40, CommitterOptions{BatchAbove: 1, MaxBatch: 7}},
		{"little room", 40, CommitterOptions{MaxPending: 6}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCommitter(t, f, tt.opt)
			var mu sync.Mutex
			want := map[uint64]string{}
			var wg sync.WaitGroup
			for g := range tt.goroutines {
				wg.Go(func() {
					for k := range 5 {
						var msgs []Msg
						for i := range 1 + (g+k)%4 {
							msgs = append(msgs, Msg{Subject: "gov.decisions.acme.deny.s", Body: []byte(fmt.Sprint(tt.name, g, k, i))})
						}
						seqs, err := c.Append(ctx(t), msgs...)
						if err != nil || len(seqs) != len(msgs) {
							t.Error(seqs, err)
							return
						}
						mu.Lock()
						for i, s := range seqs {
							want[s] = string(msgs[i].Body)
							if i > 0 && s <= seqs[i-1] {
								t.Error("sequences do not increase", seqs)
							}
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			found := 0
			for _, m := range f.readAll() {
				if w, there := want[m.Seq]; there {
					found++
					if w != string(m.Body) {
						t.Errorf("at %d: %q, want %q", m.Seq, m.Body, w)
					}
				}
			}
			if found != len(want) {
				t.Errorf("%d of %d messages are where they were said to be", found, len(want))
			}
		})
	}
}

func TestCommitterRefuses(t *testing.T) {
	f := start(t)
	c := newCommitter(t, f, CommitterOptions{MaxBatch: 20})
	big := make([]byte, DefaultMaxPayload)
	for _, tt := range []struct {
		name string
		msgs []Msg
		want error
	}{
		{"too many", make([]Msg, 21), ErrTooLarge},
		{"too big", []Msg{{Subject: "gov.decisions.a.b.c", Body: big}}, ErrTooLarge},
		{"no subject", []Msg{{}}, ErrRefused},
		{"wildcard", []Msg{{Subject: "gov.decisions.>"}}, ErrRefused},
		{"space", []Msg{{Subject: "gov.decisions.a b"}}, ErrRefused},
		{"reserved header", []Msg{{Subject: "gov.decisions.a.b.c", Header: map[string][]string{"nats-ROLLUP": {"all"}}}}, ErrReservedHeader},
		{"a header that no client writes", []Msg{{Subject: "gov.decisions.a.b.c", Header: map[string][]string{"ce-a b": {"x"}}}}, ErrHeaderName},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := c.Append(ctx(t), tt.msgs...)
			if !errors.Is(err, tt.want) || !errors.Is(err, ErrRefused) || errors.Is(err, ErrAmbiguous) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
	if n := f.state().Messages; n != 0 {
		t.Errorf("%d messages stored", n)
	}
	seqs, err := c.Append(ctx(t))
	if seqs != nil || err != nil {
		t.Error(seqs, err)
	}
}

// An acknowledgement by another stream than the log is doubt, not success.
func TestCommitterWrongStream(t *testing.T) {
	f := start(t)
	c := newCommitter(t, f, CommitterOptions{Stream: "OTHER"})
	if _, err := c.Append(ctx(t), decision(1)); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("single: %v", err)
	}
	c2 := newCommitter(t, f, CommitterOptions{Stream: "OTHER", BatchAbove: 1})
	if _, err := c2.Append(ctx(t), decision(1), decision(2)); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("batch: %v", err)
	}
}

// A subject that no stream takes: certainly not stored.
func TestCommitterNoStream(t *testing.T) {
	f := start(t)
	c := newCommitter(t, f, CommitterOptions{Timeout: guard})
	_, err := c.Append(ctx(t), Msg{Subject: "_R_.nobody"})
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "provisioned") {
		t.Error(err)
	}
}

// A subject that the user may not publish on is never acknowledged: doubt,
// after the timeout, and the next message of the same publisher is stored. Only the first
// one has a short timeout: the disk may take longer.
func TestCommitterDeniedSubjectIsDoubt(t *testing.T) {
	f := start(t)
	c := newCommitter(t, f, CommitterOptions{})
	l, err := newSender(c.nc, DefaultShard, 100*time.Millisecond)
	ok(t, err)
	defer l.close()
	commit := func(m Msg) error {
		ok(t, c.room.Acquire(ctx(t), 1))
		call := &appendCall{msgs: []Msg{m}, done: make(chan struct{})}
		c.commitGroup(l, []*appendCall{call})
		<-call.done
		return call.err
	}
	if err := commit(Msg{Subject: "gov.calls.acme.open.s"}); !errors.Is(err, ErrAmbiguous) {
		t.Error(err)
	}
	l.timeout = guard
	if err := commit(decision(1)); err != nil {
		t.Error(err)
	}
}

// A message refused by the server inside a group fails its own Append only.
func TestCommitterBadMessageFailsAlone(t *testing.T) {
	cfg := testConfig(t)
	srv, err := startServer(t, cfg)
	ok(t, err)
	f := &fixture{tb: t, cfg: cfg, srv: srv}
	t.Cleanup(func() { f.srv.Shutdown() })
	shard := Shard{}.streamConfigs()[0]
	shard.MaxMsgSize = 1000
	_, err = f.js(f.conn("provisioner")).CreateStream(ctx(t), shard)
	ok(t, err)
	c := newCommitter(t, f, CommitterOptions{BatchAbove: 1})
	bad := Msg{Subject: "gov.decisions.acme.allow.s", Body: make([]byte, 2000)}
	var calls []*appendCall
	for i := range 10 {
		call := &appendCall{msgs: []Msg{decision(i), decision(i)}, done: make(chan struct{})}
		if i == 4 {
			call.msgs = []Msg{bad, bad}
		}
		if i == 7 {
			call.msgs = []Msg{decision(i), bad}
		}
		ok(t, c.room.Acquire(ctx(t), 2))
		calls = append(calls, call)
	}
	c.mu.Lock()
	c.queue, c.queued = append(c.queue, calls...), 20 // one group for certain
	c.mu.Unlock()
	c.changed.Signal()
	for i, call := range calls {
		<-call.done
		switch {
		case i == 4 && (!errors.Is(call.err, ErrRefused) || errors.Is(call.err, ErrAmbiguous)):
			t.Errorf("all refused: %v", call.err)
		case i == 7 && (!errors.Is(call.err, ErrAmbiguous) || errors.Is(call.err, ErrRefused)):
			t.Errorf("half stored: %v", call.err)
		case i != 4 && i != 7 && call.err != nil:
			t.Errorf("call %d: %v", i, call.err)
		}
	}
}

// Beyond MaxPending Append waits, and gives up with its context.
func TestCommitterBackpressure(t *testing.T) {
	f := start(t)
	c := newCommitter(t, f, CommitterOptions{MaxPending: 4})
	ok(t, c.room.Acquire(ctx(t), 4)) // as if four were in flight
	short, cancel := context.WithTimeout(ctx(t), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Append(short, decision(1)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrAmbiguous) {
		t.Errorf("%v, want the context's error: nothing was sent", err)
	}
	c.room.Release(4)
	seqs, err := c.Append(ctx(t), decision(1))
	if err != nil || seqs[0] != 1 {
		t.Error(seqs, err)
	}
}

// A caller that gives up while queued takes its messages with it; one that
// gives up while they are in flight is in doubt.
func TestCommitterGiveUp(t *testing.T) {
	f := start(t)
	c := newCommitter(t, f, CommitterOptions{})
	gone, cancel := context.WithCancel(ctx(t))
	cancel()
	if _, err := c.Append(gone, decision(1)); err == nil {
		t.Error("no error")
	}
	f.stop()
	late, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Append(late, decision(2)); err == nil {
		t.Error("no error without a server")
	}
	f.restart()
}

func TestCommitterClose(t *testing.T) {
	f := start(t)
	c, err := NewCommitter(f.conn("admitter"), CommitterOptions{Stream: DefaultShard})
	ok(t, err)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for {
				if _, err := c.Append(ctx(t), decision(i)); err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	eventually(t, func() bool { return f.state().Messages > 100 })
	c.Close()
	wg.Wait()
	c.Close()
}

// The server stops and comes back while many append. Nothing that was
// acknowledged is missing, and appending goes on by itself.
func TestCommitterServerRestart(t *testing.T) {
	f := start(t)
	c := newCommitter(t, f, CommitterOptions{})
	run, stop := context.WithCancel(ctx(t))
	var mu sync.Mutex
	acked := map[uint64]string{}
	failed := 0
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(acked) }
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			for i := 0; run.Err() == nil; i++ {
				body := strconv.Itoa(g) + "/" + strconv.Itoa(i)
				seqs, err := c.Append(context.Background(), Msg{Subject: "gov.decisions.acme.allow.s", Body: []byte(body)})
				mu.Lock()
				if err == nil {
					acked[seqs[0]] = body
				} else {
					failed++
				}
				mu.Unlock()
				if err != nil && !errors.Is(err, ErrAmbiguous) && !errors.Is(err, ErrRefused) {
					t.Error(err)
				}
			}
		})
	}
	eventually(t, func() bool { return count() > 500 })
	f.stop()
	before := count()
	f.restart()
	eventually(t, func() bool { return count() > before+500 })
	stop()
	wg.Wait()
	t.Logf("%d acknowledged, %d failed", len(acked), failed)
	log := f.readAll()
	for seq, body := range acked {
		if seq > uint64(len(log)) || string(log[seq-1].Body) != body {
			t.Fatalf("acknowledged message %d is missing", seq)
		}
	}
}

// Replies to a round that was given up settle nothing in the next.
func TestLaneIgnoresLateReplies(t *testing.T) {
	f := start(t)
	l, err := newSender(f.conn("admitter"), DefaultShard, guard)
	ok(t, err)
	defer l.close()
	late := &nats.Msg{Data: []byte(`{"stream":"GOV","seq":999}`)}
	for _, subj := range []string{l.replySubject(0), l.inbox + ".1.5", l.inbox + ".1.-1", l.inbox + ".1.x", l.inbox + ".x.0"} {
		m := *late
		m.Subject = subj
		l.acks <- &m
	}
	out := l.publishEach(ctx(t), []Msg{decision(1), decision(2)}, nil)
	if out[0] != (publishOutcome{seq: 1}) || out[1] != (publishOutcome{seq: 2}) {
		t.Errorf("%+v", out)
	}
}

func TestAppendFenced(t *testing.T) {
	f := start(t)
	nc := f.conn("correlator")
	cursor := "gov.control.GOV.cursor"
	group := func(n int) (msgs []Msg) {
		for i := range n - 1 {
			msgs = append(msgs, Msg{Subject: "gov.calls.acme.open.s", Body: []byte(strconv.Itoa(i))})
		}
		return append(msgs, Msg{Subject: cursor, Body: []byte("{}")})
	}
	last := uint64(0)
	for _, n := range []int{1, 2, 40, MaxBatch, 1} {
		seqs, err := AppendFenced(ctx(t), nc, DefaultShard, group(n), Fence{cursor, last})
		ok(t, err)
		if len(seqs) != n || seqs[0] != last+1 || seqs[n-1] != last+uint64(n) {
			t.Fatal(n, seqs)
		}
		stale := last
		last = seqs[n-1]
		for _, k := range []int{1, 2, 50} {
			if _, err := AppendFenced(ctx(t), nc, DefaultShard, group(k), Fence{cursor, stale}); !errors.Is(err, ErrFenced) || !errors.Is(err, ErrRefused) {
				t.Errorf("stale writer, %d messages: %v, want ErrFenced", k, err)
			}
		}
		if st := f.state(); st.LastSeq != last {
			t.Fatalf("a fenced-off writer left something: %+v, want last %d", st, last)
		}
	}
	for name, msgs := range map[string][]Msg{
		"none": nil, "too many": group(MaxBatch + 1), "fence not last": {{Subject: cursor}, {Subject: "gov.calls.a.b.c"}},
		"fence twice": {{Subject: cursor}, {Subject: cursor}}, "reserved": {{Subject: cursor, Header: map[string][]string{headerBatchCommit: {"1"}}}},
	} {
		if _, err := AppendFenced(ctx(t), nc, DefaultShard, msgs, Fence{cursor, last}); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Of writers racing for one fence exactly one wins each round.
func TestAppendFencedRace(t *testing.T) {
	f := start(t)
	cursor := "gov.control.GOV.cursor"
	conns := []*nats.Conn{f.conn("correlator"), f.conn("correlator"), f.conn("correlator")}
	last := uint64(0)
	for round := range 20 {
		var mu sync.Mutex
		var won []uint64
		var wg sync.WaitGroup
		for w, nc := range conns {
			wg.Go(func() {
				msgs := []Msg{{Subject: "gov.calls.acme.open.s", Body: []byte(fmt.Sprint(round, w))}, {Subject: cursor}}
				seqs, err := AppendFenced(ctx(t), nc, DefaultShard, msgs, Fence{cursor, last})
				if err != nil && !errors.Is(err, ErrFenced) {
					t.Error(err)
				}
				if err == nil {
					mu.Lock()
					won = append(won, seqs[1])
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d: %d winners", round, len(won))
		}
		last = won[0]
	}
	if st := f.state(); st.Messages != 40 {
		t.Errorf("%+v", st)
	}
}

func TestPublishEvents(t *testing.T) {
	f := start(t)
	nc := f.conn("admitter")
	for _, n := range []int{0, 1, 12, 13, 1000, 1001, 2050} {
		before := f.state().Messages
		ok(t, PublishEvents(ctx(t), nc, events64("runtime", n)))
		if got := f.state().Messages - before; got != uint64(n) {
			t.Errorf("%d of %d stored", got, n)
		}
	}
	for i, m := range f.readAll()[1+12+13:][:1000] {
		if want := fmt.Sprintf(`{"n":%d}`, i); string(m.Body) != want || m.HeaderValue("ce-id") != strconv.Itoa(i) {
			t.Fatalf("%s, want %s: order or content lost", m.Body, want)
		}
	}
}

// endsAfter is a context that ends when its end was asked for some times.
type endsAfter struct {
	context.Context
	times int
}

func (c *endsAfter) Done() <-chan struct{} {
	if c.times--; c.times >= 0 {
		return c.Context.Done()
	}
	ended := make(chan struct{})
	close(ended)
	return ended
}

func (*endsAfter) Err() error { return context.Canceled }

func TestPublishEventsNamesWhatFailed(t *testing.T) {
	f := start(t)
	nc := f.conn("admitter")
	msgs := events64("runtime", 4)
	msgs[2].Subject = "bad subject"
	err := PublishEvents(ctx(t), nc, msgs)
	var pe *PublishError
	if !errors.As(err, &pe) || len(pe.Failed) != 4 || !errors.Is(err, ErrRefused) || f.state().Messages != 0 {
		t.Errorf("%v", err)
	}
	msgs = events64("runtime", 3)
	msgs[1].Subject = "gov.calls.acme.open.s1"           // not permitted: never acknowledged
	err = PublishEvents(&endsAfter{ctx(t), 2}, nc, msgs) // while it waits for the third acknowledgement
	if !errors.As(err, &pe) || len(pe.Failed) != 1 || !errors.Is(pe.Failed[1], ErrAmbiguous) {
		t.Errorf("%v", err)
	}
	f.stop()
	err = PublishEvents(ctx(t), nc, events64("runtime", 30))
	if !errors.As(err, &pe) || len(pe.Failed) != 30 {
		t.Errorf("%v", err)
	}
	f.restart()
}

func FuzzReadAck(f *testing.F) {
	for _, s := range []string{`{"stream":"GOV","seq":1}`, `{"stream":"GOV","seq":1,"duplicate":true}`, `{"error":{"err_code":10071}}`,
		`{"stream":"X","seq":1}`, `{}`, ``, `[]`, `{"stream":"GOV","seq":-1}`, `{"stream":"GOV","seq":2,"batch":"b","count":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := readAck(&nats.Msg{Data: b}, DefaultShard)
		switch {
		case err == nil && (a.Seq == 0 || a.Stream != DefaultShard || a.Duplicate || a.Error != nil):
			t.Errorf("accepted %s", b)
		case err != nil && !errors.Is(err, ErrAmbiguous) && !errors.Is(err, ErrRefused):
			t.Errorf("unclassified: %v", err)
		}
	})
}

// What is to be signed is signed once, together with all of its group; what does
// not is left alone.
func TestCommitterSigns(t *testing.T) {
	f := start(t)
	var groups atomic.Int64
	var most atomic.Int64
	c := newCommitter(t, f, CommitterOptions{Sign: func(msgs []Msg) error {
		groups.Add(1)
		for _, m := range msgs {
			if !m.Sign || m.Header["X-Signature"] != nil {
				return errors.New("signed twice, or not asked for")
			}
			m.Header["X-Signature"] = []string{strings.Repeat("s", SignatureRoom-20)}
		}
		most.Store(max(most.Load(), int64(len(msgs))))
		return nil
	}})
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			plain, signed := decision(i), decision(i)
			plain.Header, signed.Header, signed.Sign = map[string][]string{}, map[string][]string{}, true
			_, err := c.Append(ctx(t), plain, signed)
			ok(t, err)
		})
	}
	wg.Wait()
	js := f.js(f.conn("correlator"))
	for seq := uint64(1); seq <= 400; seq++ {
		m, err := MessageAt(ctx(t), js, DefaultShard, seq)
		ok(t, err)
		if got := m.Header["X-Signature"] != nil; got != (seq%2 == 0) {
			t.Fatalf("message %d signed: %v", seq, got)
		}
	}
	if groups.Load() == 200 || most.Load() < 2 {
		t.Errorf("%d groups, the largest of %d: nothing was signed together", groups.Load(), most.Load())
	}
}

// A message that cannot be signed is refused, and nothing of its group is sent.
func TestCommitterCannotSign(t *testing.T) {
	f := start(t)
	m := decision(1)
	m.Sign = true
	for name, sign := range map[string]func([]Msg) error{"none": nil, "failing": func([]Msg) error { return errors.New("no key") }} {
		c := newCommitter(t, f, CommitterOptions{Sign: sign})
		if _, err := c.Append(ctx(t), m); !errors.Is(err, ErrRefused) || errors.Is(err, ErrAmbiguous) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := f.state().Messages; n != 0 {
		t.Errorf("%d messages stored", n)
	}
}

// TestHeaderNames: what passes the check is what the client writes.
func TestHeaderNames(t *testing.T) {
	t.Parallel()
	nc := start(t).conn("admitter")
	names := []string{"", "a", "Content-Type", "cé", "a\x00b"}
	for b := range 256 {
		names = append(names, "ce-"+string([]byte{byte(b)}))
	}
	for _, name := range names {
		h := map[string][]string{name: {"x"}}
		_, err := Msg{Subject: "gov.events.a.b.c", Header: h}.check(0)
		if sent := nc.PublishMsg(&nats.Msg{Subject: "gov.events.acme.a", Header: h}); (err == nil) != (sent == nil) || err != nil && !errors.Is(err, ErrHeaderName) {
			t.Errorf("%q: %v, and the client says %v", name, err, sent)
		}
		if sent := sendError(nc.PublishMsg(&nats.Msg{Subject: "gov.events.acme.a", Header: h})); err != nil && !errors.Is(sent, ErrRefused) {
			t.Errorf("%q: %v", name, sent)
		}
	}
}
