package verify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
)

// WitnessCmd is `countersign witness`.
type WitnessCmd struct {
	Key      witnessKeyCmd      `cmd:"" help:"Make the key of a witness."`
	Sign     witnessSignCmd     `cmd:"" help:"Sign the log's newest checkpoint, if it extends all that this witness signed before."`
	Run      witnessRunCmd      `cmd:"" help:"Sign what the log publishes, again and again, and hand it in; stop at a fork."`
	Trust    witnessTrustCmd    `cmd:"" help:"For the log's operator: take signatures of a witness into the evidence."`
	Distrust witnessDistrustCmd `cmd:"" help:"For the log's operator: take no more of them; those that are stored stay."`
	Add      witnessAddCmd      `cmd:"" help:"For the log's operator: put a checkpoint that a witness signed into the evidence."`
	List     witnessListCmd     `cmd:"" help:"List the witnesses, and how far they have signed."`
}

type witnessKeyCmd struct {
	Name string `help:"Name of the witness, e.g. witness.example.com/w1." required:""`
	Out  string `help:"File for the secret key; the public one goes beside it, with .pub behind its name." required:"" placeholder:"FILE"`
}

func (c *witnessKeyCmd) Run(io ui.Stdio) error {
	skey, vkey, err := tree.NewWitnessKey(rand.Reader, c.Name)
	if err != nil {
		return ui.UsageError{Err: err}
	}
	err = atomicfile.Create(c.Out, []byte(skey+"\n"), 0o600)
	if errors.Is(err, fs.ErrExist) {
		return ui.UsageError{Err: fmt.Errorf("%s exists; a witness keeps its key", c.Out)}
	}
	if err == nil {
		err = atomicfile.Write(c.Out+".pub", []byte(vkey+"\n"), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the key: %w", err)
	}
	fmt.Fprintf(io.Out, "%s\nsecret: %s, for the witness alone; public: %s.pub, for the verifiers, which run: countersign verify --witness %s.pub\n", vkey, c.Out, c.Out, c.Out)
	return nil
}

// witnessFlags name the files of a witness.
type witnessFlags struct {
	Key    string `help:"The witness's secret key (countersign witness key)." required:"" placeholder:"FILE"`
	LogKey string `help:"The log's public checkpoint key, or a file that holds it (default: the ready file's, from which the variable must not differ)." env:"COUNTERSIGN_PUBLIC_KEY" placeholder:"FILE"`
	State  string `help:"Where the witness remembers what it signed (default: the key file, with .state behind its name)." placeholder:"FILE"`
	NewLog string `help:"Sign this incarnation, too, of a log of which the witness remembers another: its operator began it anew." placeholder:"SHARD"`
}

type witnessSignCmd struct {
	target.Flags
	witnessFlags
	Checkpoint string `help:"The checkpoint to sign (default: the newest in the database)." placeholder:"FILE"`
	Shard      string `help:"Which incarnation of the log (default: the newest)."`
	Out        string `help:"Where to write the signed checkpoint (default: standard output)." placeholder:"FILE"`
}

func (c *witnessSignCmd) Run(ctx context.Context, io ui.Stdio) error {
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	witness, log, memory, err := c.open(t)
	if err != nil {
		return err
	}
	defer memory.close()
	signed, err := c.sign(ctx, t, witness, note.VerifierList(log), memory)
	if err != nil {
		return err
	}
	if c.Out == "" {
		_, err = fmt.Fprint(io.Out, signed)
		return err
	}
	if err := atomicfile.Write(c.Out, []byte(signed), 0o644); err != nil {
		return fmt.Errorf("writing the signed checkpoint: %w", err)
	}
	cp, _ := tree.PeekCheckpoint(signed)
	fmt.Fprintf(io.Out, "%s signed size %d of %s: %s\n", witness.Name(), cp.Size, ui.Clean(cp.Shard, 80), c.Out)
	return nil
}

// sign signs one checkpoint.
func (c *witnessSignCmd) sign(ctx context.Context, t *target.Target, w tree.Witness, known note.Verifiers, memory *witnessMemory) (string, error) {
	database := &proofSource{ctx: ctx, t: t}
	defer database.close()
	text, err := c.checkpoint(ctx, database.open)
	if err != nil {
		return "", err
	}
	signed, _, err := cosigner{w, known, memory, c.NewLog, database.open}.sign(ctx, text)
	return signed, err
}

// checkpoint reads the checkpoint to sign: from a file, or the newest stored one.
func (c *witnessSignCmd) checkpoint(ctx context.Context, database func() (*evidencereader.Reader, error)) (string, error) {
	if c.Checkpoint != "" {
		b, err := ui.ReadSmallFile("--checkpoint", c.Checkpoint, ui.MaxKeptFile)
		return string(b), err
	}
	l, err := database()
	if err != nil {
		return "", err
	}
	shard := c.Shard
	if shard == "" {
		shards, err := l.Shards(ctx)
		if err != nil {
			return "", err
		}
		shard = shards[len(shards)-1]
	}
	cp, err := l.DB.LatestCheckpoint(ctx, shard)
	return cp.Note, err
}

// stateHead begins the state file of a witness.
const stateHead = "countersign/witness-state/v1"

// describe is the comment in a state file.
const describe = "# the last checkpoint of each log that this witness signed; without it, it can be made to sign another history\n"

func formatState(notes []string) string {
	return stateHead + "\n" + describe + "\n" + strings.Join(notes, "\n")
}
