// Package protocol is the table of protocols at the stage of compliance: what reports, traces and
// files of mandates must know of each. Such code asks the row of a protocol and never its name
// (docs/adr/0023). Begin reading with Row. The formats of protocols are rows of package format.
package protocol

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/compliance/internal/protocol/aump"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/subject"
)

// Row is what generic code knows of a protocol. The zero value of a member means "no".
type Row struct {
	// Summary reads the names and identifiers of an event that a page shows. If it is nil, they
	// are read from the members that protocols usually have.
	Summary func(body []byte) Summary

	// SessionEnds are the types of events, as they stand in a subject, that end a session. They
	// count in the events of every protocol, see EndsSession.
	SessionEnds []string

	// NamedAgents says that an agent has a name instead of an identifier.
	NamedAgents bool

	// Mandate reads a mandate: the bytes that its hash covers, and the hash by which a decision
	// names it; "" if the text is no mandate. If it is nil, the protocol has no mandates.
	Mandate func(text string) (covered, hash string)
}

// Summary holds the names and identifiers of an event; "" for those that it does not have.
type Summary struct{ Type, Tool, Call, Agent string }

// Rows is the table, by subject token. Only tests change it.
var Rows = map[string]Row{
	subject.ProtoAgentHook: {SessionEnds: []string{agenthook.SessionEnd}},
	subject.ProtoAAEP:      {SessionEnds: inSubjects(aaep.TypeSessionCompleted, aaep.TypeSessionErrored, aaep.TypeSessionCancelled)},
	subject.ProtoAUMP:      {Mandate: aump.Mandate},
	subject.ProtoTool:      {NamedAgents: true},
	subject.ProtoHandoff:   {NamedAgents: true},
}

// inSubjects lists the types of AAEP with and without its prefix, which a subject may omit.
func inSubjects(types ...string) (list []string) {
	for _, t := range types {
		list = append(list, t, strings.TrimPrefix(t, "aaep:"))
	}
	return list
}

// Of finds the row of a protocol. A protocol that is not in the table has an empty row.
func Of(token string) Row { return Rows[token] }

// EndsSession reports whether events of a type end a session. The protocol of the event has no
// part in it: a publisher can use the type of another protocol, and a verifier makes the page of
// a bundle again and compares it byte for byte.
func EndsSession(typ string) bool {
	for _, row := range Rows {
		if slices.Contains(row.SessionEnds, typ) {
			return true
		}
	}
	return false
}

// MandateOf finds the protocol in which a text is the mandate with a hash, and what the hash covers.
func MandateOf(text, hash string) (token, covered string, found bool) {
	for _, token := range slices.Sorted(maps.Keys(Rows)) {
		if read := Rows[token].Mandate; read != nil {
			if covered, is := read(text); is == hash {
				return token, covered, true
			}
		}
	}
	return "", "", false
}

// Summarize reads the names and identifiers of an event.
func (r Row) Summarize(body []byte) Summary {
	if r.Summary != nil {
		return r.Summary(body)
	}
	return usualSummary(body)
}

// usualSummary reads the members of AgentHook, AAEP and of documents that name them likewise.
func usualSummary(body []byte) Summary {
	var e struct {
		EventType  string `json:"event_type"`
		Type       string `json:"type"`
		ToolName   string `json:"tool_name"`
		Tool       string `json:"tool"`
		ToolCallID string `json:"tool_call_id"`
		AgentID    string `json:"agent_id"`
		Metadata   struct {
			ToolCallID string `json:"tool_call_id"`
		} `json:"metadata"`
		Producer struct {
			AgentID string `json:"agent_id"`
		} `json:"producer"`
	}
	_ = json.Unmarshal(body, &e) // members of other types stay empty
	return Summary{Type: cmp.Or(e.EventType, e.Type), Tool: cmp.Or(e.ToolName, e.Tool),
		Call: cmp.Or(e.Metadata.ToolCallID, e.ToolCallID), Agent: cmp.Or(e.AgentID, e.Producer.AgentID)}
}
