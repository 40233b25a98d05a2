package checks

import (
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
)

// evidenceChecks are the checks of AUMP evidence events: what the published
// evaluators ask of them (their reason codes are the references), and what their
// numbers and hashes promise (AUMP's runtime level). AUMP gives its checks no
// identifiers; these are ours.
var evidenceChecks = []catalogue.Check{
	specification.Check("001", "evidence-event.schema.json", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "An evidence event does not follow the schema.", "Have the runtime validate evidence before it publishes it; the bytes are in the log."),
	specification.Check("002", "evidence_mandate_mismatch", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "event, recorded decisions of its session", "An evidence event names another mandate than the session's decisions were made under.", fixMandate),
	specification.Check("003", "evidence_mandate_hash_mismatch", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "event, changes of mandates and recorded decisions", "An evidence event names a mandate with another hash than it ever had.", fixMandate),
	specification.Check("004", "mandate_inactive", catalogue.Must, events.SeverityHigh, catalogue.ScopeSession, "events that say allowed, changes of mandates", "Something was allowed under a mandate that had been revoked.", "Have what was done reviewed; make the runtime ask whether a mandate still holds."),
	specification.Check("005", "mandate_expired, mandate_inactive, scope_violation", catalogue.Must, events.SeverityHigh, catalogue.ScopeSession, "events that say allowed, and decisions before them under the mandate of that very hash, which found it expired, not begun or without bounds; the mandate itself is not on the log", "Something was allowed under a mandate that had expired, not begun, or has no bounds.", fixMandate),
	specification.Undecidable("006", "evidence_event_type_not_required", catalogue.Must, catalogue.ScopeEvent, "event, mandate", "An evidence event is of a type that its mandate does not ask for.", "The log names private mandates by id and hash only; countersign mandate validate decides it."),
	specification.Undecidable("007", "evidence_retention_mismatch", catalogue.Must, catalogue.ScopeEvent, "event, mandate", "An evidence event is kept otherwise than its mandate wants.", "The log names private mandates by id and hash only; countersign mandate validate decides it."),
	specification.Check("008", "evidence_private_field_leak", catalogue.Must, events.SeverityHigh, catalogue.ScopeEvent, "event, by what it says of itself; full transcripts may hold them", "An evidence event holds private fields that its retention does not allow.", "Keep private fields out of evidence; erase this session's secrets if they got into it."),
	specification.Check("009", "hashes.event_hash", catalogue.Derived, events.SeverityMedium, catalogue.ScopeEvent, "event", "An evidence event's own hash is not its hash.", fixHashes),
	specification.Check("010", "hashes.previous_event_hash", catalogue.Derived, events.SeverityMedium, catalogue.ScopeSession, "events of a mandate, in order of their numbers", "An evidence event is not chained to the one before it.", fixHashes),
	specification.Check("011", "sequence", catalogue.Derived, events.SeverityLow, catalogue.ScopeSession, "events of a mandate", "The numbers of a mandate's evidence do not run from one in steps of one.", "Number a mandate's evidence from 1, without gaps, however many runtimes record it."),
	specification.Check("012", "id", catalogue.Derived, events.SeverityMedium, catalogue.ScopeSession, "events of the publisher", "One evidence id came with two contents.", catalogue.FixIDs),
}

const (
	fixMandate = "Make the runtime write the id and hash of the mandate that was decided under; countersign mandate list has them."
	fixHashes  = "Compute hashes over the RFC 8785 form of the event without its own hash, and publish evidence in order."
)
