package aump

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	wire "github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// EvidenceSchema is the name of the schema that evidence events must satisfy.
const EvidenceSchema = "aump/evidence-event"

// checkEvidence returns the defects of an evidence event under a mandate; without any the event
// is valid. The event must satisfy its schema; a mandate that does not is a finding. m may be
// nil: then only the event itself is checked.
//
// Whether the mandate was usable is checked for the time at which the event was created, and
// only for events that report something as allowed: otherwise a denial because of expiry could
// never be recorded. The event's statement about its own privacy is not trusted: the event is
// also searched for the mandate's private notes.
func checkEvidence(m *mandate.Mandate, e *wire.Evidence) []Finding {
	var r Result
	if m != nil {
		r.compareMandate(m, e)
	}
	private := e.LeaksPrivately()
	if m != nil && m.Evidence.Retention != wire.FullTranscript {
		private = private || e.Privacy.ContainsPrivateFields || quotesPrivately(m, e)
	}
	if private {
		r.addFinding(wire.Denied, CodeEvidencePrivate, "$.privacy.contains_private_fields")
	}
	if !e.HashMatches() {
		r.addFinding(wire.Denied, CodeEvidenceChain, "$.hashes.event_hash")
	}
	return r.Findings
}

// compareMandate compares an event with its mandate.
func (r *Result) compareMandate(m *mandate.Mandate, e *wire.Evidence) {
	if m.Violations != nil {
		r.addFinding(wire.Denied, CodeSchemaInvalid, "$")
		return
	}
	if e.Result == wire.Allowed {
		r.Findings = append(r.Findings, stateFindings(m, e.CreatedAt)...)
	}
	switch {
	case e.Ref.ID != m.ID:
		r.addFinding(wire.Denied, CodeEvidenceMandate, "$.mandate_ref.id")
	case !sameHash(e.Ref.Hash, m.Hash):
		r.addFinding(wire.Denied, CodeEvidenceHash, "$.mandate_ref.hash")
	}
	if types := m.Evidence.EventsRequired; len(types) > 0 && !slices.Contains(types, e.EventType) {
		r.addFinding(wire.Denied, CodeEvidenceType, "$.event_type")
	}
	if e.Privacy.Retention != m.Evidence.Retention {
		r.addFinding(wire.Denied, CodeEvidenceRetain, "$.privacy.retention")
	}
}

func sameHash(sent, want string) bool {
	h, ok := wire.NormaliseHash(sent)
	return ok && h == want
}

// quotesPrivately reports whether a text of an event repeats a private note.
func quotesPrivately(m *mandate.Mandate, e *wire.Evidence) bool {
	texts := []string{e.Summary}
	if e.Action != nil {
		texts = append(texts, e.Action.Summary)
	}
	for v := range maps.Values(e.Metadata) {
		if s, ok := v.(string); ok {
			texts = append(texts, s)
		}
	}
	notes := quotableNotes(m.Preferences.PrivateNotes)
	return slices.ContainsFunc(texts, func(t string) bool { return quotesNote(notes, t) })
}

// documentViolations validates a document by a schema and adds its decoding error.
func documentViolations(schema string, doc strictjson.Value, version string, err error) []schemas.Violation {
	vs := schemas.Default().Validate(schema, doc)
	if len(vs) > 0 {
		return vs
	}
	var field *wire.FieldError
	if errors.As(err, &field) {
		vs = append(vs, schemas.Violation{Path: field.Path, Message: "must be " + field.Want})
	}
	if version != wire.Version {
		vs = append(vs, schemas.Violation{Path: "/aump/version", Message: "must be " + wire.Version + ", the only version this program knows"})
	}
	return vs
}

// unreadableTime reports leap seconds, which the schema's format accepts and time.Time cannot
// hold.
func unreadableTime(path string, t time.Time) []schemas.Violation {
	if !t.IsZero() {
		return nil
	}
	return []schemas.Violation{{Path: path, Message: "must be an RFC 3339 time that exists"}}
}
