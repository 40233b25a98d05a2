package auditor

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/streams"
)

// A ClickHouse that comes back without its tables ends the auditor. The next one makes them, and the evidence, again.
func TestTablesThatAreGone(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, session(t, "s1")...)
	s := start(t, flags(n, dsn, 100)).AwaitReady()
	servicetest.Eventually(t, "everything is audited", func() bool { return signedUp(n) == len(n.Log()) })
	dropTables(t, dsn)
	n.Publish(servicetest.Runtime, session(t, "s2")...)
	if err := s.Wait(); !conn.IsMissing(err) {
		t.Fatalf("it ended with %v", err)
	}
	audited(t, n, flags(n, dsn, 100))
	holds(t, n, dsn)
}

// What fails again and again is not logged each time.
func TestARetryIsLoggedOnce(t *testing.T) {
	var lines bytes.Buffer
	r, tries := retrier{env: daemon.Env{Log: zerolog.New(&lines), Health: daemon.NewHealth()}}, 0
	servicetest.OK(t, r.retry(t.Context(), "storing", func() error {
		if tries++; tries < 3 {
			return errors.New("it is away")
		}
		return nil
	}))
	if n := strings.Count(lines.String(), "it is away"); n != 1 {
		t.Errorf("%d lines: %s", n, lines.String())
	}
}

// TestAnAttemptThatHangsIsReported: a database that does not answer makes the auditor unhealthy long before
// the attempt fails, and its answer makes it healthy again.
func TestAnAttemptThatHangsIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		health := daemon.NewHealth()
		r := retrier{env: daemon.Env{Log: zerolog.Nop(), Health: health}}
		answer, ended := make(chan struct{}), make(chan error)
		go func() { ended <- r.retry(t.Context(), "insert", func() error { <-answer; return nil }) }()
		synctest.Wait()
		if problems := health.Report().Problems; len(problems) > 0 {
			t.Errorf("at once: %v", problems)
		}
		time.Sleep(slowAttempt)
		synctest.Wait()
		if problem := health.Report().Problems["store"]; !strings.HasPrefix(problem, "insert: no answer yet") {
			t.Errorf("%q", problem)
		}
		close(answer)
		servicetest.OK(t, <-ended)
		if problems := health.Report().Problems; len(problems) > 0 {
			t.Errorf("after the answer: %v", problems)
		}
	})
}

// A ClickHouse that takes log-ins and then hangs makes an auditor unhealthy that has not begun, too.
func TestAStartThatHangsIsReported(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	p, through := startProxy(t, dsn, "none")
	p.silent.Store(true)
	defer p.silent.Store(false)
	s := start(t, flags(n, through, 100))
	servicetest.Eventually(t, "it is reported", func() bool {
		return strings.HasPrefix(s.Health.Report().Problems["store"], "opening the database: no answer yet")
	})
	p.silent.Store(false)
	s.AwaitReady()
	servicetest.Eventually(t, "it is well", func() bool { return len(s.Health.Report().Problems) == 0 })
}

// A standby that takes over with many questions to ask, each of which is answered, is not reported.
func TestAStartThatTakesLongIsHealthy(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for slowAttempt: left out of -short")
	}
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	first := start(t, flags(n, dsn, 100))
	first.AwaitReady()
	p, through := startProxy(t, dsn, "none")
	s := start(t, flags(n, through, 100))
	s.AwaitReady()
	p.lag.Store(int64(slowAttempt / 4))
	defer p.lag.Store(0)
	_ = first.Stop()
	for end := time.Now().Add(slowAttempt + 2*time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if problem := s.Health.Report().Problems["store"]; problem != "" {
			t.Fatal(problem)
		}
	}
}

// dropTables empties the database of everything.
func dropTables(t *testing.T, dsn string) {
	t.Helper()
	options, err := clickhouse.ParseDSN(dsn)
	servicetest.OK(t, err)
	c, err := clickhouse.Open(options)
	servicetest.OK(t, err)
	defer func() { _ = c.Close() }()
	var tables []struct {
		Name string `ch:"name"`
	}
	// Views first: they read the tables.
	servicetest.OK(t, c.Select(t.Context(), &tables, "SELECT name FROM system.tables WHERE database = currentDatabase() ORDER BY engine LIKE '%View' DESC"))
	for _, table := range tables {
		servicetest.OK(t, c.Exec(t.Context(), "DROP TABLE "+table.Name+" SYNC"))
	}
}
