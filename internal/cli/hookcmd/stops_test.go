package hookcmd

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
)

// An agent that stops is not sent on by a gate that fails: with exit code 2 Claude Code and Codex answer once more,
// Gemini CLI with any but 0 and 1.
func TestStopping(t *testing.T) {
	for agent, events := range map[string][]string{"claude-code": {"Stop", "SubagentStop"}, "codex": {"Stop", "SubagentStop"}, "gemini": {"AfterAgent"}} {
		for script, want := range map[string]int{"exit 0": 0, "exit 1": 1, "exit 2": 1, "kill -KILL $$": 1, "": 1} {
			gate := filepath.Join(t.TempDir(), "it's", gateProgram)
			writeGate(t, gate, script)
			i, err := findInstallation(agent)
			if err != nil {
				t.Fatal(err)
			}
			text, err := i.merge(nil, gateCommand(agent, gate, "/none"))
			if err != nil {
				t.Fatal(err)
			}
			var file struct {
				Hooks map[string][]struct{ Hooks []struct{ Command string } }
			}
			if err := json.Unmarshal(text, &file); err != nil {
				t.Fatal(err)
			}
			for _, event := range events {
				cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", file.Hooks[event][0].Hooks[0].Command)
				_ = cmd.Run() // its exit code is looked at
				if code := cmd.ProcessState.ExitCode(); code != want {
					t.Errorf("%s %s, a gate that runs %q: exit %d, want %d", agent, event, script, code, want)
				}
			}
		}
	}
}
