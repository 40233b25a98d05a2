// Package aioc is the typed model of aioc's policy gates (RFC-0002): the
// proposals that a runtime puts before a policy, the result that a policy
// returns, the trace event that every proposal leaves, and the canonical form
// and hashes that name a proposal. It reads and writes; it does not judge:
// whether a document satisfies the schemas is package schemas' business, what
// may happen package admission/aioc's.
package aioc

import (
	"github.com/countersign-dev/countersign/events/internal/field"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// FieldError says that a known field has another JSON type than aioc gives it.
// Path is its JSON pointer. It never holds the field's value.
type FieldError = field.Error

// Input is what both kinds of proposal share. Fields that the document does not
// have are zero. An Input and everything it points to must not be changed.
type Input struct {
	Turn          int64  // counts from 1; 0 if absent
	ProposalHash  string // as the runtime computed it; "" if it did not
	CanonicalJSON string // argsCanonicalJson or payloadCanonicalJson, likewise
	RunContext    map[string]any

	// Members of aioc's trace and suspension records, which RFC-0002 gives no
	// place in a policy's input. A runtime that names its call sends them, or the
	// request headers.
	CallID string
	RunID  string

	Tree map[string]any // the whole document, as strictjson.Parse gives it
	Raw  []byte         // the bytes that were given, not a copy
}

// ToolPolicyInput proposes a tool call.
type ToolPolicyInput struct {
	Input
	AgentName string
	ToolName  string

	// RawArguments is the text that the model produced, ParsedArguments what the
	// runtime made of it. HasRaw and HasParsed tell which of them are there.
	RawArguments      string
	ParsedArguments   any
	HasRaw, HasParsed bool
}

// HandoffPolicyInput proposes that another agent takes over.
type HandoffPolicyInput struct {
	Input
	FromAgentName  string
	ToAgentName    string
	HandoffPayload any
	HandoffName    string // the handoff's tool name as the model sees it; "" if the runtime does not say
}

// DecodeTool reads a tool proposal. The error is a *strictjson.Error (the bytes
// are not acceptable JSON; the input is nil) or a *FieldError (a known field has
// the wrong JSON type, null included; the input is there nonetheless, with that
// field empty). Missing and unknown members are no errors here.
func DecodeTool(raw []byte, lim strictjson.Limits) (*ToolPolicyInput, error) {
	tree, err := strictjson.ParseObject(raw, lim)
	if err != nil {
		return nil, err
	}
	var first *FieldError
	o := field.Root(tree, &first)
	in := &ToolPolicyInput{Input: readInput(o, raw, "argsCanonicalJson"), AgentName: o.Text("agentName"), ToolName: o.Text("toolName")}
	in.RawArguments = o.Text("rawArguments")
	_, in.HasRaw = tree["rawArguments"].(string)
	in.ParsedArguments, in.HasParsed = tree["parsedArguments"]
	return in, orNil(first)
}

// DecodeHandoff reads a handoff proposal; errors are those of DecodeTool.
func DecodeHandoff(raw []byte, lim strictjson.Limits) (*HandoffPolicyInput, error) {
	tree, err := strictjson.ParseObject(raw, lim)
	if err != nil {
		return nil, err
	}
	var first *FieldError
	o := field.Root(tree, &first)
	in := &HandoffPolicyInput{
		Input: readInput(o, raw, "payloadCanonicalJson"), FromAgentName: o.Text("fromAgentName"), ToAgentName: o.Text("toAgentName"),
		HandoffPayload: tree["handoffPayload"], HandoffName: o.Text("handoffName"),
	}
	return in, orNil(first)
}

func readInput(o field.Object, raw []byte, canonical string) Input {
	in := Input{
		ProposalHash: o.Text("proposalHash"), CanonicalJSON: o.Text(canonical), RunContext: o.Map("runContext"),
		CallID: o.Text("callId"), RunID: o.Text("runId"), Tree: o.Members, Raw: raw,
	}
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
