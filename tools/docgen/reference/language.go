package reference

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/policy/functions"
	"github.com/countersign-dev/countersign/admission/policy/functions/shell"
)

// objectPackages are the packages with types that conditions see as objects: structs with cel tags.
var objectPackages = []string{"events/agenttool", "admission/policy/functions/shell", "admission/policy/functions"}

// language lists what conditions can use.
func language(root string, p *text) error {
	p.line("## Keys of documents\n\n[policies.md](../policies.md) has examples.\n")
	if err := p.keys(filepath.Join(root, "admission/policy"), policyDocuments); err != nil {
		return err
	}
	p.line("## Variables\n")
	var rows [][]string
	for _, v := range policy.RequestVariables() {
		rows = append(rows, []string{quoted(v.Name), v.Type, v.Meaning})
	}
	p.table([]string{"variable", "type", "meaning"}, rows)

	p.line("## Functions\n")
	rows = nil
	for _, f := range functions.All() {
		result := f.Result
		if !slices.Contains([]string{"text", "bool", "int"}, result) { // an object
			result = fmt.Sprintf("[%s](#%s)", result, strings.ToLower(result))
		}
		rows = append(rows, []string{quoted(f.Use), result, f.About, quoted(f.Example)})
	}
	p.table([]string{"function", "result", "meaning", "an example that is true"}, rows)

	programs, unread := shell.ProgramsWithFiles()
	p.line("## Objects\n\nOf a [Command](#command), `writes` has files that arguments name for these programs: %s. Of git it has only `\"\\x00\"`, for clone, init, worktree, submodule, archive, bundle, format-patch and `--output`, and with `-C`, `--git-dir` or `--work-tree`: what other subcommands change in the working tree is not in it. "+
		"`reads` has those for the same programs but: %s. What these read is not in it, or not all. Of programs that are not listed both have the files of redirections alone. Allow programs by name.\n", strings.Join(programs, ", "), strings.Join(unread, ", "))
	for _, dir := range objectPackages {
		if err := p.objects(filepath.Join(root, dir), "cel"); err != nil {
			return err
		}
	}
	return limits(filepath.Join(root, "admission/policy"), p)
}

// objects writes a table for each struct of a package that has fields with a tag, from their comments.
func (p *text) objects(dir, tag string) error {
	structs, err := structsOf(dir, tag)
	if err != nil {
		return err
	}
	for _, s := range structs {
		var rows [][]string
		for _, f := range s.fields {
			typeName := types.ExprString(f.typ)
			if _, of, isList := strings.Cut(typeName, "[]"); f.text == "" && isList && ast.IsExported(of) {
				f.text = fmt.Sprintf("see [%s](#%s)", of, strings.ToLower(of))
			}
			if f.text == "" {
				return fmt.Errorf("%s.%s has no meaning: write it as a comment on its line", s.name, f.goName)
			}
			rows = append(rows, []string{quoted(f.name), typeNames.Replace(typeName) + f.optional, f.text})
		}
		if len(rows) > 0 {
			p.line("### %s\n\n%s\n", s.name, s.doc)
			p.table([]string{"member", "type", "meaning"}, rows)
		}
	}
	return nil
}

// typeNames are the types of Go in the words of the language.
var typeNames = strings.NewReplacer("[]", "list of ", "*", "", "map[string]string", "map of texts", "string", "text", "events.Time", "time", "uint64", "uint64", "int64", "int")

// limits lists the constants Max…, with the comment on their line as their meaning.
func limits(dir string, p *text) error {
	files, err := parsePackage(dir)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, f := range files {
		for _, d := range f.Decls {
			block, is := d.(*ast.GenDecl)
			if !is || block.Tok != token.CONST {
				continue
			}
			for _, s := range block.Specs {
				spec := s.(*ast.ValueSpec)
				if strings.HasPrefix(spec.Names[0].Name, "Max") && spec.Comment != nil {
					value, err := types.Eval(token.NewFileSet(), nil, token.NoPos, types.ExprString(spec.Values[0]))
					if err != nil {
						return fmt.Errorf("%s: %w", spec.Names[0].Name, err)
					}
					rows = append(rows, []string{value.Value.ExactString(), oneLine(spec.Comment)})
				}
			}
		}
	}
	p.line("## Limits\n\nWhat exceeds the limit of a document is an error. A condition that exceeds a cost fails, which denies; texts, lists and maps that it makes count in bytes. Policies with `[warn]` or `[audit]` have a budget of their own.\n")
	p.table([]string{"at most", "of what"}, rows)
	return nil
}
