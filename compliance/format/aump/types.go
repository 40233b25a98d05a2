package aump

import (
	"slices"

	"github.com/countersign-dev/countersign/events"
)

// evidenceType is a type of evidence event that an evaluation is evidence of. What the other party does
// (offer_received, counteroffer_received) and what the runtime shows (checkout_presented) are the runtime's to report: it
// publishes such events itself.
type evidenceType struct {
	name    string
	applies func(d events.Decision, request map[string]any) bool
}

// evidenceTypes are the types of this package, in the order in which one decision is written. AUMP has no
// closed list of types: these are the ones that its published mandates require.
var evidenceTypes = []evidenceType{
	{"disclosure_evaluated", func(_ events.Decision, request map[string]any) bool {
		action, _ := request["proposed_action"].(map[string]any)
		fields, _ := action["disclosures"].([]any)
		return len(fields) > 0
	}},
	{"escalation_requested", isEscalation},
	{"approval_requested", isEscalation},
	{"offer_sent", isAllowed("make_offer")},
	{"counteroffer_sent", isAllowed("counteroffer", "make_counteroffer")},
	{"listing_created", isAllowed("create_listing")},
	{"cart_created", isAllowed("create_cart")},
	{"ap2_intent_created", isAllowed("create_ap2_intent", "create_ap2_intent_mandate")},
	{"deal_accepted", isAllowed("accept_deal")},
	{"deal_denied", func(d events.Decision, _ map[string]any) bool {
		return d.Tool == "accept_deal" && d.Verdict == events.Deny
	}},
	{EventType, func(events.Decision, map[string]any) bool { return true }},
}

// isDecided reports whether evaluations are evidence of a type.
func isDecided(name string) bool {
	return slices.ContainsFunc(evidenceTypes, func(t evidenceType) bool { return t.name == name })
}

func isEscalation(d events.Decision, _ map[string]any) bool {
	return d.Verdict == events.Ask || d.Verdict == events.Defer
}

// isAllowed applies to an allowed action of one of the types. Allowed is what the evidence proves: that
// it was done is for the runtime to say.
func isAllowed(actions ...string) func(events.Decision, map[string]any) bool {
	return func(d events.Decision, _ map[string]any) bool {
		return d.Verdict == events.Allow && slices.Contains(actions, d.Tool)
	}
}

// typesOf are the types of the events of a decision: those that the mandate requires, and without
// such a list the type that fits every decision.
func typesOf(d events.Decision, request map[string]any, required []string) (list []string) {
	if len(required) == 0 {
		return []string{EventType}
	}
	for _, t := range evidenceTypes {
		if slices.Contains(required, t.name) && t.applies(d, request) {
			list = append(list, t.name)
		}
	}
	return list
}
