package agenthook

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
)

// A web event that follows from something that no event has told of breaks a check.
// If that is told of later, though it was there in time by its producer's clock, it
// was only overtaken on the way, and what was found is taken back. What was done
// afterwards is none of that: then the finding stands.

// maxPrerequisites bounds what a session remembers of such findings; the oldest is
// forgotten.
const maxPrerequisites = 64

// prerequisiteKind is what a web event can follow from.
type prerequisiteKind uint8

const (
	needsParentEvent prerequisiteKind = iota
	needsSearch
	needsResultSet
	needsAction
	needsEvidence
	needsOutputEvent
)

// missingPrerequisite is something that a web event needed and no event had told of.
type missingPrerequisite struct {
	kind           prerequisiteKind
	ids            []string // all of them are needed
	event          eventRef
	at             time.Time      // when the event that needed it was made
	selectedResult selectedResult // of a result set
	finding        *catalogue.Finding
}

// addMissing remembers what a finding rests on. Without ids and times of its events
// nothing can take it back.
func (s *Session) addMissing(x *Event, said *catalogue.Finding, what prerequisiteKind, ids ...string) {
	if x.Time.IsZero() || len(said.Events) == 0 {
		return
	}
	st := s.webState
	if len(st.missing) >= maxPrerequisites {
		st.missing = append(st.missing[:0], st.missing[1:]...)
	}
	st.missing = append(st.missing, &missingPrerequisite{what, ids, x.eventRef(), x.Time, x.webBlock.selectedResult, said})
}

// satisfyMissing takes back what was found because no event had told of something that the
// event tells of. Nothing follows from itself.
func (s *Session) satisfyMissing(x *Event, what prerequisiteKind, id string) {
	st := s.webState
	st.missing = slices.DeleteFunc(st.missing, func(l *missingPrerequisite) bool {
		late := x.Time.IsZero() || x.Time.After(l.at) && what != needsOutputEvent // an output may be told of behind what it cites
		if l.kind != what || l.event.id == x.ID || late || !slices.Contains(l.ids, id) {
			return false
		}
		l.ids = slices.DeleteFunc(l.ids, func(known string) bool { return known == id })
		if len(l.ids) > 0 {
			return false
		}
		b := s.addFinding(l.finding.Check, "what it follows from had been overtaken", l.event, x.eventRef())
		b.Replaces, b.RetractsOnly = l.finding, true
		s.judgeSatisfied(l, id)
		return true
	})
}

// judgeSatisfied makes the checks that could not be made before.
func (s *Session) judgeSatisfied(l *missingPrerequisite, id string) {
	switch l.kind {
	case needsResultSet:
		s.checkSelection(l.selectedResult, s.webState.resultSets.get(id), l.event)
	case needsAction:
		s.checkWebVerdict(s.webState.actions.get(id), l.event)
	}
}

// missingItems is how many things the lacks are.
func (st *webState) missingItems() int {
	n := len(st.missing)
	for _, l := range st.missing {
		n += len(l.ids)
	}
	return n
}
