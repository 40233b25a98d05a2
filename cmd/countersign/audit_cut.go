package main

import (
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/evidence"
)

type auditCutCmd struct {
	target.Flags
	Key string `help:"The public checkpoint key, or a file that holds it (default: the ready file's)." placeholder:"FILE"`
	Yes bool   `short:"y" help:"Do it. Without it the command says what it would take away."`
}

// Run takes the rows behind the newest published checkpoint out of the evidence of
// the shard that is written to now.
func (c *auditCutCmd) Run(ctx context.Context, io stdio) error {
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	public, err := checkpointKey(c.Key, t)
	if err != nil {
		return err
	}
	keys, err := verifiers(public)
	if err != nil {
		return err
	}
	l, err := openLedger(ctx, t)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	log, err := connectLog(ctx, t)
	if err != nil {
		return err
	}
	defer log.close()
	position, _, err := l.DB.Position(ctx, log.shard)
	if err != nil {
		return err
	}
	signed, err := log.newestCheckpoint(ctx, note.VerifierList(keys...), position)
	if err != nil {
		return err
	}
	switch {
	case position == signed:
		fmt.Fprintf(io.out, "nothing to cut: a checkpoint covers all %d records of shard %s\n", position, log.shard)
		return nil
	case !c.Yes:
		fmt.Fprintf(io.out, "%d records of shard %s, from sequence %d on, are behind the newest checkpoint and would be taken away; the auditor makes them again from the log. Nothing was changed: --yes does it.\n",
			position-signed, log.shard, signed+1)
		return nil
	}
	if err := l.DB.DeleteAfter(ctx, log.shard, signed); err != nil {
		return err
	}
	fmt.Fprintf(io.out, "%d records of shard %s were taken away, from sequence %d on; the auditor makes them again from the log\n", position-signed, log.shard, signed+1)
	return nil
}

// newestCheckpoint is the size of the largest checkpoint that was published of the
// shard, holds, and is not above a size; 0 if there is none.
func (l *openedLog) newestCheckpoint(ctx context.Context, known note.Verifiers, most uint64) (size uint64, err error) {
	history, err := l.history(ctx)
	for _, p := range history {
		c, err := evidence.OpenCheckpoint(p.Text, known)
		if err == nil && c.Shard == l.shard && uint64(c.Size) <= most {
			size = max(size, uint64(c.Size))
		}
	}
	return size, err
}
