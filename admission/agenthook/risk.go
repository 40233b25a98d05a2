package agenthook

import wire "github.com/countersign-dev/countersign/events/agenthook"

// level orders risk levels.
type level int

const (
	unstated level = iota
	low
	medium
	high
)

var levelNames = map[level]string{low: "low", medium: "medium", high: "high"}

// levels grades the words of the three open vocabularies (operation_risk,
// risk_class, data_exfiltration_risk). A word that is not here counts as high.
var levels = map[string]level{
	"read_only": low, "none": low, "low": low,
	"sensitive_read": medium, "external_side_effect": medium, "external_transfer": medium, "write": medium, "runtime_change": medium, "moderate": medium,
	"destructive_write": high, "credential_access": high, "publication": high, "high": high,
}

// Words for effects that cannot be taken back, and for those that can only be
// repeated without harm if the operation is idempotent.
var (
	irreversible = map[string]bool{"destructive_write": true, "publication": true}
	outward      = map[string]bool{"external_side_effect": true, "external_transfer": true}
)

// risk gives what is known of the risk: the words as they were sent, and the
// normalised level (absent if the request says nothing) and irreversible.
func risk(e *wire.Event) map[string]any {
	m := map[string]any{}
	words := []string{e.OperationRisk}
	idempotent := false
	if b, ok := e.Risk(); ok {
		words = append(words, b.RiskClass, b.DataExfiltrationRisk)
		idempotent = b.Idempotent != nil && *b.Idempotent
		text(m, "risk_class", b.RiskClass)
		text(m, "data_exfiltration_risk", b.DataExfiltrationRisk)
		flag(m, "requires_human_approval", b.RequiresHumanApproval)
		flag(m, "writes_external_system", b.WritesExternalSystem)
		flag(m, "idempotent", b.Idempotent)
		flag(m, "contains_secret", b.ContainsSecret)
	}
	text(m, "operation_risk", e.OperationRisk)
	worst, final := unstated, false
	for _, w := range words {
		if w == "" {
			continue
		}
		l, known := levels[w]
		if !known {
			l = high
		}
		worst = max(worst, l)
		final = final || irreversible[w] || outward[w] && !idempotent
	}
	text(m, "level", levelNames[worst])
	m["irreversible"] = final
	return m
}

func text(m map[string]any, key, value string) {
	if value != "" {
		m[key] = value
	}
}

func flag(m map[string]any, key string, value *bool) {
	if value != nil {
		m[key] = *value
	}
}
