package publisher

import (
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
)

// maxRecordError bounds the recorded error of an unusable document, and maxAbsent the recorded
// event types of a manifest.
const (
	maxRecordError = 256
	maxAbsent      = 64
)

func truncateError(s string) string { return strings.ToValidUTF8(s[:min(maxRecordError, len(s))], "") }

// recordForm is the log's form of what a document declares, nil if that is nothing.
func (p Parsed) recordForm() *events.PublisherDeclares {
	d := p.declaration
	switch {
	case d == nil && p.reached.answers:
		return &events.PublisherDeclares{Publisher: p.reached.publisher, Answers: true}
	case d == nil:
		return nil
	}
	r := &events.PublisherDeclares{Publisher: d.Publisher, Source: d.Source, FailMode: d.FailMode, Limitations: len(d.Limitations), Answers: p.reached.answers}
	if d.ActionGovernance {
		r.Profiles = append(r.Profiles, events.ProfileActionGovernance)
	}
	if d.AdmissionBound {
		r.Profiles = append(r.Profiles, events.ProfileAdmissionBound)
	}
	for _, name := range slices.Sorted(maps.Keys(d.events)) {
		if len(name) > maxAbsent {
			continue
		}
		switch support := d.events[name]; {
		case (support == NotExposed || support == Planned) && len(r.Absent) < maxAbsent:
			r.Absent = append(r.Absent, name)
		case support == Partial && len(r.Partial) < maxAbsent:
			r.Partial = append(r.Partial, name)
		}
	}
	return r
}
