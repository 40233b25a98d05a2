package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// children of `up` that chaos kills.
var children = []string{"admitter", "correlator", "auditor", "clickhouse", "nats"}

// heardVerdict is a verdict that a client got, and what it was for.
type heardVerdict struct {
	verdict, want string
}

// crowd is a number of runtimes at work. Whatever the system does to them they
// go on.
type crowd struct {
	stop     atomic.Bool
	workers  sync.WaitGroup
	mu       sync.Mutex
	heard    map[string]heardVerdict // by decision id
	wrong    []string                // what a client must never get
	stored   []uint64                // sequences that were acknowledged
	bursts   map[string]int          // how many events of a burst were acknowledged, by its session
	silent   int                     // requests without a verdict
	refused  int                     // denied because they could not be recorded
	unstored int                     // attempts to publish that were not acknowledged
}

func (c *crowd) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d verdicts heard, %d denied because nothing could be recorded, %d requests without an answer, %d events acknowledged, %d attempts at one not",
		len(c.heard), c.refused, c.silent, len(c.stored), c.unstored)
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
	return r.hastily(&nats.Msg{Subject: subject, Data: body})
}

func (r runtimeClient) hastily(m *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	return r.nc.RequestMsgWithContext(ctx, m)
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
	case refusedForWant(reply):
		c.refused++
	case id != "":
		c.heard[id] = heardVerdict{verdict, want}
	}
}

// acknowledged notes how an attempt to publish ended; seq is 0 if badly.
func (c *crowd) acknowledged(seq uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if seq == 0 {
		c.unstored++
		return false
	}
	c.stored = append(c.stored, seq)
	return true
}

// publish tries until the event is acknowledged: an event that is stored twice
// is the same event.
func (c *crowd) publish(r runtimeClient, e object) {
	for !c.stop.Load() {
		reply, err := r.hasty(e.subject(r), e.bytes())
		seq := uint64(0)
		if err == nil {
			seq = ackSeq(reply)
		}
		if c.acknowledged(seq) {
			return
		}
		time.Sleep(50 * time.Millisecond) // no server to wait for, perhaps
	}
}

// atWork starts runtimes; stop ends them.
func atWork(t *testing.T, s *system, workers int) *crowd {
	t.Helper()
	c := &crowd{heard: map[string]heardVerdict{}, bursts: map[string]int{}}
	for n := range workers {
		r := s.runtime(t, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.RetryOnFailedConnect(true))
		c.workers.Add(1)
		if n == 0 {
			go c.burst(r, n)
		} else {
			go c.work(r, n)
		}
	}
	t.Cleanup(c.goHome)
	return c
}

// goHome ends the runtimes and waits for them.
func (c *crowd) goHome() {
	c.stop.Store(true)
	c.workers.Wait()
}

// TestChaos kills processes at random moments while runtimes are at work: the servers, the
// services, and a second admitter, correlator and auditor on the same shard; some are only
// suspended for a while. Afterwards the books must be exact: every message in evidence once,
// every output of the correlator once, every verdict that a caller received recorded.
//
// COUNTERSIGN_CHAOS=long kills 200 times. COUNTERSIGN_CHAOS_KILLS and COUNTERSIGN_CHAOS_SEED
// change that.
func TestChaos(t *testing.T) {
	t.Parallel()
	run := newChaos(t, 8, 200)
	s := start(t)
	second := map[string]*keeper{}
	victims := append([]string{}, children...)
	for _, name := range []string{"admitter", "correlator", "auditor"} {
		second["second "+name] = s.keep(t, name)
		victims = append(victims, "second "+name)
	}
	c := atWork(t, s, 5)
	for run.kills() < run.most {
		for order := run.random.Perm(len(victims)); len(order) > 0; {
			names := []string{victims[order[0]]}
			if order = order[1:]; len(order) > 0 && run.random.IntN(3) == 0 { // two at once
				names, order = append(names, victims[order[0]]), order[1:]
			}
			run.strike(s, second, names)
			// At a random moment of the recovery, or after it: both happen.
			if run.random.IntN(2) == 0 {
				c.progress(t)
			}
		}
		run.logf("%s", c)
	}
	c.progress(t)
	c.goHome()
	c.audit(t, s)
	run.logf("the books are exact: %s", c)
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
	c.wholeBursts(t, db)
	s.verified(t, 0)
	t.Logf("%d records in evidence", number(t, db, "SELECT count() FROM evidence"))
}

// emittedOnce checks that the correlator put out every state of a call and
// every finding once. A call that has ended gets a further record when there is
// news of it, such as a decision that was recorded after the call ran because its
// request was given up: the records differ in what they say.
func emittedOnce(t testing.TB, s *system) {
	t.Helper()
	db := s.auditors(t)
	for what, query := range map[string]string{
		"findings":                    "SELECT count() - uniqExact(finding_id) FROM findings",
		"call records":                "SELECT count() - uniqExact(record) FROM (SELECT JSONExtractRaw(record, 'body') AS record FROM evidence WHERE kind = 'call')",
		"ids of call records":         "SELECT count() - uniqExact(id) FROM (SELECT JSONExtractString(record, 'headers', 'ce-id', 1) AS id FROM evidence WHERE kind = 'call')",
		"completions of one call":     "SELECT count() FROM (" + sameCompletions + ")",
		"decisions with one id":       "SELECT count() - uniqExact(decision_id) FROM decisions",
		"cursors that do not advance": "SELECT count() - uniqExact(c) FROM (SELECT (JSONExtractUInt(record, 'body', 'consumed'), JSONExtractUInt(record, 'body', 'partial')) AS c FROM evidence WHERE subject = 'gov.control.GOV.cursor')",
	} {
		if n := number(t, db, "SELECT toUInt64(*) FROM ("+query+")"); n != 0 {
			t.Errorf("%s: %d too many", what, n)
		}
	}
	if t.Failed() {
		for _, r := range evidence(t, db, "kind = 'call' AND JSONExtractString(record, 'body', 'call_id') IN (SELECT call_id FROM ("+sameCompletions+"))") {
			t.Logf("%d %s", r.Seq, r.Record)
		}
	}
}

// sameCompletions are calls of which two records say that they ended, and nothing
// else.
const sameCompletions = "SELECT JSONExtractString(record, 'body', 'call_id') AS call_id FROM evidence WHERE kind = 'call' AND JSONExtractString(record, 'body', 'state') = 'completed' " +
	"GROUP BY call_id, arrayMap(k -> JSONExtractRaw(record, 'body', k), ['decision_id', 'verdict', 'match', 'outcome', 'findings', 'execution_seq', 'decision_seq', 'retried_as']) HAVING count() > 1"
