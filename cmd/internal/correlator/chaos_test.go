package correlator

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/rig"
	"github.com/countersign-dev/countersign/streams"
)

// instance is a place where a correlator runs, and runs again when it was killed.
type instance struct {
	name string
	env  []string
	log  *os.File
	cmd  *exec.Cmd
}

func (i *instance) start(t *testing.T) {
	t.Helper()
	i.cmd = exec.Command(os.Args[0])
	i.cmd.Env = append(os.Environ(), i.env...)
	i.cmd.Stderr = i.log
	i.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	rig.OK(t, i.cmd.Start())
}

func (i *instance) kill() {
	_ = i.cmd.Process.Kill()
	_ = i.cmd.Wait()
}

func startInstance(t *testing.T, n *rig.NATS, name string) *instance {
	t.Helper()
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	rig.OK(t, err)
	f := n.Flags("correlator")
	i := &instance{name: name, log: log, env: []string{
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
	n.Publish(rig.Runtime, chaosEvents(1, 10)...)
	want := 0
	rig.Eventually(t, "every output is in the log", func() bool {
		log := n.Log()
		if want == 0 {
			all, _ := undisturbed(newCore(t, n, time.Hour), log)
			want = len(all)
		}
		return len(outputs(log)) >= want
	})
	compare(t, n, time.Hour)
	t.Logf("%d kills, %d events, %d outputs", kills, events, want)
}
