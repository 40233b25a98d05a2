package write

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
)

// cuttingProxy stands between a client and the engine and cuts connections once
// a marker has passed.
type cuttingProxy struct {
	listener net.Listener
	target   string
	marker   string       // bytes of a client that arm the cut
	swallow  bool         // the bytes that armed it do not arrive
	cuts     atomic.Int32 // how many more connections to cut
}

func startProxy(t *testing.T, target, marker string, swallow bool, cuts int32) *cuttingProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &cuttingProxy{listener: l, target: target, marker: marker, swallow: swallow}
	p.cuts.Store(cuts)
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); open.Wait() })
	return p
}

// serve copies both ways. After a cut nothing that the engine says arrives.
func (p *cuttingProxy) serve(client net.Conn) {
	defer client.Close()
	engine, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer engine.Close()
	var cut atomic.Bool
	var back sync.WaitGroup
	back.Go(func() {
		b := make([]byte, 64<<10)
		for {
			n, err := engine.Read(b)
			if cut.Load() {
				// What the engine says to the whole insert is withheld.
				client.Close()
				_, _ = io.Copy(io.Discard, engine)
				return
			}
			if n > 0 {
				_, _ = client.Write(b[:n])
			}
			if err != nil {
				client.Close()
				return
			}
		}
	})
	defer back.Wait()
	defer engine.Close()
	b := make([]byte, 1<<20)
	for {
		n, err := client.Read(b)
		if n > 0 && strings.Contains(string(b[:n]), p.marker) && p.cuts.Add(-1) >= 0 {
			cut.Store(true)
			if p.swallow {
				return
			}
		}
		if n > 0 {
			if _, err := engine.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// through opens the shared database through a proxy. Compression is off, so that
// the marker can be seen in the data.
func through(t *testing.T, p *cuttingProxy) *Writer {
	t.Helper()
	dsn := strings.Replace(enginetest.Engine(t).DSN(), p.target, p.listener.Addr().String(), 1)
	return New(enginetest.Open(t, dsn+"?compress=none"))
}

func sharedAddress(t *testing.T) string {
	t.Helper()
	New(enginetest.Pool(t))
	o, err := clickhouse.ParseDSN(enginetest.Engine(t).DSN())
	if err != nil {
		t.Fatal(err)
	}
	return o.Addr[0]
}

func TestAmbiguousInsert(t *testing.T) {
	for _, c := range []struct {
		name    string
		swallow bool
		landed  bool
	}{
		{"the answer is lost", false, true},
		{"the rows are lost", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			shard := storagetest.Shard(t)
			rows := storagetest.OneOfEach(t, shard, 1)
			rows[0].BodyDigest = "CUT-HERE"
			db := through(t, startProxy(t, sharedAddress(t), "CUT-HERE", c.swallow, 1))
			err := db.InsertEvidence(t.Context(), EvidenceToken(shard, 1), rows)
			if !errors.Is(err, ErrAmbiguous) {
				t.Fatalf("error %v, want ErrAmbiguous", err)
			}
			awaitIdle(t)
			landed, err := db.VerifyStored(t.Context(), shard, 1, 5, rows)
			if err != nil || landed != c.landed {
				t.Errorf("landed = %v (%v), want %v", landed, err, c.landed)
			}
		})
	}
}

// awaitIdle waits until the engine works on no insert any more.
func awaitIdle(t *testing.T) {
	t.Helper()
	for storagetest.Count(t, enginetest.Pool(t), "SELECT count() FROM system.processes WHERE query LIKE 'INSERT INTO evidence%'") > 0 {
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
	}
}

func TestCommitOverABadConnection(t *testing.T) {
	for _, swallow := range []bool{false, true} {
		t.Run(map[bool]string{false: "answers lost", true: "rows lost"}[swallow], func(t *testing.T) {
			shard := storagetest.Shard(t)
			rows := storagetest.OneOfEach(t, shard, 1)
			rows[0].BodyDigest = "CUT-HERE"
			db := through(t, startProxy(t, sharedAddress(t), "CUT-HERE", swallow, 2))
			if err := db.CommitEvidence(t.Context(), rows); err != nil {
				t.Fatal(err)
			}
			storagetest.WantRows(t, enginetest.Pool(t), shard, storagetest.OneEach)
		})
	}
}
