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

// missingPrerequisites are what findings rest on, the oldest first.
type missingPrerequisites struct{ list []*missingPrerequisite }

// add remembers what a finding rests on. Without ids and times of its events no event can take it back.
func (ms *missingPrerequisites) add(x *Event, finding *catalogue.Finding, kind prerequisiteKind, ids ...string) {
	if x.Time.IsZero() || len(finding.Events) == 0 {
		return
	}
	if len(ms.list) >= maxPrerequisites {
		ms.list = append(ms.list[:0], ms.list[1:]...)
	}
	ms.list = append(ms.list, &missingPrerequisite{kind, ids, x.eventRef(), x.Time, x.webBlock.selectedResult, finding})
}

// satisfy retracts the findings that rested on something that x tells of, and calls judge with each for
// the checks that could not be made before. No event satisfies its own prerequisite.
func (ms *missingPrerequisites) satisfy(out *findingList, x *Event, kind prerequisiteKind, id string, judge func(out *findingList, m *missingPrerequisite, id string)) {
	ms.list = slices.DeleteFunc(ms.list, func(m *missingPrerequisite) bool {
		late := x.Time.IsZero() || x.Time.After(m.at) && kind != needsOutputEvent // an output may be told of behind what it cites
		if m.kind != kind || m.event.id == x.ID || late || !slices.Contains(m.ids, id) {
			return false
		}
		m.ids = slices.DeleteFunc(m.ids, func(known string) bool { return known == id })
		if len(m.ids) > 0 {
			return false
		}
		out.retract(m.finding, "what it follows from had been overtaken", m.event, x.eventRef())
		judge(out, m, id)
		return true
	})
}

func (ms *missingPrerequisites) storedItems() int {
	n := len(ms.list)
	for _, m := range ms.list {
		n += len(m.ids)
	}
	return n
}
