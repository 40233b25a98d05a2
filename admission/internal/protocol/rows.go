// Package protocol is the table of protocols at the stage of admission: what Decide must know of
// each. Such code asks the row of a protocol and never its name (docs/adr/0023).
package protocol

import (
	"github.com/countersign-dev/countersign/admission/aaep"
	"github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/aioc"
	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/admission/call"
)

// Row is what generic code knows of a protocol. The zero value of a member means "no".
type Row struct {
	call.Protocol

	// Carrier is the member of a request, an object, in which a request may carry documents of
	// companions.
	Carrier string
	// Source is the JSON pointer of the source that a request claims. Only offline decisions
	// use it.
	Source string
	// NoArguments reports that requests do not hold the arguments of the tool.
	NoArguments bool
}

// Rows is the table, by subject token. Only tests change it.
var Rows = map[string]Row{
	agenthook.Name:   {Protocol: agenthook.Evaluator{}, Carrier: "metadata", Source: "/source"},
	aaep.Name:        {Protocol: aaep.Evaluator{}, Carrier: "extensions", Source: "/producer/agent_id", NoArguments: true},
	aioc.NameTool:    {Protocol: aioc.Tool{}},
	aioc.NameHandoff: {Protocol: aioc.Handoff{}},
	aana.Name:        {Protocol: aana.Evaluator{}},
	aump.Name:        {Protocol: aump.Evaluator{}},
}

// Companions are the evaluators of documents that calls of other protocols carry or name, in
// the order of their reasons.
var Companions = []call.Companion{aump.Companion, aana.Companion}

// CarrierOf is the object of a request in which it may carry documents of companions.
func (r Row) CarrierOf(c *call.Call) map[string]any {
	if r.Carrier == "" {
		return nil
	}
	carrier, _ := c.Event[r.Carrier].(map[string]any)
	return carrier
}
