// Package aioc is the HTTP side of aioc's tool and handoff gates. Body and answer are the runtime's
// own policy input and policy result. aioc has no time-out: its caller needs one.
package aioc

import (
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway/endpoint"
)

// Rows are the endpoints.
var Rows = []endpoint.Row{
	{Pattern: "POST /aioc/tool", Plan: endpoint.AdmitTo(subject.ProtoTool)},
	{Pattern: "POST /aioc/handoff", Plan: endpoint.AdmitTo(subject.ProtoHandoff)},
}
