package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/countersign-dev/countersign/cmd/internal/keys"
	"github.com/countersign-dev/countersign/cmd/internal/wholefile"
	"github.com/countersign-dev/countersign/compliance"
	"github.com/countersign-dev/countersign/compliance/statement"
	"github.com/countersign-dev/countersign/events/signing"
)

// bundleChecker checks what is in a bundle for people: that report and controls
// follow from the records, and who signed the statement.
func bundleChecker(key, statementFlag string) (*compliance.Checker, error) {
	var c compliance.Checker
	if public, err := statement.ParseKey(key); err == nil {
		c.Known = []ed25519.PublicKey{public}
	}
	if statementFlag == "" {
		return &c, nil
	}
	text := statementFlag
	if b, err := os.ReadFile(statementFlag); err == nil {
		text = string(b)
	}
	public, err := statement.ParseKey(text)
	if err != nil {
		return nil, usageError{Err: fmt.Errorf("--statement-key: %.80q is neither a file nor a key: %w", statementFlag, err)}
	}
	c.StatementKey = public
	return &c, nil
}

// Names of the files of a statement key.
const (
	statementFile   = "statement.key"
	statementPublic = "statement.pub"
)

type keysStatementCmd struct {
	Keys string `help:"Directory to make it in." required:"" placeholder:"DIR"`
}

// Run makes the key of whoever hands bundles out, once, and writes its public
// half beside it.
func (c *keysStatementCmd) Run(io stdio) error {
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
	if err := wholefile.Write(path, text, 0o644); err != nil {
		return errors.Join(fmt.Errorf("writing the public key %s", path), err)
	}
	fmt.Fprintf(io.out, "key %s: sign with --sign-key %s, and publish %s for those who verify\n", signing.KeyID(public), filepath.Join(c.Keys, statementFile), path)
	return nil
}
