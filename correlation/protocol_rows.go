package correlation

import (
	"slices"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/correlation/catalogue"
)

// What is derived from the table of protocols.

// trackedSessions is how a protocol's sessions are followed. All of it is set.
type trackedSessions struct {
	restore     func(ts *trackers, w *protocolSession, f *fact.Fact, d trackerTombstone) // begins with what was kept
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
			codedWords[p.wordCode-1] = p.Token
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
