package agenttool

import (
	"reflect"
	"strings"
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
		"a search elsewhere":        {"Grep", m{"pattern": "x", "root": "/etc"}, nil, Tool{Kind: "search"}},
		"a search of all":           {"grep_search", m{"pattern": "x", "no_ignore": true}, nil, Tool{Kind: "search"}},
		"a search of ignored files": {"grep_search", m{"pattern": "x", "respect_git_ignore": false}, nil, Tool{Kind: "search"}},
		"options of a search":       {"Grep", m{"pattern": "x", "-n": true, "output_mode": "content", "head_limit": 3, "no_ignore": false, "respect_git_ignore": true}, nil, Tool{Kind: "search", Known: true}},
		"a delayed command":         {"run_shell_command", m{"command": "ls", "is_background": true, "delay_ms": 5}, nil, Tool{Kind: "shell", Known: true, Command: "ls"}},
		"a command with more power": {"run_shell_command", m{"command": "ls", "additional_permissions": m{"network": true}}, nil, Tool{Kind: "shell", Command: "ls"}},
		"words of a text":           {"Bash", m{"command": []any{"ls", "; rm x"}}, nil, Tool{Kind: "shell", Command: "'ls' '; rm x'"}},
		"another file":              {"Write", m{"file_path": "a", "outputPath": "/etc/x"}, nil, Tool{Kind: "write", Paths: []string{"a"}}},
		"an edit of another file":   {"MultiEdit", m{"file_path": "a", "edits": []any{m{"file_path": "/etc/x"}}}, nil, Tool{Kind: "write", Paths: []string{"a"}}},
		"edits":                     {"MultiEdit", m{"file_path": "a", "edits": []any{m{"old_string": "x", "new_string": "y", "replace_all": true}}}, nil, Tool{Kind: "write", Known: true, Paths: []string{"a"}}},
		"edits of another form":     {"MultiEdit", m{"file_path": "a", "edits": "x"}, nil, Tool{Kind: "write", Paths: []string{"a"}}},
		"a patch elsewhere":         {"apply_patch", m{"input": "x", "workdir": "/"}, nil, Tool{Kind: "write", Patch: "x"}},
		"pages of a file":           {"Read", m{"file_path": "a", "offset": 1, "limit": 2, "pages": "1-2"}, nil, Tool{Kind: "read", Known: true, Paths: []string{"a"}}},
		"an option of a file":       {"Read", m{"file_path": "a", "whole": true, "depth": 1}, nil, Tool{Kind: "read", Known: true, Paths: []string{"a"}}},
		"an option of a search":     {"Grep", m{"pattern": "x", "hidden": true}, nil, Tool{Kind: "search"}},
		"files that Gemini ignores": {"grep_search", m{"pattern": "x", "respect_gemini_ignore": false}, nil, Tool{Kind: "search"}},
		"a proxy":                   {"WebFetch", m{"url": "https://a/", "proxy": "https://b"}, nil, Tool{Kind: "network", URLs: []string{"https://a/"}}},
		"a question about code":     {"lsp", m{"operation": "hover", "filePath": "/w/a.go"}, nil, Tool{Kind: "read", Known: true, Paths: []string{"/w/a.go"}}},
		"a batch of calls":          {"batch", m{"tool_calls": []any{m{"tool": "read", "parameters": m{"filePath": "a"}}}}, nil, Tool{Kind: "other", Known: true}},
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

// agentTools are the tools of the agents, by the names in their packages: Claude Code 2.1.330, Codex 0.169.0,
// Gemini CLI 0.61.0 and OpenCode 1.18.33 with those of its earlier versions; by their documents of Cursor,
// Copilot and Cline.
var agentTools = map[string]string{
	"Claude Code": "Agent AskUserQuestion Bash Brief CronCreate CronDelete CronList Edit EnterPlanMode EnterWorktree Eval ExitPlanMode ExitWorktree Glob Grep LSP ListMcpResourcesTool Monitor NotebookEdit PowerShell " +
		"PushNotification REPL Read ReadMcpResourceTool RemoteTrigger SendMessage SendUserFile SendUserMessage Skill StructuredOutput Task TaskCreate TaskGet TaskList TaskOutput TaskStop TaskUpdate TodoWrite ToolSearch " +
		"WebFetch WebSearch Workflow Write",
	"Codex": "exec exec_command write_stdin shell_command apply_patch update_plan view_image spawn_agent send_input send_message followup_task wait_agent close_agent resume_agent list_agents list_mcp_resources " +
		"read_mcp_resource request_user_input request_permissions tool_search web_search",
	"Gemini CLI": "activate_skill ask_user complete_task enter_plan_mode exit_plan_mode get_internal_docs glob google_web_search grep_search invoke_agent list_background_processes list_directory list_mcp_resources " +
		"read_background_output read_file read_many_files read_mcp_resource replace run_shell_command search_file_content take_snapshot tracker_add_dependency tracker_create_task tracker_get_task tracker_list_tasks " +
		"tracker_update_task tracker_visualize update_topic web_fetch write_file write_todos",
	"OpenCode": "apply_patch bash batch codesearch edit execute glob grep invalid list lsp multiedit patch plan_enter plan_exit question read skill task todoread todowrite webfetch websearch write",
	"Cursor":   "Delete Grep Read Shell Task Write MCP:any",
	"Copilot":  "apply_patch bash create edit glob grep list_bash powershell read_bash report_intent rg stop_bash task update_todo view web_fetch write_bash",
	"Cline":    "access_mcp_resource ask_followup_question attempt_completion browser_action editor execute_command list_code_definition_names list_files new_task plan_mode_respond read_file read_files replace_in_file run_commands search_codebase search_files use_mcp_tool write_to_file",
}

// The catalogue has decided about every tool of the agents.
func TestCatalogueIsComplete(t *testing.T) {
	for agent, names := range agentTools {
		for name := range strings.FieldsSeq(names) {
			if _, known := kinds[strings.ToLower(name)]; !known && KindOf(name) != MCP {
				t.Errorf("%s: %s is not in the catalogue", agent, name)
			}
		}
	}
}

// What runs other tools, code or input of a running program is of no kind that a policy permits for what it
// is.
func TestIndirectToolsAreOther(t *testing.T) {
	for name := range strings.FieldsSeq("batch execute exec REPL Eval Workflow Monitor skill Skill activate_skill write_stdin write_bash attempt_completion browser_action CronCreate RemoteTrigger request_permissions unknown_tool") {
		if got := KindOf(name); got != Other {
			t.Errorf("%s: %s", name, got)
		}
	}
}
