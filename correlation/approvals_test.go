package correlation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
)

// stepsOf are the steps of a call and their sequences, less that of the key.
func stepsOf(c events.Call) string {
	var list []string
	for _, s := range c.Timeline {
		list = append(list, s.Step+"@"+strconv.Itoa(int(s.Seq)-1))
	}
	return strings.Join(list, " ")
}

func (l *testLog) approval(act, status, workflow, decision string, change ...func(*events.Approval)) {
	a := events.Approval{
		WorkflowID: workflow, Tenant: "acme", Status: status, ActionDigest: digest.Keyed(tenantKey, []byte("x")), Source: "rt1", Session: "s1",
		ToolCallID: "c1", DecisionID: decision, Act: act, Step: 1, ActionID: "act-1", Approver: "ann", Reason: "known", DecidedAt: events.At(l.now),
	}
	for _, c := range change {
		c(&a)
	}
	body, err := events.Encode(a)
	if err != nil {
		l.t.Fatal(err)
	}
	l.putSigned(space.Approval("acme", status, workflow), body, signer)
}

// TestForgedApproval: an approval record that no admitter signed, or under another subject, has no
// effect and is a finding about the session that it names.
func TestForgedApproval(t *testing.T) {
	body := encode(tree{"workflow_id": "wf1", "tenant": "acme", "status": "approved", "action_digest": "sha256:00", "source": "rt1", "session": "s1", "tool_call_id": "c1",
		"decision_id": "d1", "act": "approve", "step": 1, "action_id": "act-1", "approver": "ann", "reason": "known", "requested_at": stamp(1), "decided_at": stamp(1)})
	approved := space.Approval("acme", "approved", "wf1")
	for name, tc := range map[string]struct {
		put  func(l *testLog)
		what string // "": it counts
	}{
		"signed":                  {func(l *testLog) { l.putSigned(approved, body, signer) }, ""},
		"unsigned":                {func(l *testLog) { l.put(approved, nil, body) }, "it has no signature"},
		"by a key of no admitter": {func(l *testLog) { l.putSigned(approved, body, mustKey(9)) }, "its key is not published, or no trusted key vouches for it"},
		"of another workflow":     {func(l *testLog) { l.putSigned(space.Approval("acme", "approved", "wf2"), body, signer) }, "tenant, status or workflow of its subject differ"},
		"of another status":       {func(l *testLog) { l.putSigned(space.Approval("acme", "denied", "wf1"), body, signer) }, "tenant, status or workflow of its subject differ"},
		"of another tenant":       {func(l *testLog) { l.putSigned(space.Approval("globex", "approved", "wf1"), body, signer) }, "tenant, status or workflow of its subject differ"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newTestLog(t)
			l.admit(pre(1), "d1", events.Ask, waiting("wf1", "pending"))
			tc.put(l)
			l.at(100_000).tick()
			r := l.run()
			if got := strings.Contains(stepsOf(r.only(t)), "approved@"); got != (tc.what == "") {
				t.Errorf("steps %s", stepsOf(r.only(t)))
			}
			if tc.what == "" {
				wantRules(t, r.findings, missingHook)
				return
			}
			wantRules(t, r.findings, forged, missingHook)
			if f := r.findings[0]; f.Explanation != "An approval is in the log that no admitter signed: "+tc.what+"." || f.Session != "s1" || f.Source != "rt1" {
				t.Errorf("%+v", f)
			}
		})
	}
}

func waiting(workflow, status string) func(*events.Decision) {
	return func(d *events.Decision) {
		d.Approval = &events.ApprovalRef{WorkflowID: workflow, Status: status, ActionID: "act-1", ExpiresAt: events.At(epoch.AddDate(0, 0, 1)), ResumePolicy: "retry_same_event"}
	}
}

// TestStepsOfACallAskedForOften: the runtime asks again while a person decides, as it should, announces the call and
// falls silent, or ends it. The record says so: the money of a call that began is spent.
func TestStepsOfACallAskedForOften(t *testing.T) {
	for _, tc := range []struct {
		name string
		more func(*testLog)
		want string
	}{
		{"announced, and no more", func(l *testLog) { l.event(pre(1)) }, "abandoned invoked@81"},
		{"never announced", func(*testLog) {}, "abandoned"},
		{"completed", func(l *testLog) { l.event(pre(1)); l.event(post(2)) }, "completed invoked@81 completed@82"},
		{"announced twice", func(l *testLog) { l.event(pre(1)); l.event(set(pre(3), "event_id", "again")); l.event(post(2)) }, "completed invoked@81 completed@83"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			for i := range 40 {
				l.admit(pre(1), fmt.Sprint("d", i), events.Allow)
			}
			tc.more(l)
			l.at(100_000).tick()
			c := l.run().only(t)
			early := c
			early.Timeline, c.Timeline = c.Timeline[:maxTimeline], c.Timeline[maxTimeline:]
			got := strings.TrimSpace(string(c.State) + " " + stepsOf(c))
			if got != tc.want || !strings.HasPrefix(stepsOf(early), "requested@1 decided@2 requested@3") {
				t.Errorf("%s after %s, want %s", got, stepsOf(early), tc.want)
			}
		})
	}
}

// TestApprovalSteps: a call's timeline says when a reviewer was asked, and what the answer
// was.
func TestApprovalSteps(t *testing.T) {
	for _, tc := range []struct {
		name string
		more func(*testLog)
		want string
	}{
		{"approved", func(l *testLog) {
			l.approval("vote", "pending", "wf1", "d1")
			l.approval("approve", "approved", "wf1", "d1")
			l.admit(pre(1), "d2", events.Allow, waiting("wf1", "consumed"))
			l.approval("consume", "consumed", "wf1", "d2")
			l.event(pre(1))
			l.event(post(2))
		}, "requested@1 decided@2 asked@3 approved@5 requested@6 decided@7 invoked@9 completed@10"},
		{"refused", func(l *testLog) {
			l.approval("deny", "denied", "wf1", "d1")
			l.admit(pre(1), "d2", events.Deny)
		}, "requested@1 decided@2 asked@3 refused@4 requested@5 decided@6"},
		{"expired", func(l *testLog) {
			l.approval("expire", "expired", "wf1", "d1")
			l.at(100_000).tick()
		}, "requested@1 decided@2 asked@3 expired@4"},
		{"an attempt that changed nothing", func(l *testLog) {
			l.approval("approve", "pending", "wf1", "d1", func(a *events.Approval) { a.Refused = "self_approval" })
			l.admit(pre(1), "d2", events.Deny)
		}, "requested@1 decided@2 asked@3 requested@5 decided@6"},
		{"another workflow", func(l *testLog) {
			l.approval("approve", "approved", "wf2", "d9")
			l.admit(pre(1), "d2", events.Deny)
		}, "requested@1 decided@2 asked@3 requested@5 decided@6"},
		{"another tenant's", func(l *testLog) {
			l.approval("approve", "approved", "wf1", "d1", func(a *events.Approval) { a.Tenant = "evil" })
			l.admit(pre(1), "d2", events.Deny)
		}, "requested@1 decided@2 asked@3 requested@5 decided@6"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			l.admit(pre(1), "d1", events.Ask, waiting("wf1", "pending"))
			l.approval("open", "pending", "wf1", "d1")
			tc.more(l)
			if got := stepsOf(l.run().only(t)); got != tc.want {
				t.Errorf("steps %s, want %s", got, tc.want)
			}
		})
	}
}

// TestAskThatNobodyPursues: a call that was never allowed to run needs no completion once its
// approval has ended without a yes, and while it may still be approved.
func TestAskThatNobodyPursues(t *testing.T) {
	end := func(l *testLog) {
		l.event(set(set(hook(9, "SessionEnd", 5), "tool_name", nil), "metadata", nil))
	}
	ends := func(act, status string) func(*testLog) {
		return func(l *testLog) { l.at(50_000).approval(act, status, "wf1", "d1") }
	}
	past := func(l *testLog) { l.idle(100_000) } // the workflow's day, and the time for a completion
	for name, tc := range map[string]struct {
		more []func(*testLog)
		want []string
	}{
		"denied":                               {[]func(*testLog){ends("deny", "denied"), past}, nil},
		"expired":                              {[]func(*testLog){ends("expire", "expired"), past}, nil},
		"cancelled":                            {[]func(*testLog){ends("cancel", "cancelled"), past}, nil},
		"denied, and its session ends":         {[]func(*testLog){ends("deny", "denied"), end}, nil},
		"its session ends":                     {[]func(*testLog){end}, nil},
		"its session ends, and it expires":     {[]func(*testLog){end, ends("expire", "expired"), past}, nil},
		"its session ends, and it is denied":   {[]func(*testLog){end, ends("deny", "denied"), past}, nil},
		"approved":                             {[]func(*testLog){ends("approve", "approved"), past}, []string{missingHook}},
		"its session ends, and it is approved": {[]func(*testLog){end, ends("approve", "approved"), past}, []string{missingHook}},
		"its approval is not heard of again":   {[]func(*testLog){past}, []string{missingHook}},
		"denied, and it ran": {[]func(*testLog){ends("deny", "denied"), func(l *testLog) {
			l.event(post(2))
		}, past}, []string{"executed_while_ask_pending/high"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newTestLog(t)
			l.admit(pre(1), "d1", events.Ask, waiting("wf1", "pending"))
			l.approval("open", "pending", "wf1", "d1")
			for _, more := range tc.more {
				more(l)
			}
			wantRules(t, l.run().findings, tc.want...)
		})
	}
}

// TestOneOfTwoIsTakenBack: a call's record names a check until the last finding of it is
// retracted.
func TestOneOfTwoIsTakenBack(t *testing.T) {
	l := newTestLog(t)
	l.admit(pre(1), "d1", events.Ask, waiting("wf1", "pending"))
	l.admit(pre(1), "d2", events.Allow, waiting("wf1", "consumed"))
	l.event(pre(1))
	l.event(post(2))
	second := func(e tree) tree { return set(e, "metadata.tool_call_id", "c2") }
	l.admit(second(pre(3)), "d3", events.Allow, waiting("wf1", "consumed")) // used before, and for another call
	l.event(retry(pre(3)))                                                  // which it says to try again
	l.event(set(second(post(4)), "metadata.execution.started_at", nil))
	r := l.run()
	made, taken := 0, 0
	for _, f := range r.checks {
		switch {
		case f.Rule != "AH-C-104":
		case f.Retracts != "":
			taken++
		default:
			made++
		}
	}
	calls := r.last()
	if c := calls[len(calls)-1]; made != 2 || taken != 1 || !slices.Contains(c.Findings, "AH-C-104") {
		t.Errorf("%d findings, %d of them retracted, and the record names %v", made, taken, c.Findings)
	}
}

// TestConfirmationSteps: in AAEP the user is asked, and the invocation shows what
// about.
func TestConfirmationSteps(t *testing.T) {
	question := wire(2, "awaiting.confirmation", 2, tree{"action": "Pay.", "consequence": "It is paid.", "timeout_seconds": 60, "default_decision": "reject",
		"risk_level": "high", "irreversible": true, "reply_token": "rpl_1", "urgency": "critical"})
	reply := func(decision string) tree {
		return tree{"type": "confirmation.reply", "subscription_id": "sub_1", "reply_token": "rpl_1", "decision": decision, "timestamp": stamp(3)}
	}
	pay := func() tree {
		return wire(4, "tool.invoked", 4, tree{"tool": "pay", "tool_call_id": "call_1", "risk_level": "high", "irreversible": true})
	}
	done := wire(5, "tool.completed", 5, tree{"tool": "pay", "tool_call_id": "call_1", "status": "success"})
	start := wire(1, "session.started", 1, tree{})
	for _, tc := range []struct {
		name   string
		before bool // asked for admission before the user is
		answer string
		want   string
	}{
		{"accepted", false, "accept", "asked@2 approved@3 invoked@4 completed@5"},
		{"asked for before", true, "accept", "requested@2 decided@3 asked@4 approved@5 invoked@6 completed@7"},
		{"rejected", false, "reject", "invoked@4 completed@5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			l.event(start)
			if tc.before {
				l.admit(pay(), "d1", events.Ask)
			}
			l.event(question)
			l.put(space.Event("acme", "rt1", subject.ProtoAAEP, "", "confirmation.reply"), nil, encode(reply(tc.answer)))
			l.event(pay())
			l.event(done)
			if got := stepsOf(l.run().only(t)); got != tc.want {
				t.Errorf("steps %s, want %s", got, tc.want)
			}
		})
	}
}

// TestTimeProves: a finding that no message completes but time names the messages
// that it rests on.
func TestTimeProves(t *testing.T) {
	l := newTestLog(t)
	l.admit(pre(1), "d1", events.Allow)
	l.event(pre(1))
	l.at(10_000).tick()
	r := l.run()
	for _, f := range append(r.findings, r.checks...) {
		if (f.Rule == MissingCompletion || f.Rule == "AH-C-079") && !slices.Equal(f.Seqs, []uint64{2, 3, 4}) {
			t.Errorf("%s is proved by %v", f.Rule, f.Seqs)
		}
	}
	wantRules(t, r.findings, "missing_completion/medium")
}

// TestReceiptOfAnotherCall: an execution must name a decision on its own call, of its own
// session and publisher. A decision of another tenant counts as unknown.
func TestReceiptOfAnotherCall(t *testing.T) {
	for _, tc := range []struct {
		name             string
		session, tenant  string
		names            string
		byHeader, reused bool
	}{
		{name: "its own", session: "s1", tenant: "acme", names: "d1", byHeader: true},
		{name: "another session's", session: "s2", tenant: "acme", names: "d1", byHeader: true, reused: true},
		{name: "another session's, in its body", session: "s2", tenant: "acme", names: "d1", reused: true},
		{name: "nobody's", session: "s2", tenant: "acme", names: "d7", byHeader: true},
		{name: "another tenant's", session: "s1", tenant: "evil", names: "d1", byHeader: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			l.admit(pre(1), "d1", events.Allow, receipted)
			before, after := set(pre(3), "session_id", tc.session), set(post(4), "session_id", tc.session)
			header := map[string][]string{}
			if tc.byHeader {
				header[events.HeaderDecisionID] = []string{tc.names}
			} else {
				after = set(after, "metadata.approval", tree{"required": true, "status": "approved", "decision_ref": tc.names})
			}
			l.eventFrom(tc.tenant, "rt1", before)
			l.put(space.Event(tc.tenant, "rt1", subject.ProtoAgentHook, tc.session, "PostToolUse"), header, encode(after))
			found := false
			for _, f := range l.run().findings {
				found = found || f.Rule == ReceiptReused
			}
			if found != tc.reused {
				t.Errorf("receipt_reused is found: %v, want %v", found, tc.reused)
			}
		})
	}
}

// TestRetriesUseOneReceipt: one allow permits one execution, of its call or of a retry under another id that was
// not asked about. Every further one is found, whichever comes first and however the retries name each other.
func TestRetriesUseOneReceipt(t *testing.T) {
	again := func(e tree, id, of string) tree {
		return set(set(e, "metadata.tool_call_id", id), "metadata.retry", tree{"attempt": 2, "previous_tool_call_id": of})
	}
	for _, tc := range []struct {
		name  string
		runs  []string // "c2 of c1": c2 runs as a retry of c1; "c1": c1 runs
		asked bool     // c1 is asked for again, and allowed, before the last run
		want  []string // the calls that are found
	}{
		{name: "one retry", runs: []string{"c2 of c1"}},
		{name: "all of c1", runs: []string{"c2 of c1", "c3 of c1", "c4 of c1"}, want: []string{"c3", "c4"}},
		{name: "a chain", runs: []string{"c2 of c1", "c3 of c2", "c4 of c3"}, want: []string{"c3", "c4"}},
		{name: "the call after its retry", runs: []string{"c2 of c1", "c1"}, want: []string{"c1"}},
		{name: "a retry after the call", runs: []string{"c1", "c2 of c1", "c3 of c2"}, want: []string{"c2", "c3"}},
		{name: "asked again", runs: []string{"c2 of c1", "c1"}, asked: true},
		{name: "asked again, and then retried twice", runs: []string{"c2 of c1", "c3 of c1"}, asked: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			l.admit(pre(1), "d1", events.Allow, receipted)
			for i, run := range tc.runs {
				before, after := pre(10*i+10), post(10*i+11)
				if id, of, retries := strings.Cut(run, " of "); retries {
					before, after = again(before, id, of), again(after, id, of)
				}
				if tc.asked && i == len(tc.runs)-1 {
					l.admit(pre(2), "d2", events.Allow, receipted)
				}
				l.at(float64(i + 2)).event(before)
				l.event(after)
			}
			var found []string
			for _, f := range l.run().findings {
				if f.Rule == ReceiptReused {
					found = append(found, f.ToolCallID)
				}
			}
			if !slices.Equal(found, tc.want) {
				t.Errorf("receipt_reused is found of %v, want %v", found, tc.want)
			}
		})
	}
}

// resumption is one way to resume a call after an approval.
type resumption struct {
	name, policy   string
	call           string // the id of the retry; the first call has c1, or none if this is empty
	event          int    // the number of its event; the first has 1
	link, workflow bool   // it names the first call, or the workflow
	asked          int    // how often it is asked before the approval
	late           bool   // the first call was found to be missing its end before
}

// lines are the log of it.
func (r resumption) lines() []tree {
	block := func(status string) tree {
		return tree{"required": true, "status": status, "workflow_id": "w1", "action_id": "a1", "resume_policy": r.policy,
			"requested_at": "2026-11-20T12:00:00Z", "expires_at": "2026-11-20T12:10:00Z"}
	}
	at := 0.0
	var lines []tree
	add := func(l tree) {
		l["broker"], at = at, at+1
		lines = append(lines, l)
	}
	ask := func(call string, event int, m tree, verdict, status string) {
		e, d := tree{"t": "PreToolUse", "event_id": uuid(event), "at": 1.0, "m": m}, tree{"verdict": verdict, "event_id": uuid(event), "approval": block(status)}
		if call != "" {
			e["call"], d["tool_call_id"] = call, call
		}
		add(tree{"request": e})
		add(tree{"decision": d})
	}
	add(tree{"t": "SessionStart", "at": 0.0})
	first := "c1"
	if r.call == "" {
		first = ""
	}
	for range max(r.asked, 1) {
		ask(first, 1, tree{}, "ask", "pending")
	}
	if r.late {
		at = 5000
	}
	add(tree{"approval": tree{"workflow_id": "w1", "tenant": "acme", "status": "approved", "action_digest": "sha256:00", "requested_at": "2026-11-20T12:00:00Z"}})
	m := tree{}
	if r.link {
		m["retry"] = tree{"attempt": 2, "previous_tool_call_id": "c1"}
	}
	if r.workflow {
		m["approval"] = block("approved")
	}
	ask(r.call, r.event, m, "allow", "consumed")
	m = set(set(m, "approval", block("approved")), "admission_verdict", tree{"verdict": "allow"})
	pre := tree{"t": "PreToolUse", "event_id": uuid(r.event), "at": 1.0, "evidence_phase": "pre_commit", "m": m}
	post := tree{"t": "PostToolUse", "at": at, "m": set(set(m, "admission_verdict", nil), "execution", tree{"outcome": "succeeded"})}
	if r.call != "" {
		pre["call"], post["call"] = r.call, r.call
	}
	add(pre)
	add(post)
	add(tree{"t": "SessionEnd", "at": at})
	return lines
}

// TestPermittedRetries: a retry that docs/approvals.md permits is no finding, except AH-C-106
// where the resume policy asks for the same event.
func TestPermittedRetries(t *testing.T) {
	const same, named = "retry_same_event", "retry_with_workflow_id"
	for _, r := range []resumption{
		{name: "the same event", policy: same, call: "c1", event: 1},
		{name: "the same event, asked often", policy: same, call: "c1", event: 1, asked: 4},
		{name: "no ids", policy: same, event: 1},
		{name: "the same call, another event", policy: same, call: "c1", event: 2},
		{name: "another call that names the first", policy: same, call: "c2", event: 2, link: true},
		{name: "another call that names the workflow", policy: same, call: "c2", event: 2, workflow: true},
		{name: "the workflow named, the same call", policy: named, call: "c1", event: 1, workflow: true},
		{name: "the workflow named, another call", policy: named, call: "c2", event: 2, workflow: true},
		{name: "the workflow named in a header, another call", policy: named, call: "c2", event: 2},
		{name: "the publisher waits", policy: "publisher_waits", call: "c1", event: 1, asked: 4},
		{name: "started anew by hand", policy: "manual_retry", call: "c2", event: 2},
	} {
		t.Run(r.name, func(t *testing.T) {
			found := corpusCase{protocol: subject.ProtoAgentHook, lines: r.lines()}.live(t)
			found = slices.DeleteFunc(found, func(f events.Finding) bool {
				return f.Rule == "AH-C-106" && r.policy == same && r.event != 1 || f.Severity == events.SeverityInfo
			})
			wantRules(t, found)
		})
	}
}

// TestRetryAfterTheDeadline: a retry retracts the missing completion of the first call.
func TestRetryAfterTheDeadline(t *testing.T) {
	r := resumption{policy: "manual_retry", call: "c2", event: 2, late: true}
	c := corpusCase{protocol: subject.ProtoAgentHook, lines: r.lines()}
	rules := func(found []events.Finding) (list []string) {
		for _, f := range found {
			if f.Retracts != "" {
				list = append(list, f.Rule)
			}
		}
		return list
	}
	run := c.asLog(t).run()
	if got := rules(slices.Concat(run.findings, run.checks)); !slices.Equal(got, []string{MissingCompletion, "AH-C-079"}) {
		t.Errorf("taken back: %v", got)
	}
}

// TestUnansweredAsk: a call that waits for an approval is replaced only by a call that uses
// it, and an allowed call is never replaced.
func TestUnansweredAsk(t *testing.T) {
	lines := resumption{policy: "manual_retry", call: "c2", event: 2}.lines()
	for name, change := range map[string]func(tree) tree{
		"another workflow": func(l tree) tree {
			if d, ok := l["decision"].(tree); ok && d["verdict"] == "allow" {
				return set(l, "decision.approval.workflow_id", "w2")
			}
			return l
		},
		"the first call was allowed": func(l tree) tree {
			if d, ok := l["decision"].(tree); ok && d["verdict"] == "ask" {
				return set(l, "decision.verdict", "allow")
			}
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			var changed []tree
			for _, l := range lines {
				l = change(l)
				if m, _ := l["m"].(tree); m["approval"] != nil && name == "another workflow" {
					l = set(l, "m.approval.workflow_id", "w2")
				}
				changed = append(changed, l)
			}
			found := corpusCase{protocol: subject.ProtoAgentHook, lines: changed}.live(t)
			if !slices.ContainsFunc(found, func(f events.Finding) bool { return f.Rule == MissingCompletion && f.ToolCallID == "c1" }) {
				t.Errorf("findings %v", rulesOf(found))
			}
		})
	}
}

// TestBinding: the record of a call that rests on a user's confirmation says
// whether the question named the call, also after the call was compacted and its
// state restored.
func TestBinding(t *testing.T) {
	question := func(extra tree) tree {
		q := tree{"t": "awaiting.confirmation", "ask": "1", "irreversible": true}
		if extra != nil {
			q["extra_context"] = extra
		}
		return q
	}
	for _, tc := range []struct {
		name  string
		extra tree
		ask   bool
		want  string
	}{
		{"the question names the call", tree{"tool_call_id": "call_1"}, true, events.BindingExplicit},
		{"the question names no call", nil, true, events.BindingInferred},
		{"no question", nil, false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lines := []tree{{"t": "session.started"}}
			if tc.ask {
				lines = append(lines, question(tc.extra), tree{"t": "confirmation.reply", "reply_token": "rpl_1", "decision": "accept", "decided_by": "user"})
			}
			lines = append(lines,
				tree{"t": "tool.invoked", "tool": "pay_invoice", "tool_call_id": "call_1", "args_summary": "x", "risk_level": "low", "irreversible": tc.ask},
				tree{"t": "tool.completed", "tool": "pay_invoice", "tool_call_id": "call_1", "status": "success", "duration_ms": 1})
			r := corpusCase{protocol: subject.ProtoAAEP, lines: lines}.asLog(t).run()
			got, calls := "", 0
			for _, o := range r.outputs {
				var c events.Call
				if o.Type == events.TypeCall && json.Unmarshal(o.Body, &c) == nil && c.State == events.CallCompleted {
					got, calls = c.Binding, calls+1
				}
			}
			if calls != 1 || got != tc.want {
				t.Errorf("%d completed calls, binding %q, want %q", calls, got, tc.want)
			}
		})
	}
}

// TestAskedAboutNoCall: a request may be about something that is not a tool call. The
// admitter's copy is not its event, which counts as new when it comes.
func TestAskedAboutNoCall(t *testing.T) {
	action := set(hook(1, "WebActionRequested", 0), "evidence_phase", "pre_commit")
	action = set(action, "metadata.web", tree{"action_id": "act_1", "url": "https://example.org"})
	allowed := set(action, "metadata.admission_verdict", tree{"verdict": "allow"})
	done := set(hook(2, "WebActionCompleted", 1), "metadata", tree{"web": tree{"action_id": "act_1"}})
	plain := func(e tree) tree { // it names no tool and no call
		e = maps.Clone(e)
		delete(e, "tool_name")
		e["metadata"] = maps.Clone(e["metadata"].(map[string]any))
		delete(e["metadata"].(map[string]any), "tool_call_id")
		return e
	}
	model, over := plain(set(hook(1, "PreLLMCall", 0), "evidence_phase", "pre_commit")), plain(hook(2, "SessionEnd", 1))
	question := wire(2, "awaiting.confirmation", 1, tree{"action": "wipe", "consequence": "Gone.", "reply_token": "rpl_1", "timeout_seconds": 60,
		"default_decision": "reject", "urgency": "critical"})
	answer := tree{"type": "confirmation.reply", "subscription_id": "sub_1", "reply_token": "rpl_1", "decision": "accept", "timestamp": stamp(2)}
	for _, tc := range []struct {
		name  string
		asked tree
		ruled events.Verdict // "" if there is no decision
		after []tree
		want  []string
	}{
		{"the event itself", action, "", []tree{action, done}, []string{"AH-C-145/medium"}},
		{"the event with its verdict", action, "", []tree{allowed, done}, []string{}},
		{"the event, and again with its verdict", action, "", []tree{action, allowed, done}, []string{}},
		{"the event, and the verdict is on record", action, events.Allow, []tree{action, done}, []string{}},
		{"an event without a tool, and the verdict is on record", plain(action), events.Allow, []tree{plain(action), done}, []string{}},
		{"an event without a tool, and the verdict on record denies", plain(action), events.Deny, []tree{plain(allowed), done}, []string{"AH-C-145/medium"}},
		{"a model call that was denied on record", model, events.Deny, []tree{model, over}, []string{}},
		{"a model call that was allowed on record", model, events.Allow, []tree{model, over}, []string{"AH-C-057/low"}},
		{"the event with a verdict that is none", action, events.Deny, []tree{allowed, done}, []string{"AH-C-145/medium"}},
		{"a question", question, "", []tree{question, answer}, []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			if tc.asked["type"] != nil {
				l.event(wire(1, "session.started", 0, nil))
			}
			l.request(tc.asked, "d1")
			if tc.ruled != "" {
				l.decide(tc.asked, "d1", tc.ruled)
			}
			for _, e := range tc.after {
				if e["type"] == "confirmation.reply" {
					l.put(space.Event("acme", "rt1", subject.ProtoAAEP, "", "confirmation.reply"), nil, encode(e))
				} else {
					l.event(e)
				}
			}
			got := []string{}
			for _, f := range l.run().checks {
				if f.Severity != events.SeverityInfo {
					got = append(got, f.Rule+"/"+string(f.Severity))
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// words are what a case is made of: the types of its events, numbered as often as
// they come, and the names of the members at any depth. The frame of a session is
// left out: every case may have it.
func (c corpusCase) words(t testing.TB) map[string]bool {
	words, times := map[string]bool{}, map[string]int{}
	for n := range c.lines {
		m := c.message(t, n)
		for _, name := range []string{"type", "event_type"} {
			typ, ok := m[name].(string)
			if typ = plainType(typ); ok && !strings.HasPrefix(typ, "session") {
				times[typ]++
				words[fmt.Sprint(typ, " ", times[typ])] = true
			}
		}
		nameMembers(words, m)
	}
	return words
}

// message is what stands on a line, completed.
func (c corpusCase) message(t testing.TB, n int) tree {
	short, protocol := c.lines[n], c.protocol
	for _, inner := range []string{"hook", "request"} {
		if m, ok := short[inner].(map[string]any); ok {
			short, protocol = m, subject.ProtoAgentHook
		}
	}
	_, decision := short["decision"].(map[string]any)
	switch {
	case protocol == subject.ProtoAUMP && !decision && short["mandates"] == nil && short["raw"] == nil:
		return c.completeEvidence(t, n)
	case short["t"] == nil && short["type"] == nil && short["raw"] == nil:
		return short // no event
	}
	switch e := complete(protocol, short, n).(type) {
	case tree:
		return e
	case string:
		var m tree
		_ = json.Unmarshal([]byte(e), &m) // some cannot be read, and have no words
		return m
	}
	return nil
}

// plainType is a type without its vocabulary and its spelling.
func plainType(typ string) string {
	typ = strings.TrimPrefix(typ[strings.LastIndexAny(typ, ":/")+1:], "agent.")
	return strings.ToLower(strings.ReplaceAll(typ, "_", ""))
}

func nameMembers(words map[string]bool, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			words["."+name] = true
			nameMembers(words, member)
		}
	case []any:
		for _, member := range v {
			nameMembers(words, member)
		}
	}
}

// TestAlike: of the cases that keep a check, one at least is made of all that the
// cases that break it have in common. A session in which nothing is that could
// break a check keeps it, and shows nothing.
func TestAlike(t *testing.T) {
	common, kept := map[string]map[string]bool{}, map[string][]map[string]bool{}
	for _, c := range corpusCases(t) {
		words := c.words(t)
		for _, id := range c.checks {
			switch {
			case !c.violates:
				kept[id] = append(kept[id], words)
			case common[id] == nil:
				common[id] = maps.Clone(words)
			default:
				maps.DeleteFunc(common[id], func(w string, _ bool) bool { return !words[w] })
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(common)) {
		closest := slices.Sorted(maps.Keys(common[id]))
		for _, words := range kept[id] {
			if lack := missingWords(common[id], words); len(lack) <= len(closest) {
				closest = lack
			}
		}
		if len(closest) > 0 {
			t.Errorf("%s: every case that breaks it has %q, and no case that keeps it has all of that", id, closest)
		}
	}
}

func missingWords(need, have map[string]bool) (list []string) {
	for w := range need {
		if !have[w] {
			list = append(list, w)
		}
	}
	slices.Sort(list)
	return list
}

// gate is a decision on an aioc proposal of call c1.
func gate(l *testLog, protocol, id string, v events.Verdict) events.Decision {
	return events.Decision{
		DecisionID: id, Tenant: "acme", Protocol: protocol, Source: "rt1", Agent: "Finance Agent", Session: "s1", ToolCallID: "c1", Tool: "pay_invoice",
		ArgsDigest: digest.Keyed(tenantKey, []byte(`{"amount":120,"invoice":"A-17"}`)), RequestDigest: digest.Keyed(tenantKey, []byte("{}")),
		Verdict: v, Reasons: []events.Reason{}, DecidedAt: events.At(l.now), ExpiresAt: events.At(l.now.Add(60e9)),
	}
}

// traceOf is the trace event that the admitter writes for a decision.
func traceOf(d events.Decision, change ...func(*aioc.PolicyEvaluated)) []byte {
	e := aioc.PolicyEvaluated{
		Timestamp: d.DecidedAt.String(), Level: aioc.LevelInfo, Type: aioc.TypeToolEvaluated, Agent: d.Agent, Turn: 1, ToolName: d.Tool,
		CallID: d.ToolCallID, Decision: aioc.Allow, Reason: "ok", Metadata: map[string]any{"decisionId": d.DecisionID, "verdict": string(d.Verdict)},
	}
	for _, c := range change {
		c(&e)
	}
	b, err := e.Encode()
	if err != nil {
		panic(err)
	}
	return b
}

func (l *testLog) trace(subj, id string, body []byte, k *signing.PrivateKey) uint64 {
	h := map[string][]string{events.HeaderDecisionID: {id}, "ce-id": {id + "-trace"}, "ce-type": {aioc.CloudEventType}}
	if k != nil {
		sig, err := k.SignDetached(signing.TypeRecord, body)
		if err != nil {
			l.t.Fatal(err)
		}
		h[events.HeaderSignature] = []string{sig}
	}
	return l.put(subj, h, body)
}

const traceSubject = "gov.events.acme.rt1.tool.s1.tool_policy_evaluated"

// The admitter's own trace event is no finding and a step of its call; a trace event of any
// other publisher is forged.
func TestTraceEvents(t *testing.T) {
	for _, tt := range []struct {
		name string
		log  func(l *testLog)
		want []string
		step bool
	}{
		{"the admitter's", func(l *testLog) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace(traceSubject, "d1", traceOf(d), &signer)
		}, nil, true},
		{"delivered twice", func(l *testLog) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace(traceSubject, "d1", traceOf(d), &signer)
			l.trace(traceSubject, "d1", traceOf(d), &signer)
		}, nil, true},
		{"of a deny", func(l *testLog) {
			d := gate(l, "tool", "d1", events.Deny)
			l.signed(d, signer)
			l.trace(traceSubject, "d1", traceOf(d), &signer)
		}, nil, false},
		{"of a handoff", func(l *testLog) {
			d := gate(l, "handoff", "d1", events.Allow)
			l.signed(d, signer)
			l.trace("gov.events.acme.rt1.handoff.s1.handoff_policy_evaluated", "d1",
				traceOf(d, func(e *aioc.PolicyEvaluated) { e.Type = aioc.TypeHandoffEvaluated }), &signer)
		}, nil, true},
		{"unsigned", func(l *testLog) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace(traceSubject, "d1", traceOf(d), nil)
		}, []string{"forged_record/critical"}, false},
		{"signed by a stranger", func(l *testLog) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace(traceSubject, "d1", traceOf(d), &stranger)
		}, []string{"forged_record/critical"}, false},
		{"without a decision", func(l *testLog) {
			l.trace(traceSubject, "d1", traceOf(gate(l, "tool", "d1", events.Allow)), &signer)
		}, []string{"forged_record/critical"}, false},
		{"of another tenant's decision", func(l *testLog) {
			d := gate(l, "tool", "d1", events.Allow)
			d.Tenant = "globex"
			l.signed(d, signer)
			l.trace(traceSubject, "d1", traceOf(d), &signer)
		}, []string{"forged_record/critical"}, false},
		{"of another protocol's decision", func(l *testLog) {
			l.admit(pre(1), "d1", events.Allow)
			l.trace(traceSubject, "d1", traceOf(gate(l, "tool", "d1", events.Allow)), &signer)
		}, []string{"forged_record/critical"}, false},
		{"in another session", func(l *testLog) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace("gov.events.acme.rt1.tool.s2.tool_policy_evaluated", "d1", traceOf(d), &signer)
		}, []string{"forged_record/critical"}, false},
		{"of another publisher", func(l *testLog) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace("gov.events.acme.rt2.tool.s1.tool_policy_evaluated", "d1", traceOf(d), &signer)
		}, []string{"forged_record/critical"}, false},
		{"under the name of another decision", func(l *testLog) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace(traceSubject, "d1", traceOf(d, func(e *aioc.PolicyEvaluated) { e.Metadata["decisionId"] = "d2" }), &signer)
		}, []string{"forged_record/critical"}, false},
		{"of the other type", func(l *testLog) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace(traceSubject, "d1", traceOf(d, func(e *aioc.PolicyEvaluated) { e.Type = aioc.TypeHandoffEvaluated }), &signer)
		}, []string{"forged_record/critical"}, false},
		{"no trace event at all", func(l *testLog) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace(traceSubject, "d1", []byte(`{"decisionId":"d1"}`), &signer)
		}, []string{"forged_record/critical"}, false},
		{"other events of the protocol", func(l *testLog) {
			l.put("gov.events.acme.rt1.tool.s1.tool_call_started", nil, []byte("{}"))
			l.put("gov.events.acme.rt1.tool.s1.handoff_policy_evaluated", nil, []byte("{} "))
		}, []string{"schema_invalid/medium", "schema_invalid/medium"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newTestLog(t)
			tt.log(l)
			l.event(set(hook(9, "SessionEnd", 3), "tool_name", nil)) // what is open is put out once more
			r := l.run()
			var found []events.Finding
			for _, f := range r.findings {
				if len(f.EventIDs) == 0 { // what the SessionEnd lacks is not of interest
					found = append(found, f)
				}
			}
			wantRules(t, found, tt.want...)
			step := false
			for _, c := range r.last() {
				for _, e := range c.Timeline {
					step = step || e.Step == stepNames[stepTraced]
				}
			}
			if step != tt.step {
				t.Errorf("a step in the timeline: %v", step)
			}
		})
	}
}

// What a handoff was decided on is not the arguments of the call that makes it.
func TestHandoffDigestIsNotCompared(t *testing.T) {
	l := newTestLog(t)
	d := gate(l, "handoff", "d1", events.Allow)
	d.ArgsDigest = digest.Keyed(tenantKey, []byte(`{"from":"a","payload":{},"to":"b"}`))
	l.signed(d, signer)
	l.event(pre(1))
	l.event(post(2))
	r := l.run()
	wantRules(t, r.findings)
	if c := r.only(t); c.Verdict != events.Allow || c.Match != matchEqual {
		t.Errorf("%+v", c)
	}
	l = newTestLog(t)
	d = gate(l, "tool", "d1", events.Allow)
	d.ArgsDigest = digest.Keyed(tenantKey, []byte(`{"amount":1}`))
	l.signed(d, signer)
	l.event(pre(1))
	l.event(post(2))
	wantRules(t, l.run().findings, "input_drift/high", "reused_tool_call_id/high")
}
