package aioc

import (
	"errors"
	"strconv"
	"strings"
	"unicode"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// RawKey is the only member of the arguments that a runtime makes from text that is not JSON.
const RawKey = "__raw"

// ParseArguments parses the text of a model as a runtime does: white space alone is {}, JSON is
// its value, and anything else is {"__raw": text}. The error is a *strictjson.Error: for JSON
// that two readers may understand differently (a duplicate key, an integer beyond 2^53, …) the
// runtime's result is unknown.
func ParseArguments(text string, lim strictjson.Limits) (any, error) {
	if strings.TrimFunc(text, isBlank) == "" {
		return map[string]any{}, nil
	}
	v, err := strictjson.Parse([]byte(text), lim)
	var refused *strictjson.Error
	if errors.As(err, &refused) && (refused.Code == strictjson.NotJSON || refused.Code == strictjson.TrailingData) {
		return map[string]any{RawKey: text}, nil
	}
	return v, err
}

// isBlank reports white space as JavaScript's trim defines it.
func isBlank(r rune) bool { return r == '\ufeff' || unicode.IsSpace(r) && r != '\u0085' }

// IsRaw reports whether arguments stand for text that is not JSON. Arguments in which the model
// itself wrote the member look the same.
func IsRaw(arguments any) bool {
	m, _ := arguments.(map[string]any)
	_, raw := m[RawKey]
	return raw
}

// handoffPrefix is the prefix of the tool name of every handoff.
const handoffPrefix = "handoff_to_"

// HandoffToolName is the tool name of the handoff to an agent for a model, unless another tool
// has that name.
func HandoffToolName(toAgentName string) string {
	var b strings.Builder
	gap := false
	// JavaScript lowers U+0130 to i and a combining dot, Go to i alone.
	for _, r := range strings.ToLower(strings.ReplaceAll(toAgentName, "\u0130", "i\u0307")) {
		if r < 'a' || r > 'z' {
			if r < '0' || r > '9' {
				gap = true
				continue
			}
		}
		if gap && b.Len() > 0 {
			b.WriteByte('_')
		}
		gap = false
		b.WriteRune(r)
	}
	if b.Len() == 0 {
		b.WriteString("agent")
	}
	return handoffPrefix + b.String()
}

// IsHandoffToolName reports whether name is the tool name of the handoff to an agent:
// HandoffToolName, with or without the suffix _2, _3, … that a runtime appends if the name is
// in use.
func IsHandoffToolName(name, toAgentName string) bool {
	suffix, ok := strings.CutPrefix(name, HandoffToolName(toAgentName))
	if !ok || suffix == "" {
		return ok
	}
	digits, ok := strings.CutPrefix(suffix, "_")
	n, err := strconv.ParseUint(digits, 10, 16)
	return ok && err == nil && n >= 2 && strconv.FormatUint(n, 10) == digits
}

// HandoffArguments returns the RFC 8785 form that a receipt for a handoff binds in place of
// arguments: both agents and the payload, so that a permission for one agent is none for
// another agent with the same tool name.
func HandoffArguments(fromAgentName, toAgentName string, payload any) ([]byte, error) {
	return strictjson.Canonical(map[string]any{"fromAgentName": fromAgentName, "toAgentName": toAgentName, "handoffPayload": payload})
}
