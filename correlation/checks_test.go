package correlation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/checks"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// checksOf lists the findings of the protocols' checks that count as
// "check/severity", sorted.
func checksOf(list []events.Finding) []string {
	out := []string{}
	for _, f := range list {
		if f.Severity != events.SeverityInfo && checkRules[f.Rule] != nil {
			out = append(out, f.Rule+"/"+string(f.Severity))
		}
	}
	slices.Sort(out)
	return out
}

func wantChecks(t testing.TB, got []events.Finding, want ...string) {
	t.Helper()
	slices.Sort(want)
	if want == nil {
		want = []string{}
	}
	if have := checksOf(got); !slices.Equal(have, want) {
		t.Errorf("checks %v, want %v", have, want)
		for _, f := range got {
			t.Logf("  %s %s %v: %s", f.Rule, f.Severity, f.Seqs, f.Explanation)
		}
	}
}

// TestCatalogueIsComplete: every check of the digests is in it.
func TestCatalogueIsComplete(t *testing.T) {
	have := map[string]bool{}
	for _, c := range checks.All() {
		have[c.ID] = true
	}
	row := regexp.MustCompile(`(?m)^\| ((?:AAEP|AH)-C-\d{3}) \|`)
	for file, want := range map[string]int{"aaep.md": 125, "agenthook.md": 109} {
		b, err := os.ReadFile(filepath.Join(shared(), "specs", file))
		if err != nil {
			t.Skipf("the digests are not there: %v", err)
		}
		ids := row.FindAllStringSubmatch(string(b), -1)
		if len(ids) != want {
			t.Errorf("%s has %d checks, want %d", file, len(ids), want)
		}
		for _, id := range ids {
			if !have[id[1]] {
				t.Errorf("%s is not in the catalogue", id[1])
			}
		}
	}
}

// document begins every reference.
var document = regexp.MustCompile(`^(AAEP [0-9A-B]|AgentHook (SPEC [0-9A]|CONFORMANCE)|AHP-[0-9]{3}|AUMP [a-z]|RFC [0-9]|docs/)`)

// TestRuleEntries: every rule of ours says what it must, and refers to checks and
// documents.
func TestRuleEntries(t *testing.T) {
	for _, r := range Rules() {
		if r.Inputs == "" || len(r.Refs) == 0 || r.Remedy == "" || r.Severity == "" || !strings.HasSuffix(r.Explanation, ".") {
			t.Errorf("%s lacks something: %+v", r.Name, r)
		}
		for _, ref := range r.Refs {
			if checkRules[ref] == nil && !strings.HasPrefix(ref, "aioc RFC-") && !document.MatchString(ref) {
				t.Errorf("%s refers to %s, which is no check and no document", r.Name, ref)
			}
		}
	}
}

// TestCatalogueEntries: every entry says what it must.
func TestCatalogueEntries(t *testing.T) {
	last, implemented := "", 0
	for _, c := range checks.All() {
		if c.ID[:4] == last[:min(4, len(last))] && c.ID <= last {
			t.Errorf("%s comes after %s", c.ID, last)
		}
		last = c.ID
		if !strings.HasSuffix(c.Explanation, ".") || c.Ref == "" || c.Inputs == "" || c.Level == "" || c.Scope == "" || c.Severity == "" {
			t.Errorf("%s lacks something: %+v", c.ID, c)
		}
		if !document.MatchString(c.Ref) {
			t.Errorf("%s: %q does not say of which document it is", c.ID, c.Ref)
		}
		if (c.Status == catalogue.Implemented) != (c.Remedy != "") || (c.Status == catalogue.Implemented) == (c.Reason != "") {
			t.Errorf("%s has not what its status wants: %+v", c.ID, c)
		}
		if c.Status == catalogue.Implemented {
			implemented++
			if c.Scope == catalogue.ScopeDeployment || c.Scope == catalogue.ScopeEndpoint {
				t.Errorf("%s is implemented and no matter of the log", c.ID)
			}
		}
	}
	if implemented != len(checkRules) {
		t.Errorf("%d rules for %d implemented checks", len(checkRules), implemented)
	}
	for _, p := range protocols {
		for _, ids := range p.equivalents {
			for _, id := range ids {
				if checkRules[id] == nil {
					t.Errorf("%s: no check %s", p.Token, id)
				}
			}
		}
	}
}

// TestGoldenChecks: what agenthook.md derives from the golden pair breaks the
// checks that it names, and the pair itself none.
func TestGoldenChecks(t *testing.T) {
	before, after := golden()
	noApproval := set(after, "metadata.approval", nil)
	verdict := func(v string) tree {
		return decisionLine(tree{"verdict": v, "event_id": uuid(1), "session": "s1", "tool_call_id": "c1", "decided_at": stamp(0)})
	}
	for _, tc := range []struct {
		name  string
		lines []any
		want  []string
	}{
		{"golden", []any{before, after}, nil},
		{"deny and succeeded", []any{set(before, "metadata.admission_verdict.verdict", "deny"), after}, []string{"AH-C-075/critical"}},
		{"ask and succeeded without approval", []any{before, noApproval}, []string{"AH-C-076/high"}},
		{"changed without a reason", []any{before, set(after, "metadata.tool_input_executed.invoice", "B-1")}, []string{"AH-C-080/high"}},
		{"changed with a reason", []any{before, set(set(after, "metadata.tool_input_executed.invoice", "B-1"), "metadata.execution.mutation_reason", "normalised")}, nil},
		{"linked to nothing", []any{before, set(set(after, "metadata.tool_call_id", "c2"), "metadata.retry", tree{"previous_tool_call_id": "c9"})}, []string{"AH-C-078/high"}},
		{"linked by the id it tries again", []any{before, set(set(after, "metadata.tool_call_id", "c2"), "metadata.retry", tree{"previous_tool_call_id": "c1"})}, nil},
		{"flipped to allow", []any{set(before, "metadata.admission_verdict.verdict", "allow"), verdict("ask"), after}, []string{"AH-C-076/high", "AH-C-082/high", "AH-C-105/high"}},
		{"flipped from deny to allow", []any{set(before, "metadata.admission_verdict.verdict", "allow"), verdict("deny"), after}, []string{"AH-C-075/critical", "AH-C-082/high", "AH-C-105/high"}},
		{"approved when it had begun", []any{before, set(after, "metadata.approval.decided_at", stamp(1.5))}, []string{"AH-C-076/high"}},
		{"no decision on record", []any{before, after, decisionLine(tree{"verdict": "allow", "session": "s1", "tool_call_id": "c9"})}, []string{"AH-C-082/high", "AH-C-105/high"}},
		{"begun before the verdict", []any{set(before, "metadata.admission_verdict.verdict", "allow"), verdictAt(verdict("allow"), 1.5), after}, []string{"AH-C-083/medium", "AH-C-105/high"}},
		{"Post before Pre", []any{after, before}, []string{"AH-C-054/low", "AH-C-078/low", "AH-C-083/medium", "AH-C-102/low"}},
		{"approval for another action", []any{before, set(after, "metadata.approval.action_id", "act-8")}, []string{"AH-C-076/high", "AH-C-104/high"}},
		{"one id, another body", []any{before, set(before, "tool_input.amount", 5), after}, []string{"AH-C-050/medium"}},
		{"approval expired", []any{before, set(after, "metadata.approval.status", "expired")}, []string{"AH-C-076/high", "AH-C-103/high"}},
		{"run after the approval's time", []any{before, set(set(after, "timestamp", stamp(800)), "metadata.execution.started_at", stamp(790))}, []string{"AH-C-103/high", "AH-C-041/low"}},
		{"the same with t and z in the time", []any{before, set(set(after, "timestamp", stamp(800)), "metadata.execution.started_at", strings.ToLower(stamp(790)))}, []string{"AH-C-103/high", "AH-C-041/low"}},
		{"approved too late", []any{before, set(after, "metadata.approval.decided_at", stamp(900))}, []string{"AH-C-076/high", "AH-C-103/high", "AH-C-109/low"}},
	} {
		t.Run(tc.name, func(t *testing.T) { wantChecks(t, check(t, subject.ProtoAgentHook, tc.lines...), tc.want...) })
	}
}

// confirmed is an AAEP session in which the user is asked and says what reply
// says.
func confirmed(reply string) []tree {
	ask := completeAAEP(tree{"t": "awaiting.confirmation", "ask": "1", "at": 1.0}, 1)
	ask = set(set(ask, "irreversible", true), "risk_level", "high")
	answer := set(set(completeAAEP(tree{"t": "confirmation.reply", "at": 2.0}, 2), "reply_token", "rpl_1"), "decision", reply)
	call := set(set(wire(3, "tool.invoked", 3, tree{"tool": "transfer", "tool_call_id": "call_1"}), "irreversible", true), "risk_level", "high")
	done := wire(4, "tool.completed", 4, tree{"tool": "transfer", "tool_call_id": "call_1", "status": "success"})
	return []tree{wire(0, "session.started", 0, nil), ask, answer, call, done, wire(5, "session.completed", 5, nil)}
}

// TestEverythingTwice: a log in which everything comes twice has the same findings.
func TestEverythingTwice(t *testing.T) {
	for _, reply := range []string{"accept", "reject"} {
		once, twice := newTestLog(t), newTestLog(t)
		for i, e := range confirmed(reply) {
			e = set(e, "timestamp", stamp(float64(i)))
			once.at(float64(i)).event(e)
			twice.at(float64(i)).event(e)
			twice.event(e)
		}
		a, b := once.run(), twice.run()
		if diff := cmp.Diff(checksOf(a.checks), checksOf(b.checks)); diff != "" {
			t.Errorf("%s: %s", reply, diff)
		}
		if broken := len(checksOf(a.checks)) > 0; broken != (reply == "reject") {
			t.Errorf("%s: %v", reply, checksOf(a.checks))
		}
	}
}

// TestLateConfirmation: a more exact finding replaces the finding that a call was invoked
// unasked, which a record of its own retracts.
func TestLateConfirmation(t *testing.T) {
	l := newTestLog(t)
	s := confirmed("accept")
	for _, e := range []tree{s[0], set(s[3], "timestamp", stamp(0.5)), s[1]} {
		l.event(e)
	}
	var list []events.Finding
	for _, f := range l.run().checks {
		if f.Rule == "AAEP-C-100" {
			list = append(list, f)
		}
	}
	if len(list) != 3 || list[1].Retracts != list[0].FindingID || list[1].Severity != events.SeverityInfo ||
		!strings.Contains(list[2].Explanation, "late_confirmation") || list[2].Retracts != "" {
		t.Errorf("findings %+v", list)
	}
}

// TestSilence: a session that continues retracts the finding of its silence; its tombstone is
// enough to find an event after its end.
func TestSilence(t *testing.T) {
	l := newTestLog(t)
	l.event(wire(0, "session.started", 0, nil))
	l.event(set(wire(10, "session.started", 0, nil), "session_id", "sess_2"))
	l.event(set(wire(11, "session.completed", 1, nil), "session_id", "sess_2"))
	l.idle(90_000)
	l.at(90_001).event(wire(1, "session.completed", 90_001, nil))
	l.event(set(wire(12, "progress.updated", 90_001, tree{"progress": tree{"percent": 1}}), "session_id", "sess_2"))
	var list []string
	first := ""
	for _, f := range l.run().checks {
		if f.Rule == "AAEP-C-064" && f.Retracts == "" {
			first = f.FindingID
		}
		if f.Rule == "AAEP-C-064" && f.Retracts != "" && f.Retracts != first {
			t.Errorf("takes back %q, not %q", f.Retracts, first)
		}
		if f.Severity != events.SeverityInfo || f.Retracts != "" {
			list = append(list, fmt.Sprint(f.Rule, " ", f.Retracts != ""))
		}
	}
	want := []string{"AAEP-C-064 false", "AAEP-C-064 true", "AAEP-C-063 false"}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Error(diff)
	}
}

// TestSilentAgain: each silence of a session has a finding of its own, with its proof, and each
// retraction names the finding that it takes back.
func TestSilentAgain(t *testing.T) {
	l := newTestLog(t)
	l.event(wire(0, "session.started", 0, nil))
	const silences = 3
	for i := range silences {
		at := float64((i + 1) * 100_000)
		l.idle(at - 10_000)
		l.at(at).event(wire(i+1, "progress.updated", at, tree{"progress": tree{"percent": 1}}))
	}
	var made, taken []string
	for _, f := range l.run().checks {
		switch {
		case f.Rule != "AAEP-C-064":
		case f.Retracts != "":
			taken = append(taken, f.Retracts)
		default:
			made = append(made, f.FindingID)
			if len(f.EventIDs) == 0 || len(f.Seqs) == 0 {
				t.Errorf("a finding without proof: %+v", f)
			}
		}
	}
	if len(made) != silences {
		t.Errorf("%d findings of %d silences", len(made), silences)
	}
	if diff := cmp.Diff(made, taken); diff != "" {
		t.Error(diff)
	}
}

// TestLateStartBesideAnother: while another session of the publisher runs, an event before its
// session's start is two findings. A start that was under way retracts both.
func TestLateStartBesideAnother(t *testing.T) {
	l := newTestLog(t)
	l.event(wire(0, "session.started", 0, nil))
	second := func(n int, typ string, number int, members tree) tree {
		return set(set(wire(n, typ, float64(number), members), "session_id", "sess_2"), "sequence_number", number)
	}
	l.event(second(11, "progress.updated", 1, tree{"progress": tree{"percent": 1}}))
	l.event(second(10, "session.started", 0, nil))
	stand := map[string]string{}
	made := 0
	for _, f := range l.run().checks {
		switch {
		case f.Retracts != "":
			delete(stand, f.Retracts)
		case f.Rule == "AAEP-C-054" || f.Rule == "AAEP-C-060":
			stand[f.FindingID] = f.Rule
			made++
		}
	}
	if made != 2 || len(stand) != 0 {
		t.Errorf("of %d findings these stand: %v", made, stand)
	}
}

// Nothing is taken back that a rule which was off kept off the log.
func TestNothingUnsaidIsTakenBack(t *testing.T) {
	all := func(mode string) events.RulesChange {
		c := switched(1)
		for _, r := range []string{MissingCompletion, "AH-C-079", OrphanCompletion, "AH-C-078", "AAEP-C-064"} {
			c.Rules[r] = mode
		}
		return c
	}
	progress := func(n int, at float64) tree {
		return set(wire(n, "progress.updated", at, tree{"progress": tree{"percent": 1}}), "sequence_number", n)
	}
	play := func(first, then string, idle float64) result {
		l := newTestLog(t)
		l.switchRules("GOV", all(first))
		l.admit(pre(1), "d1", events.Allow)                                               // to be missed
		l.event(set(set(post(12), "metadata.tool_call_id", "c2"), "timestamp", stamp(3))) // an orphan
		l.event(set(wire(0, "session.started", 0, nil), "sequence_number", 0))
		l.idle(idle)
		next := all(then)
		next.Revision = 2
		l.switchRules("GOV", next)
		l.event(post(2))
		l.event(set(pre(11), "metadata.tool_call_id", "c2"))
		l.at(idle + 10).event(progress(1, idle+10))
		return l.run()
	}
	for _, tc := range []struct {
		first, then string
		idle        float64
		want        []string
	}{
		{"off", "warn", 4000, nil},
		{"warn", "off", 4000, []string{"AH-C-078", "AH-C-079", MissingCompletion, OrphanCompletion}},
		{"warn", "warn", 4000, []string{"AH-C-078", "AH-C-079", MissingCompletion, OrphanCompletion}},
		{"off", "warn", 90_000, nil},
		{"warn", "off", 90_000, []string{"AAEP-C-064"}},
	} {
		r := play(tc.first, tc.then, tc.idle)
		made, taken := map[string]bool{}, map[string]bool{}
		for _, f := range append(r.findings, r.checks...) {
			if f.Retracts == "" {
				made[f.FindingID] = true
				continue
			}
			taken[f.Rule] = true
			if !made[f.Retracts] {
				t.Errorf("%+v: %s takes back what was not said: %s", tc, f.Rule, f.Retracts)
			}
		}
		if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(taken))); diff != "" {
			t.Errorf("%+v: %s", tc, diff)
		}
	}
}

// TestModes: a rule that is off is off for its tenant alone, and an enforced one
// is marked.
func TestModes(t *testing.T) {
	l := newTestLog(t)
	l.opts.RequireVerdict = false
	l.opts.Rules = func(tenant, rule string) RuleMode {
		switch {
		case tenant == "quiet" && (rule == "AAEP-C-060" || rule == MissingCompletion):
			return ModeOff
		case rule == "AAEP-C-080":
			return ModeEnforce
		}
		return ModeWarn
	}
	for _, tenant := range []string{"quiet", "loud"} {
		l.eventFrom(tenant, "rt1", invoked(1, "call_1"))
		l.eventFrom(tenant, "rt1", completed(2, "call_2", "success"))
	}
	l.at(9000).tick()
	got := map[string]int{}
	for _, o := range l.run().outputs {
		if f := o.Finding; f != nil && f.Severity != events.SeverityInfo {
			got[f.Tenant+" "+f.Rule]++
			if f.Enforced != (f.Rule == "AAEP-C-080") {
				t.Errorf("%s is marked: %v", f.Rule, f.Enforced)
			}
		}
	}
	want := map[string]int{
		"loud AAEP-C-060": 1, "loud missing_completion": 1,
		"quiet AAEP-C-080": 1, "quiet orphan_completion": 1, "quiet AAEP-C-081": 1,
		"loud AAEP-C-080": 1, "loud orphan_completion": 1, "loud AAEP-C-081": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestTenantsApart: a reply, a token and a nonce are a tenant's own.
func TestTenantsApart(t *testing.T) {
	l := newTestLog(t)
	l.opts.RequireVerdict = false
	s := confirmed("accept")
	for i, e := range s {
		tenant := "acme"
		if i == 2 {
			tenant = "other"
		}
		l.at(float64(i)).eventFrom(tenant, "rt1", e)
	}
	r := l.run()
	got := map[string]bool{}
	for _, f := range r.checks {
		if f.Severity != events.SeverityInfo {
			got[f.Tenant+" "+f.Rule] = true
		}
	}
	want := map[string]bool{"other AAEP-C-110": true, "acme AAEP-C-100": true, "acme AAEP-C-103": true, "acme AAEP-C-124": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestSessionsAreBounded: sessions without end, and a session without end, stay within their
// bounds.
func TestSessionsAreBounded(t *testing.T) {
	l := newTestLog(t)
	l.opts.RequireVerdict = false
	l.opts.MaxSessions = 64
	for i := range rounds(2000, 200) {
		l.event(set(wire(i, "session.started", 0, nil), "session_id", fmt.Sprint("sess_x", i)))
		l.event(wire(10_000+i, "tool.invoked", 1, tree{"tool": fmt.Sprint("t", i)}))
		ask := completeAAEP(tree{"t": "awaiting.confirmation", "ask": fmt.Sprint(i)}, 1)
		l.event(set(set(ask, "event_id", fmt.Sprint("evt_q", i)), "action", fmt.Sprint("Do ", i)))
		l.event(wire(20_000+i, "output.streaming", 1, tree{"chunk": "x", "position": 0, "complete": false, "output_id": fmt.Sprint("out_", i)}))
		l.event(set(hook(i, "PreLLMCall", 1), "metadata", tree{"approval": tree{"required": true, "status": "pending", "workflow_id": fmt.Sprint("w", i)}}))
		l.event(set(hook(10_000+i, "WebSearchRequested", 1), "metadata", tree{"web": tree{"search_id": fmt.Sprint("q", i)}}))
	}
	st := l.run().core.Stats()
	if st.TrackedSessions > 64 {
		t.Errorf("%d sessions are followed", st.TrackedSessions)
	}
}

// TestStoredItemsAreBounded: all sessions together stay within one bound.
func TestStoredItemsAreBounded(t *testing.T) {
	l := newTestLog(t)
	l.opts.RequireVerdict = false
	core := New(l.opts)
	core.engine.trackers.storedItemLimit = 500
	for i := range 3000 {
		e := wire(i, "tool.invoked", 1, tree{"tool": "lookup", "tool_call_id": fmt.Sprint("call_", i), "session_id": fmt.Sprint("sess_", i%100)})
		l.event(e)
	}
	for _, m := range l.msgs {
		core.Apply(m)
	}
	sum := 0
	for w, ok := core.engine.trackers.sessions.Oldest(); ok; w, ok = core.engine.trackers.sessions.Oldest() {
		sum += w.storedItems
		core.engine.trackers.sessions.Remove(w.ID())
	}
	if core.engine.trackers.storedItems > 500 || sum != core.engine.trackers.storedItems {
		t.Errorf("%d items are counted, and the sum is %d", core.engine.trackers.storedItems, sum)
	}
}

// TestCleanSessions: whatever a producer does in the right order is fine.
func TestCleanSessions(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := &producer{t: rt, state: "idle"}
		g.emit("session.started", nil)
		for range rapid.IntRange(0, 12).Draw(rt, "steps") {
			g.step()
		}
		g.emit("session.completed", tree{"tool_invocations_count": g.calls})
		found, err := Check(subject.ProtoAAEP, recording(g.lines...), CheckOptions{})
		if err != nil {
			rt.Fatal(err)
		}
		if bad := slices.Concat(checksOf(found), rulesOf(found)); len(bad) > 0 {
			for _, l := range g.lines {
				rt.Logf("%s", encode(l))
			}
			rt.Fatalf("found %v", bad)
		}
	})
}

// producer emits a session as it should be.
type producer struct {
	t                   *rapid.T
	lines               []any
	n, calls, asks, out int
	now                 time.Duration
	state               string
}

func (g *producer) line(typ string, members tree) {
	g.now += time.Duration(rapid.IntRange(0, 2000).Draw(g.t, "pause")) * time.Millisecond
	e := completeAAEP(tree{"t": typ, "at": g.now.Seconds()}, g.n)
	for k, v := range members {
		e[k] = v
	}
	g.lines = append(g.lines, e)
}

func (g *producer) emit(typ string, members tree) {
	m := tree{"sequence_number": g.n}
	for k, v := range members {
		m[k] = v
	}
	g.line(typ, m)
	g.n++
}

func (g *producer) to(state string) {
	if state != g.state {
		g.emit("state.changed", tree{"from_state": g.state, "to_state": state})
		g.state = state
	}
}

func (g *producer) step() {
	switch rapid.SampledFrom([]string{"tool", "careful", "stream", "question", "progress"}).Draw(g.t, "step") {
	case "tool":
		g.to("calling_tool")
		g.tool(tree{"risk_level": "low"})
		g.to("thinking")
	case "careful":
		g.careful()
	case "stream":
		g.stream()
	case "question":
		g.to("awaiting_input")
		g.asks++
		token := fmt.Sprint("rpl_", g.asks)
		g.emit("awaiting.clarification", tree{"reply_token": token})
		g.line("clarification.reply", tree{"reply_token": token, "response": "This one."})
		g.to("thinking")
	case "progress":
		g.emit("progress.updated", tree{"progress": tree{"percent": 5}})
	}
}

func (g *producer) tool(members tree) {
	g.calls++
	id := tree{"tool": rapid.SampledFrom([]string{"lookup", "book"}).Draw(g.t, "tool")}
	if rapid.Bool().Draw(g.t, "named") {
		id["tool_call_id"] = fmt.Sprint("call_", g.calls)
	}
	begin, end := tree{}, tree{"status": "success"}
	for k, v := range id {
		begin[k], end[k] = v, v
	}
	for k, v := range members {
		begin[k] = v
	}
	g.emit("tool.invoked", begin)
	g.emit("tool.completed", end)
}

func (g *producer) careful() {
	g.to("awaiting_input")
	g.asks++
	token := fmt.Sprint("rpl_", g.asks)
	grave := tree{"risk_level": "high", "irreversible": true}
	g.emit("awaiting.confirmation", tree{"reply_token": token, "risk_level": "high", "irreversible": true, "timeout_seconds": 300})
	decision := rapid.SampledFrom([]string{"accept", "reject"}).Draw(g.t, "decision")
	g.line("confirmation.reply", tree{"reply_token": token, "decision": decision})
	g.to("calling_tool")
	if decision == "accept" {
		g.tool(grave)
	}
	g.to("thinking")
}

func (g *producer) stream() {
	g.to("writing_output")
	g.out++
	position := 0
	parts := rapid.SliceOfN(rapid.SampledFrom([]string{"word ", "Zwölf", "😀"}), 1, 4).Draw(g.t, "chunks")
	for i, chunk := range parts {
		g.emit("output.streaming", tree{"output_id": fmt.Sprint("out_", g.out), "chunk": chunk, "position": position, "complete": i == len(parts)-1})
		position += len([]rune(chunk))
	}
	g.to("thinking")
}

func (l *testLog) switchRules(shard string, change events.RulesChange) uint64 {
	body, err := events.Encode(change)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.put(space.Control(shard, events.ControlRules), nil, body)
}

func switched(revision uint64, rules ...string) events.RulesChange {
	c := events.RulesChange{Writer: "w", Store: "KV_rules@1", Revision: revision, Tenant: "acme", Rules: map[string]string{}}
	for i := 0; i < len(rules); i += 2 {
		c.Rules[rules[i]] = rules[i+1]
	}
	return c
}

// Switches count from where the log has them, for their tenant, and a replay
// comes to the same.
func TestRuleModesOfTheLog(t *testing.T) {
	l := newTestLog(t)
	n := 0
	probe := func() { // an orphan of each tenant
		for _, tenant := range []string{"acme", "globex"} {
			n++
			l.eventFrom(tenant, "rt1", set(set(post(n), "metadata.tool_call_id", fmt.Sprint("c", n)), "session_id", fmt.Sprint("s", n)))
		}
	}
	for _, change := range []func(){
		func() {},
		func() { l.switchRules("GOV", switched(3, OrphanCompletion, "off", "AH-C-078", "enforce")) },
		func() { l.switchRules("GOV", switched(2, OrphanCompletion, "enforce")) },      // an old one
		func() { l.switchRules("GOV", switched(4, OrphanCompletion, "loud")) },         // no such mode
		func() { l.switchRules("OTHER", switched(5, OrphanCompletion, "enforce")) },    // another shard's
		func() { l.put(space.Control("GOV", events.ControlRules), nil, []byte(`{}`)) }, // nothing
		func() { l.switchRules("GOV", switched(6, OrphanCompletion, "enforce", "AH-C-078", "warn")) },
		func() { c := switched(1); c.Store = "KV_rules@2"; l.switchRules("GOV", c) }, // the bucket was made anew
	} {
		change()
		probe()
	}
	r := l.run()
	got := map[string][]string{}
	for _, o := range r.outputs {
		if f := o.Finding; f != nil && slices.Contains([]string{OrphanCompletion, "AH-C-078"}, f.Rule) {
			got[f.Tenant+" "+f.Rule] = append(got[f.Tenant+" "+f.Rule], fmt.Sprintf("%s%v", f.ToolCallID, f.Enforced)) // cNtrue
		}
	}
	all := func(enforced func(n int) bool, ns ...int) (list []string) {
		for _, n := range ns {
			list = append(list, fmt.Sprintf("c%d%v", n, enforced(n)))
		}
		return list
	}
	never := func(int) bool { return false }
	want := map[string][]string{
		"acme " + OrphanCompletion:   all(func(n int) bool { return n == 13 }, 1, 13, 15),
		"acme AH-C-078":              all(func(n int) bool { return n > 2 && n < 13 }, 1, 3, 5, 7, 9, 11, 13, 15),
		"globex " + OrphanCompletion: all(never, 2, 4, 6, 8, 10, 12, 14, 16),
		"globex AH-C-078":            all(never, 2, 4, 6, 8, 10, 12, 14, 16),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if store, revision := r.core.RuleModesRevision("acme"); store != "KV_rules@2" || revision != 1 {
		t.Error(store, revision)
	}
	if store, _ := r.core.RuleModesRevision("globex"); store != "" {
		t.Error(store)
	}
	again := l.run()
	if diff := cmp.Diff(bodies(r), bodies(again)); diff != "" {
		t.Error("a replay differs:", diff)
	}
}

func bodies(r result) (list []string) {
	for _, o := range r.outputs {
		list = append(list, o.Subject+" "+string(o.Body))
	}
	return list
}

// TestRetractionsInModeOff: an emitted finding is retracted although its rule is off by now; a
// finding that was not emitted is not.
func TestRetractionsInModeOff(t *testing.T) {
	for _, tc := range []struct {
		name       string
		first, was string
		want       int
	}{
		{"switched off after", "warn", "off", 1},
		{"switched off before", "off", "off", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			l.switchRules("GOV", switched(1, MissingCompletion, tc.first, "AH-C-079", tc.first))
			l.admit(pre(1), "d1", events.Allow)
			l.event(pre(1))
			l.at(2000).tick()
			l.switchRules("GOV", switched(2, MissingCompletion, tc.was, "AH-C-079", tc.was))
			l.event(post(2))
			made, back := 0, 0
			for _, f := range l.run().findings {
				if f.Rule == MissingCompletion && f.Retracts == "" {
					made++
				} else if f.Rule == MissingCompletion {
					back++
				}
			}
			if made != tc.want || back != tc.want {
				t.Errorf("%d made and %d taken back, want %d", made, back, tc.want)
			}
		})
	}
}

// TestEncodeLater: outputs that are encoded later are those that are encoded at once.
func TestEncodeLater(t *testing.T) {
	logs := []*testLog{linked(t, 30)}
	for _, c := range corpusSample(t) {
		logs = append(logs, c.asLog(t))
	}
	for i, l := range logs {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		core := New(l.opts)
		var got, waiting []Output
		encode := func(n int) {
			for k := range n {
				waiting[k].Encode()
				got = append(got, waiting[k])
			}
			waiting = append(waiting[:0], waiting[n:]...)
		}
		for _, m := range l.msgs {
			in := core.NewDecoder().Decode(m)
			waiting = append(waiting, core.Step(&in)...)
			encode(random.IntN(len(waiting) + 1))
		}
		encode(len(waiting))
		sameOutputs(t, fmt.Sprint("log ", i), got, l.run().outputs)
	}
}

// TestEncodeCopies: copies of one output may be encoded at the same time.
func TestEncodeCopies(t *testing.T) {
	l := linked(t, 1)
	core := New(l.opts)
	for _, m := range l.msgs {
		in := core.NewDecoder().Decode(m)
		for _, o := range core.Step(&in) {
			copies := [4]Output{o, o, o, o}
			var wg sync.WaitGroup
			for i := range copies {
				wg.Go(copies[i].Encode)
			}
			wg.Wait()
			for _, c := range copies {
				if c.ID != copies[0].ID || c.Subject != copies[0].Subject || string(c.Body) != string(copies[0].Body) {
					t.Errorf("%s is not %s", c.Body, copies[0].Body)
				}
			}
		}
	}
}

// newFindingsPart is the part findings, without an engine.
func newFindingsPart(opts Options) *findings {
	o := &engineOptions{Options: opts.withDefaults()}
	return newFindings(o, &timers{opts: o}, newHistory(o), newLineage())
}

// TestFindingsAreEmittedOnce: the same finding is emitted once, none while its rule is off,
// and a retraction only of what was emitted.
func TestFindingsAreEmittedOnce(t *testing.T) {
	fs := newFindingsPart(Options{})
	f := &fact.Fact{Seq: 7, Origin: fact.OriginOf("acme", "rt1", "s1"), EventID: "e1", Tool: "pay"}
	emitted := func(n int, what string) {
		t.Helper()
		if got := len(fs.pending()); got != n {
			t.Errorf("%s: %d findings, want %d", what, got, n)
		}
		fs.clearOutputs()
	}
	id := fs.reportRule(ruleSchema, nil, f, findingFrom("e1"))
	emitted(1, "first")
	if again := fs.reportRule(ruleSchema, nil, f, findingFrom("e1")); again != id {
		t.Errorf("the id is %s, then %s", id, again)
	}
	emitted(0, "again")
	fs.setModes("acme", ruleModes{modes: map[string]RuleMode{SchemaInvalid: ModeOff}})
	unseen := fs.reportRule(ruleSchema, nil, f, findingFrom("e2"))
	emitted(0, "off")
	fs.reportRule(ruleSchema, nil, f, findingFrom("e2").withCase(caseRetracted).retracting(unseen))
	emitted(0, "retraction of what was not emitted")
	fs.reportRule(ruleSchema, nil, f, findingFrom("e1").withCase(caseRetracted).retracting(id))
	emitted(1, "retraction of what was emitted")
	if n, _ := fs.emitted(); n != 2 || fs.made() != 5 {
		t.Errorf("%d findings are emitted of %d made", n, fs.made())
	}
}
