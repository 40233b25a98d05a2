package deploy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

// The programs' flags live in packages that only cmd may import, so they are
// read out of the source and given to the same flag library.

// flagTypes gives the structs of a package by their names.
type flagTypes map[string]*ast.StructType

// packages are the packages with structs of flags, by the name that they are used under.
var flagPackages = map[string]string{
	"main": "internal/cli", "daemon": "internal/service/daemon", "target": "internal/cli/target",
	"admin": "internal/cli/admin", "correlate": "internal/cli/correlate", "policycmd": "internal/cli/policycmd", "mandatecmd": "internal/cli/mandatecmd", "publishercmd": "internal/cli/publishercmd", "approvalscmd": "internal/cli/approvalscmd", "export": "internal/cli/export",
	"hookcmd": "internal/cli/hookcmd", "mcpcmd": "internal/cli/mcpcmd", "mcptools": "internal/cli/mcptools", "inspect": "internal/cli/inspect", "proof": "internal/cli/proof", "run": "internal/cli/run", "system": "internal/cli/system",
	"verify": "internal/cli/verify", "bench": "internal/bench",
	"admit": "internal/bench/admit", "calls": "internal/bench/calls", "correlatebench": "internal/bench/correlate", "audit": "internal/bench/audit", "gates": "internal/bench/gates", "measure": "internal/bench/measure",
	"admitter": "internal/service/admitter", "correlator": "internal/service/correlator", "auditor": "internal/service/auditor", "gateway": "internal/service/gateway",
}

// parsedStructs are read once: a page has many command lines.
var parsedStructs map[string]flagTypes

func loadStructs(t testing.TB) map[string]flagTypes {
	t.Helper()
	if parsedStructs != nil {
		return parsedStructs
	}
	all := map[string]flagTypes{}
	for name, dir := range flagPackages {
		all[name] = flagTypes{}
		for _, f := range files(t, dir, ".go") {
			parsed, err := parser.ParseFile(token.NewFileSet(), path(f), nil, parser.SkipObjectResolution)
			ok(t, err)
			ast.Inspect(parsed, func(n ast.Node) bool {
				if spec, is := n.(*ast.TypeSpec); is {
					if s, is := spec.Type.(*ast.StructType); is {
						all[name][spec.Name.Name] = s
					}
				}
				return true
			})
		}
	}
	parsedStructs = all
	return all
}

// structOf builds a struct that looks to kong like the one in the source.
func structOf(t testing.TB, all map[string]flagTypes, pkg, name string) reflect.Type {
	t.Helper()
	return reflect.StructOf(fieldsOf(t, all, pkg, name))
}

func fieldsOf(t testing.TB, all map[string]flagTypes, pkg, name string) []reflect.StructField {
	t.Helper()
	s, known := all[pkg][name]
	if !known {
		t.Fatalf("no struct %s in %s", name, flagPackages[pkg])
	}
	var fields []reflect.StructField
	for _, f := range s.Fields.List {
		if len(f.Names) == 0 { // embedded: kong flattens it, and so does this
			p, n := typeName(f.Type, pkg)
			fields = append(fields, fieldsOf(t, all, p, n)...)
			continue
		}
		for _, n := range f.Names {
			if !n.IsExported() {
				continue
			}
			tag := ""
			if f.Tag != nil {
				tag, _ = strconv.Unquote(f.Tag.Value)
			}
			fields = append(fields, reflect.StructField{Name: n.Name, Type: fieldType(t, all, f.Type, pkg), Tag: reflect.StructTag(tag)})
		}
	}
	return fields
}

func typeName(e ast.Expr, pkg string) (string, string) {
	switch e := e.(type) {
	case *ast.Ident:
		return pkg, e.Name
	case *ast.SelectorExpr:
		return e.X.(*ast.Ident).Name, e.Sel.Name
	}
	return pkg, ""
}

var plainTypes = map[string]reflect.Type{
	"string": reflect.TypeFor[string](), "int": reflect.TypeFor[int](), "int64": reflect.TypeFor[int64](), "uint64": reflect.TypeFor[uint64](),
	"float64": reflect.TypeFor[float64](), "bool": reflect.TypeFor[bool](), "VersionFlag": reflect.TypeFor[bool](),
	"Duration": reflect.TypeFor[time.Duration](),
}

func fieldType(t testing.TB, all map[string]flagTypes, e ast.Expr, pkg string) reflect.Type {
	t.Helper()
	if list, is := e.(*ast.ArrayType); is {
		return reflect.SliceOf(fieldType(t, all, list.Elt, pkg))
	}
	if pointer, is := e.(*ast.StarExpr); is {
		return reflect.PointerTo(fieldType(t, all, pointer.X, pkg))
	}
	p, n := typeName(e, pkg)
	if plain, is := plainTypes[n]; is {
		return plain
	}
	return structOf(t, all, p, n)
}

// programs by the name of their binary.
var programs = map[string][2]string{
	"countersign": {"main", "commands"}, "countersign-bench": {"bench", "Commands"}, "admitter": {"admitter", "Flags"}, "correlator": {"correlator", "Flags"}, "auditor": {"auditor", "Flags"}, "gateway": {"gateway", "Flags"},
}

// programTypes are the flag structs of the programs, as they were read.
var programTypes = map[string]reflect.Type{}

// parserOf makes the flag parser of a program.
func parserOf(t testing.TB, program string) *kong.Kong {
	t.Helper()
	where, known := programs[program]
	if !known {
		t.Fatalf("there is no program %q", program)
	}
	typ, known := programTypes[program]
	if !known {
		typ = structOf(t, loadStructs(t), where[0], where[1])
		programTypes[program] = typ
	}
	k, err := kong.New(reflect.New(typ).Interface(), kong.Name(program), kong.Exit(func(int) {}))
	ok(t, err)
	return k
}

// programEnvs are the variables of the programs, as they were read.
var programEnvs = map[string]map[string]bool{}

// envOf lists the environment variables that a program's flags read. The caller
// must not change the map.
func envOf(t testing.TB, program string) map[string]bool {
	t.Helper()
	if env, known := programEnvs[program]; known {
		return env
	}
	env := map[string]bool{}
	programEnvs[program] = env
	var walk func(n *kong.Node)
	walk = func(n *kong.Node) {
		for _, f := range n.Flags {
			for _, e := range f.Envs {
				env[e] = true
			}
		}
		for _, c := range n.Children {
			walk(c)
		}
	}
	walk(parserOf(t, program).Model.Node)
	return env
}

// accepts reports whether a program takes a command line, with env set and no
// other variable that it knows.
func accepts(t *testing.T, program string, env map[string]string, args []string) error {
	t.Helper()
	for name := range envOf(t, program) {
		if old, set := os.LookupEnv(name); set {
			t.Cleanup(func() { _ = os.Setenv(name, old) })
			_ = os.Unsetenv(name)
		}
	}
	for k, v := range env {
		t.Setenv(k, v)
	}
	if slices.Contains(args, "--help") { // answered before the rest is looked at
		args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--help" })
		if len(args) == 0 {
			return nil
		}
		c, err := kong.Trace(parserOf(t, program), args)
		if err == nil {
			err = c.Error
		}
		return err
	}
	_, err := parserOf(t, program).Parse(args)
	return err
}

// TestFlagsAreRead makes sure that this reading of the source sees what is there.
func TestFlagsAreRead(t *testing.T) {
	for program, want := range map[string][]string{
		"admitter":    {"COUNTERSIGN_NATS_URL", "COUNTERSIGN_KEYS", "COUNTERSIGN_MAX_INFLIGHT", "COUNTERSIGN_HTTP"},
		"correlator":  {"COUNTERSIGN_NATS_PASSWORD", "COUNTERSIGN_MISSING_AFTER"},
		"auditor":     {"COUNTERSIGN_CLICKHOUSE", "COUNTERSIGN_AUDIT_BATCH"},
		"countersign": {"COUNTERSIGN_READY_FILE", "NATS_URL", "COUNTERSIGN_DATA"},
	} {
		env := envOf(t, program)
		for _, name := range want {
			if !env[name] {
				t.Errorf("%s: %s is not among %q", program, name, slices.Sorted(maps.Keys(env)))
			}
		}
	}
	for _, c := range []struct {
		program string
		args    string
		ok      bool
	}{
		{"admitter", "--max-inflight 5 --inbox-prefix x --http 127.0.0.1:0", true},
		{"admitter", "--no-such-flag", false},
		{"correlator", "--no-verdict-ok", true},
		{"auditor", "--batch 5", false}, // needs --clickhouse
		{"auditor", "--clickhouse x --batch 5", true},
		{"countersign", "admit --protocol aaep -", true},
		{"countersign", "admit -", false},
		{"countersign", "policy lint DIR", true},
		{"countersign", "policy", false},
		{"countersign", "up --nats-port 4222 --http 127.0.0.1:1", true},
		{"countersign", "dance", false},
	} {
		if err := accepts(t, c.program, nil, strings.Fields(c.args)); (err == nil) != c.ok {
			t.Errorf("%s %s: %v", c.program, c.args, err)
		}
	}
}

var envName = regexp.MustCompile(`\b(?:COUNTERSIGN|NATS)_[A-Z0-9_]+\b`)
