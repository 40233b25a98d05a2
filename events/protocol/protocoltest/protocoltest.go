// Package protocoltest holds the names of protocols out of generic code: such code asks the row
// of a protocol and never its name (docs/adr/0023). Only tests import it.
package protocoltest

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

// folders are the names of the folders of protocols: the tokens, but for those that are words of many
// documents, too.
var folders = append(slices.DeleteFunc(slices.Clone(subject.Protocols), isWord), "aioc")

// isWord reports whether a token is a word of many documents. Its protocol is in the folder aioc.
func isWord(token string) bool { return token == subject.ProtoTool || token == subject.ProtoHandoff }

// wordConstant matches the constants of tokens that are words.
var wordConstant = regexp.MustCompile(`(?i:^proto_?(tool|handoff)$)`)

// namesProtocol reports whether an import or an identifier names a protocol.
func namesProtocol(what string) bool {
	plain := strings.ToLower(strings.ReplaceAll(what, "_", ""))
	return wordConstant.MatchString(what) || slices.ContainsFunc(folders, func(name string) bool { return strings.Contains(plain, name) })
}

// GenericCode fails the test for each name of a protocol in the Go files below root, without
// tests and without the folders of protocols. tables are the files that may name protocols, by path from root, and why; a file that
// names none, or is gone, must leave the list. read is the least number of generic files.
func GenericCode(t *testing.T, root string, tables map[string]string, read int) {
	t.Helper()
	named := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains(folders, d.Name()) {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		file, found := filepath.ToSlash(relative), namesIn(t, path)
		if tables[file] != "" {
			named[file] = len(found) > 0
			return nil
		}
		read--
		for _, what := range found {
			t.Errorf("%s names a protocol: %s; put what it needs into the protocol's row", file, what)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if read > 0 {
		t.Errorf("%d generic files fewer than expected were read", read)
	}
	for file, why := range tables {
		if !named[file] {
			t.Errorf("%s (%s) names no protocol, or is gone: take it off the list", file, why)
		}
	}
}

// namesIn lists the imports, identifiers and tokens of a file that name a protocol.
func namesIn(t *testing.T, path string) (found []string) {
	tree, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		what := ""
		switch x := n.(type) {
		case *ast.ImportSpec:
			what = x.Path.Value
		case *ast.Ident:
			what = x.Name
		case *ast.BasicLit:
			if isToken(x.Value) {
				found = append(found, x.Value)
			}
		}
		if namesProtocol(what) {
			found = append(found, what)
		}
		return true
	})
	return found
}

// isToken reports whether a literal is the token of a protocol, and no word.
func isToken(literal string) bool {
	text, err := strconv.Unquote(literal)
	return err == nil && !isWord(text) && slices.Contains(subject.Protocols, text)
}
