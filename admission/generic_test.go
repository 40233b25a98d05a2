package admission

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/subject"
)

// tableFiles are the files of generic code that may name protocols, and why.
var tableFiles = map[string]string{
	"admission/protocols.go":                     "admission's table",
	"admission/policy/protocols.go":              "the policies' table",
	"internal/service/admitter/confirmations.go": "the store of AAEP's confirmations",

	"internal/service/admitter/mandates_principal.go": "the endpoint of the principals of AUMP's mandates",
}

var (
	genericFolders = []string{"admission", "client", "internal/service/admitter", "internal/service/ingest"}
	protocolFolder = regexp.MustCompile(`/(aaep|aana|agenthook|aioc|aump)$`)
)

// Generic code of admission, of the client and of their services asks the row of a protocol and
// never its name (docs/adr/0023).
func TestGenericCodeNamesNoProtocol(t *testing.T) {
	seen := map[string]bool{}
	for _, folder := range genericFolders {
		err := filepath.WalkDir(filepath.Join("..", folder), func(path string, d fs.DirEntry, err error) error {
			name := strings.TrimPrefix(filepath.ToSlash(path), "../")
			switch {
			case err != nil:
				return err
			case d.IsDir() && protocolFolder.MatchString(name):
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
				return nil
			}
			found := protocolNames(t, path)
			if _, table := tableFiles[name]; table {
				seen[name] = len(found) > 0
				return nil
			}
			for _, what := range found {
				t.Errorf("%s names a protocol: %s; put what it needs into the protocol's row", name, what)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, why := range tableFiles {
		if !seen[name] {
			t.Errorf("%s (%s) names no protocol, or is gone: take it off the list", name, why)
		}
	}
}

// protocolNames lists what names a protocol in a file: the import of a protocol's package, the
// constant of a token, a text that is a token.
func protocolNames(t *testing.T, path string) (found []string) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			if name, _ := strconv.Unquote(n.Path.Value); protocolFolder.MatchString(name) {
				found = append(found, name)
			}
			return false
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "subject" && strings.HasPrefix(n.Sel.Name, "Proto") && n.Sel.Name != "Protocols" {
				found = append(found, "subject."+n.Sel.Name)
			}
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			// "tool" and "handoff" are words of many documents, too.
			if err == nil && slices.Contains(subject.Protocols, text) && text != subject.ProtoTool && text != subject.ProtoHandoff {
				found = append(found, n.Value)
			}
		}
		return true
	})
	return found
}
