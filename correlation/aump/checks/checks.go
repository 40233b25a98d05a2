// Package checks has the checks that the evidence events of AUMP 0.1 give rise to, as rows of the catalogue
// (package correlation/checks lists all protocols' rows). What decides them is in the package above.
package checks

import (
	"slices"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events/subject"
)

// All gives the checks in the order of their identifiers. The caller may change the result.
func All() []catalogue.Check {
	return slices.Concat(evidenceChecks)
}

var specification = catalogue.Specification{Protocol: subject.ProtoAUMP, Prefix: "AUMP-E-", Name: "AUMP", Sections: "AUMP"}
