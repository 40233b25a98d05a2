package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/cmd/internal/ledger"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/streams"
)

type verifyCmd struct {
	target.Flags
	Session string `help:"Only this session: its chain, and the proof that each record is in the signed tree."`
	AtLeast int64  `help:"Fail if there are fewer records: a log cut off at its end still fits together." placeholder:"N"`
	Bundle  string `help:"An export bundle instead of a running system; needs no server." placeholder:"FILE"`
	Key     string `help:"The public checkpoint key, or a file that holds it (default: the ready file's)." placeholder:"FILE"`
	Shard   string `help:"Only this incarnation of the log, e.g. GOV@20261120T090000.000000000Z (default: all)."`
	JSON    bool   `name:"json" help:"Print the report as JSON."`
}

func (c *verifyCmd) Run(ctx context.Context, io stdio) error {
	if c.Bundle != "" {
		return c.bundle(io)
	}
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	key, err := checkpointKey(c.Key, t)
	if err != nil {
		return err
	}
	l, err := openLedger(ctx, t)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	var reports []evidence.Report
	if c.Session != "" {
		reports, err = c.session(ctx, l, t.Tenant, key)
	} else {
		reports, err = c.shards(ctx, io, l, t, key)
	}
	if err != nil {
		return err
	}
	return c.report(io, reports)
}

// bundle verifies a file with nothing but the file and the key.
func (c *verifyCmd) bundle(io stdio) error {
	var ready *target.Target
	if c.Key == "" && c.ReadyFile != "" {
		var err error
		if ready, err = c.Resolve(); err != nil {
			return err
		}
	}
	key, err := checkpointKey(c.Key, ready)
	if err != nil {
		return err
	}
	f, err := os.Open(c.Bundle)
	if err != nil {
		return usageError{fmt.Errorf("reading the bundle: %w", err)}
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	rep, err := evidence.VerifyBundle(f, info.Size(), key)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Bundle, err)
	}
	if c.AtLeast > 0 && int64(rep.Records) < c.AtLeast {
		return fmt.Errorf("%s holds %d records, not %d", c.Bundle, rep.Records, c.AtLeast)
	}
	return c.report(io, []evidence.Report{rep})
}

func (c *verifyCmd) session(ctx context.Context, l ledger.Ledger, tenant, key string) (reports []evidence.Report, err error) {
	keys, err := verifiers(key)
	if err != nil {
		return nil, err
	}
	parts, err := l.Session(ctx, tenant, c.Session)
	if err != nil {
		return nil, err
	}
	for _, s := range parts {
		if err := l.Prove(ctx, &s); err != nil {
			return nil, err
		}
		reports = append(reports, evidence.VerifySession(evidence.SessionInput{
			Shard: s.Shard, Tenant: s.Tenant, Session: s.Session, Space: l.Space, Keys: keys, AtLeast: c.AtLeast,
			Checkpoint: evidence.Published{Source: "table checkpoints", Text: s.Checkpoint}, Rows: s.Rows, Proofs: s.Proofs, ReceiptKeys: s.Keys,
		}))
	}
	return reports, nil
}

func (c *verifyCmd) shards(ctx context.Context, io stdio, l ledger.Ledger, t *target.Target, key string) (reports []evidence.Report, err error) {
	keys, err := verifiers(key)
	if err != nil {
		return nil, err
	}
	published, err := publishedCheckpoint(ctx, t)
	switch {
	case errors.Is(err, target.ErrNoServer):
		fmt.Fprintln(io.err, "note: no NATS server named, so the newest published checkpoint is not compared")
	case err != nil:
		return nil, err
	}
	shards, err := c.pick(ctx, l, published)
	if err != nil {
		return nil, err
	}
	progress := countProgress(io, "verifying")
	for i, shard := range shards {
		o := ledger.VerifyOptions{Keys: keys, Published: published, Progress: progress}
		if i == len(shards)-1 {
			o.AtLeast = c.AtLeast // of the incarnation that is written to now
		}
		rep, err := l.Verify(ctx, shard, o)
		if err != nil {
			return nil, err
		}
		reports = append(reports, rep)
	}
	return reports, nil
}

// pick lists the incarnations to verify. One that a published checkpoint speaks
// of is among them, even when not a single row of it is left.
func (c *verifyCmd) pick(ctx context.Context, l ledger.Ledger, published []evidence.Published) ([]string, error) {
	if c.Shard != "" {
		return []string{c.Shard}, nil
	}
	shards, err := l.Shards(ctx)
	if err != nil && !errors.Is(err, ledger.ErrNoEvidence) {
		return nil, err
	}
	for _, p := range published {
		if cp, err := evidence.PeekCheckpoint(p.Text); err == nil && !slices.Contains(shards, cp.Shard) {
			shards = append(shards, cp.Shard)
		}
	}
	if len(shards) == 0 {
		return nil, err
	}
	slices.Sort(shards)
	return shards, nil
}

// publishedCheckpoint reads the newest checkpoint off NATS: whoever can change
// the database cannot take it back.
func publishedCheckpoint(ctx context.Context, t *target.Target) ([]evidence.Published, error) {
	nc, err := t.Connect(ctx, target.Operator)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	m, err := streams.LastBySubject(ctx, js, streams.StreamCheckpoints, subject.Space{Prefix: t.Prefix}.Checkpoints(t.Stream))
	if err != nil {
		return nil, fmt.Errorf("reading the published checkpoint: %w", err)
	}
	if m == nil {
		return nil, nil
	}
	return []evidence.Published{{Source: fmt.Sprintf("stream %s, sequence %d", streams.StreamCheckpoints, m.Seq), Text: string(m.Body)}}, nil
}

// report prints the reports; the command fails unless everything holds.
func (c *verifyCmd) report(io stdio, reports []evidence.Report) error {
	ok := true
	p := newPrinter(io.out)
	for _, r := range reports {
		ok = ok && r.OK
		if c.JSON {
			if err := compactJSON(io, r); err != nil {
				return err
			}
			continue
		}
		printReport(p, r)
	}
	if !ok {
		return exitCode(exitFailed)
	}
	return nil
}

func printReport(p *printer, r evidence.Report) {
	what := "shard " + clean(r.Shard, 80)
	if r.Session != "" {
		what = "session " + clean(r.Session, 60) + " in " + what
	}
	if r.OK {
		p.printf("%s  %s: %d records in %d sessions, %d checkpoints, signed up to %d\n    root %s\n",
			p.paint(green, "holds"), what, r.Records, r.Sessions, r.Checkpoints, r.Signed, r.Root)
		return
	}
	p.printf("%s  %s: %d problems in %d records\n", p.paint(red, "DOES NOT HOLD"), what, r.Total, r.Records)
	for _, problem := range r.Problems {
		p.printf("    %s\n", clean(problem.String(), 400))
	}
	if r.Total > len(r.Problems) {
		p.printf("    ... and %d more\n", r.Total-len(r.Problems))
	}
}
