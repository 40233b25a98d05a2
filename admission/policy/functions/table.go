package functions

import (
	"reflect"
	"strings"

	"cel.dev/cel-go/cel"

	"github.com/countersign-dev/countersign/admission/policy/functions/shell"
	"github.com/countersign-dev/countersign/evidence/secret"
)

// Function is a function as policy authors see it. The reference page of the language is made from it.
type Function struct {
	Name    string
	Use     string // with the names of its arguments
	About   string // what the result says
	Example string // a condition that is true
	Result  string // its type: text, bool, or the Go type of an object
}

// call is one function.
type call struct {
	Function
	args   []*cel.Type
	result *cel.Type
	base   uint64 // steps of the budget for a call: about 100 ns each
	steps  uint64 // and for 16 bytes of the arguments
	run    func(args []any) any
}

func object(v any) *cel.Type {
	return cel.ObjectType(reflect.TypeOf(v).String())
}

var (
	text  = cel.StringType
	texts = cel.ListType(cel.StringType)
)

// calls are the functions.
var calls = []call{
	{
		Function{
			Name: "shell.parse", Use: "shell.parse(text)",
			About: "Reads Bash, and programs as those of GNU. Where zsh, or a program of macOS, reads a text in another way, what it tells may not be what runs: let agents run Bash. It opens `sh -c`, `eval`, `env`, `env -S`, `xargs`, `find -exec`, `sudo`, `timeout`, `nohup`, `exec` and their like, here-documents that a shell reads, and substitutions. " +
				"Forms, options and variables that its tables do not name make it not `known`: arithmetic over a variable that may hold a text, `[[` in a text for `sh`, an abbreviated option of `env`, " +
				"an unquoted variable before the program of `timeout`, `SOME_VARIABLE=x` before a program. Of a text that is `known`, programs may still do anything: allow programs by name.",
			Example: `shell.parse("env -S 'rm -rf' x").commands[1].name == "rm"`,
		},
		[]*cel.Type{text}, object(shell.Script{}), 1000, 256, func(a []any) any { return shell.Parse(a[0].(string)) },
	},
	{
		Function{
			Name: "path.join", Use: "path.join(dir, path)",
			About:   "The path seen from a directory, cleaned.",
			Example: `path.join("/workspace", "../etc") == "/etc"`,
		},
		[]*cel.Type{text, text}, text, 10, 2, func(a []any) any { return joinPaths(a[0].(string), a[1].(string)) },
	},
	{
		Function{
			Name: "path.within", Use: "path.within(path, root)",
			About: "For allowing: true if the path certainly names root or something below it. It looks at texts and follows no symbolic link. A relative path is seen from root. It knows no home directory: " +
				"`~/x` is within `~` and within nothing else. It is false for other Unicode forms than NFC, backslashes and invisible characters.",
			Example: `!path.within("/workspace/../etc", "/workspace")`,
		},
		[]*cel.Type{text, text}, cel.BoolType, 10, 2, func(a []any) any { return Within(a[0].(string), a[1].(string)) },
	},
	{
		Function{
			Name: "path.touches", Use: "path.touches(path, root)",
			About: "For denying: true if the path may name root or something below it. It ignores case, and is true for what is unknown, for a pattern that may match, and for a relative root. Join a relative path to a directory first. " +
				"`~` may be any directory: `~/.ssh` as root is touched by every path with a part `.ssh`, and a path with `~` touches every absolute root.",
			Example: `path.touches("/ETC/passwd", "/etc")`,
		},
		[]*cel.Type{text, text}, cel.BoolType, 10, 2, func(a []any) any { return touches(a[0].(string), a[1].(string)) },
	},
	{
		Function{Name: "url.parse", Use: "url.parse(text)", About: "The parts of a URL.", Example: `url.parse("https://a@b.example/").host == "b.example"`},
		[]*cel.Type{text}, object(Address{}), 10, 1, func(a []any) any { return ParseAddress(a[0].(string)) },
	},
	{
		Function{
			Name: HostMatches, Use: HostMatches + "(host, patterns)",
			About: "For allowing: true if the host is on the list, or below a `*.` entry. It is false for a host that two readers may take for different ones, as `0x7f.1`, and a pattern with a scheme, a port or " +
				"`*` elsewhere matches nothing.",
			Example: `host.matches("a.example.org", ["*.example.org"])`,
		},
		[]*cel.Type{text, texts}, cel.BoolType, 10, 1, func(a []any) any { return hostMatches(a[0].(string), a[1].([]string)) },
	},
	{
		Function{
			Name: "sql.statements", Use: "sql.statements(text)",
			About: "The statements of a text, in no dialect. Backslashes in texts, `$$`, `#`, nested and executable comments, a carriage return alone in a comment, a space beyond ASCII and a word joined to a number make it not `known`, and so does a kind of statement, a word, a function or a form " +
				"that its tables do not name: `create index`, `copy`, `select load_extension('x')`, `select 1 drop table t`.",
			Example: `sql.statements("select 1; drop table t").statements[1].kind == "drop"`,
		},
		[]*cel.Type{text}, object(SQL{}), 10, 128, func(a []any) any { return parseSQL(a[0].(string)) },
	},
	{
		Function{Name: "diff.files", Use: "diff.files(text)", About: "The files that a patch changes.", Example: `diff.files("*** Add File: a.go").files[0].path == "a.go"`},
		[]*cel.Type{text}, object(Patch{}), 10, 32, func(a []any) any { return parsePatch(a[0].(string)) },
	},
	{
		Function{
			Name: "cli.view", Use: "cli.view(words)",
			About: "The arguments of a program with subcommands: git, kubectl, aws, terraform, package managers and some more. Git's `-c`, and a subcommand that is no full name in its tables, such as an alias or an abbreviation, are not `known`; of aws, gcloud and az every " +
				"subcommand is. `command` has every word of a subcommand of aws, gcloud, az, terraform and tofu, the first two of docker's and gh's, and only the first of others: that of `helm repo remove x` is `repo`.",
			Example: `cli.view(["git", "-C", "x", "push", "-f"]).command == "push"`,
		},
		[]*cel.Type{texts}, object(View{}), 10, 32, func(a []any) any { return parseView(a[0].([]string)) },
	},
	{
		Function{
			Name: "secret.found", Use: "secret.found(value)",
			About: "True if a text, list or map holds a credential: by the detectors with which evidence is redacted, by its shape, also encoded, or by the name of its field. Personal data is no secret. " +
				"It finds none in an unknown part of a text, and none that is split or encrypted.",
			Example: `secret.found({"password": "hunter2"})`,
		},
		[]*cel.Type{cel.DynType}, cel.BoolType, 40, 8, func(a []any) any { return secret.Found(a[0]) },
	},
}

// All lists the functions.
func All() []Function {
	list := make([]Function, len(calls))
	for i, c := range calls {
		list[i] = c.Function
		list[i].Result = resultName(c.result)
	}
	return list
}

func resultName(t *cel.Type) string {
	switch t.Kind() {
	case cel.StringKind:
		return "text"
	case cel.BoolKind:
		return "bool"
	}
	name := t.TypeName() // of an object, with its package
	return name[strings.LastIndexByte(name, '.')+1:]
}
