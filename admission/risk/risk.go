// Package risk grades the words in which requests and catalogues speak of the risk
// of a call, so that both are graded alike.
package risk

import "slices"

// Level orders risks.
type Level int

// The levels. Unstated is no word at all.
const (
	Unstated Level = iota
	Low
	Medium
	High
)

var names = [...]string{Low: "low", Medium: "medium", High: "high"}

// String is the level as policies see it, "" for Unstated.
func (l Level) String() string { return names[l] }

// Named is the level of a String; High if it is none.
func Named(name string) Level {
	if i := slices.Index(names[:], name); i >= 0 {
		return Level(i)
	}
	return High
}

// levels grades the words of AgentHook's open vocabularies (operation_risk,
// risk_class, data_exfiltration_risk).
var levels = map[string]Level{
	"":          Unstated,
	"read_only": Low, "none": Low, "low": Low,
	"sensitive_read": Medium, "external_side_effect": Medium, "external_transfer": Medium, "write": Medium, "runtime_change": Medium, "moderate": Medium,
	"destructive_write": High, "credential_access": High, "publication": High, "high": High,
}

// Of grades a word; one that nobody knows counts as High.
func Of(word string) Level {
	if l, known := levels[word]; known {
		return l
	}
	return High
}

var (
	irreversible = map[string]bool{"destructive_write": true, "publication": true}
	outward      = map[string]bool{"external_side_effect": true, "external_transfer": true}
)

// Irreversible reports whether a word is of an effect that cannot be taken back.
func Irreversible(word string) bool { return irreversible[word] }

// Outward reports whether a word is of an effect that can only be repeated without
// harm if the operation is idempotent.
func Outward(word string) bool { return outward[word] }
