package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/pipeline"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/examples"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/internal/service/daemon"
)

type demoCmd struct {
	CacheDir string `help:"Where the engine's library is kept (default: the user's cache directory)." env:"COUNTERSIGN_CACHE" placeholder:"DIR"`
	Out      string `help:"Where to write the export (default: a file in the system's directory for temporary files)." placeholder:"FILE.zip"`
	Keep     bool   `help:"Keep the temporary directory with log, evidence and keys."`
}

// demoTimeout bounds the whole demo.
const demoTimeout = 5 * time.Minute

func (c *demoCmd) Run(ctx context.Context, io stdio) (err error) {
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "countersign-demo-")
	if err != nil {
		return err
	}
	if c.Out == "" {
		// One for every user: in a shared directory nobody may replace another's.
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
			fmt.Fprintf(io.err, "log, evidence and keys of the demo are in %s\n", dir)
		}
	}()
	d := &demo{cmd: c, io: io, p: newPrinter(io.out), dir: dir}
	policies := filepath.Join(dir, "policies")
	if err := copyPolicies(policies); err != nil {
		return err
	}
	d.begun = time.Now()
	d.title("Starting NATS, ClickHouse, admitter, correlator and auditor")
	d.pipe, err = pipeline.Start(ctx, pipeline.Options{
		DataDir: dir, Tenant: "acme", CacheDir: c.CacheDir, LogLevel: "info", Log: daemon.Logger(logFile, "info"), ChildLog: logFile,
		Progress:       showProgress(io),
		BeforeServices: func(ctx context.Context, r target.Ready) error { return pushTo(ctx, r, policies) },
	})
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, d.pipe.Stop(stop))
	}()
	d.p.printf("up after %s on %s, policies from examples/policies\n", time.Since(d.begun).Round(time.Millisecond), d.pipe.Ready().NATSURL)
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
	sub, err := fs.Sub(examples.FS, "policies")
	if err != nil {
		return err
	}
	return os.CopyFS(dir, sub)
}

// demo is one run: play makes a log, prove shows what it is worth.
type demo struct {
	cmd  *demoCmd
	io   stdio
	p    *printer
	dir  string
	pipe *pipeline.Pipeline

	begun time.Time
}

func (d *demo) title(s string) { d.p.printf("\n%s\n", d.p.paint(bold, "── "+s)) }

// prove prints the evidence of the rogue agent's session, verifies everything,
// exports, and shows that one changed byte is found.
func (d *demo) prove(ctx context.Context, t *target.Target) error {
	r := d.pipe.Ready()
	l, err := openLedger(ctx, t)
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
		if err := printChain(d.io, s, nil, false, false); err != nil {
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
	d.p.printf("\n%s\n", d.p.paint(green, "The demo is done: what was allowed, what ran, and where the two did not match, proved."))
	return nil
}

// verify recomputes every shard and fails unless the result is as it should be.
func (d *demo) verify(ctx context.Context, l evidencereader.Reader, key string, want bool) error {
	keys, err := verifiers(key)
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
		printReport(d.p, rep)
		if rep.OK != want {
			return fmt.Errorf("verification of shard %s: holds is %t, want %t", s, rep.OK, want)
		}
	}
	return nil
}

// export writes the bundle and verifies it as a stranger would.
func (d *demo) export(ctx context.Context, l evidencereader.Reader, t *target.Target, s evidencereader.Session) error {
	d.title("The compliance bundle of the session, verified from the file and the public key alone")
	if err := l.Prove(ctx, &s); err != nil {
		return err
	}
	if err := writeSession(ctx, l, t, s, d.cmd.Out, nil); err != nil {
		return err
	}
	info, err := os.Stat(d.cmd.Out)
	if err != nil {
		return err
	}
	check := verifyCmd{Bundle: d.cmd.Out, Key: d.pipe.Ready().PublicKey}
	a, err := check.against()
	if err == nil {
		err = check.bundle(d.io, a)
	}
	if err != nil {
		return fmt.Errorf("the bundle does not verify: %w", err)
	}
	d.p.printf("    %s, %d bytes; report.html in it is for reading\n", d.cmd.Out, info.Size())
	return nil
}
