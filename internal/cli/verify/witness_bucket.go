package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/witnessbucket"
	"github.com/countersign-dev/countersign/streams"
)

type witnessTrustCmd struct {
	target.Flags
	Witness string `arg:"" name:"key" help:"The witness's public key, or the file that holds it."`
}

func (c *witnessTrustCmd) Run(ctx context.Context, io ui.Stdio) error {
	v, text, err := witnessKey(c.Witness)
	if err != nil {
		return err
	}
	b, err := system.OpenBucket(ctx, c.Flags, streams.BucketWitnesses)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	if _, err := b.KV.Put(ctx, witnessbucket.TrustedKey(v.Name()), []byte(text+"\n")); err != nil {
		return fmt.Errorf("storing the key: %w", err)
	}
	fmt.Fprintf(io.Out, "signatures of %s are taken into the evidence\n", ui.Clean(v.Name(), 200))
	return nil
}

type witnessDistrustCmd struct {
	target.Flags
	Name string `arg:"" help:"The witness's name (countersign witness list)."`
}

func (c *witnessDistrustCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := system.OpenBucket(ctx, c.Flags, streams.BucketWitnesses)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	e, err := streams.KVLast(ctx, b.JS, streams.BucketWitnesses, witnessbucket.TrustedKey(c.Name))
	if err != nil {
		return err
	}
	if e == nil || e.Deleted {
		return ui.UsageError{Err: fmt.Errorf("%s is no witness whose signatures are taken; see countersign witness list", ui.Clean(c.Name, 200))}
	}
	if err := b.KV.Delete(ctx, witnessbucket.TrustedKey(c.Name)); err != nil {
		return fmt.Errorf("removing the key: %w", err)
	}
	fmt.Fprintf(io.Out, "no more signatures of %s are taken; those that are stored stay\n", ui.Clean(c.Name, 200))
	return nil
}

type witnessAddCmd struct {
	target.Flags
	File   string `arg:"" help:"The checkpoint that a witness signed (countersign witness sign --out FILE)."`
	LogKey string `help:"The log's public checkpoint key, or a file that holds it (default: the ready file's, from which the variable must not differ)." env:"COUNTERSIGN_PUBLIC_KEY" placeholder:"FILE"`
}

func (c *witnessAddCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := ui.ReadSmallFile("the checkpoint", c.File, witnessbucket.MaxNote)
	if err != nil {
		return err
	}
	t, l, err := system.FindEvidence(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	public, err := system.CheckpointKey(c.LogKey, t)
	if err != nil {
		return err
	}
	log, err := signing.CheckpointVerifier(public)
	if err != nil {
		return err
	}
	box, err := system.OpenBucketAt(ctx, t, streams.BucketWitnesses)
	if err != nil {
		return err
	}
	defer box.Conn.Close()
	j, err := c.judge(ctx, box, l, string(b), log)
	if err != nil {
		return fmt.Errorf("%s is not taken: %w", c.File, err)
	}
	if _, err := box.KV.Put(ctx, witnessbucket.SignedKey(j.By[0].Witness, j.Shard), []byte(j.Note)); err != nil {
		return fmt.Errorf("handing it in: %w", err)
	}
	if err := takenIn(ctx, l, j); err != nil {
		return err
	}
	for _, by := range j.By {
		fmt.Fprintf(io.Out, "cosigned by %s at %s up to size %d of %s: in the evidence\n", ui.Clean(by.Witness, 200), by.At, j.Size, ui.Clean(j.Shard, 80))
	}
	return nil
}

func (c *witnessAddCmd) judge(ctx context.Context, box system.Bucket, l evidencereader.Reader, text string, log note.Verifier) (witnessbucket.CheckedCheckpoint, error) {
	if cp, err := tree.PeekCheckpoint(text); err == nil && !strings.HasPrefix(cp.Shard, l.Stream+"@") {
		return witnessbucket.CheckedCheckpoint{}, fmt.Errorf("a checkpoint of %s, not of stream %s", cp.Shard, l.Stream)
	}
	trusted, err := witnessbucket.TrustedWitnesses(ctx, box.JS)
	if err != nil {
		return witnessbucket.CheckedCheckpoint{}, err
	}
	j, err := witnessbucket.CheckHandedIn(ctx, text, "", log, witnessbucket.Verifiers(trusted), l.DB)
	switch {
	case errors.Is(err, witnessbucket.ErrUntrusted):
		err = fmt.Errorf("%w (of %d that are): see countersign witness list, and trust its key with: countersign witness trust", err, len(trusted))
	case errors.Is(err, tree.ErrFork):
		err = fmt.Errorf("%w\nThe log's key signed two histories. Keep this file: it is the proof", err)
	case errors.Is(err, witnessbucket.ErrForeign):
		err = fmt.Errorf("%w\nUnless checkpoints were deleted from the evidence, another party has or had the log's key. Keep this file", err)
	}
	return j, err
}

// takenInWait is how long the auditor may take to store a signature.
const takenInWait = 20 * time.Second

// takenIn waits until the evidence has the signatures.
func takenIn(ctx context.Context, l evidencereader.Reader, j witnessbucket.CheckedCheckpoint) error {
	ctx, cancel := context.WithTimeout(ctx, takenInWait)
	defer cancel()
	for {
		stored, err := l.DB.CheckpointsAt(ctx, j.Shard, uint64(j.Size))
		if err == nil && !j.LacksSignature(stored) {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		if retry.Sleep(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("it is handed in, and after %s the auditor has not stored it: is the auditor running? Its log says what it makes of it", takenInWait)
		}
	}
}
