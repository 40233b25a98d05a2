package agenthook

import (
	"github.com/countersign-dev/countersign/admission/risk"
	wire "github.com/countersign-dev/countersign/events/agenthook"
)

// riskOf returns what the request states about risk: the words as sent, the normalised level
// (absent if the request states none) and irreversible.
func riskOf(e *wire.Event) map[string]any {
	m := map[string]any{}
	words := []string{e.OperationRisk}
	idempotent := false
	if b := e.Risk; b != nil {
		words = append(words, b.RiskClass, b.DataExfiltrationRisk)
		idempotent = b.Idempotent != nil && *b.Idempotent
		setText(m, "risk_class", b.RiskClass)
		setText(m, "data_exfiltration_risk", b.DataExfiltrationRisk)
		setFlag(m, "requires_human_approval", b.RequiresHumanApproval)
		setFlag(m, "writes_external_system", b.WritesExternalSystem)
		setFlag(m, "idempotent", b.Idempotent)
		setFlag(m, "contains_secret", b.ContainsSecret)
	}
	setText(m, "operation_risk", e.OperationRisk)
	worst, final := risk.Unstated, false
	for _, w := range words {
		worst = max(worst, risk.LevelOf(w))
		final = final || risk.Irreversible(w) || risk.HasExternalEffect(w) && !idempotent
	}
	setText(m, "level", worst.String())
	m["irreversible"] = final
	return m
}

func setText(m map[string]any, key, value string) {
	if value != "" {
		m[key] = value
	}
}

func setFlag(m map[string]any, key string, value *bool) {
	if value != nil {
		m[key] = *value
	}
}
