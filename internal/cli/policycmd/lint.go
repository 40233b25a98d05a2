package policycmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

type policyLintCmd struct {
	JSON bool   `name:"json" help:"Print the problems as a JSON array."`
	Dir  string `arg:"" help:"Directory of *.yaml files."`
}

// Run fails if there is a finding of severity error; warnings are only printed.
func (c *policyLintCmd) Run(io ui.Stdio) error {
	docs, err := readPolicies(c.Dir)
	if err != nil {
		return err
	}
	set, err := policy.Compile(docs)
	findings := policy.Lint(docs)
	if c.JSON {
		return c.asJSON(io, findings, err)
	}
	if err != nil {
		return fmt.Errorf("policies in %s do not compile: %w", c.Dir, err)
	}
	p := ui.NewPrinter(io.Out)
	for _, finding := range findings {
		printFinding(p, finding)
	}
	p.Printf("%s in %s; digest %s\n", ui.Plural(len(set.Names()), "policy"), ui.Counted(len(docs), "file", "compiles", "compile"), set.Digest())
	if slices.ContainsFunc(findings, isError) {
		return ui.ExitCode(ui.ExitFailed)
	}
	return nil
}

func isError(f policy.Finding) bool { return f.Severity == policy.SeverityError }

func (c *policyLintCmd) asJSON(io ui.Stdio, findings []policy.Finding, compile error) error {
	if findings == nil {
		findings = []policy.Finding{}
	}
	enc := json.NewEncoder(io.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(findings); err != nil {
		return err
	}
	if compile != nil || slices.ContainsFunc(findings, isError) {
		return ui.ExitCode(ui.ExitFailed)
	}
	return nil
}

func printFinding(p *ui.Printer, finding policy.Finding) {
	colour := ui.Yellow
	if isError(finding) {
		colour = ui.Red
	}
	where := ui.Clean(fmt.Sprintf("%s:%d", finding.Document, finding.Line), 120)
	if finding.Rule != "" {
		where += " " + ui.Clean(finding.Rule, 130)
	}
	p.Printf("%s  %s  %s (%s)\n", p.Paint(colour, fmt.Sprintf("%-7s", finding.Severity)), where, ui.Clean(finding.Message, 600), ui.Clean(finding.Code, 40))
	if finding.Remedy != "" {
		p.Printf("         %s\n", p.Paint(ui.Faint, ui.Clean(finding.Remedy, 600)))
	}
}

var errTables = errors.New("no table of cases: give files, or a directory that holds *.yaml tables")
