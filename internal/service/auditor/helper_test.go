package auditor

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/examples"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/storage/engine"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/streams"
)

func TestMain(m *testing.M) {
	engine.RunChildIfAsked()
	code := m.Run()
	if shared.e != nil {
		_ = shared.e.Stop(context.Background())
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// shared is one ClickHouse for all tests.
var shared struct {
	once sync.Once
	dir  string
	e    *engine.Engine
	err  error
}

// database empties the database for a test.
func database(tb testing.TB) (dsn string) {
	tb.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "auditor-test-*"); shared.err == nil {
			shared.e, shared.err = engine.Start(context.Background(), engine.Options{DataDir: shared.dir, MaxMemory: 1 << 30})
		}
	})
	if errors.Is(shared.err, engine.ErrFetch) || errors.Is(shared.err, engine.ErrPlatform) {
		tb.Skipf("no ClickHouse engine to test with: %v", shared.err)
	}
	servicetest.OK(tb, shared.err)
	dsn = shared.e.DSN()
	options, err := clickhouse.ParseDSN(dsn)
	servicetest.OK(tb, err)
	c, err := clickhouse.Open(options)
	servicetest.OK(tb, err)
	defer func() { _ = c.Close() }()
	rows, err := c.Query(tb.Context(), "SELECT name FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree' AND name != 'schema_versions'")
	servicetest.OK(tb, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		servicetest.OK(tb, rows.Scan(&name))
		servicetest.OK(tb, c.Exec(tb.Context(), "TRUNCATE TABLE "+name))
	}
	return dsn
}

// ownerOf executes statements as the owner of the database, who can change every table. A mutation is
// done when it returns.
func ownerOf(tb testing.TB, dsn string) (execute func(statement string, args ...any)) {
	tb.Helper()
	options, err := clickhouse.ParseDSN(dsn)
	servicetest.OK(tb, err)
	options.Settings = clickhouse.Settings{"mutations_sync": 2}
	c, err := clickhouse.Open(options)
	servicetest.OK(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	return func(statement string, args ...any) {
		tb.Helper()
		servicetest.OK(tb, c.Exec(tb.Context(), statement, args...))
	}
}

func flags(n *servicetest.NATS, dsn string, batch int) Flags {
	return Flags{Flags: n.Flags("auditor"), ClickHouse: dsn, Batch: batch, CheckpointEvery: 10 * time.Millisecond}
}

// start runs an auditor.
func start(tb testing.TB, f Flags) *servicetest.Service {
	tb.Helper()
	return servicetest.Run(tb, func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) })
}

// supervised is start with a supervisor.
func supervised(tb testing.TB, f Flags) *servicetest.Service {
	tb.Helper()
	return servicetest.Run(tb, servicetest.Supervise(func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) }))
}

// standing is an auditor that stands where the evidence ends, and does nothing
// by itself.
func standing(tb testing.TB, f Flags) *auditor {
	tb.Helper()
	a, err := openAuditor(tb.Context(), f, daemon.Env{Health: daemon.NewHealth(), Ready: func() error { return nil }})
	servicetest.OK(tb, err)
	tb.Cleanup(a.close)
	servicetest.OK(tb, a.restorePosition(tb.Context()))
	servicetest.OK(tb, a.rereadSessions(tb.Context()))
	return a
}

// session is a sample session under another name, with secrets in it.
func session(tb testing.TB, name string) (out []streams.Msg) {
	tb.Helper()
	for _, f := range []string{"sessions/agenthook-rogue.jsonl", "sessions/agenthook-mail.jsonl"} {
		text, err := examples.FS.ReadFile(f)
		servicetest.OK(tb, err)
		for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			line = strings.NewReplacer("sess-rogue-1", name, "sess-mail-1", name).Replace(line)
			out = append(out, streams.Msg{Subject: "gov.events.acme.rt1.agenthook." + name + ".PreToolUse", Body: []byte(line)})
		}
	}
	return out
}

// garbage cannot be parsed.
func garbage(body string) streams.Msg {
	return streams.Msg{Subject: "gov.events.acme.rt1.agenthook.~.unknown", Body: []byte(body)}
}

func ledgerOf(tb testing.TB, dsn string) evidencereader.Reader {
	tb.Helper()
	db, err := read.Open(tb.Context(), dsn)
	servicetest.OK(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	return evidencereader.Reader{DB: db, Stream: streams.DefaultShard}
}

// holds demands that the newest shard's evidence is that of the whole log, once
// each, signed, published, and verifies.
func holds(t *testing.T, n *servicetest.NATS, dsn string) {
	t.Helper()
	l, want := ledgerOf(t, dsn), len(n.Log())
	shards, err := l.Shards(t.Context())
	servicetest.OK(t, err)
	shard := shards[len(shards)-1]
	count, err := l.DB.CountEvidence(t.Context(), shard)
	servicetest.OK(t, err)
	if count.Rows != uint64(want) || count.Distinct != count.Rows || count.First != 1 || count.Last != count.Rows {
		t.Fatalf("evidence %+v of a log of %d messages", count, want)
	}
	published := n.LastPublished(streams.StreamCheckpoints)
	if published == nil {
		t.Fatal("no checkpoint is published")
	}
	v, err := keys.CheckpointVerifier(n.Keys, "")
	servicetest.OK(t, err)
	rep, err := l.Verify(t.Context(), shard, evidencereader.VerifyOptions{
		Keys: []note.Verifier{v}, MinRecords: int64(want), Published: []verify.Published{{Source: "NATS", Text: string(published.Body)}},
	})
	servicetest.OK(t, err)
	cp, err := tree.PeekCheckpoint(string(published.Body))
	servicetest.OK(t, err)
	if !rep.OK || cp.Size != int64(want) {
		t.Errorf("published up to %d of %d; %+v", cp.Size, want, rep)
	}
}

// audited runs an auditor until it has caught up.
func audited(t *testing.T, n *servicetest.NATS, f Flags) {
	t.Helper()
	auditedBy(t, n, start(t, f))
}

// auditedBy waits until an auditor that was just started has audited the log, and stops it.
func auditedBy(t *testing.T, n *servicetest.NATS, s *servicetest.Service) {
	t.Helper()
	log, err := streams.StreamState(t.Context(), n.JS("auditor"), streams.DefaultShard)
	servicetest.OK(t, err)
	s.AwaitReady() // which it also is while it stands by
	servicetest.Eventually(t, "everything is audited", func() bool { return signedUp(n) >= int(log.LastSeq) })
	if err := s.Stop(); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// proxy stands between an auditor and ClickHouse.
type proxy struct {
	l      net.Listener
	target string
	cuts   atomic.Int32 // so many inserts of the marker are cut off
	marker string
	refuse atomic.Bool  // refuse all connections
	lag    atomic.Int64 // nanoseconds by which each answer is late, but those to a log-in and a ping
	silent atomic.Bool  // hold answers back, but for those to a log-in and a ping

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func startProxy(t *testing.T, dsn, marker string) (p *proxy, through string) {
	t.Helper()
	u, err := url.Parse(dsn)
	servicetest.OK(t, err)
	p = &proxy{target: u.Host, marker: marker, conns: map[net.Conn]bool{}}
	p.l, err = net.Listen("tcp", "127.0.0.1:0")
	servicetest.OK(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := p.l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() { _ = p.l.Close(); p.drop(); all.Wait() })
	u.Host = p.l.Addr().String()
	u.RawQuery = "compress=none" // so that the marker can be seen
	return p, u.String()
}

// away takes the server away, or brings it back.
func (p *proxy) away(is bool) {
	p.refuse.Store(is)
	if is {
		p.drop()
	}
}

func (p *proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) keep(c net.Conn) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
		_ = c.Close()
	}
}

// serve copies both ways. Of an insert that is cut the rows arrive and the
// answer does not.
func (p *proxy) serve(client net.Conn) {
	defer p.keep(client)()
	if p.refuse.Load() {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer p.keep(server)()
	var cut atomic.Bool
	var back sync.WaitGroup
	back.Go(func() {
		b := make([]byte, 64<<10)
		for answers := 1; ; answers++ {
			k, err := server.Read(b)
			for answers > 2 && p.silent.Load() {
				time.Sleep(10 * time.Millisecond)
			}
			if answers > 2 {
				time.Sleep(time.Duration(p.lag.Load()))
			}
			if cut.Load() {
				_ = client.Close()
				_, _ = io.Copy(io.Discard, server) // until the insert is done
				return
			}
			if k > 0 {
				_, _ = client.Write(b[:k])
			}
			if err != nil {
				_ = client.Close()
				return
			}
		}
	})
	defer back.Wait()
	b := make([]byte, 1<<20)
	for {
		k, err := client.Read(b)
		if k > 0 && strings.Contains(string(b[:k]), p.marker) && p.cuts.Add(-1) >= 0 {
			cut.Store(true)
		}
		if k > 0 {
			_, _ = server.Write(b[:k])
		}
		if err != nil {
			_ = server.(*net.TCPConn).CloseWrite()
			return
		}
	}
}
