package correlation

import (
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation/aaep"
	"github.com/countersign-dev/countersign/correlation/agenthook"
	"github.com/countersign-dev/countersign/correlation/aioc"
	"github.com/countersign-dev/countersign/correlation/aump"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/eventtime"
	"github.com/countersign-dev/countersign/correlation/internal/snapshot"
	"github.com/countersign-dev/countersign/events"
	aumpevents "github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/subject"
)

// protocolPart is a part of one protocol without an engine.
type protocolPart struct {
	part  any
	learn func()        // gives it state
	judge func() string // what it says because of that state; "" without
}

// TestProtocolPartsAlone: what a part learned it knows after its section was read into a new
// part, and the new part knows nothing else.
func TestProtocolPartsAlone(t *testing.T) {
	l := newTestLog(t)
	decoder := New(l.opts).NewDecoder()
	read := func(e tree) *fact.Fact {
		l.event(e)
		in := decoder.Decode(l.msgs[len(l.msgs)-1])
		return &in.Event.Fact
	}
	rules := func(fs *findings) string { return strings.Join(takeRules(fs), " ") }
	hash := func(digit string) string { return "sha256-" + strings.Repeat(digit, 64) }
	for name, c := range map[string]struct {
		make func(fs *findings) protocolPart
		want string
	}{
		"attestations": {func(fs *findings) protocolPart {
			as := agenthook.NewAttestations()
			as.Configure(fs)
			check := func(n int) {
				f := read(set(hook(n, "SessionStart", 0), "metadata.runtime_attestation", tree{"nonce": "n1", "issued_at": stamp(float64(n))}))
				as.CheckNonce(f.Origin, f)
			}
			return protocolPart{as, func() { check(1) }, func() string { check(2); return rules(fs) }}
		}, "AH-C-122"},
		"declarations": {func(fs *findings) protocolPart {
			ds := new(agenthook.Declarations)
			ds.Configure(fs)
			f := read(pre(1))
			declares := &events.PublisherDeclares{Source: agenthook.EventOf(f).Family, Absent: []string{"PreToolUse"}}
			return protocolPart{ds, func() {
				ds.Replace(events.PublisherChange{Documents: []events.PublisherDocument{{Tenant: "acme", Name: "manifest.m", Declares: declares}}}, events.LogMessage{})
			}, func() string { ds.CheckDeclared(f.Origin, f, nil); return rules(fs) }}
		}, "AH-C-127"},
		"negotiations": {func(fs *findings) protocolPart {
			ng := aaep.NewNegotiationTable()
			fs.timers.AdvanceTo(epoch)
			ng.Configure(fs, fs.timers.clock(), false)
			e := New(l.opts).engine
			shake := func(typ string, members tree) {
				members["type"], members["aaep_version"] = typ, "1.0.0"
				ng.Apply(read(members), e)
			}
			return protocolPart{ng, func() {
				shake("subscription.request", tree{"subscriber_id": "a", "capabilities": tree{}})
				shake("subscription.accepted", tree{"subscription_id": "sub_1", "producer": tree{"agent_id": "clerk"}, "honored_capabilities": tree{}})
				shake("subscription.request", tree{"subscriber_id": "b", "capabilities": tree{}})
				fs.clearOutputs()
			}, func() string {
				for quarter := range 5 {
					fs.timers.AdvanceTo(epoch.Add(time.Duration(quarter+1) * eventtime.IdleQuarter))
				}
				ng.Expire()
				return rules(fs)
			}}
		}, "AAEP-C-150"},
		"replies": {func(fs *findings) protocolPart {
			rp := aaep.NewReplies(aaep.NewNegotiationTable())
			rp.Configure(fs, nil, false)
			ask := func(n int) {
				f := read(wire(n, "awaiting.confirmation", 1, tree{"action": "wipe", "consequence": "Gone.", "reply_token": "rpl_1"}))
				rp.RecordReplyToken(nil, f.Origin, f)
			}
			return protocolPart{rp, func() { ask(1) }, func() string { ask(2); return rules(fs) }}
		}, "AAEP-C-053"},
		"mandates": {func(fs *findings) protocolPart {
			ms := aump.NewMandates()
			ms.Configure(fs, time.Second)
			f := &fact.Fact{Origin: fact.OriginOf("acme", "rt1", "s1"), Protocol: subject.ProtoAUMP, EventID: "e1",
				Event: &aumpevents.Evidence{ID: "e1", Sequence: 1, Ref: aumpevents.Ref{ID: "m1", Hash: hash("b")}}}
			return protocolPart{ms, func() { ms.RecordUse(f, &events.MandateRef{ID: "m1", Hash: hash("a")}) }, func() string { ms.CheckEvidence(f); return rules(fs) }}
		}, "AUMP-E-003"},
		"traces": {func(*findings) protocolPart {
			ts := aioc.NewTraces()
			f := &fact.Fact{Origin: fact.OriginOf("acme", "rt1", "s1")}
			d := events.Decision{Tenant: "acme", DecisionID: "d1", Protocol: subject.ProtoTool, Source: "rt1", Session: "s1", Agent: "a", Tool: "t", ToolCallID: "c1", DecidedAt: events.At(epoch)}
			m := events.LogMessage{Header: map[string][]string{events.HeaderDecisionID: {"d1"}}, Body: traceOf(d)}
			return protocolPart{ts, func() { ts.Expect(&d) }, func() string {
				if _, err := ts.Receive(m, subject.Parsed{Tenant: "acme", Protocol: d.Protocol, Type: "tool_policy_evaluated"}, f); err != nil {
					return ""
				}
				return "received"
			}}
		}, "received"},
	} {
		t.Run(name, func(t *testing.T) {
			full, restored, empty := c.make(newFindingsPart(Options{})), c.make(newFindingsPart(Options{})), c.make(newFindingsPart(Options{}))
			full.learn()
			b, err := snapshot.Append(nil, []snapshot.Section{{Name: name, Root: full.part}}, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := snapshot.Read(b, []snapshot.Section{{Name: name, Root: restored.part}}); err != nil {
				t.Fatal(err)
			}
			for _, p := range []struct {
				name, got, want string
			}{{"the part", full.judge(), c.want}, {"the restored one", restored.judge(), c.want}, {"a new one", empty.judge(), ""}} {
				if p.got != p.want {
					t.Errorf("%s says %q, want %q", p.name, p.got, p.want)
				}
			}
		})
	}
}
