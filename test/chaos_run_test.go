package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/nats-io/nats.go"
)

// chaosRun is one run of a test that breaks things at random.
type chaosRun struct {
	t      *testing.T
	long   bool
	most   int // kills
	random *rand.Rand
	begun  time.Time
	killed map[string]int
	held   int
}

// newChaos prints the seed by which the run can be had again, as far as chance is
// ours.
func newChaos(t *testing.T, kills, longKills int) *chaosRun {
	t.Helper()
	c := &chaosRun{t: t, long: longSweeps, begun: time.Now(), killed: map[string]int{}}
	if c.long {
		kills = longKills
	}
	c.most = c.number("KILLS", kills)
	seed := c.number("SEED", int(time.Now().UnixNano()))
	t.Logf("COUNTERSIGN_CHAOS_SEED=%d", seed)
	c.random = rand.New(rand.NewPCG(uint64(seed), 0))
	return c
}

// number is what COUNTERSIGN_CHAOS_<name> says, or what is usual.
func (c *chaosRun) number(name string, usual int) int {
	c.t.Helper()
	text := os.Getenv("COUNTERSIGN_CHAOS_" + name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		c.t.Fatalf("COUNTERSIGN_CHAOS_%s=%s is no number above zero", name, text)
	}
	return n
}

// logf says how far it is.
func (c *chaosRun) logf(format string, args ...any) {
	c.t.Helper()
	c.t.Logf("%v: %d kills %v, %d held for a while; %s", time.Since(c.begun).Round(time.Second), c.kills(), c.killed, c.held, fmt.Sprintf(format, args...))
}

func (c *chaosRun) kills() (n int) {
	for _, k := range c.killed {
		n += k
	}
	return n
}

// nap is a random moment.
func (c *chaosRun) nap(most time.Duration) {
	time.Sleep(time.Duration(c.random.Int64N(int64(most))))
}

// strike kills some of the children of `up` and of the second instances, or, now
// and then in a long run, holds one for longer than its lease lasts.
func (c *chaosRun) strike(s *system, second map[string]*keeper, names []string) {
	c.t.Helper()
	c.nap(300 * time.Millisecond)
	if c.long && c.random.IntN(8) == 0 {
		c.hold(s, second, names[0])
		return
	}
	var own []string
	for _, n := range names {
		c.killed[n]++
		if k := second[n]; k != nil {
			k.kill()
		} else {
			own = append(own, n)
		}
	}
	s.kill(c.t, own...)
}

func (c *chaosRun) hold(s *system, second map[string]*keeper, name string) {
	c.t.Helper()
	c.held++
	pid := s.info(c.t).PIDs[name]
	if k := second[name]; k != nil {
		pid = k.pid()
	}
	_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have died just now
	c.nap(7 * time.Second)
	_ = syscall.Kill(pid, syscall.SIGCONT)
}

// keeper runs a second instance of a service as an init system would: whatever
// ends it, it is started again.
type keeper struct {
	mu      sync.Mutex
	current *proc
	stopped bool
	done    chan struct{}
}

// keep starts one of the service programs beside the one that `up` runs, with
// nothing but the environment, until the test ends.
func (s *system) keep(t *testing.T, name string, env ...string) *keeper {
	t.Helper()
	k := &keeper{done: make(chan struct{})}
	path := filepath.Join(s.dir, name+"-second.log")
	log, err := os.Create(path)
	ok(t, err)
	command := func() *exec.Cmd {
		cmd := exec.Command(program(name))
		cmd.Env, cmd.Stdout, cmd.Stderr = append(s.serviceEnv(t, name), env...), log, log
		return cmd
	}
	k.current, err = launch(command())
	ok(t, err)
	go k.watch(command)
	t.Cleanup(func() {
		k.stop()
		_ = log.Close()
		if b, err := os.ReadFile(path); err == nil && t.Failed() {
			t.Logf("end of the log of the second %s:\n%s", name, b[max(0, len(b)-6000):])
		}
	})
	return k
}

// serviceEnv is what a service needs to know of a system, on another machine.
func (s *system) serviceEnv(t testing.TB, name string) []string {
	t.Helper()
	info := s.info(t)
	return cleanEnv("COUNTERSIGN_NATS_URL="+info.NATSURL, "COUNTERSIGN_NATS_USER="+name, "COUNTERSIGN_NATS_PASSWORD="+s.password(t, name),
		"COUNTERSIGN_KEYS="+filepath.Join(s.data, "keys"), "COUNTERSIGN_CLICKHOUSE="+info.ClickHouseDSN,
		"COUNTERSIGN_INSTANCE=second", "COUNTERSIGN_STATE="+filepath.Join(s.dir, "second-state"), "COUNTERSIGN_STATE_EVERY=400")
}

func (k *keeper) watch(command func() *exec.Cmd) {
	defer close(k.done)
	for {
		k.mu.Lock()
		p := k.current
		k.mu.Unlock()
		<-p.done
		time.Sleep(200 * time.Millisecond) // as an init system's pause between two starts
		k.mu.Lock()
		if k.stopped {
			k.mu.Unlock()
			return
		}
		if again, err := launch(command()); err == nil {
			k.current = again
		}
		k.mu.Unlock()
	}
}

func (k *keeper) pid() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current.pid
}

func (k *keeper) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.current.done: // it is between two starts
	default:
		k.current.signal(syscall.SIGKILL)
	}
}

// stop ends it for good.
func (k *keeper) stop() {
	k.mu.Lock()
	again := k.stopped
	k.stopped = true
	p := k.current
	k.mu.Unlock()
	if again {
		return
	}
	p.signal(syscall.SIGTERM)
	if p.wait() != nil {
		p.signal(syscall.SIGKILL)
	}
	<-k.done
}

// refusedForWant tells a reply of an admitter that could not record its decision.
func refusedForWant(reply *nats.Msg) bool {
	return bytes.Contains(reply.Data, []byte("audit_unavailable")) || bytes.Contains(reply.Data, []byte("overloaded"))
}

// smallDisk mounts a file system of its own on a directory until the test ends,
// and gives a function that fills it. What that gives makes room again.
func smallDisk(t *testing.T, dir, size string) (fill func() (release func())) {
	t.Helper()
	ok(t, os.MkdirAll(dir, 0o700))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		t.Skipf("a disk that fills up needs a small file system, and mounting a tmpfs is not permitted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", dir, err)
		}
	})
	return func() func() {
		t.Helper()
		filler := filepath.Join(dir, "filler")
		f, err := os.Create(filler)
		ok(t, err)
		defer f.Close()
		for part := make([]byte, 1<<20); len(part) > 0; {
			if _, err := f.Write(part); err != nil {
				part = part[:len(part)/2] // to the last byte
			}
		}
		return func() { ok(t, os.Remove(filler)) }
	}
}

// lines counts the lines of a log that hold a text.
func lines(t testing.TB, path, text string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	ok(t, err)
	return len(slices.DeleteFunc(strings.Split(string(b), "\n"), func(l string) bool { return !strings.Contains(l, text) }))
}

// audited waits until there are so many further records in evidence. The engine may
// be away meanwhile.
func (s *system) audited(t testing.TB, db driver.Conn, more uint64) {
	t.Helper()
	count := func() (n uint64, err error) {
		return n, db.QueryRow(context.Background(), "SELECT count() FROM evidence").Scan(&n)
	}
	var before uint64
	eventually(t, "the engine answers", func() (err error) {
		before, err = count()
		return err
	})
	eventually(t, "the auditor goes on", func() error {
		n, err := count()
		if err == nil && n < before+more {
			err = errorf("%d records more", n-before)
		}
		return err
	})
}

// burstSize is how many events a runtime sends at once.
const burstSize = 30

// burst is a runtime that sends events without waiting in between, each burst in a
// session of its own: the log must hold what was acknowledged, and nothing twice.
func (c *crowd) burst(r runtimeClient, n int) {
	defer c.workers.Done()
	pace := time.NewTicker(time.Second)
	defer pace.Stop()
	for i := 0; !c.stop.Load(); i++ {
		<-pace.C
		sess := fmt.Sprintf("s-burst-%d-%d", n, i)
		acked := r.sendAtOnce(sess)
		c.mu.Lock()
		c.bursts[sess] = acked
		c.mu.Unlock()
	}
}

// sendAtOnce sends a burst and tells how many of its events were acknowledged.
func (r runtimeClient) sendAtOnce(sess string) (acked int) {
	answers, err := r.nc.SubscribeSync(r.nc.NewInbox())
	if err != nil {
		return 0
	}
	defer func() { _ = answers.Unsubscribe() }()
	for k := range burstSize {
		e := allowedCall(sess, fmt.Sprint("call-", k))
		if r.nc.PublishRequest(e.subject(r), answers.Subject, e.bytes()) != nil {
			break
		}
	}
	for range burstSize {
		reply, err := answers.NextMsg(2 * time.Second)
		if err != nil {
			break
		}
		if ackSeq(reply) > 0 {
			acked++
		}
	}
	return acked
}

// wholeBursts checks that the log holds what was acknowledged of every burst, and
// nothing twice.
func (c *crowd) wholeBursts(t *testing.T, db driver.Conn) {
	t.Helper()
	have := map[string][2]uint64{}
	rows, err := db.Query(context.Background(), "SELECT session, count(), uniqExact(body_digest) FROM evidence WHERE startsWith(session, 's-burst-') AND kind = 'event' GROUP BY session")
	ok(t, err)
	defer rows.Close()
	for rows.Next() {
		var sess string
		var n, distinct uint64
		ok(t, rows.Scan(&sess, &n, &distinct))
		have[sess] = [2]uint64{n, distinct}
	}
	acked := 0
	for sess, acknowledged := range c.bursts {
		acked += acknowledged
		if n := have[sess]; n[0] < uint64(acknowledged) || n[0] != n[1] {
			t.Errorf("the log holds %d events of burst %s, %d of them different; %d were acknowledged", n[0], sess, n[1], acknowledged)
		}
	}
	t.Logf("%d bursts, %d events of them acknowledged", len(c.bursts), acked)
}
