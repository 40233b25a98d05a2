package correlation

import (
	"slices"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// What is derived from the table of protocols.

// eventMessage is an event as it came: its message, its subject, and the event's bytes.
type eventMessage struct {
	message events.LogMessage
	subject subject.Parsed
	data    []byte
	request bool // it is the admitter's copy of a request
}

// trackedSessions is how a protocol's sessions are followed. All of it is set.
type trackedSessions struct {
	restore     func(ts *trackers, w *protocolSession, f *fact, d trackerTombstone) // begins with what was kept
	storedItems func(w *protocolSession) int
	expire      func(ts *trackers, w *protocolSession) *catalogue.Finding // it has been idle for too long; what that proves, if anything
	tombstone   func(ts *trackers, w *protocolSession, d *trackerTombstone)
}

// findingCase is a rule of ours with the case of a finding.
type findingCase struct{ rule, caseOf string }

// orphanRules are the rules and checks under which an orphan finding is made.
var orphanRules []string

func setProtocols(rows ...*protocolRow) {
	protocols, orphanRules = rows, []string{OrphanCompletion}
	for _, p := range rows {
		if p.wordCode != 0 {
			codedWords[p.wordCode-1] = p.token
		}
		for of, checks := range p.equivalents {
			if of.rule == OrphanCompletion {
				orphanRules = append(orphanRules, checks...)
			}
		}
	}
	slices.Sort(orphanRules)
}

// protocolWordCode is how a compacted call writes the name of a protocol; 0: in full.
func protocolWordCode(token string) byte { return rowOf(token).wordCode }

// isTraceType reports whether an event is one that the admitter itself writes in the name
// of a publisher. Those are signed like decisions; only the admitter may write them.
func isTraceType(protocol, eventType string) bool {
	t := rowOf(protocol).traceType
	return t != "" && t == eventType
}

// reasonsSaid is what the reasons of a decision say that later events are held against.
type reasonsSaid struct {
	mandateFlags     mandateFlags
	otherFingerprint bool // see fingerprintReason
}

// readReasons reads the reasons that evaluators of protocols gave.
func readReasons(reasons []events.Reason) (x reasonsSaid) {
	for i := range reasons {
		if read := rowOf(reasons[i].Evaluator).readReason; read != nil {
			said := read(&reasons[i])
			x.mandateFlags |= said.mandateFlags
			x.otherFingerprint = x.otherFingerprint || said.otherFingerprint
		}
	}
	return x
}
