package audit

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/bench/spending"
	"github.com/countersign-dev/countersign/internal/cli/proof"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/engine"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/streams"
)

type VerifyCmd struct {
	Records  int    `help:"How many records are made and verified." default:"300000"`
	Share    int    `help:"How many decisions have one signature: 1 as of a quiet system, more as of a busy one." default:"16"`
	Runs     int    `help:"How often each measurement is taken; the best is told." default:"3"`
	Proofs   int    `help:"How many single proofs are made." default:"500"`
	CacheDir string `help:"Where the engine's library is kept (default: the user's cache directory)." env:"COUNTERSIGN_CACHE" placeholder:"DIR"`
	JSON     bool   `name:"json" help:"Print JSON, one measurement a line."`
}

func (c *VerifyCmd) Run(ctx context.Context, io ui.Stdio) error {
	if c.Records < sampleRecords || c.Share < 1 || c.Runs < 1 || c.Proofs < 1 {
		return ui.UsageError{Err: fmt.Errorf("--records must be at least %d, --share, --runs and --proofs at least 1", sampleRecords)}
	}
	dir, err := os.MkdirTemp("", "countersign-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	return onEngine(ctx, io, dir, c.CacheDir, func(e *engine.Engine, db *read.Reader) error {
		shard, err := fillShard(ctx, db, c.Records, c.Share, ui.CountProgress(io, "making evidence"))
		if err != nil {
			return err
		}
		shard.engine = e.PID()
		return c.measure(ctx, io, shard)
	})
}

func (c *VerifyCmd) measure(ctx context.Context, io ui.Stdio, s *verifyShard) error {
	n := int(s.tree.Size())
	bytes := 0
	for _, r := range s.sample {
		bytes += len(r.Record)
	}
	measure.Title(io, c.JSON, measure.ResultHeads, "%d records of %d B, one signature for %d decisions, best of %d", n, bytes/len(s.sample), c.Share, c.Runs)
	l := evidencereader.Reader{DB: s.db, Stream: streams.DefaultShard}
	floor := 0.0
	whole := func(workers int) func(context.Context) error {
		return func(ctx context.Context) error { return s.verify(ctx, l, workers) }
	}
	for _, step := range []struct {
		what string
		n    int
		do   func(context.Context) error
	}{
		{"floor: read in order and SHA-256, 1 connection", n, s.floor},
		{"verify, 1 worker", n, whole(1)},
		{fmt.Sprintf("verify, %d workers", runtime.GOMAXPROCS(0)), n, whole(0)},
		{"records alone, without a database", len(s.sample), s.alone},
	} {
		r, err := c.best(ctx, step.what, step.n, step.do)
		if err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		if floor == 0 {
			floor = r.PerSecond
		} else {
			r.ToFloor = r.PerSecond / floor
		}
		if err := measure.Print(io, c.JSON, r); err != nil {
			return err
		}
	}
	return c.single(ctx, io, s, l)
}

// single measures look-ups and proofs one at a time.
func (c *VerifyCmd) single(ctx context.Context, io ui.Stdio, s *verifyShard, l evidencereader.Reader) error {
	rng := rand.New(rand.NewPCG(1, 2))
	size := s.tree.Size()
	anySeq := func() uint64 { return uint64(rng.Int64N(size)) + 1 }
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"inclusion proof", func() error { _, err := l.InclusionProofs(ctx, s.name, size, []uint64{anySeq()}); return err }},
		{"consistency proof", func() error { _, err := l.ConsistencyProof(ctx, s.name, int64(anySeq()), size); return err }},
		{"one session: rows, proofs, verification", func() error { return s.verifySession(ctx, l) }},
	} {
		l, engine, err := timed(c.Proofs, step.what, s.engine, step.do)
		if err != nil {
			return err
		}
		r := measure.Result{What: step.what, Count: l.Count, PerSecond: l.PerSecond, P50: l.P50, P99: l.P99, EngineCPU: engine}
		if err := measure.Print(io, c.JSON, r); err != nil {
			return err
		}
	}
	return nil
}

// best repeats a measurement and returns the fastest run, which is the least disturbed by other
// work on the machine.
func (c *VerifyCmd) best(ctx context.Context, what string, n int, do func(context.Context) error) (best measure.Result, err error) {
	for range c.Runs {
		debug.FreeOSMemory() // also collects garbage
		forgetHighWater()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		cpu, begun := cpuTime(), time.Now()
		if err := do(ctx); err != nil {
			return best, err
		}
		took := time.Since(begun)
		cpu = cpuTime() - cpu
		runtime.ReadMemStats(&after)
		r := measure.Result{What: what, Count: n, PerSecond: float64(n) / took.Seconds(), CPU: measure.Micros(cpu) / float64(n),
			Allocs: float64(after.Mallocs-before.Mallocs) / float64(n), AllocBytes: float64(after.TotalAlloc-before.TotalAlloc) / float64(n)}
		if peak := float64(spending.PeakMemory(os.Getpid())) / 1e6; r.PerSecond > best.PerSecond {
			best = r
			best.Peak = peak
		}
	}
	return best, nil
}

// forgetHighWater resets this process's peak for spending.PeakMemory, if the kernel permits it.
func forgetHighWater() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// cpuTime is the processor time of this process, without the engine.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// floor reads the same rows in the same order and hashes their texts.
func (s *verifyShard) floor(ctx context.Context) error {
	wrong := 0
	err := s.db.Scan(ctx, s.name, 0, storage.AllSequences, func(r storage.EvidenceRow) error {
		if sha256.Sum256([]byte(r.Record)) == r.RecordHash { // the record's hash has a prefix, so it differs
			wrong++
		}
		return nil
	})
	if wrong > 0 {
		return errors.New("a hash without its prefix")
	}
	return err
}

func (s *verifyShard) verify(ctx context.Context, l evidencereader.Reader, workers int) error {
	defer proof.FewerCollections()()
	rep, err := l.Verify(ctx, s.name, evidencereader.VerifyOptions{Keys: s.verifiers, Workers: workers})
	return held(rep, err)
}

// alone verifies the rows in memory with one goroutine. No checkpoint signs them.
func (s *verifyShard) alone(context.Context) error {
	v := verify.NewVerifier(verify.Options{Shard: s.name, Keys: s.verifiers})
	for _, r := range s.sample {
		v.Row(r)
	}
	rep := v.Finish()
	if rep.Total == 1 && rep.ByCode[verify.CodeNoCheckpoint] == 1 {
		return nil
	}
	return held(rep, nil)
}

func (s *verifyShard) verifySession(ctx context.Context, l evidencereader.Reader) error {
	parts, err := l.Session(ctx, "acme", s.session)
	if err != nil {
		return err
	}
	if err := l.AddProofs(ctx, &parts[0], s.verifiers); err != nil {
		return err
	}
	p := parts[0]
	return held(verify.Session(verify.SessionInput{Shard: p.Shard, Tenant: p.Tenant, Session: p.Session, Keys: s.verifiers,
		Checkpoint: verify.Published{Source: "table checkpoints", Text: p.Checkpoint}, Rows: p.Rows, Proofs: p.Proofs, ReceiptKeys: p.Keys}), nil)
}

// held returns an error for evidence that is not valid: a benchmark must measure a successful
// verification.
func held(rep verify.Report, err error) error {
	if err == nil && !rep.OK {
		err = fmt.Errorf("%d problems, the first: %s", rep.Total, rep.Findings[0])
	}
	return err
}
