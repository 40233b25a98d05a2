package policycmd

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/policy/table"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

type policyTestCmd struct {
	Policy          string   `help:"Directory of policies to test instead of those that the tables name." placeholder:"DIR"`
	Now             string   `help:"The time of cases that name none, RFC 3339 (default: now)." placeholder:"TIME"`
	RequireCoverage bool     `help:"Fail if there is a rule that no case makes match."`
	JSON            bool     `name:"json" help:"Print the results as JSON."`
	Tables          []string `arg:"" help:"Tables (YAML), or directories of them." placeholder:"FILE"`
}

// tableReport is the result of one table.
type tableReport struct {
	File   string `json:"file"`
	Policy string `json:"policies"`
	Passed int    `json:"passed"`
	Failed int    `json:"failed"`
	// Refused counts the refusals of ordinary requests; nil if the table does not hold such.
	Refused *table.Refusals `json:"ordinary,omitempty"`
	Cases   []table.Result  `json:"cases"`
}

// testReport is the result of the whole command.
type testReport struct {
	Passed    int           `json:"passed"`
	Failed    int           `json:"failed"`
	Rules     int           `json:"rules"`
	Uncovered []string      `json:"uncovered"` // "policy/rule"
	Tables    []tableReport `json:"tables"`
}

func (c *policyTestCmd) Run(io ui.Stdio) error {
	now, err := ui.ParseNow(c.Now)
	if err != nil {
		return ui.UsageError{Err: err}
	}
	files, err := tableFiles(c.Tables)
	if err != nil {
		return ui.UsageError{Err: err}
	}
	sets := &testedSets{only: c.Policy, byDir: map[string]*testedSet{}}
	rep := testReport{Uncovered: []string{}}
	for _, file := range files {
		t, err := runTable(file, sets, now)
		if err != nil {
			return ui.UsageError{Err: err}
		}
		rep.Passed, rep.Failed = rep.Passed+t.Passed, rep.Failed+t.Failed
		rep.Tables = append(rep.Tables, t)
	}
	sets.coverage(&rep)
	if c.JSON {
		enc := json.NewEncoder(io.Out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		err = enc.Encode(rep)
	} else {
		printTests(ui.NewPrinter(io.Out), rep)
	}
	if err == nil && (rep.Failed > 0 || c.RequireCoverage && len(rep.Uncovered) > 0) {
		return ui.ExitCode(ui.ExitFailed)
	}
	return err
}

// tableFiles lists the tables of the given paths.
func tableFiles(paths []string) (files []string, err error) {
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, fmt.Errorf("reading the tables: %w", err)
		}
		if !info.IsDir() {
			files = append(files, p)
			continue
		}
		err = filepath.WalkDir(p, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(name)) {
				files = append(files, name)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if len(files) == 0 {
		return nil, errTables
	}
	return files, nil
}

func runTable(file string, sets *testedSets, now time.Time) (tableReport, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return tableReport{}, fmt.Errorf("reading a table: %w", err)
	}
	t, err := table.Parse(file, data)
	if err != nil {
		return tableReport{}, err
	}
	dir := filepath.Dir(file)
	tested, err := sets.of(t, dir)
	if err != nil {
		return tableReport{}, err
	}
	rep := tableReport{File: file, Policy: tested.dir}
	rep.Cases = table.Run(t, table.Options{
		Policies: tested.set, Now: now,
		File:     func(name string) ([]byte, error) { return os.ReadFile(beside(dir, name)) },
		Mandates: func(name string) (mandate.Source, error) { return loadMandates(beside(dir, name)) },
	})
	for _, r := range rep.Cases {
		if r.Passed {
			rep.Passed++
		} else {
			rep.Failed++
		}
	}
	if t.Ordinary {
		n := table.CountRefusals(rep.Cases)
		rep.Refused = &n
	}
	tested.results = append(tested.results, rep.Cases)
	return rep, nil
}

// beside is the path of a file that a table names.
func beside(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

// testedSet is a directory of policies with the results of all its cases.
type testedSet struct {
	dir     string
	set     *policy.Set
	rules   []policy.RuleText
	results [][]table.Result
}

type testedSets struct {
	only  string
	byDir map[string]*testedSet
}

func (s *testedSets) of(t table.Table, dir string) (*testedSet, error) {
	name := s.only
	switch {
	case name != "":
	case t.Policies == "":
		return nil, fmt.Errorf("%s names no directory of policies: write policies: DIR in it, or give --policy DIR", t.File)
	default:
		name = beside(dir, t.Policies)
	}
	key, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	if known := s.byDir[key]; known != nil {
		return known, nil
	}
	docs, set, err := LoadPolicies(name)
	if err != nil {
		return nil, err
	}
	tested := &testedSet{dir: name, set: set}
	if tested.rules, err = policy.Rules(docs); err != nil {
		return nil, err
	}
	s.byDir[key] = tested
	return tested, nil
}

// coverage adds the rules that no case matched.
func (s *testedSets) coverage(rep *testReport) {
	for _, t := range s.byDir {
		ids := make([]string, len(t.rules))
		for i, r := range t.rules {
			ids[i] = r.ID()
		}
		rep.Rules += len(ids)
		rep.Uncovered = append(rep.Uncovered, table.Uncovered(ids, t.results...)...)
	}
	slices.Sort(rep.Uncovered)
}

func printTests(p *ui.Printer, rep testReport) {
	for _, t := range rep.Tables {
		for _, r := range t.Cases {
			if !r.Passed {
				printFailure(p, t.File, r)
			}
		}
	}
	for _, t := range rep.Tables {
		mark := p.Paint(ui.Green, "ok  ")
		if t.Failed > 0 {
			mark = p.Paint(ui.Red, "FAIL")
		}
		p.Printf("%s  %s: %d of %d cases pass\n", mark, ui.Clean(t.File, 200), t.Passed, t.Passed+t.Failed)
		if t.Refused != nil {
			p.Printf("      %s\n", t.Refused)
		}
	}
	if n := len(rep.Uncovered); n > 0 {
		p.Printf("%s\n", p.Paint(ui.Yellow, fmt.Sprintf("no case makes these %d of %d rules match:", n, rep.Rules)))
		for _, id := range rep.Uncovered {
			p.Printf("  %s\n", ui.Clean(id, 130))
		}
	} else {
		p.Printf("all %s covered\n", ui.Counted(rep.Rules, "rule", "is", "are"))
	}
}

func printFailure(p *ui.Printer, file string, r table.Result) {
	p.Printf("%s  %s\n", p.Paint(ui.Red, "FAIL"), p.Paint(ui.Bold, ui.Clean(fmt.Sprintf("%s:%d: %s", file, r.Line, r.Name), 300)))
	for _, problem := range r.Mismatches {
		p.Printf("      %s\n", ui.Clean(problem, 400))
	}
	if r.Verdict != "" {
		p.Printf("      %s\n", p.Paint(ui.Faint, ui.Clean("got "+string(r.Verdict)+" because of "+reasonList(r.Reasons), 600)))
	}
}

// reasonList lists reasons with the rules that gave them.
func reasonList(reasons []events.Reason) string {
	list := make([]string, len(reasons))
	for i, r := range reasons {
		list[i] = r.Code
		switch {
		case r.Policy != "":
			list[i] += " (" + r.Policy + ")"
		case r.Path != "":
			list[i] += " (" + r.Path + ")"
		}
	}
	return strings.Join(list, ", ")
}
