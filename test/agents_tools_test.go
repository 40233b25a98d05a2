package e2e_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every tool that an agent offers its model asks the gate, except those in its list of tools past it.
func TestAgentsTools(t *testing.T) {
	for _, a := range realAgents {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			if a.find(t); os.Getenv(agentsEnv) == "" {
				t.Skip("make agents tries it")
			}
			h := startNowhere(t, a) // every call is refused that is asked for
			m := &model{plan: offeredTools}
			dir := t.TempDir()
			writeSkill(t, dir)
			h.env = append(h.env, "ENABLE_TOOL_SEARCH=false") // Claude Code offers all tools at once
			results := h.drive(t, a, dir, m)
			var past []string
			for i, told := range results {
				name := m.turns[i][0].tool
				if !refusal.MatchString(told) {
					past = append(past, name)
					t.Logf("%s %s: %s", name, m.turns[i][0].input.bytes(), told)
				}
			}
			if slices.Sort(past); !slices.Equal(past, a.past) {
				t.Errorf("%d of %d tools are past the gate: %q, want %q", len(past), len(results), past, a.past)
			}
		})
	}
}

// A command in the text of a skill raises no event beside that of the skill. With the setting that the doctor names it
// does not run.
func TestClaudeCodeSkills(t *testing.T) {
	t.Parallel()
	if claudeCode.find(t); os.Getenv(agentsEnv) == "" {
		t.Skip("make agents tries it")
	}
	const setting = "disableSkillShellExecution"
	h, dir, gate := startNowhere(t, claudeCode), t.TempDir(), filepath.Join(t.TempDir(), "gate")
	h.replace(t, claudeCode, program("countersign-hook"), gate)
	gateFailure{script: `[[ $input == *'"Skill"'* ]] || gate`}.write(t, gate) // what is no skill is refused
	writeSkill(t, dir)
	for _, off := range []bool{false, true} {
		addSettings(t, filepath.Join(h.home, claudeCode.hooks), object{setting: off})
		m := &model{turns: []turn{{{tool: "Skill", input: object{"skill": "probe"}}}}}
		out := h.converse(t, claudeCode, dir, m, "--allowedTools", "Skill")
		told(t, "", m.results, "Launching skill")
		if err := os.Remove(filepath.Join(dir, "ran-skill")); (err != nil) != off {
			t.Errorf("%s: %t: the command in the skill: %v\n%s", setting, off, err, out)
		}
	}
	if out := h.countersign(t, "hook", "doctor", claudeCode.name).out; !strings.Contains(out, setting) {
		t.Errorf("doctor: %s", out)
	}
}

// writeSkill writes a skill with a command for Claude Code. OpenCode reads it, too.
func writeSkill(t *testing.T, dir string) {
	t.Helper()
	skill := filepath.Join(dir, ".claude/skills/probe/SKILL.md")
	ok(t, os.MkdirAll(filepath.Dir(skill), 0o700))
	ok(t, os.WriteFile(skill, []byte("---\nname: probe\ndescription: Makes a file.\nallowed-tools: Bash\n---\n!`touch ran-skill`\n"), 0o600))
}

// toolArguments are those that a schema does not tell: agents look at them before they ask the hooks.
var toolArguments = map[string]object{
	"Edit":                {"file_path": "new.txt", "old_string": "", "new_string": "x"},
	"Skill":               {"skill": "probe"},
	"CronCreate":          {"cron": "0 0 1 1 *"},
	"Monitor":             {"command": "true"},
	"WebFetch":            {"url": "https://127.0.0.1/"},
	"Workflow":            {"script": "export const meta = {name: 'probe', description: 'probe', phases: []}\nawait agent('Help.')"},
	"web_fetch":           {"prompt": "read http://127.0.0.1:1/"},
	"invoke_agent":        {"agent_name": "generalist"},
	"read_mcp_resource":   {"server": "kit", "uri": "kit://note"},
	"ReadMcpResourceTool": {"server": "kit", "uri": "kit://note"},
}

// offeredTools reads the tools that a request offers, and makes a turn of each, with arguments as its schema demands.
func offeredTools(body []byte) (turns []turn) {
	type tool struct {
		Type, Name string
		Input      json.RawMessage `json:"input_schema"`
		Parameters json.RawMessage
		JSONSchema json.RawMessage `json:"parametersJsonSchema"`
		Functions  []tool          `json:"functionDeclarations"`
		Tools      []tool
	}
	var r struct{ Tools []tool }
	_ = json.Unmarshal(body, &r) // a request without tools has none
	add := func(prefix string, list []tool) {
		for _, x := range list {
			schema := slices.Concat(x.Input, x.Parameters, x.JSONSchema)
			if len(schema) == 0 {
				continue // the server of the model runs it
			}
			input := exampleOf(schema).(map[string]any)
			maps.Copy(input, toolArguments[x.Name])
			turns = append(turns, turn{{tool: prefix + x.Name, input: input}})
		}
	}
	add("", r.Tools)
	for _, x := range r.Tools {
		add("", x.Functions)
		if len(x.Tools) > 0 {
			add(x.Name+"__", x.Tools)
		}
	}
	return turns
}

// exampleOf is a value that a JSON schema permits, as far as agents' tools need it.
func exampleOf(raw json.RawMessage) any {
	var s struct {
		Type       any
		Enum       []any
		Const      any
		Required   []string
		Properties map[string]json.RawMessage
		Items      json.RawMessage
		MinItems   int
		Minimum    float64
		AnyOf      []json.RawMessage
	}
	_ = json.Unmarshal(raw, &s) // what is not understood is a text
	switch {
	case s.Const != nil:
		return s.Const
	case len(s.Enum) > 0:
		return s.Enum[0]
	case len(s.AnyOf) > 0:
		return exampleOf(s.AnyOf[0])
	}
	switch s.Type {
	case "object":
		o := map[string]any{}
		for _, name := range s.Required {
			o[name] = exampleOf(s.Properties[name])
		}
		return o
	case "array":
		list := []any{}
		if s.Items != nil {
			list = append(list, exampleOf(s.Items))
		}
		return list
	case "number", "integer":
		return max(s.Minimum, 1)
	case "boolean":
		return false
	}
	return "README.md"
}
