package aaep

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/schemas"
)

// Version is the version of AAEP that the gateway speaks.
const Version = "1.0.0"

// Context is the context URI of AAEP's documents.
const Context = "https://aaep-protocol.org/context/v1"

// Terms are what the gateway offers.
type Terms struct {
	AgentID        string
	ManifestURI    string // "" if the gateway does not know its address
	SignedManifest string // compact JWS; "" if the gateway has no key
	Languages      []string
	MaxRate        int // events per second of one subscription that is not critical; 0 for no bound
}

// Manifest is the producer manifest (5.10).
func (t Terms) Manifest() map[string]any {
	return map[string]any{
		"@context": Context, "type": "aaep:producer.manifest", "agent_id": t.AgentID, "agent_version": "1", "agent_name": "Countersign gateway",
		"aaep_versions_supported": []string{Version}, "conformance_levels_supported": []int{1, 2, 3}, "transports_supported": []string{"sse", "websocket"},
		"languages_supported": t.Languages, "event_types_emitted": []string{"aaep:agent.*"}, "extensions_supported": []string{}, "default_verbosity": "normal",
	}
}

// Filters choose events by type: exact, or a beginning with *.
type Filters struct {
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
}

// Capabilities are what a subscription is given. A capability that the gateway does not honour is
// absent: it forwards the producer's events and does not translate, shorten or join them.
type Capabilities struct {
	MaxEventsPerSecond int      `json:"max_events_per_second,omitempty"`
	Languages          []string `json:"languages,omitempty"`
	ConfirmationReply  bool     `json:"supports_confirmation_reply"`
	ClarificationReply bool     `json:"supports_clarification_reply"`
	Filters            *Filters `json:"event_filters,omitempty"`
	Levels             []int    `json:"supported_conformance_levels,omitempty"`
	SignedOnly         bool     `json:"accept_signed_manifests_only,omitempty"`
}

// Rejection is a subscription.rejected.
type Rejection struct {
	Type       string `json:"type"`
	Code       string `json:"reason_code"`
	Message    string `json:"reason_message"`
	RetryAfter int    `json:"retry_after_seconds,omitempty"`
}

// Codes of a Rejection (5.5.3).
const (
	VersionUnsupported       = "version_unsupported"
	SignatureRequired        = "manifest_signature_required"
	CapabilitiesIncompatible = "capabilities_incompatible"
	RateLimit                = "rate_limit"
	TransportUnavailable     = "transport_unavailable"
	Unknown                  = "unknown"
)

// Reject makes a rejection.
func Reject(code, message string, retryAfter int) *Rejection {
	return &Rejection{TypeRejected, code, message, retryAfter}
}

// Acceptance is a subscription.accepted.
type Acceptance struct {
	Type           string            `json:"type"`
	Subscription   string            `json:"subscription_id"`
	Version        string            `json:"aaep_version"`
	Producer       map[string]string `json:"producer"`
	Honored        Capabilities      `json:"honored_capabilities"`
	ManifestURI    string            `json:"manifest_uri,omitempty"`
	SignedManifest string            `json:"signed_manifest,omitempty"`
	Notes          string            `json:"negotiation_notes,omitempty"`
}

const notes = "The gateway forwards the producers' events as they are: verbosity, boundaries and pace are the producers'. An output in another language than those honoured is left out (none is if none is honoured); nothing is translated."

// reserved are the prefixes that no extension may take (7.3.2).
var reserved = []string{"aaep", "xsd", "rdf", "rdfs"}

// core are the capabilities that AAEP names.
var core = []string{"max_events_per_second", "preferred_verbosity", "languages", "supports_confirmation_reply", "supports_clarification_reply", "coalesce_boundaries",
	"event_filters", "supported_conformance_levels", "supported_extensions", "cognitive_load", "pace_wpm", "accept_signed_manifests_only"}

// Negotiate answers a subscription.request: either the subscription, or the rejection.
func Negotiate(t Terms, m Message, id string) (*Subscription, *Rejection) {
	switch {
	case m.Version != "" && !strings.HasPrefix(m.Version, "1."): // its schema is another
		return nil, Reject(VersionUnsupported, "this gateway speaks AAEP "+Version, 0)
	case m.flaw != nil:
		return nil, rejectFlaw(*m.flaw)
	}
	s := &Subscription{ID: id, terms: t, asked: m.capabilities}
	if r := s.agree(m.extensions); r != nil {
		return nil, r
	}
	return s, nil
}

// rejectFlaw rejects a request that breaks its schema. It names capabilities of AAEP alone.
func rejectFlaw(v schemas.Violation) *Rejection {
	switch name := capabilityOf(v); {
	case slices.Contains(core, name):
		return Reject(CapabilitiesIncompatible, "the capability "+name+" has a value that cannot be honoured", 0)
	case name != "":
		return Reject(CapabilitiesIncompatible, "a capability that AAEP does not name must be an object", 0)
	}
	return Reject(Unknown, "the request does not follow AAEP's schema", 0)
}

// agree computes what is honoured of what was asked: never more.
func (s *Subscription) agree(extensions map[string]json.RawMessage) *Rejection {
	for _, names := range []map[string]json.RawMessage{s.asked, extensions} {
		for name := range names {
			if slices.Contains(reserved, name) || strings.HasPrefix(name, "@") {
				return Reject(CapabilitiesIncompatible, "the extension prefix "+name[:min(len(name), 16)]+" is reserved", 0)
			}
		}
	}
	known := maps.Clone(s.asked)
	maps.DeleteFunc(known, func(name string, _ json.RawMessage) bool { return !slices.Contains(core, name) })
	var asked Capabilities
	if b, err := json.Marshal(known); err != nil || json.Unmarshal(b, &asked) != nil {
		return Reject(CapabilitiesIncompatible, "a capability has a value that cannot be honoured", 0)
	}
	if asked.SignedOnly && s.terms.SignedManifest == "" {
		return Reject(SignatureRequired, "this gateway's manifest is not signed", 0)
	}
	s.asked, s.honored = known, asked // names that nothing reads are not kept
	if limit := s.terms.MaxRate; limit > 0 && (asked.MaxEventsPerSecond == 0 || asked.MaxEventsPerSecond > limit) {
		s.honored.MaxEventsPerSecond = limit
	}
	s.honored.Languages = slices.DeleteFunc(slices.Clone(asked.Languages), func(l string) bool { return !speaks(s.terms.Languages, l) })
	return nil
}

// speaks compares language tags without regard to case; a bare language matches its regions.
func speaks(list []string, tag string) bool {
	return slices.ContainsFunc(list, func(l string) bool {
		return strings.EqualFold(l, tag) || len(tag) > len(l) && tag[len(l)] == '-' && strings.EqualFold(tag[:len(l)], l)
	})
}
