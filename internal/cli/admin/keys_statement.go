package admin

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/countersign-dev/countersign/compliance/statement"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/service/keys"
)

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
