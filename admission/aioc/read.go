package aioc

import (
	"maps"
	"strings"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/schemas"
)

// reader reads one request of either protocol.
type reader struct {
	name, schema string
	in           *wire.Input
	r            call.Request
	o            *call.Opinion
}

// commonCall returns the parts of a call that both protocols have. The session is that of the
// header, else the run: a session may hold many runs.
func (b *reader) commonCall(agent string) call.Call {
	session := b.o.BodyOrHeader(b.name, b.r, events.HeaderSession, "")
	if session == "" {
		session = b.in.RunID
	}
	event, claimed := withoutClaims(b.in.Tree)
	if claimed {
		b.o.AddReason(events.Allow, b.name, CodeApprovalIgnored, "/runContext")
	}
	return call.Call{
		EventType: b.name, Session: session, Agent: b.o.BodyOrHeader(b.name, b.r, events.HeaderAgent, agent),
		Risk: map[string]any{}, Event: event, Traceparent: call.FirstTraceparent(b.r),
	}
}

// boundFields clears and refuses identifiers that are too long.
func (b *reader) boundFields(c *call.Call, names map[string]*string) {
	names["/runId"], names["/callId"] = &c.Session, &c.ToolCallID
	b.o.RefuseLongFields(b.name, names)
}

// isValid validates the document by its schema; err is the decoding error.
func (b *reader) isValid(err error) bool {
	b.o.RefuseViolations(b.name, schemas.Default().Validate(b.schema, b.in.Doc), nil)
	if err != nil && !b.o.Malformed {
		b.o.RefuseUndecodable(b.name, err)
	}
	return !b.o.Malformed
}

// checkProposal compares the runtime's statements about the proposal with the proposal itself,
// and checks the payload. odd reports that the payload has an ambiguous member.
func (b *reader) checkProposal(c *call.Call, payload any, hashes wire.Hashes, err error, canonicalPath, handoffName string) (odd bool) {
	if err != nil {
		b.o.Refuse(b.name, call.CodeSchemaInvalid, "")
		return false
	}
	for _, claim := range []struct{ path, said, is string }{
		{canonicalPath, b.in.CanonicalJSON, hashes.Canonical}, {"/proposalHash", b.in.ProposalHash, hashes.Proposal},
	} {
		if _, there := b.in.Tree[claim.path[1:]]; there && claim.said != claim.is {
			b.o.Refuse(b.name, CodeProposalMismatch, claim.path)
		}
	}
	c.ProtocolState = &proposal{turn: b.in.Turn, handoffName: handoffName, hashes: hashes}
	path, odd := wire.FindAmbiguousKey(payload)
	if odd {
		b.o.AddReason(events.Deny, b.name, CodeAmbiguousKey, payloadPath[b.name]+path)
	}
	args, object := payload.(map[string]any)
	if !object {
		b.o.AddReason(events.Deny, b.name, CodeInvalidArguments, payloadPath[b.name])
	}
	c.Args, c.RawArguments = args, wire.IsRaw(payload)
	if c.ToolCallID == "" {
		b.o.AddReason(events.Allow, b.name, call.CodeNoToolCallID, "/callId")
	}
	if c.Session == "" {
		b.o.AddReason(events.Allow, b.name, call.CodeWeakScope, "")
	}
	return odd
}

var payloadPath = map[string]string{NameTool: "/parsedArguments", NameHandoff: "/handoffPayload"}

// bindArguments sets the arguments that the receipt is bound to.
func (b *reader) bindArguments(c *call.Call, canonical []byte, err error) {
	if err != nil {
		b.o.Refuse(b.name, call.CodeSchemaInvalid, payloadPath[b.name])
		return
	}
	c.ArgsCanonical = canonical
}

// claimMembers are the members of runContext, at any depth, in which a runtime could claim that
// a proposal has been approved. Upstream, approvals are evidence that the application hands to
// its own policy; here they are records of Countersign, and policies do not see a publisher's
// claims about them. Names are compared without case, - and _.
var claimMembers = map[string]bool{
	"approved": true, "isapproved": true, "humanapproved": true, "humanapproval": true, "approvalgranted": true, "approval": true, "approvals": true, "approvedby": true, "approvedat": true, "approver": true, "approvers": true,
	"approvalgrant": true, "approvalgrants": true, "approvalstatus": true, "approvalrequest": true, "approvalrequests": true,
	"grant": true, "grants": true, "suspendedproposal": true, "suspendedproposals": true,
}

var plainNames = strings.NewReplacer("-", "", "_", "")

func isClaim(name string) bool { return claimMembers[strings.ToLower(plainNames.Replace(name))] }

// withoutClaims returns the document without claims in its runContext. It shares what it can
// with tree and does not change it.
func withoutClaims(tree map[string]any) (clean map[string]any, found bool) {
	context, found := stripClaims(tree["runContext"])
	if !found {
		return tree, false
	}
	clean = maps.Clone(tree)
	clean["runContext"] = context
	return clean, true
}

// stripClaims returns v without claims; found is false if there were none, and v is then
// returned unchanged.
func stripClaims(v any) (clean any, found bool) {
	switch v := v.(type) {
	case map[string]any:
		var kept map[string]any
		for k, e := range v {
			below, claimed := stripClaims(e)
			if !claimed && !isClaim(k) {
				continue
			}
			if kept == nil {
				kept = maps.Clone(v)
			}
			if kept[k] = below; isClaim(k) {
				delete(kept, k)
			}
		}
		if kept != nil {
			return kept, true
		}
	case []any:
		var kept []any
		for i, e := range v {
			below, claimed := stripClaims(e)
			if !claimed {
				continue
			}
			if kept == nil {
				kept = append([]any(nil), v...)
			}
			kept[i] = below
		}
		if kept != nil {
			return kept, true
		}
	}
	return v, false
}
