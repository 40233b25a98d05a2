package agenttool

import (
	"reflect"
	"testing"
)

func TestDescribe(t *testing.T) {
	type m = map[string]any
	mcp := m{"metadata": m{"tool_identity": m{"source": "mcp_tools_call"}, "agent_cwd": "/w"}}
	for name, c := range map[string]struct {
		tool        string
		args, event m
		want        Tool
	}{
		"a command":                 {"Bash", m{"command": "ls"}, nil, Tool{Kind: "shell", Known: true, Command: "ls"}},
		"words":                     {"shell", m{"command": []any{"bash", "-lc", "it's"}}, nil, Tool{Kind: "shell", Known: true, Command: `'bash' '-lc' 'it'\''s'`}},
		"one command of a list":     {"run_commands", m{"commands": []any{"it's"}}, nil, Tool{Kind: "shell", Known: true, Command: "it's"}},
		"several commands":          {"run_commands", m{"commands": []any{"echo '", "rm x"}}, nil, Tool{Kind: "shell", Known: true, Command: `eval -- 'echo '\'''` + "\neval -- 'rm x'"}},
		"another shell":             {"exec_command", m{"cmd": "ls", "shell": "./evil"}, nil, Tool{Kind: "shell", Command: "ls"}},
		"Bash as the shell":         {"exec_command", m{"cmd": "ls", "shell": "/bin/bash", "yield_time_ms": 1, "description": "x"}, nil, Tool{Kind: "shell", Known: true, Command: "ls"}},
		"an environment":            {"exec_command", m{"cmd": "ls", "env": m{"PATH": "/x"}}, nil, Tool{Kind: "shell", Command: "ls"}},
		"two patches":               {"apply_patch", m{"patch": "a", "input": "b"}, nil, Tool{Kind: "write", Patch: "a\nb"}},
		"a patch of another type":   {"apply_patch", m{"patch": "a", "input": m{}}, nil, Tool{Kind: "write", Patch: "a"}},
		"words with a patch":        {"apply_patch", m{"command": []any{"apply_patch", "a"}}, nil, Tool{Kind: "write", Known: true, Patch: "a"}},
		"words with two patches":    {"apply_patch", m{"command": []any{"apply_patch", "a", "b"}}, nil, Tool{Kind: "write", Patch: "apply_patch\na\nb"}},
		"a pattern of paths":        {"Glob", m{"pattern": "/root/**", "path": "src"}, nil, Tool{Kind: "search", Known: true, Paths: []string{"src", "/root/**"}}},
		"a pattern of text":         {"Grep", m{"pattern": "/root/**", "glob": "*.go"}, nil, Tool{Kind: "search", Known: true, Paths: []string{"*.go"}}},
		"alternatives":              {"Glob", m{"pattern": "src/*.{ts,tsx}"}, nil, Tool{Kind: "search", Known: true, Paths: []string{"src/*.{ts,tsx}"}}},
		"alternatives elsewhere":    {"Glob", m{"pattern": "{a,/root}/*"}, nil, Tool{Kind: "search", Paths: []string{"{a,/root}/*"}}},
		"files to include":          {"read_many_files", m{"paths": []any{"a"}, "include": []any{".env"}}, nil, Tool{Kind: "read", Known: true, Paths: []string{"a", ".env"}}},
		"a directory":               {"exec_command", m{"cmd": "ls", "workdir": "/etc"}, nil, Tool{Kind: "shell", Known: true, Command: "cd -- '/etc' && {\nls\n}"}},
		"two commands":              {"Bash", m{"command": "ls", "cmd": "rm"}, nil, Tool{Kind: "shell", Command: "rm"}},
		"no command":                {"Bash", m{}, nil, Tool{Kind: "shell"}},
		"a command of another type": {"Bash", m{"command": 1}, nil, Tool{Kind: "shell"}},
		"a file":                    {"Write", m{"file_path": "/a"}, nil, Tool{Kind: "write", Known: true, Paths: []string{"/a"}}},
		"two paths":                 {"read_file", m{"path": "a", "file_path": "b"}, nil, Tool{Kind: "read", Known: true, Paths: []string{"b", "a"}}},
		"a path of another type":    {"Read", m{"path": 1}, nil, Tool{Kind: "read"}},
		"several files":             {"read_files", m{"files": []any{m{"path": "a"}, "b"}}, nil, Tool{Kind: "read", Known: true, Paths: []string{"a", "b"}}},
		"a patch":                   {"apply_patch", m{"input": "*** Begin Patch"}, nil, Tool{Kind: "write", Known: true, Patch: "*** Begin Patch"}},
		"an address":                {"WebFetch", m{"url": "https://a/", "prompt": "see http://b."}, nil, Tool{Kind: "network", Known: true, URLs: []string{"https://a/", "http://b"}}},
		"a server's tool":           {"mcp__kit__read", m{"path": "a"}, nil, Tool{Kind: "mcp", Known: true}},
		"a server's Read":           {"Read", m{"path": "a"}, mcp, Tool{Kind: "mcp", Known: true, Dir: "/w"}},
		"another":                   {"send_mail", nil, nil, Tool{Kind: "other", Known: true}},
	} {
		got := Describe(c.tool, c.args, c.event)
		if len(got.Paths) == 0 {
			got.Paths = nil
		}
		if len(got.URLs) == 0 {
			got.URLs = nil
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got  %+v\nwant %+v", name, got, c.want)
		}
	}
}
