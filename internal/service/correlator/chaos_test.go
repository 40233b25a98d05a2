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
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	record "github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
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

// startInstance runs a correlator of a trial in a place of its own until the test ends.
func (v trial) startInstance(t *testing.T, n *servicetest.NATS, name string) *instance {
	t.Helper()
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	servicetest.OK(t, err)
	f := n.Flags("correlator")
	i := &instance{log: log, done: make(chan struct{}), env: []string{
		envChild + "=1", "COUNTERSIGN_NATS_URL=" + f.Server, "COUNTERSIGN_NATS_USER=" + f.User, "COUNTERSIGN_NATS_PASSWORD=" + f.Password,
		"COUNTERSIGN_KEYS=" + f.Keys, "COUNTERSIGN_INSTANCE=" + name, "COUNTERSIGN_MISSING_AFTER=" + v.missingAfter.String(),
	}}
	if v.snapshots {
		i.env = append(i.env, "COUNTERSIGN_STATE="+filepath.Join(dir, "state"), "COUNTERSIGN_STATE_EVERY=400")
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	servicetest.OK(t, i.run())
	t.Cleanup(func() {
		i.end()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("end of the log of %s:\n%s", name, text[max(0, len(text)-6000):])
		}
		_ = log.Close()
	})
	return i
}

// trial is one run of TestChaos.
type trial struct {
	name          string
	kills, events int
	snapshots     bool
	missingAfter  time.Duration
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
// while decisions, calls and sessions in two protocols come in, many of which break
// rules. Afterwards the log must hold what one that was never disturbed puts out, each
// output once and in order.
//
// It is compared with two that were not: byte for byte (subject, id, type, body)
// with a core that reads the very same log, ticks included, and with a service that
// worked alone on a log of its own with the same events in it. Between those two logs
// broker times and sequences differ, and they alone are left out of that comparison.
// Where deadlines pass, which they do by the broker's time, there is only the first.
//
// COUNTERSIGN_CHAOS=long kills a hundred times during a million events, with
// snapshots, without, and with deadlines. COUNTERSIGN_CHAOS_KILLS,
// COUNTERSIGN_CHAOS_EVENTS and COUNTERSIGN_CHAOS_SEED change that.
func TestChaos(t *testing.T) {
	kills, events := 4, 8_000
	if os.Getenv("COUNTERSIGN_CHAOS") == "long" {
		kills, events = 100, 1_000_000
	}
	kills, events = chaosNumber(t, "_KILLS", kills), chaosNumber(t, "_EVENTS", events)
	seed := chaosNumber(t, "_SEED", int(time.Now().UnixNano()))
	t.Logf("COUNTERSIGN_CHAOS_SEED=%d", seed)
	// A correlator without snapshots reads the whole log after each kill. Where it
	// is not waited for, the next kill finds it reading.
	for _, v := range []trial{
		{name: "with snapshots", snapshots: true, missingAfter: long, watched: 50},
		{name: "without snapshots", missingAfter: long, watched: 15},
		{name: "with deadlines", snapshots: true, missingAfter: time.Second, watched: 50},
	} {
		t.Run(v.name, func(t *testing.T) {
			v.kills, v.events, v.random = kills, events, rand.New(rand.NewPCG(uint64(seed), uint64(len(v.name))))
			v.run(t)
		})
	}
}

func (v trial) run(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	begun := time.Now()
	places := []*instance{v.startInstance(t, n, "one"), v.startInstance(t, n, "two")}
	auditor := n.JS("auditor")
	watched, at := 0, cursorNow(t, auditor).Consumed
	batches := v.batches()
	traffic := newChaosTraffic(t, n)
	for k := range v.kills {
		// At any moment of what it does: it is there for the first time, reads, writes,
		// saves, takes over.
		from, to := k*len(batches)/v.kills, (k+1)*len(batches)/v.kills
		moment := from + v.random.IntN(max(1, to-from))
		traffic.send(t, batches[from:min(moment+1, to)]...)
		if v.random.IntN(100) < v.watched {
			watched++
			awaitCursor(t, auditor, at+1)
		}
		time.Sleep(time.Duration(v.random.IntN(400)) * time.Millisecond)
		places[v.random.IntN(2)].kill()
		at = cursorNow(t, auditor).Consumed
		traffic.send(t, batches[min(moment+1, to):to]...)
		if (k+1)%10 == 0 {
			t.Logf("%v: %d kills, %d of %d messages, outputs written up to sequence %d", time.Since(begun).Round(time.Second), k+1, to*chaosBatch, v.events, at)
		}
	}
	traffic.send(t, -1)
	awaitCursor(t, auditor, lastOn(t, auditor, lastOfChaos.Subject))
	if v.missingAfter != long {
		v.awaitDeadlines(t, auditor)
	}
	t.Logf("%v: all is written; one stepped down %d times, two %d times; comparing", time.Since(begun).Round(time.Second), places[0].fellBy(), places[1].fellBy())
	for _, p := range places {
		p.end()
	}
	disturbed := v.follow(t, n)
	t.Logf("%v: %d kills (%d of them of correlators that had gone on since the last one), %d events, %d outputs by %d writers in %d cursors: as the core gives them for this log",
		time.Since(begun).Round(time.Second), v.kills, watched, v.events, len(disturbed.prints), len(disturbed.writers), disturbed.cursors)
	disturbed.isRich(t, v.missingAfter != long)
	if v.missingAfter != long {
		return
	}
	v.compareAlone(t, n, disturbed)
	t.Logf("%v: and the same as of a correlator alone on a log of its own", time.Since(begun).Round(time.Second))
}

// batches name what is published.
func (v trial) batches() (list []int) {
	for i := range max(v.kills, v.events/chaosBatch) {
		list = append(list, i)
	}
	return list
}

// lastOn is the sequence of what was stored last on a subject, 0 if nothing was.
func lastOn(t *testing.T, js jetstream.JetStream, subj string) uint64 {
	t.Helper()
	m, err := streams.LastBySubject(t.Context(), js, streams.DefaultShard, subj)
	servicetest.OK(t, err)
	if m == nil {
		return 0
	}
	return m.Seq
}

// awaitDeadlines waits until time has passed on the idle log, and what that brought
// about has been put out.
func (v trial) awaitDeadlines(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	last := lastOn(t, js, lastOfChaos.Subject)
	servicetest.Eventually(t, "a tick is on the log", func() bool { return lastOn(t, js, "gov.control.GOV.tick") > last })
	awaitCursor(t, js, lastOn(t, js, "gov.control.GOV.tick"))
}

func cursorNow(t *testing.T, js jetstream.JetStream) (c record.Cursor) {
	t.Helper()
	m, err := streams.LastBySubject(t.Context(), js, streams.DefaultShard, "gov.control.GOV.cursor")
	servicetest.OK(t, err)
	if m != nil {
		c, err = record.DecodeRecord[record.Cursor](m.Body)
		servicetest.OK(t, err)
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
	states  map[string]int // of calls
	rules   map[string]int // of findings
}

// isRich demands that the traffic brings about what there is to be brought about.
func (p printed) isRich(t *testing.T, deadlines bool) {
	t.Helper()
	t.Logf("%v %v", p.states, p.rules)
	states := []string{"open", "completed", "failed", "denied"}
	rules := []string{"executed_despite_deny", "executed_while_ask_pending", "executed_without_verdict", "executed_after_expiry", "input_drift", "AAEP-C-100"}
	if deadlines {
		states, rules = append(states, "abandoned"), append(rules, "missing_completion")
	}
	for _, s := range states {
		if p.states[s] == 0 {
			t.Errorf("no call is %s", s)
		}
	}
	for _, r := range rules {
		if p.rules[r] == 0 {
			t.Errorf("nothing breaks %s", r)
		}
	}
}

// dueOutput is an output that must come; a log that is far behind has very many.
type dueOutput struct {
	id     string
	digest [sha256.Size]byte
	seq    uint64 // what it comes of, and which of its outputs it is
	n      int
}

func (o output) digest() [sha256.Size]byte { return sha256.Sum256([]byte(fmt.Sprintf("%q", o))) }

// follow reads the log beside an undisturbed core: each output in it must be the
// next one that the core has put out, and none may be missing that the last cursor
// covers. It is compare for logs that are long.
func (v trial) follow(t *testing.T, n *servicetest.NATS) printed {
	t.Helper()
	core := newCore(t, n, v.missingAfter)
	p := printed{writers: map[string]bool{}, states: map[string]int{}, rules: map[string]int{}}
	var last record.Cursor
	var due []dueOutput
	var open []record.LogMessage // outputs that no cursor has covered yet
	readAll(t, n, func(m record.LogMessage) error {
		for k, o := range core.Apply(m) {
			o.Encode()
			due = append(due, dueOutput{o.ID, output{o.Subject, o.ID, o.Type, string(o.Body)}.digest(), m.Seq, k})
			if f := o.Finding; f != nil {
				p.rules[f.Rule]++
			} else {
				p.states[string(o.State)]++
			}
		}
		cursor := m.Subject == "gov.control.GOV.cursor"
		got := outputs([]record.LogMessage{m})
		switch {
		case len(got) == 1 && len(due) == 0:
			return fmt.Errorf("sequence %d holds %+v, which is not due", m.Seq, got[0])
		case len(got) == 1 && (got[0].id != due[0].id || got[0].digest() != due[0].digest):
			return fmt.Errorf("sequence %d holds\n%+v\nof digest %x, want %x of %s", m.Seq, got[0], got[0].digest(), due[0].digest, due[0].id)
		case len(got) == 1:
			due = due[1:]
			p.prints = append(p.prints, got[0].print())
		}
		if cursor || len(got) == 1 {
			open = append(open, m)
		}
		if cursor {
			c, err := record.DecodeRecord[record.Cursor](m.Body)
			servicetest.OK(t, err)
			p.writers[c.Writer], p.cursors, last = true, p.cursors+1, c
			checkCursors(t, open)
			open = nil
		}
		return nil
	})
	due = slices.DeleteFunc(due, func(d dueOutput) bool { return !isCovered(last, pendingOutput{seq: d.seq, n: d.n}) })
	if len(due) > 0 || len(open) > 0 || len(p.prints) == 0 {
		t.Fatalf("%d outputs are missing, %d have no cursor, %d are there", len(due), len(open), len(p.prints))
	}
	return p
}

// readAll reads a log to its end.
func readAll(t *testing.T, n *servicetest.NATS, handle func(record.LogMessage) error) {
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
func (v trial) compareAlone(t *testing.T, other *servicetest.NATS, disturbed printed) {
	t.Helper()
	n := servicetest.Start(t, streams.Shard{})
	n.Keys = other.Keys
	copySessionKeys(t, other, n)
	v.snapshots = false
	peaceful := v.startInstance(t, n, "alone")
	traffic := newChaosTraffic(t, n)
	traffic.send(t, v.batches()...)
	traffic.send(t, -1)
	js := n.JS("auditor")
	awaitCursor(t, js, lastOn(t, js, lastOfChaos.Subject))
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
func copySessionKeys(t *testing.T, from, to *servicetest.NATS) {
	t.Helper()
	js, nc := from.JS("auditor"), to.Conn("auditor")
	prefix := "$KV." + streams.BucketSessionSecrets + "."
	var list []streams.Msg
	for next := uint64(1); ; {
		m, err := streams.NextBySubject(t.Context(), js, "KV_"+streams.BucketSessionSecrets, prefix+">", next)
		servicetest.OK(t, err)
		if m == nil || len(list) == chaosBatch {
			ctx, cancel := context.WithTimeout(t.Context(), servicetest.Guard)
			servicetest.OK(t, streams.StoreAll(ctx, nc, list))
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
