package conformance

import (
	"cmp"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// The facets of AAEP.
const (
	Critical             Facet = "events that must be critical"
	Texts                Facet = "events with texts"
	SpokenEvents         Facet = "events that people hear"
	Terminal             Facet = "ends of sessions"
	Numbered             Facet = "events with a sequence number"
	InvocationsAndOutput Facet = "invocations and output"
	LeavesCalling        Facet = "changes of state away from calling a tool"
	Irreversible         Facet = "irreversible invocations"
	HighRisk             Facet = "reversible invocations of high risk"
	Question             Facet = "questions"
	IrreversibleAsked    Facet = "questions about something irreversible"
	Reply                Facet = "replies"
	Rejection            Facet = "rejections"
	AgentHookExecutions  Facet = "executions whose beginning AgentHook reports"
	Acceptance           Facet = "acceptances"

	SubscriptionRequests     Facet = "subscription requests"
	SubscriptionAnswers      Facet = "answers to subscription requests"
	OpenSubscriptionRequests Facet = "open: subscription requests, or requests for other terms, have no answer yet"
	AcceptedSubscriptions    Facet = "subscriptions"
	RefusedSubscriptions     Facet = "refused subscriptions"
	SignedOnly               Facet = "subscription requests that want a signed manifest"
	SignedManifests          Facet = "signed manifests"
	Renewal                  Facet = "requests for other terms of a subscription"
)

// addAAEPEvent takes an event, a reply or a message about a subscription, and tells whether
// it can be read.
func addAAEPEvent(t *Tally, source string, raw []byte) bool {
	e, _ := aaep.Decode(raw, strictjson.DefaultLimits)
	if e != nil {
		t.addAAEP(e, sessionKey{fact.BoundID(cmp.Or(source, e.Producer.AgentID)), fact.BoundID(e.SessionID)}, raw)
	}
	return e != nil
}

func (t *Tally) addAAEP(e *aaep.Event, p sessionKey, raw []byte) {
	token := ""
	switch q := e.Payload.(type) {
	case *aaep.AwaitingConfirmation:
		token = q.ReplyToken
	case *aaep.AwaitingClarification:
		token = q.ReplyToken
	case *aaep.ConfirmationReply:
		p = t.questionSession(q.ReplyToken, p)
	case *aaep.ClarificationReply:
		p = t.questionSession(q.ReplyToken, p)
	}
	if token != "" && len(t.questionSessions) < maxTokens {
		t.questionSessions[token] = p
	}
	if strings.HasPrefix(e.Type, handshakePrefix) {
		o, list := t.sessionTally(subject.ProtoAAEP, p), handshakeFacets(e)
		o.addFacets(list)
		switch {
		case slices.Contains(list, SubscriptionAnswers):
			o.openRequests--
		case (slices.Contains(list, SubscriptionRequests) || slices.Contains(list, Renewal)) && !o.rememberID("asked\x00"+string(raw)):
			o.openRequests++
		}
		return
	}
	if e.IsReply() {
		t.sessionTally(subject.ProtoAAEP, p).addFacets(aaepFacets(e))
		return
	}
	o := t.sessionTally(subject.ProtoAAEP, p)
	o.addEvent(e.EventID, aaepFacets(e))
	o.ended = o.ended || e.IsTerminal()
	switch e.Payload.(type) {
	case *aaep.ToolInvoked:
		o.addCall(e.ToolCallID(), callState{announced: e.ToolCallID() != ""})
	case *aaep.ToolCompleted:
		o.addCall(e.ToolCallID(), callState{ended: true})
	}
}

// questionSession is where a reply belongs: it has no session of its own.
func (t *Tally) questionSession(token string, p sessionKey) sessionKey {
	if q, known := t.questionSessions[token]; known {
		return q
	}
	return p
}

// aaepFacets are those of an AAEP event or reply.
func aaepFacets(e *aaep.Event) facetList {
	f := facetList{Event, TypeOf(e.Type)}
	f.addIf(e.IsTerminal(), Terminal)
	f.addIf(e.SequenceNumber != nil, Numbered)
	switch p := e.Payload.(type) {
	case *aaep.SessionErrored, *aaep.HandoffRequested:
		f.addIf(true, Critical)
	case *aaep.StateChanged:
		f.addIf(p.FromState == "calling_tool" && p.ToState != "calling_tool", LeavesCalling)
	case *aaep.OutputStreaming:
		f.addIf(true, InvocationsAndOutput)
	case *aaep.ToolInvoked:
		final := p.Irreversible != nil && *p.Irreversible
		f.addIf(true, InvocationsAndOutput)
		f.addIf(p.ToolCallID != "", CallID)
		f.addIf(final, Irreversible)
		f.addIf(!final && p.RiskLevel == "high", HighRisk)
	case *aaep.AwaitingConfirmation:
		final := (p.Irreversible != nil && *p.Irreversible) || p.Reversibility == "irreversible"
		f.addIf(true, Critical, Question)
		f.addIf(final, IrreversibleAsked)
	case *aaep.AwaitingClarification:
		f.addIf(true, Critical, Question)
	case *aaep.ConfirmationReply:
		f.addIf(true, Reply)
		f.addIf(p.Decision == "reject", Rejection)
		f.addIf(p.Decision == "accept", Acceptance)
	case *aaep.ClarificationReply:
		f.addIf(true, Reply)
	}
	f.addIf(slices.Contains(announcedTypes, e.Type), SpokenEvents)
	f.addIf(!e.IsReply() && hasReadableText(e.Doc), Texts)
	return f
}

// handshakeFacets are those of a message about a subscription.
func handshakeFacets(e *aaep.Event) facetList {
	var f facetList
	capabilities, signed := e.Doc.Get("capabilities"), e.Doc.Get("signed_manifest").Exists()
	switch strings.TrimPrefix(e.Type, handshakePrefix) {
	case "request":
		f.addIf(true, SubscriptionRequests)
		f.addIf(capabilities.Get("accept_signed_manifests_only").Kind() == strictjson.KindTrue, SignedOnly)
	case "accepted":
		f.addIf(true, SubscriptionAnswers, AcceptedSubscriptions)
		f.addIf(signed, SignedManifests)
	case "rejected":
		f.addIf(true, SubscriptionAnswers, RefusedSubscriptions)
	case "renegotiate":
		f.addIf(true, Renewal)
	}
	return f
}

// handshakePrefix begins the types of messages about subscriptions, which have no
// envelope.
const handshakePrefix = "subscription."

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
	return err == nil && strings.HasPrefix(kind, handshakePrefix)
}
