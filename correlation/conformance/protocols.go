package conformance

import (
	aaep "github.com/countersign-dev/countersign/correlation/aaep/conformance"
	agenthook "github.com/countersign-dev/countersign/correlation/agenthook/conformance"
	"github.com/countersign-dev/countersign/correlation/conformance/profile"
	"github.com/countersign-dev/countersign/events/subject"
)

// protocolRow is a row of the table of protocols at the stage of conformance (docs/adr/0023).
type protocolRow struct {
	profile.Row
	// borrowed are the facets that the traffic of the same session in another protocol shows.
	borrowed []borrowedFacet
}

// borrowedFacet is a facet of another protocol, and as which it counts.
type borrowedFacet struct {
	protocol  string
	facet, as profile.Facet
}

// protocolOrder is the order in which reports list the protocols.
var protocolOrder = []string{subject.ProtoAgentHook, subject.ProtoAAEP}

var protocols = map[string]protocolRow{
	subject.ProtoAgentHook: {Row: agenthook.Row},
	subject.ProtoAAEP: {Row: aaep.Row,
		borrowed: []borrowedFacet{{subject.ProtoAgentHook, agenthook.TimedExecutions, aaep.AgentHookExecutions}}},
}
