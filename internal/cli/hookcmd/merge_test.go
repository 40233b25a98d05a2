package hookcmd

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

const command = "/opt/bin/countersign-hook claude-code"

// Whatever a configuration holds, its other bytes stay, installing twice changes nothing more, and
// uninstalling leaves no trace of the gate.
func TestMerge(t *testing.T) {
	for name, old := range map[string]string{
		"no file":         "",
		"empty":           "{}",
		"others":          "{\n  \"model\": \"m\",   \"n\": 1e2\n}\n",
		"other hooks":     `{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "/usr/bin/true"}]}], "Stop": []}, "z": [1]}`,
		"an older gate":   `{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "/old/countersign-hook claude-code"}]}]}}`,
		"a log of ours":   `{"hooks": {"Stop": [{"hooks": [{"command": "tee /tmp/countersign-hook.log # /usr/bin/true"}]}]}}`,
		"beside the gate": `{"hooks": {"PreToolUse": [{"hooks": [{"command": "/old/countersign-hook claude-code"}, {"command": "/usr/bin/true"}]}]}}`,
	} {
		for _, i := range installations {
			got, err := i.merge([]byte(old), command)
			if err != nil {
				t.Fatalf("%s, %s: %v", i.agent, name, err)
			}
			var tree map[string]any
			if err := json.Unmarshal(got, &tree); err != nil {
				t.Fatalf("%s, %s: %v\n%s", i.agent, name, err, got)
			}
			for _, event := range i.events {
				if list := tree["hooks"].(map[string]any)[event].([]any); !isOurs(list[len(list)-1]) {
					t.Errorf("%s, %s: %s does not run the gate", i.agent, name, event)
				}
			}
			if again, err := i.merge(got, command); err != nil || !bytes.Equal(again, got) {
				t.Errorf("%s, %s: a second time gives\n%s\nafter\n%s", i.agent, name, again, got)
			}
			for _, part := range []string{`"model": "m",   "n": 1e2`, `"z": [1]`, "/usr/bin/true"} {
				if strings.Contains(old, part) && !strings.Contains(string(got), part) {
					t.Errorf("%s, %s: %s is lost", i.agent, name, part)
				}
			}
			removed, err := remove(got)
			if err != nil || strings.Contains(string(removed), gateProgram+" ") && name != "beside the gate" {
				t.Errorf("%s, %s: uninstalled %v\n%s", i.agent, name, err, removed)
			}
		}
	}
}

// A file that is no configuration is not touched.
func TestMergeRefuses(t *testing.T) {
	for _, old := range []string{"[]", "{", `{"a": 1} {}`, `{"hooks": []}`, `{"hooks": {"PreToolUse": {}}}`, "{a: 1}"} {
		if got, err := installations[0].merge([]byte(old), command); err == nil {
			t.Errorf("%s becomes %s", old, got)
		}
	}
}

// What closes the gate when the gate dies is set where the agent has a setting for it.
func TestInstallationCloses(t *testing.T) {
	for agent, want := range map[string]string{"claude-code": `"onFailure": "block"`, "cursor": `"failClosed": true`} {
		i, err := findInstallation(agent)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := i.merge(nil, command); err != nil || strings.Count(string(got), want) != 1 {
			t.Errorf("%s: %v\n%s", agent, err, got)
		}
	}
}

func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{"/opt/bin/x": "/opt/bin/x", "/my dir/x": "'/my dir/x'", "a'b": `'a'\''b'`, "": "''"} {
		if got := shellWord(word); got != want {
			t.Errorf("%q: %s", word, got)
		}
	}
}
