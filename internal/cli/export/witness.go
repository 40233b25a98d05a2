package export

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
)

// witnessed returns the checkpoint for the bundle: the one in the files, with the signatures of
// all of them. Without files it is the newest one that a witness signed and that covers the last
// record; "" without one.
func (c *Cmd) witnessed(ctx context.Context, l evidencereader.Reader, shard string, last uint64) (string, error) {
	var notes []string
	for _, path := range c.Witnessed {
		b, err := ui.ReadSmallFile("--witnessed", path, ui.MaxKeptFile)
		if err != nil {
			return "", err
		}
		switch cp, err := tree.PeekCheckpoint(string(b)); {
		case err != nil:
			return "", ui.UsageError{Err: fmt.Errorf("--witnessed: %s: %w", path, err)}
		case cp.Shard != shard:
			return "", ui.UsageError{Err: fmt.Errorf("--witnessed: %s is a checkpoint of %s, and the evidence is of %s", path, ui.Clean(cp.Shard, 80), shard)}
		}
		notes = append(notes, string(b))
		if _, err := tree.MergeSignatures(notes...); err != nil {
			return "", ui.UsageError{Err: fmt.Errorf("--witnessed: %s is another checkpoint than %s; a bundle has one, with the signatures of all witnesses", path, c.Witnessed[0])}
		}
	}
	if len(notes) == 0 {
		return l.CosignedCheckpoint(ctx, shard, last)
	}
	note, err := tree.MergeSignatures(notes...)
	if err != nil {
		return "", err
	}
	return note, ofLog(ctx, l, shard, note)
}

// ofLog checks that the log signed this checkpoint: a stored one has the same size and root.
func ofLog(ctx context.Context, l evidencereader.Reader, shard, note string) error {
	cp, err := tree.PeekCheckpoint(note)
	if err != nil {
		return err
	}
	stored, err := l.DB.CheckpointsAt(ctx, shard, uint64(cp.Size))
	if err != nil {
		return err
	}
	for _, s := range stored {
		if have, err := tree.PeekCheckpoint(s.Note); err == nil && have.Root == cp.Root {
			return nil
		}
	}
	return fmt.Errorf("--witnessed: the log has signed no checkpoint of size %d with root %s", cp.Size, cp.Root)
}

// useWitnessed replaces the newest checkpoint by a witnessed one, with the proofs for it.
func (c *Cmd) useWitnessed(ctx context.Context, l evidencereader.Reader, s *evidencereader.Session) error {
	last := evidencereader.NewestSeq(s.Rows[len(s.Rows)-1].Seq, s.Expiries)
	note, err := c.witnessed(ctx, l, s.Shard, last)
	if err != nil || note == "" {
		return err
	}
	cp, err := tree.PeekCheckpoint(note)
	if err != nil {
		return err
	}
	if uint64(cp.Size) < last {
		return fmt.Errorf("record %d, which the session's bundle needs, is newer than the witnessed checkpoint, which has size %d; let the witness sign a newer one", last, cp.Size)
	}
	seqs := make([]uint64, len(s.Rows))
	for i, r := range s.Rows {
		seqs[i] = r.Seq
	}
	s.Checkpoint = note
	if s.Proofs, err = l.InclusionProofs(ctx, s.Shard, cp.Size, seqs); err != nil {
		return err
	}
	return l.ProveExpiries(ctx, s.Shard, cp.Size, s.Expiries)
}
