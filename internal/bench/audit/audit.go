// Package audit measures what is done with evidence: the auditor, the look-ups of auditors, verification and
// export, beside plain reading and plain inserting. They are one package because they share their samples.
package audit

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/bench/spending"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/storage/engine"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/schema"
)

type Cmd struct {
	Messages int    `help:"Messages of the log that is audited." default:"100000"`
	Runs     int    `help:"How often each rate is taken; the best counts." default:"2"`
	Rows     int    `help:"Rows of evidence among which sessions, proofs and the auditors' questions are looked up; 0 leaves that out." default:"0"`
	Keep     string `help:"Work in this directory and keep it for later runs. Ten million rows take some 3 GB." type:"path" placeholder:"DIR"`
	CacheDir string `help:"Where the engine's library is kept (default: the user's cache directory)." env:"COUNTERSIGN_CACHE" placeholder:"DIR"`
	Profile  string `help:"Write a processor profile of the auditor's path to this file." placeholder:"FILE"`
	JSON     bool   `name:"json" help:"Print JSON, one measurement a line."`
}

func (c *Cmd) Run(ctx context.Context, io ui.Stdio) error {
	if c.Keep != "" {
		if err := checkKept(c.Keep); err != nil {
			return err
		}
	}
	setup := measure.Setup{Dir: c.Keep, SyncInterval: "2m", Services: []string{}, CacheDir: c.CacheDir}
	return setup.Run(ctx, io, func(p *pipeline.Pipeline) (err error) {
		b, err := openAuditBench(ctx, p, c.Keep, c.Profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.close()) }()
		return c.measure(ctx, io, b)
	})
}

// measure measures the floors and the auditor's path over the same messages, and then look-ups in
// the resulting evidence. In a directory of an earlier run it only measures look-ups.
func (c *Cmd) measure(ctx context.Context, io ui.Stdio, b *auditBench) error {
	kept, err := b.kept(ctx)
	if err == nil && kept == 0 {
		err = c.first(ctx, io, b)
	}
	if err != nil {
		return err
	}
	if kept > 0 {
		measure.Title(io, c.JSON, measure.ResultHeads, "the evidence of %d messages was there", kept)
	}
	if c.Rows > 0 {
		if err := c.scale(ctx, io, b); err != nil {
			return err
		}
	}
	for _, name := range []string{"clickhouse", "nats"} {
		if err := measure.Print(io, c.JSON, measure.Result{What: "memory at most: " + name, Peak: float64(spending.PeakMemory(b.t.ReadyInfo().PIDs[name])) / 1e6}); err != nil {
			return err
		}
	}
	return measure.Print(io, c.JSON, measure.Result{What: "memory at most: this process, the auditor and all messages in it", Peak: float64(spending.PeakMemory(os.Getpid())) / 1e6})
}

// first fills the log and measures the auditor from its start.
func (c *Cmd) first(ctx context.Context, io ui.Stdio, b *auditBench) error {
	begun := time.Now()
	n, err := b.log.fill(ctx, c.Messages)
	if err != nil {
		return err
	}
	measure.Title(io, c.JSON, measure.ResultHeads, "a log of %d messages (%s to write)", n, time.Since(begun).Round(time.Second))
	b.messages = n
	steps := []func(context.Context) (measure.Result, error){
		b.best(c.Runs, b.consume), b.best(c.Runs, b.audit), b.best(c.Runs, b.insertFloor), b.best(c.Runs, b.insertDerived), b.size, b.chains, b.proofs,
	}
	var audited, floor measure.Result
	for i, step := range steps {
		r, err := step(ctx)
		if err != nil {
			return err
		}
		switch i {
		case 1:
			audited = r
			continue // printed with its ratio
		case 2:
			floor = r
			audited.ToInsertFloor = audited.PerSecond / floor.PerSecond
			err = errors.Join(measure.Print(io, c.JSON, r), measure.Print(io, c.JSON, audited))
		default:
			err = measure.Print(io, c.JSON, r)
		}
		if err != nil {
			return err
		}
	}
	b.rows = nil // they are in the table now
	return b.keep(ctx)
}

// onEngine runs a measurement on an engine of its own, without a log.
func onEngine(ctx context.Context, io ui.Stdio, dir, cacheDir string, measure func(*engine.Engine, *read.Reader) error) (err error) {
	e, err := engine.Start(ctx, engine.Options{DataDir: dir, CacheDir: cacheDir, Progress: ui.ShowProgress(io)})
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), pipeline.StopTimeout)
		defer cancel()
		err = errors.Join(err, e.Stop(stop))
	}()
	db, err := read.Open(ctx, e.DSN())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := schema.Migrate(ctx, db.Pool()); err != nil {
		return err
	}
	return measure(e, db)
}
