package aaep

import (
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events/internal/field"
)

// AwaitingConfirmation asks the user to accept or reject an action (section
// 4.4.1).
type AwaitingConfirmation struct {
	Summary         string
	Action          string
	ReplyToken      string
	TimeoutSeconds  *int64
	DefaultDecision string // accept reject
	RiskLevel       string // low medium high
	Irreversible    *bool
	Reversibility   string         // reversible reversible_with_effort irreversible
	AllowedReplies  []string       // nil if absent, which means accept and reject
	ExtraContext    map[string]any // nil if absent
}

// IsIrreversible reports whether the action cannot be undone. Either field may say so (A-07 of the
// digest).
func (p *AwaitingConfirmation) IsIrreversible() bool {
	return p.Irreversible != nil && *p.Irreversible || p.Reversibility == "irreversible"
}

func readAwaitingConfirmation(o field.Object) any {
	return &AwaitingConfirmation{
		Summary:         readSummary(o),
		Action:          o.Text("action"),
		ReplyToken:      o.Text("reply_token"),
		TimeoutSeconds:  o.Int("timeout_seconds"),
		DefaultDecision: o.Text("default_decision"),
		RiskLevel:       o.Text("risk_level"),
		Irreversible:    o.Bool("irreversible"),
		Reversibility:   o.Text("reversibility"),
		AllowedReplies:  o.Texts("allowed_replies"),
		ExtraContext:    o.Map("extra_context"),
	}
}

// AwaitingClarification asks the user a question (section 4.4.2).
type AwaitingClarification struct {
	Summary               string
	ReplyToken            string
	TimeoutSeconds        *int64
	AcceptedResponseKinds []string // of freetext yes_no multiple_choice numeric
	Choices               []string // the values
	DefaultResponse       *string  // nil if absent; the empty text is an answer
}

func readAwaitingClarification(o field.Object) any {
	return &AwaitingClarification{
		Summary:               readSummary(o),
		ReplyToken:            o.Text("reply_token"),
		TimeoutSeconds:        o.Int("timeout_seconds"),
		AcceptedResponseKinds: o.Texts("accepted_response_kinds"),
		Choices:               readChoices(o),
		DefaultResponse:       o.TextPtr("default_response"),
	}
}

func readChoices(o field.Object) (values []string) {
	for _, c := range o.Objects("choices") {
		values = append(values, c.Text("value"))
	}
	return values
}

// ConfirmationReply answers an AwaitingConfirmation (section 6.3). It has no
// envelope.
type ConfirmationReply struct {
	ReplyToken     string
	Decision       string // accept reject
	SubscriptionID string
	Timestamp      string
	Time           time.Time // Timestamp as an instant; zero if it is not RFC 3339
	DecidedBy      string
	ModifiedAction map[string]any
	CorrelationID  string
}

func readConfirmationReply(o field.Object) any {
	r := &ConfirmationReply{
		ReplyToken:     o.Text("reply_token"),
		Decision:       o.Text("decision"),
		SubscriptionID: o.Text("subscription_id"),
		Timestamp:      o.Text("timestamp"),
		DecidedBy:      o.Text("decided_by"),
		ModifiedAction: o.Map("modified_action"),
		CorrelationID:  o.Text("correlation_id"),
	}
	r.Time = field.Instant(r.Timestamp)
	return r
}

// IsAutomatic reports whether decided_by names a program that answered for the user (section 9.4.2).
func IsAutomatic(decidedBy string) bool {
	return strings.HasPrefix(strings.ToLower(strings.TrimSpace(decidedBy)), "auto:")
}

// ClarificationReply answers an AwaitingClarification (section 6.5). It has no
// envelope.
type ClarificationReply struct {
	ReplyToken     string
	Response       string // a text as it is; a boolean or number in its RFC 8785 form
	ResponseKind   string // string, boolean or number; "" if absent
	SubscriptionID string
	Timestamp      string
	Time           time.Time // Timestamp as an instant; zero if it is not RFC 3339
	DecidedBy      string
	CorrelationID  string
}

func readClarificationReply(o field.Object) any {
	r := &ClarificationReply{
		ReplyToken:     o.Text("reply_token"),
		SubscriptionID: o.Text("subscription_id"),
		Timestamp:      o.Text("timestamp"),
		DecidedBy:      o.Text("decided_by"),
		CorrelationID:  o.Text("correlation_id"),
	}
	r.Time = field.Instant(r.Timestamp)
	r.Response, r.ResponseKind = readResponse(o)
	return r
}

func readResponse(o field.Object) (response, kind string) {
	switch kind = o.Kind("response"); kind {
	case field.KindString:
		return o.Text("response"), kind
	case field.KindBool, field.KindNumber:
		return string(o.Get("response").AppendCanonical(nil)), kind
	case "":
		return "", ""
	}
	o.Fail("response", "a string, a number, true or false")
	return "", ""
}
