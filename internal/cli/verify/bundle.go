package verify

import (
	"crypto/ed25519"
	"fmt"
	"os"

	"github.com/countersign-dev/countersign/compliance/bundle"
	"github.com/countersign-dev/countersign/compliance/statement"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// bundleOptions returns the key that must have signed a bundle's statement, and the known keys.
func bundleOptions(key, statementFlag string) (o bundle.Options, err error) {
	if public, err := statement.ParseKey(key); err == nil {
		o.Known = []ed25519.PublicKey{public}
	}
	if statementFlag == "" {
		return o, nil
	}
	text := statementFlag
	if b, err := os.ReadFile(statementFlag); err == nil {
		text = string(b)
	}
	public, err := statement.ParseKey(text)
	if err != nil {
		return o, ui.UsageError{Err: fmt.Errorf("--statement-key: %.80q is neither a file nor a key: %w", statementFlag, err)}
	}
	o.StatementKey = public
	return o, nil
}
