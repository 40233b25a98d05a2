package mcpgate

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/mcp"
)

// askedAgain is a gateway that answers the first question with an ask. Then it says what has become of the workflow,
// once, and answers the next question; what has become of it later is said by later.
type askedAgain struct {
	status string // of the workflow
	answer http.HandlerFunc
	later  string

	asked, looked atomic.Int32
}

func verdict(word, workflow, status string) http.HandlerFunc {
	body := fmt.Sprintf(`{"event_id":"x","decision":%q,"reason":"why","metadata":{"approval":{"workflow_id":%q,"status":%q}}}`, word, workflow, status)
	return answer(200, map[string]string{"Countersign-Verdict": word}, body)
}

func (g *askedAgain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/v1/approvals/"):
		status := g.status
		if g.looked.Add(1) > 1 {
			status = g.later
		}
		switch status {
		case "":
			http.NotFound(w, r)
		case "cut":
			panic(http.ErrAbortHandler)
		default:
			answer(200, nil, fmt.Sprintf(`{"workflow_id":%q,"status":%q}`, strings.TrimPrefix(r.URL.Path, "/v1/approvals/"), status))(w, r)
		}
	case r.Method == http.MethodPost && !isProposal(r):
		answer(200, nil, `{}`)(w, r)
	case g.asked.Add(1) == 1:
		verdict("ask", "wf-1", "pending")(w, r)
	default:
		g.answer(w, r)
	}
}

// isProposal reports whether a request asks for admission; the others are reports.
func isProposal(r *http.Request) bool {
	var event struct {
		Type string `json:"event_type"`
	}
	return json.NewDecoder(r.Body).Decode(&event) == nil && event.Type == "PreToolUse"
}

// refusalOf reads the refusal for programs in what a client got.
func refusalOf(t *testing.T, client string) mcp.Refusal {
	t.Helper()
	var got struct {
		Result struct {
			IsError bool
			Meta    map[string]mcp.Refusal `json:"_meta"`
		}
	}
	if err := json.Unmarshal([]byte(client), &got); err != nil || !got.Result.IsError {
		t.Fatalf("no refusal: %s, %v", client, err)
	}
	return got.Result.Meta[mcp.MetaRefusal]
}

// A call that waits for a person is asked for once, and once more after the decision; its refusal says for programs
// what has become of the approval.
func TestReasonsOfWaitingCalls(t *testing.T) {
	for name, c := range map[string]struct {
		gateway      *askedAgain
		code, reason string
		asked        int32
	}{
		"expired":                       {&askedAgain{status: "expired"}, "deny", "expired", 1},
		"taken back":                    {&askedAgain{status: "cancelled"}, "deny", "cancelled", 1},
		"used up":                       {&askedAgain{status: "consumed"}, "deny", "consumed", 1},
		"denied by a person":            {&askedAgain{status: "denied", answer: verdict("deny", "wf-1", "denied")}, "deny", "denied_by_reviewer", 2},
		"denied by a policy meanwhile":  {&askedAgain{status: "approved", answer: verdict("deny", "", "")}, "deny", "denied_by_policy", 2},
		"not enough":                    {&askedAgain{status: "approved", answer: answer(200, map[string]string{"Countersign-Verdict": "defer"}, `{"event_id":"x","decision":"ask","reason":"why"}`)}, "defer", "not_approvable", 2},
		"other policies":                {&askedAgain{status: "approved", answer: verdict("ask", "wf-2", "pending"), later: "approved"}, "deny", "policy_changed", 2},
		"used up by another":            {&askedAgain{status: "approved", answer: verdict("ask", "wf-2", "pending"), later: "consumed"}, "deny", "consumed", 2},
		"erased":                        {&askedAgain{status: "approved", answer: verdict("ask", "wf-2", "pending")}, "deny", "not_found", 2},
		"no admitter":                   {&askedAgain{status: "approved", answer: answer(503, nil, `{"error":"unavailable","message":"no"}`)}, "no_verdict", "outage", 2},
		"the gateway restarts":          {&askedAgain{status: "cut", later: "denied", answer: verdict("deny", "wf-1", "denied")}, "deny", "denied_by_reviewer", 2},
		"the gateway goes meanwhile":    {&askedAgain{status: "cut", later: "cut"}, "ask", "waiting", 1},
		"a status that is none":         {&askedAgain{status: "fine", later: "fine"}, "ask", "waiting", 1},
		"a token that was revoked":      {&askedAgain{status: "approved", answer: answer(401, nil, `{"error":"unauthorized","message":"no"}`)}, "no_verdict", "not_authorized", 2},
		"too many requests":             {&askedAgain{status: "approved", answer: answer(429, nil, `{"error":"rate_limited","message":"later"}`)}, "no_verdict", "busy", 2},
		"a request that is not taken":   {&askedAgain{status: "approved", answer: answer(413, nil, `{"error":"too_large","message":"no"}`)}, "no_verdict", "not_accepted", 2},
		"waiting, and the time is over": {&askedAgain{status: "pending", later: "pending"}, "ask", "waiting", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.gateway.ServeHTTP)
			if c.code == "ask" {
				r.gate.hold = 2500 * time.Millisecond
			}
			r.list(t)
			client, server := r.fromTheClient(t, call)
			if got := refusalOf(t, client); got.Code != c.code || got.Reason != c.reason || server != "" {
				t.Errorf("%+v, want %s, %s; the server got %q", got, c.code, c.reason, server)
			}
			if n := c.gateway.asked.Load(); n != c.asked {
				t.Errorf("the admitter was asked %d times, want %d", n, c.asked)
			}
		})
	}
}

// A call is told that another one's approval, with other arguments or of another caller, is not its own.
func TestReasonOfOtherArguments(t *testing.T) {
	r := newRig(t, verdict("ask", "wf-1", "pending"))
	r.gate.hold = time.Second
	r.list(t)
	for i, c := range []struct{ arguments, reason string }{
		{`{"a":1}`, "waiting"}, {`{"a":2}`, "other_arguments"}, {`{"a":1}`, "waiting"}, {`{ "a": 1 }`, "waiting"},
	} {
		client, _ := r.fromTheClient(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t","arguments":%s}}`, i+2, c.arguments))
		if got := refusalOf(t, client); got.Code != "ask" || got.Reason != c.reason || got.Workflow != "wf-1" {
			t.Errorf("%s: %+v, want %s", c.arguments, got, c.reason)
		}
		if !strings.Contains(client, "Where a person decides: countersign approvals show wf-1") {
			t.Errorf("the model is not told where a person decides: %s", client)
		}
	}
	call := mcp.Call{Server: "kit", Name: "t", Arguments: json.RawMessage(`{"a":3}`), Caller: "eve"}
	if r.gate.waitsForOther("another", call) {
		t.Error("a caller is told of another caller's call")
	}
}
