package correlation

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/correlation/internal/snapshot"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// goingOn applies a log with a snapshot and a restoration in the middle.
func goingOn(t testing.TB, l *ledger, at int) (outs []Output, snapshots [2][]byte) {
	t.Helper()
	core := New(l.opts)
	for _, m := range l.msgs[:at] {
		outs = append(outs, core.Apply(m)...)
	}
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
	for _, m := range l.msgs[at:] {
		outs = append(outs, again.Apply(m)...)
	}
	return outs, snapshots
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

// sameState compares everything that two correlators know. Windows that have
// come round may lie otherwise in memory; they are compared as they are written.
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
				clearField(reflect.ValueOf(w.hook).Elem().FieldByName("out"))
			}
		}
		c.engine.calls.freeLists, c.engine.findings.callViewPool, c.engine.calls.dirtyCalls = callFreeLists{}, callViewPool{}, nil
		c.engine.calls.sessions.Unpack(c.engine.calls.sessions.Pack())
		c.engine.trackers.sessions.Unpack(c.engine.trackers.sessions.Pack())
		c.engine.history.sources.Unpack(c.engine.history.sources.Pack())
		repack(c.engine.negotiations, "byPublisher")
		c.engine.calls.denials.Unpack(c.engine.calls.denials.Pack())
		c.engine.recount()
		opts := c.engine.opts
		c.engine.configure(&engineOptions{})
		defer c.engine.configure(opts)
		c.engine.findings.outputs, c.engine.timers.callDeadlines, c.engine.timers.nextTimer = nil, *c.engine.timers.callDeadlines.Pack().(*[]deadline), time.Time{}
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

// TestSnapshot: who goes on from a snapshot puts out what an undisturbed
// correlator does, wherever the snapshot was taken, and a snapshot of the restored
// state is the same one.
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

// TestSnapshotOfIdleSessions does so where sessions are forgotten: when that happens
// must not depend on when somebody looked.
func TestSnapshotOfIdleSessions(t *testing.T) {
	const hour = 3600
	l := newLedger(t)
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

// TestSnapshotOfTheCorpus does the same with every log of the corpus, where every
// rule is broken.
func TestSnapshotOfTheCorpus(t *testing.T) {
	for i, c := range corpusCases(t) {
		l := c.ledger(t)
		want := l.run().outputs
		for at := 0; at <= len(l.msgs); at++ {
			got, _ := goingOn(t, l, at)
			sameOutputs(t, fmt.Sprintf("case %d resumed at %d", i, at), got, want)
		}
	}
}

// TestSnapshotOfRandomLogs is about logs that nobody thought of: messages of the
// scenario in any order, repeated, left out, with time standing still or leaping.
func TestSnapshotOfRandomLogs(t *testing.T) {
	base := linked(t, 30)
	rapid.Check(t, func(rt *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		l := newLedger(t)
		l.opts.MaxSessions, l.opts.MaxOpenPerSession, l.opts.MaxClosedPerSession = 20, 3, 3
		l.opts.MaxSources, l.opts.MaxEventsPerSource, l.opts.MaxIDsPerSession = 1, 40, 7
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

// TestSnapshotRefusals: what was made otherwise is not taken for a state.
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
	} {
		if _, err := Restore(c.o, c.b); !errors.Is(err, ErrSnapshot) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// notState are the fields that a snapshot leaves out, each for a reason that
// stands beside it.
var notState = []string{
	"aaep.reports.findingList", "correlation.calls.opts", "correlation.calls.dirtyCalls", "correlation.calls.freeLists", "correlation.judge.opts", "correlation.engine.opts", "correlation.history.opts", "correlation.timers.opts", "correlation.approvals.opts", "correlation.receipts.opts", "aump.Mandates.findings", "aump.Mandates.clockSkew",
	"correlation.trackers.opts", "agenthook.Attestations.findings", "agenthook.Declarations.findings", "aaep.Handshakes.findings", "aaep.Handshakes.time", "aaep.Handshakes.fromRecording", "aaep.Replies.findings", "aaep.Replies.sessions", "aaep.Replies.fromRecording", "correlation.timers.nextTimer",
	"correlation.findings.opts", "correlation.findings.outputs", "correlation.findings.subjectPrefixes", "correlation.findings.callViewPool",
	"correlation.engine.prefetched", "agenthook.Session.out",
	"correlation.protocolSession.share", "correlation.session.share", // counted again: see recount
}

// TestEveryFieldIsState: whoever leaves a field out of the snapshot must say so
// here, too, and what a Correlator holds beside its state is listed.
func TestEveryFieldIsState(t *testing.T) {
	left := map[string]bool{}
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(t reflect.Type) {
		if seen[t] {
			return
		}
		seen[t] = true
		switch t.Kind() {
		case reflect.Map:
			walk(t.Key())
			walk(t.Elem())
		case reflect.Pointer, reflect.Slice, reflect.Array:
			walk(t.Elem())
		case reflect.Struct:
			for i := range t.NumField() {
				f := t.Field(i)
				if f.Tag.Get("snapshot") == "-" {
					left[t.String()+"."+f.Name] = true
				} else {
					walk(f.Type)
				}
			}
		}
	}
	walk(reflect.TypeFor[snapshotState]())
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
	const known = "engine space shard vouchForKey vouchForRetirement keys records retiredKeys sharedKeys decoder arena"
	if got := strings.Join(fields, " "); got != known {
		t.Errorf("a Correlator has the fields %s, known are %s: is the new one state?", got, known)
	}
	if !strings.Contains(snapshot.Shape(reflect.TypeFor[snapshotState]()), "unended") {
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

// openCalls is a correlator with so many open calls.
func openCalls(t testing.TB, n int) *Correlator {
	l := newLedger(t)
	l.opts.MaxCalls, l.opts.MaxIDs, l.opts.MissingAfter = 2*n, 2*n, 1000*time.Hour
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

// A snapshot fits into the room that is made for it: copying what is written of a
// large one takes as long as a third of the rest.
func TestSnapshotHasRoom(t *testing.T) {
	for _, c := range []struct {
		name       string
		perSession int
		closed     bool
	}{
		{"open calls", 50, false}, {"open calls, one a session", 1, false},
		{"closed calls", 50, true}, {"closed calls, one a session", 1, true},
	} {
		l := newLedger(t)
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
