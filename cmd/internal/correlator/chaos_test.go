package correlator

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/cmd/internal/rig"
	record "github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

// instance is a place where a correlator runs, and runs again when it was killed
// or has stepped down.
type instance struct {
	env  []string
	log  *os.File
	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when nothing runs here any more
	over bool
	fell int // ends of its own accord
}

// run keeps it running. It dies with this process, whatever kills that: the kernel
// ties it to the thread that started it, so that thread is kept.
func (i *instance) run() error {
	i.cmd = exec.Command(os.Args[0])
	i.cmd.Env = append(os.Environ(), i.env...)
	i.cmd.Stderr = i.log
	i.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func(cmd *exec.Cmd) {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait()
		i.again(cmd.ProcessState)
	}(i.cmd)
	return <-started
}

// again starts the next one, unless it is over.
func (i *instance) again(last *os.ProcessState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if last.Exited() {
		i.fell++
	}
	if i.over || i.run() != nil {
		close(i.done)
	}
}

// kill kills what runs here.
func (i *instance) kill() {
	i.mu.Lock()
	defer i.mu.Unlock()
	_ = i.cmd.Process.Kill()
}

// fellBy is how often it has ended by itself.
func (i *instance) fellBy() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fell
}

// end kills it for good.
func (i *instance) end() {
	i.mu.Lock()
	if i.over {
		i.mu.Unlock()
		return
	}
	i.over = true
	_ = i.cmd.Process.Kill()
	i.mu.Unlock()
	<-i.done
}

// startInstance runs a correlator in a place of its own, with snapshots or
// without, until the test ends.
func startInstance(t *testing.T, n *rig.NATS, name string, snapshots bool) *instance {
	t.Helper()
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	rig.OK(t, err)
	f := n.Flags("correlator")
	i := &instance{log: log, done: make(chan struct{}), env: []string{
		envChild + "=1", "COUNTERSIGN_NATS_URL=" + f.Server, "COUNTERSIGN_NATS_USER=" + f.User, "COUNTERSIGN_NATS_PASSWORD=" + f.Password,
		"COUNTERSIGN_KEYS=" + f.Keys, "COUNTERSIGN_INSTANCE=" + name, "COUNTERSIGN_MISSING_AFTER=1h",
	}}
	if snapshots {
		i.env = append(i.env, "COUNTERSIGN_STATE="+filepath.Join(dir, "state"), "COUNTERSIGN_STATE_EVERY=400")
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	rig.OK(t, i.run())
	t.Cleanup(func() {
		i.end()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("end of the log of %s:\n%s", name, text[max(0, len(text)-6000):])
		}
		_ = log.Close()
	})
	return i
}

// chaosEvents are events of calls: announced, most of them completed, some of
// them twice, some never announced, some run with other arguments.
func chaosEvents(from, n int) (msgs []streams.Msg) {
	for i := from; len(msgs) < n; i++ {
		session := fmt.Sprintf("chaos-%d", i/25)
		put := func(typ string, id int, path string) {
			body := fmt.Sprintf(`{"schema_version":1,"event_id":"9a3e5b70-2222-4c22-8d33-%012d","event_type":"%s","timestamp":"2026-11-20T09:02:00Z",`+
				`"source":"a","session_id":"%s","tool_name":"read_file","tool_input":{"path":"%s"},"metadata":{"tool_call_id":"call-%d"}}`, id, typ, session, path, i)
			msgs = append(msgs, streams.Msg{Subject: "gov.events.acme.rt1.agenthook." + session + "." + typ, Body: []byte(body)})
		}
		if i%7 != 0 {
			put("PreToolUse", 2*i, "/x")
		}
		switch {
		case i%13 == 0:
			put("PostToolUse", 2*i+1, "/y")
		case i%5 != 0:
			put("PostToolUse", 2*i+1, "/x")
		}
		if i%11 == 0 {
			put("PreToolUse", 2*i, "/x")
		}
	}
	return msgs
}

// trial is one run of TestChaos.
type trial struct {
	name          string
	kills, events int
	snapshots     bool
	watched       int // percent of the kills before which the work must go on again
	random        *rand.Rand
}

// chaosNumber is what a variable says, or what is usual.
func chaosNumber(t *testing.T, name string, usual int) int {
	t.Helper()
	text := os.Getenv("COUNTERSIGN_CHAOS" + name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("COUNTERSIGN_CHAOS%s=%s is no number above zero", name, text)
	}
	return n
}

// TestChaos kills two correlators on one shard, the active one or the standby,
// while events come in. Afterwards the log must hold what one that was never
// disturbed puts out, each output once and in order.
//
// It is compared with two that were not: byte for byte (subject, id, type, body)
// with a core that reads the very same log, and with a service that worked alone
// on a log of its own with the same events in it. Between those two logs broker
// times and sequences differ, and they alone are left out of that comparison.
//
// COUNTERSIGN_CHAOS=long kills a hundred times during a million events, with
// snapshots and without. COUNTERSIGN_CHAOS_KILLS, COUNTERSIGN_CHAOS_EVENTS and
// COUNTERSIGN_CHAOS_SEED change that.
func TestChaos(t *testing.T) {
	kills, events := 6, 12_000
	if os.Getenv("COUNTERSIGN_CHAOS") == "long" {
		kills, events = 100, 1_000_000
	}
	kills, events = chaosNumber(t, "_KILLS", kills), chaosNumber(t, "_EVENTS", events)
	seed := chaosNumber(t, "_SEED", int(time.Now().UnixNano()))
	t.Logf("COUNTERSIGN_CHAOS_SEED=%d", seed)
	// A correlator without snapshots reads the whole log after each kill. Where it
	// is not waited for, the next kill finds it reading.
	for _, v := range []trial{{name: "with snapshots", snapshots: true, watched: 50}, {name: "without snapshots", watched: 15}} {
		t.Run(v.name, func(t *testing.T) {
			v.kills, v.events, v.random = kills, events, rand.New(rand.NewPCG(uint64(seed), uint64(v.watched)))
			v.run(t)
		})
	}
}

func (v trial) run(t *testing.T) {
	n := rig.Start(t, streams.Shard{})
	begun := time.Now()
	places := []*instance{startInstance(t, n, "one", v.snapshots), startInstance(t, n, "two", v.snapshots)}
	auditor := n.JS("auditor")
	watched, at := 0, cursorNow(t, auditor).Consumed
	batches := v.batches()
	send := sender(t, n)
	for k := range v.kills {
		// At any moment of what it does: it is there for the first time, reads, writes,
		// saves, takes over.
		from, to := k*len(batches)/v.kills, (k+1)*len(batches)/v.kills
		moment := from + v.random.IntN(max(1, to-from))
		send(batches[from:min(moment+1, to)])
		if v.random.IntN(100) < v.watched {
			watched++
			awaitCursor(t, auditor, at+1)
		}
		time.Sleep(time.Duration(v.random.IntN(400)) * time.Millisecond)
		places[v.random.IntN(2)].kill()
		at = cursorNow(t, auditor).Consumed
		send(batches[min(moment+1, to):to])
		if (k+1)%10 == 0 {
			t.Logf("%v: %d kills, %d of %d messages, outputs written up to sequence %d", time.Since(begun).Round(time.Second), k+1, to*chaosBatch, v.events, at)
		}
	}
	send([]int{-1})
	awaitCursor(t, auditor, lastInput(t, auditor))
	t.Logf("%v: all is written; one stepped down %d times, two %d times; comparing", time.Since(begun).Round(time.Second), places[0].fellBy(), places[1].fellBy())
	for _, p := range places {
		p.end()
	}
	disturbed := follow(t, n)
	t.Logf("%v: %d kills (%d of them of correlators that had gone on since the last one), %d events, %d outputs by %d writers in %d cursors: as the core gives them for this log",
		time.Since(begun).Round(time.Second), v.kills, watched, v.events, len(disturbed.prints), len(disturbed.writers), disturbed.cursors)
	v.compareAlone(t, n, disturbed)
	t.Logf("%v: and the same as of a correlator alone on a log of its own", time.Since(begun).Round(time.Second))
}

// chaosBatch is how many events are published at once.
const chaosBatch = 500

// batches name what is published; chaosMessages makes it.
func (v trial) batches() (list []int) {
	for i := range max(v.kills, v.events/chaosBatch) {
		list = append(list, i)
	}
	return list
}

// chaosMessages are the events of a batch; those of batch -1 are the last ones,
// which give an output, so that a cursor will cover them.
func chaosMessages(batch int) []streams.Msg {
	if batch < 0 {
		return chaosEvents(1, 1)
	}
	return chaosEvents(1000+1000*batch, chaosBatch)
}

// sender publishes batches on a connection of its own.
func sender(t *testing.T, n *rig.NATS) func(batches []int) {
	t.Helper()
	nc := n.Conn(rig.Runtime)
	return func(batches []int) {
		t.Helper()
		for _, b := range batches {
			ctx, cancel := context.WithTimeout(t.Context(), rig.Guard)
			rig.OK(t, streams.PublishEvents(ctx, nc, chaosMessages(b)))
			cancel()
		}
	}
}

// lastInput is the sequence of what was published last.
func lastInput(t *testing.T, js jetstream.JetStream) uint64 {
	t.Helper()
	m, err := streams.LastBySubject(t.Context(), js, streams.DefaultShard, chaosMessages(-1)[0].Subject)
	rig.OK(t, err)
	return m.Seq
}

func cursorNow(t *testing.T, js jetstream.JetStream) (c record.Cursor) {
	t.Helper()
	m, err := streams.LastBySubject(t.Context(), js, streams.DefaultShard, "gov.control.GOV.cursor")
	rig.OK(t, err)
	if m != nil {
		c, err = record.DecodeRecord[record.Cursor](m.Body)
		rig.OK(t, err)
	}
	return c
}

// chaosGuard is for what follows a kill in the longest run on a busy machine.
const chaosGuard = 20 * time.Minute

// awaitCursor waits until everything up to a sequence has been put out.
func awaitCursor(t *testing.T, js jetstream.JetStream, seq uint64) {
	t.Helper()
	for end := time.Now().Add(chaosGuard); cursorNow(t, js).Consumed < seq; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the cursor stands at %d and not at %d", cursorNow(t, js).Consumed, seq)
		}
	}
}

// printed are the outputs in a log.
type printed struct {
	prints  [][sha256.Size]byte // in order, without sequences and times
	writers map[string]bool
	cursors int
}

// dueOutput is an output that must come; a log that is far behind has very many.
type dueOutput struct {
	id     string
	digest [sha256.Size]byte
}

func (o output) due() dueOutput { return dueOutput{o.id, sha256.Sum256([]byte(fmt.Sprintf("%q", o)))} }

// follow reads the log beside an undisturbed core: each output in it must be the
// next one that the core has put out. It is compare for logs that are long.
func follow(t *testing.T, n *rig.NATS) printed {
	t.Helper()
	core := newCore(t, n, time.Hour)
	p := printed{writers: map[string]bool{}}
	var due []dueOutput
	var open []record.LogMessage // outputs that no cursor has covered yet
	readAll(t, n, func(m record.LogMessage) error {
		for _, o := range core.Apply(m) {
			o.Encode()
			due = append(due, output{o.Subject, o.ID, o.Type, string(o.Body)}.due())
		}
		cursor := m.Subject == "gov.control.GOV.cursor"
		got := outputs([]record.LogMessage{m})
		switch {
		case len(got) == 1 && len(due) == 0:
			return fmt.Errorf("sequence %d holds %+v, which is not due", m.Seq, got[0])
		case len(got) == 1 && got[0].due() != due[0]:
			return fmt.Errorf("sequence %d holds\n%+v\nof digest %x, want %x of %s", m.Seq, got[0], got[0].due().digest, due[0].digest, due[0].id)
		case len(got) == 1:
			due = due[1:]
			p.prints = append(p.prints, got[0].print())
		}
		if cursor || len(got) == 1 {
			open = append(open, m)
		}
		if cursor {
			c, err := record.DecodeRecord[record.Cursor](m.Body)
			rig.OK(t, err)
			p.writers[c.Writer], p.cursors = true, p.cursors+1
			checkCursors(t, open)
			open = nil
		}
		return nil
	})
	if len(due) > 0 || len(open) > 0 || len(p.prints) == 0 {
		t.Fatalf("%d outputs are missing, %d have no cursor, %d are there", len(due), len(open), len(p.prints))
	}
	return p
}

// readAll reads a log to its end.
func readAll(t *testing.T, n *rig.NATS, handle func(record.LogMessage) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), chaosGuard)
	defer cancel()
	done := errors.New("caught up")
	err := streams.ReadLog(ctx, n.JS("auditor"), streams.ReadOptions{Stream: streams.DefaultShard, Idle: func() error { return done }}, func(batch []record.LogMessage) error {
		for _, m := range batch {
			if err := handle(m); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, done) {
		t.Fatal(err)
	}
}

// compareAlone has one correlator work in peace on the same events, in another
// log under the same keys, and compares what it puts out.
func (v trial) compareAlone(t *testing.T, other *rig.NATS, disturbed printed) {
	t.Helper()
	n := rig.Start(t, streams.Shard{})
	n.Keys = other.Keys
	copySessionKeys(t, other, n)
	peaceful := startInstance(t, n, "alone", false)
	send := sender(t, n)
	send(v.batches())
	send([]int{-1})
	js := n.JS("auditor")
	awaitCursor(t, js, lastInput(t, js))
	peaceful.end()
	if n := peaceful.fellBy(); n > 0 {
		t.Logf("a busy machine took the lease from the one that works alone %d times", n)
	}
	i := 0
	readAll(t, n, func(m record.LogMessage) error {
		for _, o := range outputs([]record.LogMessage{m}) {
			if i >= len(disturbed.prints) || o.print() != disturbed.prints[i] {
				return fmt.Errorf("output %d of %d is another one where nothing was killed:\n%+v", i, len(disturbed.prints), o)
			}
			i++
		}
		return nil
	})
	if i != len(disturbed.prints) {
		t.Fatalf("%d outputs where nothing was killed, %d here", i, len(disturbed.prints))
	}
}

// copySessionKeys makes digests of the same arguments the same in two logs: the
// keys of sessions are random.
func copySessionKeys(t *testing.T, from, to *rig.NATS) {
	t.Helper()
	js, nc := from.JS("auditor"), to.Conn("auditor")
	prefix := "$KV." + streams.BucketSessionKeys + "."
	var list []streams.Msg
	for next := uint64(1); ; {
		m, err := streams.NextBySubject(t.Context(), js, "KV_"+streams.BucketSessionKeys, prefix+">", next)
		rig.OK(t, err)
		if m == nil || len(list) == chaosBatch {
			ctx, cancel := context.WithTimeout(t.Context(), rig.Guard)
			rig.OK(t, streams.PublishEvents(ctx, nc, list))
			cancel()
			list = nil
		}
		if m == nil {
			return
		}
		list, next = append(list, streams.Msg{Subject: m.Subject, Body: m.Body}), m.Seq+1
	}
}

// places in a record that say where and when something lies in its log.
var logPlaces = []struct{ name, end string }{
	{`"at":"`, `"`}, {`"detected_at":"`, `"`}, {`"seq":`, ",}"}, {`"decision_seq":`, ",}"}, {`"execution_seq":`, ",}"}, {`"seqs":[`, "]"}, {`"durations":{`, "}"},
	{`"admitted_digest":"`, `"`}, {`"executed_digest":"`, `"`}, // each log's sessions have keys of their own
}

// print is the digest of an output without what differs between two logs with
// the same events.
func (o output) print() [sha256.Size]byte {
	body := o.body
	for _, p := range logPlaces {
		var kept strings.Builder
		for {
			before, after, there := strings.Cut(body, p.name)
			kept.WriteString(before)
			if !there {
				break
			}
			kept.WriteString(p.name)
			body = after[max(0, strings.IndexAny(after, p.end)):]
		}
		body = kept.String()
	}
	return sha256.Sum256([]byte(strings.Join([]string{o.subject, o.id, o.typ, body}, "\x00")))
}
