package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/compliance"
	"github.com/countersign-dev/countersign/compliance/browser"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/evidencereader"
)

type exportCmd struct {
	target.Flags
	scanFlags
	engineFlags
	Key      string `help:"The public checkpoint key to prove against, or a file that holds it (default: the ready file's)." placeholder:"FILE"`
	Session  string `help:"The session to export." type:"session"`
	From     string `help:"Instead of a session: everything of the tenant from this time on (2026-11-01, or with a time of day and zone as in 2026-11-01T06:00:00Z)." placeholder:"TIME"`
	To       string `help:"The end of the range, excluded." placeholder:"TIME"`
	Out      string `help:"The bundle to write." required:"" placeholder:"FILE.zip"`
	Shard    string `help:"Which incarnation of the log, for a session or range that is in several (default: the newest)."`
	SignKey  string `help:"Sign a statement over the whole with this key (countersign keys statement makes one)." placeholder:"FILE"`
	PDF      string `name:"pdf" help:"Also print the report of the bundle; needs an installed Chromium." placeholder:"FILE.pdf"`
	Chromium string `help:"The Chromium for --pdf (default: one of the usual names on PATH)." env:"COUNTERSIGN_CHROMIUM" placeholder:"PROGRAM"`
	Force    bool   `help:"Overwrite existing files."`
	Format   string `help:"Instead of a bundle: lines in somebody else's format (see docs/formats.md); --out - writes them to standard output." placeholder:"FORMAT"`

	Witnessed []string `help:"A checkpoint that a witness signed (countersign witness sign --out FILE): the bundle has it (default: the newest in the evidence that a witness signed and that covers everything, else the newest). May be repeated, for further witnesses of the same checkpoint." placeholder:"FILE" sep:"none"`
}

func (c *exportCmd) Run(ctx context.Context, io stdio) error {
	if c.Format != "" {
		return c.exportFormat(ctx, io)
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
	fmt.Fprintf(io.out, "its report is printed in %s\n", c.PDF)
	return nil
}

// exportSession writes the bundle of a session.
func (c *exportCmd) exportSession(ctx context.Context, io stdio, l evidencereader.Reader, t *target.Target, plan exportPlan) error {
	s, restsOn, err := c.pick(ctx, io, l, t)
	if err != nil {
		return err
	}
	if err := l.Prove(ctx, &s); err != nil {
		return err
	}
	if err := c.useWitnessed(ctx, l, &s); err != nil {
		return err
	}
	if err := writeSession(ctx, l, t, s, c.Out, plan.key); err != nil {
		return err
	}
	fmt.Fprintf(io.out, "%d records of session %s written to %s\n", len(s.Rows), clean(s.Session, 60), c.Out)
	printBasis(io, false, 1, restsOn)
	c.nextSteps(io, plan)
	return nil
}

// nextSteps says how the bundle is verified.
func (c *exportCmd) nextSteps(io stdio, plan exportPlan) {
	statement := ""
	if plan.key != nil {
		statement = " --statement-key statement.pub"
		fmt.Fprintf(io.out, "its statement is signed by key %s\n", plan.keyID())
	}
	fmt.Fprintf(io.out, "verify it anywhere: countersign verify --bundle %s --key checkpoint.pub%s\n", c.Out, statement)
}

// pick gives the part of the session that is exported, and what it rests on.
func (c *exportCmd) pick(ctx context.Context, io stdio, l evidencereader.Reader, t *target.Target) (s evidencereader.Session, restsOn basis, err error) {
	parts, restsOn, err := c.session(ctx, io, l, t, c.Key, c.Session)
	if err != nil {
		return s, restsOn, err
	}
	if c.Shard == "" {
		if len(parts) > 1 {
			fmt.Fprintf(io.err, "note: the session is in %d incarnations of the log; this is the newest, name another with --shard\n", len(parts))
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

// writeSession writes the bundle of a session that was proved, whole or not at all,
// with a statement if there is a key to sign it with.
func writeSession(ctx context.Context, l evidencereader.Reader, t *target.Target, s evidencereader.Session, path string, key ed25519.PrivateKey) error {
	decided := newTexts(ctx, l, t, s.Shard)
	defer decided.close()
	in := evidence.BundleInput{Shard: s.Shard, Tenant: s.Tenant, Session: s.Session, Space: l.Space, Rows: s.Rows, Proofs: s.Proofs,
		Checkpoint: s.Checkpoint, Keys: s.Keys, Expiries: s.Expiries, Attach: compliance.Attach, Extra: compliance.Extra(decided)}
	if key != nil {
		in.Sign = compliance.Signer(key)
	}
	err := atomicfile.Stream(path, 0o600, func(f io.Writer) error {
		w := bufio.NewWriter(f)
		err := evidence.WriteBundle(w, in)
		return errors.Join(err, w.Flush())
	})
	if err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	return nil
}

// taken says that a file is there that must not be overwritten.
func (c *exportCmd) taken(path string) error {
	if path == "" || c.Force {
		return nil
	}
	if _, err := os.Lstat(path); err == nil {
		return usageError{fmt.Errorf("%s exists; give --force to overwrite it", path)}
	}
	return nil
}

// chromium finds the browser before anything is written.
func (c *exportCmd) chromium() (string, error) {
	if c.PDF == "" {
		return "", nil
	}
	program, err := browser.Find(c.Chromium)
	if err != nil {
		return "", usageError{fmt.Errorf("--pdf: %w", err)}
	}
	return program, nil
}
