package correlator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/lease"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// keeping is a worker alone that keeps its state in a directory and has resumed
// from there.
func keeping(tb testing.TB, n *servicetest.NATS, missingAfter time.Duration, dir string) *worker {
	tb.Helper()
	w := alone(tb, n, missingAfter, "keeps")
	w.snapshots = snapshots{stream: w.flags.Stream, dir: dir, key: []byte("key"), context: "test", options: newOptions(tb, n, missingAfter)}
	servicetest.OK(tb, w.resumeState(tb.Context()))
	return w
}

// path is where the snapshot is.
func (w *worker) path() string { return w.snapshots.filePath() }

// saveNow writes a snapshot and waits until it is there.
func (w *worker) saveNow(tb testing.TB) {
	tb.Helper()
	w.saveSnapshot()
	err := <-w.snapshots.writing
	w.snapshots.noteSaved(w.env, err)
	servicetest.OK(tb, err)
}

// A correlator that dies anywhere after a snapshot and goes on from it puts out
// what one does that never stopped, whatever was written when.
func TestExactlyOnceFromASnapshot(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	dir := t.TempDir()
	inputs := len(session(t, "sess-0000"))
	for round, flush := range []string{"never", "before the snapshot", "after the snapshot", "later"} {
		for k := 1; k <= inputs; k++ {
			before := uint64(len(n.Log()))
			n.Publish(servicetest.Runtime, session(t, fmt.Sprintf("sess-%d%03d", round, k))...)
			w := keeping(t, n, long, dir)
			if w.head == 0 && round+k > 1 {
				t.Fatal("it reads the log from its beginning")
			}
			for _, m := range n.Log()[w.head:] {
				w.feedOne(t, m)
				if m.Seq == before+uint64(k) {
					if flush == "before the snapshot" {
						servicetest.OK(t, w.flush(t.Context()))
					}
					w.saveNow(t)
					if flush == "after the snapshot" {
						servicetest.OK(t, w.flush(t.Context()))
					}
				}
			}
			if flush == "later" {
				servicetest.OK(t, w.flush(t.Context()))
			}
		}
	}
	w := keeping(t, n, long, dir)
	for _, m := range n.Log()[w.head:] {
		w.feedOne(t, m)
	}
	servicetest.OK(t, w.flush(t.Context()))
	compare(t, n, long)
}

// A snapshot that is not of this log, this configuration and this key, or not
// whole, is not used, and says why.
func TestSnapshotsThatDoNotFit(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	dir := t.TempDir()
	w := keeping(t, n, long, dir)
	log := n.Log()
	for _, m := range log[:2] {
		w.feedOne(t, m)
	}
	w.saveNow(t)
	good, err := os.ReadFile(w.path())
	servicetest.OK(t, err)
	load := func(change func(w *worker)) error {
		again := alone(t, n, long, "again")
		again.snapshots = w.snapshots
		change(again)
		err := again.loadSnapshot(t.Context(), uint64(len(log)))
		if err != nil && (again.head != 0 || again.core.Stats().Seq != 0 || len(again.pending) != 0) {
			t.Error("it took some of what it refused")
		}
		return err
	}
	file := func(b []byte) func(*worker) {
		return func(w *worker) { servicetest.OK(t, os.WriteFile(w.path(), b, 0o600)) }
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	for _, c := range []struct {
		name, says string
		change     func(*worker)
	}{
		{"cut off", "damaged", file(good[:len(good)-1])},
		{"changed", "damaged", file(flipped)},
		{"empty", "not one", file(nil)},
		{"another file", "not one", file([]byte(strings.Repeat("x", 100)))},
		{"another key", "master key", func(w *worker) { w.snapshots.key = []byte("other") }},
		{"another checkpoint key", "configuration", func(w *worker) { w.snapshots.context = "other" }},
		{"other options", "configuration", func(w *worker) { w.snapshots.options.MissingAfter++ }},
		{"another log", "of GOV@", func(w *worker) { w.snapshots.incarnation = "GOV@20200101T000000.000000000Z" }},
		{"an output that cannot be read", "waits", func(w *worker) {
			h, image, err := w.snapshots.openFile(good)
			servicetest.OK(t, err)
			h.Pending = append(h.Pending, savedOutput{Type: events.TypeFinding, Body: []byte("{}x")})
			servicetest.OK(t, w.snapshots.writeFile(w.path(), h, image))
		}},
		{"fits", "", func(*worker) {}},
	} {
		servicetest.OK(t, os.WriteFile(w.path(), good, 0o600))
		err := load(c.change)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil && !errors.Is(err, errSnapshot) && !errors.Is(err, correlation.ErrSnapshot) {
			t.Errorf("%s: %v is no refusal", c.name, err)
		}
	}
	servicetest.OK(t, os.WriteFile(w.path(), good, 0o600))
	changed, _, err := w.snapshots.openFile(good)
	servicetest.OK(t, err)
	changed.CursorSeq = 1000
	if _, err := w.matchesLog(t.Context(), changed, uint64(len(log))); !errors.Is(err, errSnapshot) {
		t.Errorf("a later cursor: %v", err)
	}
}

// A log that lost what a snapshot has, or has another message there, is not read from its beginning: the correlator
// ends, and the snapshot stays as the proof.
func TestASnapshotProvesThatTheLogLostMessages(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	for name, feed := range map[string]func(log []events.LogMessage) []events.LogMessage{
		"a longer log": func(log []events.LogMessage) []events.LogMessage {
			more := log[len(log)-1]
			more.Seq++
			return append(log, more)
		},
		"another message": func(log []events.LogMessage) []events.LogMessage {
			log[len(log)-1].Time = log[len(log)-1].Time.Add(1)
			return log
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := keeping(t, n, long, t.TempDir())
			for _, m := range feed(n.Log()) {
				w.feedOne(t, m)
			}
			w.saveNow(t)
			again := alone(t, n, long, "again")
			again.snapshots = w.snapshots
			if err := again.resumeState(t.Context()); !errors.Is(err, daemon.ErrUntrustedLog) || !strings.Contains(err.Error(), w.path()) {
				t.Errorf("it starts with %v", err)
			}
			if _, err := os.Stat(w.path()); err != nil {
				t.Error(err)
			}
		})
	}
}

// silentServer connects to the server over a relay. After hush, requests still arrive there and
// no answer comes back, as from a stream whose leader has just gone.
func silentServer(t *testing.T, n *servicetest.NATS, user string) (nc *nats.Conn, hush func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	servicetest.OK(t, err)
	var silent atomic.Bool
	var relays sync.WaitGroup
	relays.Go(func() {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", strings.TrimPrefix(n.URL(), "nats://"))
		if err != nil {
			_ = client.Close()
			return
		}
		relays.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
		answers := make([]byte, 64<<10)
		for {
			k, err := server.Read(answers)
			if err != nil {
				break
			}
			if !silent.Load() {
				_, _ = client.Write(answers[:k])
			}
		}
		_ = client.Close()
	})
	t.Cleanup(func() { _ = listener.Close(); relays.Wait() }) // after the connection's
	nc, err = streams.Connect(t.Context(), streams.ConnectOptions{URL: "nats://" + listener.Addr().String(), User: user, Password: "pw-" + user, Name: user, Log: zerolog.Nop()})
	servicetest.OK(t, err)
	t.Cleanup(nc.Close)
	return nc, func() { silent.Store(true) }
}

// A server that does not answer while a snapshot is compared with the log is waited for only so
// long, and the snapshot stays: the start is tried again.
func TestASnapshotWithoutAnAnswer(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	w := keeping(t, n, long, t.TempDir())
	for _, m := range n.Log() {
		w.feedOne(t, m)
	}
	servicetest.OK(t, w.flush(t.Context())) // so that the next one says that it has found a cursor
	w.saveNow(t)
	again := alone(t, n, long, "again")
	again.snapshots, again.cursorSeq = w.snapshots, 0
	nc, hush := silentServer(t, n, "correlator")
	js, err := jetstream.New(nc)
	servicetest.OK(t, err)
	again.nc, again.js = nc, js
	again.env.Log = zerolog.New(heard{"resuming", hush})
	ctx, cancel := context.WithTimeout(t.Context(), servicetest.Guard)
	defer cancel()
	err = again.resumeState(ctx)
	if ctx.Err() != nil || !streams.Transient(err) {
		t.Errorf("the start is not tried again: %v", err)
	}
	if _, err := os.Stat(w.path()); err != nil {
		t.Error(err)
	}
}

// A correlator that is killed while it writes a snapshot leaves a part of it, with arguments of calls: the next start
// removes it.
func TestAnUnfinishedSnapshotIsRemoved(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	w := keeping(t, n, long, t.TempDir())
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	for _, m := range n.Log() {
		w.feedOne(t, m)
	}
	killed := errors.New("killed")
	err := atomicfile.Stream(w.path(), 0o600, func(io.Writer) error {
		list, err := os.ReadDir(w.snapshots.dir)
		servicetest.OK(t, err)
		servicetest.OK(t, os.Link(filepath.Join(w.snapshots.dir, list[0].Name()), filepath.Join(w.snapshots.dir, list[0].Name()+"0"))) // stays
		return killed
	})
	if !errors.Is(err, killed) {
		t.Fatal(err)
	}
	w.saveNow(t)
	if again := keeping(t, n, long, w.snapshots.dir); again.head != w.head {
		t.Errorf("it resumes at %d, want %d", again.head, w.head)
	}
	list, err := os.ReadDir(w.snapshots.dir)
	servicetest.OK(t, err)
	if len(list) != 1 {
		t.Errorf("the directory has %v", list)
	}
}

// The service writes a snapshot when it stops and goes on from it.
func TestServiceResumes(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	f := flags(n, long)
	f.StateEvery = 8000
	f.StateDir = filepath.Join(t.TempDir(), "state")
	var open []streams.Msg
	for i := range f.StateEvery / saveSome {
		open = append(open, pre(i))
	}
	n.Publish(servicetest.Runtime, open...)
	servicetest.OK(t, ignoreCancel(run(t, f).AwaitReady().Stop()))
	info, err := os.Stat(filepath.Join(f.StateDir, "correlator-GOV.snapshot"))
	servicetest.OK(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	want, _ := undisturbed(newCore(t, n, long), n.Log())
	s := run(t, f).AwaitReady() // which it also is while it stands by
	servicetest.Eventually(t, "it goes on", func() bool { return len(outputs(n.Log())) >= len(want) })
	servicetest.OK(t, ignoreCancel(s.Stop()))
	compare(t, n, long)
}

// When a snapshot is due.
func TestWhenASnapshotIsWritten(t *testing.T) {
	now := time.Now()
	const much, some = 4000, 4000 / saveSome
	for _, c := range []struct {
		name  string
		news  uint64
		since time.Duration
		idle  bool
		pause time.Duration
		due   bool
	}{
		{"nothing new", 0, time.Hour, true, 0, false},
		{"much is new", much, time.Second, false, 0, true},
		{"much is new, but the last one took long", much, time.Second, false, time.Second, false},
		{"much is new, and the rest was long enough", much, saveRest * time.Second, false, time.Second, true},
		{"something is new and it is quiet", some, saveRestIdle, true, 0, true},
		{"something is new and it is quiet again", some, time.Second, true, 0, false},
		{"something is new and it is busy", some, time.Minute, false, 0, false},
		{"something is new for long", some, saveEvery, false, 0, true},
	} {
		w := &worker{shardLog: &shardLog{env: daemon.Env{Health: daemon.NewHealth()}}, core: correlation.New(correlation.Options{}), head: 1000 + c.news, last: events.LogMessage{}}
		w.flags.Stream = "GOV"
		w.snapshots = snapshots{stream: w.flags.Stream, dir: t.TempDir(), every: much, head: 1000, at: now.Add(-c.since), pause: c.pause}
		w.saveWhenDue(now, c.idle)
		if due := w.snapshots.writing != nil; due != c.due {
			t.Errorf("%s: %v", c.name, due)
		} else if due {
			w.snapshots.noteSaved(w.env, <-w.snapshots.writing)
		}
	}
}

// A snapshot that cannot be written makes the correlator unhealthy until one is: a restart would read the log again. It
// is tried again, without news and at the end, but not at once.
func TestASnapshotThatFailsIsReported(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	dir := t.TempDir()
	w := keeping(t, n, long, filepath.Join(dir, "state"))
	w.snapshots.every = saveSome // one message is news
	w.feedOne(t, n.Log()[0])
	for name, again := range map[string]func(){
		"idle": func() {
			if w.saveWhenDue(w.snapshots.at.Add(saveAgain-time.Second), true); w.snapshots.writing != nil {
				t.Error("it is tried again at once")
			}
			if w.saveWhenDue(w.snapshots.at.Add(saveAgain), true); w.snapshots.writing == nil {
				t.Fatal("it is not tried again")
			}
			w.snapshots.noteSaved(w.env, <-w.snapshots.writing)
		},
		"at the end": w.saveAtEnd,
	} {
		servicetest.OK(t, os.RemoveAll(filepath.Join(dir, "state")))
		servicetest.OK(t, os.WriteFile(filepath.Join(dir, "state"), nil, 0o600)) // no directory
		w.snapshots.head = 0
		w.saveSnapshot()
		w.snapshots.noteSaved(w.env, <-w.snapshots.writing)
		if problem := w.env.Health.Report().Problems["snapshot"]; !strings.Contains(problem, "not a directory") {
			t.Errorf("%s: %q", name, problem)
		}
		servicetest.OK(t, os.Remove(filepath.Join(dir, "state")))
		again()
		if problems := w.env.Health.Report().Problems; len(problems) > 0 {
			t.Errorf("%s: after one that was to be written: %v", name, problems)
		}
		if _, err := os.Stat(w.path()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// heard calls do at each log line that contains says, before the writer of the line continues.
type heard struct {
	says string
	do   func()
}

func (h heard) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(h.says)) {
		h.do()
	}
	return len(line), nil
}

// whenSaving has something done whenever the state is about to be written down.
func (w *worker) whenSaving(do func()) {
	w.env.Log = zerolog.New(heard{"writing a snapshot", do})
}

// A snapshot that is given up leaves the file of before and the state as they are, is
// not tried again at once, and can be written later.
func TestASnapshotThatIsGivenUp(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	w := keeping(t, n, long, t.TempDir())
	w.snapshots.every = 1
	log := n.Log()
	for _, m := range log[:2] {
		w.feedOne(t, m)
	}
	w.saveNow(t)
	before, err := os.ReadFile(w.path())
	servicetest.OK(t, err)
	for _, m := range log[2:] {
		w.feedOne(t, m)
	}
	w.snapshots.stop = func() bool { return true }
	w.saveSnapshot()
	if w.snapshots.writing != nil || w.snapshots.head != 2 {
		t.Fatalf("it is on its way to the disk, of sequence %d", w.snapshots.head)
	}
	after, err := os.ReadFile(w.path())
	servicetest.OK(t, err)
	if !bytes.Equal(before, after) {
		t.Error("the file is another one")
	}
	w.snapshots.stop = nil
	w.saveWhenDue(w.snapshots.at.Add(saveAgain-time.Second), true)
	if w.snapshots.writing != nil {
		t.Error("it is tried again at once")
	}
	w.saveWhenDue(w.snapshots.at.Add(saveAgain), true)
	if w.snapshots.writing == nil {
		t.Fatal("it is not tried again")
	}
	w.snapshots.noteSaved(w.env, <-w.snapshots.writing)
	again := keeping(t, n, long, w.snapshots.dir)
	if again.head != log[len(log)-1].Seq {
		t.Errorf("the snapshot is of sequence %d", again.head)
	}
	servicetest.OK(t, again.flush(t.Context()))
	compare(t, n, long)
}

// A standby that is writing its state down when the lease becomes free takes over
// without finishing that; and when it is told to stop itself, the next one has the
// lease before it writes down anything.
func TestNobodyWaitsForASnapshot(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	w := alone(t, n, long, "w")
	w.role = roleUnknown
	w.snapshots = snapshots{stream: w.flags.Stream, dir: t.TempDir(), every: 1, key: []byte("key")}
	lead := func() *lease.Lease {
		ctx, cancel := context.WithTimeout(t.Context(), servicetest.Guard)
		t.Cleanup(cancel)
		l, err := w.flags.HoldLease(ctx, w.js, "correlator", daemon.Env{Log: zerolog.Nop(), Health: daemon.NewHealth()}, nil)
		if err != nil {
			t.Error(err)
		}
		return l
	}
	active := lead()
	e := election{lead: make(chan *lease.Lease, 1), standby: make(chan struct{}, 1)}
	elected := make(chan error, 1)
	var successor *lease.Lease
	w.whenSaving(func() {
		if active != nil {
			active.Release()
			active = nil
			if err := <-elected; err != nil { // then the lease is there, and the worker is here
				t.Error(err)
			}
			return
		}
		successor = lead()
	})
	go func() { elected <- e.run(t.Context(), w) }()
	in := newDecodePipeline(w.core, w.keys)
	b := &batch{msgs: n.Log(), decoded: make(chan struct{})}
	in.decodeBatch(w.core.NewDecoder(), b)
	close(b.decoded)
	in.ordered <- b
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.runLoop(ctx, in, e) }()
	servicetest.Eventually(t, "its outputs are in the log", func() bool { return len(outputs(n.Log())) > 0 })
	if _, err := os.Stat(w.path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has finished its snapshot first: %v", err)
	}
	stop()
	servicetest.OK(t, ignoreCancel(<-ended))
	if successor == nil {
		t.Fatal("it has not written its state down at the end")
	}
	successor.Release()
	if _, err := os.Stat(w.path()); err != nil {
		t.Error(err)
	}
}

// What waits in a snapshot is counted when it is written, as if there had been no restart.
func TestOutputsOfASnapshotAreCounted(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	w := keeping(t, n, long, t.TempDir())
	for _, m := range n.Log() {
		w.feedOne(t, m)
	}
	w.saveNow(t)
	again := keeping(t, n, long, w.snapshots.dir)
	calls, findings := 0, 0
	for i, p := range w.pending {
		got := again.pending[i].out
		if p.out.State != got.State || (p.out.Finding == nil) != (got.Finding == nil) {
			t.Fatalf("output %d is %+v, and was %+v", i, got, p.out)
		}
		if f := p.out.Finding; f == nil {
			calls++
		} else if findings++; f.Rule != got.Finding.Rule || f.Severity != got.Finding.Severity || f.Retracts != got.Finding.Retracts {
			t.Errorf("finding %+v was %+v", got.Finding, f)
		}
	}
	if calls == 0 || findings == 0 {
		t.Errorf("%d calls and %d findings wait", calls, findings)
	}
}
