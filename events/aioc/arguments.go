package aioc

import (
	"errors"
	"strconv"
	"strings"
	"unicode"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// RawKey is the one member of the arguments that a runtime makes of text that is
// not JSON.
const RawKey = "__raw"

// ParseArguments does what a runtime does with the text of a model: white space
// alone is {}, JSON is its value, and anything else is {"__raw": text}. The
// error is a *strictjson.Error: JSON that two readers may understand
// differently (a key twice, an integer beyond 2^53, …), of which nobody can say
// what the runtime made.
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

// isBlank is white space as JavaScript's trim knows it.
func isBlank(r rune) bool { return r == '\ufeff' || unicode.IsSpace(r) && r != '\u0085' }

// IsRaw reports whether arguments stand for text that is not JSON. Arguments in
// which a model wrote the member itself cannot be told from them.
func IsRaw(arguments any) bool {
	m, _ := arguments.(map[string]any)
	_, raw := m[RawKey]
	return raw
}

// handoffPrefix begins the tool name of every handoff.
const handoffPrefix = "handoff_to_"

// HandoffToolName is the tool name under which a model sees the handoff to an
// agent, unless another tool has it already.
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

// IsHandoffToolName reports whether name is the tool name of the handoff to an
// agent: HandoffToolName, or that with the suffix _2, _3, … which a runtime puts
// there when the name is taken.
func IsHandoffToolName(name, toAgentName string) bool {
	suffix, ok := strings.CutPrefix(name, HandoffToolName(toAgentName))
	if !ok || suffix == "" {
		return ok
	}
	digits, ok := strings.CutPrefix(suffix, "_")
	n, err := strconv.ParseUint(digits, 10, 16)
	return ok && err == nil && n >= 2 && strconv.FormatUint(n, 10) == digits
}

// HandoffArguments gives the RFC 8785 form of what a receipt for a handoff is
// bound to in the place of arguments: both agents and the payload, so that leave
// to hand over to one agent is not leave to hand over to another whose tool name
// is the same.
func HandoffArguments(fromAgentName, toAgentName string, payload any) ([]byte, error) {
	return strictjson.Canonical(map[string]any{"fromAgentName": fromAgentName, "toAgentName": toAgentName, "handoffPayload": payload})
}
