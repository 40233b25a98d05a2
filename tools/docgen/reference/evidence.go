package reference

import (
	"fmt"
	"go/ast"
	"go/doc/comment"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/compliance/bundle"
	"github.com/countersign-dev/countersign/compliance/format"
	"github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/storage/questions"
)

// detectors lists what redactions name: those with a constant and its comment, then the others, which
// are called after what they find.
func detectors(root string, p *text) error {
	byName := map[string]string{}
	var found []constant
	for _, dir := range []string{"evidence/internal/redact", "evidence/internal/protocol/storable"} {
		list, err := readConstants(filepath.Join(root, dir))
		if err != nil {
			return err
		}
		for _, c := range list {
			byName[c.value] = c.text
		}
		found = append(found, list...)
	}
	var rows [][]string
	var shapes []string
	for _, d := range redaction.Detectors() {
		if byName[d.Name] == "" {
			shapes = append(shapes, d.Name)
			continue
		}
		rows = append(rows, []string{quoted(d.Name), byName[d.Name], release(d)})
	}
	for _, c := range found {
		if strings.HasPrefix(c.name, "Retention") {
			rows = append(rows, []string{quoted(c.value), c.text, ""})
		}
	}
	p.table([]string{"detector", "finds", "a policy may release it"}, rows)
	slices.Sort(shapes)
	p.line("By the form of the credential, never released: %s.\n", quoted(shapes...))
	p.line("## Actions\n")
	p.table([]string{"action", "what stays"}, redactionActions)
	p.line("## Keys of redaction policies\n\n[redaction.md](../redaction.md) has an example.\n")
	return p.keys(filepath.Join(root, "evidence/redaction"), redactionDocuments)
}

// redactionActions say what an action leaves.
var redactionActions = [][]string{
	{"`mask`", "a placeholder; with `last` also the last characters"},
	{"`drop`", "nothing: the member is gone. A finding inside a text takes the whole text"},
	{"`hash`; `tokenise` with `scope: session`", "a keyed digest, equal for equal values of the session"},
	{"`tokenise`", "a keyed digest, equal for equal values of the tenant"},
	{"`truncate`", "the first `keep` characters without findings; of a finding inside a text at most half"},
	{"`allow`", "the value"},
}

func release(d redaction.Detector) string {
	switch {
	case d.Personal:
		return "yes; in the group `personal`"
	case d.Releasable:
		return "at named places"
	}
	return "never"
}

// formats lists the formats of export with the sources of their fields.
func formats(root string, p *text) error {
	for _, name := range format.Names() {
		var rows [][]string
		for _, f := range format.Fields(name) {
			rows = append(rows, []string{quoted(f.Names...), f.From})
		}
		schemas, err := schemaLinks(root, name)
		if err != nil {
			return err
		}
		p.line("## %s\n\nLines for %s. %s\n", name, format.Describe(name), schemas)
		if note := format.Note(name); note != "" {
			p.line("%s\n", note)
		}
		p.table([]string{"field", "from"}, rows)
	}
	var rows [][]string
	for _, g := range format.Grades() {
		rows = append(rows, []string{g.Record, strconv.Itoa(g.OCSF), strconv.Itoa(g.CEF)})
	}
	p.line("## Severities\n")
	p.table([]string{"record", "OCSF `severity_id`", "CEF"}, rows)
	return nil
}

// schemasOf are the schemas of lines, by format. Lines of CEF are not JSON.
var schemasOf = map[string][]string{
	format.AANADecisionEvents: {"compliance/format/schemas/aana-decision-event.json"},
	format.AANAAuditRecords:   {"compliance/format/schemas/aana-audit-record.json"},
	format.AUMPEvidence:       {"schemas/aump/evidence-event.json"},
	format.AIOCRun:            {"compliance/format/schemas/aioc-run-record.json"},
	format.AIOCGovernance:     {"compliance/format/schemas/aioc-governance-event.json"},
	format.AgentHookEvidence:  {"schemas/agenthook/envelope.json", "schemas/agenthook/action-governance.evidence.json"},
	format.OCSF:               {"compliance/format/schemas/ocsf-event.json"},
}

func schemaLinks(root, name string) (string, error) {
	var links []string
	for _, file := range schemasOf[name] {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			return "", err
		}
		links = append(links, "["+filepath.Base(file)+"](../../"+file+")")
	}
	if len(links) == 0 {
		return "They are not JSON.", nil
	}
	return "The schema of a line: " + strings.Join(links, ", ") + ".", nil
}

// bundleMembers lists the members of a bundle, the columns of its table and the objects of in_force.json.
func bundleMembers(root string, p *text) error {
	found, err := readConstants(filepath.Join(root, "compliance/bundle"))
	if err != nil {
		return err
	}
	about := map[string]string{}
	for _, c := range found {
		about[c.value] = c.text
	}
	var rows [][]string
	for _, name := range bundle.MemberNames() {
		if about[name] == "" {
			return fmt.Errorf("the member %s of a bundle has no comment", name)
		}
		rows = append(rows, []string{quoted(name), about[name]})
	}
	p.line("[evidence-format.md](../evidence-format.md#5-bundle) is the format.\n\n## Members\n")
	p.table([]string{"member", "holds"}, rows)
	for _, part := range []struct{ title, dir, function string }{
		{"The statement", "compliance/statement", "Sign"},
		{"The ZIP file", "compliance/bundle", "packEntries"},
	} {
		about, err := functionDoc(filepath.Join(root, part.dir), part.function)
		if err != nil {
			return err
		}
		p.line("## %s\n\n%s", part.title, about)
	}
	p.line("## Columns of records.parquet\n")
	if err := p.objects(filepath.Join(root, "compliance/table"), "parquet"); err != nil {
		return err
	}
	p.line("## Objects of in_force.json\n")
	return p.objects(filepath.Join(root, "compliance/inforce"), "json")
}

// functionDoc is the comment of a function as Markdown.
func functionDoc(dir, name string) (string, error) {
	files, err := parsePackage(dir)
	if err != nil {
		return "", err
	}
	for _, f := range files {
		for _, d := range f.Decls {
			if function, is := d.(*ast.FuncDecl); is && function.Name.Name == name && function.Doc != nil {
				var parser comment.Parser
				var printer comment.Printer
				return string(printer.Markdown(parser.Parse(function.Doc.Text()))), nil
			}
		}
	}
	return "", fmt.Errorf("%s has no function %s with a comment", dir, name)
}

// auditQuestions lists the questions of auditors with their statements.
func auditQuestions(_ string, p *text) error {
	p.line("A statement runs as the user `countersign_ro`, or as an auditor of one tenant. Times are the broker's, in UTC; `shard` and `seq` place a row on the log.\n")
	for i, q := range questions.All() {
		says := q.Says
		if q.Hides != "" {
			says += " An auditor of one tenant is not shown " + q.Hides + "."
		}
		p.line("## %d. %s\n\n`countersign audit ask %s`: %s\n\n```sql\n%s\n```\n", i+1, q.Asks, q.Name, says, q.SQL)
	}
	return nil
}
