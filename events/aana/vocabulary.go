package aana

import "slices"

// ContractVersion names version 1 of the contract: the only value that an
// event's schema_version may have, and the contract_version of every result.
const ContractVersion = "aana.agent_tool_precheck.v1"

// Route is the decision for a call: accept < ask < defer < refuse.
type Route string

// The routes of a tool call, from the least to the most strict.
const (
	Accept Route = "accept"
	Ask    Route = "ask"
	Defer  Route = "defer"
	Refuse Route = "refuse"
)

var routes = []Route{Accept, Ask, Defer, Refuse}

// Routes lists every route in order of strictness; the caller may change it.
func Routes() []Route { return slices.Clone(routes) }

// Strictness is the place of r in the lattice, 0 for accept up to 3 for refuse. An unknown
// route counts as refuse.
func (r Route) Strictness() int {
	if i := slices.Index(routes, r); i >= 0 {
		return i
	}
	return len(routes) - 1
}

// Stricter returns the stricter of two routes.
func Stricter(a, b Route) Route { return routes[max(a.Strictness(), b.Strictness())] }

// State is the strength of an authorization: none < user_claimed < authenticated < validated <
// confirmed.
type State string

// The authorization states, from the weakest to the strongest.
const (
	None          State = "none"
	UserClaimed   State = "user_claimed"
	Authenticated State = "authenticated"
	Validated     State = "validated"
	Confirmed     State = "confirmed"
)

var states = []State{None, UserClaimed, Authenticated, Validated, Confirmed}

// States lists every state in order of strength; the caller may change it.
func States() []State { return slices.Clone(states) }

// Strength is the place of s in the order, 0 for none up to 4 for confirmed. An unknown state
// is as weak as none.
func (s State) Strength() int { return max(0, slices.Index(states, s)) }

// Category is the consequence class of a tool call.
type Category string

// The categories.
const (
	PublicRead  Category = "public_read"
	PrivateRead Category = "private_read"
	Write       Category = "write"
	Unknown     Category = "unknown"
)

var categories = []Category{PublicRead, PrivateRead, Write, Unknown}

// Categories lists every category; the caller may change it.
func Categories() []Category { return slices.Clone(categories) }

var riskDomains = []string{"devops", "finance", "education", "hr", "legal", "pharma", "healthcare", "commerce", "customer_support", "security",
	"research", "personal_productivity", "public_information", "unknown"}

// RiskDomains lists every risk_domain; the caller may change it.
func RiskDomains() []string { return slices.Clone(riskDomains) }

// Kinds of evidence that the algorithm uses; the schema lists all kinds.
const (
	KindUserMessage = "user_message"
	KindToolResult  = "tool_result"
	KindPolicy      = "policy"
	KindAuthEvent   = "auth_event"
	KindApproval    = "approval"
	KindSystemState = "system_state"
	KindOther       = "other"
)

// Trust tiers of evidence.
const (
	TrustVerified    = "verified"
	TrustRuntime     = "runtime"
	TrustUserClaimed = "user_claimed"
	TrustUnverified  = "unverified"
	TrustUnknown     = "unknown"
)

// Redaction statuses of evidence.
const (
	RedactionPublic    = "public"
	RedactionRedacted  = "redacted"
	RedactionSensitive = "sensitive"
	RedactionUnknown   = "unknown"
)

// Freshness statuses of evidence.
const (
	Fresh            = "fresh"
	Stale            = "stale"
	FreshnessUnknown = "unknown"
)
