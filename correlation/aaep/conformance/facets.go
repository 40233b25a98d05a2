package conformance

import (
	"cmp"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/correlation/conformance/profile"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// The facets of AAEP.
const (
	Critical             profile.Facet = "events that must be critical"
	Texts                profile.Facet = "events with texts"
	SpokenEvents         profile.Facet = "events that people hear"
	Terminal             profile.Facet = "ends of sessions"
	Numbered             profile.Facet = "events with a sequence number"
	InvocationsAndOutput profile.Facet = "invocations and output"
	LeavesCalling        profile.Facet = "changes of state away from calling a tool"
	Irreversible         profile.Facet = "irreversible invocations"
	HighRisk             profile.Facet = "reversible invocations of high risk"
	Question             profile.Facet = "questions"
	IrreversibleAsked    profile.Facet = "questions about something irreversible"
	Reply                profile.Facet = "replies"
	Rejection            profile.Facet = "rejections"
	AgentHookExecutions  profile.Facet = "executions whose beginning AgentHook reports"
	Acceptance           profile.Facet = "acceptances"

	SubscriptionRequests     profile.Facet = "subscription requests"
	SubscriptionAnswers      profile.Facet = "answers to subscription requests"
	OpenSubscriptionRequests profile.Facet = "open: subscription requests, or requests for other terms, have no answer yet"
	AcceptedSubscriptions    profile.Facet = "subscriptions"
	RefusedSubscriptions     profile.Facet = "refused subscriptions"
	SignedOnly               profile.Facet = "subscription requests that want a signed manifest"
	SignedManifests          profile.Facet = "signed manifests"
	Renewal                  profile.Facet = "requests for other terms of a subscription"
)

// addEvent takes an event, a reply or a message about a subscription, and reports whether
// it can be read.
func addEvent(s *profile.Sessions, source string, raw []byte) bool {
	e, _ := aaep.Decode(raw, strictjson.DefaultLimits)
	if e == nil {
		return false
	}
	o := s.Of(sessionOf(s, e, source))
	switch {
	case isSubscription(e.Type):
		addHandshake(o, handshakeFacets(e), raw)
	case e.IsReply():
		o.AddFacets(facets(e))
	default:
		addSessionEvent(o, e)
	}
	return true
}

// sessionOf is the session that an event belongs to: a reply names its question alone.
func sessionOf(s *profile.Sessions, e *aaep.Event, source string) profile.Key {
	k := profile.KeyOf(cmp.Or(source, e.Producer.AgentID), e.SessionID)
	switch q := e.Payload.(type) {
	case *aaep.AwaitingConfirmation:
		s.NoteToken(q.ReplyToken, k)
	case *aaep.AwaitingClarification:
		s.NoteToken(q.ReplyToken, k)
	case *aaep.ConfirmationReply:
		return s.OfToken(q.ReplyToken, k)
	case *aaep.ClarificationReply:
		return s.OfToken(q.ReplyToken, k)
	}
	return k
}

// addHandshake takes a message about a subscription.
func addHandshake(o *profile.Session, list profile.Facets, raw []byte) {
	o.AddFacets(list)
	switch {
	case slices.Contains(list, SubscriptionAnswers):
		o.AddUnanswered(OpenSubscriptionRequests, -1)
	case (slices.Contains(list, SubscriptionRequests) || slices.Contains(list, Renewal)) && !o.NoteID("asked\x00"+string(raw)):
		o.AddUnanswered(OpenSubscriptionRequests, 1)
	}
}

func addSessionEvent(o *profile.Session, e *aaep.Event) {
	o.AddEvent(e.EventID, facets(e))
	if e.IsTerminal() {
		o.End()
	}
	switch e.Payload.(type) {
	case *aaep.ToolInvoked:
		o.AddCall(e.ToolCallID(), profile.Call{Announced: e.ToolCallID() != ""})
	case *aaep.ToolCompleted:
		o.AddCall(e.ToolCallID(), profile.Call{Ended: true})
	}
}

// facets are those of an event or reply.
func facets(e *aaep.Event) profile.Facets {
	f := profile.Facets{profile.Event, profile.TypeOf(e.Type)}
	f.AddIf(e.IsTerminal(), Terminal)
	f.AddIf(e.SequenceNumber != nil, Numbered)
	switch p := e.Payload.(type) {
	case *aaep.SessionErrored, *aaep.HandoffRequested:
		f.AddIf(true, Critical)
	case *aaep.StateChanged:
		f.AddIf(p.FromState == "calling_tool" && p.ToState != "calling_tool", LeavesCalling)
	case *aaep.OutputStreaming:
		f.AddIf(true, InvocationsAndOutput)
	case *aaep.ToolInvoked:
		final := p.Irreversible != nil && *p.Irreversible
		f.AddIf(true, InvocationsAndOutput)
		f.AddIf(p.ToolCallID != "", profile.CallID)
		f.AddIf(final, Irreversible)
		f.AddIf(!final && p.RiskLevel == "high", HighRisk)
	case *aaep.AwaitingConfirmation:
		f.AddIf(true, Critical, Question)
		f.AddIf(p.IsIrreversible(), IrreversibleAsked)
	case *aaep.AwaitingClarification:
		f.AddIf(true, Critical, Question)
	case *aaep.ConfirmationReply:
		f.AddIf(true, Reply)
		f.AddIf(p.Decision == "reject", Rejection)
		f.AddIf(p.Decision == "accept", Acceptance)
	case *aaep.ClarificationReply:
		f.AddIf(true, Reply)
	}
	f.AddIf(slices.Contains(announcedTypes, e.Type), SpokenEvents)
	f.AddIf(!e.IsReply() && hasReadableText(e.Doc), Texts)
	return f
}

// handshakeFacets are those of a message about a subscription.
func handshakeFacets(e *aaep.Event) profile.Facets {
	var f profile.Facets
	capabilities, signed := e.Doc.Get("capabilities"), e.Doc.Get("signed_manifest").Exists()
	switch strings.TrimPrefix(e.Type, handshakePrefix) {
	case "request":
		f.AddIf(true, SubscriptionRequests)
		f.AddIf(capabilities.Get("accept_signed_manifests_only").Kind() == strictjson.KindTrue, SignedOnly)
	case "accepted":
		f.AddIf(true, SubscriptionAnswers, AcceptedSubscriptions)
		f.AddIf(signed, SignedManifests)
	case "rejected":
		f.AddIf(true, SubscriptionAnswers, RefusedSubscriptions)
	case "renegotiate":
		f.AddIf(true, Renewal)
	}
	return f
}

// handshakePrefix begins the types of messages about subscriptions, which have no
// envelope.
const handshakePrefix = "subscription."

func isSubscription(eventType string) bool { return strings.HasPrefix(eventType, handshakePrefix) }

// announcedTypes are the types that people hear and for which no schema asks for a
// normal summary.
var announcedTypes = []string{aaep.TypeToolCompleted, aaep.TypeAwaitingConfirmation, aaep.TypeAwaitingClarification,
	aaep.TypeStateChanged, aaep.TypeProgressUpdated, aaep.TypeHandoffRequested}

var readableFields = []string{"summary_terse", "summary_normal", "summary_detailed", "description", "args_summary", "request_text",
	"output_summary", "error_message", "action", "consequence", "question", "context", "reason"}

func hasReadableText(event strictjson.Value) bool {
	return slices.ContainsFunc(readableFields, func(key string) bool { return event.MemberText(key) != "" })
}

// acceptingProducer is the producer that accepts a subscription; a request does not say to whom it goes.
func acceptingProducer(line []byte) (producer string, named bool) {
	if e, _ := aaep.Decode(line, strictjson.DefaultLimits); e != nil && e.Type == handshakePrefix+"accepted" {
		return e.Producer.AgentID, true
	}
	return "", false
}

// isHandshake tells messages about subscriptions from events.
func isHandshake(line []byte) bool {
	var shape struct {
		Type any `json:"type"`
	}
	err := strictjson.Unmarshal(line, &shape)
	kind, _ := shape.Type.(string)
	return err == nil && isSubscription(kind)
}
