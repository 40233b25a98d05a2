package inspect

import (
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/storage/write"
)

type auditCutCmd struct {
	target.Flags
	Key string `help:"The public checkpoint key, or a file that holds it (default: the ready file's)." placeholder:"FILE"`
	Yes bool   `short:"y" help:"Do it. Without it the command says what it would take away."`
}

// Run deletes the rows behind the newest published checkpoint from the evidence of the current
// shard.
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
	position, _, err := l.DB.Position(ctx, log.Shard)
	if err != nil {
		return err
	}
	signed, err := newestCheckpoint(ctx, log, note.VerifierList(keys...), position)
	if err != nil {
		return err
	}
	switch {
	case position == signed:
		fmt.Fprintf(io.Out, "nothing to cut: a checkpoint covers all %d records of shard %s\n", position, log.Shard)
		return nil
	case !c.Yes:
		fmt.Fprintf(io.Out, "%d records of shard %s, from sequence %d on, are behind the newest checkpoint and would be taken away; the auditor makes them again from the log. Nothing was changed: --yes does it.\n",
			position-signed, log.Shard, signed+1)
		return nil
	}
	if err := write.New(l.DB.Pool()).DeleteAfter(ctx, log.Shard, signed); err != nil {
		return err
	}
	fmt.Fprintf(io.Out, "%d records of shard %s were taken away, from sequence %d on; the auditor makes them again from the log\n", position-signed, log.Shard, signed+1)
	return nil
}

// newestCheckpoint is the size of the shard's largest valid published checkpoint that is not
// above a size; 0 without one.
func newestCheckpoint(ctx context.Context, l *system.EvidenceLog, known note.Verifiers, most uint64) (size uint64, err error) {
	history, err := l.Checkpoints(ctx)
	for _, p := range history {
		c, err := tree.OpenCheckpoint(p.Text, known)
		if err == nil && c.Shard == l.Shard && uint64(c.Size) <= most {
			size = max(size, uint64(c.Size))
		}
	}
	return size, err
}
