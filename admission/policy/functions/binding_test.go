package functions

import (
	"slices"
	"strings"
	"testing"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"

	"github.com/countersign-dev/countersign/admission/policy/functions/shell"
)

// evaluate runs an expression with all functions.
func evaluate(t *testing.T, expression string) any {
	t.Helper()
	env, err := cel.NewEnv(Option(), cel.Variable("dynamic", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	compiled, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", expression, issues.Err())
	}
	program, err := env.Program(compiled)
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := program.Eval(map[string]any{"dynamic": []any{"a", 1}})
	if err != nil {
		return err
	}
	return out.Value()
}

// Each function is reached by its name, with the types that it declares.
func TestFunctionsInConditions(t *testing.T) {
	for _, expression := range []string{
		`shell.parse("rm -rf x").commands[0].name == "rm" && shell.parse("ls").known`,
		`path.join("/a", "../b") == "/b"`,
		`path.within("/a/b", "/a") && !path.within("/a/../b", "/a")`,
		`path.touches("/A/b", "/a")`,
		`url.parse("https://u@h.example:8/p?q").host == "h.example"`,
		`host.matches("a.example.org", ["*.example.org"]) && !host.matches("a.example.org", [])`,
		`sql.statements("select a from t").statements[0].tables == ["t"]`,
		`diff.files("--- a/x\n+++ b/x\n").files.size() > 0`,
		`cli.view(["git", "push", "--force"]).command == "push"`,
	} {
		if got := evaluate(t, expression); got != true {
			t.Errorf("%s: %v", expression, got)
		}
	}
}

// An argument of another type than the declared one is an error, and an error denies.
func TestWrongArgumentsAreErrors(t *testing.T) {
	for _, expression := range []string{`cli.view(dynamic).known`, `shell.parse(dynamic).known`} {
		if err, is := evaluate(t, expression).(error); !is {
			t.Errorf("%s: no error", expression)
		} else if strings.HasPrefix(expression, "cli") && !strings.Contains(err.Error(), "cli.view") {
			t.Errorf("%s: the error does not name the function: %v", expression, err)
		}
	}
}

func TestCostsAreKnown(t *testing.T) {
	for _, f := range All() {
		name := f.Name
		if base, unit, known := Cost(name); !known || base == 0 || unit == 0 || !Is(name) {
			t.Errorf("%s costs %d and %d, known: %v", name, base, unit, known)
		}
	}
	if _, _, known := Cost("size"); known || Is("size") || Grows("path.join") || !Grows("shell.parse") {
		t.Error("another function is taken for one of these")
	}
}

func TestIsResultList(t *testing.T) {
	selected := ast.NewExprFactory().NewSelect(1, ast.NewExprFactory().NewIdent(2, "x"), "words")
	for name, c := range map[string]struct {
		t    *cel.Type
		e    ast.Expr
		want bool
	}{
		"no type": {nil, selected, false}, "no list": {cel.StringType, selected, false}, "numbers": {cel.ListType(cel.IntType), selected, false},
		"objects": {cel.ListType(cel.ObjectType("shell.Command")), nil, true}, "a member with texts": {cel.ListType(cel.StringType), selected, true},
		"texts that are no member": {cel.ListType(cel.StringType), nil, false},
	} {
		if got := IsResultList(c.t, c.e); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A result is charged for at least the bytes of the texts in it.
func TestSizes(t *testing.T) {
	long := strings.Repeat("x", 3000)
	for name, r := range map[string]Sized{
		"shell": shell.Parse("rm " + long), "sql": parseSQL("select a from " + long), "diff": parsePatch("--- a/" + long + "\n+++ b/" + long + "\n"),
		"url": ParseAddress("https://h.example/" + long), "cli": parseView([]string{"git", "add", long}),
	} {
		if r.Size() < 3000 || r.Size() > 100_000 {
			t.Errorf("%s: %d bytes", name, r.Size())
		}
	}
}

// What exceeds a bound, or that no reader can take for certain, is not known.
func TestBoundsOfFunctions(t *testing.T) {
	for name, known := range map[string]bool{
		"cli, no words": parseView(nil).Known, "cli, many words": parseView(slices.Repeat([]string{"git"}, 5000)).Known, "cli, unknown word": parseView([]string{"git", "push", Unknown}).Known,
		"cli, empty word": parseView([]string{"git", "", "push"}).Known, "cli, second word empty": parseView([]string{"aws", "s3", ""}).Known,
		"diff, NUL": parsePatch("--- a\n\x00").Known, "diff, too long": parsePatch(strings.Repeat("x", maxPatch+1)).Known,
		"sql, NUL": parseSQL("select \x00").Known, "sql, too long": parseSQL(strings.Repeat("x", maxSQL+1)).Known, "sql, many": parseSQL(strings.Repeat("select 1;", maxStatements+1)).Known,
		"sql, open quote": parseSQL("select 'a").Known, "sql, sign first": parseSQL("= 1").Known, "sql, closing bracket": parseSQL("select 1)").Known,
		"url, control": ParseAddress("https://h.example/\x7f").Known,
	} {
		if known {
			t.Errorf("%s is known", name)
		}
	}
	if joinPaths(strings.Repeat("a", maxPath), "b") != Unknown || Within(strings.Repeat("a/", maxPath), "a") {
		t.Error("a path that is too long is compared")
	}
	for _, p := range []string{Unknown, "/a/\xff", strings.Repeat("a", maxPath+1), "/x/..\\a/b", "/\u200ba/b"} {
		if !touches(p, "/a") {
			t.Errorf("%.20q cannot touch", p)
		}
	}
}

func TestStatementsOfOtherForms(t *testing.T) {
	for text, want := range map[string][]string{
		"create temporary table t (a int)": {"t"}, "update t set a = 1": {"t"}, "select a from t as x join u using (a)": {"t", "u"}, "select replace(a, 'b', 'c') from t": {"t"},
	} {
		got := parseSQL(text)
		if len(got.Statements) != 1 || !slices.Equal(got.Statements[0].Tables, want) {
			t.Errorf("%s: %+v", text, got)
		}
	}
}
