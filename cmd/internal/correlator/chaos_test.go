package correlator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/cmd/internal/rig"
	record "github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

// instance is a place where a correlator runs, and runs again when it was killed.
type instance struct {
	env  []string
	log  *os.File
	cmd  *exec.Cmd
	done chan struct{}
}

// start starts a process that dies with this one, whatever kills it. The kernel
// ties it to the thread that started it, so that thread is kept.
func (i *instance) start(t *testing.T) {
	t.Helper()
	i.cmd, i.done = exec.Command(os.Args[0]), make(chan struct{})
	i.cmd.Env = append(os.Environ(), i.env...)
	i.cmd.Stderr = i.log
	i.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func(cmd *exec.Cmd, done chan<- struct{}) {
		runtime.LockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}(i.cmd, i.done)
	rig.OK(t, <-started)
}

func (i *instance) kill() {
	_ = i.cmd.Process.Kill()
	<-i.done
}

func startInstance(t *testing.T, n *rig.NATS, name string) *instance {
	t.Helper()
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	rig.OK(t, err)
	f := n.Flags("correlator")
	i := &instance{log: log, env: []string{
		envChild + "=1", "COUNTERSIGN_NATS_URL=" + f.Server, "COUNTERSIGN_NATS_USER=" + f.User, "COUNTERSIGN_NATS_PASSWORD=" + f.Password,
		"COUNTERSIGN_KEYS=" + f.Keys, "COUNTERSIGN_INSTANCE=" + name, "COUNTERSIGN_STATE=" + filepath.Join(dir, "state"), "COUNTERSIGN_STATE_EVERY=400",
		"COUNTERSIGN_MISSING_AFTER=1h",
	}}
	i.start(t)
	t.Cleanup(func() {
		i.kill()
		if text, err := os.ReadFile(log.Name()); err == nil && (t.Failed() || testing.Verbose()) {
			t.Logf("log of %s:\n%s", name, text)
		}
		_ = log.Close()
	})
	return i
}

// chaosEvents are events of calls: announced, most of them completed, some of
// them twice, some never announced.
func chaosEvents(from, n int) (msgs []streams.Msg) {
	for i := from; len(msgs) < n; i++ {
		session := fmt.Sprintf("chaos-%d", i/25)
		put := func(typ string, id int) {
			body := fmt.Sprintf(`{"schema_version":1,"event_id":"9a3e5b70-2222-4c22-8d33-%012d","event_type":"%s","timestamp":"2026-11-20T09:02:00Z",`+
				`"source":"a","session_id":"%s","tool_name":"read_file","tool_input":{"path":"/x"},"metadata":{"tool_call_id":"call-%d"}}`, id, typ, session, i)
			msgs = append(msgs, streams.Msg{Subject: "gov.events.acme.rt1.agenthook." + session + "." + typ, Body: []byte(body)})
		}
		if i%7 != 0 {
			put("PreToolUse", 2*i)
		}
		if i%5 != 0 {
			put("PostToolUse", 2*i+1)
		}
		if i%11 == 0 {
			put("PreToolUse", 2*i)
		}
	}
	return msgs
}

// TestChaos kills two correlators on one shard, the active one or the standby,
// while events come in. Afterwards the log must hold what one that was never
// disturbed puts out, each output once. COUNTERSIGN_CHAOS=long kills a hundred
// times during a million events.
func TestChaos(t *testing.T) {
	kills, events := 8, 16_000
	if os.Getenv("COUNTERSIGN_CHAOS") == "long" {
		kills, events = 100, 1_000_000
	}
	n := rig.Start(t, streams.Shard{})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	places := []*instance{startInstance(t, n, "one"), startInstance(t, n, "two")}
	for k := range kills {
		share := events / kills
		for at := 0; at < share; at += 500 {
			n.Publish(rig.Runtime, chaosEvents(10_000_000*k+10*at, 500)...)
		}
		// At any moment of what it does: it is there for the first time, reads, writes,
		// saves, takes over.
		time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
		victim := places[random.IntN(2)]
		victim.kill()
		victim.start(t)
	}
	n.Publish(rig.Runtime, chaosEvents(1, 1)...) // which gives an output, so that a cursor will cover it
	ctx, cancel := context.WithTimeout(t.Context(), chaosGuard)
	defer cancel()
	js := n.JS("auditor")
	last, err := streams.LastBySubject(ctx, js, streams.DefaultShard, "gov.events.acme.rt1.agenthook.chaos-0.PreToolUse")
	rig.OK(t, err)
	for consumed := uint64(0); consumed < last.Seq; time.Sleep(100 * time.Millisecond) {
		m, err := streams.LastBySubject(ctx, js, streams.DefaultShard, "gov.control.GOV.cursor")
		rig.OK(t, err)
		if m != nil {
			c, err := record.DecodeRecord[record.Cursor](m.Body)
			rig.OK(t, err)
			consumed = c.Consumed
		}
	}
	t.Logf("%d kills, %d events, %d outputs", kills, events, follow(ctx, t, n, js))
}

// chaosGuard is for the end of the longest run on a busy machine.
const chaosGuard = 10 * time.Minute

// follow reads the log beside an undisturbed core: each output in it must be the
// next one that the core has put out. It is compare for logs that are long.
func follow(ctx context.Context, t *testing.T, n *rig.NATS, js jetstream.JetStream) (written int) {
	t.Helper()
	core, done := newCore(t, n, time.Hour), errors.New("caught up")
	var due []output
	var cursors []record.LogMessage
	err := streams.ReadLog(ctx, js, streams.ReadOptions{Stream: streams.DefaultShard, Idle: func() error { return done }}, func(batch []record.LogMessage) error {
		for _, m := range batch {
			for _, o := range core.Apply(m) {
				due = append(due, output{o.Subject, o.ID, o.Type, string(o.Body)})
			}
			got := outputs([]record.LogMessage{m})
			switch {
			case len(got) == 1 && len(due) == 0:
				return fmt.Errorf("sequence %d holds %+v, which is not due", m.Seq, got[0])
			case len(got) == 1 && got[0] != due[0]:
				return fmt.Errorf("sequence %d holds\n%+v\nwant\n%+v", m.Seq, got[0], due[0])
			case len(got) == 1:
				due, written = due[1:], written+1
			}
			if len(got) == 1 || m.Subject == "gov.control.GOV.cursor" {
				m.Body = bytes.Clone(m.Body)
				cursors = append(cursors, m)
			}
			if m.Subject == "gov.control.GOV.cursor" {
				checkCursors(t, cursors)
				cursors = nil
			}
		}
		return nil
	})
	if !errors.Is(err, done) {
		t.Fatal(err)
	}
	if len(due) > 0 || len(cursors) > 0 || written == 0 {
		t.Fatalf("%d outputs are missing, %d have no cursor, %d are there", len(due), len(cursors), written)
	}
	return written
}
