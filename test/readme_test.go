package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Session and calls of the README's two minutes with Claude Code, and the texts that its gate then reads.
const (
	readmeSession = "5f0a3c1e-8d2b-4c55-9a7e-2b1f6d3c9e10"
	readmePush    = `{"session_id":"` + readmeSession + `","transcript_path":"/home/u/.claude/projects/p/5f0a3c1e.jsonl","cwd":"/home/u/p","permission_mode":"default","hook_event_name":"PreToolUse","tool_name":"Bash","tool_use_id":"toolu_01A","tool_input":{"command":"git push --force","description":"Push"}}`
	readmeTests   = `{"session_id":"` + readmeSession + `","transcript_path":"/home/u/.claude/projects/p/5f0a3c1e.jsonl","cwd":"/home/u/p","permission_mode":"default","hook_event_name":"PreToolUse","tool_name":"Bash","tool_use_id":"toolu_01B","tool_input":{"command":"go test ./...","description":"Run the tests"}}`
)

// The README's two minutes with Claude Code: what the refused call is told, and what the commands print of the
// approved one. The table's agents are ones that hook install takes.
func TestReadmeClaudeCode(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	ok(t, err)
	_, page, _ := strings.Cut(string(text), "## Two minutes with Claude Code")
	page, _, _ = strings.Cut(page, "\n## ")
	h := start(t, "--policy", filepath.Join(root, "examples/policies/coding-agent")).hook(t, "claude-code", "30s")
	if got := h.denied(t, h.reads(t, readmePush)()); !strings.Contains(page, "\n"+got+"\n") {
		t.Errorf("the refused call is told: %s", got)
	}
	answer := h.reads(t, readmeTests)
	eventually(t, "the call waits", func() error {
		if list := h.waiting(t); len(list) != 1 {
			return errorf("%v", list)
		}
		return nil
	})
	workflow := h.waiting(t)[0]
	_, console, _ := strings.Cut(page, "```console\n")
	console, _, _ = strings.Cut(console, "```")
	commands := strings.Split(console, "$ countersign ")[1:]
	if len(commands) != 4 {
		t.Fatalf("the page has %d commands", len(commands))
	}
	for _, part := range commands[:2] {
		h.prints(t, part, workflow)
	}
	if got := answer(); got != "" {
		t.Errorf("the approved call is told: %s", got)
	}
	h.reads(t, strings.Replace(readmeTests, `"PreToolUse"`, `"PostToolUse","tool_response":{"stdout":"ok","stderr":"","interrupted":false}`, 1))()
	h.settle(t)
	for _, part := range commands[2:] {
		h.prints(t, part, workflow)
	}
	agents := regexp.MustCompile("`hook install ([a-z]+)`").FindAllStringSubmatch(page, -1)
	if len(agents) != 6 {
		t.Errorf("the table has the agents %v", agents)
	}
	for _, agent := range agents {
		h.countersign(t, "hook", "install", agent[1], "--ready-file", h.ready).want(t, 0)
	}
}

// reads starts the gate with an input of Claude Code. The function waits for its answer.
func (h hooked) reads(t *testing.T, input string) (answer func() string) {
	t.Helper()
	cmd := h.gate("", "", "")
	var out strings.Builder
	cmd.Stdin, cmd.Stdout = strings.NewReader(input), &out
	p, err := launch(cmd)
	ok(t, err)
	return func() string {
		ok(t, p.wait())
		return out.String()
	}
}

// prints runs a command of a page, and looks for the lines that the page shows among those that it prints.
func (h hooked) prints(t *testing.T, part, workflow string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(part), "\n")
	var args []string
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(lines[0], -1) {
		switch {
		case strings.HasPrefix(word, "wf-"):
			word = workflow
		case strings.HasSuffix(word, "…"):
			word = readmeSession
		}
		args = append(args, strings.Trim(word, "'"))
	}
	if err := showsLines(h.run(t, args...).want(t, 0).out, lines[1:]); err != nil {
		t.Errorf("%s: %v", lines[0], err)
	}
}
