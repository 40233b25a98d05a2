package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/admission/policy"
)

type policyLintCmd struct {
	JSON bool   `name:"json" help:"Print the problems as a JSON array."`
	Dir  string `arg:"" help:"Directory of *.yaml files."`
}

// Run fails if there is a problem of severity error; warnings are only printed.
func (c *policyLintCmd) Run(io stdio) error {
	docs, err := readPolicies(c.Dir)
	if err != nil {
		return err
	}
	set, err := policy.Compile(docs)
	problems := policy.Lint(docs)
	if c.JSON {
		return c.asJSON(io, problems, err)
	}
	if err != nil {
		return fmt.Errorf("policies in %s do not compile: %w", c.Dir, err)
	}
	p := newPrinter(io.out)
	bad := 0
	for _, problem := range problems {
		printProblem(p, problem)
		if problem.Severity == policy.SeverityError {
			bad++
		}
	}
	p.printf("%d policies in %d files compile; digest %s\n", len(set.Names()), len(docs), set.Digest())
	if bad > 0 {
		return exitCode(exitFailed)
	}
	return nil
}

func (c *policyLintCmd) asJSON(io stdio, problems []policy.Finding, compile error) error {
	if problems == nil {
		problems = []policy.Finding{}
	}
	enc := json.NewEncoder(io.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(problems); err != nil {
		return err
	}
	if compile != nil {
		return exitCode(exitFailed)
	}
	for _, p := range problems {
		if p.Severity == policy.SeverityError {
			return exitCode(exitFailed)
		}
	}
	return nil
}

func printProblem(p *printer, problem policy.Finding) {
	colour := yellow
	if problem.Severity == policy.SeverityError {
		colour = red
	}
	where := clean(fmt.Sprintf("%s:%d", problem.Document, problem.Line), 120)
	if problem.Rule != "" {
		where += " " + clean(problem.Rule, 130)
	}
	p.printf("%s  %s  %s (%s)\n", p.paint(colour, fmt.Sprintf("%-7s", problem.Severity)), where, clean(problem.Message, 600), clean(problem.Code, 40))
	if problem.Remedy != "" {
		p.printf("         %s\n", p.paint(faint, clean(problem.Remedy, 600)))
	}
}

var errTables = errors.New("no table of cases: give files, or a directory that holds *.yaml tables")
