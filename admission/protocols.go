package admission

import (
	"maps"
	"slices"

	"github.com/countersign-dev/countersign/admission/aaep"
	"github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/aioc"
	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/admission/call"
	tests "github.com/countersign-dev/countersign/admission/internal/protocol"
)

// protocol is the row of an admission protocol. This file is the only one of the package that
// names a protocol (docs/adr/0023); the zero value of a trait means "no".
type protocol struct {
	call.Protocol

	// carrier is the member of a request, an object, in which a request may carry documents of
	// companions.
	carrier string
	// source is the JSON pointer of the source that a request claims. Only offline decisions
	// use it.
	source string
	// noArguments reports that requests do not hold the arguments of the tool.
	noArguments bool
}

// protocols are the admission protocols by their subject token.
var protocols = map[string]protocol{
	agenthook.Name:   {Protocol: agenthook.Evaluator{}, carrier: "metadata", source: "/source"},
	aaep.Name:        {Protocol: aaep.Evaluator{}, carrier: "extensions", source: "/producer/agent_id", noArguments: true},
	aioc.NameTool:    {Protocol: aioc.Tool{}},
	aioc.NameHandoff: {Protocol: aioc.Handoff{}},
	aana.Name:        {Protocol: aana.Evaluator{}},
	aump.Name:        {Protocol: aump.Evaluator{}},
}

// companions are the evaluators of documents that calls of other protocols carry or name, in
// the order of their reasons.
var companions = []call.Companion{aump.Companion, aana.Companion}

// Protocols lists the protocol tokens that Decide knows, sorted.
func Protocols() []string { return slices.Sorted(maps.Keys(protocols)) }

func init() {
	tests.Add = func(token string, row tests.Row) (remove func()) {
		protocols[token] = protocol{Protocol: row.Protocol, carrier: row.Carrier, source: row.Source}
		return func() { delete(protocols, token) }
	}
}
