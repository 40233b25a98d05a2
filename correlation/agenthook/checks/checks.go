// Package checks has the checks that AgentHook 0.2 gives rise to, as rows of the catalogue
// (package correlation/checks lists all protocols' rows). What decides them is in the package above.
package checks

import (
	"slices"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events/subject"
)

// All gives the checks in the order of their identifiers. The caller may change the result.
func All() []catalogue.Check {
	return slices.Concat(eventChecks, sessionChecks, trustChecks, deploymentChecks)
}

var specification = catalogue.Specification{Protocol: subject.ProtoAgentHook, Prefix: "AH-C-", Name: "AgentHook", Sections: "AgentHook SPEC"}

// Remedies that several entries share.
const (
	fixDeclared   = "Register the publisher as what it is, with a manifest that says what it sends (countersign publisher put), or have it send what is declared."
	fixAdmitter   = "This is about the admitter itself: keep the log, see whether another process signs with its key, and report it."
	fixGovernance = "Have the publisher complete the action-governance blocks, writing \"unknown\" where it does not know."
	fixGate       = "Find out why the call did not wait at its gate; treat what it did as unauthorised until that is known."
	fixArguments  = "Compare the admitted with the executed arguments; make the runtime check the receipt against what it is about to run, or say in mutation_reason why it changed them."
	fixClaim      = "Compare the event with the decision on record and find out where the publisher has its verdict from; what ran on it was not admitted."
	fixApproval   = "Have the approval looked into, and make the runtime wait for one that is for this very action."
	fixAttest     = "Have the runtime attest what its gate really does, at the beginning of each session."
	fixWeb        = "Make the publisher record every step from the search to the evidence it uses, with the ids that link them."
	fixLLM        = "Make the publisher pair its model calls and report their figures as they were."
)
