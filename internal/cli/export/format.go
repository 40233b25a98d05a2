package export

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/compliance/format"
	"github.com/countersign-dev/countersign/compliance/format/encode"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/buildinfo"
	"github.com/countersign-dev/countersign/internal/cli/proof"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

// stdout is the value of --out for standard output.
const stdout = "-"

// errNoLine reports that no record of the evidence has a line in the format.
var errNoLine = errors.New("nothing to write in this format")

// exportFormat writes lines of another format instead of a bundle.
func (c *Cmd) exportFormat(ctx context.Context, io ui.Stdio) error {
	if err := c.formatUsage(); err != nil {
		return ui.UsageError{Err: err}
	}
	plan, err := c.plan()
	if err != nil {
		return err
	}
	t, l, err := system.FindEvidence(ctx, c.Flags)
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
	own, restsOn, done, err := c.ProveShard(ctx, io, l, t, c.Key, c.CacheDir, shard, evidencereader.CopyFilter{Tenant: t.Tenant})
	if err != nil {
		return err
	}
	defer done()
	if plan.ranged && own.DB != l.DB {
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
	o := encode.Options{Tenant: t.Tenant, Space: l.Space, Version: buildinfo.Version(), Mandate: mandates.lookup(ctx)}
	var sum format.Summary
	gone := proof.NewExpiredRows(own)
	defer func() { gone.Note(io, "without a line") }()
	scan = gone.WithText(ctx, scan)
	fill := func(out writer) (err error) {
		sum, err = writeFormat(c.Format, o, scan, mandates, out)
		return err
	}
	if err := c.formatFile(io, fill); err != nil {
		return err
	}
	c.formatReport(io, sum)
	fmt.Fprintf(io.Err, "note: %s\n", restsOn.Text)
	return nil
}

// writer is io.Writer; commands name their standard streams io.
type writer = io.Writer

// formatUsage returns an error for flags that do not go with --format.
func (c *Cmd) formatUsage() error {
	if !slices.Contains(format.Names(), c.Format) {
		return fmt.Errorf("--format %q is none of %v", ui.Clean(c.Format, 40), format.Names())
	}
	for flag, given := range map[string]bool{"--sign-key": c.SignKey != "", "--pdf": c.PDF != "", "--witnessed": len(c.Witnessed) > 0} {
		if given {
			return fmt.Errorf("%s is for bundles: leave it out, or --format", flag)
		}
	}
	return nil
}

// formatSource returns the records: of a session from all incarnations of the log, of a range
// from one, as for bundles.
func (c *Cmd) formatSource(ctx context.Context, io ui.Stdio, l evidencereader.Reader, t *target.Target, plan exportPlan, shard string) (proof.RowScan, error) {
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
				err = fmt.Errorf("%w: tenant %q, session %q", evidencereader.ErrNoSession, ui.Clean(t.Tenant, 60), ui.Clean(c.Session, 60))
			}
			return err
		}, nil
	}
	n, err := l.DB.CountTenant(ctx, shard, t.Tenant, plan.from, plan.to)
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: tenant %q, %s to %s, shard %s", evidencereader.ErrEmptyRange, ui.Clean(t.Tenant, 60), plan.from.Format(time.RFC3339Nano), plan.to.Format(time.RFC3339Nano), ui.Clean(shard, 80))
	}
	tell := ui.CountProgress(io, "exporting")
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
func writeFormat(name string, o encode.Options, scan proof.RowScan, mandates *formatMandates, out writer) (format.Summary, error) {
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
		err = fmt.Errorf("%w: %s has lines for %s, and among %s with their text there are none%s", errNoLine, name, format.Describe(name), ui.Plural(int(sum.Records), "record"), leftOut(sum))
	}
	return sum, err
}

// formatItem decodes a row with a text that matches its hash. It does not check the row's place; verify
// does.
func formatItem(r storage.EvidenceRow) (encode.Item, error) {
	rec, err := evidence.ParseRecord([]byte(r.Record))
	if err == nil && evidence.HashRecord([]byte(r.Record)) != r.RecordHash {
		err = evidence.ErrRecord
	}
	if err != nil {
		return encode.Item{}, fmt.Errorf("record %d of shard %s is not what the auditor wrote (%w): run countersign verify", r.Seq, ui.Clean(r.Shard, 80), err)
	}
	return encode.Item{Record: rec, Hash: r.RecordHash}, nil
}

// formatFile writes the lines to a file, whole or not at all, or to standard output.
func (c *Cmd) formatFile(std ui.Stdio, fill func(writer) error) error {
	buffered := func(out writer) error {
		w := bufio.NewWriterSize(out, 1<<16)
		err := fill(w)
		if err == nil {
			err = w.Flush()
		}
		return err
	}
	if c.Out == stdout {
		return buffered(std.Out)
	}
	return atomicfile.Stream(c.Out, 0o600, buffered)
}

// formatReport prints what was written and left out; on standard error if the lines go to
// standard output.
func (c *Cmd) formatReport(io ui.Stdio, sum format.Summary) {
	out, where := io.Out, c.Out
	if c.Out == stdout {
		out, where = io.Err, "standard output"
	}
	fmt.Fprintf(out, "%s of %s from %s written to %s\n", ui.Plural(int(sum.Lines), "line"), c.Format, ui.Plural(int(sum.Records), "record"), where)
	for _, why := range slices.Sorted(maps.Keys(sum.Skipped)) {
		fmt.Fprintf(io.Err, "note: without a line: %s (%d)\n", why, sum.Skipped[why])
	}
}

func leftOut(sum format.Summary) string {
	out := ""
	for _, why := range slices.Sorted(maps.Keys(sum.Skipped)) {
		out += fmt.Sprintf("; %d times %s", sum.Skipped[why], why)
	}
	return out
}
