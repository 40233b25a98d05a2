package admin

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/compliance/statement"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/streams"
)

// KeysCmd is `countersign keys`.
type KeysCmd struct {
	List   keysListCmd   `cmd:"" help:"List the published receipt keys; succeeds only if the checkpoint key vouches for each."`
	Rotate keysRotateCmd `cmd:"" help:"Make the next receipt key, where the checkpoint key is; a running admitter takes it up by itself."`
	Retire keysRetireCmd `cmd:"" help:"Take a receipt key back: nothing that it signs counts any more."`

	Statement keysStatementCmd `cmd:"" help:"Make the key that signs the statements of exported bundles."`
}

// keyFiles holds the flags of commands that only use files.
type keyFiles struct {
	Keys       string `help:"Key directory of the admitter (of 'up': keys in its data directory)." required:"" placeholder:"DIR"`
	Checkpoint string `name:"checkpoint-keys" help:"Directory that holds checkpoint.key (default: the same)." placeholder:"DIR"`
	JSON       bool   `name:"json" help:"Print JSON."`
}

func (k keyFiles) vault() string {
	if k.Checkpoint != "" {
		return k.Checkpoint
	}
	return k.Keys
}

type keysRotateCmd struct{ keyFiles }

func (c *keysRotateCmd) Run(io ui.Stdio) error {
	old, next, err := keys.Rotate(c.Keys, c.vault(), time.Now())
	if err != nil {
		return err
	}
	files := keys.RotatedFiles(next.KeyID)
	if c.JSON {
		return ui.WriteJSON(io, map[string]any{"kid": next.KeyID, "replaces": old.KeyID, "created_at": next.CreatedAt, "files": files})
	}
	fmt.Fprintf(io.Out, "receipt key %s replaces %s in %s\n", next.KeyID, old.KeyID, c.Keys)
	fmt.Fprintf(io.Out, "An admitter that reads this directory signs with it within seconds; elsewhere copy %s, %s and then %s there.\n", files[0], files[1], files[2])
	fmt.Fprintf(io.Out, "What %s signed stays valid. If its seed may be in other hands: countersign keys retire %s --keys %s\n", old.KeyID, old.KeyID, c.Keys)
	return nil
}

type keysRetireCmd struct {
	keyFiles
	target.Flags
	system.WaitFlag
	KeyID   string `arg:"" name:"kid" help:"Id of the key, as 'keys list' prints it."`
	Foreign bool   `help:"The key is another admitter's, so this directory has no record of it."`
}

// Run writes the retirement, and waits for the admitters of the running system, if one is named.
func (c *keysRetireCmd) Run(ctx context.Context, io ui.Stdio) error {
	k, err := keys.Retire(c.Keys, c.vault(), c.KeyID, c.Foreign, time.Now())
	if errors.Is(err, keys.ErrUnknownKey) && !c.Foreign {
		return fmt.Errorf("%w; if so, give --foreign", err)
	}
	if err != nil {
		return err
	}
	if !c.JSON {
		fmt.Fprintf(io.Out, "receipt key %s is retired since %s: %s\n", k.KeyID, k.RetiredAt, keys.RetiredFile(k.KeyID))
	}
	confirmed, err := c.confirm(ctx, k.KeyID)
	switch {
	case c.JSON:
		if failed := ui.WriteJSON(io, map[string]any{"kid": k.KeyID, "retired_at": k.RetiredAt, "file": keys.RetiredFile(k.KeyID), "confirmed": confirmed}); failed != nil {
			return failed
		}
	case err != nil:
	case confirmed:
		fmt.Fprintln(io.Out, "It is in the log, and no admitter signs with the key. Executors must be given the file, too.")
	default:
		fmt.Fprintf(io.Out, "No admitter was asked (--ready-file or --server, and --wait above 0): one that reads this directory takes the retirement up within seconds; elsewhere copy %s there. Executors must be given the file, too.\n", keys.RetiredFile(k.KeyID))
	}
	return err
}

// confirm waits for the admitters of the running system; false without an error if there is
// none to ask, or no time to wait.
func (c *keysRetireCmd) confirm(ctx context.Context, kid string) (bool, error) {
	if c.Wait <= 0 {
		return false, nil
	}
	t, err := c.Flags.Resolve()
	if err != nil {
		return false, err
	}
	o, err := system.Connect(ctx, t)
	if errors.Is(err, target.ErrNoServer) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("the retirement is written, but no admitter could be asked: %w", err)
	}
	defer o.Conn.Close()
	err = o.ConfirmRetired(ctx, c.WaitFlag, kid)
	return err == nil, err
}

type keysListCmd struct {
	target.Flags
	Key  string `help:"The public checkpoint key, or a file that holds it (default: the ready file's, from which the variable must not differ)." env:"COUNTERSIGN_PUBLIC_KEY" placeholder:"FILE"`
	JSON bool   `name:"json" help:"Print one JSON object for each key, with its record and retirement."`
}

// listedKey is one key in the bucket.
type listedKey struct {
	KeyID      string          `json:"kid"`
	CreatedAt  events.Time     `json:"created_at,omitzero"`
	Vouched    bool            `json:"vouched"`
	RetiredAt  events.Time     `json:"retired_at,omitzero"`
	Record     json.RawMessage `json:"record,omitempty"`
	Retirement json.RawMessage `json:"retirement,omitempty"`
	Problem    string          `json:"problem,omitempty"`
}

func (c *keysListCmd) Run(ctx context.Context, io ui.Stdio) error {
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	vouchers, err := system.TrustedKeys(c.Key, t)
	if err != nil {
		return err
	}
	o, err := system.Connect(ctx, t)
	if err != nil {
		return err
	}
	defer o.Conn.Close()
	list, err := readKeys(ctx, o.JS, note.VerifierList(vouchers...))
	if err != nil {
		return err
	}
	return c.report(io, list)
}

// readKeys reads the keys bucket. It checks every entry and trusts none.
func readKeys(ctx context.Context, js jetstream.JetStream, known note.Verifiers) ([]listedKey, error) {
	entries, err := streams.KVLive(ctx, js, streams.BucketKeys, nil)
	if err != nil {
		return nil, err
	}
	byID := map[string]*listedKey{}
	for _, e := range entries {
		kid, _, _ := strings.Cut(e.Key, ".")
		if byID[kid] == nil {
			byID[kid] = &listedKey{KeyID: kid}
		}
		if e.Key == kid {
			byID[kid].record(e.Value, known)
		} else {
			byID[kid].retirement(e.Key, e.Value, known)
		}
	}
	var list []listedKey
	for _, k := range byID {
		list = append(list, *k)
	}
	slices.SortFunc(list, func(a, b listedKey) int {
		if d := a.CreatedAt.Compare(b.CreatedAt.Time); d != 0 {
			return d
		}
		return strings.Compare(a.KeyID, b.KeyID)
	})
	return list, nil
}

func (l *listedKey) record(b []byte, known note.Verifiers) {
	k, err := events.DecodeRecord[events.KeyRecord](b)
	switch {
	case err != nil:
		l.Problem = "not a key record"
		return
	case k.KeyID != l.KeyID:
		l.Problem = "the record of another key"
		return
	}
	l.Record, l.CreatedAt = b, k.CreatedAt
	if l.Vouched = signing.CheckKeyRecord(known, k); !l.Vouched {
		l.Problem = "the checkpoint key does not vouch for it"
	}
}

func (l *listedKey) retirement(name string, b []byte, known note.Verifiers) {
	k, err := events.DecodeRecord[events.KeyRetirement](b)
	if err != nil || name != keys.RetiredEntry(l.KeyID) || k.KeyID != l.KeyID || !signing.CheckRetirement(known, k) {
		l.Problem = "a retirement that the checkpoint key did not sign"
		return
	}
	l.Retirement, l.RetiredAt = b, k.RetiredAt
}

func (c *keysListCmd) report(io ui.Stdio, list []listedKey) error {
	p, bad := ui.NewPrinter(io.Out), 0
	if !c.JSON && len(list) == 0 {
		p.Printf("no receipt key is published yet: an admitter does so when it starts\n")
	}
	for _, k := range list {
		if k.Problem != "" {
			bad++
		}
		if c.JSON {
			if err := ui.WriteJSON(io, k); err != nil {
				return err
			}
			continue
		}
		state, colour := "vouched", ui.Green
		switch {
		case k.Problem != "":
			state, colour = k.Problem, ui.Red
		case k.Retirement != nil:
			state, colour = "retired "+k.RetiredAt.String(), ui.Faint
		}
		p.Printf("%s  %-30s  %s\n", ui.Fill(ui.Clean(k.KeyID, 40), 16), k.CreatedAt, p.Paint(colour, state))
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d keys are not what the checkpoint key signed: find out which user wrote into the keys bucket", bad, len(list))
	}
	return nil
}

// Names of the files of a statement key.
const (
	statementFile   = "statement.key"
	statementPublic = "statement.pub"
)

type keysStatementCmd struct {
	Keys string `help:"Directory to make it in." required:"" placeholder:"DIR"`
}

// Run creates the key that signs the statements of bundles, once, and writes its public half
// beside it.
func (c *keysStatementCmd) Run(io ui.Stdio) error {
	if err := keys.Ensure(c.Keys, statementFile); err != nil {
		return err
	}
	seed, err := keys.Seed(c.Keys, statementFile)
	if err != nil {
		return err
	}
	public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	text, err := statement.EncodeKey(public)
	if err != nil {
		return err
	}
	path := filepath.Join(c.Keys, statementPublic)
	if err := atomicfile.Write(path, text, 0o644); err != nil {
		return errors.Join(fmt.Errorf("writing the public key %s", path), err)
	}
	fmt.Fprintf(io.Out, "key %s: sign with --sign-key %s, and publish %s for the verifiers\n", signing.KeyID(public), filepath.Join(c.Keys, statementFile), path)
	return nil
}
