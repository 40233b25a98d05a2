// Package agenttool is the catalogue of the tools of coding agents: what a tool does, and in which
// arguments it says with what. Agents name their tools differently; with the catalogue one policy
// speaks for all of them. Begin reading with Describe.
package agenttool

import (
	"encoding/json"
	"slices"
	"strings"
)

// Kind says what a tool does.
type Kind string

// The kinds.
const (
	Read       Kind = "read"
	Search     Kind = "search"
	Write      Kind = "write"      // creates, changes or deletes files
	Shell      Kind = "shell"      // runs a text in a shell of the Bourne family
	PowerShell Kind = "powershell" // runs a text in another shell
	Network    Kind = "network"    // fetches, or searches the web
	Agent      Kind = "agent"      // starts a sub-agent
	Plan       Kind = "plan"       // the agent's own notes and questions: nothing outside it changes
	MCP        Kind = "mcp"        // of an MCP server: it may do anything, whatever its name
	Other      Kind = "other"      // not in the catalogue
)

// kinds are the tools of the agents, by name in lower case. A test holds it against the names in the agents'
// packages.
var kinds = map[string]Kind{
	"bash": Shell, "shell": Shell, "shell_command": Shell, "run_shell_command": Shell, "exec_command": Shell, "run_commands": Shell, "execute_command": Shell, "local_shell": Shell, "powershell": PowerShell,
	"read": Read, "read_file": Read, "read_many_files": Read, "read_files": Read, "view": Read, "notebookread": Read, "view_image": Read, "lsp": Read,
	"grep": Search, "grep_search": Search, "glob": Search, "ls": Search, "list_directory": Search, "search_file_content": Search, "list_files": Search, "search_files": Search, "search_codebase": Search, "list": Search,
	"rg": Search, "list_code_definition_names": Search,
	"write": Write, "edit": Write, "multiedit": Write, "notebookedit": Write, "apply_patch": Write, "write_file": Write, "replace": Write, "editor": Write,
	"create": Write, "delete": Write, "write_to_file": Write, "replace_in_file": Write, "patch": Write,
	"webfetch": Network, "websearch": Network, "web_fetch": Network, "google_web_search": Network, "codesearch": Network, "web_search": Network,
	"agent": Agent, "task": Agent, "spawn_agent": Agent, "delegate_to_agent": Agent, "invoke_agent": Agent, "sendmessage": Agent, "send_input": Agent, "followup_task": Agent,
	"wait_agent": Agent, "close_agent": Agent, "resume_agent": Agent, "list_agents": Agent,
	"todowrite": Plan, "todoread": Plan, "update_plan": Plan, "write_todos": Plan, "exitplanmode": Plan, "report_intent": Plan, "update_todo": Plan, "enterplanmode": Plan, "plan_enter": Plan, "plan_exit": Plan,
	"enter_plan_mode": Plan, "exit_plan_mode": Plan, "question": Plan, "askuserquestion": Plan, "ask_user": Plan, "request_user_input": Plan, "ask_followup_question": Plan, "plan_mode_respond": Plan, "invalid": Plan,
	"taskcreate": Plan, "taskget": Plan, "tasklist": Plan, "taskupdate": Plan, "structuredoutput": Plan, "toolsearch": Plan, "tool_search": Plan, "get_internal_docs": Plan, "update_topic": Plan, "complete_task": Plan,
	"tracker_create_task": Plan, "tracker_update_task": Plan, "tracker_get_task": Plan, "tracker_list_tasks": Plan, "tracker_add_dependency": Plan, "tracker_visualize": Plan,
	"taskstop": Plan, "taskoutput": Plan, "bashoutput": Plan, "killshell": Plan, "list_background_processes": Plan, "read_background_output": Plan, "read_bash": Plan, "stop_bash": Plan, "list_bash": Plan,
	"listmcpresourcestool": MCP, "readmcpresourcetool": MCP, "list_mcp_resources": MCP, "read_mcp_resource": MCP, "use_mcp_tool": MCP, "access_mcp_resource": MCP,

	// A person has to look at these. They run other tools, code, or text that is not in their arguments, later or
	// elsewhere.
	"batch": Other, "execute": Other, "exec": Other, "repl": Other, "eval": Other, "workflow": Other, "monitor": Other, "skill": Other, "activate_skill": Other, "write_stdin": Other, "write_bash": Other,
	"attempt_completion": Other, "browser_action": Other, "croncreate": Other, "crondelete": Other, "cronlist": Other, "remotetrigger": Other, "enterworktree": Other, "exitworktree": Other, "send_message": Other, "new_task": Other,
	"senduserfile": Other, "sendusermessage": Other, "pushnotification": Other, "brief": Other, "take_snapshot": Other, "request_permissions": Other,
}

// KindOf is the kind of a tool by its name alone.
func KindOf(name string) Kind {
	lower := strings.ToLower(name)
	if strings.HasPrefix(lower, "mcp_") || strings.HasPrefix(lower, "mcp:") {
		return MCP
	}
	if k, known := kinds[lower]; known {
		return k
	}
	return Other
}

// Arguments that hold a path, a shell text, an address, or a patch.
var (
	pathArguments    = []string{"file_path", "absolute_path", "path", "filePath", "target_file", "notebook_path", "dir_path"}
	listArguments    = []string{"paths", "file_paths", "files"}
	commandArguments = []string{"command", "cmd", "commands", "script"}
	urlArguments     = []string{"url", "urls", "prompt"}
	patchArguments   = []string{"patch", "input", "patchText", "diff", "command"}
	dirArguments     = []string{"workdir", "cwd", "directory", "dir_path"}
	shellArguments   = []string{"shell", "executable"}
	// patternArguments hold a pattern of paths, and globTools are the tools of which the pattern is one, too.
	patternArguments = []string{"include", "include_pattern", "file_pattern", "glob", "globs"}
	globTools        = []string{"glob", "search_files", "list_files", "list"}
	// searchArguments are the arguments of searches that do not change where they look; likewise of the others.
	searchArguments = strings.Fields("pattern query regex description output_mode -A -B -C -i -n -o after before context multiline head_limit offset limit type case_sensitive fixed_strings names_only exclude_pattern " +
		"exclude ignore max_matches_per_file total_max_matches max_results respect_git_ignore respect_gemini_ignore recursive depth task_progress")
	readArguments = strings.Fields("offset limit pages start_line end_line line_start line_end view_range encoding detail operation line character query description explanation exclude recursive respect_git_ignore " +
		"respect_gemini_ignore task_progress")
	writeArguments = strings.Fields("content contents file_text new_string old_string new_str old_str newString oldString new_text old_text text replace_all replaceAll edits new_source cell_id cell_type edit_mode " +
		"instruction instructions explanation code_edit task_progress allow_multiple expected_replacements insert_line insert_text line view_range command description overwrite diff patch input patchText")
	networkArguments = strings.Fields("url urls prompt query format timeout max_length max_chars start_index raw description num_results numResults type livecrawl contextMaxCharacters tokensNum allowed_domains blocked_domains")
)

// otherArguments are the arguments of each kind that name nothing which the call reaches.
var otherArguments = map[Kind][]string{Search: searchArguments, Read: readArguments, Write: writeArguments, Network: networkArguments}

// ResourceArguments are the arguments that name what a call of a kind is about. The first that is given
// counts.
var ResourceArguments = map[Kind][]string{
	Read: pathArguments, Write: pathArguments, Search: append(slices.Clone(pathArguments), "pattern"), Network: {"url", "query", "prompt"}, Agent: {"subagent_type", "agent_type", "agent_name"},
}

// plainArguments are the arguments of shells that change nothing about what runs: descriptions, times and
// the agent's own questions.
var plainArguments = strings.Fields("description explanation justification reason summary timeout timeout_ms timeoutMs timeout_seconds max_output_tokens max_output_length yield_time_ms run_in_background is_background " +
	"background isBackground blocking wait delay_ms requires_approval with_escalated_permissions sandbox_permissions prefix_rule dangerouslyDisableSandbox login tty session_id sessionId id initial_wait initialWait mode async detach")

// shells are the programs that read a text as the policies do.
var shells = []string{"bash", "/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/opt/homebrew/bin/bash"}

// Tool is what a call of an agent's tool does. Texts and lists are empty where the arguments do not
// say.
type Tool struct {
	Kind string `cel:"kind"` // read, search, write, shell, powershell, network, agent, plan, mcp or other
	// The arguments have the expected form, and none names a shell, an environment or an input: command, paths,
	// urls and patch are all that the call is about.
	Known   bool     `cel:"known"`
	Command string   `cel:"command"` // of a shell; several are one eval a line
	Paths   []string `cel:"paths"`   // of read, search and write, without those of patch; patterns of paths as well
	URLs    []string `cel:"urls"`    // of network
	Patch   string   `cel:"patch"`   // of write: a patch that names its files itself; several are joined by line ends
	Dir     string   `cel:"dir"`     // the directory in which the agent works, as the gate reports it; empty if it does not
}

// Size is about how many bytes the tool holds.
func (t Tool) Size() int64 {
	n := int64(len(t.Command)+len(t.Patch)+len(t.Dir)) + 128
	for _, list := range [][]string{t.Paths, t.URLs} {
		for _, s := range list {
			n += int64(len(s)) + 16
		}
	}
	return n
}

// Describe tells what a call does. event is the AgentHook event that proposes it; it may be nil.
func Describe(name string, args, event map[string]any) Tool {
	kind := KindOf(name)
	metadata, _ := event["metadata"].(map[string]any)
	for _, claim := range [][2]string{{"tool_identity", "source"}, {"provider_translation", "provider_surface"}} {
		block, _ := metadata[claim[0]].(map[string]any)
		if block[claim[1]] == "mcp_tools_call" {
			kind = MCP // a server's tool with the name of the agent's own
		}
	}
	t := Tool{Kind: string(kind), Known: true, Paths: []string{}, URLs: []string{}, Dir: DirOf(event)}
	switch kind {
	case Shell, PowerShell:
		t.Command = t.commandIn(name, args)
	case Read, Search, Write:
		t.pathsIn(args)
		if kind != Write {
			t.patternsIn(name, args)
		}
		if kind == Write {
			t.Patch = t.patchIn(name, args)
		}
		t.Known = t.Known && (kind == Search || len(t.Paths) > 0 || t.Patch != "")
	case Network:
		t.URLs = t.urlsIn(args)
	}
	if others := otherArguments[kind]; others != nil {
		t.checkArguments(others, args)
	}
	return t
}

// DirOf is Tool.Dir of an event.
func DirOf(event map[string]any) string {
	metadata, _ := event["metadata"].(map[string]any)
	dir, _ := metadata["agent_cwd"].(string)
	return dir
}

// listShells are the tools that run a list of words as they are. Another tool may join them to one text.
var listShells = []string{"shell", "local_shell"}

// commandIn is the shell text of a call. Of a list of words like bash -lc TEXT it is the words, quoted.
func (t *Tool) commandIn(tool string, args map[string]any) string {
	found := ""
	for _, name := range commandArguments {
		v, given := args[name]
		if !given {
			continue
		}
		if found != "" {
			t.Known = false // which of two runs is not known
		}
		switch v := v.(type) {
		case string:
			found = v
		case []any:
			list := t.textsOf(v)
			t.Known = t.Known && (name == "commands" || slices.Contains(listShells, strings.ToLower(tool)))
			for i := range list {
				if name != "commands" {
					list[i] = quoteWord(list[i])
				} else if len(v) > 1 {
					list[i] = "eval -- " + quoteWord(list[i]) // a quote that is open in one does not reach the next
				}
			}
			found = strings.Join(list, map[bool]string{true: "\n", false: " "}[name == "commands"])
		default:
			t.Known = false
		}
	}
	t.checkShell(args)
	for _, dir := range dirArguments {
		if d, ok := args[dir].(string); ok && d != "" {
			found = "cd -- " + quoteWord(d) + " && {\n" + found + "\n}"
		}
	}
	t.Known = t.Known && found != ""
	return found
}

// checkShell makes a call unknown that has an argument which may change what runs: another shell, an
// environment, an input.
func (t *Tool) checkShell(args map[string]any) {
	for name, v := range args {
		s, _ := v.(string)
		switch {
		case slices.Contains(commandArguments, name), slices.Contains(dirArguments, name), slices.Contains(plainArguments, name):
		case slices.Contains(shellArguments, name) && slices.Contains(shells, s):
		case v == nil, v == "":
		default:
			t.Known = false
		}
	}
}

// checkArguments makes a call unknown that has an argument which may change what it reaches: a search without
// a path looks in the workspace.
func (t *Tool) checkArguments(others []string, args map[string]any) {
	for name, v := range args {
		understood := slices.Contains(others, name) || slices.Contains(pathArguments, name) || slices.Contains(listArguments, name) || t.Kind != string(Write) && slices.Contains(patternArguments, name)
		switch {
		case name == "respect_git_ignore", name == "respect_gemini_ignore":
			t.Known = t.Known && v == true
		case name == "edits":
			t.checkEdits(others, v)
		case !understood:
			t.Known = t.Known && (v == nil || v == "" || v == false || t.Kind != string(Search) && namesNothing(v))
		}
	}
}

// namesNothing reports whether a value is one that can name no file and no server.
func namesNothing(v any) bool {
	switch v.(type) {
	case bool, json.Number, float64, int:
		return true
	}
	return false
}

// checkEdits checks the members of each edit of a file: one of another file is not known.
func (t *Tool) checkEdits(others []string, v any) {
	list, ok := v.([]any)
	t.Known = t.Known && ok
	for _, e := range list {
		edit, ok := e.(map[string]any)
		t.Known = t.Known && ok
		for name := range edit {
			t.Known = t.Known && slices.Contains(others, name)
		}
	}
}

// textsOf are the texts of a list.
func (t *Tool) textsOf(v []any) []string {
	list := make([]string, 0, len(v))
	for _, e := range v {
		s, ok := e.(string)
		t.Known = t.Known && ok
		list = append(list, s)
	}
	return list
}

// patternsIn adds the patterns of paths of a call. Alternatives that lead elsewhere are not known.
func (t *Tool) patternsIn(tool string, args map[string]any) {
	names := patternArguments
	if slices.Contains(globTools, strings.ToLower(tool)) {
		names = append(slices.Clone(names), "pattern")
	}
	for _, name := range names {
		var list []string
		switch v := args[name].(type) {
		case nil:
			continue
		case string:
			list = []string{v}
		case []any:
			list = t.textsOf(v)
		default:
			t.Known = false
		}
		for _, p := range list {
			t.Known = t.Known && !(strings.Contains(p, "{") && (strings.ContainsAny(p, "~\\") || strings.Contains(p, "{/") || strings.Contains(p, ",/") || strings.Contains(p, "..")))
			t.Paths = append(t.Paths, p)
		}
	}
}

func quoteWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (t *Tool) pathsIn(args map[string]any) {
	for _, name := range pathArguments {
		if v, given := args[name]; given {
			s, ok := v.(string)
			if t.Known = t.Known && ok; ok {
				t.Paths = append(t.Paths, s)
			}
		}
	}
	for _, name := range listArguments {
		list, _ := args[name].([]any)
		for _, e := range list {
			if m, ok := e.(map[string]any); ok {
				e = m["path"]
			}
			s, ok := e.(string)
			if t.Known = t.Known && ok; ok {
				t.Paths = append(t.Paths, s)
			}
		}
		if s, ok := args[name].(string); ok {
			t.Paths = append(t.Paths, s)
		}
	}
}

// patchIn is the patch of a tool that takes one. Which of several is applied is not known: all count.
func (t *Tool) patchIn(name string, args map[string]any) string {
	if lower := strings.ToLower(name); lower != "apply_patch" && lower != "patch" {
		return ""
	}
	var found []string
	for _, argument := range patchArguments {
		switch v := args[argument].(type) {
		case nil:
		case string:
			found = append(found, v)
		case []any:
			list := t.textsOf(v)
			if len(list) == 2 && list[0] == "apply_patch" {
				list = list[1:]
			}
			found = append(found, list...)
		default:
			t.Known = false
		}
	}
	t.Known = t.Known && len(found) < 2
	return strings.Join(found, "\n")
}

// urlsIn are the addresses of a call, also those in a prompt.
func (t *Tool) urlsIn(args map[string]any) []string {
	list := []string{}
	for _, name := range urlArguments {
		switch v := args[name].(type) {
		case string:
			if name == "prompt" {
				list = append(list, addressesIn(v)...)
			} else {
				list = append(list, v)
			}
		case []any:
			for _, e := range v {
				s, ok := e.(string)
				t.Known = t.Known && ok
				list = append(list, s)
			}
		}
	}
	return list
}

func addressesIn(text string) (list []string) {
	for _, w := range strings.Fields(text) {
		if strings.Contains(w, "://") {
			list = append(list, strings.Trim(w, ".,;:()<>[]\"'"))
		}
	}
	return list
}
