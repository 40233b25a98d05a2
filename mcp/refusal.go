package mcp

import (
	"encoding/json"
	"slices"
)

// Refusal is why a request was not passed to its server.
type Refusal struct {
	Code     string `json:"code"`                  // stable
	Reason   string `json:"reason,omitempty"`      // stable: what stands behind deny, ask, defer and no_verdict; gateclient.Cause
	Text     string `json:"-"`                     // for the model
	Workflow string `json:"workflow_id,omitempty"` // of a call that waits for a person
	Expires  string `json:"expires_at,omitempty"`
	URL      string `json:"approval_url,omitempty"`
	Retry    string `json:"retry,omitempty"` // RetryIdentical, or nothing
}

// RetryIdentical says that the identical request may be sent again once it is approved.
const RetryIdentical = "identical_once_approved"

// MetaRefusal is the member of _meta that has a Refusal for programs. It is not in structuredContent,
// because clients validate that by the tool's output schema.
const MetaRefusal = "countersign.dev/refusal"

// Codes of JSON-RPC errors.
const (
	codeRefused = -32098
	codeInvalid = -32600

	codeInternal = -32603
)

// Answer is the response to a refused request: a result with isError for a tools/call, which the model
// reads, and an error for any other method.
func (r Refusal) Answer(method string, id ID) ([]byte, error) {
	o := map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id)}
	if method == MethodCall {
		o["result"] = r.Result()
	} else {
		o["error"] = map[string]any{"code": codeRefused, "message": r.Text, "data": r}
	}
	return json.Marshal(o)
}

// Result is the result of a tools/call that was refused.
func (r Refusal) Result() any {
	return map[string]any{
		"content": []map[string]string{{"type": "text", "text": r.Text}}, "isError": true, "_meta": map[string]any{MetaRefusal: r},
	}
}

// Invalid is the response to a message that is not passed on. It names no request: the message's id cannot be trusted.
func Invalid(reason error) ([]byte, error) {
	return json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": codeInvalid, "message": reason.Error()},
	})
}

// Failure is the response to a request after its answer was lost.
func Failure(id ID, reason string) ([]byte, error) {
	return Error(id, codeInternal, reason, nil)
}

// Error is the response to a request with an error; data may be nil.
func Error(id ID, code int, message string, data any) ([]byte, error) {
	e := map[string]any{"code": code, "message": message}
	if data != nil {
		e["data"] = data
	}
	if id == "" {
		id = "null"
	}
	return json.Marshal(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "error": e})
}

// Cancellation is the notification that a request is cancelled.
func Cancellation(id ID) ([]byte, error) {
	return json.Marshal(map[string]any{"jsonrpc": "2.0", "method": MethodCanceled, "params": map[string]any{"requestId": json.RawMessage(id)}})
}

// Result is the response to a request with a result, which keeps its bytes.
func Result(id ID, result json.RawMessage) []byte {
	return slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), []byte(id), []byte(`,"result":`), result, []byte("}"))
}
