package gateway

import (
	"encoding/json"
	"net/http"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/gateway/endpoint"
)

// receiptRequest is the body of POST /v1/receipts:verify. The token gives tenant and publisher.
type receiptRequest struct {
	Receipt string `json:"receipt"`
	Key     string `json:"key,omitempty"`
	Call    struct {
		Session    string          `json:"session,omitempty"`
		ToolCallID string          `json:"tool_call_id,omitempty"`
		Tool       string          `json:"tool,omitempty"`
		Arguments  json.RawMessage `json:"arguments,omitempty"`
	} `json:"call"`
}

// planReceipt reads which receipt is to be checked against which call. A body that two readers could
// read differently is refused.
func planReceipt(r endpoint.Request) (endpoint.Plan, *endpoint.Problem) {
	var req receiptRequest
	if _, err := strictjson.ReadObject(r.Body, strictjson.DefaultLimits); err != nil {
		return endpoint.Plan{}, ProblemOf(BadRequest)
	}
	if strictjson.Unmarshal(r.Body, &req, strictjson.RejectUnknown) != nil {
		return endpoint.Plan{}, ProblemOf(BadRequest)
	}
	check := &endpoint.Receipt{Receipt: req.Receipt, Key: req.Key, Session: req.Call.Session, ToolCallID: req.Call.ToolCallID, Tool: req.Call.Tool}
	if len(req.Call.Arguments) > 0 && string(req.Call.Arguments) != "null" {
		check.Arguments = req.Call.Arguments
	}
	return endpoint.Plan{Receipt: check}, nil
}

// receiptAnswer is the answer of POST /v1/receipts:verify: Valid with what a caller needs to use the
// receipt once, or the reason alone.
type receiptAnswer struct {
	Valid      bool        `json:"valid"`
	Reason     string      `json:"reason,omitempty"`
	DecisionID string      `json:"decision_id,omitempty"`
	Nonce      string      `json:"nonce,omitempty"`
	ExpiresAt  events.Time `json:"expires_at,omitzero"`
	UseUntil   events.Time `json:"use_until,omitzero"`
}

// ReceiptHolds answers that a receipt permits the call.
func ReceiptHolds(decisionID, nonce string, expiresAt, useUntil events.Time) endpoint.Response {
	return endpoint.JSON(http.StatusOK, receiptAnswer{Valid: true, DecisionID: decisionID, Nonce: nonce, ExpiresAt: expiresAt, UseUntil: useUntil})
}

// ReceiptFails answers that a receipt does not permit the call; reason is a code of the executor's guard.
func ReceiptFails(reason string) endpoint.Response {
	return endpoint.JSON(http.StatusOK, receiptAnswer{Reason: reason})
}
