package gateway

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/service/follow"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// review sends a command of the reviewer over NATS.
func (r *rig) review(req approval.Request) (reply approval.Reply) {
	r.tb.Helper()
	body, err := json.Marshal(req)
	servicetest.OK(r.tb, err)
	m, err := r.nats.Conn("dana").Request(subject.Space{}.Resolve(servicetest.Tenant), body, servicetest.Guard)
	servicetest.OK(r.tb, err)
	servicetest.OK(r.tb, json.Unmarshal(m.Data, &reply))
	return reply
}

// The state of a workflow is for the publisher that asked and for the tenant's listeners. Another
// publisher, and a caller that invents a name, get the same bytes. A request that waits is answered when
// a reviewer has decided.
func TestApprovalState(t *testing.T) {
	r := start(t)
	r.admitter()
	js := r.nats.JS("correlator")
	stop, err := follow.Serve(t.Context(), js, streams.DefaultShard, subject.Space{Prefix: "gov"}, zerolog.Nop())
	servicetest.OK(t, err)
	t.Cleanup(stop)
	res, body := r.do("POST", "/event", "runtime", example(t, "requests/pre-tool-use-external.json"))
	workflow := res.Header.Get(events.HeaderWorkflow)
	if workflow == "" {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	state := func(workflow, who, query string) (int, string, string) {
		t.Helper()
		res, body := r.do("GET", "/v1/approvals/"+workflow+query, who, nil)
		var said struct {
			WorkflowID string `json:"workflow_id"`
			Status     string
		}
		servicetest.OK(t, json.Unmarshal(body, &said))
		if res.StatusCode == http.StatusOK && said.WorkflowID != workflow {
			t.Errorf("%s", body)
		}
		return res.StatusCode, said.Status, string(body)
	}
	for _, who := range []string{"runtime", "subscriber", "reviewer"} {
		if code, status, body := state(workflow, who, ""); code != 200 || status != "pending" {
			t.Errorf("%s: %d %s", who, code, body)
		}
	}
	_, _, absent := state("wf-none", "direct", "?wait=30")
	for path, who := range map[string]string{workflow + "?wait=30": "direct", "wf-other": "runtime", "%3e": "direct", "*": "direct", workflow + "%2a": "runtime"} {
		res, body := r.do("GET", "/v1/approvals/"+path, who, nil)
		if res.StatusCode != 404 || string(body) != absent {
			t.Errorf("%s as %s: %d %s, want %s", path, who, res.StatusCode, body, absent)
		}
	}
	for who, want := range map[string]int{"": 401, "globex": 401, "expired": 401} {
		if code, _, body := state(workflow, who, ""); code != want {
			t.Errorf("%q: %d %s", who, code, body)
		}
	}
	if code, _, body := state(workflow, "runtime", "?wait=31"); code != 400 {
		t.Errorf("a wait beyond the bound: %d %s", code, body)
	}
	if code, status, body := state(workflow, "runtime", "?wait=1"); code != 200 || status != "pending" {
		t.Errorf("after a wait without a decision: %d %s", code, body)
	}
	waits := make(chan string, 2) // as many as a token may have at once
	for range 2 {
		go func() {
			code, status := 429, "" // while the look below has its place
			for code == 429 {
				code, status, _ = state(workflow, "runtime", "?wait=30")
			}
			waits <- status
		}()
	}
	servicetest.Eventually(t, "both requests wait", func() bool { code, _, _ := state(workflow, "runtime", ""); return code == 429 })
	shown := r.review(approval.Request{Action: approval.CommandShow, WorkflowID: workflow})
	if done := r.review(approval.Request{Action: "approve", WorkflowID: workflow, PreviewDigest: shown.Workflow.PreviewDigest}); !done.OK {
		t.Fatalf("%+v", done)
	}
	for range 2 {
		select {
		case status := <-waits:
			if status != "approved" {
				t.Errorf("%s", status)
			}
		case <-time.After(servicetest.Guard):
			t.Fatal("a request was not answered after the decision")
		}
	}
	// An attempt that came too late is recorded behind what it did not change.
	late, err := json.Marshal(events.Approval{WorkflowID: workflow, Tenant: servicetest.Tenant, Source: servicetest.Runtime, Status: "pending", Step: 1})
	servicetest.OK(t, err)
	r.nats.Publish("admitter", streams.Msg{Subject: subject.Space{}.Approval(servicetest.Tenant, "pending", workflow), Body: late})
	if code, status, _ := state(workflow, "subscriber", "?wait=30"); code != 200 || status != "approved" {
		t.Errorf("%d %s", code, status)
	}
}
