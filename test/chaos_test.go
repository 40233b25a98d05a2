package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// victims are the children of `up` that chaos kills.
var victims = []string{"admitter", "correlator", "auditor", "clickhouse", "nats"}

// heardVerdict is a verdict that a client got, and what it was for.
type heardVerdict struct {
	verdict, want string
}

// crowd is a number of runtimes at work. Whatever the system does to them they
// go on.
type crowd struct {
	stop    atomic.Bool
	workers sync.WaitGroup
	mu      sync.Mutex
	heard   map[string]heardVerdict // by decision id
	wrong   []string                // what a client must never get
	stored  []uint64                // sequences that were acknowledged
	silent  int                     // requests without a verdict
}

// work is one runtime: it asks before every call, publishes what it did, and
// now and then runs what it was denied.
func (c *crowd) work(r runtimeClient, n int) {
	defer c.workers.Done()
	pace := time.NewTicker(100 * time.Millisecond) // a log that can be replayed while it grows
	defer pace.Stop()
	for i := 0; !c.stop.Load(); i++ {
		<-pace.C
		sess := fmt.Sprintf("s-chaos-%d-%d", n, i/5)
		call, want := allowedCall(sess, fmt.Sprint("call-", i)), "allow"
		if i%3 == 2 {
			call, want = deniedCall(sess, fmt.Sprint("call-", i)), "deny"
		}
		a, err := r.hasty("gov.admit."+r.tenant+".agenthook", call.bytes())
		c.note(a, err, want)
		for _, e := range []object{call, postToolUse(call)} {
			c.publish(r, e)
		}
	}
}

// hasty is a request that gives up after a while, as a runtime would.
func (r runtimeClient) hasty(subject string, body []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	return r.nc.RequestWithContext(ctx, subject, body)
}

func (c *crowd) note(reply *nats.Msg, err error, want string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.silent++
		return
	}
	id, verdict := reply.Header.Get("Countersign-Decision-Id"), reply.Header.Get("Countersign-Verdict")
	switch {
	case verdict == "allow" && want == "deny":
		c.wrong = append(c.wrong, fmt.Sprintf("decision %s allows what the policy denies", id))
	case verdict != "allow" && verdict != "deny":
		c.wrong = append(c.wrong, fmt.Sprintf("decision %s says %q", id, verdict))
	case verdict == "allow" && id == "":
		c.wrong = append(c.wrong, "an allow without a decision")
	case id != "":
		c.heard[id] = heardVerdict{verdict, want}
	}
}

// publish tries until the event is acknowledged: an event that is stored twice
// is the same event.
func (c *crowd) publish(r runtimeClient, e object) {
	for !c.stop.Load() {
		reply, err := r.hasty(e.subject(r), e.bytes())
		if err != nil {
			time.Sleep(50 * time.Millisecond) // no server to wait for
			continue
		}
		if seq := ackSeq(reply); seq > 0 {
			c.mu.Lock()
			c.stored = append(c.stored, seq)
			c.mu.Unlock()
			return
		}
	}
}

// TestChaos kills everything at random moments while runtimes are at work.
// Afterwards the books must be exact: every message in evidence once, every
// output of the correlator once, every verdict that anybody heard recorded.
// COUNTERSIGN_CHAOS=long kills ten times as often.
func TestChaos(t *testing.T) {
	rounds := 3
	if os.Getenv("COUNTERSIGN_CHAOS") == "long" {
		rounds = 30
	}
	s := start(t)
	c := &crowd{heard: map[string]heardVerdict{}}
	for n := range 4 {
		r := s.runtime(t, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.RetryOnFailedConnect(true))
		c.workers.Add(1)
		go c.work(r, n)
	}
	defer c.workers.Wait()
	defer c.stop.Store(true)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range rounds {
		order := random.Perm(len(victims))
		for i := 0; i < len(order); i++ {
			names := []string{victims[order[i]]}
			if i+1 < len(order) && random.IntN(3) == 0 { // two at once
				i++
				names = append(names, victims[order[i]])
			}
			s.kill(t, names...)
			// At a random moment of the recovery, or after it: both happen.
			if random.IntN(2) == 0 {
				c.progress(t)
			}
		}
		c.progress(t)
	}
	c.stop.Store(true)
	c.workers.Wait()
	c.audit(t, s)
}

// kill kills children and waits until all run again under other pids.
func (s *system) kill(t *testing.T, names ...string) {
	t.Helper()
	before := s.info(t).PIDs
	for _, n := range names {
		// It may have died of an earlier kill just now; that will do.
		if err := syscall.Kill(before[n], syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	eventually(t, fmt.Sprintf("%v run again", names), func() error {
		now := s.info(t).PIDs
		for _, n := range names {
			if now[n] == before[n] {
				return errorf("%s has pid %d still", n, now[n])
			}
		}
		return nil
	})
}

// progress waits until clients have got further verdicts and stored further
// events.
func (c *crowd) progress(t *testing.T) {
	t.Helper()
	count := func() (int, int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.heard), len(c.stored)
	}
	verdicts, events := count()
	eventually(t, "clients are served again", func() error {
		if v, e := count(); v < verdicts+20 || e < events+20 {
			return errorf("%d verdicts and %d events since the kill", v-verdicts, e-events)
		}
		return nil
	})
}

// audit checks the books.
func (c *crowd) audit(t *testing.T, s *system) {
	t.Helper()
	for _, w := range c.wrong {
		t.Error(w)
	}
	s.exact(t)
	emittedOnce(t, s)
	db := s.auditors(t)
	recorded := map[string]string{}
	rows, err := db.Query(context.Background(), "SELECT decision_id, verdict FROM decisions")
	ok(t, err)
	defer rows.Close()
	for rows.Next() {
		var id, verdict string
		ok(t, rows.Scan(&id, &verdict))
		if _, twice := recorded[id]; twice {
			t.Errorf("decision %s is recorded twice", id)
		}
		recorded[id] = verdict
	}
	for id, h := range c.heard {
		if recorded[id] != h.verdict || h.verdict != h.want {
			t.Errorf("a client heard %s of decision %s, recorded is %q, the policy says %s", h.verdict, id, recorded[id], h.want)
		}
	}
	kindsAt := map[uint64]string{}
	for _, r := range evidence(t, db, "kind = 'event'") {
		kindsAt[r.Seq] = r.Kind
	}
	for _, seq := range c.stored {
		if kindsAt[seq] != "event" {
			t.Errorf("the acknowledged event at %d is not in evidence", seq)
		}
	}
	s.verified(t, 0)
	t.Logf("%d verdicts, %d requests without one, %d events, %d records", len(c.heard), c.silent, len(c.stored), number(t, db, "SELECT count() FROM evidence"))
}

// emittedOnce checks that the correlator put out every state of a call and
// every finding once.
func emittedOnce(t testing.TB, s *system) {
	t.Helper()
	db := s.auditors(t)
	for what, query := range map[string]string{
		"findings":                    "SELECT count() - uniqExact(finding_id) FROM findings",
		"call records":                "SELECT count() - uniqExact(record) FROM (SELECT JSONExtractRaw(record, 'body') AS record FROM evidence WHERE kind = 'call')",
		"ids of call records":         "SELECT count() - uniqExact(id) FROM (SELECT JSONExtractString(record, 'headers', 'ce-id', 1) AS id FROM evidence WHERE kind = 'call')",
		"completions of one call":     "SELECT count() FROM (SELECT call_id FROM calls WHERE state = 'completed' GROUP BY call_id HAVING count() > 1)",
		"decisions with one id":       "SELECT count() - uniqExact(decision_id) FROM decisions",
		"cursors that do not advance": "SELECT count() - uniqExact(c) FROM (SELECT (JSONExtractUInt(record, 'body', 'consumed'), JSONExtractUInt(record, 'body', 'partial')) AS c FROM evidence WHERE subject = 'gov.control.GOV.cursor')",
	} {
		if n := number(t, db, "SELECT toUInt64(*) FROM ("+query+")"); n != 0 {
			t.Errorf("%s: %d too many", what, n)
		}
	}
}
