package admitter

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// keeper is a part without a service around it.
func keeper(t *testing.T, n *servicetest.NATS) *approvalStore {
	t.Helper()
	s := unstarted(t, n)
	a := newApprovalStore(s)
	a.js = n.JS("admitter")
	servicetest.OK(t, a.follower.openBucket(t.Context(), n.Conn("admitter"), a.js))
	servicetest.OK(t, a.follower.openWatch(t.Context()))
	t.Cleanup(func() { closeWatch(a.follower.watch) })
	return a
}

func pendingStep(a *approvalStore, expires time.Time) (*admission.Outcome, string) {
	w := approval.Open(approval.Opening{Slot: strings.Repeat("a", 64), ID: "wf-1", Tenant: "acme", Source: "rt1", Session: "s1", DecisionID: "d-1",
		Policy: events.PolicyRef{Revision: 1, Digest: "sha256:a"}, PreviewDigest: "p", Call: "c1", Now: time.Now(), ExpiresAt: expires})
	out := &admission.Outcome{}
	out.Consumption.Approval = &approval.Change{Slot: w.Slot, Next: w, Records: []events.Approval{w.Record()}}
	return out, approval.StoreKey(w.Tenant, w.Slot)
}

// A complete read drops a workflow that the bucket holds no trace of, even one that the watch never
// delivered, and keeps what this process knows of the others.
func TestApprovalsAreReadAgain(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	a := keeper(t, n)
	out, key := pendingStep(a, time.Now().Add(time.Hour))
	_, err := a.reserve(t.Context(), admission.Request{}, out)
	servicetest.OK(t, err)
	held := a.index.lookup(key)
	a.index.markLogged(key, held.revision)
	lost := *held.workflow
	lost.Slot, lost.ID = strings.Repeat("b", 64), "wf-2"
	a.index.put(approval.StoreKey(lost.Tenant, lost.Slot), &lost, held.revision+1)
	if a.follower.reopenWatch(t.Context()) {
		t.Fatal("the bucket was not read")
	}
	if again := a.index.lookup(key); !again.logged || again.since != held.since || a.index.Find("acme", "wf-2") != nil || a.index.PendingCount("acme", "rt1") != 1 {
		t.Errorf("%+v, %d pending", again, a.index.PendingCount("acme", "rt1"))
	}
}

// What a decision reserved is released if the decision was certainly not recorded. A step that
// another decision builds on stays; the log says so only of one that used an approval.
func TestApprovalStepIsUndone(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	a, logged := keeper(t, n), &strings.Builder{}
	a.s.env.Log = zerolog.New(logged)
	out, key := pendingStep(a, time.Now().Add(time.Hour))
	got, err := a.reserve(t.Context(), admission.Request{}, out)
	servicetest.OK(t, err)
	if len(got.msgs) != 1 || a.index.lookup(key).workflow == nil || a.index.PendingCount("acme", "rt1") != 1 {
		t.Fatalf("%+v", got)
	}
	got.release(t.Context())
	if e, err := streams.KVLast(t.Context(), a.js, streams.BucketApprovals, key); err != nil || !e.Deleted || a.index.lookup(key).workflow != nil || a.index.PendingCount("acme", "rt1") != 0 {
		t.Errorf("%+v %v", e, err)
	}
	// Again, in the place of the deleted workflow, and then a reviewer approves it.
	got, err = a.reserve(t.Context(), admission.Request{}, out)
	servicetest.OK(t, err)
	approved := *a.index.lookup(key).workflow
	approved.Status, approved.Step = approval.Approved, 2
	_, err = a.writeWorkflow(t.Context(), key, approved, a.index.lookup(key).revision)
	servicetest.OK(t, err)
	got.release(t.Context())
	h := a.index.lookup(key)
	if h.workflow == nil || h.workflow.Status != approval.Approved || logged.Len() > 0 {
		t.Errorf("%+v, logged: %s", h, logged)
	}
	// A decision uses the approval, and meanwhile the key changes.
	a.index.markLogged(key, h.revision)
	consumed := approved
	consumed.Status, consumed.Step = approval.Consumed, 3
	using := &admission.Outcome{}
	using.Consumption.Approval = &approval.Change{Slot: consumed.Slot, Revision: h.revision, Next: consumed, Consumes: true}
	got, err = a.reserve(t.Context(), admission.Request{}, using)
	servicetest.OK(t, err)
	_, err = a.writeWorkflow(t.Context(), key, consumed, a.index.lookup(key).revision)
	servicetest.OK(t, err)
	got.release(t.Context())
	if !strings.Contains(logged.String(), "the agent must ask anew") {
		t.Errorf("logged: %s", logged)
	}
	// A step from an old revision is made again.
	if _, err := a.reserve(t.Context(), admission.Request{}, out); !errors.Is(err, errConflict) {
		t.Error(err)
	}
}

// A crash between bucket and log leaves a record out; it is written, once.
func TestLostRecordsAreWritten(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	a, b := keeper(t, n), keeper(t, n)
	out, key := pendingStep(a, time.Now().Add(time.Hour))
	_, err := a.reserve(t.Context(), admission.Request{}, out)
	servicetest.OK(t, err)
	servicetest.OK(t, b.refreshKey(t.Context(), key))
	o := &office{t: t, n: n}
	later := time.Now().Add(approvalGrace)
	for _, keeper := range []*approvalStore{a, a, b} {
		servicetest.OK(t, keeper.sweepWorkflows(t.Context(), later))
	}
	if got := o.trail("wf-1"); got != "open>pending" {
		t.Error(got)
	}
	// Expiry: two keepers, one record.
	expired := time.Now().Add(2 * time.Hour)
	for _, keeper := range []*approvalStore{a, b, a} {
		servicetest.OK(t, keeper.sweepWorkflows(t.Context(), expired))
	}
	if got := o.trail("wf-1"); got != "open>pending expire>expired" {
		t.Error(got)
	}
	// And after a while it is gone from the bucket, not from the log.
	servicetest.OK(t, a.sweepWorkflows(t.Context(), expired.Add(approvalRetention)))
	if e, err := streams.KVLast(t.Context(), a.js, streams.BucketApprovals, key); err != nil || !e.Deleted || a.index.Find("acme", "wf-1") != nil {
		t.Errorf("%+v %v", e, err)
	}
}

// When too many workflows are held, finished ones go at once, but only those of tenants with more than
// an equal share: a tenant with few keeps its hour.
func TestCrowdedTenants(t *testing.T) {
	for name, c := range map[string]struct {
		held map[string]int
		want string
	}{
		"nothing held":      {nil, ""},
		"within the bound":  {map[string]int{"acme": 10}, ""},
		"one alone":         {map[string]int{"acme": 11}, "acme"},
		"one has them all":  {map[string]int{"acme": 11, "globex": 1}, "acme"},
		"an equal share":    {map[string]int{"acme": 7, "globex": 5}, "acme"},
		"two have too many": {map[string]int{"acme": 6, "globex": 6, "initech": 1}, "acme globex"},
	} {
		t.Run(name, func(t *testing.T) {
			crowded := crowdedTenants(c.held, 10)
			maps.DeleteFunc(crowded, func(_ string, is bool) bool { return !is })
			if got := strings.Join(slices.Sorted(maps.Keys(crowded)), " "); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	n := servicetest.Start(t, streams.Shard{})
	a := keeper(t, n)
	out, key := pendingStep(a, time.Now().Add(time.Hour))
	_, err := a.reserve(t.Context(), admission.Request{}, out)
	servicetest.OK(t, err)
	a.index.markLogged(key, a.index.lookup(key).revision)
	ended := time.Now().Add(time.Hour + time.Minute)
	servicetest.OK(t, a.sweepWorkflows(t.Context(), ended))
	h := a.index.lookup(key)
	deletion := maintenanceTasks[len(maintenanceTasks)-1].due
	for tenant, want := range map[string]bool{"acme": true, "globex": false} {
		if deletion(h, sweep{now: ended, crowded: map[string]bool{tenant: true}}) != want {
			t.Errorf("with too many workflows of %s a finished one of acme goes: %t", tenant, !want)
		}
	}
	if n := a.index.countByTenant(); n["acme"] != 1 || len(n) != 1 {
		t.Errorf("held: %v", n)
	}
}

// An admitter that has read a push cancels what was opened before it, once that is on the log, and one that
// has not cancels nothing of after it.
func TestOutdatedWorkflowsAreCancelled(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	a := keeper(t, n)
	out, key := pendingStep(a, time.Now().Add(time.Hour))
	_, err := a.reserve(t.Context(), admission.Request{}, out)
	servicetest.OK(t, err)
	set, err := policy.Compile([]policy.Document{{Name: "mail.yaml", Data: askPolicy("")}})
	servicetest.OK(t, err)
	opened := time.Now()
	for _, step := range []struct {
		config *admission.Config
		after  time.Duration
		want   approval.Status
	}{
		{&admission.Config{Policies: set, Revision: 2}, 0, approval.Pending},                               // its record may be on its way
		{&admission.Config{Policies: set, Revision: 1}, approvalGrace, approval.Pending},                   // writes the record
		{&admission.Config{PolicyErr: policy.ErrNoPolicies, Revision: 2}, approvalGrace, approval.Pending}, // they may compile again, as they were
		{&admission.Config{Policies: set, Revision: 0}, approvalGrace, approval.Pending},
		{&admission.Config{Policies: set, Revision: 1}, approvalGrace, approval.Pending},
		{&admission.Config{Policies: set, Revision: 2}, approvalGrace, approval.Cancelled},
	} {
		a.s.config.Store(step.config)
		servicetest.OK(t, a.sweepWorkflows(t.Context(), opened.Add(step.after)))
		if w := a.index.lookup(key).workflow; w.Status != step.want {
			t.Errorf("revision %d: %s, want %s", step.config.Revision, w.Status, step.want)
		}
	}
	if got := (&office{t: t, n: n}).trail("wf-1"); got != "open>pending cancel>cancelled" {
		t.Error(got)
	}
	if w := a.index.lookup(key).workflow; w.SupersededFor() != approval.ReasonPolicyChanged || a.index.PendingCount("acme", "rt1") != 0 {
		t.Errorf("%+v", w)
	}
}

// erase takes a session's workflows as the custodian does, without a trace in the
// bucket; and then the records, if told to.
func erase(t *testing.T, n *servicetest.NATS, key string, records bool) {
	t.Helper()
	nc, js := n.Conn("custodian"), n.JS("custodian")
	for {
		e, err := streams.KVLast(t.Context(), js, streams.BucketApprovals, key)
		servicetest.OK(t, err)
		if e == nil {
			break
		}
		_, err = streams.Erase(t.Context(), nc, "KV_"+streams.BucketApprovals, e.Revision)
		servicetest.OK(t, err)
	}
	for _, m := range n.Log() {
		if records && strings.HasPrefix(m.Subject, "gov.approvals.acme.") {
			_, err := streams.Erase(t.Context(), nc, streams.DefaultShard, m.Seq)
			servicetest.OK(t, err)
		}
	}
}

func sayErased(t *testing.T, n *servicetest.NATS, state string, sessions ...string) {
	t.Helper()
	body, err := events.Encode(events.Erasure{ErasureID: "e1", Shard: "GOV", State: state, Part: 1, Parts: 1, Tenant: "acme", Sessions: sessions})
	servicetest.OK(t, err)
	n.Publish("custodian", streams.Msg{Subject: "gov.control.GOV." + events.ControlErasure, Body: body})
}

// The records of a workflow that was erased were not left out by a crash: they stay
// away.
func TestErasedRecordsStayAway(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	a := keeper(t, n)
	out, key := pendingStep(a, time.Now().Add(time.Hour))
	_, err := a.reserve(t.Context(), admission.Request{}, out)
	servicetest.OK(t, err)
	erase(t, n, key, true)
	later := time.Now().Add(approvalGrace)
	servicetest.OK(t, a.sweepWorkflows(t.Context(), later))
	if got := (&office{t: t, n: n}).trail("wf-1"); got != "" || a.index.Find("acme", "wf-1") != nil {
		t.Errorf("%q, in memory: %v", got, a.index.Find("acme", "wf-1"))
	}
}

// Nobody is shown what was erased, and nothing is recorded of it.
func TestErasedWorkflowsAreGone(t *testing.T) {
	o := openOffice(t, "")
	first := o.expect(o.call(), "ask")
	second := o.expect(o.call("call-mail-2", "call-mail-4", "6f1d2c1e", "7f1d2c1f", "Quarterly", "Yearly"), "ask")
	other := o.expect(o.call("sess-mail-2", "sess-mail-3"), "ask")
	show := func(id string) approval.Reply {
		return o.says("dana", approval.Request{Action: approval.CommandShow, WorkflowID: id})
	}
	digest := show(first).Workflow.PreviewDigest
	sayErased(t, o.n, events.ErasureBegun, "sess-mail-2")
	kv := bucket(t, o.n, "admitter", streams.BucketApprovals)
	keys, err := kv.Keys(t.Context())
	servicetest.OK(t, err)
	for _, key := range keys {
		e, err := kv.Get(t.Context(), key)
		servicetest.OK(t, err)
		if strings.Contains(string(e.Value()), "sess-mail-2") {
			erase(t, o.n, key, false)
		}
	}
	// Who decides before the word has come is told that there is nothing to decide.
	wrong := approval.Request{Action: "approve", WorkflowID: first, PreviewDigest: digest + "0", Reason: "looked at it"}
	if r := o.says("dana", wrong); r.Code != approval.CodeUnknown {
		t.Errorf("%+v", r)
	}
	sayErased(t, o.n, events.ErasureDone, "sess-mail-2")
	servicetest.Eventually(t, "the workflows are gone", func() bool {
		return show(first).Code == approval.CodeUnknown && show(second).Code == approval.CodeUnknown
	})
	if r := show(other); !r.OK {
		t.Errorf("the other session's: %+v", r)
	}
	if got := o.trail(first); got != "open>pending" {
		t.Errorf("more of it is on the log: %s", got)
	}
}

// An approval whose record a crash left out is recorded before a decision uses it.
func TestApprovalIsOnTheLogBeforeItIsUsed(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	a := keeper(t, n)
	out, key := pendingStep(a, time.Now().Add(time.Hour))
	_, err := a.reserve(t.Context(), admission.Request{}, out)
	servicetest.OK(t, err)
	approved, _, changed := a.index.lookup(key).workflow.Resolve(approval.Command{Act: approval.ActApprove, Reviewer: "dana", PreviewDigest: "p", At: time.Now(),
		CurrentPolicy: events.PolicyRef{Revision: 1, Digest: "sha256:a"}})
	if !changed {
		t.Fatal("not approved")
	}
	_, err = a.writeWorkflow(t.Context(), key, approved, a.index.lookup(key).revision)
	servicetest.OK(t, err)
	used, err := approved.Consume("d-2", time.Now())
	servicetest.OK(t, err)
	out.Consumption.Approval = &approval.Change{Slot: used.Slot, Revision: a.index.lookup(key).revision, Next: used, Consumes: true, Records: []events.Approval{used.Record()}}
	_, err = a.reserve(t.Context(), admission.Request{}, out)
	servicetest.OK(t, err)
	if got := (&office{t: t, n: n}).trail("wf-1"); got != "approve>approved" {
		t.Error(got)
	}
}

// An unreadable value in the bucket approves nothing and blocks no other workflow.
func TestUnreadableWorkflow(t *testing.T) {
	o := openOffice(t, "")
	id := o.expect(o.call(), "ask")
	kv := bucket(t, o.n, "admitter", streams.BucketApprovals)
	names, err := kv.Keys(t.Context())
	servicetest.OK(t, err)
	_, err = kv.Put(t.Context(), names[0], []byte(`{"v":2,"status":"approved"}`))
	servicetest.OK(t, err)
	servicetest.Eventually(t, "the workflow is gone", func() bool {
		return o.says("dana", approval.Request{Action: approval.CommandShow, WorkflowID: id}).Code == approval.CodeUnknown
	})
	if w := o.expect(o.call(), "ask"); w == id {
		t.Error(w)
	}
}

// The view knows the same, however it came to know it.
func TestApprovalView(t *testing.T) {
	v := newApprovalIndex()
	w := approval.Workflow{ID: "wf-1", Tenant: "acme", Source: "rt1", Session: "s1", Slot: "x", Status: approval.Pending}
	used := w
	used.Status = approval.Consumed
	v.put("k", &w, 5)
	v.put("k", &used, 4) // late
	if v.PendingCount("acme", "rt1") != 1 || len(v.SessionWorkflows("acme", "rt1", "s1")) != 1 || v.Find("acme", "wf-1").Status != approval.Pending || v.Find("globex", "wf-1") != nil {
		t.Error("an old revision won")
	}
	v.put("k", &used, 6)
	if v.PendingCount("acme", "rt1") != 0 || v.SessionWorkflows("acme", "rt1", "s1") != nil || len(v.pending)+len(v.sessions) != 0 {
		t.Errorf("%+v", v)
	}
	v.removeAt("k", 5)
	if v.Find("acme", "wf-1") == nil {
		t.Error("removed by an old deletion")
	}
	v.removeAt("k", 7)
	if v.Find("acme", "wf-1") != nil || len(v.byKey)+len(v.byID) != 0 {
		t.Errorf("%+v", v)
	}
}
