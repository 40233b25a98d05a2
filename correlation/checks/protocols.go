// Package checks lists every check of every protocol, those that no log can decide included, each
// under a stable identifier. It is data: what decides a check is in the folder of its protocol.
package checks

import (
	"slices"

	aaep "github.com/countersign-dev/countersign/correlation/aaep/checks"
	agenthook "github.com/countersign-dev/countersign/correlation/agenthook/checks"
	aump "github.com/countersign-dev/countersign/correlation/aump/checks"
	"github.com/countersign-dev/countersign/correlation/catalogue"
)

// All gives the catalogue in order of the protocols and identifiers. The caller may change the
// result.
func All() []catalogue.Check {
	return slices.Concat(aaep.All(), agenthook.All(), aump.All())
}
