package admitter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// askPolicy asks about every mail; extra is what else stands in its spec.
func askPolicy(extra string) []byte {
	return []byte("apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: mail}\nspec:\n" + extra +
		"  rules: [{name: all, when: 'true', verdict: ask, reason: external_recipient}]\n")
}

const askingAt = "gov.admit.acme.agenthook"

// office is a server with an admitter, a runtime and reviewers.
type office struct {
	t       *testing.T
	n       *servicetest.NATS
	runtime *nats.Conn
	users   map[string]*nats.Conn
}

func openOffice(t *testing.T, extra string, docs ...string) *office {
	t.Helper()
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "mail.yaml", askPolicy(extra))
	for i, d := range docs {
		put(t, n, fmt.Sprint("doc", i, ".yaml"), []byte(d))
	}
	serve(t, n)
	return &office{t: t, n: n, runtime: n.Conn(servicetest.Runtime), users: map[string]*nats.Conn{}}
}

// call is the external mail, edited.
func (o *office) call(edits ...string) []byte {
	text := string(file(o.t, "requests/pre-tool-use-external.json"))
	for i := 0; i+1 < len(edits); i += 2 {
		if !strings.Contains(text, edits[i]) {
			o.t.Fatalf("no %q in %s", edits[i], text)
		}
		text = strings.ReplaceAll(text, edits[i], edits[i+1])
	}
	return []byte(text)
}

// asks asks for admission and gives verdict and workflow.
func (o *office) asks(body []byte, header ...string) (verdict, workflow string) {
	o.t.Helper()
	reply := ask(o.t, o.runtime, askingAt, body, header...)
	return reply.Header.Get(events.HeaderVerdict), reply.Header.Get(events.HeaderWorkflow)
}

func (o *office) conn(user string) *nats.Conn {
	if o.users[user] == nil {
		o.users[user] = o.n.Conn(user)
	}
	return o.users[user]
}

// says sends a reviewer's request.
func (o *office) says(user string, request any) approval.Reply {
	o.t.Helper()
	body, isText := request.(string)
	if !isText {
		b, err := json.Marshal(request)
		servicetest.OK(o.t, err)
		body = string(b)
	}
	tenant := map[bool]string{true: "globex", false: "acme"}[user == "gus"]
	msg := ask(o.t, o.conn(user), "gov.resolve."+tenant, []byte(body))
	var r approval.Reply
	servicetest.OK(o.t, json.Unmarshal(msg.Data, &r))
	if failed := msg.Header.Get("Nats-Service-Error"); (failed == "") != r.OK || failed != "" && failed != string(r.Code) {
		o.t.Errorf("%+v with the header %q", r, failed)
	}
	return r
}

// decides lets a reviewer look at a workflow and act on it.
func (o *office) decides(user, action, workflow string) approval.Code {
	o.t.Helper()
	shown := o.says(user, approval.Request{Action: approval.CommandShow, WorkflowID: workflow})
	if !shown.OK {
		return shown.Code
	}
	return o.says(user, approval.Request{Action: action, WorkflowID: workflow, PreviewDigest: shown.Workflow.PreviewDigest, Reason: "looked at it"}).Code
}

// trail gives the approval records of a workflow, in order, each as act>status,
// with the code of refused attempts; it checks every signature.
func (o *office) trail(workflow string) string {
	o.t.Helper()
	key, err := keys.Receipt(o.n.Keys)
	servicetest.OK(o.t, err)
	var list []string
	for _, m := range of(o.n.Log(), "gov.approvals.acme.") {
		r, err := events.DecodeRecord[events.Approval](m.Body)
		servicetest.OK(o.t, err)
		if r.WorkflowID != workflow {
			continue
		}
		if want := "gov.approvals.acme." + r.Status + "." + workflow; m.Subject != want {
			o.t.Errorf("on %s, want %s", m.Subject, want)
		}
		_, err = signing.KeySet{key.ID: key.Public()}.VerifyRecord(m.HeaderValue(events.HeaderSignature), m.Body)
		servicetest.OK(o.t, err)
		step := r.Act + ">" + r.Status
		if r.Refused != "" {
			step = r.Approver + ":" + r.Refused
		}
		list = append(list, step)
	}
	return strings.Join(list, " ")
}

func (o *office) expect(body []byte, want string, header ...string) (workflow string) {
	o.t.Helper()
	verdict, workflow := o.asks(body, header...)
	if verdict != want {
		o.t.Fatalf("%s, want %s", verdict, want)
	}
	return workflow
}

func TestApproval(t *testing.T) {
	o := openOffice(t, "")
	id := o.expect(o.call(), "ask")
	if again := o.expect(o.call(), "ask"); again != id {
		t.Fatalf("a retry opened %s beside %s", again, id)
	}
	list := o.says("dana", approval.Request{Action: approval.CommandList})
	if len(list.Workflows) != 1 || list.Workflows[0].WorkflowID != id || list.Workflows[0].Status != approval.Pending || list.Workflows[0].Preview != nil {
		t.Fatalf("%+v", list)
	}
	if code := o.says("dana", approval.Request{Action: approval.CommandApprove, WorkflowID: id}).Code; code != approval.CodePreviewRequired {
		t.Error(code)
	}
	if code := o.decides("dana", approval.CommandApprove, id); code != approval.CodeApproved {
		t.Fatal(code)
	}
	if code := o.decides("eve", approval.CommandDeny, id); code != approval.CodeResolved {
		t.Error(code)
	}
	o.expect(o.call("press@newspaper.example", "evil@newspaper.example"), "ask")
	if used := o.expect(o.call(), "allow"); used != id {
		t.Errorf("allowed by %s", used)
	}
	if anew := o.expect(o.call(), "ask"); anew == id {
		t.Error("the approval served twice")
	}
	if got, want := o.trail(id), "open>pending dana:preview_required approve>approved eve:already_resolved consume>consumed"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	recordsInOrder(t, o.n.Log(), id)
}

// recordsInOrder: the record of opening comes after its decision, that of the
// approval before the decision that rests on it, and the correlator takes all.
func recordsInOrder(t *testing.T, log []events.LogMessage, id string) {
	t.Helper()
	var order []string
	for _, m := range log {
		if d, err := events.DecodeRecord[events.Decision](m.Body); err == nil && d.Approval != nil && d.Approval.WorkflowID == id {
			order = append(order, "decision "+string(d.Verdict)+" "+d.Approval.Status)
		}
		if a, err := events.DecodeRecord[events.Approval](m.Body); err == nil && a.WorkflowID == id && a.Refused == "" {
			order = append(order, a.Status)
		}
	}
	want := []string{"decision ask pending", "pending", "decision ask pending", "approved", "decision allow consumed", "consumed"}
	if !slices.Equal(order, want) {
		t.Errorf("%q\nwant %q", order, want)
	}
	c := correlation.New(correlation.Options{Shard: streams.DefaultShard, KeyVoucher: func(events.KeyRecord) bool { return true }})
	for _, m := range log {
		if !strings.HasPrefix(m.Subject, "gov.approvals.") && !strings.HasPrefix(m.Subject, "gov.control.") {
			continue
		}
		for _, out := range c.Apply(m) {
			t.Errorf("the correlator does not like %s: %s", m.Subject, out.Body)
		}
	}
}

func TestDenial(t *testing.T) {
	o := openOffice(t, "")
	id := o.expect(o.call(), "ask")
	if code := o.decides("dana", approval.CommandDeny, id); code != approval.CodeDenied {
		t.Fatal(code)
	}
	if w := o.expect(o.call(), "deny"); w != id {
		t.Error(w)
	}
	o.expect(o.call("call-mail-2", "call-mail-3"), "deny")
	if list := o.says("dana", approval.Request{Action: approval.CommandList, All: true}); len(list.Workflows) != 1 || list.Workflows[0].Reason != "looked at it" {
		t.Errorf("%+v", list)
	}
}

func TestGroupsAndQuorum(t *testing.T) {
	o := openOffice(t, "  approval: {reviewers: [desk], quorum: 2, resume: retry_with_workflow_id}\n",
		"apiVersion: countersign.dev/v1\nkind: ReviewerGroup\nmetadata: {name: desk}\nspec: {members: [dana, eve]}\n")
	id := o.expect(o.call(), "ask")
	for i, step := range []struct {
		user string
		want approval.Code
	}{{"dana", approval.CodeRecorded}, {"dana", approval.CodeVoted}, {"eve", approval.CodeApproved}} {
		if code := o.decides(step.user, approval.CommandApprove, id); code != step.want {
			t.Fatalf("%d: %s, want %s", i, code, step.want)
		}
	}
	o.expect(o.call(), "ask") // must name it
	if used := o.expect(o.call("call-mail-2", "call-mail-9"), "allow", events.HeaderWorkflow, id); used != id {
		t.Error(used)
	}
	if got := o.trail(id); got != "open>pending vote>pending dana:already_approved approve>approved consume>consumed" {
		t.Error(got)
	}
}

func TestWhoMayNotReview(t *testing.T) {
	o := openOffice(t, "  approval: {reviewers: [desk]}\n",
		"apiVersion: countersign.dev/v1\nkind: ReviewerGroup\nmetadata: {name: desk}\nspec: {members: [eve]}\n")
	id := o.expect(o.call(), "ask")
	if list := o.says("dana", approval.Request{Action: approval.CommandList}); len(list.Workflows) != 0 {
		t.Errorf("dana sees %+v", list.Workflows)
	}
	for _, action := range []string{approval.CommandApprove, approval.CommandDeny, approval.CommandCancel} {
		r := o.says("dana", approval.Request{Action: action, WorkflowID: id, PreviewDigest: "x"})
		if r.Code != approval.CodeNotReviewer || r.Workflow != nil {
			t.Errorf("%s: %+v", action, r)
		}
	}
	// Another tenant's reviewer does not even learn that there is such a workflow.
	for _, r := range []approval.Reply{
		o.says("gus", approval.Request{Action: approval.CommandShow, WorkflowID: id}), o.says("gus", approval.Request{Action: approval.CommandApprove, WorkflowID: id, PreviewDigest: "x"}),
	} {
		if r.Code != approval.CodeUnknown || r.Workflow != nil {
			t.Errorf("%+v", r)
		}
	}
	for _, junk := range []string{"", "null", "{", `{"action":"approve","workflow_id":">"}`, `{"action":"approve","workflow_id":"` + id + `","approver":"eve"}`, strings.Repeat("x", 9<<10)} {
		if r := o.says("dana", junk); r.Code != approval.CodeInvalid {
			t.Errorf("%.40s: %+v", junk, r)
		}
	}
	if got := o.trail(id); got != "open>pending dana:not_a_reviewer dana:not_a_reviewer dana:not_a_reviewer" {
		t.Error(got)
	}
	attempts := of(o.n.Log(), "gov.control.GOV.resolve")
	if len(attempts) != 8 {
		t.Errorf("%d records of attempts", len(attempts))
	}
	for _, m := range attempts {
		a, err := events.DecodeRecord[events.ResolveAttempt](m.Body)
		servicetest.OK(t, err)
		if a.User == "" || a.Refused == "" || a.RequestDigest == "" {
			t.Errorf("%+v", a)
		}
	}
	o.expect(o.call(), "ask")
}

// A user with both roles may not decide on its own request. A request that crossed no account, or
// comes from another tenant's, belongs to no reviewer. No answer goes to a reply subject that the
// sender could choose.
func TestResolveTrustsOnlyTheServer(t *testing.T) {
	o := openOffice(t, "")
	id := o.expect(o.call(), "ask")
	s := unstarted(t, o.n)
	a := newApprovalStore(s)
	stop, err := a.start(t.Context(), o.n.Conn("admitter"), o.n.JS("admitter"))
	servicetest.OK(t, err)
	defer stop()
	request := func(info string) *fake {
		return &fake{subject: "gov.resolve.acme", reply: "_R_.a.b", data: []byte(`{"action":"approve","workflow_id":"` + id + `","preview_digest":"x"}`),
			header: map[string][]string{"Nats-Request-Info": {info}}}
	}
	for info, want := range map[string]approval.Code{
		`{"acc":"tenant-acme:rt1","user":"rt1"}`:     approval.CodeSelf,
		`{"acc":"tenant-acme:dana","user":"dana"}`:   approval.CodePreviewMismatch,
		`{"acc":"tenant-globex:dana","user":"dana"}`: codeUnknownReviewer,
		`{"acc":"COUNTERSIGN","user":"dana"}`:        codeUnknownReviewer,
		`{"acc":"tenant-acme"}`:                      codeUnknownReviewer,
		``:                                           codeUnknownReviewer,
	} {
		if got := a.answerReviewer(t.Context(), request(info)); got.Code != want || got.OK {
			t.Errorf("%s: %s, want %s", info, got.Code, want)
		}
	}
	for _, reply := range []string{"", "gov.decisions.acme.allow.s1", "$KV.approvals.x", "_INBOX.x"} {
		r := request(`{"acc":"tenant-acme:dana","user":"dana"}`)
		r.reply = reply
		a.acceptRequest(t.Context(), r)
		s.workers.wait()
		if r.answered != 0 {
			t.Errorf("answered on %q", reply)
		}
	}
}

func TestPoliciesChangedMeanwhile(t *testing.T) {
	o := openOffice(t, "")
	pending, approved := o.expect(o.call(), "ask"), o.expect(o.call("press@", "dana@"), "ask")
	probe := o.expect(o.call("press@", "probe@"), "ask")
	if code := o.decides("dana", approval.CommandApprove, approved); code != approval.CodeApproved {
		t.Fatal(code)
	}
	put(t, o.n, "more.yaml", []byte("apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: more}\nspec: {rules: [{name: r, when: 'true', verdict: allow, reason: ok}]}\n"))
	servicetest.Eventually(t, "the new policies decide", func() bool { return o.expect(o.call("press@", "probe@"), "ask") != probe })
	if code := o.decides("dana", approval.CommandApprove, pending); code != approval.CodeStalePolicy && code != approval.CodeResolved {
		t.Error(code)
	}
	if w := o.expect(o.call("press@", "dana@"), "ask"); w == approved {
		t.Error("the approval held for other policies")
	}
	// What nobody asks for again does not wait until its time is up.
	servicetest.Eventually(t, "the workflows of the old policies are cancelled", func() bool {
		list := o.says("dana", approval.Request{Action: approval.CommandList})
		return !slices.ContainsFunc(list.Workflows, func(v approval.View) bool { return v.WorkflowID == pending })
	})
	for id, want := range map[string]string{approved: "open>pending approve>approved cancel>cancelled", pending: "open>pending cancel>cancelled"} {
		got := strings.ReplaceAll(strings.ReplaceAll(o.trail(id), " dana:policy_changed", ""), " dana:already_resolved", "")
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestExpiry(t *testing.T) {
	o := openOffice(t, "  approval: {expiresAfter: 1s}\n")
	id := o.expect(o.call(), "ask")
	servicetest.Eventually(t, "the workflow expires by itself", func() bool { return strings.Contains(o.trail(id), "expire>expired") })
	if code := o.decides("dana", approval.CommandApprove, id); code != approval.CodeExpired {
		t.Error(code)
	}
	if w := o.expect(o.call(), "ask"); w == id {
		t.Error("an expired workflow was joined")
	}
}

// One approval, two admitters, many retries at once: exactly one is allowed. And
// many first requests at once open one workflow.
func TestApprovalIsUsedOnce(t *testing.T) {
	o := openOffice(t, "")
	serve(t, o.n) // a second admitter
	both := func(want string) (workflows map[string]int, matching int) {
		workflows = map[string]int{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 24 {
			all.Go(func() {
				reply := ask(t, o.runtime, askingAt, o.call())
				mu.Lock()
				defer mu.Unlock()
				workflows[reply.Header.Get(events.HeaderWorkflow)]++
				if reply.Header.Get(events.HeaderVerdict) == want {
					matching++
				}
			})
		}
		all.Wait()
		return workflows, matching
	}
	opened, asked := both("ask")
	if len(opened) != 1 || asked != 24 {
		t.Fatalf("%d asked, workflows %v", asked, opened)
	}
	id := o.expect(o.call(), "ask")
	if code := o.decides("dana", approval.CommandApprove, id); code != approval.CodeApproved {
		t.Fatal(code)
	}
	used, allowed := both("allow")
	if allowed != 1 || used[id] != 1 || len(used) != 2 {
		t.Errorf("%d allowed, workflows %v", allowed, used)
	}
	if got := o.trail(id); got != "open>pending approve>approved consume>consumed" {
		t.Error(got)
	}
}

// TestApprovalIsUsedUpByAMilderClaim: an approved call is asked for with a lower risk, by which it would be allowed
// anyway, and with the risk that was approved, through two admitters that have restarted. One allow uses the approval.
func TestApprovalIsUsedUpByAMilderClaim(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "mail.yaml", []byte("apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: mail}\nspec:\n  rules:\n"+
		"    - {name: out, when: risk.operation_risk == 'external_transfer', verdict: ask, reason: external_recipient}\n"+
		"    - {name: other, when: risk.operation_risk != 'external_transfer', verdict: allow, reason: mild}\n"))
	first := serve(t, n)
	o := &office{t: t, n: n, runtime: n.Conn(servicetest.Runtime), users: map[string]*nats.Conn{}}
	mild := o.call(`"external_transfer"`, `"read_only"`)
	id := o.expect(o.call(), "ask")
	if code := o.decides("dana", approval.CommandApprove, id); code != approval.CodeApproved {
		t.Fatal(code)
	}
	servicetest.OK(t, first.Stop())
	serve(t, n)
	serve(t, n)
	if w := o.expect(mild, "allow"); w != id {
		t.Errorf("allowed by %q, the approval is %s", w, id)
	}
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			if verdict, w := o.asks(o.call()); verdict != "ask" || w == id {
				t.Errorf("%s of %s after the approval was used", verdict, w)
			}
		})
	}
	all.Wait()
	if got := o.trail(id); got != "open>pending approve>approved consume>consumed" {
		t.Error(got)
	}
}

// TestManyCallsWaitForOneWorkflow: an agent proposes the same action in many calls at once, each with an id of
// its own; each of them waits.
func TestManyCallsWaitForOneWorkflow(t *testing.T) {
	o := openOffice(t, "")
	serve(t, o.n) // a second admitter
	const calls = 3 * approval.MaxCalls / 2
	var mu sync.Mutex
	var all sync.WaitGroup
	answers := map[string]int{}
	for i := range calls {
		all.Go(func() {
			reply := ask(t, o.runtime, askingAt, o.call("call-mail-2", fmt.Sprint("call-", i)))
			mu.Lock()
			defer mu.Unlock()
			answers[reply.Header.Get(events.HeaderVerdict)+" "+reply.Header.Get(events.HeaderWorkflow)]++
		})
	}
	all.Wait()
	list := o.says("dana", approval.Request{Action: approval.CommandList}).Workflows
	if len(list) != 1 || len(list[0].Calls) != approval.MaxCalls || len(answers) != 1 || answers["ask "+list[0].WorkflowID] != calls {
		t.Errorf("%v, workflows %+v", answers, list)
	}
}

// Two reviewers at once: one word counts, the other is told.
func TestReviewersRace(t *testing.T) {
	o := openOffice(t, "")
	serve(t, o.n)
	o.conn("dana")
	o.conn("eve")
	for i := range 5 {
		id := o.expect(o.call("Quarterly figures", fmt.Sprint("Figures ", i)), "ask")
		digest := o.says("dana", approval.Request{Action: approval.CommandShow, WorkflowID: id}).Workflow.PreviewDigest
		codes := make(chan approval.Code, 2)
		for user, action := range map[string]string{"dana": approval.CommandApprove, "eve": approval.CommandDeny} {
			go func() {
				var code approval.Code
				defer func() { codes <- code }()
				code = o.says(user, approval.Request{Action: action, WorkflowID: id, PreviewDigest: digest}).Code
			}()
		}
		a, b := <-codes, <-codes
		if (a == approval.CodeResolved) == (b == approval.CodeResolved) {
			t.Errorf("%s and %s", a, b)
		}
		winner := map[bool]approval.Code{true: a, false: b}[b == approval.CodeResolved]
		o.expect(o.call("Quarterly figures", fmt.Sprint("Figures ", i)), map[approval.Code]string{approval.CodeApproved: "allow", approval.CodeDenied: "deny"}[winner])
	}
}

func TestApprovalsSurviveRestarts(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "mail.yaml", askPolicy(""))
	first := serve(t, n)
	o := &office{t: t, n: n, runtime: n.Conn(servicetest.Runtime), users: map[string]*nats.Conn{}}
	approved, pending := o.expect(o.call(), "ask"), o.expect(o.call("press@", "dana@"), "ask")
	if code := o.decides("dana", approval.CommandApprove, approved); code != approval.CodeApproved {
		t.Fatal(code)
	}
	servicetest.OK(t, first.Stop())
	n.Stop()
	n.Restart()
	serve(t, n)
	o.runtime, o.users = n.Conn(servicetest.Runtime), map[string]*nats.Conn{}
	if w := o.expect(o.call("press@", "dana@"), "ask"); w != pending {
		t.Error("the pending workflow is forgotten")
	}
	if w := o.expect(o.call(), "allow"); w != approved {
		t.Error("the approval is forgotten")
	}
	if w := o.expect(o.call(), "ask"); w == approved {
		t.Error("the approval served twice")
	}
}

// TestListOfLongNames: whatever names a publisher chooses, a reviewer sees all that waits, page by page.
func TestListOfLongNames(t *testing.T) {
	a := &approvalStore{s: &service{}, index: newApprovalIndex()}
	const workflows = 200
	long := strings.Repeat("<", call.MaxField)
	for i := range workflows {
		w := approval.Workflow{
			ID: fmt.Sprint("wf-", i), Tenant: "acme", Source: "rt1", Session: long, Slot: fmt.Sprint(i), Status: approval.Pending,
			Calls: slices.Repeat([]string{long}, approval.MaxCalls), Preview: approval.Preview{Tool: long, Agent: long}, ExpiresAt: events.At(time.Now().Add(time.Hour)),
		}
		a.index.put(approval.StoreKey(w.Tenant, w.Slot), &w, 1)
	}
	who, seen := reviewRequest{tenant: "acme", user: "dana", at: time.Now()}, map[string]bool{}
	for req := (approval.Request{Action: approval.CommandList, Limit: approval.MaxLimit}); ; {
		page := a.listPending(who, req)
		body, err := json.Marshal(page)
		servicetest.OK(t, err)
		if len(body) > 1<<20 || len(page.Workflows) == 0 {
			t.Fatalf("a page of %d bytes, %d workflows", len(body), len(page.Workflows))
		}
		for _, v := range page.Workflows {
			seen[v.WorkflowID] = true
		}
		if req.After = page.Next; req.After == "" {
			break
		}
	}
	if len(seen) != workflows {
		t.Errorf("%d of %d workflows are listed", len(seen), workflows)
	}
}

// tooSmall takes no answer with a body.
type tooSmall struct{ fake }

func (s *tooSmall) Respond(b []byte, opts ...micro.RespondOpt) error {
	_ = s.fake.Respond(b, opts...)
	return nats.ErrMaxPayload
}

// TestAnswerThatIsTooLarge: a reviewer is told at once of an answer that cannot be sent.
func TestAnswerThatIsTooLarge(t *testing.T) {
	var r tooSmall
	(&approvalStore{s: &service{}}).sendReply(&r, approval.NewReply(approval.CodeListed, nil))
	if r.answered != 2 || r.code != "500" || r.description != admission.CodeInternal {
		t.Errorf("answered %d times, at last %s %s", r.answered, r.code, r.description)
	}
}
