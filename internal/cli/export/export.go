// Package export has the commands that pass evidence on to other programs: export (bundles and
// other formats), otel, and controls, which lists what a bundle shows about common frameworks.
// Each command is a type with a Run method, which the command line's parser (kong) calls. Package
// bundle and its neighbours make the files.
package export

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/countersign-dev/countersign/compliance/browser"
	"github.com/countersign-dev/countersign/compliance/bundle"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/cli/proof"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
)

// Cmd is `countersign export`.
type Cmd struct {
	target.Flags
	proof.ScanFlags
	proof.EngineFlags
	Key      string `help:"The public checkpoint key to prove against, or a file that holds it (default: the ready file's, from which the variable must not differ)." env:"COUNTERSIGN_PUBLIC_KEY" placeholder:"FILE"`
	Session  string `help:"The session to export." type:"session"`
	From     string `help:"Instead of a session: everything of the tenant from this time on (2026-11-01 or 2026-11-01T06:00:00Z)." placeholder:"TIME"`
	To       string `help:"The end of the range, excluded." placeholder:"TIME"`
	Out      string `help:"The bundle to write." required:"" placeholder:"FILE.zip"`
	Shard    string `help:"Which incarnation of the log, for a session or range that is in several (default: the newest)."`
	SignKey  string `help:"Sign a statement over the whole with this key (countersign keys statement makes one)." placeholder:"FILE"`
	PDF      string `name:"pdf" help:"Also print the report of the bundle; needs an installed Chromium." placeholder:"FILE.pdf"`
	Chromium string `help:"The Chromium for --pdf (default: one of the usual names on PATH)." env:"COUNTERSIGN_CHROMIUM" placeholder:"PROGRAM"`
	Force    bool   `help:"Overwrite existing files."`
	Format   string `help:"Instead of a bundle: lines in this format (see docs/formats.md); --out - writes them to standard output." placeholder:"FORMAT"`

	Witnessed []string `help:"A checkpoint that a witness signed, for the bundle (default: the newest witnessed one that covers everything, else the newest). May be repeated for further witnesses of it." placeholder:"FILE" sep:"none"`
}

func (c *Cmd) Run(ctx context.Context, io ui.Stdio) error {
	if c.Format != "" {
		return c.exportFormat(ctx, io)
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
	if plan.ranged {
		err = c.exportRange(ctx, io, l, t, plan)
	} else {
		err = c.exportSession(ctx, io, l, t, plan)
	}
	if err != nil || c.PDF == "" {
		return err
	}
	if err := printToPDF(ctx, plan.chromium, c.Out, c.PDF); err != nil {
		return fmt.Errorf("the bundle is in %s, but %s could not be written: %w", c.Out, c.PDF, err)
	}
	fmt.Fprintf(io.Out, "its report is printed in %s\n", c.PDF)
	return nil
}

// exportSession writes the bundle of a session.
func (c *Cmd) exportSession(ctx context.Context, io ui.Stdio, l evidencereader.Reader, t *target.Target, plan exportPlan) error {
	s, restsOn, err := c.pick(ctx, io, l, t)
	if err != nil {
		return err
	}
	by, err := c.signers(ctx, io, t, restsOn)
	if err != nil {
		return err
	}
	in, err := l.SessionBundle(ctx, s, by.log)
	if err != nil {
		return err
	}
	if err := c.useWitnessed(ctx, l, l, &in, s.Rows[len(s.Rows)-1].Seq, by); err != nil {
		return err
	}
	in.SignKey = plan.key
	n, err := WriteBundle(ctx, l, t, in, c.Out)
	if err != nil {
		return err
	}
	fmt.Fprintf(io.Out, "%d records of session %s written to %s\n", n, ui.Clean(s.Session, 60), c.Out)
	proof.PrintBasis(io, false, 1, restsOn)
	c.nextSteps(io, plan)
	return nil
}

// nextSteps prints how to verify the bundle.
func (c *Cmd) nextSteps(io ui.Stdio, plan exportPlan) {
	statement := ""
	if plan.key != nil {
		statement = " --statement-key statement.pub"
		fmt.Fprintf(io.Out, "its statement is signed by key %s\n", plan.keyID())
	}
	fmt.Fprintf(io.Out, "verify it anywhere: countersign verify --bundle %s --key checkpoint.pub%s\n", c.Out, statement)
}

// pick returns the part of the session that is exported, and what its completeness rests on.
func (c *Cmd) pick(ctx context.Context, io ui.Stdio, l evidencereader.Reader, t *target.Target) (s evidencereader.Session, restsOn proof.Basis, err error) {
	parts, restsOn, err := c.ProveSession(ctx, io, l, t, c.Key, c.Session)
	if err != nil {
		return s, restsOn, system.SuggestSession(ctx, l.DB, t.Tenant, c.Session, err)
	}
	if c.Shard == "" {
		if len(parts) > 1 {
			fmt.Fprintf(io.Err, "note: the session is in %d incarnations of the log; this is the newest, name another with --shard\n", len(parts))
		}
		return parts[len(parts)-1].Session, restsOn, nil
	}
	for _, p := range parts {
		if p.Shard == c.Shard {
			return p.Session, restsOn, nil
		}
	}
	return s, restsOn, fmt.Errorf("%w in shard %s", evidencereader.ErrNoSession, c.Shard)
}

// WriteBundle writes a bundle, whole or not at all, and returns the number of its records. Its parts are
// files beside it until then. l has the texts of what decided.
func WriteBundle(ctx context.Context, l evidencereader.Reader, t *target.Target, in bundle.Input, path string) (n int, err error) {
	decided := newPolicySource(ctx, l, t, in.Shard)
	defer decided.close()
	dir, err := os.MkdirTemp(filepath.Dir(path), ".export-*")
	if err != nil {
		return 0, fmt.Errorf("writing the bundle: %w", err)
	}
	var spools []*os.File
	defer func() {
		for _, f := range spools {
			err = errors.Join(err, f.Close())
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	in.Decided = decided
	in.Spool = func(member string) (bundle.Spool, error) {
		f, err := os.OpenFile(filepath.Join(dir, member), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			spools = append(spools, f)
		}
		return f, err
	}
	err = atomicfile.Stream(path, 0o600, func(f io.Writer) error {
		w := bufio.NewWriterSize(f, 1<<16)
		var err error
		n, err = bundle.Write(w, in)
		return errors.Join(err, w.Flush())
	})
	if err != nil {
		return 0, fmt.Errorf("writing the bundle: %w", err)
	}
	return n, nil
}

// refuseOverwrite returns an error if a file exists that must not be overwritten.
func (c *Cmd) refuseOverwrite(path string) error {
	if path == "" || c.Force {
		return nil
	}
	if _, err := os.Lstat(path); err == nil {
		return ui.UsageError{Err: fmt.Errorf("%s exists; give --force to overwrite it", path)}
	}
	return nil
}

// chromium finds the browser before anything is written.
func (c *Cmd) chromium() (string, error) {
	if c.PDF == "" {
		return "", nil
	}
	program, err := browser.Find(c.Chromium)
	if err != nil {
		return "", ui.UsageError{Err: fmt.Errorf("--pdf: %w", err)}
	}
	return program, nil
}
