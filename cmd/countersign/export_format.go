package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/compliance/format"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

// stdout is the --out that stands for standard output.
const stdout = "-"

// errNoLine says that there was evidence, and nothing in it for the format.
var errNoLine = errors.New("nothing to write in this format")

// exportFormat writes lines in somebody else's format instead of a bundle.
func (c *exportCmd) exportFormat(ctx context.Context, io stdio) error {
	if err := c.formatUsage(); err != nil {
		return usageError{err}
	}
	plan, err := c.plan()
	if err != nil {
		return err
	}
	t, l, err := evidenceOf(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	shard := c.Shard
	if plan.ranged {
		if shard, err = c.rangeShard(ctx, io, l, t, plan); err != nil {
			return err
		}
	}
	own, restsOn, done, err := c.shard(ctx, io, l, t, c.Key, c.CacheDir, shard, evidencereader.CopyFilter{Tenant: t.Tenant})
	if err != nil {
		return err
	}
	defer done()
	if plan.ranged && restsOn.proved {
		if _, err := signedRange(ctx, l, own, shard, plan); err != nil {
			return err
		}
	}
	scan, err := c.formatSource(ctx, io, own, t, plan, shard)
	if err != nil {
		return err
	}
	mandates, err := c.formatMandates(ctx, io)
	if err != nil {
		return err
	}
	defer mandates.close()
	o := format.Options{Tenant: t.Tenant, Space: l.Space, Version: programVersion(), Mandate: mandates.lookup(ctx)}
	var sum format.Summary
	gone := newExpiredRows(own)
	defer func() { gone.note(io, "without a line") }()
	scan = gone.of(ctx, scan)
	fill := func(out writer) (err error) {
		sum, err = writeFormat(c.Format, o, scan, mandates, out)
		return err
	}
	if err := c.formatFile(io, fill); err != nil {
		return err
	}
	c.formatReport(io, sum)
	fmt.Fprintf(io.err, "note: %s\n", restsOn.text)
	return nil
}

// writer is io.Writer; commands name their standard streams io.
type writer = io.Writer

// formatUsage says what does not go together with --format.
func (c *exportCmd) formatUsage() error {
	if !slices.Contains(format.Names(), c.Format) {
		return fmt.Errorf("--format %q is none of %v", clean(c.Format, 40), format.Names())
	}
	for flag, given := range map[string]bool{"--sign-key": c.SignKey != "", "--pdf": c.PDF != "", "--witnessed": len(c.Witnessed) > 0} {
		if given {
			return fmt.Errorf("%s is for bundles: leave it out, or --format", flag)
		}
	}
	return nil
}

// scanFunc gives the rows of what is exported, in the order of the log.
type scanFunc func(func(storage.EvidenceRow) error) error

// formatSource finds the records: all incarnations of the log for a session, one
// for a range, as for bundles.
func (c *exportCmd) formatSource(ctx context.Context, io stdio, l evidencereader.Reader, t *target.Target, plan exportPlan, shard string) (scanFunc, error) {
	if !plan.ranged {
		return func(fn func(storage.EvidenceRow) error) error {
			found := false
			err := l.DB.Chain(ctx, t.Tenant, c.Session, func(r storage.EvidenceRow) error {
				if c.Shard != "" && r.Shard != c.Shard {
					return nil
				}
				found = true
				return fn(r)
			})
			if err == nil && !found {
				err = fmt.Errorf("%w: tenant %q, session %q", evidencereader.ErrNoSession, clean(t.Tenant, 60), clean(c.Session, 60))
			}
			return err
		}, nil
	}
	n, err := l.DB.CountTenant(ctx, shard, t.Tenant, plan.from, plan.to)
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: tenant %q, %s to %s, shard %s", evidencereader.ErrEmptyRange, clean(t.Tenant, 60), plan.from.Format(time.RFC3339), plan.to.Format(time.RFC3339), clean(shard, 80))
	}
	tell := countProgress(io, "exporting")
	var done uint64
	return func(fn func(storage.EvidenceRow) error) error {
		return l.DB.ScanTenant(ctx, shard, t.Tenant, plan.from, plan.to, func(r storage.EvidenceRow) error {
			done++
			tell(done, n)
			return fn(r)
		})
	}, err
}

// writeFormat writes all lines.
func writeFormat(name string, o format.Options, scan scanFunc, mandates *formatMandates, out writer) (format.Summary, error) {
	enc, err := format.New(name, o, func(line []byte) error {
		_, err := out.Write(append(line, '\n'))
		return err
	})
	if err != nil {
		return format.Summary{}, err
	}
	err = scan(func(r storage.EvidenceRow) error {
		item, err := formatItem(r)
		if err == nil {
			err = errors.Join(enc.Add(item), mandates.err)
		}
		return err
	})
	if err == nil {
		err = errors.Join(enc.Close(), mandates.err)
	}
	sum := enc.Summary()
	if err == nil && sum.Lines == 0 {
		err = fmt.Errorf("%w: %s has lines for %s, and among %d records there are none%s", errNoLine, name, format.Describe(name), sum.Records, leftOut(sum))
	}
	return sum, err
}

// formatItem is a row that is what its hash says. Whether it belongs where it
// stands is for verify to say.
func formatItem(r storage.EvidenceRow) (format.Item, error) {
	rec, err := evidence.ParseRecord([]byte(r.Record))
	if err == nil && evidence.HashRecord([]byte(r.Record)) != r.RecordHash {
		err = evidence.ErrRecord
	}
	if err != nil {
		return format.Item{}, fmt.Errorf("record %d of shard %s is not what the auditor wrote (%w): run countersign verify", r.Seq, clean(r.Shard, 80), err)
	}
	return format.Item{Record: rec, Hash: r.RecordHash}, nil
}

// formatFile has the lines written to a file, whole or not at all, or to
// standard output.
func (c *exportCmd) formatFile(std stdio, fill func(writer) error) error {
	buffered := func(out writer) error {
		w := bufio.NewWriterSize(out, 1<<16)
		err := fill(w)
		if err == nil {
			err = w.Flush()
		}
		return err
	}
	if c.Out == stdout {
		return buffered(std.out)
	}
	return atomicfile.Stream(c.Out, 0o600, buffered)
}

// formatReport says what was written and what was not; on standard error where
// the lines themselves go to standard output.
func (c *exportCmd) formatReport(io stdio, sum format.Summary) {
	out, where := io.out, c.Out
	if c.Out == stdout {
		out, where = io.err, "standard output"
	}
	fmt.Fprintf(out, "%s of %s from %s written to %s\n", plural(int(sum.Lines), "line"), c.Format, plural(int(sum.Records), "record"), where)
	for _, why := range slices.Sorted(maps.Keys(sum.Skipped)) {
		fmt.Fprintf(io.err, "note: without a line: %s (%d)\n", why, sum.Skipped[why])
	}
}

func leftOut(sum format.Summary) string {
	out := ""
	for _, why := range slices.Sorted(maps.Keys(sum.Skipped)) {
		out += fmt.Sprintf("; %d times %s", sum.Skipped[why], why)
	}
	return out
}

// programVersion is this program's version.
func programVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
