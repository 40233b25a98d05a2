package correlation

import (
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/eventtime"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/subject"
)

// newCallsPart is the part calls with the parts that it refers to, without an engine.
func newCallsPart(o Options) *calls {
	fs := newFindingsPart(o)
	return newCalls(fs.opts, fs.timers, fs)
}

// openCall announces a call of session s1 by its pre event, which it returns too.
func openCall(cs *calls, id, agent string, seq uint64) (*call, *fact.Fact) {
	f := &fact.Fact{Kind: fact.KindPre, Seq: seq, Origin: fact.OriginOf("acme", "rt1", "s1"), EventID: "pre-" + id, Tool: "pay", Agent: agent, CallID: id}
	f.SetCallKey(fact.CallKeyOf(id, "pay"))
	s := cs.active(f)
	if s == nil {
		s = cs.addSession(&f.Origin, 0)
	}
	c := cs.newOccurrence(s, f)
	cs.addOpen(c)
	c.attachFact(f)
	return c, f
}

// TestHandoffsPart: a call of an agent that handed over is a finding until another agent
// hands back to it, and a call whose agent turns out to be another retracts its finding.
func TestHandoffsPart(t *testing.T) {
	cs := newCallsPart(Options{})
	hs := newHandoffs(cs.findings)
	handOver := func(seq uint64, from, to string) {
		c, _ := openCall(cs, "handoff-"+to, from, seq)
		f := &fact.Fact{Kind: fact.KindDecision, Seq: seq, Origin: *c.session.Origin, Protocol: subject.ProtoHandoff, Agent: from, Tool: aioc.HandoffToolName(to),
			Decision: &fact.RecordedVerdict{Verdict: events.Allow}}
		hs.trackHandoff(c.session, c, f)
	}
	found := func(what string, c *call, f *fact.Fact, want ...string) {
		t.Helper()
		hs.trackHandoff(c.session, c, f)
		if got := takeRules(cs.findings); len(got) != len(want) {
			t.Errorf("%s: findings %q, want %q", what, got, want)
		}
	}
	if !hs.isEmpty() {
		t.Error("the part is not empty at first")
	}
	early, pre := openCall(cs, "early", "planner", 1)
	handOver(2, "planner", "coder")
	found("a call before the handoff", early, pre)
	late, pre := openCall(cs, "late", "planner", 3)
	found("a call after the handoff", late, pre, CallAfterHandoff)
	late.agent = "coder"
	found("the call of another agent after all", late, pre, CallAfterHandoff)
	if late.handoffFinding != (handoffFinding{}) {
		t.Errorf("the call still has the finding %+v", late.handoffFinding)
	}
	handOver(4, "coder", "planner")
	back, pre := openCall(cs, "back", "planner", 5)
	found("a call after the agent was handed back to", back, pre)
	gone, pre := openCall(cs, "gone", "coder", 6)
	found("a call of the agent that handed back", gone, pre, CallAfterHandoff)
}

// TestTrackersPart: the least recently active session makes room for another one, and a
// session that is idle for too long is forgotten.
func TestTrackersPart(t *testing.T) {
	fs := newFindingsPart(Options{})
	fs.timers.AdvanceTo(epoch)
	ts := newTrackers(&engineOptions{Options: Options{MaxSessions: 2}}, fs.timers, fs)
	follow := func(session string) {
		f := &fact.Fact{Protocol: subject.ProtoAgentHook, Origin: fact.OriginOf("acme", "rt1", session)}
		if ts.active(f) == nil {
			ts.beginTracking(f, &f.Origin)
		}
	}
	followed := func(what string, want ...string) {
		t.Helper()
		if ts.count() != len(want) {
			t.Errorf("%s: %d sessions are followed, want %q", what, ts.count(), want)
		}
		for _, session := range want {
			if ts.find(fact.OriginOf("acme", "rt1", session).Key, subject.ProtoAgentHook) == nil {
				t.Errorf("%s: session %s is not followed", what, session)
			}
		}
	}
	follow("s1")
	follow("s2")
	follow("s1")
	follow("s3")
	followed("a third session", "s1", "s3")
	if ts.find(fact.OriginOf("acme", "rt1", "s1").Key, subject.ProtoAAEP) != nil {
		t.Error("the session is followed in another protocol")
	}
	for quarter := range 4 {
		fs.timers.AdvanceTo(epoch.Add(time.Duration(quarter+1) * eventtime.IdleQuarter))
		if quarter == 1 {
			follow("s3")
		}
	}
	ts.expireProtocolSessions()
	followed("a day later", "s3")
	var next eventtime.Earliest
	if ts.nextProtocolSessionIdle(&next); !next.Any || !next.At.After(fs.timers.Now()) {
		t.Errorf("the next session may be idle at %v", next.At)
	}
}

// TestJudgePart: the judge compares what ran with what was announced, and reports a
// difference only.
func TestJudgePart(t *testing.T) {
	arguments := func(text string, redacted ...string) fact.Arguments {
		return fact.NewArguments([]byte(text), fact.DigestKeyers{}, redacted)
	}
	for _, c := range []struct {
		name           string
		admitted, ran  fact.Arguments
		match, pointer string
		rules          int
	}{
		{"equal", arguments(`{"a":1}`), arguments(`{"a":1}`), matchEqual, "", 0},
		{"different", arguments(`{"a":1}`), arguments(`{"a":2}`), matchDrift, "/a", 1},
		{"hidden by a redaction", arguments(`{"a":1}`), arguments(`{"a":"x"}`, "/a"), matchInconclusive, "", 0},
		{"different beside a redaction", arguments(`{"a":1,"b":1}`), arguments(`{"a":"x","b":2}`, "/a"), matchDrift, "/b", 1},
		{"unknown", fact.Arguments{}, fact.Arguments{}, "", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			cs := newCallsPart(Options{})
			j := &judge{opts: cs.opts, findings: cs.findings, calls: cs}
			o, f := openCall(cs, "c1", "", 1)
			o.args = c.admitted
			f.Kind, f.EventID, f.Args = fact.KindPost, "post", c.ran
			j.compareCallInput(o, f, o.effectiveVerdict())
			if o.match != c.match || len(o.differences) > 1 || len(o.differences) == 1 && o.differences[0].Pointer != c.pointer {
				t.Errorf("match %q, differences %+v", o.match, o.differences)
			}
			if got := takeRules(cs.findings); len(got) != c.rules {
				t.Errorf("findings %q", got)
			}
		})
	}
}

// TestTenantsKeepTheirShare: a tenant that floods a table takes nothing from one that holds less
// than an equal share.
func TestTenantsKeepTheirShare(t *testing.T) {
	const limit = 16
	small := func() *engine {
		e := New(Options{MaxPublishers: limit}).engine
		e.receipts.holders, e.handoffs.bySession = tables.NewShared[fact.Sum, fact.Sum](limit), tables.NewShared[fact.SourceSession, []handedOverAgent](limit)
		e.approvals.statuses, e.approvals.workflows = tables.NewShared[fact.Sum, approvalStatus](limit), tables.NewShared[fact.Sum, *workflow](limit)
		e.admissions.flaggedRequests, e.admissions.namedDecisions = tables.NewShared[fact.Sum, flaggedRequest](limit), tables.NewShared[fact.Sum, namedDecision](limit)
		e.lineage.parentLinks, e.lineage.linkTargets = tables.NewShared[fact.SourceSession, parentLink](limit), tables.NewShared[fact.Sum, sessionLink](limit)
		e.calls.tombstones = tables.NewShared[fact.SourceSession, sessionTombstone](limit)
		return e
	}
	of := func(tenant string, i int) *fact.Fact {
		id := tenant + strconv.Itoa(i)
		return &fact.Fact{Kind: fact.KindDecision, Protocol: subject.ProtoHandoff, Seq: 1, Origin: fact.OriginOf(tenant, "rt"+strconv.Itoa(i), "s"), EventID: "e" + id, DecisionID: "d" + id, Agent: "a",
			Tool: aioc.HandoffToolName("another"), CallKey: fact.CallKeyOf("c"+id, ""), Decision: &fact.RecordedVerdict{Verdict: events.Allow, Approval: &fact.Approval{Workflow: "w" + id}}}
	}
	call := func(e *engine, f *fact.Fact) *call {
		s := e.calls.find(f.Key)
		if s == nil {
			s = e.calls.addSession(&f.Origin, 0)
		}
		return e.calls.newOccurrence(s, f)
	}
	for name, table := range map[string]struct {
		add  func(e *engine, f *fact.Fact)
		kept func(e *engine, f *fact.Fact) bool
	}{
		"receipts": {func(e *engine, f *fact.Fact) { e.receipts.recordReceipt(f) },
			func(e *engine, f *fact.Fact) bool {
				_, kept := e.receipts.holderOf(f.Key.Tenant, f.DecisionID)
				return kept
			}},
		"handoffs": {func(e *engine, f *fact.Fact) { e.handoffs.trackHandoff(call(e, f).session, call(e, f), f) },
			func(e *engine, f *fact.Fact) bool { return e.handoffs.bySession.Lookup(f.Key.Tenant, f.Key) != nil }},
		"statuses of approvals": {func(e *engine, f *fact.Fact) {
			e.approvals.recordApprovalStatus(f.Key.Tenant, fact.SumOf(f.Decision.Approval.Workflow), fact.StatusApproved, epoch)
		}, func(e *engine, f *fact.Fact) bool {
			return e.approvals.isWorkflowApproved(f.Key.Tenant, f.Decision.Approval)
		}},
		"workflows": {func(e *engine, f *fact.Fact) { e.approvals.openWorkflow(call(e, f), f) },
			func(e *engine, f *fact.Fact) bool {
				return e.approvals.findWorkflow(f.Key.Tenant, f.Decision.Approval.Workflow) != nil
			}},
		"flagged requests": {func(e *engine, f *fact.Fact) {
			f.RequestFlags = fact.FlagReportsOnly
			e.admissions.recordFlaggedRequest(f)
		},
			func(e *engine, f *fact.Fact) bool {
				return e.admissions.flaggedRequests.Lookup(f.Key.Tenant, f.OwnReceiptKey()) != nil
			}},
		"named decisions": {func(e *engine, f *fact.Fact) { f.ReceiptDecisionID = f.DecisionID; e.admissions.recordNamedDecision(f) },
			func(e *engine, f *fact.Fact) bool {
				return e.admissions.namedDecisions.Lookup(f.Key.Tenant, f.OwnReceiptKey()) != nil
			}},
		"parent links": {func(e *engine, f *fact.Fact) {
			f.LineageRefs.ParentSession = "planner"
			e.lineage.resolveParentSession(f, &sessionsOfTest{})
		}, func(e *engine, f *fact.Fact) bool { return !e.lineage.parentOf(f.Key).isZero() }},
		"link targets": {func(e *engine, f *fact.Fact) { e.lineage.recordLinkTarget(f, eventTarget(f), nil) },
			func(e *engine, f *fact.Fact) bool { return !e.lineage.findLinkTarget(f, eventTarget(f)).isZero() }},
		"forgotten sessions": {func(e *engine, f *fact.Fact) { e.calls.forgetSession(call(e, f).session, 0) },
			func(e *engine, f *fact.Fact) bool { return e.calls.tombstones.Lookup(f.Key.Tenant, f.Key) != nil }},
		"publishers": {func(e *engine, f *fact.Fact) { e.history.classifyNovelty(f) },
			func(e *engine, f *fact.Fact) bool { return e.history.hasDecision(f.Key.Publisher(), f.DecisionID) }},
	} {
		t.Run(name, func(t *testing.T) {
			e := small()
			for i := range limit / 2 {
				table.add(e, of("globex", i))
			}
			for i := range 4 * limit {
				table.add(e, of("acme", i))
			}
			for i := range limit / 2 {
				if !table.kept(e, of("globex", i)) {
					t.Errorf("entry %d of the tenant that holds little is forgotten", i)
				}
			}
			if last := of("acme", 4*limit-1); !table.kept(e, last) || table.kept(e, of("acme", 0)) {
				t.Error("the tenant that floods keeps its oldest entry, or not its newest one")
			}
		})
	}
}

// TestSilentPublisherIsForgotten: of tenants with a publisher each, the publisher that was silent for longest
// makes room, whatever its name is.
func TestSilentPublisherIsForgotten(t *testing.T) {
	h := newHistory(&engineOptions{Options: Options{MaxEvents: 600, MaxEventsPerSource: 4, MaxPublishers: 3}})
	of := func(tenant string) *fact.Fact {
		return &fact.Fact{Kind: fact.KindDecision, Seq: 1, Origin: fact.OriginOf(tenant, "rt1", "s"), DecisionID: "d"}
	}
	for _, tenant := range []string{"initech", "acme", "globex", "acme", "umbrella", "acme"} { // three fit
		h.classifyNovelty(of(tenant))
	}
	for tenant, want := range map[string]bool{"acme": true, "globex": true, "initech": false, "umbrella": true} {
		if kept := h.hasDecision(of(tenant).Key.Publisher(), "d"); kept != want {
			t.Errorf("%s is kept: %v, want %v", tenant, kept, want)
		}
	}
}

// TestOnlyPublishersHaveFIFOs: a table that tenants share has shares of tenants. A plain FIFO is
// one publisher's.
func TestOnlyPublishersHaveFIFOs(t *testing.T) {
	var fifos []string
	for _, m := range regexp.MustCompile(`(\w+) \*tables\.FIFO\[`).FindAllStringSubmatch(stateShape(), -1) {
		fifos = append(fifos, m[1])
	}
	if want := []string{"firstContents", "emittedFindings"}; !slices.Equal(fifos, want) {
		t.Errorf("%v are FIFOs, want %v", fifos, want)
	}
}

// TestPartsAlone: each part keeps its bounds without an engine.
func TestPartsAlone(t *testing.T) {
	o := Options{MaxEvents: 600, MaxEventsPerSource: 4, MaxPublishers: 128, MaxClosedPerSession: 3}
	of := func(i int) *fact.Fact {
		id := strconv.Itoa(i)
		return &fact.Fact{Kind: fact.KindDecision, Seq: uint64(i + 1), Origin: fact.OriginOf("acme", "rt"+strconv.Itoa(i%100), "s"+id), EventID: "e" + id, DecisionID: "d" + id,
			CallKey: fact.CallKeyOf("c"+id, ""), Decision: &fact.RecordedVerdict{Verdict: events.Allow, HasReceipt: true}}
	}
	type alone struct {
		fill func(i int)
		held func() int
	}
	for name, c := range map[string]struct {
		facts, bound int
		make         func() alone
	}{
		"calls": {20, 3, func() alone {
			cs := newCallsPart(o)
			return alone{func(i int) {
				c, _ := openCall(cs, strconv.Itoa(i), "", uint64(i+1))
				cs.closeCall(c, events.CallCompleted, closedByPost)
				cs.compactCalls()
			}, func() int { return cs.counts.calls }}
		}},
		"event ids": {2000, 600, func() alone {
			h := newHistory(&engineOptions{Options: o})
			return alone{func(i int) { h.classifyNovelty(of(i)) }, h.idCount}
		}},
		"publishers": {2000, 64, func() alone {
			h := newHistory(&engineOptions{Options: Options{MaxEvents: 600, MaxEventsPerSource: 4, MaxPublishers: 64}})
			return alone{func(i int) { h.classifyNovelty(of(i)) }, h.sourceCount}
		}},
		"parent links": {maxParentLinks + 100, maxParentLinks, func() alone {
			x := newLineage()
			return alone{func(i int) {
				f := of(i)
				f.LineageRefs.ParentSession = "planner"
				x.resolveParentSession(f, &sessionsOfTest{})
			}, x.parentLinks.Len}
		}},
		"handoffs of a session": {100, maxHandedOver, func() alone {
			cs := newCallsPart(o)
			hs := newHandoffs(cs.findings)
			return alone{func(i int) {
				agent := "agent-" + strconv.Itoa(i)
				c, f := openCall(cs, strconv.Itoa(i), agent, uint64(i+1))
				f.Kind, f.Protocol, f.Tool, f.Decision = fact.KindDecision, subject.ProtoHandoff, aioc.HandoffToolName("another"), of(i).Decision
				hs.trackHandoff(c.session, c, f)
			}, func() int {
				list, _ := hs.bySession.Get("acme", fact.OriginOf("acme", "rt1", "s1").Key)
				return len(list)
			}}
		}},
		"receipts": {maxReceipts + 100, maxReceipts, func() alone {
			fs := newFindingsPart(o)
			rs := newReceipts(fs.opts, fs, fs.history)
			return alone{func(i int) { rs.recordReceipt(of(i)) }, rs.holders.Len}
		}},
		"flagged requests": {maxFlaggedRequests + 100, maxFlaggedRequests, func() alone {
			fs := newFindingsPart(o)
			ad := newAdmissions(fs, fs.history)
			return alone{func(i int) {
				f := of(i)
				f.RequestFlags = fact.FlagReportsOnly
				ad.recordFlaggedRequest(f)
			}, ad.flaggedRequests.Len}
		}},
		"approvals": {maxApprovals + 100, maxApprovals, func() alone {
			fs := newFindingsPart(o)
			ap := newApprovals(fs.opts, fs)
			return alone{func(i int) {
				ap.recordApprovalStatus("acme", fact.SumOf(strconv.Itoa(i)), fact.StatusPending, epoch)
			}, ap.statuses.Len}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			full := c.make()
			for i := range c.facts {
				full.fill(i)
			}
			if n := full.held(); n > c.bound || n < c.bound/2 {
				t.Errorf("%d are held after %d, want at most %d, and not many fewer", n, c.facts, c.bound)
			}
		})
	}
}

// TestMovedDecisionStaysLinked: a call that takes more decisions than are kept does not unlink one that has moved to
// another call.
func TestMovedDecisionStaysLinked(t *testing.T) {
	s, first, second := &session{}, &call{}, &call{}
	s.linkDecision(first, "moved")
	s.linkDecision(second, "moved")
	for i := range maxCallDecisions {
		s.linkDecision(first, "d"+strconv.Itoa(i))
	}
	if s.decisionIndex["moved"] != second || s.decisionIndex["d0"] != first {
		t.Error("a decision was unlinked from the call that it belongs to")
	}
}
