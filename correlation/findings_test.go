package correlation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
)

func (l *ledger) switchRules(shard string, change events.RulesChange) uint64 {
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
func TestSwitches(t *testing.T) {
	l := newLedger(t)
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

// TestOffTakesBack: what was put out is taken back although its rule was switched
// off since, and nothing is that was not put out.
func TestOffTakesBack(t *testing.T) {
	for _, tc := range []struct {
		name       string
		first, was string
		want       int
	}{
		{"switched off after", "warn", "off", 1},
		{"switched off before", "off", "off", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger(t)
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

// TestReuse: outputs that are encoded later, while the log goes on, and whose
// memory is used again are those that are encoded at once.
func TestReuse(t *testing.T) {
	logs := []*ledger{linked(t, 30)}
	for _, c := range corpusCases(t) {
		logs = append(logs, c.ledger(t))
	}
	reused := 0
	for i, l := range logs {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		core := New(l.opts)
		var got, waiting []Output
		encode := func(n int) {
			for k := range n {
				waiting[k].Encode()
				got = append(got, waiting[k])
				core.ReleaseOutput(&waiting[k])
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
		reused += len(core.engine.findings.callViewPool.freeViews)
	}
	if reused == 0 {
		t.Error("nothing was used again")
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
func newFindingsPart() *findings {
	o := &engineOptions{Options: Options{}.withDefaults()}
	h := newHistory()
	h.opts = o
	fs := newFindings(&timers{}, h, newLineage())
	fs.configure(o)
	return fs
}

// TestFindingsAreEmittedOnce: the same finding is emitted once, none while its rule is off,
// and a retraction only of what was emitted.
func TestFindingsAreEmittedOnce(t *testing.T) {
	fs := newFindingsPart()
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
	fs.setModes("acme", ruleModes{modes: map[string]Mode{SchemaInvalid: ModeOff}})
	unseen := fs.reportRule(ruleSchema, nil, f, findingFrom("e2"))
	emitted(0, "off")
	fs.reportRule(ruleSchema, nil, f, findingFrom("e2").withCase(caseWithdrawn).retracting(unseen))
	emitted(0, "retraction of what was not emitted")
	fs.reportRule(ruleSchema, nil, f, findingFrom("e1").withCase(caseWithdrawn).retracting(id))
	emitted(1, "retraction of what was emitted")
	if n, _ := fs.emitted(); n != 2 || fs.made() != 5 {
		t.Errorf("%d findings are emitted of %d made", n, fs.made())
	}
}
