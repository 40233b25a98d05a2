package correlation

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/snapshot"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// goingOn applies a log with a snapshot and a restoration in the middle.
func goingOn(t testing.TB, l *testLog, at int) (outs []Output, snapshots [2][]byte) {
	t.Helper()
	core := New(l.opts)
	for _, m := range l.msgs[:at] {
		outs = append(outs, core.Apply(m)...)
	}
	again, snapshots := restored(t, l, core)
	for _, m := range l.msgs[at:] {
		outs = append(outs, again.Apply(m)...)
	}
	return outs, snapshots
}

// restored is a correlator with the state of core, made from its snapshot. snapshots are that one and its own.
func restored(t testing.TB, l *testLog, core *Correlator) (again *Correlator, snapshots [2][]byte) {
	t.Helper()
	snapshots[0] = core.Snapshot()
	again, err := Restore(l.opts, snapshots[0])
	if err != nil {
		t.Fatal(err)
	}
	snapshots[1] = again.Snapshot()
	sameState(t, core, again)
	if was, is := core.Stats(), again.Stats(); was != is {
		t.Fatalf("stats\n%+v\n%+v", was, is)
	}
	return again, snapshots
}

// clearField sets a field to zero, exported or not.
func clearField(f reflect.Value) {
	reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem().SetZero()
}

// repack lays a table that a part holds out as a restored one.
func repack(part any, field string) {
	f := reflect.ValueOf(part).Elem().FieldByName(field)
	table := reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem().Interface().(interface {
		Pack() any
		Unpack(any)
	})
	table.Unpack(table.Pack())
}

// sameState compares the whole state of two correlators. Tables may differ in their layout in
// memory, so they are compared in their snapshot form.
func sameState(t testing.TB, a, b *Correlator) {
	t.Helper()
	if l := a.engine.opts.MaxEventsPerSource; l < 1000 {
		return
	}
	for _, c := range []*Correlator{a, b} {
		for _, w := range c.engine.trackers.sessions.All() { // what one event left behind
			if w.aaep != nil {
				clearField(reflect.ValueOf(w.aaep).Elem().FieldByName("reports").FieldByName("findingList"))
			}
			if w.hook != nil {
				clearField(reflect.ValueOf(w.hook).Elem().FieldByName("findings"))
			}
		}
		c.engine.calls.codec, c.engine.calls.dirtyCalls = snapshot.ValueCodec[details]{}, nil
		c.engine.calls.sessions.Unpack(c.engine.calls.sessions.Pack())
		c.engine.trackers.sessions.Unpack(c.engine.trackers.sessions.Pack())
		c.engine.history.sources.Unpack(c.engine.history.sources.Pack())
		repack(c.engine.negotiations, "byPublisher")
		c.engine.calls.denials.Unpack(c.engine.calls.denials.Pack())
		c.engine.timers.dropStaleDeadlines()
		deadlines := append(deadlines(nil), c.engine.timers.callDeadlines...)
		slices.SortFunc(deadlines, func(a, b deadline) int {
			return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.call.order, b.call.order))
		})
		c.engine.calls.rebuild()
		c.engine.trackers.rebuild()
		c.engine.timers.callDeadlines = deadlines
		opts := *c.engine.opts // all parts share them
		*c.engine.opts = engineOptions{}
		defer func() { *c.engine.opts = opts }()
		c.engine.findings.outputs, c.engine.timers.nextTimer = nil, time.Time{}
	}
	if !reflect.DeepEqual(a.engine, b.engine) || !reflect.DeepEqual(a.keys, b.keys) || !reflect.DeepEqual(a.retiredKeys, b.retiredKeys) {
		t.Fatal("the restored state is another one")
	}
}

func sameOutputs(t testing.TB, what string, got, want []Output) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if g, w := got[i], want[i]; g.ID != w.ID || g.Subject != w.Subject || !bytes.Equal(g.Body, w.Body) {
			t.Fatalf("%s: output %d of %d is\n%s %s\nwant\n%s %s", what, i, len(want), g.Subject, g.Body, w.Subject, w.Body)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s: %d outputs, want %d", what, len(got), len(want))
	}
}

// TestSnapshot: a correlator that is restored from a snapshot, taken anywhere, emits what an
// undisturbed one does, and its own snapshot has the same bytes.
func TestSnapshot(t *testing.T) {
	l := linked(t, 40)
	want := l.run().outputs
	for at := 0; at <= len(l.msgs); at += 13 {
		got, snapshots := goingOn(t, l, at)
		sameOutputs(t, fmt.Sprint("resumed at ", at), got, want)
		if !bytes.Equal(snapshots[0], snapshots[1]) {
			t.Fatalf("resumed at %d: a snapshot of the restored state is another one", at)
		}
	}
}

// TestSnapshotOfIdleSessions does the same where sessions are forgotten: the time of that must
// not depend on when messages came.
func TestSnapshotOfIdleSessions(t *testing.T) {
	const hour = 3600
	l := newTestLog(t)
	in := func(session string, e tree) tree { return set(e, "session_id", session) }
	l.at(0).event(in("a", pre(1)))
	l.event(in("a", post(2)))
	l.at(1 * hour).event(in("b", pre(3)))
	l.event(in("b", post(4)))
	l.at(2 * hour).event(in("a", set(post(2), "metadata.admission_verdict", tree{"decision": "allow"})))
	l.at(24.5 * hour).event(in("b", pre(5)))
	l.at(24.6*hour).decide(in("a", pre(1)), "late", events.Deny)
	want := l.run().outputs
	for at := 0; at <= len(l.msgs); at++ {
		got, _ := goingOn(t, l, at)
		sameOutputs(t, fmt.Sprint("resumed at ", at), got, want)
	}
}

// TestSnapshotOfTheCorpus restores a correlator before each message of every log of the corpus,
// where every rule is broken: it emits what an undisturbed one does.
func TestSnapshotOfTheCorpus(t *testing.T) {
	for i, c := range corpusSample(t) {
		l := c.asLog(t)
		core, outs := New(l.opts), []Output(nil)
		for _, m := range l.msgs {
			core, _ = restored(t, l, core)
			outs = append(outs, core.Apply(m)...)
		}
		sameOutputs(t, fmt.Sprintf("case %d", i), outs, l.run().outputs)
	}
}

// TestSnapshotOfRandomLogs takes the messages of the scenario in random order, repeated and
// left out, with time that stands still or leaps.
func TestSnapshotOfRandomLogs(t *testing.T) {
	base := linked(t, 30)
	rapid.Check(t, func(rt *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		l := newTestLog(t)
		l.opts.MaxSessions, l.opts.MaxOpenPerSession, l.opts.MaxClosedPerSession = 20, 3, 3
		l.opts.MaxPublishers, l.opts.MaxEventsPerSource, l.opts.MaxIDsPerSession = 1, 40, 7
		for range rapid.IntRange(1, 250).Draw(rt, "messages") {
			if random.IntN(20) == 0 {
				l.now = l.now.Add(time.Duration(random.Int64N(int64(30 * time.Hour))))
			}
			m := base.msgs[random.IntN(len(base.msgs))]
			l.put(m.Subject, m.Header, m.Body)
		}
		got, snapshots := goingOn(t, l, rapid.IntRange(0, len(l.msgs)).Draw(rt, "at"))
		sameOutputs(t, "resumed", got, l.run().outputs)
		if !bytes.Equal(snapshots[0], snapshots[1]) {
			t.Fatal("a snapshot of the restored state is another one")
		}
	})
}

// TestSnapshotRefusals: a snapshot of another configuration or form is refused.
func TestSnapshotRefusals(t *testing.T) {
	l := scenario(t, 5)
	good := l.run().core.Snapshot()
	other := l.opts
	other.MissingAfter = time.Minute
	for name, c := range map[string]struct {
		o Options
		b []byte
	}{
		"another configuration": {other, good},
		"another version":       {l.opts, append([]byte{good[0] ^ 1}, good[1:]...)},
		"nothing":               {l.opts, nil},
		"cut off":               {l.opts, good[:len(good)-1]},
		"too long":              {l.opts, append(bytes.Clone(good), 0)},
		"header alone":          {l.opts, good[:32]},
		"a section missing":     {l.opts, bytes.Replace(good, []byte("\x07lineage"), nil, 1)},
		"of another part":       {l.opts, bytes.Replace(good, []byte("\x08receipts"), []byte("\x08handoffs"), 1)},
	} {
		if _, err := Restore(c.o, c.b); !errors.Is(err, ErrSnapshot) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// notState are the fields that no section holds, beside the references to other parts. The
// comment on each field says why.
var notState = []string{
	"aaep.reports.findingList", "correlation.calls.opts", "correlation.calls.dirtyCalls", "correlation.calls.codec", "correlation.judge.opts", "correlation.history.opts", "correlation.timers.opts", "correlation.approvals.opts", "correlation.receipts.opts", "aump.Mandates.findings", "aump.Mandates.clockSkew",
	"correlation.trackers.opts", "agenthook.Attestations.findings", "agenthook.Declarations.findings", "aaep.NegotiationTable.findings", "aaep.NegotiationTable.time", "aaep.NegotiationTable.fromRecording", "aaep.Replies.findings", "aaep.Replies.sessions", "aaep.Replies.fromRecording", "correlation.timers.nextTimer",
	"correlation.findings.opts", "correlation.findings.outputs", "correlation.findings.subjectPrefixes",
	"agenthook.Session.findings",
	"correlation.protocolSession.share", "correlation.session.share", "correlation.timers.callDeadlines", // made by rebuild
}

// unchanging are the objects that several sections may hold, because they do not change: after
// a restore each section has its own.
var unchanging = []reflect.Type{reflect.TypeFor[fact.Origin](), reflect.TypeFor[catalogue.Finding]()}

// heldTypes are the types of all values in a section, its root's first.
func heldTypes(s snapshot.Section) (list []reflect.Type) {
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		if slices.Contains(list, typ) || typ == reflect.TypeFor[time.Time]() {
			return
		}
		list = append(list, typ)
		if p, packs := reflect.New(typ).Interface().(snapshot.Packer); packs {
			walk(reflect.TypeOf(p.Pack()).Elem())
			return
		}
		switch typ.Kind() {
		case reflect.Map:
			walk(typ.Key())
			walk(typ.Elem())
		case reflect.Pointer, reflect.Slice, reflect.Array:
			walk(typ.Elem())
		case reflect.Struct:
			for f := range typ.Fields() {
				if f.Tag.Get("snapshot") != "-" {
					walk(f.Type)
				}
			}
		}
	}
	walk(reflect.TypeOf(s.Root))
	return list
}

// TestEverySection: each part of the engine has a section of its own. A section holds every
// field of its part but those of notState and references to other parts, and no object that
// another section holds too.
func TestEverySection(t *testing.T) {
	core := New(newTestLog(t).opts)
	sections, left, holder := sectionsOf(core.engine, &keyState{}), map[string]bool{}, map[reflect.Type]string{}
	part := map[reflect.Type]string{}
	for _, s := range sections {
		if other := part[reflect.TypeOf(s.Root)]; other != "" || reflect.ValueOf(s.Root).IsNil() {
			t.Errorf("the sections %s and %s are of the same part", other, s.Name)
		}
		part[reflect.TypeOf(s.Root)] = s.Name
	}
	for _, e := range []reflect.Type{reflect.TypeFor[engine](), reflect.TypeFor[protocolParts]()} {
		for f := range e.Fields() {
			if f.Name != "opts" && f.Name != "protocolParts" && part[f.Type] == "" && part[reflect.PointerTo(f.Type)] == "" {
				t.Errorf("%s.%s has no section", e.Name(), f.Name)
			}
		}
	}
	for _, s := range sections {
		for _, typ := range heldTypes(s) {
			switch typ.Kind() {
			case reflect.Pointer:
				if owner := holder[typ.Elem()]; owner != "" && owner != s.Name && !slices.Contains(unchanging, typ.Elem()) {
					t.Errorf("the sections %s and %s both hold objects of type %v", owner, s.Name, typ.Elem())
				}
				holder[typ.Elem()] = s.Name
			case reflect.Struct:
				for f := range typ.Fields() {
					if f.Tag.Get("snapshot") == "-" && part[f.Type] == "" {
						left[typ.String()+"."+f.Name] = true
					}
				}
			}
		}
	}
	for _, name := range notState {
		if !left[name] {
			t.Errorf("%s is in the snapshot", name)
		}
		delete(left, name)
	}
	if len(left) > 0 {
		t.Errorf("left out without being listed: %v", left)
	}
	var fields []string
	for f := range reflect.TypeFor[Correlator]().Fields() {
		fields = append(fields, f.Name)
	}
	const known = "engine space shard vouchForKey vouchForRetirement keys records retiredKeys sharedKeys decoder"
	if got := strings.Join(fields, " "); got != known {
		t.Errorf("a Correlator has the fields %s, known are %s: is the new one state?", got, known)
	}
	if !strings.Contains(stateShape(), "unended") {
		t.Error("the shape does not go down to the sessions")
	}
}

func FuzzRestore(f *testing.F) {
	l := scenario(f, 3)
	good := l.run().core.Snapshot()
	f.Add(0, byte(0))
	f.Add(100, byte(1))
	f.Add(len(good)-1, byte(255))
	f.Fuzz(func(t *testing.T, at int, flip byte) {
		b := bytes.Clone(good)
		if at < 0 || at >= len(b) {
			return
		}
		b[at] ^= flip
		if _, err := Restore(l.opts, b); err != nil && !errors.Is(err, ErrSnapshot) {
			t.Fatal(err)
		}
	})
}

// BenchmarkSnapshot writes and reads the state of a log with open calls.
func BenchmarkSnapshot(b *testing.B) {
	core := openCalls(b, 100_000)
	o := core.engine.opts.Options
	var image []byte
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			image = core.Snapshot()
		}
		b.ReportMetric(float64(len(image)), "bytes")
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Restore(o, image); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkOpenCalls measures the memory of an open call, and what it costs to announce and complete another
// one meanwhile.
func BenchmarkOpenCalls(b *testing.B) {
	used := func(n int) (*Correlator, int) {
		before := heapInUse()
		core := openCalls(b, n)
		return core, heapInUse() - before
	}
	_, empty := used(0)
	for _, n := range []int{1_000, 1_000_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			core, bytes := used(n)
			decoder, seq := core.NewDecoder(), n
			for b.Loop() {
				b.StopTimer()
				call, inputs := "more"+strconv.Itoa(seq), [2]fact.Input{}
				for i, e := range []tree{pre(seq), post(seq + 1)} {
					seq++
					inputs[i] = decoder.Decode(events.LogMessage{Seq: uint64(seq), Time: epoch, Body: encode(set(set(e, "session_id", "more"), "metadata.tool_call_id", call)),
						Subject: space.Event("acme", "rt1", subject.ProtoAgentHook, "more", e["event_type"].(string))})
				}
				b.StartTimer()
				for i := range inputs {
					core.Step(&inputs[i])
				}
			}
			if open := core.Stats().Open; open != n {
				b.Fatalf("%d calls are open, want %d", open, n)
			}
			b.ReportMetric(float64(bytes-empty)/float64(n), "bytes/call")
		})
	}
}

// openCalls is a correlator with so many open calls.
func openCalls(t testing.TB, n int) *Correlator {
	l := newTestLog(t)
	l.opts.MaxCalls, l.opts.MaxIDs, l.opts.MissingAfter = max(DefaultMaxCalls, 2*n), max(DefaultMaxIDs, 2*n), 1000*time.Hour
	core := New(l.opts)
	event := strings.ReplaceAll(string(encode(set(set(pre(7), "session_id", "SESSION"), "metadata.tool_call_id", "CALL"))), uuid(7), "EVENT")
	for i := range n {
		session := "s" + strconv.Itoa(i/50)
		body := strings.NewReplacer("SESSION", session, "CALL", "c"+strconv.Itoa(i), "EVENT", uuid(i)).Replace(event)
		core.Apply(events.LogMessage{Seq: uint64(i + 1), Time: epoch, Body: []byte(body),
			Subject: space.Event("acme", "rt1", subject.ProtoAgentHook, session, "PreToolUse")})
	}
	if open := core.Stats().Open; open != n {
		t.Fatalf("%d calls are open, want %d", open, n)
	}
	return core
}

// A snapshot fits into the buffer that is made for it: copying a large one takes a third of
// the whole time.
func TestSnapshotHasRoom(t *testing.T) {
	for _, c := range []struct {
		name       string
		perSession int
		closed     bool
	}{
		{"open calls", 50, false}, {"open calls, one a session", 1, false},
		{"closed calls", 50, true}, {"closed calls, one a session", 1, true},
	} {
		l := newTestLog(t)
		core := New(l.opts)
		const calls = 1000
		for i := range calls {
			at := func(e tree) tree {
				return set(set(set(e, "session_id", "session-"+strconv.Itoa(1000+i/c.perSession)), "metadata.tool_call_id", "call-"+strconv.Itoa(100_000+i)),
					"tool_input", tree{"path": "/data/" + strconv.Itoa(i) + strings.Repeat("x", 110)})
			}
			l.admit(at(pre(2*i)), "decision-"+strconv.Itoa(100_000+i), events.Allow)
			l.event(at(pre(2 * i)))
			if c.closed {
				l.event(at(post(2*i + 1)))
			}
		}
		for _, m := range l.msgs {
			core.Apply(m)
		}
		if room, size := core.snapshotSize(), len(core.Snapshot()); size > room {
			t.Errorf("%s: %d bytes a call, room for %d", c.name, size/calls, room/calls)
		} else {
			t.Logf("%s: %d bytes a call, room for %d", c.name, size/calls, room/calls)
		}
	}
}

// TestLateForCompactedCalls: a late message finds its call after the call was compacted.
func TestLateForCompactedCalls(t *testing.T) {
	l := newTestLog(t)
	var at []int
	for i := range 40 {
		l.admit(set(pre(2*i), "metadata.tool_call_id", "c"+strconv.Itoa(i)), "d"+strconv.Itoa(i), events.Allow)
		l.event(set(pre(2*i), "metadata.tool_call_id", "c"+strconv.Itoa(i)))
		at = append(at, len(l.msgs))
		l.event(set(post(2*i+1), "metadata.tool_call_id", "c"+strconv.Itoa(i)))
	}
	core := New(l.opts)
	for _, m := range l.msgs {
		core.Apply(m)
	}
	if st := core.Stats(); st.Open != 0 || st.Calls != 40 {
		t.Fatalf("%+v", st)
	}
	core.engine.calls.compactCalls()
	for _, s := range core.engine.calls.sessions.All() {
		for _, c := range s.closed {
			if c.details != nil || c.compacted == "" || len(c.compacted) > 600 {
				t.Fatalf("a closed call is kept in %d bytes, expanded: %v", len(c.compacted), c.details != nil)
			}
		}
	}
	before := len(l.msgs)
	l.event(set(set(post(1001), "metadata.tool_call_id", "c7"), "metadata.execution.outcome", "failed"))
	l.event(set(set(set(pre(2*9), "metadata.tool_call_id", "c9"), "metadata.admission_verdict.decision", "allow"), "annotations", tree{"late": true}))
	r := l.run()
	if len(at) != 40 || len(r.outputs) == 0 || len(l.msgs) != before+2 {
		t.Fatal("nothing came of it")
	}
	var late []string
	for _, f := range r.findings {
		late = append(late, f.Rule+" "+f.ToolCallID)
	}
	if want := "[orphan_completion c7]"; fmt.Sprint(late) != want {
		t.Errorf("findings %v, want %s", late, want)
	}
}

// TestRepeatedIDExpandsNoCall: a call whose id and arguments many complete calls have expands none of them, with a
// verdict and without.
func TestRepeatedIDExpandsNoCall(t *testing.T) {
	for name, admitted := range map[string]bool{"admitted": true, "without a verdict": false} {
		t.Run(name, func(t *testing.T) {
			l := newTestLog(t)
			core, seq := New(l.opts), uint64(0)
			call := func(i int) {
				l.msgs = nil
				if admitted {
					l.admit(pre(2*i), "d"+strconv.Itoa(i), events.Allow)
				}
				l.event(pre(2 * i))
				l.event(set(post(2*i+1), "correlation_id", uuid(2*i)))
				for _, m := range l.msgs {
					seq++
					m.Seq = seq
					core.Apply(m)
				}
			}
			for i := range 50 { // fewer than compactBatch
				call(i)
			}
			core.engine.calls.compactCalls()
			call(50)
			if n := len(core.engine.calls.dirtyCalls); n > 5 || core.Stats().Calls != 51 {
				t.Errorf("%d of %d calls are expanded", n, core.Stats().Calls)
			}
		})
	}
}

func key(n uint64) (s fact.Sum) {
	binary.BigEndian.PutUint64(s[:], n)
	return s
}

// flooded is a log in which calls of one tenant are open and denied, while another publisher
// floods the log with new sessions, until those calls run.
func flooded(t *testing.T, tenant, source string, inFlood func(i int) []tree) *testLog {
	l := newTestLog(t)
	of := func(e tree, i int) tree {
		return set(set(e, "session_id", fmt.Sprint("mine-", i)), "metadata.tool_call_id", fmt.Sprint("c", i))
	}
	for i := range 8 {
		verdict := events.Allow
		if i%2 == 0 {
			verdict = events.Deny
		}
		l.admit(of(pre(100+i), i), fmt.Sprint("d", i), verdict)
		l.event(of(pre(100+i), i))
	}
	for i := range 300 {
		for _, e := range inFlood(i) {
			l.eventFrom(tenant, source, e)
		}
	}
	for i := range 8 {
		l.event(of(post(200+i), i))
	}
	return l
}

// inventing is a flood of sessions with one open call each.
func inventing(i int) []tree {
	return []tree{set(pre(5000+i), "session_id", fmt.Sprint("invented-", i))}
}

// TestSharedFairly: a publisher that floods shared tables evicts nothing of other publishers,
// of its own tenant or others.
func TestSharedFairly(t *testing.T) {
	manyCalls := func(i int) []tree {
		return []tree{set(set(pre(5000+i), "session_id", fmt.Sprint("invented-", i/20)), "metadata.tool_call_id", fmt.Sprint("x", i))}
	}
	for name, flood := range map[string]struct {
		tenant, source string
		bound          func(*Options)
		events         func(int) []tree
	}{
		"sessions of another tenant":         {"other", "rt1", func(o *Options) { o.MaxSessions = 32 }, inventing},
		"sessions of the tenant's publisher": {"acme", "rt9", func(o *Options) { o.MaxSessions = 32 }, inventing},
		"calls of another tenant":            {"other", "rt1", func(o *Options) { o.MaxCalls = 64 }, manyCalls},
		"calls of the tenant's publisher":    {"acme", "rt9", func(o *Options) { o.MaxCalls = 64 }, manyCalls},
		"ids of another tenant":              {"other", "rt1", func(o *Options) { o.MaxIDs = 64 }, manyCalls},
		"ids of the tenant's publisher":      {"acme", "rt9", func(o *Options) { o.MaxIDs = 64 }, manyCalls},
	} {
		t.Run(name, func(t *testing.T) {
			l := flooded(t, flood.tenant, flood.source, flood.events)
			flood.bound(&l.opts)
			whole := l.run()
			var mine []events.Finding
			for _, f := range whole.findings {
				if f.Tenant == "acme" && f.Source == "rt1" {
					mine = append(mine, f)
				}
			}
			wantRules(t, mine, despiteDeny, despiteDeny, despiteDeny, despiteDeny)
			st := whole.core.Stats()
			if st.Evicted == 0 {
				t.Errorf("nothing had to make room: %+v", st)
			}
			for _, at := range []int{20, 150, 320} {
				resumed, _ := goingOn(t, l, at)
				sameOutputs(t, fmt.Sprint("resumed at ", at), resumed, whole.outputs)
			}
		})
	}
}

// TestFloodKeepsOrder: the table of followed sessions is shared in the same way.
func TestFloodKeepsOrder(t *testing.T) {
	l := newTestLog(t)
	l.opts.RequireVerdict, l.opts.MaxSessions = false, 16
	l.event(wire(1, "session.started", 0, nil))
	for i := range 100 {
		l.eventFrom("other", "rt1", set(wire(100+i, "session.started", 0, nil), "session_id", fmt.Sprint("sess_x", i)))
	}
	l.event(wire(2, "session.started", 1, nil))
	core := New(l.opts)
	core.engine.trackers.storedItemLimit = 40
	for _, m := range l.msgs {
		core.Apply(m)
	}
	for i := range 400 {
		l.eventFrom("other", "rt1", wire(1000+i, "tool.invoked", 1, tree{"tool": "lookup", "tool_call_id": fmt.Sprint("call_", i), "session_id": fmt.Sprint("sess_x", 95+i%5)}))
		core.Apply(l.msgs[len(l.msgs)-1])
	}
	if !slices.ContainsFunc(core.engine.trackers.sessions.All(), func(w *protocolSession) bool { return w.origin.Key.Tenant == "acme" }) {
		t.Error("the session of the tenant that sent little is not followed any more")
	}
	if core.engine.trackers.storedItems > core.engine.trackers.storedItemLimit {
		t.Errorf("all together remember %d", core.engine.trackers.storedItems)
	}
}

// TestFloodLeavesRoomForArguments: a tenant whose open calls keep all the arguments that there is
// room for leaves others enough to compare a redacted copy.
func TestFloodLeavesRoomForArguments(t *testing.T) {
	l := newTestLog(t)
	l.opts.RequireVerdict, l.opts.MaxArgsBytes = false, 400
	for i := range 40 {
		l.eventFrom("other", "rt1", set(pre(100+i), "metadata.tool_call_id", fmt.Sprint("x", i)))
	}
	before := l.run().core.Stats().ArgsBytes
	l.event(pre(1))
	ran := set(post(2), "metadata.tool_input_executed", tree{"invoice": "***", "amount": 121})
	l.event(set(ran, "metadata.redaction", tree{"applied": true, "fields": []any{"/tool_input_executed/invoice"}}))
	whole := l.run()
	calls := slices.DeleteFunc(whole.last(), func(c events.Call) bool { return c.Tenant != "acme" })
	if c := calls[len(calls)-1]; c.Match != matchDrift || before < 100 || before > 200 {
		t.Errorf("match %q because %q, beside %d bytes of another tenant", c.Match, c.MatchReason, before)
	}
	resumed, err := Restore(l.opts, replay(t, l.opts, l.msgs[:5]).core.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range l.msgs[5:] {
		resumed.Apply(m)
	}
	if was, is := whole.core.Stats(), resumed.Stats(); was != is {
		t.Errorf("after a snapshot %+v, want %+v", is, was)
	}
}
