package main

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/evidencereader"
)

// witnessed reads the checkpoint that the bundle is to have: the one that the
// files hold, with the signatures of all of them. Without files it is the newest
// that a witness signed and that covers the last record; "" if there is none.
func (c *exportCmd) witnessed(ctx context.Context, l evidencereader.Reader, shard string, last uint64) (string, error) {
	var notes []string
	for _, path := range c.Witnessed {
		b, err := readSmall("--witnessed", path, maxKeptFile)
		if err != nil {
			return "", err
		}
		switch cp, err := evidence.PeekCheckpoint(string(b)); {
		case err != nil:
			return "", usageError{fmt.Errorf("--witnessed: %s: %w", path, err)}
		case cp.Shard != shard:
			return "", usageError{fmt.Errorf("--witnessed: %s is a checkpoint of %s, and the evidence is of %s", path, clean(cp.Shard, 80), shard)}
		}
		notes = append(notes, string(b))
		if _, err := evidence.MergeSignatures(notes...); err != nil {
			return "", usageError{fmt.Errorf("--witnessed: %s is another checkpoint than %s; a bundle has one, with the signatures of all witnesses", path, c.Witnessed[0])}
		}
	}
	if len(notes) == 0 {
		return l.Cosigned(ctx, shard, last)
	}
	note, err := evidence.MergeSignatures(notes...)
	if err != nil {
		return "", err
	}
	return note, ofLog(ctx, l, shard, note)
}

// ofLog makes sure that the log signed this checkpoint: what it stores has the
// same size and root.
func ofLog(ctx context.Context, l evidencereader.Reader, shard, note string) error {
	cp, err := evidence.PeekCheckpoint(note)
	if err != nil {
		return err
	}
	stored, err := l.DB.CheckpointsAt(ctx, shard, uint64(cp.Size))
	if err != nil {
		return err
	}
	for _, s := range stored {
		if have, err := evidence.PeekCheckpoint(s.Note); err == nil && have.Root == cp.Root {
			return nil
		}
	}
	return fmt.Errorf("--witnessed: the log has signed no checkpoint of size %d with root %s", cp.Size, cp.Root)
}

// useWitnessed puts a witnessed checkpoint in the place of the newest, with the
// proofs that lead there.
func (c *exportCmd) useWitnessed(ctx context.Context, l evidencereader.Reader, s *evidencereader.Session) error {
	last := evidencereader.NewestSeq(s.Rows[len(s.Rows)-1].Seq, s.Expiries)
	note, err := c.witnessed(ctx, l, s.Shard, last)
	if err != nil || note == "" {
		return err
	}
	cp, err := evidence.PeekCheckpoint(note)
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
	if s.Proofs, err = l.Inclusion(ctx, s.Shard, cp.Size, seqs); err != nil {
		return err
	}
	return l.ProveExpiries(ctx, s.Shard, cp.Size, s.Expiries)
}
