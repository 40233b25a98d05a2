package correlation

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"testing"
)

// callNotes are the fields of a call that another part writes: its notes on the call.
var callNotes = map[string]string{
	"deadline": "timers", "lastEmitted": "findings", "handoffFinding": "handoffs", "retryUse": "receipts",
	"inputMatch": "judge", "missingFinding": "judge", "missingCheckFinding": "judge", "replaced": "judge", "earlierEnd": "judge",
}

// TestPartsWriteTheirOwn: only methods of a part use its fields, and only they assign fields of
// the values in its section, but for callNotes. It sees what it can type without other
// packages.
func TestPartsWriteTheirOwn(t *testing.T) {
	isPart := map[string]bool{}
	partOf := map[string]string{"deadlines": "timers"}                // no section holds these
	for _, s := range New(newTestLog(t).opts).engine.sections()[1:] { // the first has the counts of the engine itself
		isPart[reflect.TypeOf(s.Root).Elem().Name()] = true
		for _, typ := range heldTypes(s) {
			if typ.Kind() == reflect.Struct && typ.PkgPath() == reflect.TypeFor[engine]().PkgPath() {
				partOf[typ.Name()] = s.Name
			}
		}
	}
	files, info := typedPackage(t)
	seen := map[string]int{}
	for _, f := range files {
		for _, d := range f.Decls {
			fn, isFunc := d.(*ast.FuncDecl)
			if !isFunc {
				continue
			}
			by := ""
			if recv := info.Defs[fn.Name].Type().(*types.Signature).Recv(); recv != nil {
				by = partOf[typeName(recv.Type())]
			}
			for x, assigned := range selectors(fn) {
				sel := info.Selections[x]
				if sel == nil || sel.Kind() != types.FieldVal {
					continue
				}
				name := typeName(sel.Recv())
				owner := partOf[name]
				isNote := owner == "calls" && by != "" && callNotes[x.Sel.Name] == by
				seen[owner]++
				if owner != "" && owner != by && (isPart[name] || assigned && !isNote) {
					t.Errorf("%s uses %s.%s, which is of the part %s; assigned: %v", fn.Name.Name, name, x.Sel.Name, owner, assigned)
				}
			}
		}
	}
	if seen["calls"] < 800 || seen["findings"] == 0 || seen["trackers"] == 0 || seen["timers"] == 0 {
		t.Errorf("too few fields were seen: %v", seen)
	}
}

// typedPackage parses the package and finds the types in it. Those of other packages stay
// unknown.
func typedPackage(t *testing.T) (files []*ast.File, info types.Info) {
	set := token.NewFileSet()
	names, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info = types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}, Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: noImports{}, Error: func(error) {}}
	_, _ = config.Check("correlation", set, files, &info)
	return files, info
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not needed") }

// typeName is the name of a type or of what it points to, "" if it has none.
func typeName(t types.Type) string {
	if p, is := t.(*types.Pointer); is {
		t = p.Elem()
	}
	if named, is := t.(*types.Named); is {
		return named.Obj().Name()
	}
	return ""
}

// selectors are the selectors in a function, with whether they, or elements of them, are
// assigned.
func selectors(fn *ast.FuncDecl) map[*ast.SelectorExpr]bool {
	assigned := map[*ast.SelectorExpr]bool{}
	ast.Inspect(fn, func(n ast.Node) bool {
		var targets []ast.Expr
		switch x := n.(type) {
		case *ast.AssignStmt:
			targets = x.Lhs
		case *ast.IncDecStmt:
			targets = []ast.Expr{x.X}
		case *ast.SelectorExpr:
			if !assigned[x] { // an assignment comes before its targets
				assigned[x] = false
			}
		}
		for _, e := range targets {
			if of, is := e.(*ast.IndexExpr); is {
				e = of.X
			}
			if x, is := e.(*ast.SelectorExpr); is {
				assigned[x] = true
			}
		}
		return true
	})
	return assigned
}
