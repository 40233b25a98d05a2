// Package aioc is aioc's policy gates (RFC-0002 and its successors) as two admission protocols,
// tool and handoff. A request is the input that the runtime would give to a policy; the reply
// is the policy's result. Begin reading with Tool.Read and Handoff.Read.
//
// RFC-0002 has no evaluator of its own: the tenant's tool policies decide, and what they do not
// allow is denied with the reasons that the RFC prescribes. This package itself refuses only
// ambiguous proposals: parts that contradict each other, arguments that two readers would hash
// differently, names that JavaScript finds in every object.
//
// Two things differ from the sources. First, a reply's reason is the rule's own, as in
// RFC-0002, although a soft refusal shows it to the model: it is the RFC's contract with the
// runtime, and the author of a rule with resultMode tool_result writes it for that reader. The
// runtime can map it to a public code with aioc.PolicyResult.Envelope. Names of policies and
// rules are in no reason. Second, the message of an exception is never in metadata.
package aioc

import (
	"errors"
	"reflect"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// Names of the protocols and of their evaluators.
const (
	NameTool    = subject.ProtoTool
	NameHandoff = subject.ProtoHandoff
)

// ActionHandoff is the action of a handoff, for policies.
const ActionHandoff = "handoff"

// Reason codes of this protocol, beside those of every protocol.
const (
	CodeArgumentsMismatch = "arguments_mismatch"         // parsedArguments differs from rawArguments
	CodeProposalMismatch  = "proposal_mismatch"          // a hash or canonical form differs from that of the proposal
	CodeHandoffName       = "handoff_name_mismatch"      // handoffName is the tool name of another agent
	CodeAmbiguousKey      = "ambiguous_key"              // a member that aioc and RFC 8785 hash differently
	CodeInvalidArguments  = policy.CodeInvalidArgs       // arguments that are not an object
	CodeReservedName      = "reserved_name"              // a name that every JavaScript object has
	CodeApprovalIgnored   = "publisher_approval_ignored" // changes no verdict: runContext claims an approval
)

// Tool is the protocol tool.
type Tool struct{}

// Handoff is the protocol handoff.
type Handoff struct{}

// Both implement more than call.Protocol.
var (
	_ call.RulingReplier = Tool{}
	_ call.EventWriter   = Tool{}
	_ call.RulingReplier = Handoff{}
	_ call.EventWriter   = Handoff{}
)

// proposal is what Reply and Trace need in addition to the call.
type proposal struct {
	turn        int64
	handoffName string // of a handoff
	hashes      wire.Hashes
}

// HasNativeEvaluator implements call.Protocol: the policies decide.
func (Tool) HasNativeEvaluator() bool { return false }

// HasNativeEvaluator implements call.Protocol: the policies decide.
func (Handoff) HasNativeEvaluator() bool { return false }

// Read implements call.Protocol.
func (Tool) Read(r call.Request) (call.Call, call.Opinion) {
	o := call.Opinion{Verdict: events.Allow}
	in, err := wire.DecodeTool(r.Body, r.Limits)
	if in == nil {
		o.RefuseUndecodable(NameTool, err)
		return call.Call{}, o
	}
	b := reader{name: NameTool, schema: "aioc/tool-policy-input", in: &in.Input, r: r, o: &o}
	c := b.commonCall(in.AgentName)
	c.Tool = in.ToolName
	c.ToolCallID = o.BodyOrHeader(NameTool, r, events.HeaderToolCallID, in.CallID)
	b.boundFields(&c, map[string]*string{"/agentName": &c.Agent, "/toolName": &c.Tool})
	if b.isValid(err) {
		b.checkTool(in, &c)
	}
	return c, o
}

// Read implements call.Protocol.
func (Handoff) Read(r call.Request) (call.Call, call.Opinion) {
	o := call.Opinion{Verdict: events.Allow}
	in, err := wire.DecodeHandoff(r.Body, r.Limits)
	if in == nil {
		o.RefuseUndecodable(NameHandoff, err)
		return call.Call{}, o
	}
	b := reader{name: NameHandoff, schema: "aioc/handoff-policy-input", in: &in.Input, r: r, o: &o}
	c := b.commonCall(in.FromAgentName)
	c.Action, c.ToAgent, c.Tool = ActionHandoff, in.ToAgentName, in.HandoffName
	c.ToolCallID = o.BodyOrHeader(NameHandoff, r, events.HeaderToolCallID, in.CallID)
	b.boundFields(&c, map[string]*string{"/fromAgentName": &c.Agent, "/toAgentName": &c.ToAgent, "/handoffName": &c.Tool})
	c.FromAgent = c.Agent
	if c.Tool == "" && c.ToAgent != "" {
		c.Tool = wire.HandoffToolName(c.ToAgent)
	}
	if b.isValid(err) {
		b.checkHandoff(in, &c)
	}
	return c, o
}

// checkTool checks a valid tool proposal.
func (b *reader) checkTool(in *wire.ToolPolicyInput, c *call.Call) {
	arguments, ok := b.agreedArguments(in)
	if !ok {
		return
	}
	hashes, err := wire.HashTool(in.AgentName, in.ToolName, arguments)
	odd := b.checkProposal(c, arguments, hashes, err, "/argsCanonicalJson", "")
	if prototypeNames[in.ToolName] {
		b.o.AddReason(events.Deny, b.name, CodeReservedName, "/toolName")
	}
	canonical := []byte(hashes.Canonical)
	if odd { // RFC 8785 then has another form
		canonical, err = strictjson.Canonical(arguments)
	}
	b.bindArguments(c, canonical, err)
}

// checkHandoff checks a valid handoff proposal.
func (b *reader) checkHandoff(in *wire.HandoffPolicyInput, c *call.Call) {
	if !wire.IsHandoffToolName(c.Tool, in.ToAgentName) {
		b.o.Refuse(b.name, CodeHandoffName, "/handoffName")
	}
	hashes, err := wire.HashHandoff(in.FromAgentName, in.ToAgentName, in.HandoffPayload)
	b.checkProposal(c, in.HandoffPayload, hashes, err, "/payloadCanonicalJson", c.Tool)
	if prototypeNames[in.ToAgentName] {
		b.o.AddReason(events.Deny, b.name, CodeReservedName, "/toAgentName")
	}
	canonical, err := wire.HandoffArguments(in.FromAgentName, in.ToAgentName, in.HandoffPayload)
	b.bindArguments(c, canonical, err)
}

// agreedArguments returns the arguments that the runtime would run the tool with: its parsed
// arguments, which must equal the model's text.
func (b *reader) agreedArguments(in *wire.ToolPolicyInput) (any, bool) {
	if !in.HasRaw {
		return in.ParsedArguments, true
	}
	own, err := wire.ParseArguments(in.RawArguments, b.r.Limits)
	if err != nil {
		var refused *strictjson.Error
		code, path := call.CodeSchemaInvalid, ""
		if errors.As(err, &refused) {
			code, path = string(refused.Code), refused.Path
		}
		b.o.Refuse(b.name, code, "/rawArguments"+path)
		return nil, false
	}
	if in.HasParsed && !sameTree(own, in.ParsedArguments) {
		b.o.Refuse(b.name, CodeArgumentsMismatch, "/parsedArguments")
		return nil, false
	}
	return own, true
}

// sameTree compares two trees by their RFC 8785 form. DeepEqual is a quick check: most trees
// are identical.
func sameTree(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, errX := strictjson.Canonical(a)
	y, errY := strictjson.Canonical(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// prototypeNames are the members of JavaScript's Object.prototype. A lookup in any object finds
// them; upstream denies them even where * is allowed.
var prototypeNames = map[string]bool{
	"__defineGetter__": true, "__defineSetter__": true, "__lookupGetter__": true, "__lookupSetter__": true, "__proto__": true,
	"constructor": true, "hasOwnProperty": true, "isPrototypeOf": true, "propertyIsEnumerable": true, "toLocaleString": true,
	"toString": true, "valueOf": true,
}
