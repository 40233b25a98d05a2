package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/examples"
	"github.com/countersign-dev/countersign/internal/cli/export"
	"github.com/countersign-dev/countersign/internal/cli/inspect"
	"github.com/countersign-dev/countersign/internal/cli/policycmd"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/cli/verify"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/internal/service/daemon"
)

// DemoCmd is `countersign demo`.
type DemoCmd struct {
	CacheDir string `help:"Where the engine's library is kept (default: the user's cache directory)." env:"COUNTERSIGN_CACHE" placeholder:"DIR"`
	Out      string `help:"Where to write the export (default: a file in the system's directory for temporary files)." placeholder:"FILE.zip"`
	Keep     bool   `help:"Keep the temporary directory with log, evidence and keys."`
}

// demoTimeout bounds the whole demo.
const demoTimeout = 5 * time.Minute

func (c *DemoCmd) Run(ctx context.Context, io ui.Stdio) (err error) {
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "countersign-demo-")
	if err != nil {
		return err
	}
	if c.Out == "" {
		// One per user: in a shared directory no user may replace another's.
		c.Out = filepath.Join(os.TempDir(), fmt.Sprintf("countersign-demo-%d.zip", os.Getuid()))
	}
	logPath := filepath.Join(dir, "services.log")
	logFile, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		_ = logFile.Close()
		if err == nil && !c.Keep {
			_ = os.RemoveAll(dir)
		} else {
			fmt.Fprintf(io.Err, "log, evidence and keys of the demo are in %s\n", dir)
		}
	}()
	d := &demo{cmd: c, io: io, p: ui.NewPrinter(io.Out)}
	policies := filepath.Join(dir, "policies")
	if err := copyPolicies(policies); err != nil {
		return err
	}
	d.begun = time.Now()
	d.title("Starting NATS, ClickHouse, admitter, correlator and auditor")
	d.pipe, err = pipeline.Start(ctx, pipeline.Options{
		DataDir: dir, Tenant: "acme", CacheDir: c.CacheDir, LogLevel: "info", Log: daemon.Logger(logFile, "info"), ChildLog: logFile,
		Progress:       ui.ShowProgress(io),
		BeforeServices: func(ctx context.Context, r target.Ready) error { return policycmd.PushPolicyDir(ctx, r, policies) },
	})
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), pipeline.StopTimeout)
		defer cancel()
		err = errors.Join(err, d.pipe.Stop(stop))
	}()
	if err := d.pipe.Running(); err != nil {
		return err
	}
	d.p.Printf("up after %s on %s, policies from examples/policies/assistant\n", time.Since(d.begun).Round(time.Millisecond), d.pipe.Ready().NATSURL)
	t := target.FromReady(d.pipe.Ready())
	stop, err := d.follow(ctx, t)
	if err != nil {
		return err
	}
	if err := errors.Join(d.play(ctx, t), d.settle(ctx, t), stop()); err != nil {
		return err
	}
	return d.prove(ctx, t)
}

func copyPolicies(dir string) error {
	sub, err := fs.Sub(examples.FS, "policies/assistant")
	if err != nil {
		return err
	}
	return os.CopyFS(dir, sub)
}

// demo is one run: play makes a log, prove shows and verifies its evidence.
type demo struct {
	cmd  *DemoCmd
	io   ui.Stdio
	p    *ui.Printer
	pipe *pipeline.Pipeline

	begun time.Time
}

func (d *demo) title(s string) { d.p.Printf("\n%s\n", d.p.Paint(ui.Bold, "── "+s)) }

// prove prints the evidence of the rogue agent's session, verifies everything,
// exports, and shows that one changed byte is found.
func (d *demo) prove(ctx context.Context, t *target.Target) error {
	r := d.pipe.Ready()
	l, err := system.OpenEvidence(ctx, t)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()

	d.title("The evidence chain of the rogue agent's session, from ClickHouse")
	parts, err := l.Session(ctx, r.Tenant, rogueSession)
	if err != nil {
		return err
	}
	for _, s := range parts {
		if err := inspect.PrintChain(d.io, s, nil, false, false); err != nil {
			return err
		}
	}
	d.title("Verification: chain, Merkle tree, checkpoints, signatures")
	if err := d.verify(ctx, l, r.PublicKey, true); err != nil {
		return err
	}
	if err := d.export(ctx, l, t, parts[0]); err != nil {
		return err
	}
	d.title("One byte of one stored record is changed")
	if err := tamper(ctx, r.ClickHouseDSN, parts[0].Rows[0]); err != nil {
		return err
	}
	if err := d.verify(ctx, l, r.PublicKey, false); err != nil {
		return err
	}
	d.p.Printf("\n%s\n", d.p.Paint(ui.Green, "The demo is done: what was allowed, what ran, and where the two did not match, proved."))
	return nil
}

// verify recomputes every shard and fails unless the result is want.
func (d *demo) verify(ctx context.Context, l evidencereader.Reader, key string, want bool) error {
	keys, err := system.CheckpointVerifiers(key)
	if err != nil {
		return err
	}
	shards, err := l.Shards(ctx)
	if err != nil {
		return err
	}
	for _, s := range shards {
		rep, err := l.Verify(ctx, s, evidencereader.VerifyOptions{Keys: keys})
		if err != nil {
			return err
		}
		verify.PrintReport(d.p, rep)
		if rep.OK != want {
			return fmt.Errorf("verification of shard %s: holds is %t, want %t", s, rep.OK, want)
		}
	}
	return nil
}

// export writes the bundle and verifies it from the file and the public key alone.
func (d *demo) export(ctx context.Context, l evidencereader.Reader, t *target.Target, s evidencereader.Session) error {
	d.title("The compliance bundle of the session, verified from the file and the public key alone")
	keys, err := system.CheckpointVerifiers(d.pipe.Ready().PublicKey)
	if err != nil {
		return err
	}
	in, err := l.SessionBundle(ctx, s, keys)
	if err != nil {
		return err
	}
	if _, err := export.WriteBundle(ctx, l, t, in, d.cmd.Out); err != nil {
		return err
	}
	info, err := os.Stat(d.cmd.Out)
	if err != nil {
		return err
	}
	if err := verify.Bundle(d.io, d.cmd.Out, d.pipe.Ready().PublicKey); err != nil {
		return fmt.Errorf("the bundle does not verify: %w", err)
	}
	d.p.Printf("    %s, %d bytes; report.html in it is for reading\n", d.cmd.Out, info.Size())
	return nil
}
