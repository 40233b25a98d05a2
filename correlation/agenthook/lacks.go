package agenthook

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
)

// A web event that follows from something that no event reported breaks a check. If an event
// reports that later, and by its producer's clock it came in time, the finding is retracted:
// the events only overtook each other. If it came later by that clock as well, the finding
// stands.

// maxPrerequisites bounds the findings of a session that may be retracted in this way. The
// oldest is forgotten.
const maxPrerequisites = 64

// prerequisiteKind is the kind of something that a web event follows from.
type prerequisiteKind uint8

const (
	needsParentEvent prerequisiteKind = iota
	needsSearch
	needsResultSet
	needsAction
	needsEvidence
	needsOutputEvent
)

// missingPrerequisite is something that a web event needed and no event had reported.
type missingPrerequisite struct {
	kind           prerequisiteKind
	ids            []string // all are needed
	event          eventRef
	at             time.Time      // the time of the event that needed it
	selectedResult selectedResult // of a result set
	finding        *catalogue.Finding
}

// missingPrerequisites are the prerequisites that findings rest on, the oldest first.
type missingPrerequisites struct{ list []*missingPrerequisite }

// add records what a finding rests on. Without ids and times no later event can satisfy it.
func (ms *missingPrerequisites) add(x *Event, finding *catalogue.Finding, kind prerequisiteKind, ids ...string) {
	if x.Time.IsZero() || len(finding.Events) == 0 {
		return
	}
	if len(ms.list) >= maxPrerequisites {
		ms.list = append(ms.list[:0], ms.list[1:]...)
	}
	ms.list = append(ms.list, &missingPrerequisite{kind, ids, x.eventRef(), x.Time, x.webBlock.selectedResult, finding})
}

// satisfy retracts the findings that x satisfies, and calls judge for each, to make the checks
// that had to wait. An event does not satisfy its own prerequisite.
func (ms *missingPrerequisites) satisfy(out *findingList, x *Event, kind prerequisiteKind, id string, judge func(out *findingList, m *missingPrerequisite, id string)) {
	ms.list = slices.DeleteFunc(ms.list, func(m *missingPrerequisite) bool {
		late := x.Time.IsZero() || x.Time.After(m.at) && kind != needsOutputEvent // an output may be reported after what it cites
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
