package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/cmd/internal/ledger"
	"github.com/countersign-dev/countersign/evidence"
)

// witnessed reads the checkpoint that the bundle is to have: the one that the
// files hold, with the signatures of all of them. "" if there are no files.
func (c *exportCmd) witnessed(ctx context.Context, l ledger.Ledger, shard string) (string, error) {
	text, signatures := "", []string(nil)
	for _, path := range c.Witnessed {
		b, err := readSmall("--witnessed", path, maxKeptFile)
		if err != nil {
			return "", err
		}
		body, lines, ok := strings.Cut(string(b), "\n\n")
		switch cp, err := evidence.PeekCheckpoint(string(b)); {
		case err != nil || !ok:
			return "", usageError{fmt.Errorf("--witnessed: %s: %w", path, err)}
		case cp.Shard != shard:
			return "", usageError{fmt.Errorf("--witnessed: %s is a checkpoint of %s, and the evidence is of %s", path, clean(cp.Shard, 80), shard)}
		case text != "" && body != text:
			return "", usageError{fmt.Errorf("--witnessed: %s is another checkpoint than %s; a bundle has one, with the signatures of all witnesses", path, c.Witnessed[0])}
		}
		text = body
		for line := range strings.Lines(lines) {
			if !slices.Contains(signatures, line) {
				signatures = append(signatures, line)
			}
		}
	}
	if text == "" {
		return "", nil
	}
	note := text + "\n\n" + strings.Join(signatures, "")
	return note, ofLog(ctx, l, shard, note)
}

// ofLog makes sure that the log signed this checkpoint: what it stores has the
// same size and root.
func ofLog(ctx context.Context, l ledger.Ledger, shard, note string) error {
	cp, err := evidence.PeekCheckpoint(note)
	if err != nil {
		return err
	}
	stored, err := l.DB.Checkpoints(ctx, shard)
	if err != nil {
		return fmt.Errorf("reading the checkpoints: %w", err)
	}
	for _, s := range stored {
		if have, err := evidence.PeekCheckpoint(s.Note); err == nil && have.Size == cp.Size && have.Root == cp.Root {
			return nil
		}
	}
	return fmt.Errorf("--witnessed: the log has signed no checkpoint of size %d with root %s", cp.Size, cp.Root)
}

// useWitnessed puts a witnessed checkpoint in the place of the newest, with the
// proofs that lead there.
func (c *exportCmd) useWitnessed(ctx context.Context, l ledger.Ledger, s *ledger.Session) error {
	note, err := c.witnessed(ctx, l, s.Shard)
	if err != nil || note == "" {
		return err
	}
	cp, err := evidence.PeekCheckpoint(note)
	if err != nil {
		return err
	}
	seqs := make([]uint64, len(s.Rows))
	for i, r := range s.Rows {
		seqs[i] = r.Seq
	}
	if last := seqs[len(seqs)-1]; uint64(cp.Size) < last {
		return fmt.Errorf("record %d of the session is newer than the witnessed checkpoint, which has size %d; let the witness sign a newer one", last, cp.Size)
	}
	s.Checkpoint = note
	s.Proofs, err = l.Inclusion(ctx, s.Shard, cp.Size, seqs)
	return err
}
