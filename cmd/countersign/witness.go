package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/cmd/internal/ledger"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/cmd/internal/wholefile"
	"github.com/countersign-dev/countersign/evidence"
)

type witnessCmd struct {
	Key  witnessKeyCmd  `cmd:"" help:"Make the key of a witness."`
	Sign witnessSignCmd `cmd:"" help:"Sign the log's newest checkpoint, if it extends all that this witness signed before."`
}

type witnessKeyCmd struct {
	Name string `help:"Name of the witness, e.g. witness.example.com/w1." required:""`
	Out  string `help:"File for the secret key; the public one goes beside it, with .pub behind its name." required:"" placeholder:"FILE"`
}

func (c *witnessKeyCmd) Run(io stdio) error {
	skey, vkey, err := evidence.NewWitnessKey(rand.Reader, c.Name)
	if err != nil {
		return usageError{err}
	}
	err = wholefile.Create(c.Out, []byte(skey+"\n"), 0o600)
	if errors.Is(err, fs.ErrExist) {
		return usageError{fmt.Errorf("%s exists; a witness keeps its key", c.Out)}
	}
	if err == nil {
		err = wholefile.Write(c.Out+".pub", []byte(vkey+"\n"), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the key: %w", err)
	}
	fmt.Fprintf(io.out, "%s\nsecret: %s, for the witness alone; public: %s.pub, for those who run: countersign verify --witness %s.pub\n", vkey, c.Out, c.Out, c.Out)
	return nil
}

type witnessSignCmd struct {
	target.Flags
	Key        string `help:"The witness's secret key (countersign witness key)." required:"" placeholder:"FILE"`
	LogKey     string `help:"The log's public checkpoint key, or a file that holds it (default: the ready file's)." placeholder:"FILE"`
	State      string `help:"Where the witness remembers what it signed (default: the key file, with .state behind its name)." placeholder:"FILE"`
	Checkpoint string `help:"The checkpoint to sign (default: the newest in the database)." placeholder:"FILE"`
	Shard      string `help:"Which incarnation of the log (default: the newest)."`
	Out        string `help:"Where to write the signed checkpoint (default: standard output)." placeholder:"FILE"`
}

func (c *witnessSignCmd) Run(ctx context.Context, io stdio) error {
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	witness, err := c.witness()
	if err != nil {
		return err
	}
	public, err := checkpointKey(c.LogKey, t)
	if err != nil {
		return err
	}
	keys, err := verifiers(public)
	if err != nil {
		return err
	}
	memory, err := openMemory(c.State)
	if err != nil {
		return err
	}
	defer memory.close()
	signed, err := c.sign(ctx, t, witness, note.VerifierList(keys...), memory)
	if err != nil {
		return err
	}
	if c.Out == "" {
		_, err = fmt.Fprint(io.out, signed)
		return err
	}
	if err := wholefile.Write(c.Out, []byte(signed), 0o644); err != nil {
		return fmt.Errorf("writing the signed checkpoint: %w", err)
	}
	cp, _ := evidence.PeekCheckpoint(signed)
	fmt.Fprintf(io.out, "%s signed size %d of %s: %s\n", witness.Name(), cp.Size, clean(cp.Shard, 80), c.Out)
	return nil
}

// witness reads the key and says where its memory is.
func (c *witnessSignCmd) witness() (evidence.Witness, error) {
	info, err := os.Stat(c.Key)
	if err != nil {
		return evidence.Witness{}, usageError{fmt.Errorf("--key: %w (make one with: countersign witness key)", err)}
	}
	if info.Mode().Perm()&0o077 != 0 {
		return evidence.Witness{}, usageError{fmt.Errorf("%s may be read by others (mode %04o): chmod 600 it, and replace the key if others had access", c.Key, info.Mode().Perm())}
	}
	b, err := readSmall("--key", c.Key, 4096)
	if err != nil {
		return evidence.Witness{}, err
	}
	if c.State == "" {
		c.State = c.Key + ".state"
	}
	w, err := evidence.WitnessSigner(string(b))
	if err != nil {
		err = usageError{fmt.Errorf("--key: %w", err)}
	}
	return w, err
}

// sign signs once. What was signed is in the memory, on disk, before anybody
// sees the signature.
func (c *witnessSignCmd) sign(ctx context.Context, t *target.Target, w evidence.Witness, known note.Verifiers, memory *witnessMemory) (string, error) {
	text, l, err := c.checkpoint(ctx, t)
	if err != nil {
		return "", err
	}
	if l != nil {
		defer func() { _ = l.DB.Close() }()
	}
	cp, err := evidence.OpenCheckpoint(text, known)
	if err != nil {
		return "", err
	}
	old := memory.last(cp.Shard)
	var proof tlog.TreeProof
	if old != nil && 0 < old.Size && old.Size < cp.Size {
		if l == nil {
			if l, err = c.open(ctx, t); err != nil {
				return "", err
			}
			defer func() { _ = l.DB.Close() }()
		}
		if proof, err = l.Consistency(ctx, cp.Shard, old.Size, cp.Size); err != nil {
			return "", err
		}
	}
	signed, cp, err := evidence.Cosign(w, text, known, old, proof, time.Now())
	if errors.Is(err, evidence.ErrFork) || errors.Is(err, evidence.ErrRollback) {
		return "", fmt.Errorf("%w\nThis witness does not sign. Keep both checkpoints: %s remembers the one it signed", err, c.State)
	}
	if err != nil {
		return "", err
	}
	return signed, memory.remember(cp, signed)
}

// open connects to the database that the proof comes from.
func (c *witnessSignCmd) open(ctx context.Context, t *target.Target) (*ledger.Ledger, error) {
	l, err := openLedger(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("the proof that the log extends what was signed before comes from the database: %w", err)
	}
	return &l, nil
}

// checkpoint reads what is to be signed: a file, or the newest that is stored.
func (c *witnessSignCmd) checkpoint(ctx context.Context, t *target.Target) (string, *ledger.Ledger, error) {
	if c.Checkpoint != "" {
		b, err := readSmall("--checkpoint", c.Checkpoint, maxKeptFile)
		return string(b), nil, err
	}
	l, err := c.open(ctx, t)
	if err != nil {
		return "", nil, err
	}
	shard := c.Shard
	if shard == "" {
		shards, err := l.Shards(ctx)
		if err != nil {
			_ = l.DB.Close()
			return "", nil, err
		}
		shard = shards[len(shards)-1]
	}
	cp, err := l.DB.LatestCheckpoint(ctx, shard)
	if err != nil {
		_ = l.DB.Close()
		return "", nil, err
	}
	return cp.Note, l, nil
}

// stateHead begins the file in which a witness remembers.
const stateHead = "countersign/witness-state/v1"

// describe is what a state file says to those who open it.
const describe = "# the last checkpoint of each log that this witness signed; without it, it can be made to sign another history\n"

func formatState(notes []string) string {
	return stateHead + "\n" + describe + "\n" + strings.Join(notes, "\n")
}
