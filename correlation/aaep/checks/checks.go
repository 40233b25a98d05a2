// Package checks has the checks that AAEP 1.0.0 gives rise to, as rows of the catalogue
// (package correlation/checks lists all protocols' rows). What decides them is in the package above.
package checks

import (
	"slices"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events/subject"
)

// All gives the checks in the order of their identifiers. The caller may change the result.
func All() []catalogue.Check {
	return slices.Concat(eventChecks, sessionChecks, confirmationChecks, streamChecks, transportChecks)
}

var specification = catalogue.Specification{Protocol: subject.ProtoAAEP, Prefix: "AAEP-C-", Name: "AAEP", Sections: "AAEP"}

// Remedies that several entries share.
const (
	fixText      = "Have the publisher complete this event; nothing else is wrong with it."
	fixStates    = "Make the publisher announce every change of state when it happens."
	fixConfirm   = "Make the agent ask first, wait for the answer and act on that answer once; have what it did reviewed."
	fixHandshake = "Compare what was asked for with what was answered, and have the publisher answer every request, within what it asks for."
	fixReply     = "Check which subscriber answered and when; an answer that does not count must not be acted on."
	fixStream    = "Make the publisher count positions in characters and close every output exactly once."
)
