package verify

import (
	"crypto/ed25519"
	"fmt"
	"os"

	"github.com/countersign-dev/countersign/compliance"
	"github.com/countersign-dev/countersign/compliance/statement"
	"github.com/countersign-dev/countersign/internal/cli/ui"
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
		return nil, ui.UsageError{Err: fmt.Errorf("--statement-key: %.80q is neither a file nor a key: %w", statementFlag, err)}
	}
	c.StatementKey = public
	return &c, nil
}
