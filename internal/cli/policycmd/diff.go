package policycmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/textdiff"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/service/policybucket"
)

type policyDiffCmd struct {
	target.Flags
	Revision uint64 `help:"Compare with this revision instead of what is in force." placeholder:"N"`
	ExitCode bool   `help:"Exit with 1 if there is a difference."`
	JSON     bool   `name:"json" help:"Print the changed files as JSON."`
	Dir      string `arg:"" optional:"" help:"Directory of *.yaml files (default: what is in force, compared with --revision)."`
}

func (c *policyDiffCmd) Run(ctx context.Context, io ui.Stdio) error {
	if c.Dir == "" && c.Revision == 0 {
		return ui.UsageError{Err: fmt.Errorf("give a directory, or --revision N, to compare with what is in force")}
	}
	var to []policy.Document
	var err error
	if c.Dir != "" {
		if to, err = readPolicies(c.Dir); err != nil {
			return err
		}
	}
	b, err := openPolicies(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	from, now, err := c.sides(ctx, b)
	if err != nil {
		return err
	}
	if c.Dir == "" {
		to = now
	}
	list := compareDocuments(from, to)
	if c.JSON {
		err = ui.WriteJSON(io, list)
	} else {
		printDifference(ui.NewPrinter(io.Out), list, true)
		if len(list) == 0 {
			fmt.Fprintln(io.Out, "no difference")
		}
	}
	if err == nil && c.ExitCode && len(list) > 0 {
		return ui.ExitCode(ui.ExitFailed)
	}
	return err
}

// sides reads the older side, and the policies in force.
func (c *policyDiffCmd) sides(ctx context.Context, b *PolicyBucket) (from, now []policy.Document, err error) {
	held, err := b.InForce(ctx)
	if err != nil {
		return nil, nil, err
	}
	if now, err = held.Documents(); err != nil {
		return nil, nil, fmt.Errorf("what is in force: %w", err)
	}
	if c.Revision == 0 {
		return now, now, nil
	}
	p, err := b.revision(ctx, c.Revision)
	return policybucket.DecodeDocuments(p.Set.Documents), now, err
}

// fileChange is the difference of one file.
type fileChange struct {
	Name    string `json:"name"`
	Change  string `json:"change"` // added removed changed
	Added   int    `json:"lines_added"`
	Removed int    `json:"lines_removed"`
	Diff    string `json:"diff"`

	diffLines []string
}

func compareDocuments(from, to []policy.Document) []fileChange {
	texts := map[string][2]*policy.Document{}
	for side, docs := range [2][]policy.Document{from, to} {
		for i := range docs {
			pair := texts[docs[i].Name]
			pair[side] = &docs[i]
			texts[docs[i].Name] = pair
		}
	}
	list := []fileChange{}
	for name, pair := range texts {
		c := fileChange{Name: name, Change: "changed"}
		var text [2]string
		for side, d := range pair {
			if d != nil {
				text[side] = string(d.Data)
			}
		}
		switch {
		case pair[0] == nil:
			c.Change = "added"
		case pair[1] == nil:
			c.Change = "removed"
		case text[0] == text[1]:
			continue
		}
		c.fill(textdiff.Compare(text[0], text[1]))
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b fileChange) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (c *fileChange) fill(diffLines []string) {
	c.diffLines, c.Diff = diffLines, strings.Join(append(diffLines, ""), "\n")
	for _, l := range diffLines {
		switch l[0] {
		case '+':
			c.Added++
		case '-':
			c.Removed++
		}
	}
}

var diffColour = map[byte]string{'@': ui.Blue, '+': ui.Green, '-': ui.Red}

// maxDiffLine bounds the printed part of a diff line.
const maxDiffLine = 400

// printDifference names the changed files and, if asked for, their lines.
func printDifference(p *ui.Printer, list []fileChange, lines bool) {
	for _, c := range list {
		p.Printf("%s  %s  +%d -%d\n", p.Paint(ui.Bold, fmt.Sprintf("%-7s", c.Change)), ui.Clean(c.Name, 120), c.Added, c.Removed)
		if !lines {
			continue
		}
		for _, l := range c.diffLines {
			p.Printf("%s\n", p.Paint(diffColour[l[0]], ui.Clean(strings.ReplaceAll(l, "\t", "    "), maxDiffLine)))
		}
	}
}
