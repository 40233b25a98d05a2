package evidence_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/internal/evidencetest"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/evidence/toyprotocol"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// genericFolders are the folders whose code names no protocol. The table is the package
// evidence/internal/protocol.
var genericFolders = []string{".", "build", "internal/canonical", "internal/names", "internal/redact", "internal/scope", "internal/view", "redaction", "retention", "tree", "verify"}

// TestGenericCodeNamesNoProtocol: no import, identifier or token in the generic code of
// evidence names a protocol. Generic code asks the row.
func TestGenericCodeNamesNoProtocol(t *testing.T) {
	name := regexp.MustCompile(`(?i:agent_?hook|aaep|aump|aioc|aana)|^Proto[A-Z]|^proto[A-Z]`)
	read := 0
	for _, folder := range genericFolders {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		evidencetest.Must(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			read++
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			evidencetest.Must(t, err)
			ast.Inspect(tree, func(n ast.Node) bool {
				what := ""
				switch x := n.(type) {
				case *ast.ImportSpec:
					what = x.Path.Value
				case *ast.Ident:
					what = x.Name
				case *ast.BasicLit:
					// "tool" and "handoff" are words of many documents, too.
					if text, err := strconv.Unquote(x.Value); err == nil && text != subject.ProtoTool && text != subject.ProtoHandoff && slices.Contains(subject.Protocols, text) {
						t.Errorf("%s names a protocol: %s; ask its row in evidence/internal/protocol", file, x.Value)
					}
				}
				if name.MatchString(what) {
					t.Errorf("%s names a protocol: %s; ask its row in evidence/internal/protocol", file, what)
				}
				return true
			})
		}
	}
	if read < 60 {
		t.Fatalf("only %d generic files were read", read)
	}
}

// TestToyProtocolInEvidence: one row is enough for records of a protocol to be built, redacted
// and verified, by the fast path as by the full one.
func TestToyProtocolInEvidence(t *testing.T) {
	const toySubject = "gov.events.acme.rt1.toy.s1.start"
	const clean, private = `{"id":"e1","toy":"start","words":"a short summary"}`, `{"id":"e2","toy":"start","words":"a short summary","diary":"swordfish","tool":"dig deep"}`
	headers := map[string][]string{"Toy-Id": {"t-1"}, "X-Note": {"herring"}}
	for _, tc := range []struct {
		name string
		row  bool
		set  retention.Class
		body string
		want []string
		not  []string
	}{
		{"clean", true, 0, clean, []string{clean}, nil},
		{"private", true, 0, private, []string{`"diary":"[redacted:never_store]"`, `"tool":"dig deep"`}, []string{"swordfish"}},
		{"no row", false, 0, private, []string{`"diary":"swordfish"`}, nil},
		{"summaries", true, retention.SummaryOnly, private, []string{`"id":"e2"`, "a short summary", `"Toy-Id":["t-1"]`}, []string{"swordfish", "dig deep", "herring"}},
		{"hashes", true, retention.Hashes, private, []string{`"id":"e2"`, `"toy":"start"`}, []string{"swordfish", "a short summary", "dig deep", "herring"}},
		{"no row keeps nothing", false, retention.Hashes, private, []string{"redacted:retention_hashes"}, []string{`"id":"e2"`, "t-1", "swordfish"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.row {
				toyprotocol.AddRow(t)
			}
			f := evidencetest.NewWithClass(t, tc.set)
			b := f.Log(toySubject, headers, []byte(tc.body))
			for _, want := range tc.want {
				if !strings.Contains(string(b.Canonical), want) {
					t.Errorf("%s is not in %s", want, b.Canonical)
				}
			}
			for _, not := range tc.not {
				if strings.Contains(string(b.Canonical), not) {
					t.Errorf("%s is in %s", not, b.Canonical)
				}
			}
			if rep := verify.Session(f.SessionInput("s1")); !rep.OK || rep.Records != 1 {
				t.Errorf("verified: %+v", rep)
			}
		})
	}
}
