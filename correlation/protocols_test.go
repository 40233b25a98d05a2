package correlation

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/correlation/toyprotocol"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// The same call in both protocols: hookView and wireView are its events.
func hookView(e tree) tree {
	return set(set(set(e, "metadata.tool_call_id", "call_1"), "session_id", "sess_1"), "tool_name", "lookup")
}

func wireView(e tree) tree { return set(e, "tool", "lookup") }

// interleavings are all orders in which two lists keep their own.
func interleavings(a, b []tree) [][]tree {
	if len(a) == 0 || len(b) == 0 {
		return [][]tree{slices.Concat(a, b)}
	}
	var list [][]tree
	for _, rest := range interleavings(a[1:], b) {
		list = append(list, slices.Concat(a[:1], rest))
	}
	for _, rest := range interleavings(a, b[1:]) {
		list = append(list, slices.Concat(b[:1], rest))
	}
	return list
}

// TestBothProtocols: a call that its publisher reports in AgentHook and in AAEP is one call,
// in every order of the events, and no finding is made twice or lost.
func TestBothProtocols(t *testing.T) {
	drifting := set(post(2), "metadata.tool_input_executed.amount", 7)
	for _, tc := range []struct {
		name    string
		verdict events.Verdict
		after   tree
		status  string
		want    []string
		match   string
	}{
		{"allowed and done", events.Allow, post(2), "success", nil, matchEqual},
		{"denied and done", events.Deny, post(2), "success", nil, ""}, // see below
		{"denied, and done or not", events.Deny, post(2), "error", []string{despiteDeny}, ""},
		{"asked and done or not", events.Ask, post(2), "error", []string{askPending}, matchEqual},
		{"allowed and done with other arguments", events.Allow, drifting, "success", []string{driftHigh}, matchDrift},
	} {
		hooks := []tree{hookView(pre(1)), hookView(tc.after)}
		wires := []tree{wireView(invoked(3, "call_1")), wireView(completed(4, "call_1", tc.status))}
		for i, order := range interleavings(hooks, wires) {
			t.Run(fmt.Sprint(tc.name, " ", i), func(t *testing.T) {
				l := newTestLog(t)
				l.admit(hookView(pre(1)), "d1", tc.verdict)
				l.at(2)
				for _, e := range order {
					l.event(e)
				}
				r := l.run()
				c := r.only(t)
				if tc.want != nil || tc.verdict == events.Allow {
					wantRules(t, r.findings, tc.want...)
				} else if got := rulesOf(r.findings); !slices.Contains(got, despiteDeny) {
					t.Errorf("findings %v", got)
				}
				if !slices.Equal(c.Protocols, []string{subject.ProtoAAEP, subject.ProtoAgentHook}) || c.Occurrence != 1 || c.Match != tc.match || c.ExecutionSeq == 0 {
					t.Errorf("call %+v", c)
				}
				if steps := len(c.Timeline); steps != 6 {
					t.Errorf("%d steps: %+v", steps, c.Timeline)
				}
				for _, s := range c.Timeline {
					if s.Protocol == c.Protocol || s.Protocol != "" && s.Protocol != subject.ProtoAAEP && s.Protocol != subject.ProtoAgentHook {
						t.Errorf("step %+v of a call of %s", s, c.Protocol)
					}
				}
			})
		}
	}
}

// TestDeniedStartInBothProtocols: the start of a denied call is one finding, and its end as AgentHook reports it still breaks
// the check of AgentHook.
func TestDeniedStartInBothProtocols(t *testing.T) {
	l := newTestLog(t)
	l.admit(hookView(pre(1)), "d1", events.Deny)
	l.at(2)
	for _, e := range []tree{hookView(pre(1)), wireView(invoked(3, "call_1")), hookView(post(2)), wireView(completed(4, "call_1", "success"))} {
		l.event(e)
	}
	r := l.run()
	wantRules(t, r.findings, despiteDeny)
	if !slices.ContainsFunc(r.checks, func(f events.Finding) bool { return f.Rule == "AH-C-075" }) {
		t.Errorf("checks %v", rulesOf(r.checks))
	}
}

// TestNotBothProtocols: two reports that look like one call in two protocols, and are two
// calls.
func TestNotBothProtocols(t *testing.T) {
	for name, play := range map[string]func(l *testLog, hook, wire tree){
		"another tenant":              func(l *testLog, _, wire tree) { l.eventFrom("globex", "rt1", wire) },
		"another publisher":           func(l *testLog, _, wire tree) { l.eventFrom("acme", "rt2", wire) },
		"another session":             func(l *testLog, _, wire tree) { l.event(set(wire, "session_id", "sess_2")) },
		"a session that begins alike": func(l *testLog, _, wire tree) { l.event(set(wire, "session_id", "sess_1a")) },
		"another id":                  func(l *testLog, _, wire tree) { l.event(set(wire, "tool_call_id", "call_2")) },
		"no id":                       func(l *testLog, _, wire tree) { l.event(set(wire, "tool_call_id", nil)) },
		"another tool":                func(l *testLog, _, wire tree) { l.event(set(wire, "tool", "Lookup")) },
		"invoked a second time": func(l *testLog, _, wire tree) {
			l.event(wire)
			l.event(set(wire, "event_id", "evt_9"))
		},
		"no id on either side": func(l *testLog, hook, wire tree) {
			l.event(set(set(hook, "metadata.tool_call_id", nil), "event_id", uuid(7)))
			l.event(set(wire, "tool_call_id", nil))
		},
		"no id on either side, and over": func(l *testLog, hook, wire tree) {
			l.event(set(set(hook, "metadata.tool_call_id", nil), "event_id", uuid(7)))
			l.event(set(set(hookView(post(8)), "metadata.tool_call_id", nil), "event_id", uuid(8)))
			l.event(set(wire, "tool_call_id", nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, over := range []bool{false, true} {
				l := newTestLog(t)
				l.opts.RequireVerdict = false
				l.event(hookView(pre(1)))
				if over {
					l.event(hookView(post(2)))
				}
				play(l, hookView(pre(1)), wireView(invoked(3, "call_1")))
				calls := l.run().last()
				if len(calls) < 2 || (name != "invoked a second time" && slices.ContainsFunc(calls, func(c events.Call) bool { return c.Protocols != nil })) {
					t.Errorf("over %v: calls %+v", over, calls)
				}
			}
		})
	}
}

// TestProposalAndEvents: the decision on an aioc proposal and the events of the
// call are one call, too.
func TestProposalAndEvents(t *testing.T) {
	l := newTestLog(t)
	l.decide(pre(1), "d1", events.Allow, func(d *events.Decision) { d.Protocol, d.EventID = "tool", "" })
	l.event(pre(1))
	l.event(post(2))
	r := l.run()
	wantRules(t, r.findings)
	if c := r.only(t); !slices.Equal(c.Protocols, []string{subject.ProtoAgentHook, "tool"}) || c.Match != matchEqual || c.Timeline[0].Protocol != "tool" {
		t.Errorf("call %+v", c)
	}
}

// TestRetryChain: every attempt names the ones beside it.
func TestRetryChain(t *testing.T) {
	attempt := func(n int) (before, after tree) {
		id := fmt.Sprint("c", n)
		before, after = set(pre(10*n), "metadata.tool_call_id", id), set(post(10*n+1), "metadata.tool_call_id", id)
		after = set(set(after, "metadata.execution.outcome", "failed"), "metadata.execution.started_at", nil)
		if n > 1 {
			before = set(before, "metadata.retry", tree{"previous_tool_call_id": fmt.Sprint("c", n-1), "attempt": 7})
		}
		return before, after
	}
	l := newTestLog(t)
	for n := 1; n <= 4; n++ {
		before, after := attempt(n)
		l.admit(before, fmt.Sprint("d", n), events.Allow)
		l.event(before)
		l.event(after)
	}
	calls := l.run().last()
	for i, c := range calls {
		from, to, no := "", "", 0
		if i > 0 {
			from, no = calls[i-1].CallID, i+1
		}
		if i < 3 {
			to = calls[i+1].CallID
		}
		if c.RetriedFrom != from || c.RetriedTo != to || c.Attempt != no {
			t.Errorf("call %d: %+v", i, c)
		}
		if claims := c.Claimed != nil && c.Claimed.Attempt == 7; claims != (i > 0) {
			t.Errorf("call %d claims %+v", i, c.Claimed)
		}
	}
	t.Run("the same id after a denial", func(t *testing.T) {
		l := newTestLog(t)
		l.admit(pre(1), "d1", events.Deny)
		l.event(pre(1))
		l.admit(pre(3), "d2", events.Allow)
		calls := l.run().last()
		if len(calls) != 2 || calls[1].RetriedFrom != calls[0].CallID || calls[0].RetriedTo != calls[1].CallID || calls[1].Attempt != 2 {
			t.Errorf("calls %+v", calls)
		}
	})
	t.Run("known from a later message", func(t *testing.T) {
		l := newTestLog(t)
		l.event(pre(1))
		l.event(post(2))
		again := set(pre(3), "metadata.tool_call_id", "c2")
		l.decide(again, "d2", events.Allow)
		l.event(retry(pre(3)))
		l.event(set(post(4), "metadata.tool_call_id", "c2"))
		calls := l.run().last()
		if len(calls) != 2 || calls[1].RetriedFrom != calls[0].CallID || calls[0].RetriedTo != calls[1].CallID {
			t.Errorf("calls %+v", calls)
		}
	})
	t.Run("not by what comes later, nor by itself", func(t *testing.T) {
		l := newTestLog(t)
		l.event(set(pre(1), "metadata.retry", tree{"previous_tool_call_id": "c2"}))
		l.event(set(set(pre(3), "metadata.tool_call_id", "c2"), "metadata.retry", tree{"previous_tool_call_id": "c2"}))
		l.event(set(pre(5), "metadata.retry", tree{"previous_tool_call_id": "c2"}))
		l.event(post(6))
		l.event(set(post(7), "metadata.tool_call_id", "c2"))
		for _, c := range l.run().last() {
			if c.RetriedFrom != "" || c.RetriedTo != "" || c.Attempt != 0 {
				t.Errorf("call %+v", c)
			}
		}
	})
}

// TestDurations: by the broker's clock, what happened and in its order; what the
// producer says stands beside it.
func TestDurations(t *testing.T) {
	us := func(n int64) *int64 { return &n }
	late := set(post(2), "metadata.execution.duration_ms", 9999)
	for name, tc := range map[string]struct {
		play    func(l *testLog)
		want    *events.CallDurations
		claimed bool
	}{
		"all of it": {func(l *testLog) {
			l.admit(pre(1), "d1", events.Allow)
			l.at(1).event(pre(1))
			l.at(3).event(late)
		}, &events.CallDurations{Decided: us(10_000), Started: us(980_000), Ran: us(2_000_000)}, true},
		"an approval's wait is part of it": {func(l *testLog) {
			l.admit(pre(1), "d1", events.Ask)
			l.at(60).admit(pre(1), "d2", events.Allow)
			l.event(pre(1))
			l.event(set(post(2), "metadata.execution", nil))
		}, &events.CallDurations{Decided: us(60_000_000), Started: us(10_000), Ran: us(10_000)}, false},
		"no announcement": {func(l *testLog) {
			l.admit(pre(1), "d1", events.Allow)
			l.event(set(post(2), "metadata.execution", nil))
		}, &events.CallDurations{Decided: us(10_000)}, false},
		"announced before the verdict": {func(l *testLog) {
			l.event(pre(1))
			l.admit(pre(1), "d1", events.Allow)
			l.event(set(post(2), "metadata.execution", nil))
		}, &events.CallDurations{Decided: us(10_000), Ran: us(30_000)}, false},
		"nothing": {func(l *testLog) { l.event(pre(1)) }, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newTestLog(t)
			tc.play(l)
			calls := l.run().last()
			c := calls[len(calls)-1]
			if diff := cmp.Diff(tc.want, c.Durations); diff != "" {
				t.Error(diff)
			}
			if has := c.Claimed != nil; has != tc.claimed || has && c.Claimed.DurationMS != 9999 {
				t.Errorf("claims %+v", c.Claimed)
			}
		})
	}
}

// TestPairedByCorrelation: a completion without an id ends the call that its correlation id
// names, in every order.
func TestPairedByCorrelation(t *testing.T) {
	const parent, other = "0190c0de-0000-7000-8000-00000000aaaa", "0190c0de-0000-7000-8000-00000000bbbb"
	traceparent := func(n int) string { return fmt.Sprintf("00-0af7651916cd43dd8448eb211c80319c-%016x-01", n) }
	hookEvents := func(n int, amount int) (tree, tree) {
		strip := func(e tree, field string) tree {
			return set(set(e, "metadata.tool_call_id", nil), field+".amount", amount)
		}
		return strip(pre(n), "tool_input"), set(strip(post(n+10), "metadata.tool_input_executed"), "metadata.execution.started_at", nil)
	}
	wireEvents := func(n int, _ int) (tree, tree) { return invoked(n, ""), completed(n+10, "", "success") }
	with := func(e tree, id any) tree { return set(e, "correlation_id", id) }
	for name, tc := range map[string]struct {
		events        func(n, amount int) (tree, tree)
		first, second [2]any // of the announcement and the end
	}{
		"AAEP, ids of their own":          {wireEvents, [2]any{"a", "a"}, [2]any{"b", "b"}},
		"AAEP, traces":                    {wireEvents, [2]any{traceparent(1), traceparent(1)}, [2]any{traceparent(2), traceparent(2)}},
		"AgentHook, ids of their own":     {hookEvents, [2]any{parent, parent}, [2]any{other, other}},
		"AgentHook, the event's id":       {hookEvents, [2]any{nil, uuid(1)}, [2]any{nil, uuid(2)}},
		"AgentHook, under one parent":     {hookEvents, [2]any{parent, uuid(1)}, [2]any{parent, uuid(2)}},
		"AgentHook, a retry of the other": {hookEvents, [2]any{nil, nil}, [2]any{uuid(1), uuid(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			preA, postA := tc.events(1, 120)
			preB, postB := tc.events(2, 7)
			preA, preB = with(preA, tc.first[0]), with(preB, tc.second[0])
			postA, postB = with(postA, tc.first[1]), with(postB, tc.second[1])

			l := newTestLog(t)
			l.admit(preA, "dA", events.Allow)
			l.event(preA)
			l.admit(preB, "dB", events.Allow)
			l.event(preB)
			l.event(postB)
			l.event(postA)
			r := l.run()
			wantRules(t, r.findings)
			for _, c := range r.last() {
				if want := map[string]uint64{"dA": 9, "dB": 8}[c.DecisionID]; c.ExecutionSeq != want {
					t.Errorf("what was allowed by %s ran at %d, want %d", c.DecisionID, c.ExecutionSeq, want)
				}
			}

			l = newTestLog(t)
			l.admit(preA, "dA", events.Deny)
			l.admit(preB, "dB", events.Allow)
			l.event(preA)
			l.event(preB)
			l.event(postB)
			r = l.run()
			wantRules(t, r.findings)
			if c := r.last()[1]; c.DecisionID != "dB" || c.State != events.CallCompleted {
				t.Errorf("%+v", c)
			}
		})
	}
	t.Run("the denied one is named", func(t *testing.T) {
		l := newTestLog(t)
		l.admit(with(invoked(1, ""), "a"), "dA", events.Deny)
		l.event(with(invoked(1, ""), "a"))
		l.admit(with(invoked(2, ""), "b"), "dB", events.Allow)
		l.event(with(invoked(2, ""), "b"))
		l.event(with(completed(11, "", "success"), "a"))
		l.event(with(completed(12, "", "success"), "b"))
		wantRules(t, l.run().findings, despiteDeny)
	})
	t.Run("one id for all", func(t *testing.T) {
		l := newTestLog(t)
		l.admit(with(invoked(1, ""), "a"), "dA", events.Deny)
		l.admit(with(invoked(2, ""), "a"), "dB", events.Allow)
		l.event(with(invoked(2, ""), "a"))
		l.event(with(completed(12, "", "success"), "a"))
		wantRules(t, l.run().findings)
	})
}

// TestDurationsPairByCorrelation: without call ids, a call's own duration and the times of its events are
// paired by the correlation id (AAEP-C-086).
func TestDurationsPairByCorrelation(t *testing.T) {
	at := func(e tree, id string, seconds float64) tree {
		return set(set(e, "correlation_id", id), "timestamp", stamp(seconds))
	}
	l := newTestLog(t)
	l.event(at(invoked(1, ""), "a", 0))
	l.event(at(invoked(2, ""), "b", 60))
	l.event(set(at(completed(3, "", "success"), "b", 62), "duration_ms", 2000))
	l.event(set(at(completed(4, "", "success"), "a", 100), "duration_ms", 100_000))
	for _, f := range l.run().checks {
		if f.Rule == "AAEP-C-086" {
			t.Errorf("%s %v", f.Explanation, f.EventIDs)
		}
	}
}

// TestGenericCodeUsesNoPart: generic code uses no part of the engine that is one protocol's.
func TestGenericCodeUsesNoPart(t *testing.T) {
	parts := map[string]bool{}
	for f := range reflect.TypeFor[protocolParts]().Fields() {
		parts[f.Name] = true
	}
	names, err := filepath.Glob("*.go")
	if err != nil || len(names) < 20 || len(parts) == 0 {
		t.Fatalf("%d files, %d parts, %v", len(names), len(parts), err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || name == "protocols.go" {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if x, is := n.(*ast.SelectorExpr); is && parts[x.Sel.Name] {
				if owner := receiverOf(x); owner == "e" || owner == "engine" {
					t.Errorf("%s uses the part %s; ask the row of its protocol in protocols.go", name, x.Sel.Name)
				}
			}
			return true
		})
	}
}

// receiverOf is the name of what a field is selected of: "engine" of both engine.x and c.engine.x.
func receiverOf(x *ast.SelectorExpr) string {
	switch of := x.X.(type) {
	case *ast.Ident:
		return of.Name
	case *ast.SelectorExpr:
		return of.Sel.Name
	}
	return ""
}

// TestRowsAreWhole: a row that has trace events says what they mean.
func TestRowsAreWhole(t *testing.T) {
	for _, p := range protocols {
		if (p.TraceType == "") != (p.applyTrace == nil) {
			t.Errorf("%s: trace type %q, and applyTrace is set: %v", p.Token, p.TraceType, p.applyTrace != nil)
		}
	}
}

// TestToyProtocolIsCorrelated: one row is enough for a protocol to be correlated. Its calls
// are linked with admissions, and what ran without a beginning, against a deny, or never
// ended is found.
func TestToyProtocolIsCorrelated(t *testing.T) {
	toyprotocol.AddRow(t)
	toy := func(l *testLog, typ, call string) {
		l.put(space.Event("acme", "rt1", "toy", "s1", typ), nil, encode(tree{"was": typ, "id": typ + call, "run": "s1", "no": call, "do": "dig"}))
	}
	admit := func(l *testLog, call string, v events.Verdict) {
		e := tree{"id": "began" + call, "run": "s1", "no": call, "do": "dig"}
		l.put(space.Request("acme", "rt1", "toy", "s1"), map[string][]string{events.HeaderDecisionID: {"d" + call}}, encode(e))
		l.signed(events.Decision{DecisionID: "d" + call, EventID: "began" + call, Tenant: "acme", Source: "rt1", Session: "s1", Protocol: "toy", Tool: "dig",
			ToolCallID: call, Verdict: v, Reasons: []events.Reason{}, DecidedAt: events.At(l.now), ExpiresAt: events.At(l.now.Add(60e9))}, signer)
	}
	for _, tc := range []struct {
		name string
		play func(l *testLog)
		want []string
	}{
		{"linked", func(l *testLog) { admit(l, "c1", events.Allow); toy(l, "began", "c1"); toy(l, "ran", "c1") }, nil},
		{"orphan", func(l *testLog) { toy(l, "ran", "c1") }, []string{OrphanCompletion}},
		{"denied but ran", func(l *testLog) { admit(l, "c1", events.Deny); toy(l, "began", "c1"); toy(l, "ran", "c1") }, []string{ExecutedDespiteDeny}},
		{"no verdict", func(l *testLog) { toy(l, "began", "c1"); toy(l, "ran", "c1") }, []string{ExecutedWithoutVerdict}},
		{"never ended", func(l *testLog) { admit(l, "c1", events.Allow); toy(l, "began", "c1"); l.idle(90_000) }, []string{MissingCompletion}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			tc.play(l)
			r := l.run()
			var got []string
			for _, f := range slices.Concat(r.findings, r.checks) {
				got = append(got, f.Rule)
			}
			slices.Sort(got)
			slices.Sort(tc.want)
			if !slices.Equal(got, tc.want) {
				t.Errorf("findings %v, want %v", got, tc.want)
			}
		})
	}
}

// maxMethods bounds the methods of one type: a type with more is several parts.
const maxMethods = 40

// partRecords are the types that a part's state is made of. Their methods belong to it.
var partRecords = map[string]string{"session": "calls", "call": "calls"}

// partFields are the fields of the engine's parts, by part. A part's field in the engine
// has the name of its type.
func partFields() map[string][]string {
	parts := map[string][]string{}
	for f := range reflect.TypeFor[engine]().Fields() {
		if f.Type.Kind() != reflect.Pointer || f.Type.Elem().Name() != f.Name {
			continue
		}
		for g := range f.Type.Elem().Fields() {
			parts[f.Name] = append(parts[f.Name], g.Name)
		}
	}
	return parts
}

// TestPartsOwnTheirState: only a part's own methods touch its fields, and no type has more
// than maxMethods methods.
func TestPartsOwnTheirState(t *testing.T) {
	parts := partFields()
	if len(parts) < 10 {
		t.Fatalf("the engine has the parts %v", slices.Sorted(maps.Keys(parts)))
	}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	methods := map[string]int{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			fn, is := d.(*ast.FuncDecl)
			if !is {
				continue
			}
			owner := receiverType(fn)
			methods[owner]++
			ast.Inspect(fn, func(n ast.Node) bool {
				outer, is := n.(*ast.SelectorExpr)
				if !is {
					return true
				}
				inner, is := outer.X.(*ast.SelectorExpr)
				if outer.Sel.Name == "opts" { // the engine gives them to every part
					return true
				}
				if is && slices.Contains(parts[inner.Sel.Name], outer.Sel.Name) && inner.Sel.Name != owner && inner.Sel.Name != partRecords[owner] {
					t.Errorf("%s: a method of %q touches %s.%s", files.Position(outer.Pos()), owner, inner.Sel.Name, outer.Sel.Name)
				}
				return true
			})
		}
	}
	delete(methods, "") // functions
	for name, n := range methods {
		if n > maxMethods {
			t.Errorf("%s has %d methods, at most %d can be learnt", name, n, maxMethods)
		}
	}
}

// receiverType is the name of the type that a method belongs to, "" for a function.
func receiverType(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	e := fn.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
