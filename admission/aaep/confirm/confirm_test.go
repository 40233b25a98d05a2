package confirm

import (
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

type set = map[string]any

var (
	start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	space = subject.Space{}
)

// tape is a log in the making.
type tape struct {
	t   testing.TB
	l   *Store
	now time.Time
	n   int
}

func newTape(t testing.TB, repliers ...string) *tape {
	return &tape{t: t, l: New(Options{Repliers: func(string) []string { return repliers }}), now: start}
}

// at lets the broker's time pass.
func (p *tape) at(seconds int) *tape {
	p.now = start.Add(time.Duration(seconds) * time.Second)
	return p
}

func (p *tape) put(subj string, doc set) {
	b, err := json.Marshal(doc)
	if err != nil {
		p.t.Fatal(err)
	}
	p.l.Apply(events.LogMessage{Seq: uint64(p.n), Subject: subj, Time: p.now, Body: b})
}

func merge(m set, more []set) set {
	for _, s := range more {
		maps.Copy(m, s)
	}
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	return m
}

func stamp(t time.Time) string { return t.Format("2006-01-02T15:04:05.000Z07:00") }

// event logs an event of rt1.
func (p *tape) event(session, typ string, more ...set) { p.eventOf("rt1", session, typ, more...) }

func (p *tape) eventOf(source, session, typ string, more ...set) {
	p.n++
	m := set{
		"@context": "https://aaep-protocol.org/context/v1", "type": "aaep:agent." + typ, "event_id": fmt.Sprintf("evt_%d", p.n),
		"session_id": session, "timestamp": stamp(p.now), "producer": set{"agent_id": "bot"}, "summary_normal": "A step.",
	}
	p.put(space.Event("acme", source, "aaep", session, "agent."+strings.TrimPrefix(typ, "agent.")), merge(m, more))
}

func questionDoc(token string, more ...set) set {
	return merge(set{
		"urgency": "critical", "action": "Pay", "consequence": "It is paid.", "reply_token": token, "timeout_seconds": 60,
		"default_decision": "reject", "irreversible": true, "risk_level": "high",
	}, more)
}

func about(callID string) set { return set{"extra_context": set{"tool_call_id": callID}} }

func (p *tape) ask(token string, more ...set) {
	p.event("sess_1", "awaiting.confirmation", questionDoc(token, more...))
}

func (p *tape) reply(token, decision string, more ...set) { p.replyOf("rt1", token, decision, more...) }

func (p *tape) replyOf(source, token, decision string, more ...set) {
	m := set{"type": "confirmation.reply", "reply_token": token, "decision": decision, "subscription_id": "sub_1", "timestamp": stamp(p.now)}
	p.put(space.Event("acme", source, "aaep", "", "confirmation.reply"), merge(m, more))
}

// clarify logs an answer to a clarification.
func (p *tape) clarify(source, token string) {
	p.put(space.Event("acme", source, "aaep", "", "clarification.reply"),
		set{"type": "clarification.reply", "reply_token": token, "response": "b", "subscription_id": "sub_1", "timestamp": stamp(p.now)})
}

// leave logs that the agent waits for input no longer.
func (p *tape) leave(to string, more ...set) {
	p.event("sess_1", "state.changed", merge(set{"from_state": "awaiting_input", "to_state": to}, more))
}

// grave is an invocation of rt1 that needs a confirmation.
func (p *tape) grave(change ...func(*call.Invocation)) call.Confirmation {
	i := call.Invocation{Tenant: "acme", Source: "rt1", Session: "sess_1", ToolCallID: "call_1", Tool: "pay", Risk: "high", Irreversible: true, Now: p.now}
	for _, c := range change {
		c(&i)
	}
	return p.l.Confirmation(i)
}

// What was accepted is for one invocation of one tenant, publisher and session.
func TestAcceptedForThisOnly(t *testing.T) {
	p := newTape(t)
	p.ask("rpl_1", about("call_1"))
	p.at(5).reply("rpl_1", "accept")
	for name, change := range map[string]func(*call.Invocation){
		"other tenant":  func(i *call.Invocation) { i.Tenant = "globex" },
		"other source":  func(i *call.Invocation) { i.Source = "rt2" },
		"other session": func(i *call.Invocation) { i.Session = "sess_2" },
		"no session":    func(i *call.Invocation) { i.Session = "" },
		"other call":    func(i *call.Invocation) { i.ToolCallID = "call_2" },
		"no call":       func(i *call.Invocation) { i.ToolCallID = "" },
	} {
		if c := p.grave(change); c != (call.Confirmation{}) {
			t.Errorf("%s: %+v", name, c)
		}
	}
	c := p.grave()
	if want := (call.Confirmation{Status: call.ConfirmationAccepted, ID: c.ID, Explicit: true, Until: p.now.Add(AcceptanceLifetime)}); c != want {
		t.Error(cmp.Diff(want, c))
	}
	p.l.Use(c.ID, "call_1")
	if c := p.grave(); c.Status != call.ConfirmationUsed {
		t.Errorf("after its use: %+v", c)
	}
	p.l.Release(c.ID)
	if again := p.grave(); again != c {
		t.Errorf("given back: %+v", again)
	}
	p.l.Use("unknown", "")
	p.l.Release("unknown")
}

// A confirmation that names no call belongs to the call that used it; no other call sees it.
func TestInferredUse(t *testing.T) {
	p := newTape(t)
	p.ask("rpl_1")
	p.reply("rpl_1", "accept")
	c := p.grave()
	p.l.Use(c.ID, "call_1")
	if c := p.grave(); c.Status != call.ConfirmationUsed || !c.Explicit {
		t.Errorf("the same call: %+v", c)
	}
	if c := p.grave(func(i *call.Invocation) { i.ToolCallID = "call_2" }); c.Status != call.ConfirmationNone {
		t.Errorf("another call: %+v", c)
	}
	if c := p.grave(func(i *call.Invocation) { i.Irreversible, i.Risk, i.ToolCallID = false, "low", "call_3" }); c != (call.Confirmation{}) {
		t.Errorf("a harmless one: %+v", c)
	}
}

// What was not used in the end is for any call of the session again, and was named by none.
func TestInferredUseThatIsUndone(t *testing.T) {
	p := newTape(t)
	p.ask("rpl_1")
	p.reply("rpl_1", "accept")
	before := p.grave()
	if before.Status != call.ConfirmationAccepted || before.Explicit {
		t.Fatalf("%+v", before)
	}
	p.l.Use(before.ID, "call_1")
	p.l.Release(before.ID)
	for _, id := range []string{"call_1", "call_2"} {
		if c := p.grave(func(i *call.Invocation) { i.ToolCallID = id }); c != before {
			t.Errorf("%s: %+v, before %+v", id, c, before)
		}
	}
	p.l.Use(before.ID, "call_2")
	if c := p.grave(func(i *call.Invocation) { i.ToolCallID = "call_2" }); c.Status != call.ConfirmationUsed {
		t.Errorf("%+v", c)
	}
}

// Where producer and user are told apart, only the user's publisher answers.
func TestRepliers(t *testing.T) {
	p := newTape(t, "desk")
	p.ask("rpl_1", about("call_1"))
	p.reply("rpl_1", "accept")
	if c := p.grave(); c.Status != call.ConfirmationPending {
		t.Errorf("a runtime answered its own question: %+v", c)
	}
	p.replyOf("desk", "rpl_1", "accept")
	if c := p.grave(); c.Status != call.ConfirmationAccepted {
		t.Errorf("the user's answer: %+v", c)
	}
	p.ask("rpl_2", about("call_1"))
	p.eventOf("rt2", "sess_1", "awaiting.confirmation", questionDoc("rpl_2"))
	p.replyOf("desk", "rpl_2", "accept")
	if c := p.grave(); c.Status != call.ConfirmationPending {
		t.Errorf("two publishers with one token: %+v", c)
	}
	p.eventOf("rt2", "sess_1", "awaiting.confirmation", questionDoc("rpl_3"))
	p.at(60 + int(AcceptanceLifetime/time.Second) + 1)
	p.ask("rpl_3", about("call_1"))
	p.replyOf("desk", "rpl_3", "accept")
	if c := p.grave(); c.Status != call.ConfirmationAccepted {
		t.Errorf("another publisher's question of that token is long over: %+v", c)
	}
	p = newTape(t)
	p.ask("rpl_1", about("call_1"))
	p.replyOf("rt2", "rpl_1", "accept")
	if c := p.grave(); c.Status != call.ConfirmationPending {
		t.Errorf("another publisher's answer: %+v", c)
	}
}

// Who may answer is the tenant's own business, and may change: an acceptance counts only while its publisher may answer.
func TestRepliersChange(t *testing.T) {
	desks := map[string][]string{"globex": {"rt1"}}
	p := newTape(t)
	p.l = New(Options{Repliers: func(tenant string) []string { return desks[tenant] }})
	p.ask("rpl_1", about("call_1"))
	p.reply("rpl_1", "accept")
	status := func(want call.ConfirmationStatus, what string) {
		t.Helper()
		if c := p.grave(); c.Status != want {
			t.Errorf("%s: %+v", what, c)
		}
	}
	status(call.ConfirmationAccepted, "the runtime's own answer, in a tenant that says nothing")
	desks["acme"] = []string{"desk"}
	status(call.ConfirmationPending, "the same answer, once the tenant has a front end")
	p.ask("rpl_2", about("call_1"))
	p.replyOf("desk", "rpl_2", "accept")
	status(call.ConfirmationAccepted, "the front end's answer")
	desks["acme"] = []string{"kiosk"}
	status(call.ConfirmationPending, "the same answer, once it is another front end")
	p.replyOf("kiosk", "rpl_1", "accept")
	delete(desks, "acme")
	status(call.ConfirmationPending, "without a front end again")
}

// TestMemoryOfQuestions: a question takes little memory, however long the names are that its event has.
func TestMemoryOfQuestions(t *testing.T) {
	const questions, most = 100, 16_384 // bytes
	allocated := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	p := newTape(t)
	before := allocated()
	for i := range questions {
		p.ask(fmt.Sprintf("rpl_%d", i), set{"producer": set{"agent_id": strings.Repeat("a", 60_000) + fmt.Sprint(i)}})
	}
	if each := (allocated() - before) / questions; each > most {
		t.Errorf("%d bytes a question", each)
	}
	runtime.KeepAlive(p)
}

// TestLongAgentName: what a change of state costs does not grow with the questions of its session times the length of its agent's name.
func TestLongAgentName(t *testing.T) {
	const questions, name, most = 500, 20_000, 4 << 20 // bytes
	p := newTape(t)
	for i := range questions {
		p.ask(fmt.Sprint("rpl_", i), about(fmt.Sprint("call_", i)))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p.leave("thinking", set{"producer": set{"agent_id": strings.Repeat("a", name)}})
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > most {
		t.Errorf("%d bytes were allocated for a change of state", used)
	}
	if c := p.grave(func(i *call.Invocation) { i.ToolCallID = "call_0" }); c.Status != call.ConfirmationWithdrawn {
		t.Errorf("%+v", c)
	}
}

func TestSubjects(t *testing.T) {
	o := Options{Space: subject.Space{Prefix: "x"}}
	if s := o.Subjects(); len(s) != len(handledTypes) || s[0] != "x.events.*.*.aaep.*.agent.awaiting.confirmation" || s[1] != "x.events.*.*.aaep.*.confirmation.reply" {
		t.Error(s)
	}
	i := call.Invocation{Tenant: "acme", Source: "rt1", Session: "sess_1"}
	if got := o.ReplySubjects(i); strings.Join(got, " ") != "x.events.acme.rt1.aaep.~.confirmation.reply x.events.acme.rt1.aaep.sess_1.confirmation.reply" {
		t.Error(got)
	}
	o.Repliers = func(string) []string { return []string{"a", "b"} }
	if got := o.ReplySubjects(i); len(got) != 4 {
		t.Error(got)
	}
}

// An event counts only under the subject that it belongs to.
func TestSubjectsThatContradict(t *testing.T) {
	p := newTape(t)
	doc := questionDoc("rpl_1", set{
		"@context": "https://aaep-protocol.org/context/v1", "type": "aaep:agent.awaiting.confirmation", "event_id": "evt_1",
		"session_id": "sess_1", "timestamp": stamp(start), "producer": set{"agent_id": "bot"},
	})
	for _, subj := range []string{
		space.Event("acme", "rt1", "aaep", "sess_2", "agent.awaiting.confirmation"),
		space.Event("acme", "rt1", "aaep", "sess_1", "agent.state.changed"),
		space.Event("acme", "rt1", "agenthook", "sess_1", "agent.awaiting.confirmation"),
		space.Request("acme", "rt1", "aaep", "sess_1"),
		"gov.events.acme", "elsewhere",
	} {
		p.put(subj, doc)
	}
	if c := p.grave(); c.Status != call.ConfirmationNone || len(p.l.sources) != 0 {
		t.Errorf("%+v", c)
	}
	long := "sess_" + strings.Repeat("a", 64) // its token is a hash
	p.event(long, "awaiting.confirmation", questionDoc("rpl_2"))
	p.reply("rpl_2", "accept")
	if c := p.grave(func(i *call.Invocation) { i.Session = long }); c.Status != call.ConfirmationAccepted {
		t.Errorf("a session with a long name: %+v", c)
	}
}

// Memory is bounded, by number and by time, and one publisher does not push out
// another's questions.
func TestBounds(t *testing.T) {
	p := newTape(t)
	p.eventOf("rt2", "sess_1", "awaiting.confirmation", questionDoc("rpl_1"))
	for n := range MaxQuestions + 10 {
		p.ask(fmt.Sprintf("rpl_%d", n))
	}
	src := p.l.sources[sourceKey{"acme", "rt1"}]
	if len(src.order) != MaxQuestions || len(src.sessions["sess_1"].questions) != MaxQuestions || len(p.l.byID) != MaxQuestions+1 {
		t.Errorf("%d questions, %d by id", len(src.order), len(p.l.byID))
	}
	for n := range maxAnnounced + 10 {
		p.event(fmt.Sprintf("sess_%d", n+10), "state.changed", set{"from_state": "idle", "to_state": "thinking"})
	}
	if len(src.announced) != maxAnnounced || len(src.announcedOrder) != maxAnnounced {
		t.Errorf("%d agents, %d in order", len(src.announced), len(src.announcedOrder))
	}
	p.at(int((60*time.Second+AcceptanceLifetime)/time.Second) + 1)
	p.event("sess_9", "awaiting.confirmation", questionDoc("rpl_x"))
	if len(src.order) != 1 || len(src.sessions) != 1 || len(p.l.byID) != 2 {
		t.Errorf("%d questions, %d sessions, %d by id", len(src.order), len(src.sessions), len(p.l.byID))
	}
}

func TestIDsAreKeys(t *testing.T) {
	a := questionID(sourceKey{"acme", "rt1"}, "rpl_1")
	b := questionID(sourceKey{"ac me", "rt1"}, "rpl_1")
	if a == b || strings.ContainsAny(a+b, "~ ") || !strings.HasPrefix(a, "acme.rt1.") || !strings.HasPrefix(b, "=") {
		t.Error(a, b)
	}
}

// FuzzApply: whatever is on the log, the ledger does not fall over, and nothing
// is accepted that was not.
func FuzzApply(f *testing.F) {
	f.Add("gov.events.acme.rt1.aaep.sess_1.agent.awaiting.confirmation", []byte(`{"type":"aaep:agent.awaiting.confirmation","session_id":"sess_1","timeout_seconds":null}`))
	f.Add("gov.events.acme.rt1.aaep.~.confirmation.reply", []byte(`{"type":"confirmation.reply","reply_token":"rpl_1","decision":"accept"}`))
	f.Add("gov.events.acme.rt1.aaep.sess_1.agent.state.changed", []byte(`{"from_state":"awaiting_input"}`))
	f.Add("gov.events.acme.rt1.aaep.sess_1.agent.tool.invoked", []byte(`{}`))
	f.Fuzz(func(t *testing.T, subj string, body []byte) {
		p := newTape(t)
		p.ask("rpl_1", about("call_1"))
		p.l.Apply(events.LogMessage{Subject: subj, Time: p.now, Body: body})
		if c := p.grave(); c.Status == call.ConfirmationAccepted && !strings.Contains(string(body), "rpl_1") {
			t.Fatalf("%+v", c)
		}
	})
}
