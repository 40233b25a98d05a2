package correlation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/subject"
)

// words are what a case is made of: the types of its events, numbered as often as
// they come, and the names of the members at any depth. The frame of a session is
// left out: every case may have it.
func (c corpusCase) words(t testing.TB) map[string]bool {
	words, times := map[string]bool{}, map[string]int{}
	for n := range c.lines {
		m := c.message(t, n)
		for _, name := range []string{"type", "event_type"} {
			typ, ok := m[name].(string)
			if typ = plainType(typ); ok && !strings.HasPrefix(typ, "session") {
				times[typ]++
				words[fmt.Sprint(typ, " ", times[typ])] = true
			}
		}
		nameMembers(words, m)
	}
	return words
}

// message is what stands on a line, completed.
func (c corpusCase) message(t testing.TB, n int) tree {
	short, protocol := c.lines[n], c.protocol
	for _, inner := range []string{"hook", "request"} {
		if m, ok := short[inner].(map[string]any); ok {
			short, protocol = m, subject.ProtoAgentHook
		}
	}
	_, decision := short["decision"].(map[string]any)
	switch {
	case protocol == subject.ProtoAUMP && !decision && short["mandates"] == nil && short["raw"] == nil:
		return c.completeEvidence(t, n)
	case short["t"] == nil && short["type"] == nil && short["raw"] == nil:
		return short // no event
	}
	switch e := complete(protocol, short, n).(type) {
	case tree:
		return e
	case string:
		var m tree
		_ = json.Unmarshal([]byte(e), &m) // some cannot be read, and have no words
		return m
	}
	return nil
}

// plainType is a type without its vocabulary and its spelling.
func plainType(typ string) string {
	typ = strings.TrimPrefix(typ[strings.LastIndexAny(typ, ":/")+1:], "agent.")
	return strings.ToLower(strings.ReplaceAll(typ, "_", ""))
}

func nameMembers(words map[string]bool, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			words["."+name] = true
			nameMembers(words, member)
		}
	case []any:
		for _, member := range v {
			nameMembers(words, member)
		}
	}
}

// TestAlike: of the cases that keep a check, one at least is made of all that the
// cases that break it have in common. A session in which nothing is that could
// break a check keeps it, and shows nothing.
func TestAlike(t *testing.T) {
	common, kept := map[string]map[string]bool{}, map[string][]map[string]bool{}
	for _, c := range corpusCases(t) {
		words := c.words(t)
		for _, id := range c.checks {
			switch {
			case !c.violates:
				kept[id] = append(kept[id], words)
			case common[id] == nil:
				common[id] = maps.Clone(words)
			default:
				maps.DeleteFunc(common[id], func(w string, _ bool) bool { return !words[w] })
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(common)) {
		closest := slices.Sorted(maps.Keys(common[id]))
		for _, words := range kept[id] {
			if lack := missingWords(common[id], words); len(lack) <= len(closest) {
				closest = lack
			}
		}
		if len(closest) > 0 {
			t.Errorf("%s: every case that breaks it has %q, and no case that keeps it has all of that", id, closest)
		}
	}
}

func missingWords(need, have map[string]bool) (list []string) {
	for w := range need {
		if !have[w] {
			list = append(list, w)
		}
	}
	slices.Sort(list)
	return list
}
