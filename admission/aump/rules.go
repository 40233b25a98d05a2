package aump

import "github.com/countersign-dev/countersign/admission/call"

// profileRules is everything in which the profiles differ. The zero rules are the
// hardened ones.
type profileRules struct {
	acceptsAnyHash        bool // the hash in the request may be missing or another
	trustsContext         bool // trusted_ui_approved and approval are believed
	anyAgent              bool // the mandate's agent is not compared with the one that asks
	ignoresIssuedAt       bool // issued_at is not looked at
	advisoryMayCommit     bool // an advisory mandate may commit
	trustedUIOptional     bool // an absent requires_trusted_ui_for_commitment means false
	ignoresCounterparties bool // counterparties and categories are not looked at
	exactDisclosures      bool // fields are compared as the published evaluators do, contents are not looked at
}

var referenceRules = profileRules{
	acceptsAnyHash: true, anyAgent: true, trustsContext: true, ignoresIssuedAt: true, advisoryMayCommit: true, trustedUIOptional: true, ignoresCounterparties: true, exactDisclosures: true,
}

// rulesFor are the hardened rules for every profile but the reference's.
func rulesFor(p call.Profile) profileRules {
	if p == call.ProfileReferenceSDK {
		return referenceRules
	}
	return profileRules{}
}
