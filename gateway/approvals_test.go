package gateway

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/gateway/token"
)

func TestReadWait(t *testing.T) {
	for query, want := range map[string]time.Duration{
		"": 0, "wait=0": 0, "wait=1": time.Second, "wait=30": MaxWait, "wait=31": -1, "wait=-1": -1, "wait=": -1, "wait=1.5": -1, "wait=1s": -1,
		"wait=99999999999999999999": -1, "wait=1&wait=2": -1, "Wait=1": -1, "wait=1&all=1": -1, "all": -1, "wait=%zz": -1, "wait=1;wait=2": -1, "wait=+1": -1,
	} {
		got, p := ReadWait(query)
		if p != nil {
			got = -1
		}
		if got != want || p != nil && p.Status != 400 {
			t.Errorf("%q: %v %v, want %v", query, got, p, want)
		}
	}
}

// A runtime sees the workflows of its publisher alone; other roles those of the tenant. A record of
// another workflow or tenant is no answer for any caller.
func TestApprovalIsOnlyForThoseConcerned(t *testing.T) {
	record := `{"workflow_id":"wf-1","tenant":"acme","source":"rt1","status":"pending"}`
	for _, c := range []struct {
		record, workflow, tenant, user, role string
		sees                                 bool
	}{
		{record, "wf-1", "acme", "rt1", token.Runtime, true},
		{record, "wf-1", "acme", "rt2", token.Runtime, false},
		{record, "wf-1", "acme", "", token.Runtime, false},
		{record, "wf-1", "acme", "rt1", "", false},
		{record, "wf-1", "acme", "sam", token.Subscriber, true},
		{record, "wf-1", "acme", "dana", token.Reviewer, true},
		{record, "wf-1", "globex", "rt1", token.Runtime, false},
		{record, "wf-1", "globex", "dana", token.Reviewer, false},
		{record, "wf-2", "acme", "rt1", token.Runtime, false},
		{strings.Replace(record, "acme", "globex", 1), "wf-1", "acme", "rt1", token.Runtime, false},
		{"", "wf-1", "acme", "rt1", token.Runtime, false},
		{"null", "wf-1", "acme", "rt1", token.Runtime, false},
	} {
		a, ok := ReadApproval([]byte(c.record), c.workflow, token.Record{Tenant: c.tenant, User: c.user, Role: c.role})
		if ok != c.sees || !ok && a.WorkflowID != "" && c.sees {
			t.Errorf("%+v: %v", c, ok)
		}
	}
}

// The answer has the status at the time of the answer, and no word of a reviewer.
func TestApprovalAnswer(t *testing.T) {
	now := time.Now()
	a := events.Approval{WorkflowID: "wf-1", Status: "pending", Approver: "dana", Approvers: []string{"dana"}, Reason: "known customer", PreviewDigest: "d", ExpiresAt: events.At(now.Add(time.Minute))}
	for status, want := range map[string]string{"pending": "expired", "approved": "expired", "denied": "denied", "cancelled": "cancelled", "consumed": "consumed"} {
		a.Status = status
		var said struct{ Status string }
		out := ApprovalAnswer(a, now)
		if json.Unmarshal(out.Body, &said) != nil || said.Status != status || IsPending(a, now) != (status == "pending") {
			t.Errorf("%s: %s", status, out.Body)
		}
		if strings.Contains(string(out.Body), "dana") || strings.Contains(string(out.Body), "customer") {
			t.Errorf("%s", out.Body)
		}
		later := ApprovalAnswer(a, now.Add(time.Minute))
		if json.Unmarshal(later.Body, &said) != nil || said.Status != want || IsPending(a, now.Add(time.Minute)) {
			t.Errorf("later, %s: %s", status, later.Body)
		}
	}
}
