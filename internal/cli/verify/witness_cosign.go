package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
)

// open reads the witness's key, the log's key and the checkpoints signed before. The caller
// closes the memory.
func (c *witnessFlags) open(t *target.Target) (w tree.Witness, log note.Verifier, memory *witnessMemory, err error) {
	if w, err = c.witness(); err != nil {
		return w, nil, nil, err
	}
	public, err := system.CheckpointKey(c.LogKey, t)
	if err != nil {
		return w, nil, nil, err
	}
	if log, err = signing.CheckpointVerifier(public); err != nil {
		return w, nil, nil, err
	}
	memory, err = openMemory(c.State)
	return w, log, memory, err
}

// witness reads the key and sets the default path of the state file.
func (c *witnessFlags) witness() (tree.Witness, error) {
	info, err := os.Stat(c.Key)
	if err != nil {
		return tree.Witness{}, ui.UsageError{Err: fmt.Errorf("--key: %w (make one with: countersign witness key)", err)}
	}
	if info.Mode().Perm()&0o077 != 0 {
		return tree.Witness{}, ui.UsageError{Err: fmt.Errorf("%s may be read by others (mode %04o): chmod 600 it, and replace the key if others had access", c.Key, info.Mode().Perm())}
	}
	b, err := ui.ReadSmallFile("--key", c.Key, 4096)
	if err != nil {
		return tree.Witness{}, err
	}
	if c.State == "" {
		c.State = c.Key + ".state"
	}
	w, err := tree.WitnessSigner(string(b))
	if err != nil {
		err = ui.UsageError{Err: fmt.Errorf("--key: %w", err)}
	}
	return w, err
}

// proofSource opens the evidence when a proof is first needed.
type proofSource struct {
	ctx    context.Context
	t      *target.Target
	opened *evidencereader.Reader
}

func (p *proofSource) open() (*evidencereader.Reader, error) {
	if p.opened == nil {
		l, err := system.OpenEvidence(p.ctx, p.t)
		if err != nil {
			return nil, fmt.Errorf("the proof that the log extends what was signed before comes from the database: %w", err)
		}
		p.opened = &l
	}
	return p.opened, nil
}

func (p *proofSource) close() {
	if p.opened != nil {
		_ = p.opened.DB.Close()
	}
}

// errNewLog reports an incarnation that the witness has not seen, of a log that it knows. With
// the log's key a second history can be signed under a name of its own.
var errNewLog = errors.New("the witness remembers another incarnation of this log")

// cosigner signs checkpoints and remembers them.
type cosigner struct {
	witness  tree.Witness
	known    note.Verifiers // the log's key
	memory   *witnessMemory
	newLog   string                                 // an incarnation to sign though the memory has another of its log
	database func() (*evidencereader.Reader, error) // for proofs; closed by its maker
}

// sign signs one checkpoint. The signed checkpoint is in the memory, on disk, before sign returns
// it.
func (c cosigner) sign(ctx context.Context, text string) (string, tree.Checkpoint, error) {
	cp, err := tree.OpenCheckpoint(text, c.known)
	if err != nil {
		return "", cp, err
	}
	old := c.memory.last(cp.Shard)
	if known := c.memory.otherOf(cp.Shard); old == nil && known != "" && c.newLog != cp.Shard {
		return "", cp, fmt.Errorf("%w: %s, and this is %s\nThis witness does not sign. If the log's operator confirms, by another way, that the log began anew, give --new-log %s", errNewLog, known, cp.Shard, cp.Shard)
	}
	var proof tlog.TreeProof
	if old != nil && 0 < old.Size && old.Size < cp.Size {
		l, err := c.database()
		if err != nil {
			return "", cp, err
		}
		if proof, err = l.ConsistencyProof(ctx, cp.Shard, old.Size, cp.Size); err != nil {
			return "", cp, err
		}
	}
	signed, cp, err := tree.Cosign(c.witness, text, c.known, old, proof, time.Now())
	if errors.Is(err, tree.ErrFork) && old.Size < cp.Size {
		err = fmt.Errorf("%w\nThe proof comes from the database: if its tree hashes are damaged, that looks the same. countersign verify says which it is", err)
	}
	if errors.Is(err, tree.ErrFork) || errors.Is(err, tree.ErrRollback) {
		return "", cp, fmt.Errorf("%w\nThis witness does not sign. Keep both checkpoints: %s remembers the one it signed", err, c.memory.path)
	}
	if err != nil {
		return "", cp, err
	}
	return signed, cp, c.memory.remember(cp, signed)
}
