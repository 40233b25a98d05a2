package aump

import "github.com/countersign-dev/countersign/admission/call"

// rules is everything in which the profiles differ. The zero rules are the
// hardened ones.
type rules struct {
	anyReference   bool // the hash in the request may be missing or another
	trustContext   bool // trusted_ui_approved and approval are believed
	anyAgent       bool // the mandate's agent is not compared with the one that asks
	anyStart       bool // issued_at is not looked at
	advisoryMay    bool // an advisory mandate may commit
	optionalUI     bool // an absent requires_trusted_ui_for_commitment means false
	anyone         bool // counterparties and categories are not looked at
	exactDisclosed bool // fields are compared as the published evaluators do, contents are not looked at
}

var reference = rules{
	anyReference: true, anyAgent: true, trustContext: true, anyStart: true, advisoryMay: true, optionalUI: true, anyone: true, exactDisclosed: true,
}

// rulesFor are the hardened rules for every profile but the reference's.
func rulesFor(p call.Profile) rules {
	if p == call.ProfileReferenceSDK {
		return reference
	}
	return rules{}
}
