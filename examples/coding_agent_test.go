package examples_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/policy/table"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/examples"
)

// codingAgentTables are the tables of examples/policies/coding-agent, each with the fewest cases that it must
// have.
var codingAgentTables = map[string]int{"coding-agent-ordinary.yaml": 150, "coding-agent-evasions.yaml": 100, "coding-agent-agents.yaml": 50}

// TestCodingAgentPolicies decides every request of the tables, and measures how many ordinary commands
// are denied, and how many wait for a person.
func TestCodingAgentPolicies(t *testing.T) {
	docs, err := policy.LoadDir(os.DirFS("policies/coding-agent"))
	ok(t, err)
	set, err := policy.Compile(docs)
	ok(t, err)
	for _, f := range policy.Lint(docs) {
		t.Errorf("%s:%d %s: %s", f.Document, f.Line, f.Code, f.Message)
	}
	var all [][]table.Result
	for name, least := range codingAgentTables {
		text, err := fs.ReadFile(examples.FS, path.Join("tables", name))
		ok(t, err)
		cases, err := table.Parse(name, text)
		ok(t, err)
		results := table.Run(cases, table.Options{Policies: set})
		counts := map[events.Verdict]int{}
		for _, r := range results {
			counts[r.Verdict]++
			if !r.Passed {
				t.Errorf("%s:%d: %s: %s", name, r.Line, r.Name, strings.Join(r.Mismatches, "; "))
			}
		}
		if len(results) < least {
			t.Errorf("%s has %d cases, fewer than %d", name, len(results), least)
		}
		n := float64(len(results)) / 100
		t.Logf("%s: of %d requests %d are allowed, %d wait for a person (%.1f %%), %d are denied (%.1f %%)", name, len(results),
			counts[events.Allow], counts[events.Ask], float64(counts[events.Ask])/n, counts[events.Deny], float64(counts[events.Deny])/n)
		if name == "coding-agent-ordinary.yaml" && counts[events.Deny] > 0 {
			t.Errorf("%d of %d ordinary commands are denied", counts[events.Deny], len(results))
		}
		if name == "coding-agent-evasions.yaml" && counts[events.Allow] > 0 {
			t.Errorf("%d evasions are allowed", counts[events.Allow])
		}
		all = append(all, results)
	}
	rules, err := policy.Rules(docs)
	ok(t, err)
	var ids []string
	for _, r := range rules {
		ids = append(ids, r.ID())
	}
	if left := table.Uncovered(ids, all...); len(left) > 0 {
		t.Errorf("no case matches %v", left)
	}
}

// A tool that the catalogue does not know, or of which it does not say what it does, is no tool that the pack
// lets run, whatever its arguments are.
func TestCodingAgentUnknownTools(t *testing.T) {
	docs, err := policy.LoadDir(os.DirFS("policies/coding-agent"))
	ok(t, err)
	set, err := policy.Compile(docs)
	ok(t, err)
	for _, tool := range []string{"batch", "execute", "exec", "REPL", "Monitor", "Workflow", "skill", "write_stdin", "mcp__kit__read", "kit__read", "no_such_tool", "Read2", "bash.", "ba\u200bsh", "\u0432ash"} {
		for _, args := range []map[string]any{{}, {"command": "ls"}, {"file_path": "/workspace/shop/a.go", "content": "x"}, {"url": "https://github.com/"}, {"tool_calls": []any{map[string]any{"tool": "read"}}}} {
			in := policy.Input{Tenant: "acme", Source: "rt1", Protocol: "agenthook", EventType: "PreToolUse", Tool: tool, Args: args, Event: map[string]any{"metadata": map[string]any{"agent_cwd": "/workspace/shop"}}}
			if v := set.Evaluate(in); v.Verdict != events.Ask && v.Verdict != events.Deny {
				t.Errorf("%s %v: %s %v", tool, args, v.Verdict, v.Reasons)
			}
		}
	}
}

// A person who is asked sees the command, the file or the address, and not what is written.
func TestCodingAgentShowsWhatAPersonApproves(t *testing.T) {
	docs, err := policy.LoadDir(os.DirFS("policies/coding-agent"))
	ok(t, err)
	set, err := policy.Compile(docs)
	ok(t, err)
	for tool, args := range map[string]map[string]any{
		"Bash": {"command": "SHOWN"}, "exec_command": {"cmd": "SHOWN"}, "run_commands": {"commands": []any{"SHOWN"}}, "PowerShell": {"command": "SHOWN"},
		"Write": {"file_path": "/srv/SHOWN", "content": "kept"}, "write_to_file": {"path": "/srv/SHOWN", "content": "kept"}, "edit": {"filePath": "/srv/SHOWN", "newString": "kept", "oldString": "old"},
		"Grep": {"path": "/srv", "pattern": "SHOWN"}, "WebSearch": {"query": "SHOWN"}, "mcp__shell__run": {"command": "SHOWN", "body": "kept"},
		"use_mcp_tool": {"server_name": "kit", "tool_name": "SHOWN", "arguments": "kept"},
	} {
		in := policy.Input{Tenant: "acme", Source: "rt1", Protocol: "agenthook", EventType: "PreToolUse", Tool: tool, Args: args, Event: map[string]any{"metadata": map[string]any{"agent_cwd": "/workspace/shop"}}}
		v := set.Evaluate(in)
		seen := fmt.Sprint(approval.Preview{}.Describe(nil, args, v.Approval.Show))
		if v.Verdict != events.Ask || !strings.Contains(seen, "SHOWN") || strings.Contains(seen, "kept") {
			t.Errorf("%s: %s, a person sees %s", tool, v.Verdict, seen)
		}
	}
}

// A command that is too large to be read is denied, and so is one whose last word destroys. One of many words
// that only looks is allowed.
func TestCodingAgentLargeCommands(t *testing.T) {
	docs, err := policy.LoadDir(os.DirFS("policies/coding-agent"))
	ok(t, err)
	set, err := policy.Compile(docs)
	ok(t, err)
	var files strings.Builder
	files.WriteString("ls")
	for i := range 600 {
		fmt.Fprintf(&files, " src/f%d.go", i)
	}
	for name, command := range map[string]string{
		"a megabyte": strings.Repeat("ls -la a;", 1<<20/9), "pipes": strings.Repeat("cat|", 10_000) + "cat", "substitutions": strings.Repeat("$(", 1000) + "ls" + strings.Repeat(")", 1000),
		"many files": files.String(), // only long
		"commands":   strings.Repeat("ls;", 500) + "rm -rf /", "words": "ls " + strings.Repeat("a ", 4000) + "; rm -rf /", "words of rm": "rm -rf " + strings.Repeat("a ", 4000) + "/",
	} {
		in := policy.Input{Tenant: "acme", Source: "rt1", Protocol: "agenthook", EventType: "PreToolUse", Tool: "Bash", Args: map[string]any{"command": command}, Event: map[string]any{"metadata": map[string]any{"agent_cwd": "/workspace/shop"}}}
		want := events.Deny
		if name == "many files" {
			want = events.Allow
		}
		if v := set.Evaluate(in); v.Verdict != want {
			t.Errorf("%s: %s %v", name, v.Verdict, v.Reasons)
		}
	}
}
