package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// codeGroup is the codes of one package. A code is a constant of text with a name that
// begins with one of the prefixes; its meaning is the comment on its line, or what a
// table of the package says.
type codeGroup struct {
	dir, title string
	prefixes   []string
}

// codeTables are the tables of texts by code, by package.
var codeTables = map[string]string{"admission/approval": "messages", "admission/aana": "issueTexts"}

var codePrefixes = []string{"Code", "code", "Reason", "reason"}

// codeGroups are the packages with codes, in the order of the page.
var codeGroups = []struct {
	title  string
	groups []codeGroup
}{
	{"Decisions and denials", []codeGroup{
		{"admission", "Any protocol", codePrefixes},
		{"admission/call", "Any protocol, about the request", codePrefixes},
		{"events/strictjson", "Documents that cannot be read", []string{""}},
		{"admission/policy", "Policies", codePrefixes},
		{"admission/publisher", "Publishers and tool catalogues", codePrefixes},
		{"admission/approval", "Approvals", codePrefixes},
		{"admission/agenthook", "AgentHook", codePrefixes},
		{"admission/aaep", "AAEP", codePrefixes},
		{"admission/aana", "AANA", codePrefixes},
		{"admission/aump", "AUMP", codePrefixes},
		{"admission/aioc", "aioc", codePrefixes},
		{"internal/service/admitter", "Denials without a record", codePrefixes},
	}},
	{"Events that are refused", []codeGroup{{"internal/service/ingest", "Ingest", codePrefixes}}},
	{"The client", []codeGroup{
		{"client", "Denials of the client", []string{"Code", "Reason"}},
		{"client/guard", "Executions that the guard refuses", []string{"Code"}},
		{"admission/receipt", "Receipts that do not hold", []string{"Err"}},
	}},
	{"Gates", []codeGroup{{"internal/gateclient", "Reasons of refusals", []string{"Cause"}}}},
	{"Policies", []codeGroup{
		{"admission/policy", "Findings of policy lint", []string{"Lint"}},
		{"admission/policy/functions/shell", "Why shell.parse does not know all of a text", []string{"Reason"}},
	}},
	{"Following", []codeGroup{{"events", "Pages of outputs", []string{"Follow"}}}},
	{"Evidence", []codeGroup{
		{"evidence/verify", "Findings of verify", codePrefixes},
		{"evidence/build", "Reasons of records without a body", codePrefixes},
	}},
}

func reasonCodes(root string, p *text) error {
	p.line("Codes of policies are those that their authors write (`reason` of a rule). Codes of findings are rules: see [rules.md](rules.md).\n")
	if err := allPackagesListed(root); err != nil {
		return err
	}
	for _, part := range codeGroups {
		p.line("## %s\n", part.title)
		for _, g := range part.groups {
			found, err := constantsOf(root, g.dir, g.prefixes...)
			if err != nil {
				return err
			}
			p.line("### %s\n", g.title)
			p.codeBlocks(found)
		}
	}
	return nil
}

// codeBlocks writes one table for each block of constants.
func (p *text) codeBlocks(found []constant) {
	for len(found) > 0 {
		n := 1
		for n < len(found) && found[n].block == found[0].block {
			n++
		}
		var rows [][]string
		for _, c := range found[:n] {
			rows = append(rows, []string{quoted(c.value), c.text})
		}
		if title := found[0].title; !strings.HasPrefix(title, found[0].name) {
			p.line("%s\n", firstSentence(title))
		}
		p.table([]string{"code", "meaning"}, rows)
		found = found[n:]
	}
}

func firstSentence(s string) string {
	first, _, more := strings.Cut(s, ". ")
	if more {
		first += "."
	}
	return first
}

// constant is a constant of text, or an error that has a code.
type constant struct {
	name, value, text string
	alias             string // the constant of the same package that it stands for
	title             string // the comment of the block that it stands in
	block             token.Pos
}

// constantsOf lists the constants of a package with names that begin with one of the
// prefixes, in the order of the source. One without a meaning is an error.
func constantsOf(root, dir string, prefixes ...string) ([]constant, error) {
	all, err := readConstants(filepath.Join(root, dir))
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(all, func(c constant) bool { return !hasPrefix(c.name, prefixes) })
	if table, has := codeTables[dir]; has {
		files, err := parsePackage(filepath.Join(root, dir))
		if err != nil {
			return nil, err
		}
		texts := tableTexts(files, table)
		for i, c := range list {
			if text := texts[c.name]; text != "" {
				list[i].text = text
			}
		}
	}
	return list, checkMeanings(dir, list)
}

// hasPrefix reports whether a name begins with one of the prefixes; "" stands for all
// exported names.
func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) && (p != "" || ast.IsExported(name)) })
}

func checkMeanings(dir string, list []constant) error {
	if len(list) == 0 {
		return fmt.Errorf("%s has no codes: take it out of codeGroups (tools/docgen/reference/codes.go)", dir)
	}
	for _, c := range list {
		if c.text == "" {
			return fmt.Errorf("%s: %s has no meaning: write it as a comment on its line", dir, c.name)
		}
	}
	return nil
}

func parsePackage(dir string) ([]*ast.File, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// readConstants lists all constants of text of a package. What stands for a constant
// of another package is left out: that package has it.
func readConstants(dir string) (list []constant, err error) {
	files, err := parsePackage(dir)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, f := range files {
		for _, d := range f.Decls {
			if block, is := d.(*ast.GenDecl); is && (block.Tok == token.CONST || block.Tok == token.VAR) {
				list = append(list, readBlock(block)...)
			}
		}
	}
	for _, c := range list {
		values[c.name] = c.value
	}
	for i, c := range list {
		if c.alias != "" {
			list[i].value = values[c.alias]
		}
	}
	return slices.DeleteFunc(list, func(c constant) bool { return c.value == "" }), nil
}

// tableTexts reads a table of texts by constant.
func tableTexts(files []*ast.File, table string) map[string]string {
	texts := map[string]string{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, is := n.(*ast.ValueSpec)
			if !is || len(spec.Values) != 1 || spec.Names[0].Name != table {
				return true
			}
			if lit, is := spec.Values[0].(*ast.CompositeLit); is {
				for _, e := range lit.Elts {
					if kv, is := e.(*ast.KeyValueExpr); is {
						texts[fmt.Sprint(kv.Key)] = stringOf(kv.Value)
					}
				}
			}
			return false
		})
	}
	return texts
}

func readBlock(block *ast.GenDecl) (list []constant) {
	for _, s := range block.Specs {
		spec, is := s.(*ast.ValueSpec)
		if !is || len(spec.Names) != 1 || len(spec.Values) != 1 {
			continue
		}
		c := constant{name: spec.Names[0].Name, text: oneLine(spec.Comment), title: oneLine(block.Doc), block: block.Pos()}
		switch v := spec.Values[0].(type) {
		case *ast.BasicLit:
			if block.Tok == token.CONST && v.Kind == token.STRING {
				c.value, _ = strconv.Unquote(v.Value)
			}
		case *ast.Ident:
			c.alias = v.Name
		case *ast.CallExpr: // newError(code, text, ...)
			if f, is := v.Fun.(*ast.Ident); is && f.Name == "newError" {
				c.value, c.text = stringOf(v.Args[0]), stringOf(v.Args[1])
			}
		}
		list = append(list, c)
	}
	return list
}

func stringOf(e ast.Expr) string {
	lit, is := e.(*ast.BasicLit)
	if !is {
		return ""
	}
	text, _ := strconv.Unquote(lit.Value)
	return text
}

func oneLine(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

// codeParts are the folders in which packages with codes can be.
var codeParts = []string{"admission", "client", "correlation", "events", "evidence", "internal/service"}

// allPackagesListed refuses a package that has codes and no place on the page.
func allPackagesListed(root string) error {
	listed := map[string]bool{}
	for _, part := range codeGroups {
		for _, g := range part.groups {
			listed[g.dir] = true
		}
	}
	for _, part := range codeParts {
		err := filepath.WalkDir(filepath.Join(root, part), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			dir, err := filepath.Rel(root, path)
			if err != nil || listed[filepath.ToSlash(dir)] {
				return err
			}
			found, err := readConstants(path)
			if err != nil {
				return err
			}
			for _, c := range found {
				if hasPrefix(c.name, codePrefixes) && isCode.MatchString(c.value) {
					return fmt.Errorf("%s has the code %s and is not listed: add it to codeGroups (tools/docgen/reference/codes.go)", dir, c.name)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// isCode tells a code from other text.
var isCode = regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)
