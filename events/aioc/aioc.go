// Package aioc is the typed model of aioc's policy gates (RFC-0002): the proposals that a
// runtime submits to a policy, the result that a policy returns, the trace event of every
// proposal, and the canonical form and hashes that identify a proposal. It reads and writes and
// does not judge: package schemas validates documents, and package admission/aioc decides on
// proposals. Begin reading with DecodeTool and PolicyResult.
package aioc

import (
	"github.com/countersign-dev/countersign/events/internal/field"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// FieldError reports a known field of another JSON type than aioc's. Path is its JSON pointer.
// It never holds the field's value.
type FieldError = field.Error

// Input is the common part of both kinds of proposal. Fields that the document lacks are zero.
// An Input and everything it points to must not be changed.
type Input struct {
	Turn          int64  // counts from 1; 0 if absent
	ProposalHash  string // computed by the runtime; "" if absent
	CanonicalJSON string // argsCanonicalJson or payloadCanonicalJson; "" if absent
	RunContext    map[string]any

	// Members of aioc's trace and suspension records that RFC-0002 does not define for a
	// policy's input. A runtime that names its call sends them, or the request headers.
	CallID string
	RunID  string

	Doc  strictjson.Value // the whole document
	Tree map[string]any   // the same, as strictjson.Parse gives it
	Raw  []byte           // the bytes that were given, not a copy
}

// ToolPolicyInput proposes a tool call.
type ToolPolicyInput struct {
	Input
	AgentName string
	ToolName  string

	// RawArguments is the text that the model produced, ParsedArguments the runtime's parsed
	// form. HasRaw and HasParsed report whether they are present.
	RawArguments      string
	ParsedArguments   any
	HasRaw, HasParsed bool
}

// HandoffPolicyInput proposes a handoff to another agent.
type HandoffPolicyInput struct {
	Input
	FromAgentName  string
	ToAgentName    string
	HandoffPayload any
	HandoffName    string // the handoff's tool name for the model; "" if absent
}

// DecodeTool reads a tool proposal. The error is a *strictjson.Error (the bytes are not
// acceptable JSON; the input is nil) or a *FieldError (a known field has the wrong JSON type,
// null included; the input is returned all the same, with that field empty). Missing and
// unknown members are no errors here.
func DecodeTool(raw []byte, lim strictjson.Limits) (*ToolPolicyInput, error) {
	v, err := strictjson.ReadObject(raw, lim)
	if err != nil {
		return nil, err
	}
	var first *FieldError
	o := field.Root(v, &first)
	in := &ToolPolicyInput{Input: readInput(o, raw, "argsCanonicalJson"), AgentName: o.Text("agentName"), ToolName: o.Text("toolName")}
	in.RawArguments = o.Text("rawArguments")
	in.HasRaw = o.Kind("rawArguments") == field.KindString
	in.ParsedArguments, in.HasParsed = in.Tree["parsedArguments"]
	return in, orNil(first)
}

// DecodeHandoff reads a handoff proposal; errors are those of DecodeTool.
func DecodeHandoff(raw []byte, lim strictjson.Limits) (*HandoffPolicyInput, error) {
	v, err := strictjson.ReadObject(raw, lim)
	if err != nil {
		return nil, err
	}
	var first *FieldError
	o := field.Root(v, &first)
	in := &HandoffPolicyInput{
		Input: readInput(o, raw, "payloadCanonicalJson"), FromAgentName: o.Text("fromAgentName"), ToAgentName: o.Text("toAgentName"),
		HandoffName: o.Text("handoffName"),
	}
	in.HandoffPayload = in.Tree["handoffPayload"]
	return in, orNil(first)
}

func readInput(o field.Object, raw []byte, canonical string) Input {
	in := Input{Doc: o.Value(), Tree: o.Value().ObjectTree(), Raw: raw, ProposalHash: o.Text("proposalHash"), CanonicalJSON: o.Text(canonical)}
	if o.Object("runContext").Exists() {
		in.RunContext, _ = in.Tree["runContext"].(map[string]any)
	}
	in.CallID, in.RunID = o.Text("callId"), o.Text("runId")
	if turn := o.Int("turn"); turn != nil {
		in.Turn = *turn
	}
	return in
}

// orNil keeps a nil *FieldError from becoming an error that is not nil.
func orNil(e *FieldError) error {
	if e == nil {
		return nil
	}
	return e
}
