// Package publisher is what a tenant's operator declares about publishers and
// tools: AgentHook publisher manifests, registrations that bind a manifest to an
// authenticated publisher, and tool catalogues. It reads and compiles the
// documents and judges what a request claims by them.
//
// A catalogue gives every tool one canonical name and lists the names under
// which providers offer it. Names are exact bytes: a name that differs from a
// known one in its case alone is refused, one that is not known stays unknown
// and policies can see that it is.
//
// Everything here can only make a verdict stricter. A request says which tool it
// means; the catalogue knows what the tool does. Where both speak, the
// stricter word counts.
//
// Documents that cannot be used deny everything of their tenant until they are
// mended: what they required must not be forgotten.
package publisher

import (
	"github.com/countersign-dev/countersign/admission/risk"
	"github.com/countersign-dev/countersign/events"
)

// Evaluator is the name under which the catalogue gives its reasons.
const Evaluator = "catalogue"

// Reason codes of the catalogue.
const (
	CodeBroken           = "catalogue_error"         // the tenant's publisher documents cannot be used
	CodeNameCase         = "tool_name_case"          // the name of a catalogued tool in another case
	CodeUncatalogued     = "tool_not_catalogued"     // changes no verdict: the name is in no catalogue
	CodeIdentity         = "tool_identity_mismatch"  // the tool identity that the request names is not the one in the catalogue
	CodeSchema           = "tool_schema_mismatch"    // the schema hash that the request names is not the one in the catalogue
	CodeSchemaRequired   = "schema_hash_required"    // the catalogue has a schema hash for the tool and the request names none
	CodeCategory         = "tool_category_mismatch"  // a contract says that the tool does less than it does
	CodeMandateRequired  = "mandate_required"        // the catalogue wants a mandate for this tool and the request carries none
	CodeContractRequired = "contract_required"       // the catalogue wants an AANA contract for this tool and the request carries none
	CodeMandateAction    = "mandate_action_mismatch" // the action that the mandate is asked for is not what the tool does
	CodeMandateAmount    = "mandate_amount_mismatch" // the amount that the mandate is asked for is not the amount in the arguments
)

// Registry knows the documents of all tenants. It is immutable.
type Registry interface {
	// Lookup gives what the tenant's catalogue says of a tool name as the
	// authenticated publisher source sends it.
	Lookup(tenant, source, tool string) Tool

	// Declared gives what is declared of a publisher: source is authenticated,
	// family is what an event says of itself.
	Declared(tenant, source, family string) Declared

	// Agents gives the agents that the registrations of an authenticated publisher name
	// together, by the ids of mandates; none if they do not say.
	Agents(tenant, source string) []string

	// State names the documents of a tenant, nil if it has none.
	State(tenant string) *events.SnapshotRef
}

// NameStatus is how a tool name stands to a tenant's catalogue.
type NameStatus int

// The standings.
const (
	NoCatalogue NameStatus = iota
	Unknown
	Known
	CaseDiffers // from a known name
	Broken      // nothing can be said: the tenant's documents are not usable
)

// Tool is what a catalogue says of a name.
type Tool struct {
	Status NameStatus
	Entry  *Entry // not nil if and only if it is Known
	tenant *tenant
}

// Canonical reports whether a name is the canonical name of some tool.
func (t Tool) Canonical(name string) bool { return t.tenant != nil && t.tenant.canonical[name] != nil }

// Facts are what policies see as catalog. The map must not be changed. Its
// members are always there: known (bool), name, category, risk ("" where the
// tool is not known, "unknown" where the catalogue does not say), irreversible
// (bool) and requires (a list).
func (t Tool) Facts() map[string]any {
	if t.Entry == nil {
		return unknownFacts
	}
	return t.Entry.facts
}

var unknownFacts = map[string]any{"known": false, "name": "", "category": "", "risk": "", "irreversible": false, "requires": []any{}}

// Entry is one tool of a catalogue. It is immutable.
type Entry struct {
	Name         string // canonical
	Category     string // public_read private_read write unknown; "" if the catalogue does not say
	Risk         string // a risk class of AHP-013, or "write" or "external_transfer"; "" if the catalogue does not say
	Irreversible bool   // said so, or by its risk
	SchemaHashes []string
	Requires     []string
	Mandate      Binding

	level risk.Level
	facts map[string]any
}

// Requirements of an entry.
const (
	RequireMandate    = "mandate"
	RequireContract   = "contract"
	RequireSchemaHash = "schema_hash"
)

// Binding says which action of a mandate a tool is, and where its arguments hold
// the money.
type Binding struct {
	Action     string // proposed_action.type; "" for any
	TotalMinor string // JSON pointer into the arguments, "" for none
	Currency   string // JSON pointer into the arguments, or a currency
}

// Declared is what is known of a publisher.
type Declared struct {
	// Registered says that there is a registration for the authenticated publisher.
	// If Declaration is nil then, none of them is for what the event says it is.
	Registered bool
	*Declaration
}

// Declaration is a manifest, and what a registration adds to it.
type Declaration struct {
	Publisher        string   // authenticated; "" for a manifest that nobody registered
	AdmissionBound   bool     // must keep to the profile admission-bound
	ActionGovernance bool     // must keep to the profile action-governance
	Agents           []string // that the publisher acts for, by the ids of mandates; nil if a registration does not say
	FailMode         string   // fail_closed fail_open; "" if it is not known
	ID               string   // publisher_id of the manifest
	Source           string   // what its events say in source
	Limitations      []string

	events map[string]string
	hooks  map[string]string // expected fingerprints by hook_id
}

// Support words of manifests.
const (
	Supported  = "supported"
	Partial    = "partial"
	NotExposed = "not_exposed"
	Planned    = "planned"
)

// Support is the manifest's word for a type of event, "" if it does not name it.
func (d *Declaration) Support(eventType string) string { return d.events[eventType] }

// Fingerprint is what the manifest expects of a hook, "" if it does not say.
func (d *Declaration) Fingerprint(hookID string) string { return d.hooks[hookID] }
