package export

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/cli/proof"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// exportRange writes everything of a tenant between two times.
func (c *Cmd) exportRange(ctx context.Context, io ui.Stdio, l evidencereader.Reader, t *target.Target, plan exportPlan) error {
	shard, err := c.rangeShard(ctx, io, l, t, plan)
	if err != nil {
		return err
	}
	own, restsOn, done, err := c.ProveShard(ctx, io, l, t, c.Key, c.CacheDir, shard, evidencereader.CopyFilter{Tenant: t.Tenant})
	if err != nil {
		return err
	}
	defer done()
	last, err := signedRange(ctx, l, own, shard, plan)
	if err != nil {
		return err
	}
	by, err := c.signers(ctx, io, t, restsOn)
	if err != nil {
		return err
	}
	r, err := own.TenantRange(ctx, shard, t.Tenant, plan.from, plan.to, by.log, ui.CountProgress(io, "exporting"))
	if err != nil {
		return err
	}
	if err := c.useWitnessed(ctx, l, own, &r.Input, last, by); err != nil {
		return err
	}
	again, told := uint64(0), ui.CountProgress(io, "making list, table and report")
	r.Input.SignKey, r.Input.OnReread = plan.key, func() { again++; told(again, 3*r.Count) }
	n, err := WriteBundle(ctx, own, t, r.Input, c.Out)
	if err != nil {
		return err
	}
	fmt.Fprintf(io.Out, "%d records of tenant %s from %s to %s written to %s\n", n, ui.Clean(t.Tenant, 60), plan.from.Format(time.RFC3339Nano), plan.to.Format(time.RFC3339Nano), c.Out)
	proof.PrintBasis(io, false, 1, restsOn)
	c.nextSteps(io, plan)
	return nil
}

// rangeShard picks the incarnation of the log, and checks that its evidence reaches beyond the
// range.
func (c *Cmd) rangeShard(ctx context.Context, io ui.Stdio, l evidencereader.Reader, t *target.Target, plan exportPlan) (string, error) {
	shards, err := l.Shards(ctx)
	if err != nil {
		return "", err
	}
	newest := shards[len(shards)-1]
	if c.Shard != "" && c.Shard != newest {
		return c.Shard, nil // no new records are written to it
	}
	if len(shards) > 1 && c.Shard == "" {
		fmt.Fprintf(io.Err, "note: there are %d incarnations of the log; this is the newest, name another with --shard\n", len(shards))
	}
	return newest, c.audited(ctx, io, l, t, newest, plan.to)
}

// signedRange returns the last sequence of the range, and checks that a checkpoint covers it:
// unsigned records are not among the proved ones.
func signedRange(ctx context.Context, l, own evidencereader.Reader, shard string, plan exportPlan) (last uint64, err error) {
	if _, last, err = l.DB.SequencesBetween(ctx, shard, plan.from, plan.to); err != nil {
		return 0, fmt.Errorf("looking for the end of the range: %w", err)
	}
	cp, err := own.DB.LatestCheckpoint(ctx, shard)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return 0, err
	}
	if cp.Size < last {
		return 0, fmt.Errorf("record %d of the range is not covered by a checkpoint yet: try again in a moment", last)
	}
	return last, nil
}

// audited checks that the auditor has processed the log up to a time.
func (c *Cmd) audited(ctx context.Context, io ui.Stdio, l evidencereader.Reader, t *target.Target, shard string, to time.Time) error {
	behind, _, err := l.DB.SequencesBetween(ctx, shard, to, time.Time{})
	if err != nil || behind > 0 {
		return err // there is evidence from after the range, so the range is complete
	}
	o, err := system.Connect(ctx, t)
	if errors.Is(err, target.ErrNoServer) {
		fmt.Fprintln(io.Err, "note: no NATS server named, so it was not checked that the evidence reaches to the end of the range")
		return nil
	}
	if err != nil {
		return err
	}
	defer o.Conn.Close()
	log, err := streams.StreamState(ctx, o.JS, t.Stream)
	if err != nil {
		return fmt.Errorf("asking how far the log is: %w", err)
	}
	at, _, err := l.DB.Position(ctx, shard)
	if err == nil && at < log.LastSeq {
		err = fmt.Errorf("the range is still being written: the evidence is at sequence %d, the log at %d; try again in a moment", at, log.LastSeq)
	}
	return err
}
