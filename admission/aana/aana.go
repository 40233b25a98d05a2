// Package aana is the AANA Agent Action Contract v1 as an admission protocol. It reads a
// proposed tool call with its evidence, decides by the contract's algorithm whether the call
// may be executed, and writes the contract's result envelope. Tool policies can only make the
// decision stricter; a stricter decision is written into every field of the envelope that a
// client of the contract reads.
//
// # Profiles
//
// The profile reference-sdk does what the contract's reference does, holes included: its text
// rules let a summary prove a confirmation, and it guesses missing values. It is for
// comparison. The profile hardened, the default, differs in this:
//
//   - Nothing is guessed: an event that is not valid by the schema is refused with
//     schema_validation_failed. Only evidence references may be plain text or lack fields;
//     a missing field gets its weakest value.
//   - An accept that the contract's conditions forbid becomes ask (a write, a private read)
//     or defer (an unknown category), with or without schema_version.
//   - An authorization is supported by evidence of the right kind with the trust tier
//     verified or runtime, never by a word in an identifier, and not by a summary that
//     states the opposite in a form that denialPatterns finds. Evidence never raises the declared state.
//   - Whether a read is bound to an identity is decided by the arguments, at any depth and
//     in any spelling of their names, and by whole words of the tool's name; no other text
//     overrides that.
//   - Evidence from the future is refused like an unreadable time, and a reference's own
//     age limit applies where it is below the contract's 168 hours.
//   - Every text of a reference is scanned for leaks. The proposed arguments are scanned
//     for secrets only, because many calls legitimately carry personal data.
//   - Arguments that the runtime could not parse ({"__raw": …}) are refused.
//   - Route and gate agree: an accept with a hard blocker becomes ask.
//   - evidence_integrity is computed for the corrected category.
//
// Both profiles bound the amount of evidence, use their own wording, quote no value in an error
// and put no value of an argument into a reply. The hardened profile compares text in its NFKC
// form and in lower case; word boundaries are those of ASCII, so that a pattern is found beside
// any other letter.
//
// The pure evaluation is judge; begin reading there. All statements of a sender about trust are
// claims; a tool catalogue and policies can tighten the result.
package aana

import (
	"errors"
	"strings"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aana"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// Name of the protocol and of its evaluator under the hardened profile.
const Name = "aana"

// NameReference is the evaluator's name in the reasons of a decision under the profile
// reference-sdk, so that a record shows the profile.
const NameReference = "aana_reference_sdk"

// MaxEvidenceRefs is the maximum number of references of an event.
const MaxEvidenceRefs = 128

// Evaluator implements call.Protocol.
type Evaluator struct{}

// HasNativeEvaluator implements call.Protocol: the contract defines the evaluator.
func (Evaluator) HasNativeEvaluator() bool { return true }

// readState is the state that Read passes to Reply.
type readState struct {
	result   Result
	verdict  events.Verdict // equivalent to the result
	approved Result         // the result after a reviewer's approval; of an ask only
}

// Read implements call.Protocol.
func (Evaluator) Read(r call.Request) (call.Call, call.Opinion) {
	p := profileFor(r.Profile)
	o := call.Opinion{Verdict: events.Allow}
	e, blocker, violations := p.decode(r, &o)
	c := call.Call{}
	if e != nil {
		c = readCall(e, r, p, &o)
	}
	var result, approved Result
	if o.Malformed {
		result = refusedResult(e, blocker, violations, o.Reasons)
	} else {
		in := Inputs{Now: r.Now, Profile: r.Profile, Digest: r.Digest}
		result = judge(e, in)
		result.recordReasons(p.evaluator, c, &o)
		if o.Verdict == events.Ask {
			in.Approved = true
			if approved = judge(e, in); !approved.passesGate() {
				o.Unapprovable = events.Ask
			}
		}
		c.Risk = riskFacts(e, result)
	}
	c.ProtocolState = readState{result, o.Verdict, approved}
	return c, o
}

// decode reads the event, nil if it is no object, and validates it. blocker is the hard blocker
// of a malformed event.
func (p *profile) decode(r call.Request, o *call.Opinion) (e *wire.Event, blocker string, vs []schemas.Violation) {
	e, err := p.read(r)
	if e == nil {
		o.RefuseUndecodable(p.evaluator, err)
		return nil, p.unreadable, nil
	}
	if errors.Is(err, wire.ErrNotNormal) {
		o.Refuse(p.evaluator, CodeNormalizationFailed, "")
		return e, CodeNormalizationFailed, nil
	}
	vs = p.validate(e)
	o.RefuseViolations(p.evaluator, vs, violationCodes)
	if err != nil && !o.Malformed {
		o.RefuseUndecodable(p.evaluator, err)
	}
	if len(e.Evidence) > MaxEvidenceRefs {
		o.Refuse(p.evaluator, CodeTooManyRefs, "/evidence_refs")
	}
	return e, CodeSchemaFailed, vs
}

// violationCodes are the reason codes of violations that have their own code.
var violationCodes = map[string]string{"const": call.CodeUnknownVersion}

func readCall(e *wire.Event, r call.Request, p *profile, o *call.Opinion) call.Call {
	c := call.Call{
		EventID: e.RequestID, EventIDAsSent: e.RequestID, Tool: e.ToolName, Args: e.Arguments, Event: withoutClaims(e.Sent),
		Session:     o.BodyOrHeader(p.evaluator, r, events.HeaderSession, ""),
		Agent:       o.BodyOrHeader(p.evaluator, r, events.HeaderAgent, e.AgentID),
		Traceparent: call.FirstTraceparent(r), Risk: map[string]any{},
	}
	if c.Tool != "" {
		c.ToolCallID = o.BodyOrHeader(p.evaluator, r, events.HeaderToolCallID, "")
	}
	c.Claim.Category = publisher.Field{Text: categoryOf(c.Event), Path: "/" + memberCategory}
	canonical, err := e.ArgumentsCanonical()
	if err != nil {
		o.Refuse(p.evaluator, call.CodeSchemaInvalid, "/proposed_arguments")
	}
	c.ArgsCanonical = canonical
	o.RefuseLongFields(p.evaluator, map[string]*string{
		"/tool_name": &c.Tool, "/agent_id": &c.Agent, "/request_id": &c.EventID, "/session_id": &c.Session, "/tool_call_id": &c.ToolCallID,
	})
	c.EventIDAsSent = c.EventID
	return c
}

// claimMembers are the members in which a sender makes claims in its own favour. Policies see
// the effective authorization in risk instead.
var claimMembers = []string{"authorization_state", "evidence_refs", "recommended_route"}

func withoutClaims(tree map[string]any) map[string]any {
	clean := make(map[string]any, len(tree))
	for k, v := range tree {
		clean[k] = v
	}
	for _, k := range claimMembers {
		delete(clean, k)
	}
	return clean
}

// categoryLevels grades the categories for policies.
var categoryLevels = map[wire.Category]string{wire.PublicRead: "low", wire.PrivateRead: "medium", wire.Write: "medium", wire.Unknown: "high"}

// riskFacts is the risk that policies see: the corrected category as risk_class, the level, the
// domain, the effective authorization, and irreversible, which is true for a high-risk write.
func riskFacts(e *wire.Event, r Result) map[string]any {
	level := categoryLevels[r.category]
	if r.highRisk {
		level = "high"
	}
	return map[string]any{
		"risk_class": string(r.category), "level": level, "risk_domain": e.RiskDomain, "irreversible": r.highRisk,
		"authorization_state": string(r.Authorization.Effective),
	}
}

// routeVerdicts and verdictRoutes translate between the contract's routes and Countersign's
// verdicts.
var (
	routeVerdicts = map[wire.Route]events.Verdict{wire.Accept: events.Allow, wire.Ask: events.Ask, wire.Defer: events.Defer, wire.Refuse: events.Deny}
	verdictRoutes = map[events.Verdict]wire.Route{events.Allow: wire.Accept, events.Ask: wire.Ask, events.Defer: wire.Defer, events.Deny: wire.Refuse}
)

// verdictOf returns deny for an unknown route.
func verdictOf(r wire.Route) events.Verdict {
	if v, ok := routeVerdicts[r]; ok {
		return v
	}
	return events.Deny
}

// routeOf returns refuse for an unknown verdict.
func routeOf(v events.Verdict) wire.Route {
	if r, ok := verdictRoutes[v]; ok {
		return r
	}
	return wire.Refuse
}

// NativeVerdict implements call.Protocol.
func (Evaluator) NativeVerdict(v events.Verdict) string { return string(routeOf(v)) }

// recordReasons adds the result's reasons to the opinion.
func (r Result) recordReasons(evaluator string, c call.Call, o *call.Opinion) {
	for _, s := range r.recorded {
		o.AddReason(verdictOf(s.route), evaluator, s.code, s.path)
	}
	if c.ToolCallID == "" {
		o.AddReason(events.Allow, evaluator, call.CodeNoToolCallID, "")
	}
	if c.Session == "" {
		o.AddReason(events.Allow, evaluator, call.CodeWeakScope, "")
	}
}

// dottedPath writes a JSON pointer in the form of the contract's errors.
func dottedPath(pointer string) string {
	if pointer == "" {
		return "event"
	}
	return strictjson.UnescapePointer(strings.ReplaceAll(pointer[1:], "/", "."))
}
