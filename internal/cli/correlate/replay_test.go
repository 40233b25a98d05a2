package correlate

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/service/correlator"
)

// pastInMemory is a log that a core has correlated as a whole.
type pastInMemory struct {
	log      []events.LogMessage
	outputs  []output // of the session
	name     string
	hidden   map[uint64]bool
	consumed uint64
	asked    int // firstInput calls
}

var replayStart = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

func replayOptions(key []byte) correlation.Options {
	o := correlation.Options{Shard: "GOV", RequireVerdict: true, MissingAfter: 15 * time.Minute}
	if key != nil {
		o.TenantKey = func(string) []byte { return key }
	}
	return o
}

var tenantKey = bytes.Repeat([]byte{7}, 32)

func (p *pastInMemory) add(at time.Duration, session, protocol, typ string, body map[string]any) {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	subj := subject.Space{}.Event("acme", "rt1", protocol, session, typ)
	p.log = append(p.log, events.LogMessage{Seq: uint64(len(p.log) + 1), Subject: subj, Time: replayStart.Add(at), Body: b})
}

// eventID is a UUID for a short name.
func eventID(name string) string { return uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)).String() }

func (p *pastInMemory) hook(at time.Duration, session, id, typ, call, path string) {
	phase := "pre_commit"
	if typ == "PostToolUse" {
		phase = "post_hoc"
	}
	p.add(at, session, "agenthook", typ, map[string]any{"schema_version": 1, "event_id": eventID(id), "event_type": typ, "timestamp": "2026-11-20T09:00:00Z",
		"source": "agent", "session_id": session, "evidence_phase": phase, "tool_name": "write_file", "tool_input": map[string]any{"path": path},
		"metadata": map[string]any{"tool_call_id": call, "tool_input_executed": map[string]any{"path": path}, "execution": map[string]any{"outcome": "succeeded"}}})
}

func (p *pastInMemory) started(at time.Duration, session, id string) {
	p.add(at, session, "aaep", "agent.session.started", map[string]any{"@context": "https://aaep-protocol.org/context/v1", "type": "aaep:agent.session.started",
		"event_id": id, "session_id": session, "sequence_number": 0, "timestamp": "2026-11-20T09:00:00.000Z", "producer": map[string]any{"agent_id": "a"},
		"urgency": "normal", "aaep_version": "1.0.0", "summary_normal": "It begins."})
}

// correlated records what a correlator makes of the whole log.
func (p *pastInMemory) correlated() *pastInMemory {
	r := rerunOf(p, replayOptions(tenantKey))
	for _, m := range p.log {
		r.apply(m)
	}
	p.outputs, p.consumed = r.outputs, uint64(len(p.log))
	return p
}

func rerunOf(p *pastInMemory, o correlation.Options) *rerun {
	return &rerun{core: correlation.New(o), past: p, shard: "GOV", last: uint64(len(p.log)), tenant: "acme", session: p.name}
}

func (p *pastInMemory) session(context.Context) (*recording, error) {
	rec := &recording{Shard: "GOV@x", recorded: p.outputs, last: uint64(len(p.log)), consumed: p.consumed, hidden: p.hidden}
	for _, m := range p.log {
		if strings.Contains(m.Subject, "."+p.name+".") || strings.HasPrefix(m.Subject, "gov.control.") {
			rec.inputs = append(rec.inputs, m)
		}
	}
	return rec, nil
}

func (p *pastInMemory) firstInput(_ context.Context, after, to uint64, at time.Time) (uint64, time.Time, error) {
	p.asked++
	for _, m := range p.log {
		if m.Seq > after && m.Seq <= to && !m.Time.Before(at) {
			return m.Seq, m.Time, nil
		}
	}
	return 0, time.Time{}, nil
}

func (p *pastInMemory) everything(_ context.Context, _ uint64, fn func(events.LogMessage) error) error {
	for _, m := range p.log {
		if err := fn(m); err != nil {
			return err
		}
	}
	return nil
}

// replayAlone runs the session alone.
func replayAlone(t *testing.T, p *pastInMemory, key []byte) *replayReport {
	t.Helper()
	rec, err := p.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := rerunOf(p, replayOptions(key))
	if err := r.run(t.Context(), rec.inputs); err != nil {
		t.Fatal(err)
	}
	return compareOutputs(rec, r.outputs, blind{noKey: key == nil})
}

// busy is a log of several sessions in which deadlines of one are reached with
// messages of the others.
func busy() *pastInMemory {
	p := &pastInMemory{name: "sess_1"}
	p.hook(0, "sess_1", "e1", "PreToolUse", "c1", "/a") // never completed
	p.hook(time.Second, "s2", "e2", "PreToolUse", "c1", "/b")
	p.started(2*time.Second, "sess_1", "evt_1") // never ended
	p.hook(3*time.Second, "sess_1", "e3", "PreToolUse", "c2", "/a")
	p.hook(4*time.Second, "sess_1", "e4", "PostToolUse", "c2", "/other")
	p.hook(16*time.Minute, "s2", "e5", "PostToolUse", "c1", "/b") // c1 of s1 counts as abandoned
	p.hook(17*time.Minute, "sess_1", "e6", "PreToolUse", "c3", "/a")
	p.hook(2*time.Hour, "s3", "e7", "PreToolUse", "c1", "/a") // and c3
	p.hook(3*time.Hour, "sess_1", "e8", "PostToolUse", "c1", "/a")
	for h := 4; h < 30; h++ { // s1 falls silent
		p.hook(time.Duration(h)*time.Hour, "s4", fmt.Sprint("h", h), "PreToolUse", "c1", "/a")
	}
	p.hook(30*time.Hour, "s3", "e9", "PreToolUse", "c2", "/a")
	p.hook(31*time.Hour, "s2", "e10", "PreToolUse", "c2", "/a")
	return p
}

// What others let happen to a session happens in its replay, too, at the same
// time: the outputs are the same to the byte.
func TestReplayLetsTimePassLikeTheLog(t *testing.T) {
	p := busy().correlated()
	rules := map[string]bool{}
	for _, o := range p.outputs {
		rules[viewOf(o).rule] = true
	}
	for _, rule := range []string{correlation.MissingCompletion, correlation.InputDrift, correlation.ExecutedWithoutVerdict} {
		if !rules[rule] {
			t.Fatalf("the log has no %s: %v", rule, rules)
		}
	}
	if !slices.ContainsFunc(p.outputs, func(o output) bool { return strings.Contains(string(o.body), "AAEP-C-064") }) {
		t.Fatal("the log has no check of a session that fell silent")
	}
	r := replayAlone(t, p, tenantKey)
	if !r.Same || len(r.Inconclusive) > 0 || r.Pending > 0 || r.Recorded != r.Replayed || r.Recorded.Findings == 0 {
		t.Errorf("%+v", r)
	}
	if p.asked == 0 || p.asked > 20 {
		t.Errorf("the log was asked %d times for the time", p.asked)
	}
}

// The broker's clock was wrong for a while, in which only others wrote.
func TestReplayOfALogWhoseClockJumped(t *testing.T) {
	for _, by := range []time.Duration{7 * 24 * time.Hour, -7 * 24 * time.Hour} {
		p := busy()
		for i := range p.log {
			if strings.Contains(p.log[i].Subject, ".s2.") && p.log[i].Time.After(replayStart.Add(time.Minute)) && p.log[i].Time.Before(replayStart.Add(time.Hour)) {
				p.log[i].Time = p.log[i].Time.Add(by)
			}
		}
		if r := replayAlone(t, p.correlated(), tenantKey); !r.Same {
			t.Errorf("%v: %+v", by, r)
		}
	}
}

// A clock that was set forward and back again lets time pass when it did so.
func TestReplayWithAClockThatWentBack(t *testing.T) {
	p := &pastInMemory{name: "sess_1"}
	p.hook(0, "sess_1", "e1", "PreToolUse", "c1", "/a")
	p.hook(15*time.Minute+time.Second, "s2", "e2", "PreToolUse", "c1", "/b") // c1 of s1 counts as abandoned
	p.hook(15*time.Minute-time.Second, "sess_1", "e3", "PostToolUse", "c1", "/a")
	p.correlated()
	if r := replayAlone(t, p, tenantKey); !r.Same || r.Recorded != r.Replayed || r.Recorded.Findings == 0 {
		t.Errorf("%+v", r)
	}
}

// What a correlator with other bounds forgets, a replay with its bounds forgets, too.
func TestReplayUnderTheCorrelatorsBounds(t *testing.T) {
	_, vkey, err := signing.NewCheckpointKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	command := func(args ...string) *ReplayCmd {
		var cli struct {
			Replay ReplayCmd `cmd:""`
		}
		parser, err := kong.New(&cli, system.SessionNames)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(append([]string{"replay", "--session", "sess_1", "--whole", "--key", vkey, "--tenant", "acme"}, args...)); err != nil {
			t.Fatal(err)
		}
		return &cli.Replay
	}
	replay := func(c *ReplayCmd, p past) *replayReport {
		target := &target.Target{Flags: c.Flags}
		o, err := c.options(target)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.replay(t.Context(), ui.Stdio{Out: io.Discard, Err: io.Discard}, target, p, o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, bound := range []string{"--max-calls", "--max-sessions"} {
		c := command(bound, "2")
		o, err := c.options(&target.Target{Flags: c.Flags})
		if err != nil {
			t.Fatal(err)
		}
		p := &pastInMemory{name: "sess_1"}
		for i := range 4 {
			p.hook(time.Duration(i)*time.Second, fmt.Sprint("sess_", i+1), fmt.Sprint("e", i), "PreToolUse", "c1", "/a")
		}
		p.hook(time.Minute, "sess_1", "e9", "PostToolUse", "c1", "/a")
		r := rerunOf(p, o)
		for _, m := range p.log {
			r.apply(m)
		}
		p.outputs, p.consumed = r.outputs, uint64(len(p.log))
		if got := replay(c, p); !got.Same || got.Recorded != got.Replayed {
			t.Errorf("%s 2: %+v", bound, got)
		}
		if got := replay(command(), p); got.Same {
			t.Errorf("%s 2 is replayed without it: the test shows nothing", bound)
		}
	}
	var f correlator.Flags
	if _, err := kong.Must(&f).Parse(nil); err != nil {
		t.Fatal(err)
	}
	if c := command(); c.MaxCalls != f.MaxCalls || c.MaxSessions != f.MaxSessions || c.MissingAfter != f.MissingAfter || f.MaxCalls == 0 {
		t.Errorf("usually %d calls, %d sessions, %v; the correlator has %d, %d, %v", c.MaxCalls, c.MaxSessions, c.MissingAfter, f.MaxCalls, f.MaxSessions, f.MissingAfter)
	}
}

func TestReplayWithoutTheKey(t *testing.T) {
	r := replayAlone(t, busy().correlated(), nil)
	if !r.Same || len(r.Inconclusive) == 0 {
		t.Errorf("%+v", r)
	}
	for _, m := range r.Inconclusive {
		if !strings.Contains(m.Why, "--keys") {
			t.Errorf("%+v", m)
		}
	}
}

func TestReplaySaysWhatDiffers(t *testing.T) {
	change := func(p *pastInMemory, i int, member, value string) {
		var m map[string]any
		_ = json.Unmarshal(p.outputs[i].body, &m)
		m[member] = value
		p.outputs[i].body, _ = events.Encode(m)
	}
	find := func(p *pastInMemory, call bool) int {
		return slices.IndexFunc(p.outputs, func(o output) bool { return o.call == call })
	}
	for name, c := range map[string]struct {
		tamper func(*pastInMemory)
		kind   string
		field  string
	}{
		"a finding was left out":     {func(p *pastInMemory) { i := find(p, false); p.outputs = slices.Delete(p.outputs, i, i+1) }, "not_recorded", ""},
		"a call was left out":        {func(p *pastInMemory) { i := find(p, true); p.outputs = slices.Delete(p.outputs, i, i+1) }, "not_recorded", ""},
		"a call has another outcome": {func(p *pastInMemory) { change(p, find(p, true), "tool", "read_file") }, "differs", "tool"},
		"a finding is milder":        {func(p *pastInMemory) { change(p, find(p, false), "severity", "info") }, "differs", "severity"},
		"a finding was invented": {func(p *pastInMemory) {
			o := p.outputs[find(p, false)]
			o.id, o.body = "fnd_x", []byte(`{"finding_id":"fnd_x","rule":"forged_record"}`)
			p.outputs = append(p.outputs, o)
		}, "not_replayed", ""},
		"a record is there twice": {func(p *pastInMemory) { p.outputs = append(p.outputs, p.outputs[0]) }, "recorded_twice", ""},
		"a record is no record":   {func(p *pastInMemory) { p.outputs[0].body = []byte(`[1]`) }, "differs", ""},
	} {
		p := busy().correlated()
		c.tamper(p)
		r := replayAlone(t, p, tenantKey)
		if r.Same || len(r.Differences) != 1 || r.Differences[0].Kind != c.kind || len(r.Inconclusive) > 0 {
			t.Errorf("%s: %+v", name, r)
			continue
		}
		if f := r.Differences[0].Fields; c.field != "" && (len(f) != 1 || f[0].Field != c.field) {
			t.Errorf("%s: %+v", name, f)
		}
		var out bytes.Buffer
		r.print(ui.NewPrinter(&out))
		if !strings.Contains(out.String(), "DIFFERENT") || !strings.Contains(out.String(), mismatchWords[c.kind]) {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}

// What rests on a message that evidence hides proves nothing, and what does not
// proves as much as ever.
func TestReplayOfHiddenMessages(t *testing.T) {
	p := busy().correlated()
	p.hidden = map[uint64]bool{5: true} // the completion with other arguments
	p.log[4].Body = []byte(`{"schema_version":1,"event_id":"` + eventID("e4") + `","event_type":"PostToolUse","timestamp":"2026-11-20T09:00:00Z","source":"agent","session_id":"sess_1","tool_name":"write_file","metadata":{"tool_call_id":"c2"}}`)
	r := replayAlone(t, p, nil)
	if !r.Same || len(r.Inconclusive) == 0 {
		t.Errorf("%+v", r)
	}
	p.outputs = slices.DeleteFunc(p.outputs, func(o output) bool { return viewOf(o).rule == correlation.MissingCompletion })
	if r := replayAlone(t, p, nil); r.Same {
		t.Error("a finding that rests on nothing hidden was not missed")
	}
}

// TestReplayOfAnErasedSession: the correlator forgot what was erased, and the replay of the evidence says so.
func TestReplayOfAnErasedSession(t *testing.T) {
	p := &pastInMemory{name: "s1"}
	p.hook(0, "s1", "e1", "PreToolUse", "c1", "/a")
	body, err := events.Encode(events.Erasure{State: events.ErasureBegun, Tenant: "acme", Sessions: []string{"s0", "s1"}})
	if err != nil {
		t.Fatal(err)
	}
	p.log = append(p.log, events.LogMessage{Seq: 2, Subject: subject.Space{}.Control("GOV", events.ControlErasure), Time: replayStart.Add(time.Second), Body: body})
	p.hook(2*time.Second, "s1", "e2", "PostToolUse", "c1", "/a")
	whole := p.log
	p.log = p.log[1:] // as the correlator read it again
	p.correlated().log = whole
	rec, err := p.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	report := replayAlone(t, p, tenantKey)
	told := rec.inputs[0]
	told.Seq, told.Subject, told.Body = 9, subject.Space{}.Event("acme", "p1", "agenthook", "s1", events.ControlErasure), body
	rec.inputs = append(rec.inputs, told) // an event that only bears the name of such a record
	if report.Erased = rec.erasedAt(subject.Space{}, "acme", "s1"); report.Same || !slices.Equal(report.Erased, []uint64{2}) {
		t.Errorf("same %v, erased at %v", report.Same, report.Erased)
	}
	if rec.erasedAt(subject.Space{}, "globex", "s1") != nil || rec.erasedAt(subject.Space{}, "acme", "s2") != nil {
		t.Error("another session counts as erased")
	}
	var out bytes.Buffer
	report.print(ui.NewPrinter(&out))
	if !strings.Contains(out.String(), "the session was erased (sequence 2)") {
		t.Errorf("%s", out.String())
	}
}

// Outputs of messages that the correlator may not have dealt with are not missed.
func TestReplayAheadOfTheCorrelator(t *testing.T) {
	p := busy().correlated()
	last := p.outputs[len(p.outputs)-1]
	p.outputs = p.outputs[:len(p.outputs)-1]
	p.consumed = last.seq - 1
	if r := replayAlone(t, p, tenantKey); !r.Same || r.Pending != 1 {
		t.Errorf("%+v", r)
	}
}

// A finding whose id includes the producer's own bytes is compared by its content.
func TestReplayOfCopies(t *testing.T) {
	p := &pastInMemory{name: "sess_1"}
	p.log = append(p.log, events.LogMessage{Seq: 1, Time: replayStart, Subject: "gov.events.acme.rt1.agenthook.sess_1.PreToolUse", Body: []byte(`{ "event_type": 5, "session_id": "sess_1" }`)})
	p.correlated()
	p.log[0].Body = []byte(`{"event_type":5,"session_id":"sess_1"}`)
	rec, _ := p.session(t.Context())
	r := rerunOf(p, replayOptions(nil))
	if err := r.run(t.Context(), rec.inputs); err != nil {
		t.Fatal(err)
	}
	if got := compareOutputs(rec, r.outputs, blind{noKey: true, copies: true}); !got.Same || got.Reidentified == 0 {
		t.Errorf("%+v", got)
	}
	if got := compareOutputs(rec, r.outputs, blind{noKey: true}); got.Same {
		t.Error("from the log the same findings have the same ids")
	}
}

// A terminal must not be told what to do by a name that a publisher chose.
func TestReplayReportIsClean(t *testing.T) {
	evil := "\x1b[2J\x07\r\n\u202eevil\x00\u0085"
	var out bytes.Buffer
	r := replayReport{Tenant: evil, Session: evil, Shard: evil, Differences: []outputMismatch{{ID: evil, What: evil, Kind: "differs",
		Fields: []fieldMismatch{{evil, json.RawMessage(evil), json.RawMessage(evil)}}}}, Inconclusive: []outputMismatch{{What: evil, Why: evil}}}
	r.print(ui.NewPrinter(&out))
	for _, forbidden := range []string{"\x1b", "\x07", "\r", "\x00", "\u202e", "\u0085"} {
		if strings.Contains(out.String(), forbidden) {
			t.Errorf("%q was printed", forbidden)
		}
	}
}
