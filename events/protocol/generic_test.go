package protocol_test

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

// mandates is why a file names AUMP: every protocol's call may be made under a mandate, which is
// a document of AUMP.
const mandates = "mandates are documents of AUMP"

// TestGenericCodeNamesNoProtocol: generic code asks the row of a protocol and never its name
// (docs/adr/0023). tables are the files that may name protocols, and why; read is the least number
// of generic files below root.
func TestGenericCodeNamesNoProtocol(t *testing.T) {
	for _, tc := range []struct {
		root   string
		tables map[string]string
		read   int
	}{
		{"admission", map[string]string{
			"protocols.go":          "the table",
			"policy/protocols.go":   "the table of policies",
			"publisher/document.go": "manifests are documents of AgentHook",
			"admission.go":          mandates,
			"call/call.go":          mandates,
			"effects.go":            mandates,
			"inputs.go":             mandates,
			"offline.go":            mandates,
			"policy/table/run.go":   mandates,
			"replay/replay.go":      mandates,
		}, 60},
		{"client", nil, 10},
		{"internal/service/admitter", map[string]string{
			"confirmations.go":      "the store of AAEP's confirmations",
			"mandates_principal.go": "the endpoint of the principals of AUMP's mandates",
			"mandates.go":           mandates,
			"ledger.go":             mandates,
			"ledger_account.go":     mandates,
			"ledger_calls.go":       mandates,
			"ledger_sweep.go":       mandates,
		}, 20},
		{"internal/service/ingest", nil, 2},
		{"internal/service/quota", nil, 1},
		{"compliance", map[string]string{
			"internal/protocol/protocol.go": "the table",
			"format/format.go":              "the table of formats",
		}, 40},
		{"correlation", map[string]string{
			"protocols.go":             "the table",
			"rules.go":                 "a case of a rule, whose word is part of the ids of findings",
			"corpus/corpus.go":         "reads the sessions of tests",
			"corpus/events.go":         "events of tests",
			"checks/protocols.go":      "the table of checks",
			"conformance/protocols.go": "the table of conformance",
		}, 60},
		{"evidence", map[string]string{
			"internal/protocol/protocol.go": "the table",
			"evidencetest/examplelog.go":    "events of tests",
			"evidencetest/fixture.go":       "events of tests",
		}, 60},
		{"gateway", map[string]string{
			"table.go":  "the table",
			"follow.go": "the filters of kinds, of which two are of one protocol",
		}, 5},
		{"internal/cli/correlate", map[string]string{
			"conformance_declared.go": "AgentHook's manifests",
			"conformance_print.go":    "AgentHook's manifests",
		}, 10},
		{"internal/service/follow", map[string]string{"outputs.go": "the table of kinds"}, 0},
		{"internal/service/gateway", map[string]string{
			"aaep.go":     "the subscriptions of one protocol",
			"aaep_sse.go": "the subscriptions of one protocol",
			"aaep_ws.go":  "the subscriptions of one protocol",
			"gateway.go":  "starts the bridge of these subscriptions",
			"serve.go":    "serves the endpoints of these subscriptions",
		}, 7},
		{"schemas", map[string]string{
			"protocols.go":       "the table",
			"judge/protocols.go": "the table of what judges messages",
		}, 8},
	} {
		t.Run(tc.root, func(t *testing.T) { genericCode(t, filepath.Join("../..", tc.root), tc.tables, tc.read) })
	}
}

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

// genericCode fails the test for each name of a protocol in the Go files below root, without
// tests and without the folders of protocols, that tables does not list. A file that names none, or is
// gone, must leave the list.
func genericCode(t *testing.T, root string, tables map[string]string, read int) {
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
