package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/countersign-dev/countersign/cmd/internal/ledger"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/cmd/internal/wholefile"
	"github.com/countersign-dev/countersign/evidence"
)

type exportCmd struct {
	target.Flags
	Session string `help:"The session to export." required:""`
	Out     string `help:"The bundle to write." required:"" placeholder:"FILE.zip"`
	Shard   string `help:"Which incarnation of the log, for a session that is in several (default: the newest)."`
	Force   bool   `help:"Overwrite an existing file."`
}

func (c *exportCmd) Run(ctx context.Context, io stdio) error {
	if _, err := os.Stat(c.Out); err == nil && !c.Force {
		return usageError{fmt.Errorf("%s exists; give --force to overwrite it", c.Out)}
	}
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	l, err := openLedger(ctx, t)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	s, err := c.pick(ctx, io, l, t.Tenant)
	if err != nil {
		return err
	}
	if err := l.Prove(ctx, &s); err != nil {
		return err
	}
	if err := writeBundle(c.Out, l, s); err != nil {
		return err
	}
	fmt.Fprintf(io.out, "%d records of session %s written to %s\nverify it anywhere: countersign verify --bundle %s --key checkpoint.pub\n",
		len(s.Rows), clean(s.Session, 60), c.Out, c.Out)
	return nil
}

func (c *exportCmd) pick(ctx context.Context, io stdio, l ledger.Ledger, tenant string) (ledger.Session, error) {
	parts, err := l.Session(ctx, tenant, c.Session)
	if err != nil {
		return ledger.Session{}, err
	}
	if c.Shard == "" {
		if len(parts) > 1 {
			fmt.Fprintf(io.err, "note: the session is in %d incarnations of the log; this is the newest, name another with --shard\n", len(parts))
		}
		return parts[len(parts)-1], nil
	}
	for _, p := range parts {
		if p.Shard == c.Shard {
			return p, nil
		}
	}
	return ledger.Session{}, fmt.Errorf("%w in shard %s", ledger.ErrNoSession, c.Shard)
}

// writeBundle writes a bundle whole or not at all.
func writeBundle(path string, l ledger.Ledger, s ledger.Session) error {
	err := wholefile.Stream(path, 0o600, func(f io.Writer) error {
		w := bufio.NewWriter(f)
		err := evidence.WriteBundle(w, evidence.BundleInput{
			Shard: s.Shard, Tenant: s.Tenant, Session: s.Session, Space: l.Space, Rows: s.Rows, Proofs: s.Proofs, Checkpoint: s.Checkpoint, Keys: s.Keys,
		})
		return errors.Join(err, w.Flush())
	})
	if err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	return nil
}
