package e2e_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// gateFailure is one way in which the program that an agent starts as its gate fails.
type gateFailure struct {
	row    string // of the table in docs/hooks.md; several share one, if every agent treats them alike
	script string // the program, for bash; gate is the real one
	mode   os.FileMode
}

const (
	rowFails    = "says what is wrong, ends with another exit code than 0, is killed, crashes, runs out of memory, is missing or must not be run"
	rowHangs    = "hangs past the agent's time-out"
	rowNoAnswer = "ends with exit code 0 and no answer (Countersign's never does)"
)

// gateFailures begin and end with a gate that works: the agent has not given it up meanwhile.
var gateFailures = []gateFailure{
	{row: rowFails, script: "gate"},
	{row: rowFails, script: "set -- $1 --config /nowhere; gate"},
	{row: rowFails, script: "unset HOME XDG_CONFIG_HOME XDG_STATE_HOME; set -- $1; gate"},
	{row: rowFails, script: "ulimit -n 3; gate"},
	{row: rowFails, script: "gate >&-"},
	{row: rowFails, script: "gate >/dev/full"},
	{row: rowFails, script: "input=; gate"},
	{row: rowFails, script: "exit 1"},
	{row: rowFails, script: "echo it failed >&2; exit 1"},
	{row: rowFails, script: "exit 2"},
	{row: rowFails, script: "echo it failed >&2; exit 2"},
	{row: rowFails, script: `set --; gate`},
	{row: rowFails, script: "kill -KILL $$"},
	{row: rowFails, script: "kill -SEGV $$"},
	{row: rowFails, script: `printf '{"decision":"deny","hookSpecificOutput":{"hookEve'; kill -KILL $$`},
	{row: rowFails, script: "ulimit -v 20000; gate"},  // it cannot be loaded
	{row: rowFails, script: "ulimit -v 200000; gate"}, // its runtime cannot start
	{row: rowFails},
	{row: rowFails, script: "exit 0", mode: 0o600},
	{row: rowHangs, script: "exec sleep 8"},
	{row: rowNoAnswer, script: "exit 0"},
	{row: rowNoAnswer, script: `printf '{"decision":"deny","hookSpecificOutput":{"hookEve'`},
	{row: rowNoAnswer, script: "echo it failed"},
	{row: rowNoAnswer, script: `head -c 8388608 /dev/zero | tr '\0' x`},
	{row: rowFails, script: "gate"},
}

// What each agent does with a call when its gate fails, in the configuration that install writes, is what
// docs/hooks.md says.
func TestAgentsGateFailures(t *testing.T) {
	for _, a := range append(slices.Clone(realAgents), copilot) {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			a.findForLong(t)
			want := failuresOnPage(t, a.title)
			var rows []string
			h := startNowhere(t, a)
			for i, ran := range h.failGate(t, a) {
				f := gateFailures[i]
				cell := map[bool]string{true: "**runs**", false: "refused"}[ran]
				if want[f.row] != cell {
					t.Errorf("a gate that %s: %s (%q); docs/hooks.md says %q", f.row, cell, f.script, want[f.row])
				}
				rows = append(rows, f.row)
			}
			doctor := h.countersign(t, "hook", "doctor", a.name).out
			for row, warning := range map[string]string{rowHangs: "hangs past its time-out", rowNoAnswer: "ends with exit code 0"} {
				if strings.Contains(doctor, warning) != (want[row] != "refused") {
					t.Errorf("a gate that %s: %s; doctor says\n%s", row, want[row], doctor)
				}
			}
			if stale := slices.DeleteFunc(slices.Sorted(maps.Keys(want)), func(row string) bool { return slices.Contains(rows, row) }); len(stale) > 0 {
				t.Errorf("nobody tries %q", stale)
			}
		})
	}
}

// startNowhere puts the gate in front of an agent, without a gateway: the gate refuses every call.
func startNowhere(t *testing.T, a codingAgent) hooked {
	t.Helper()
	s := &system{ready: filepath.Join(t.TempDir(), "ready.json")}
	ok(t, os.WriteFile(s.ready, []byte(`{"tenant":"acme","gateway_url":"http://127.0.0.1:1","public_key":"none","roles":{"runtime":{"publisher":"agent","token":"none"}}}`), 0o600))
	return s.hook(t, a.name, "2s")
}

// failuresOnPage reads an agent's column of the table in docs/hooks.md.
func failuresOnPage(t *testing.T, title string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/hooks.md")
	ok(t, err)
	_, table, _ := strings.Cut(string(text), "| a gate that … |")
	table, _, _ = strings.Cut(table, "\n\n")
	lines := strings.Split(table, "\n")
	column := slices.Index(strings.Split(lines[0], "|"), " "+title+" ")
	if column < 0 {
		t.Fatalf("docs/hooks.md has no column %q of failures", title)
	}
	cells := map[string]string{}
	for _, line := range lines[2:] {
		row := strings.Split(line, "|")
		cells[strings.TrimSpace(row[1])] = strings.TrimSpace(row[column+2])
	}
	return cells
}

// refusal is in what an agent tells its model of a call that its hook has refused.
var refusal = regexp.MustCompile("Countersign refused|hook error|execution blocked|Denied by preToolUse hook")

// failGate runs an agent whose model makes a call for each failure and tells which calls ran. What did not run
// was refused: the model was told so.
func (h hooked) failGate(t *testing.T, a codingAgent) (ran []bool) {
	t.Helper()
	dir, gate := t.TempDir(), filepath.Join(t.TempDir(), "gate")
	h.replace(t, a, program("countersign-hook"), gate)
	h.replace(t, a, a.timeout, strings.Replace(a.timeout, "60", "3", 1))
	if a.watched {
		h.replace(t, a, "sleep 55", "sleep 2")
	}
	m := &model{between: func(n int, _ string) {
		if n < len(gateFailures) {
			gateFailures[n].write(t, gate)
		}
	}}
	for i := range gateFailures {
		m.turns = append(m.turns, each(fmt.Sprint("touch ran-", i))...)
	}
	gateFailures[0].write(t, gate)
	for i, told := range h.drive(t, a, dir, m) {
		_, err := os.Stat(filepath.Join(dir, fmt.Sprint("ran-", i)))
		if refusal.MatchString(told) != (err != nil) {
			t.Errorf("%q: the file is missing: %t; the model was told %s", gateFailures[i].script, err != nil, told)
		}
		ran = append(ran, err == nil)
	}
	return ran
}

// write puts a program that fails into the gate's place. Events of the agent that are no call pass.
func (f gateFailure) write(t *testing.T, path string) {
	t.Helper()
	_ = os.Remove(path)
	if f.script == "" {
		return
	}
	text := fmt.Sprintf(`#!/bin/bash
gate() { exec %s "$@" <<<"$input"; }
input=$(cat)
case "$input $*" in *PreToolUse*|*preToolUse*|*BeforeTool*|*tool.execute.before*) ;; *) exit 0;; esac
%s
`, program("countersign-hook"), strings.ReplaceAll(f.script, "gate", `gate "$@"`))
	ok(t, os.WriteFile(path, []byte(text), cmp.Or(f.mode, 0o700)))
}

// replace changes a text in the file that install has written for an agent.
func (h hooked) replace(t *testing.T, a codingAgent, old, with string) {
	t.Helper()
	path := filepath.Join(h.home, a.hooks)
	text, err := os.ReadFile(path)
	ok(t, err)
	changed := strings.ReplaceAll(string(text), old, with)
	if changed == string(text) {
		t.Fatalf("%s lacks %s: %s", path, old, text)
	}
	ok(t, os.WriteFile(path, []byte(changed), 0o600))
}
