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

var levelNames = [...]string{Low: "low", Medium: "medium", High: "high"}

// String is the level as policies see it, "" for Unstated.
func (l Level) String() string { return levelNames[l] }

// ParseLevel is the level of a String; High if it is none.
func ParseLevel(name string) Level {
	if i := slices.Index(levelNames[:], name); i >= 0 {
		return Level(i)
	}
	return High
}

// wordLevels grades the words of AgentHook's open vocabularies (operation_risk,
// risk_class, data_exfiltration_risk).
var wordLevels = map[string]Level{
	"":          Unstated,
	"read_only": Low, "none": Low, "low": Low,
	"sensitive_read": Medium, "external_side_effect": Medium, "external_transfer": Medium, "write": Medium, "runtime_change": Medium, "moderate": Medium,
	"destructive_write": High, "credential_access": High, "publication": High, "high": High,
}

// LevelOf grades a word; one that nobody knows counts as High.
func LevelOf(word string) Level {
	if l, known := wordLevels[word]; known {
		return l
	}
	return High
}

var (
	irreversibleWords = map[string]bool{"destructive_write": true, "publication": true}
	externalWords     = map[string]bool{"external_side_effect": true, "external_transfer": true}
)

// Irreversible reports whether a word is of an effect that cannot be taken back.
func Irreversible(word string) bool { return irreversibleWords[word] }

// HasExternalEffect reports whether a word is of an effect that can only be repeated without
// harm if the operation is idempotent.
func HasExternalEffect(word string) bool { return externalWords[word] }
