// Package aioc is aioc's policy gates (RFC-0002 and its successors) as two
// admission protocols, tool and handoff. A request is the input that the runtime
// would give to a policy, the reply is the policy's result.
//
// RFC-0002 has no judgement of its own: the tenant's tool policies are the
// policy, and what they do not allow is denied with the reasons that the RFC
// prescribes. What is decided here is only what nobody could decide about:
// proposals whose parts contradict each other, arguments that two readers would
// hash differently, names that JavaScript finds in every object.
//
// Two things are not as in the sources. First, a reply's reason is the rule's
// own, as in RFC-0002, although a soft refusal shows it to the model: it is the
// RFC's contract with the runtime, and whoever writes a rule with resultMode
// tool_result knows who reads its reason. The runtime can map it to a public
// code with aioc.PolicyResult.Envelope. Names of policies and rules are in no
// reason. Second, the message of an exception is never in metadata.
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
	CodeArgumentsMismatch = "arguments_mismatch"         // parsedArguments is not what rawArguments say
	CodeProposalMismatch  = "proposal_mismatch"          // a hash or canonical form is not that of the proposal
	CodeHandoffName       = "handoff_name_mismatch"      // handoffName is the tool name of another agent
	CodeAmbiguousKey      = "ambiguous_key"              // a member that aioc and RFC 8785 hash differently
	CodeInvalidArguments  = policy.CodeInvalidArgs       // arguments that are no object
	CodeReservedName      = "reserved_name"              // a name that every JavaScript object has
	CodeApprovalIgnored   = "publisher_approval_ignored" // changes no verdict: runContext claims an approval
)

// Tool is the protocol tool.
type Tool struct{}

// Handoff is the protocol handoff.
type Handoff struct{}

// Both say more than call.Protocol demands.
var (
	_ call.RulingReplier = Tool{}
	_ call.Tracer        = Tool{}
	_ call.RulingReplier = Handoff{}
	_ call.Tracer        = Handoff{}
)

// proposal is what Reply and Trace need beside the call.
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

// checkTool makes the checks of a valid tool proposal.
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
	if odd { // then RFC 8785 is another form
		canonical, err = strictjson.Canonical(arguments)
	}
	b.bindArguments(c, canonical, err)
}

// checkHandoff makes the checks of a valid handoff proposal.
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

// agreedArguments are what the runtime would run the tool with: what it parsed, which
// must be what the model's text says.
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

// sameTree compares two trees by their RFC 8785 form. Most are the same to the
// letter.
func sameTree(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, errX := strictjson.Canonical(a)
	y, errY := strictjson.Canonical(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// prototypeNames are the members of JavaScript's Object.prototype. Looked up in an
// object, each of them is there; upstream denies them one way or another even
// where * is allowed.
var prototypeNames = map[string]bool{
	"__defineGetter__": true, "__defineSetter__": true, "__lookupGetter__": true, "__lookupSetter__": true, "__proto__": true,
	"constructor": true, "hasOwnProperty": true, "isPrototypeOf": true, "propertyIsEnumerable": true, "toLocaleString": true,
	"toString": true, "valueOf": true,
}
