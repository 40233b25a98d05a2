// Package corpus reads the corpus of recorded sessions that keep or break a check.
// Only tests import it.
//
// The corpus is in correlation/testdata/<protocol>-*.txt. A section
//
//	-- violates 100 104 live: what happens --
//	{"t":"tool.invoked", …}
//
// is a recorded session that must break exactly the checks that it names; one
// that "conforms" to some must break none at all, and those not even in a hint.
// A name instead of a number is one of our own rules, which count only where a
// section names one. Sections are played through Check and through the log, those marked "live" or
// "recorded" through one of the two.
//
// A line is an event, completed by what every event has:
//
//	t           the type, without its prefix
//	at          seconds after the session's beginning; otherwise the line's number
//	ask         the number of a question's reply token
//	call, m     AgentHook: tool_call_id, further metadata
//	fill        texts of so many characters, by field
//	broker      live: the broker's time, in seconds
//	from        live: another publisher
//
// An AgentHook event with a block of AHP-013 is completed by what the
// action-governance profile wants, unless it has a tool_identity or says "bare". null takes a member away. "times" repeats the line, with ids of its own. {"raw": …} are the bytes as they are, {"now": …} lets
// time pass to the end, {"decision": …} is a recorded decision, {"request": …}
// {"approval": …} and {"publishers": …} are messages that only a log has, {"hook": …} is an AgentHook
// event among those of AAEP.
package corpus

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events/subject"
)

// Tree is a JSON object.
type Tree = map[string]any

// Epoch is when the sessions begin.
var Epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// Case is a section of the corpus.
type Case struct {
	Protocol, Name string
	Violates       bool
	Only           string // "live", "recorded", or "" for both
	Checks         []string
	Lines          []Tree
}

var sectionLine = regexp.MustCompile(`(?m)^-- (violates|conforms)((?: (?:\d{3}|[a-z]+(?:_[a-z]+)+))*)(?: (live|recorded))?: (.*) --$`)

// Read reads the cases of all files in a directory, in order.
func Read(dir string) (list []Case, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no corpus in %s: %w", dir, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		protocol, _, _ := strings.Cut(filepath.Base(file), "-")
		prefix := map[string]string{subject.ProtoAAEP: "AAEP-C-", subject.ProtoAgentHook: "AH-C-", subject.ProtoAUMP: "AUMP-E-"}[protocol]
		heads := sectionLine.FindAllStringSubmatchIndex(string(b), -1)
		for i, h := range heads {
			part := func(n int) string {
				if h[2*n] < 0 {
					return ""
				}
				return string(b[h[2*n]:h[2*n+1]])
			}
			end := len(b)
			if i+1 < len(heads) {
				end = heads[i+1][0]
			}
			c := Case{Protocol: protocol, Violates: part(1) == "violates", Only: part(3)}
			c.Name = part(1) + part(2) + " " + part(4)
			for _, n := range strings.Fields(part(2)) {
				if n[0] <= '9' {
					n = prefix + n
				}
				c.Checks = append(c.Checks, n)
			}
			for n, line := range strings.Split(strings.TrimSpace(string(b[h[1]:end])), "\n") {
				var short Tree
				if line = strings.TrimSpace(line); line == "" {
					continue
				}
				if err := json.Unmarshal([]byte(line), &short); err != nil {
					return nil, fmt.Errorf("%s, %s, line %d: %w", file, c.Name, n+1, err)
				}
				times, _ := short["times"].(float64)
				delete(short, "times")
				for range max(int(times), 1) {
					c.Lines = append(c.Lines, short)
				}
			}
			completeGoverned(c)
			list = append(list, c)
		}
		if got, want := len(heads), strings.Count(string(b), "\n-- "); got != want {
			return nil, fmt.Errorf("%s: %d sections of %d can be read", file, got, want)
		}
	}
	return list, nil
}

// Seconds is the time of a line.
func Seconds(short Tree, n int) float64 {
	if at, ok := short["at"].(float64); ok {
		return at
	}
	return float64(n)
}

// Complete makes an event from a line.
func Complete(protocol string, short Tree, n int) any {
	if raw, ok := short["raw"].(string); ok {
		return raw
	}
	if d, ok := short["decision"].(map[string]any); ok {
		return Tree{"decision": d}
	}
	var e Tree
	if protocol == subject.ProtoAAEP {
		e = CompleteAAEP(short, n)
	} else {
		e = CompleteAgentHook(short, n)
	}
	if fill, ok := short["fill"].(map[string]any); ok {
		for k, length := range fill {
			e = WithMember(e, k, strings.Repeat("x", int(length.(float64))))
		}
	}
	for k, v := range short {
		if slices.Contains([]string{"t", "at", "ask", "call", "m", "fill", "broker", "from"}, k) {
			continue
		}
		if e[k] = v; v == nil {
			delete(e, k)
		}
	}
	return e
}

// questionDefaults are the members that a line of a question need not have.
var questionDefaults = map[string]Tree{
	"awaiting.confirmation":  {"action": "Do it.", "consequence": "It is done.", "timeout_seconds": 60, "default_decision": "reject", "risk_level": "low", "irreversible": false},
	"awaiting.clarification": {"question": "Which one?", "timeout_seconds": 120},
}

// CompleteAAEP makes an AAEP event from a line.
func CompleteAAEP(short Tree, n int) Tree {
	typ, _ := short["t"].(string)
	if strings.HasPrefix(typ, "subscription.") {
		return WithMember(Tree{"type": typ}, "", nil)
	}
	if strings.HasSuffix(typ, ".reply") {
		return Tree{"type": typ, "subscription_id": "sub_1", "timestamp": Stamp(Seconds(short, n))}
	}
	e := AAEPEvent(100+n, typ, Seconds(short, n), Tree{"localization_hints": Tree{"primary_language": "en"}})
	if strings.Contains(typ, ":") {
		e["type"] = typ
	}
	maps.Copy(e, questionDefaults[typ])
	if typ == "output.streaming" {
		delete(e, "summary_normal")
	}
	if slices.Contains([]string{"session.errored", "awaiting.confirmation", "awaiting.clarification", "handoff.requested"}, typ) {
		e["urgency"] = "critical"
	}
	if ask, ok := short["ask"].(string); ok {
		e["reply_token"] = "rpl_" + ask
	}
	return e
}

// CompleteAgentHook makes an AgentHook event from a line.
func CompleteAgentHook(short Tree, n int) Tree {
	typ, _ := short["t"].(string)
	e := WithMember(AgentHookEvent(100+n, typ, Seconds(short, n)), "metadata", nil)
	e["timestamp"] = Epoch.Add(time.Duration(Seconds(short, n) * float64(time.Second))).Format("2006-01-02T15:04:05Z")
	if !strings.HasSuffix(typ, "ToolUse") {
		delete(e, "tool_name")
	}
	meta := Tree{}
	if call, ok := short["call"].(string); ok {
		meta["tool_call_id"] = call
	}
	if m, ok := short["m"].(map[string]any); ok {
		maps.Copy(meta, m)
	}
	if len(meta) > 0 {
		e["metadata"] = meta
	}
	return e
}

// completeGoverned adds to AgentHook events with a block of AHP-013 what the action-governance
// profile wants. A line with "bare" or a tool_identity stays as it is.
func completeGoverned(c Case) {
	inputs := map[string]any{}
	for _, line := range c.Lines {
		for _, inner := range []string{"request", "hook"} {
			if e, ok := line[inner].(map[string]any); ok {
				line = e
			}
		}
		call, _ := line["call"].(string)
		m, _ := line["m"].(map[string]any)
		bare := line["bare"] != nil || m["tool_identity"] != nil
		delete(line, "bare")
		switch line["t"] {
		case "PreToolUse":
			inputs[call] = orEmpty(line["tool_input"])
			if !bare && hasGovernance(m) {
				fillIn(line, Tree{"action": "read", "resource_kind": "unknown", "resource": "unknown", "resource_scope": "unknown", "operation_risk": "unknown"})
				tool, _ := line["tool_name"].(string)
				fillIn(m, Tree{"risk": Tree{"risk_class": "unknown"}, "tool_identity": Tree{"canonical_name": "tool." + canonicalToolName(tool), "provider_name": cmp.Or(tool, "pay_invoice"), "source": "other"}})
			}
		case "PostToolUse":
			if !bare && hasGovernance(m) {
				fillIn(m, Tree{"execution": Tree{"outcome": "succeeded"}})
				if x, _ := m["execution"].(map[string]any); line["tool_input"] == nil && (x["outcome"] == "succeeded" || x["outcome"] == "failed") {
					fillIn(m, Tree{"tool_input_executed": orEmpty(inputs[call])})
				} else if line["tool_input"] != nil {
					fillIn(m, Tree{"tool_input_executed": line["tool_input"]})
				}
			}
		}
	}
}

// orEmpty is the input, or an empty object if it is nil.
func orEmpty(input any) any {
	if input == nil {
		return Tree{}
	}
	return input
}

// hasGovernance reports whether metadata have a block of AHP-013.
func hasGovernance(m Tree) bool {
	return slices.ContainsFunc([]string{"provider_translation", "risk", "validation", "redaction", "retry", "execution"}, func(k string) bool { _, there := m[k]; return there })
}

// fillIn adds the members that t lacks.
func fillIn(t, members Tree) {
	for k, v := range members {
		if _, there := t[k]; !there {
			t[k] = v
		}
	}
}

// canonicalToolName makes a canonical name from a tool's name.
func canonicalToolName(tool string) string {
	return cmp.Or(strings.Trim(strings.ToLower(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(tool, "_")), "_"), "pay_invoice")
}

// Recording returns the lines of a case for Check, and the time up to which time passes after
// them. A line is a Tree, or bytes as a string.
func (c Case) Recording() (lines []any, now time.Time) {
	for n, short := range c.Lines {
		if seconds, ok := short["now"].(float64); ok {
			now = Epoch.Add(time.Duration(seconds) * time.Second)
			continue
		}
		lines = append(lines, Complete(c.Protocol, short, n))
	}
	return lines, now
}
