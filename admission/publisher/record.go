package publisher

import (
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
)

// maxRecordError bounds what a record says of a document that cannot be used, and
// maxAbsent the types that it names of a manifest.
const (
	maxRecordError = 256
	maxAbsent      = 64
)

func truncateError(s string) string { return strings.ToValidUTF8(s[:min(maxRecordError, len(s))], "") }

// recordForm is what the log is told of a declaration, nil of none.
func (d *Declaration) recordForm() *events.PublisherDeclares {
	if d == nil {
		return nil
	}
	r := &events.PublisherDeclares{Publisher: d.Publisher, Source: d.Source, FailMode: d.FailMode, Limitations: len(d.Limitations)}
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
