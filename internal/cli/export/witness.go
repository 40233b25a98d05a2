package export

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/compliance/bundle"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/cli/proof"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/internal/service/witnessbucket"
)

// signers are the keys that sign checkpoints: what the database holds beside their signatures does
// not go into a bundle.
type signers struct {
	log       []note.Verifier // none if no key is known, which --skip-scan allows
	witnesses []note.Verifier // that the system trusts; none without a server, or with --witnessed
}

// signers returns the keys of the log and of the witnesses. What is not proved needs no NATS server:
// without the witnesses, the bundle has the newest checkpoint.
func (c *Cmd) signers(ctx context.Context, io ui.Stdio, t *target.Target, restsOn proof.Basis) (s signers, err error) {
	if s.log, err = system.TrustedKeys(c.Key, t); err != nil {
		if c.SkipScan && c.Key == "" {
			return signers{}, nil
		}
		return s, err
	}
	if len(c.Witnessed) > 0 {
		return s, nil // the files name the checkpoint
	}
	trusted, err := trustedWitnesses(ctx, t)
	switch {
	case errors.Is(err, target.ErrNoServer), err != nil && !restsOn.Proved:
		fmt.Fprintf(io.Err, "note: which witnesses are trusted is not known, so no witness's signature is added: %v\n", err)
	case err != nil:
		return s, err
	}
	s.witnesses = witnessbucket.Verifiers(trusted)
	return s, nil
}

func trustedWitnesses(ctx context.Context, t *target.Target) ([]witnessbucket.Witness, error) {
	o, err := system.Connect(ctx, t)
	if err != nil {
		return nil, err
	}
	defer o.Conn.Close()
	return witnessbucket.TrustedWitnesses(ctx, o.JS)
}

// witnessed returns the checkpoint for the bundle: the one in the files, with the signatures of
// all of them. Without files it is the newest one that a trusted witness signed and that covers the
// last record; "" without one.
func (c *Cmd) witnessed(ctx context.Context, l evidencereader.Reader, shard string, last uint64, by signers) (string, error) {
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
		return l.CosignedCheckpoint(ctx, shard, last, by.log, by.witnesses)
	}
	joined, err := tree.MergeSignatures(notes...)
	if err != nil {
		return "", err
	}
	return joined, ofLog(ctx, l, shard, joined)
}

// ofLog checks that the log signed this checkpoint: a stored one has the same size and root.
func ofLog(ctx context.Context, l evidencereader.Reader, shard, signed string) error {
	cp, err := tree.PeekCheckpoint(signed)
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

// useWitnessed replaces the newest checkpoint by a witnessed one that covers the last record; own has the
// proofs for it.
func (c *Cmd) useWitnessed(ctx context.Context, l, own evidencereader.Reader, in *bundle.Input, last uint64, by signers) error {
	last = evidencereader.NewestSeq(last, in.Expiries)
	signed, err := c.witnessed(ctx, l, in.Shard, last, by)
	if err != nil || signed == "" {
		return err
	}
	cp, err := tree.PeekCheckpoint(signed)
	if err != nil {
		return err
	}
	if in.Session != "" && uint64(cp.Size) < last { // the last of a range may be another tenant's: Write compares
		return fmt.Errorf("record %d, which the session's bundle needs, is newer than the witnessed checkpoint, which has size %d; let the witness sign a newer one", last, cp.Size)
	}
	in.Checkpoint = signed
	return own.ProveExpiries(ctx, in.Shard, cp.Size, in.Expiries)
}
