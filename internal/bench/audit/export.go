package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/bench/spending"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/storage/engine"
	"github.com/countersign-dev/countersign/storage/read"
)

type ExportCmd struct {
	Records  int    `help:"How many records are made, exported and verified." default:"1000000"`
	Share    int    `help:"How many decisions have one signature." default:"16"`
	Dir      string `help:"Where the files are written (default: a temporary directory)." placeholder:"DIR"`
	CacheDir string `help:"Where the engine's library is kept (default: the user's cache directory)." env:"COUNTERSIGN_CACHE" placeholder:"DIR"`
	JSON     bool   `name:"json" help:"Print JSON, one measurement a line."`
}

// Run exports and verifies in separate processes, so that each one's memory is measured alone.
func (c *ExportCmd) Run(ctx context.Context, io ui.Stdio) (err error) {
	if c.Records < sampleRecords || c.Share < 1 {
		return ui.UsageError{Err: fmt.Errorf("--records must be at least %d, --share at least 1", sampleRecords)}
	}
	dir, err := os.MkdirTemp(c.Dir, "countersign-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return onEngine(ctx, io, filepath.Join(dir, "engine"), c.CacheDir, func(e *engine.Engine, db *read.Reader) error {
		shard, err := fillShard(ctx, db, c.Records, c.Share, ui.CountProgress(io, "making evidence"))
		if err != nil {
			return err
		}
		return c.measure(ctx, io, shard, e.DSN(), dir)
	})
}

func (c *ExportCmd) measure(ctx context.Context, io ui.Stdio, s *verifyShard, dsn, dir string) error {
	bundle, key := filepath.Join(dir, "range.zip"), filepath.Join(dir, "checkpoint.pub")
	if err := os.WriteFile(key, []byte(samplePublicKey()+"\n"), 0o600); err != nil {
		return err
	}
	n := int(s.tree.Size())
	to := shardCreated.Add(time.Duration(n+1) * time.Millisecond)
	measure.Title(io, c.JSON, measure.ResultHeads, "%d records in the log", n)
	for _, step := range []struct {
		what string
		args []string
	}{
		{"export --from --to", []string{"export", "--clickhouse", dsn, "--tenant", "acme", "--from", shardCreated.Format(time.RFC3339), "--to", to.Format(time.RFC3339Nano), "--out", bundle, "--key", key}},
		{"verify --bundle", []string{"verify", "--bundle", bundle, "--key", key}},
	} {
		r, err := measured(ctx, io, step.args)
		if err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		info, err := os.Stat(bundle)
		if err != nil {
			return err
		}
		r.What, r.Records, r.BundleBytes = step.what, n, info.Size()
		r.PerSecond, r.CPU = float64(n)/r.Seconds, r.CPU/float64(n)
		if err := measure.Print(io, c.JSON, r); err != nil {
			return err
		}
	}
	return nil
}

// measured runs a command of the product in a separate process and measures its memory. Its
// progress is passed on.
func measured(ctx context.Context, io ui.Stdio, args []string) (r measure.Result, err error) {
	product, err := measure.Beside("countersign")
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, product, args...)
	cmd.Stderr = io.Err
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return r, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			r.Seconds = time.Since(begun).Seconds()
			r.CPU = measure.Micros(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime())
			return r, err
		case <-tick.C:
			r.PeakRSS = max(r.PeakRSS, spending.PeakMemory(cmd.Process.Pid))
		}
	}
}

// samplePublicKey is the public half of the key that signs the checkpoints of fillShard.
func samplePublicKey() string {
	_, public, _ := signing.NewCheckpointKey(bytes.NewReader(sampleKey("checkpoint"))) // 32 bytes are enough
	return public
}
