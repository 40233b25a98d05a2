// Package protocol is the table of protocols at the stage of evidence: what generic code that
// stores their messages must know of each. Such code asks the row of a protocol and never its
// name (docs/adr/0023).
package protocol

import (
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/internal/protocol/aaep"
	"github.com/countersign-dev/countersign/evidence/internal/protocol/aana"
	"github.com/countersign-dev/countersign/evidence/internal/protocol/agenthook"
	"github.com/countersign-dev/countersign/evidence/internal/protocol/aioc"
	"github.com/countersign-dev/countersign/evidence/internal/protocol/aump"
	"github.com/countersign-dev/countersign/evidence/internal/protocol/storable"
)

// Rows is the table, by subject token. Only tests change it.
var Rows = map[string]*storable.Row{
	subject.ProtoAgentHook: agenthook.Row,
	subject.ProtoAAEP:      aaep.Row,
	subject.ProtoAUMP:      aump.Row,
	subject.ProtoAANA:      aana.Row,
	subject.ProtoTool:      aioc.Row,
	subject.ProtoHandoff:   aioc.Row,
}

// Of finds the row of a protocol. A protocol that is not in the table has an empty row.
func Of(token string) *storable.Row {
	if p := Rows[token]; p != nil {
		return p
	}
	return &unknown
}

var unknown storable.Row

// KeepsHeader reports whether a header, in lower case, is in KeepHeaders of any row.
func KeepsHeader(name string) bool {
	for _, p := range Rows {
		if p.KeepHeaders[name] {
			return true
		}
	}
	return false
}
