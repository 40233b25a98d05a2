// Package policycmd has the commands about policies and what they decide: policy, evaluate and
// explain. Each command is a type with a Run method, which the command line's parser (kong) calls.
// They are one package because explain makes decisions again as simulate does, and evaluate reads
// the directories that tables name. PushPolicies serves other command packages.
package policycmd

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// Cmd is `countersign policy`.
type Cmd struct {
	Lint     policyLintCmd     `cmd:"" help:"Say what is wrong with the policies of a directory, and what is likely not meant."`
	Test     policyTestCmd     `cmd:"" help:"Run tables of requests with the verdicts they should get."`
	Simulate policySimulateCmd `cmd:"" help:"Decide recorded requests again by other policies, and list what would change."`
	Suggest  policySuggestCmd  `cmd:"" help:"Propose policies that permit what ran, from the log; nothing wider than what was seen."`
	Push     policyPushCmd     `cmd:"" help:"Put the policies of a directory in force, all at once."`
	List     policyListCmd     `cmd:"" help:"List the policies in force."`
	Show     policyShowCmd     `cmd:"" help:"Print the policies in force, or those of an earlier revision."`
	Diff     policyDiffCmd     `cmd:"" help:"Compare the policies in force with a directory, or with an earlier revision."`
	History  policyHistoryCmd  `cmd:"" help:"List the pushes: author, files, time."`
	Rollback policyRollbackCmd `cmd:"" help:"Put an earlier revision in force again."`
}

// LoadPolicies reads and compiles a directory. A missing or empty directory is an error: "no
// rules" must never mean "allow".
func LoadPolicies(dir string) ([]policy.Document, *policy.Set, error) {
	docs, err := readPolicies(dir)
	if err != nil {
		return nil, nil, err
	}
	set, err := policy.Compile(docs)
	if err != nil {
		return nil, nil, fmt.Errorf("policies in %s do not compile: %w", dir, err)
	}
	return docs, set, nil
}

func readPolicies(dir string) ([]policy.Document, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, ui.UsageError{Err: fmt.Errorf("%s is a file: give the directory that holds the policies", dir)}
	}
	if _, err := os.ReadDir(dir); err != nil {
		return nil, ui.UsageError{Err: fmt.Errorf("reading the policies: %w", err)}
	}
	docs, err := policy.LoadDir(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("policies in %s: %w", dir, err)
	}
	slices.SortFunc(docs, func(a, b policy.Document) int { return strings.Compare(a.Name, b.Name) })
	return docs, nil
}

// loadMandates reads a directory of mandates; "" means none.
func loadMandates(dir string) (mandate.Source, error) {
	if dir == "" {
		return nil, nil
	}
	d, err := mandate.Load(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("mandates in %s: %w", dir, err)
	}
	return d, nil
}

// loadPublishers reads a directory of documents; "" means none.
func loadPublishers(dir string) (publisher.Registry, error) {
	if dir == "" {
		return nil, nil
	}
	set, err := publisher.Load(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("publishers in %s: %w", dir, err)
	}
	return set, nil
}
