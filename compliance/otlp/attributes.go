package otlp

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/countersign-dev/countersign/compliance/internal/protocol"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
)

// Severities of log records (1 to 24, as OpenTelemetry numbers them). docs/opentelemetry.md has the
// same tables.
const (
	severityInfo   = 9
	severityInfo2  = 10
	severityInfo3  = 11
	severityWarn   = 13
	severityError  = 17
	severityError3 = 19
)

var (
	verdictSeverities = map[events.Verdict]int{events.Allow: severityInfo, events.Ask: severityInfo2, events.Defer: severityInfo2, events.Deny: severityWarn}
	findingSeverities = map[events.Severity]int{events.SeverityInfo: severityInfo, events.SeverityLow: severityInfo3, events.SeverityMedium: severityWarn,
		events.SeverityHigh: severityError, events.SeverityCritical: severityError3}
)

func severityOf[K comparable](table map[K]int, key K) int {
	if s, known := table[key]; known {
		return s
	}
	return severityWarn
}

// attributes collects attributes; empty values are omitted.
type attributes []attribute.KeyValue

func (a *attributes) addText(pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			*a = append(*a, attribute.String(pairs[i], safeText(pairs[i+1])))
		}
	}
}

func (a *attributes) addTexts(name string, values []string) {
	if len(values) == 0 {
		return
	}
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = safeText(v)
	}
	*a = append(*a, attribute.StringSlice(name, list))
}

// addCall adds the GenAI attributes of a call.
func (a *attributes) addCall(token, tool, callID, agent, session string) {
	agentKey := "gen_ai.agent.id"
	if protocol.Of(token).NamedAgents {
		agentKey = "gen_ai.agent.name"
	}
	a.addText("gen_ai.tool.name", tool, "gen_ai.tool.call.id", callID, agentKey, agent, "gen_ai.conversation.id", session)
}

// withLogPosition adds the record's position in the log.
func (a attributes) withLogPosition(r evidence.Record) []attribute.KeyValue {
	a.addText("countersign.tenant", r.Tenant, "countersign.log", r.Shard)
	return append(a, attribute.Int64("countersign.log.seq", int64(r.Seq)))
}
