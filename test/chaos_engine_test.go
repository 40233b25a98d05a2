package e2e_test

import (
	"bytes"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// What faultyProxy does to connections.
const (
	faultNone    = int32(iota)
	faultAnswers // an insert of evidence reaches the engine whole, its answer does not come back
	faultRows    // an insert of evidence breaks off before its rows
	faultRefuse  // no connection is served
	faultSilence // bytes wait
)

// faultyProxy stands between an auditor and the engine.
type faultyProxy struct {
	listener      net.Listener
	target        string
	fault         atomic.Int32
	answers, rows atomic.Int32 // how often they were lost
	mu            sync.Mutex
	open          map[net.Conn]bool
}

func startFaulty(t *testing.T, target string) *faultyProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	p := &faultyProxy{listener: l, target: target, open: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		p.fault.Store(faultRefuse)
		_ = l.Close()
		p.cut()
		all.Wait()
	})
	return p
}

// cut closes all connections.
func (p *faultyProxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		_ = c.Close()
	}
}

// keep notes a connection, unless none is served.
func (p *faultyProxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault.Load() == faultRefuse {
		return false
	}
	p.open[c] = true
	return true
}

func (p *faultyProxy) serve(client net.Conn) {
	defer client.Close()
	if !p.keep(client) {
		return
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, client)
	}()
	engine, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer engine.Close()
	s := stretch{p: p, client: client, engine: engine}
	var back sync.WaitGroup
	back.Go(s.answers)
	s.requests()
	_ = engine.Close()
	back.Wait()
}

// stretch is one connection. Of an insert, the client sends the statement, the
// engine answers with the columns, the client sends the rows, and the engine
// answers that they are stored.
type stretch struct {
	p              *faultyProxy
	client, engine net.Conn
	inserting      atomic.Bool // the statement has passed
	lost           atomic.Bool // what the engine says now does not arrive
}

var insertEvidence = []byte("INSERT INTO evidence")

func (s *stretch) requests() {
	b := make([]byte, 1<<20)
	for {
		n, err := s.client.Read(b)
		s.p.wait()
		switch fault := s.p.fault.Load(); {
		case bytes.Contains(b[:n], insertEvidence):
			s.inserting.Store(true)
		case n == 0 || !s.inserting.Swap(false):
		case fault == faultRows:
			s.p.rows.Add(1)
			return
		case fault == faultAnswers:
			s.p.answers.Add(1)
			s.lost.Store(true)
		}
		if n > 0 {
			if _, err := s.engine.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (s *stretch) answers() {
	defer s.client.Close()
	b := make([]byte, 1<<20)
	for {
		n, err := s.engine.Read(b)
		s.p.wait()
		if s.lost.Load() {
			return
		}
		if n > 0 {
			if _, err := s.client.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wait lets bytes wait while that is the fault.
func (p *faultyProxy) wait() {
	for p.fault.Load() == faultSilence {
		time.Sleep(10 * time.Millisecond)
	}
}

// through is the DSN of the same engine by way of the proxy.
func (p *faultyProxy) through(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	ok(t, err)
	return strings.Replace(dsn, u.Host, p.listener.Addr().String(), 1)
}

func hostOf(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	ok(t, err)
	return u.Host
}

// TestChaosEngineAnswers has an auditor reach its engine over a line that loses
// answers to inserts that were committed, loses rows, and refuses everything for a
// while (a minute in a long run). The other auditor of the shard hangs meanwhile
// and then comes back to find the shard taken. Everything is in evidence once.
func TestChaosEngineAnswers(t *testing.T) {
	t.Parallel()
	needSystem(t)
	run := newChaos(t, 1, 1)
	losses, refused, silent := int32(2), 2*time.Second, time.Second
	if run.long {
		losses, refused, silent = 40, time.Minute, 20*time.Second
	}
	s := start(t)
	dsn := s.info(t).ClickHouseDSN
	p := startFaulty(t, hostOf(t, dsn))
	c := atWork(t, s, 5)
	hung := s.info(t).PIDs["auditor"]
	ok(t, syscall.Kill(hung, syscall.SIGSTOP))
	awake := func() { _ = syscall.Kill(hung, syscall.SIGCONT) }
	defer awake()
	k := s.keep(t, "auditor", "COUNTERSIGN_CLICKHOUSE="+p.through(t, dsn))
	db := s.auditors(t)
	s.audited(t, db, 20)
	for _, f := range []struct {
		name  string
		fault int32
		lost  *atomic.Int32
	}{{"answers", faultAnswers, &p.answers}, {"rows", faultRows, &p.rows}} {
		// One at a time, at random moments: between two of them work goes on.
		for n := range losses {
			p.fault.Store(f.fault)
			eventually(t, f.name+" of an insert are lost", func() error {
				if f.lost.Load() <= n {
					return errorf("%d were", f.lost.Load())
				}
				return nil
			})
			if run.random.IntN(2) == 0 {
				run.nap(time.Second) // and those of the next attempts
			}
			p.fault.Store(faultNone)
			s.audited(t, db, 5)
		}
		run.logf("%d answers and %d times rows were lost; %s", p.answers.Load(), p.rows.Load(), c)
	}
	for _, f := range []struct {
		name  string
		fault int32
		long  time.Duration
	}{{"refuses", faultRefuse, refused}, {"is silent", faultSilence, silent}} {
		p.fault.Store(f.fault)
		if f.fault == faultRefuse {
			p.cut()
		}
		time.Sleep(f.long) // a length of time is what is tried here
		c.progress(t)      // runtimes do not notice
		p.fault.Store(faultNone)
		s.audited(t, db, 5)
		run.logf("the engine %s for %v; %s", f.name, f.long, c)
	}
	awake()
	s.audited(t, db, 20)
	c.goHome()
	c.audit(t, s)
	k.stop()
	s.settle(t) // what is left goes on alone
	run.logf("the books are exact: %s", c)
}
