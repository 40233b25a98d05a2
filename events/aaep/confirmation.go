package aaep

import (
	"time"

	"github.com/countersign-dev/countersign/events/internal/field"
)

// AwaitingConfirmation asks the user to accept or reject an action (section
// 4.4.1).
type AwaitingConfirmation struct {
	Summaries
	Action          string
	Consequence     string
	ReplyToken      string
	TimeoutSeconds  *int64
	DefaultDecision string // accept reject
	RiskLevel       string // low medium high
	Irreversible    *bool
	Reversibility   string         // reversible reversible_with_effort irreversible
	AllowedReplies  []string       // nil if absent, which means accept and reject
	ExtraContext    map[string]any // nil if absent
}

func readAwaitingConfirmation(o field.Object) any {
	return &AwaitingConfirmation{
		Summaries:       readSummaries(o),
		Action:          o.Text("action"),
		Consequence:     o.Text("consequence"),
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

// Choice is one answer that a clarification offers.
type Choice struct{ Value, Label string }

// AwaitingClarification asks the user a question (section 4.4.2).
type AwaitingClarification struct {
	Summaries
	Question              string
	ReplyToken            string
	TimeoutSeconds        *int64
	AcceptedResponseKinds []string // of freetext yes_no multiple_choice numeric
	Choices               []Choice
	Context               string
	DefaultResponse       *string // nil if absent; the empty text is an answer
}

func readAwaitingClarification(o field.Object) any {
	return &AwaitingClarification{
		Summaries:             readSummaries(o),
		Question:              o.Text("question"),
		ReplyToken:            o.Text("reply_token"),
		TimeoutSeconds:        o.Int("timeout_seconds"),
		AcceptedResponseKinds: o.Texts("accepted_response_kinds"),
		Choices:               readChoices(o),
		Context:               o.Text("context"),
		DefaultResponse:       o.TextPtr("default_response"),
	}
}

func readChoices(o field.Object) []Choice {
	var choices []Choice
	for _, c := range o.Objects("choices") {
		choices = append(choices, Choice{Value: c.Text("value"), Label: c.Text("label")})
	}
	return choices
}

// ConfirmationReply answers an AwaitingConfirmation (section 6.3). It has no
// envelope.
type ConfirmationReply struct {
	ReplyToken        string
	Decision          string // accept reject
	SubscriptionID    string
	Timestamp         string
	Time              time.Time // Timestamp as an instant; zero if it is not RFC 3339
	DecidedBy         string
	DecisionRationale string
	ModifiedAction    map[string]any
	CorrelationID     string
}

func readConfirmationReply(o field.Object) any {
	r := &ConfirmationReply{
		ReplyToken:        o.Text("reply_token"),
		Decision:          o.Text("decision"),
		SubscriptionID:    o.Text("subscription_id"),
		Timestamp:         o.Text("timestamp"),
		DecidedBy:         o.Text("decided_by"),
		DecisionRationale: o.Text("decision_rationale"),
		ModifiedAction:    o.Map("modified_action"),
		CorrelationID:     o.Text("correlation_id"),
	}
	r.Time = field.Instant(r.Timestamp)
	return r
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
	Confidence     *float64 // 0 to 1
	CorrelationID  string
}

func readClarificationReply(o field.Object) any {
	r := &ClarificationReply{
		ReplyToken:     o.Text("reply_token"),
		SubscriptionID: o.Text("subscription_id"),
		Timestamp:      o.Text("timestamp"),
		DecidedBy:      o.Text("decided_by"),
		Confidence:     o.Number("confidence"),
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
