package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/witnessbucket"
	"github.com/countersign-dev/countersign/streams"
)

type witnessRunCmd struct {
	target.Flags
	witnessFlags
	Every time.Duration `help:"How often to look for a new checkpoint." default:"1m"`
	Once  bool          `help:"Sign what is published now, hand it in, and end."`
}

// Run signs published checkpoints until it is stopped. Failures to reach the system are retried;
// another history, a shorter one, or one under another name ends it with an error.
func (c *witnessRunCmd) Run(ctx context.Context, io ui.Stdio) error {
	if c.Every <= 0 {
		return ui.UsageError{Err: errors.New("--every must be above zero")}
	}
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	witness, log, memory, err := c.open(t)
	if err != nil {
		return err
	}
	defer memory.close()
	if _, err := t.DSN(); err != nil {
		return err // it is needed for the second checkpoint
	}
	r := &witnessRun{cmd: c, io: io, t: t, witness: witness, log: log, memory: memory}
	defer r.hangUp()
	waiting := ""
	for {
		err := r.once(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (c.Once || alarming(err)):
			return err
		case err != nil && err.Error() != waiting:
			waiting = err.Error()
			fmt.Fprintf(io.Err, "countersign: waiting: %s\n", ui.CleanLines(waiting))
		case err == nil && waiting != "":
			waiting = ""
			fmt.Fprintln(io.Err, "countersign: it goes on")
		}
		if c.Once {
			return nil
		}
		if retry.Sleep(ctx, c.Every) != nil {
			return nil
		}
	}
}

// alarming reports whether an error is a finding of the witness, or one that a retry does not
// solve.
func alarming(err error) bool {
	var usage ui.UsageError
	return isRefused(err) || errors.Is(err, tree.ErrCheckpoint) || errors.As(err, &usage)
}

// isRefused reports whether the witness refuses a checkpoint because of what it signed before.
func isRefused(err error) bool {
	return errors.Is(err, tree.ErrFork) || errors.Is(err, tree.ErrRollback) || errors.Is(err, errNewLog)
}

// witnessRun is the state of a running witness.
type witnessRun struct {
	cmd     *witnessRunCmd
	io      ui.Stdio
	t       *target.Target
	witness tree.Witness
	log     note.Verifier
	memory  *witnessMemory

	box    *system.Bucket // nil while not connected
	handed string         // the last checkpoint handed in
}

func (r *witnessRun) hangUp() {
	if r.box != nil {
		r.box.Conn.Close()
	}
}

// once signs the newest published checkpoint and hands it in, unless that is done.
func (r *witnessRun) once(ctx context.Context) error {
	if r.box == nil {
		b, err := system.OpenBucketAt(ctx, r.t, streams.BucketWitnesses)
		if err != nil {
			return err
		}
		r.box = &b
	}
	m, err := streams.LastBySubject(ctx, r.box.JS, streams.StreamCheckpoints, subject.Space{Prefix: r.t.Prefix}.Checkpoints(r.t.Stream))
	if err != nil {
		return fmt.Errorf("reading the published checkpoint: %w", err)
	}
	if m == nil {
		return errors.New("nothing is published yet")
	}
	signed, cp, err := r.sign(ctx, string(m.Body))
	if err != nil {
		return err
	}
	if signed == r.handed {
		return nil
	}
	if _, err := r.box.KV.Put(ctx, witnessbucket.SignedKey(r.name(), cp.Shard), []byte(signed)); err != nil {
		return fmt.Errorf("handing in the signature: %w", err)
	}
	r.handed = signed
	fmt.Fprintf(r.io.Out, "%s signed size %d of %s\n", r.witness.Name(), cp.Size, ui.Clean(cp.Shard, 80))
	return nil
}

// name is the name under which the witness hands in: its own user's, as its permission requires;
// the witness's if an operator hands in.
func (r *witnessRun) name() string {
	if user := r.box.Conn.Opts.User; user != "" && r.t.ReadyInfo() == nil {
		return user
	}
	return r.witness.Name()
}

// sign signs a published checkpoint, or returns the remembered signature. A checkpoint that it
// refuses is stored beside the memory.
func (r *witnessRun) sign(ctx context.Context, text string) (string, tree.Checkpoint, error) {
	cp, err := tree.OpenCheckpoint(text, note.VerifierList(r.log))
	if err != nil {
		return "", cp, err
	}
	if old := r.memory.last(cp.Shard); old != nil && old.Size == cp.Size && old.Root == cp.Root {
		return r.memory.logs[cp.Shard], cp, nil
	}
	database := &proofSource{ctx: ctx, t: r.t}
	defer database.close()
	signed, cp, err := cosigner{r.witness, note.VerifierList(r.log), r.memory, r.cmd.NewLog, database.open}.sign(ctx, text)
	if isRefused(err) {
		refused := fmt.Sprintf("%s.refused-%d", r.memory.path, cp.Size)
		if kept := atomicfile.Write(refused, []byte(text), 0o600); kept != nil {
			return "", cp, errors.Join(err, kept)
		}
		err = fmt.Errorf("%w; %s is the one it refused", err, refused)
	}
	return signed, cp, err
}
