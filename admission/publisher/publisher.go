// Package publisher holds what a tenant's operator declares about publishers and tools:
// AgentHook publisher manifests, registrations that bind a manifest to an authenticated
// publisher, and tool catalogues. It reads and compiles the documents (Parse, Compile) and
// compares a request's claims with them (Judge). Begin reading with Registry.
//
// A catalogue gives every tool one canonical name and lists the names under which providers
// offer it. Names are exact bytes: a name that differs from a known one only in case is
// refused; an unknown name stays unknown, and policies can see that.
//
// The package can only make a verdict stricter. A request states which tool it means; the
// catalogue states what the tool does. Where both state the same property, the stricter value
// counts.
//
// Documents that cannot be used deny everything of their tenant until they are corrected: their
// requirements must not be lost.
package publisher

import (
	"github.com/countersign-dev/countersign/admission/risk"
	"github.com/countersign-dev/countersign/events"
)

// EvaluatorName is the name under which the catalogue gives its reasons.
const EvaluatorName = "catalogue"

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

// Registry looks up the documents of all tenants. It is immutable.
type Registry interface {
	// Lookup returns the tenant's catalogue entry for a tool name as the authenticated
	// publisher source sends it.
	Lookup(tenant, source, tool string) Tool

	// IrreversibleAction reports whether an irreversible tool of the tenant performs an AUMP action: the action's
	// type is the tool's Binding.Action or, as source sends it, a name of the tool.
	IrreversibleAction(tenant, source, action string) bool

	// Declared returns the declaration of a publisher: source is authenticated, family is what
	// an event states about itself.
	Declared(tenant, source, family string) Declared

	// Agents returns all agents that the registrations of an authenticated publisher name, by
	// the ids of mandates; none if they name none.
	Agents(tenant, source string) []string

	// State names the documents of a tenant, nil if it has none.
	State(tenant string) *events.SnapshotRef
}

// NameStatus is the status of a tool name in a tenant's catalogue.
type NameStatus int

// The statuses.
const (
	NoCatalogue NameStatus = iota
	Unknown
	Known
	CaseDiffers // in case only, from a known name
	Broken      // unknown: the tenant's documents cannot be used
)

// Tool is the result of a catalogue lookup.
type Tool struct {
	Status NameStatus
	Entry  *Entry // not nil if and only if it is Known
	tenant *tenant
}

// Canonical reports whether a name is the canonical name of some tool.
func (t Tool) Canonical(name string) bool { return t.tenant != nil && t.tenant.canonical[name] != nil }

// Facts are what policies see as catalog. The map must not be changed. Its members are always
// present: known (bool), name, category, risk ("" for an unknown tool, "unknown" where the
// catalogue does not state it), irreversible (bool) and requires (a list).
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
	Category     string // public_read private_read write unknown; "" if not stated
	Risk         string // a risk class of AHP-013, or "write" or "external_transfer"; "" if not stated
	Irreversible bool   // stated, or implied by the risk
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

// Binding states which mandate action a tool performs, and where its arguments hold the money.
type Binding struct {
	Action     string // proposed_action.type; "" for any
	TotalMinor string // JSON pointer into the arguments, "" for none
	Currency   string // JSON pointer into the arguments, or a currency
}

// Declared is the declaration of a publisher.
type Declared struct {
	// Registered reports that the authenticated publisher has a registration. If Declaration is
	// nil then, no registration is for what the event states.
	Registered bool
	*Declaration
}

// Declaration is a manifest with the additions of a registration.
type Declaration struct {
	Publisher        string   // authenticated; "" for an unregistered manifest
	AdmissionBound   bool     // must keep to the profile admission-bound
	ActionGovernance bool     // must keep to the profile action-governance
	Agents           []string // that the publisher acts for, by the ids of mandates; nil if not stated
	FailMode         string   // fail_closed fail_open; "" if unknown
	ID               string   // publisher_id of the manifest
	Source           string   // the source in its events
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

// Support is the manifest's support word for a type of event, "" if it does not name the type.
func (d *Declaration) Support(eventType string) string { return d.events[eventType] }

// Fingerprint is the fingerprint that the manifest expects of a hook, "" if none.
func (d *Declaration) Fingerprint(hookID string) string { return d.hooks[hookID] }
