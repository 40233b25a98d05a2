package aump

import (
	"time"

	"github.com/countersign-dev/countersign/events/internal/field"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Statuses, modes and disclosure defaults that affect decisions.
const (
	StatusActive   = "active"
	ModeAdvisory   = "advisory"
	ModeSupervised = "supervised"
	ModeDelegated  = "delegated"
	DiscloseAllow  = "allow"
	FullTranscript = "full_transcript"
)

// Mandate is what a principal allows an agent to do. Fields that the document lacks are zero;
// pointers are nil where absence differs from zero. A Mandate and everything it points to must
// not be changed.
type Mandate struct {
	Version     string // aump.version
	Type        string // aump.type
	ID          string
	Status      string
	IssuedAt    time.Time // zero if it is not RFC 3339
	ExpiresAt   time.Time // zero if it is not RFC 3339
	Principal   Principal
	Agent       Agent
	Purpose     Purpose
	Authority   Authority
	Preferences Preferences
	Negotiation Negotiation
	Disclosure  Disclosure
	Escalation  Escalation
	Evidence    EvidencePolicy
	Compliance  Compliance
	Signatures  []Signature

	Doc strictjson.Value // the whole document
	Raw []byte           // the bytes that DecodeMandate was given, not a copy
}

// IsUnbounded reports whether a delegated mandate has no objective bound: every request under it is denied.
func (m *Mandate) IsUnbounded() bool {
	p := m.Purpose
	bounds := len(m.Authority.ProhibitedActions) + len(p.AllowedCategories) + len(p.AllowedCounterparties) + len(p.ExcludedCounterparties)
	return m.Authority.Mode == ModeDelegated && m.Authority.Budget == nil && bounds == 0
}

// Principal is the represented party.
type Principal struct{ Subject string }

// Agent is the acting agent.
type Agent struct{ ID, Name string }

// Purpose bounds the use of a mandate.
type Purpose struct {
	Summary                string
	AllowedCategories      []string
	AllowedCounterparties  []string
	ExcludedCounterparties []string
}

// Authority states what the agent may do by itself.
type Authority struct {
	Mode              string
	Budget            *Budget
	Permissions       []string
	ProhibitedActions []string
	RequiresTrustedUI *bool // requires_trusted_ui_for_commitment; absent means true
}

// Budget bounds amounts, in minor units of Currency.
type Budget struct {
	Currency string
	MaxTotal int64
}

// Rule is a preference.
type Rule struct {
	ID        string
	Protected bool

	// The machine-readable form of a hard constraint. Op is "" if there is only text.
	Field string // attributes.… or terms.…
	Op    string // eq ne lt lte gt gte in not_in exists
	Value any    // as in the tree; nil if absent
}

// Preferences are the principal's preferences.
type Preferences struct {
	HardConstraints []Rule
	SoftPreferences []Rule
	PrivateNotes    []string
}

// Negotiation states how to negotiate.
type Negotiation struct{ ProtectedFields []string }

// DisclosureRule is a rule for one field.
type DisclosureRule struct{ Field string }

// Disclosure states what may be disclosed to whom.
type Disclosure struct {
	Default    string
	Allowed    []DisclosureRule
	Prohibited []DisclosureRule
}

// Escalation states when the principal must be asked.
type Escalation struct {
	RequiredConditions  []string
	ConfidenceThreshold *float64
	ContactModes        []string
	ApprovalTimeout     *int64 // seconds
}

// EvidencePolicy states what must be recorded, and how much of it.
type EvidencePolicy struct {
	Retention      string
	EventsRequired []string
}

// Compliance holds the additions of a regulated domain.
type Compliance struct {
	ProhibitedDecisionFactors []string
	ReviewRequiredActions     []string
}

// Signature is one signature on a mandate.
type Signature struct{ Type, Algorithm, KeyID, Value string }

// DecodeMandate reads one mandate. The error is a *strictjson.Error (the bytes are not
// acceptable JSON; the mandate is nil) or a *FieldError (a known field has the wrong JSON type;
// the mandate is returned all the same, with that field empty). Missing fields, unknown members
// and values outside a vocabulary are no errors here.
func DecodeMandate(raw []byte, lim strictjson.Limits) (*Mandate, error) {
	m := &Mandate{Raw: raw}
	doc, env, err := decodeDocument(raw, lim, m.readFields)
	if !doc.Exists() {
		return nil, err
	}
	m.Doc, m.Version, m.Type = doc, env.version, env.kind
	return m, err
}

// Tree is the whole document, as strictjson.Parse gives it. Each call makes it anew.
func (m *Mandate) Tree() map[string]any { return m.Doc.ObjectTree() }

func (m *Mandate) readFields(o field.Object) {
	m.ID, m.Status = o.Text("id"), o.Text("status")
	m.IssuedAt, m.ExpiresAt = field.Instant(o.Text("issued_at")), field.Instant(o.Text("expires_at"))
	m.Principal = readChild(o, "principal", readPrincipal)
	m.Agent = readChild(o, "agent", readAgent)
	m.Purpose = readChild(o, "purpose", readPurpose)
	m.Authority = readChild(o, "authority", readAuthority)
	m.Preferences = readChild(o, "preferences", readPreferences)
	m.Negotiation = readChild(o, "negotiation", readNegotiation)
	m.Disclosure = readChild(o, "disclosure", readDisclosure)
	m.Escalation = readChild(o, "escalation", readEscalation)
	m.Evidence = readChild(o, "evidence", readEvidencePolicy)
	m.Compliance = readChild(o, "compliance", readCompliance)
	m.Signatures = readEach(o, "signatures", readSignature)
}
