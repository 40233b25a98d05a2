// Package aana is the typed model of events of the AANA Agent Action Contract v1. It reads and
// does not judge: package schemas validates events, and package admission/aana decides on them.
// Begin reading with Decode.
//
// Evidence references have two forms: structured ones, and plain strings for quick starts.
// Normalise converts both into one; the model is a view of the normalised document.
package aana

import (
	"github.com/countersign-dev/countersign/events/internal/field"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// FieldError reports a known field of another JSON type than the contract's. Path is its JSON
// pointer. It never holds the field's value.
type FieldError = field.Error

// Event is one proposed tool call. Fields that the document lacks are zero. An Event and
// everything it points to must not be changed.
type Event struct {
	ToolName    string
	Category    Category
	Authorized  State // authorization_state, as declared
	Evidence    []EvidenceRef
	RiskDomain  string
	Arguments   map[string]any // proposed_arguments; nil if absent, an empty object is not nil
	Recommended Route          // recommended_route: the runtime's own proposal

	SchemaVersion string
	RequestID     string
	AgentID       string
	UserIntent    string
	Subject       *Subject // nil if absent

	// Tree is the document with its evidence references normalised. Sent is the document as sent.
	// They share what they can.
	Tree, Sent map[string]any
	Doc        strictjson.Value // of Tree, for the schema
}

// Subject is the party of the checked authorization.
type Subject struct{ Type, Ref string }

// EvidenceRef is one structured evidence reference. All its fields are the sender's claims.
type EvidenceRef struct {
	SourceID     string
	Kind         string
	TrustTier    string
	Redaction    string // redaction_status
	Summary      string
	RetrievedAt  string
	CitationURL  string
	RetrievalURL string
	Provenance   string
	Supports     []string
	Contradicts  []string
	Freshness    Freshness
}

// Freshness is the claimed age of a piece of evidence.
type Freshness struct {
	Status      string
	CheckedAt   string
	MaxAgeHours *float64 // nil if absent
	AgeHours    *float64 // nil if absent
	Source      string
}

// Decode reads one event and normalises its evidence references. The error is a
// *strictjson.Error (the bytes are not acceptable JSON or no object; the event is nil) or a
// *FieldError (a known field has the wrong JSON type, null included; the event is returned all
// the same, with that field empty, so that evidence can name it). Missing fields, unknown
// members and values outside a vocabulary are no errors here.
func Decode(raw []byte, lim strictjson.Limits) (*Event, error) {
	sent, err := strictjson.ParseObject(raw, lim)
	if err != nil {
		return nil, err
	}
	return Read(Normalise(sent), sent)
}

// Read is the typed view of a normalised document; see Decode for the error. Neither tree is
// changed.
func Read(normalised, sent map[string]any) (*Event, error) {
	e := &Event{Tree: normalised, Sent: sent, Doc: strictjson.FromTree(normalised)}
	var first *FieldError
	e.readFields(field.Root(e.Doc, &first))
	if first != nil {
		return e, first
	}
	return e, nil
}

func (e *Event) readFields(o field.Object) {
	e.ToolName = o.Text("tool_name")
	e.Category = Category(o.Text("tool_category"))
	e.Authorized = State(o.Text("authorization_state"))
	for _, ref := range o.Objects("evidence_refs") {
		e.Evidence = append(e.Evidence, readRef(ref))
	}
	e.RiskDomain = o.Text("risk_domain")
	e.Arguments = o.Map("proposed_arguments")
	e.Recommended = Route(o.Text("recommended_route"))
	e.SchemaVersion = o.Text("schema_version")
	e.RequestID = o.Text("request_id")
	e.AgentID = o.Text("agent_id")
	e.UserIntent = o.Text("user_intent")
	if s, ok := o.Child("authorization_subject"); ok {
		e.Subject = &Subject{Type: s.Text("subject_type"), Ref: s.Text("subject_ref")}
	}
}

func readRef(o field.Object) EvidenceRef {
	r := EvidenceRef{
		SourceID: o.Text("source_id"), Kind: o.Text("kind"), TrustTier: o.Text("trust_tier"), Redaction: o.Text("redaction_status"),
		Summary: o.Text("summary"), RetrievedAt: o.Text("retrieved_at"), CitationURL: o.Text("citation_url"),
		RetrievalURL: o.Text("retrieval_url"), Provenance: o.Text("provenance"), Supports: o.Texts("supports"), Contradicts: o.Texts("contradicts"),
	}
	if f, ok := o.Child("freshness"); ok {
		r.Freshness = Freshness{
			Status: f.Text("status"), CheckedAt: f.Text("checked_at"), Source: f.Text("source"),
			MaxAgeHours: f.Number("max_age_hours"), AgeHours: f.Number("age_hours"),
		}
	}
	return r
}

// ArgumentsCanonical returns the RFC 8785 form of proposed_arguments, for receipts and argument
// digests. It is nil if there are none.
func (e *Event) ArgumentsCanonical() ([]byte, error) {
	if e.Arguments == nil {
		return nil, nil
	}
	return strictjson.Canonical(e.Arguments)
}
