package inspect

import (
	"context"
	"fmt"
	"iter"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/write"
)

type auditCutCmd struct {
	target.Flags
	Key  string `help:"The public checkpoint key, or a file that holds it (default: the ready file's, from which the variable must not differ)." env:"COUNTERSIGN_PUBLIC_KEY" placeholder:"FILE"`
	Yes  bool   `short:"y" help:"Do it, as the owner of the database (--clickhouse, or the ready file's). Without it the command says what it would take away."`
	JSON bool   `name:"json" help:"Print JSON."`
}

// cut is the records behind the newest checkpoint, and whether they were taken away.
type cut struct {
	Shard   string `json:"shard"`
	Records uint64 `json:"records"`
	First   uint64 `json:"first_seq,omitempty"`
	Done    bool   `json:"cut"`
}

// print says what was or would be done.
func (c cut) print(io ui.Stdio, asJSON bool, signed uint64) error {
	switch {
	case asJSON:
		return ui.WriteJSON(io, c)
	case c.Records == 0:
		fmt.Fprintf(io.Out, "nothing to cut: a checkpoint covers all %d records of shard %s\n", signed, c.Shard)
	case !c.Done:
		fmt.Fprintf(io.Out, "%d records of shard %s, from sequence %d on, are behind the newest checkpoint and would be taken away; the auditor makes them again from the log. Nothing was changed: --yes does it.\n", c.Records, c.Shard, c.First)
	default:
		fmt.Fprintf(io.Out, "%d records of shard %s were taken away, from sequence %d on; the auditor makes them again from the log\n", c.Records, c.Shard, c.First)
	}
	return nil
}

// signedWithin is the time within which an auditor that works stores more or signs what it has stored.
const signedWithin = 10 * time.Second

// Run deletes the rows behind the newest published checkpoint from the evidence of the current
// shard. It refuses while an auditor stores or signs more.
func (c *auditCutCmd) Run(ctx context.Context, io ui.Stdio) error {
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	keys, err := system.TrustedKeys(c.Key, t)
	if err != nil {
		return err
	}
	l, err := system.OpenEvidence(ctx, t)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	log, err := system.ConnectEvidenceLog(ctx, t)
	if err != nil {
		return err
	}
	defer log.Close()
	known := note.VerifierList(keys...)
	position, signed, err := unsignedTail(ctx, l, log, known)
	if err != nil {
		return err
	}
	if position != signed {
		fmt.Fprintf(io.Err, "waiting %v to see whether an auditor signs them ...\n", signedWithin)
		if err := retry.Sleep(ctx, signedWithin); err != nil {
			return err
		}
		stored, covered := position, signed
		if position, signed, err = unsignedTail(ctx, l, log, known); err != nil {
			return err
		}
		if (position != stored || signed != covered) && position != signed {
			return fmt.Errorf("an auditor of shard %s is at work: it signs what it stores, and nothing may be cut meanwhile", log.Shard)
		}
	}
	tail := cut{Shard: log.Shard, Records: position - signed}
	if tail.Records > 0 {
		tail.First, tail.Done = signed+1, c.Yes
	}
	if !tail.Done {
		return tail.print(io, c.JSON, signed)
	}
	dsn, err := t.OwnerDSN()
	if err != nil {
		return err
	}
	owner, err := conn.Open(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = owner.Close() }()
	if err := write.New(owner).DeleteAfter(ctx, log.Shard, signed); err != nil {
		return fmt.Errorf("%w; only the owner of the database can do it (--clickhouse DSN), and the same command completes what was begun", err)
	}
	return tail.print(io, c.JSON, signed)
}

// unsignedTail is the position of the evidence and the size of the newest checkpoint. Records
// between the two are not signed.
func unsignedTail(ctx context.Context, l evidencereader.Reader, log *system.EvidenceLog, known note.Verifiers) (position, signed uint64, err error) {
	if position, _, err = l.DB.Position(ctx, log.Shard); err != nil {
		return 0, 0, err
	}
	signed, err = newestCheckpoint(log.Checkpoints(ctx), log.Shard, known, position)
	return position, signed, err
}

// newestCheckpoint is the size of the newest published checkpoint of a shard that is not above a size; 0 without one.
// They come the newest first. It is an error if the keys open none of those that are there: by another system's key
// nothing would count as signed.
func newestCheckpoint(published iter.Seq2[verify.Published, error], shard string, known note.Verifiers, most uint64) (size uint64, err error) {
	others, opened := 0, 0
	for p, err := range published {
		if err != nil {
			return 0, err
		}
		if c, err := tree.PeekCheckpoint(p.Text); err != nil || c.Shard != shard {
			continue
		}
		c, err := tree.OpenCheckpoint(p.Text, known)
		switch {
		case err != nil:
			others++
		case uint64(c.Size) > most:
			opened++
		default:
			return uint64(c.Size), nil
		}
	}
	if others > 0 && opened == 0 {
		return 0, fmt.Errorf("the key opens none of the %d published checkpoints of shard %s: it is another system's (--key, COUNTERSIGN_PUBLIC_KEY)", others, shard)
	}
	return 0, nil
}
