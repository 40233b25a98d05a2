package correlation

import (
	"github.com/countersign-dev/countersign/correlation/aump"
	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// The row of AUMP; its checks are in package correlation/aump.

var aumpProtocol = &protocolRow{
	Protocol: aump.Protocol, wordCode: 6, missingCheck: missingOfRequests,
	track: func(e *engine, f *fact.Fact, n novelty) {
		e.findings.reportEventFindings(nil, f)
		if n == novel {
			e.mandates.CheckEvidence(f)
		}
	},
	noteNumber:  func(e *engine, f *fact.Fact) { e.mandates.NoteNumber(f) },
	unreadable:  func(strictjson.Code) string { return "AUMP-E-001" },
	equivalents: map[findingCase][]string{{DuplicateEventConflict, ""}: {"AUMP-E-012"}},
}

// applyMandateChange takes what changed among the mandates.
func (c *Correlator) applyMandateChange(m events.LogMessage, p subject.Parsed) {
	if c.shard != "" && fact.TokenOf(p.Shard) != subject.Escape(c.shard) {
		return
	}
	change, err := events.DecodeRecord[events.MandateChange](m.Body)
	if err != nil {
		return
	}
	c.engine.mandates.ApplyChange(change, m.Time)
}
