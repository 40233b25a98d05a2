package correlation

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// maxMethods bounds the methods of one type: a type with more is several parts.
const maxMethods = 40

// partRecords are the types that a part's state is made of. Their methods belong to it.
var partRecords = map[string]string{"session": "calls", "call": "calls"}

// partFields are the fields of the engine's parts, by part. A part's field in the engine
// has the name of its type.
func partFields() map[string][]string {
	parts := map[string][]string{}
	for f := range reflect.TypeFor[engine]().Fields() {
		if f.Type.Kind() != reflect.Pointer || f.Type.Elem().Name() != f.Name {
			continue
		}
		for g := range f.Type.Elem().Fields() {
			parts[f.Name] = append(parts[f.Name], g.Name)
		}
	}
	return parts
}

// TestPartsOwnTheirState: only a part's own methods touch its fields, and no type has more
// methods than can be learnt.
func TestPartsOwnTheirState(t *testing.T) {
	parts := partFields()
	if len(parts) < 10 {
		t.Fatalf("the engine has the parts %v", slices.Sorted(maps.Keys(parts)))
	}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	methods := map[string]int{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			fn, is := d.(*ast.FuncDecl)
			if !is {
				continue
			}
			owner := receiverType(fn)
			methods[owner]++
			ast.Inspect(fn, func(n ast.Node) bool {
				outer, is := n.(*ast.SelectorExpr)
				if !is {
					return true
				}
				inner, is := outer.X.(*ast.SelectorExpr)
				if outer.Sel.Name == "opts" { // the engine gives them to every part
					return true
				}
				if is && slices.Contains(parts[inner.Sel.Name], outer.Sel.Name) && inner.Sel.Name != owner && inner.Sel.Name != partRecords[owner] {
					t.Errorf("%s: a method of %q touches %s.%s", files.Position(outer.Pos()), owner, inner.Sel.Name, outer.Sel.Name)
				}
				return true
			})
		}
	}
	delete(methods, "") // functions
	for name, n := range methods {
		if n > maxMethods {
			t.Errorf("%s has %d methods, at most %d can be learnt", name, n, maxMethods)
		}
	}
}

// receiverType is the name of the type that a method belongs to, "" for a function.
func receiverType(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	e := fn.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
