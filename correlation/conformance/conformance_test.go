package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	aaep "github.com/countersign-dev/countersign/correlation/aaep/conformance"
	agenthook "github.com/countersign-dev/countersign/correlation/agenthook/conformance"
	"github.com/countersign-dev/countersign/correlation/checks"
	"github.com/countersign-dev/countersign/correlation/conformance/profile"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

func hookEvent(n int, typ, rest string) string {
	return fmt.Sprintf(`{"event_id":"00000000-0000-4000-8000-%012d","event_type":%q,"timestamp":"2026-11-20T12:00:00Z","source":"courier","session_id":"s1"%s}`, n, typ, rest)
}

func taken(lines ...string) *Tally {
	var list []json.RawMessage
	for _, l := range lines {
		list = append(list, json.RawMessage(l))
	}
	return TallyRecording(subject.ProtoAgentHook, list, nil)
}

func line(r Report, id string) RequirementResult {
	i := slices.IndexFunc(r.Results, func(l RequirementResult) bool { return l.ID == id })
	if i < 0 {
		return RequirementResult{}
	}
	return r.Results[i]
}

func named(t *testing.T, name string) profile.Profile {
	t.Helper()
	p, ok := FindProfile(name)
	if !ok {
		t.Fatalf("there is no profile %s", name)
	}
	return p
}

// TestTables: every requirement names checks that exist and is decided, needs
// something, or says why not; ids are unique; what is included exists.
func TestTables(t *testing.T) {
	own := []string{"executed_without_verdict", "executed_before_verdict"}
	known := map[string]bool{}
	for _, c := range checks.All() {
		known[c.ID] = true
	}
	for _, p := range Profiles() {
		seen := map[string]bool{}
		for _, q := range p.Requirements {
			if seen[q.ID] || q.ID == "" || !strings.HasSuffix(q.Text, ".") {
				t.Errorf("%s/%s: %q", p.Name, q.ID, q.Text)
			}
			seen[q.ID] = true
			for _, c := range q.Checks {
				if !known[c] && !slices.Contains(own, c) {
					t.Errorf("%s/%s: there is no check %s", p.Name, q.ID, c)
				}
			}
			if undecidableReason(q) == "" && len(q.Needs) == 0 {
				t.Errorf("%s/%s: nothing says when it is exercised", p.Name, q.ID)
			}
		}
		if p.Includes != "" {
			named(t, p.Includes)
		}
	}
}

// TestNothingIsNotGood: without traffic nothing is held, met or broken.
func TestNothingIsNotGood(t *testing.T) {
	for _, p := range Profiles() {
		r := New().Report(p, Judged{Publisher: "nobody"}, nil)
		if r.Score.Held != 0 || r.Score.Broken != 0 || r.Outcome != NotShown || r.Certification {
			t.Errorf("%s: %+v, %s", p.Name, r.Score, r.Outcome)
		}
	}
}

// TestDeclared: what a publisher declares not to expose is excused, unless it
// appeared; and then the tier may be met.
func TestDeclared(t *testing.T) {
	lines := []string{
		hookEvent(1, "SessionStart", ""), hookEvent(2, "UserPromptSubmit", ""),
		hookEvent(3, "PreToolUse", `,"tool_name":"t","metadata":{"tool_call_id":"c1","instance_id":"i1"}`),
		hookEvent(4, "PostToolUse", `,"tool_name":"t","evidence_phase":"post_hoc","metadata":{"tool_call_id":"c1"}`),
		hookEvent(5, "ModelResponse", ""), hookEvent(6, "ErrorOccurred", ""), hookEvent(7, "SessionEnd", ""), hookEvent(7, "SessionEnd", ""),
	}
	p, who := named(t, agenthook.Bronze), Judged{Publisher: "courier"}
	tally := taken(lines...)
	if r := tally.Report(p, who, nil); r.Outcome != Met || r.Score != (Score{Held: 20, NotExercised: 3, Undecidable: 1, Total: 24}) {
		t.Errorf("%+v, %s", r.Score, r.Outcome)
	}
	declared := map[string]bool{"PreLLMCall": true, "PostLLMCall": true, "AgentHandoff": true, "SessionStart": true}
	if r := tally.Report(p, who, declared); r.Outcome != Met || r.Score != (Score{Held: 20, Excused: 3, Undecidable: 1, Total: 24}) || line(r, "session-start").Outcome != Held {
		t.Errorf("%+v, %s", r.Score, r.Outcome)
	}
	if r := taken(lines[1:6]...).Report(p, who, nil); r.Outcome != NotShown {
		t.Errorf("%+v, %s", r.Score, r.Outcome)
	}
}

// TestStillOpen: what is open has not ended well, nor badly.
func TestStillOpen(t *testing.T) {
	pre := hookEvent(1, "PreToolUse", `,"tool_name":"t","metadata":{"tool_call_id":"c1"}`)
	p, who := named(t, agenthook.Bronze), Judged{Publisher: "courier"}
	if l := line(taken(pre).Report(p, who, nil), "closed"); l.Outcome != NotExercised || !strings.Contains(l.Reason, "still open") {
		t.Errorf("%+v", l)
	}
	for _, end := range []string{
		hookEvent(2, "PostToolUse", `,"tool_name":"t","metadata":{"tool_call_id":"c1"}`),
		hookEvent(2, "ErrorOccurred", `,"metadata":{"tool_call_id":"c1"}`), hookEvent(2, "SessionEnd", ""),
		`{"decision":{"verdict":"deny","session":"s1","tool_call_id":"c1"}}`,
	} {
		for _, order := range [][]string{{pre, end}, {end, pre}} {
			if l := line(taken(order...).Report(p, who, nil), "closed"); l.Outcome != Held {
				t.Errorf("%s: %+v", end, l)
			}
		}
	}
}

// TestOpenModelCalls: a model call that is still open has ended neither well nor badly. Model calls have
// no id; one that is delivered again is not another one.
func TestOpenModelCalls(t *testing.T) {
	pre, post := hookEvent(1, "PreLLMCall", ""), hookEvent(2, "PostLLMCall", "")
	p, who := named(t, agenthook.Silver), Judged{Publisher: "courier"}
	for _, c := range []struct {
		lines []string
		want  Outcome
	}{
		{[]string{pre}, NotExercised}, {[]string{pre, post}, Held}, {[]string{post, pre}, Held}, {[]string{pre, pre, post}, Held},
		{[]string{pre, hookEvent(3, "PreLLMCall", ""), post, post}, NotExercised},
		{[]string{pre, hookEvent(3, "ErrorOccurred", "")}, Held}, {[]string{pre, hookEvent(3, "ErrorOccurred", `,"metadata":{"tool_call_id":"c1"}`)}, NotExercised},
		{[]string{pre, hookEvent(3, "SessionEnd", "")}, Held}, // its end is what the finding is about
	} {
		if l := line(taken(c.lines...).Report(p, who, nil), "llm-pairs"); l.Outcome != c.want {
			t.Errorf("%s: %+v", c.lines, l)
		}
	}
}

// TestUnanswered: a request about a subscription that has no answer yet has neither succeeded nor failed.
func TestUnanswered(t *testing.T) {
	const (
		ask    = `{"type":"subscription.request","protocol_version":"1.0.0","capabilities":{}}`
		other  = `{"type":"subscription.request","protocol_version":"1.0.0","capabilities":{"languages":["en"]}}`
		yes    = `{"type":"subscription.accepted","subscription_id":"sub_1","protocol_version":"1.0.0","capabilities":{}}`
		renews = `{"type":"subscription.renegotiate","subscription_id":"sub_1","capabilities":{"languages":["de"]}}`
	)
	p, who := named(t, aaep.Level3), Judged{Publisher: "courier"}
	for _, c := range []struct {
		lines                  []string
		answered, renegotiated Outcome
	}{
		{[]string{ask}, NotExercised, NotExercised}, {[]string{ask, yes}, Held, NotExercised}, {[]string{yes, ask}, Held, NotExercised},
		{[]string{ask, ask, yes}, Held, NotExercised}, {[]string{ask, other, yes}, NotExercised, NotExercised},
		{[]string{ask, yes, renews}, NotExercised, NotExercised}, {[]string{ask, yes, renews, yes}, Held, Held},
	} {
		tally := New()
		for _, text := range c.lines {
			tally.AddEvent("aaep", "courier", "", []byte(text))
		}
		r := tally.Report(p, who, nil)
		if got := [2]Outcome{line(r, "answers").Outcome, line(r, "renegotiation").Outcome}; got != [2]Outcome{c.answered, c.renegotiated} {
			t.Errorf("%s: %s", c.lines, got)
		}
	}
}

// TestStamped: who claims to have waited must carry the verdict, or say that its
// fail mode fired, whatever came first.
func TestStamped(t *testing.T) {
	pre := hookEvent(1, "PreToolUse", `,"tool_name":"t","evidence_phase":"pre_commit","metadata":{"tool_call_id":"c1"}`)
	stamped := hookEvent(1, "PreToolUse", `,"tool_name":"t","evidence_phase":"pre_commit","metadata":{"tool_call_id":"c1","admission_verdict":{"verdict":"allow"}}`)
	failed := hookEvent(2, "ErrorOccurred", `,"metadata":{"tool_call_id":"c1","error_type":"admission_fail_mode","fail_mode_triggered":true,"outcome":"deny"}`)
	for _, tc := range []struct {
		lines []string
		want  Outcome
	}{
		{[]string{pre}, Broken}, {[]string{stamped}, Held}, {[]string{pre, stamped}, Held}, {[]string{stamped, pre}, Held},
		{[]string{pre, failed}, Held}, {[]string{failed, pre}, Held}, {[]string{failed}, NotExercised},
	} {
		r := taken(tc.lines...).Report(named(t, agenthook.AdmissionBound), Judged{Publisher: "courier"}, nil)
		if l := line(r, "recorded"); l.Outcome != tc.want {
			t.Errorf("%s: %s, want %s", tc.lines, l.Outcome, tc.want)
		}
	}
}

// TestFindings: what stands breaks, what was taken back does not, hints break
// only what asks for them, and a rule that was off leaves it undecided.
func TestFindings(t *testing.T) {
	p, who := named(t, agenthook.Silver), Judged{Publisher: "courier"}
	post := hookEvent(1, "PostLLMCall", "")
	find := func(tally *Tally, f events.Finding) *Tally {
		f.Source, f.Session = "courier", "s1"
		tally.AddFinding(f)
		return tally
	}
	hint := events.Finding{FindingID: "f1", Rule: "AH-C-058", Severity: events.SeverityInfo, Seqs: []uint64{7}}
	if l := line(find(taken(post), hint).Report(p, who, nil), "llm-figures"); l.Outcome != Broken || !slices.Equal(l.Seqs, []uint64{7}) {
		t.Errorf("a hint that the tier demands: %+v", l)
	}
	hint.Rule = "AH-C-057"
	if l := line(find(taken(post, hookEvent(2, "PreLLMCall", "")), hint).Report(p, who, nil), "llm-pairs"); l.Outcome != Held {
		t.Errorf("a hint: %+v", l)
	}
	bad := events.Finding{FindingID: "f2", Rule: "AH-C-004", Severity: events.SeverityMedium}
	tally := find(taken(post), bad)
	if r := tally.Report(p, who, nil); r.Outcome != NotMet || r.Includes.Outcome != NotMet || line(*r.Includes, "uuid").Count != 1 {
		t.Errorf("%+v", r)
	}
	find(tally, events.Finding{FindingID: "f3", Rule: "AH-C-004", Severity: events.SeverityInfo, Retracts: "f2"})
	if r := tally.Report(p, who, nil); line(*r.Includes, "uuid").Outcome != Held {
		t.Errorf("taken back: %+v", line(*r.Includes, "uuid"))
	}
	tally.MarkRuleOff("AH-C-004")
	if l := line(tally.Report(named(t, agenthook.Bronze), who, nil), "uuid"); l.Outcome != Undecidable || l.Reason == "" {
		t.Errorf("switched off: %+v", l)
	}
}

// TestOwnRules: a rule that holds in every protocol breaks a profile only through
// calls of its protocol.
func TestOwnRules(t *testing.T) {
	tally := taken(hookEvent(1, "PostToolUse", `,"tool_name":"t","metadata":{"tool_call_id":"c1"}`))
	tally.AddEvent(subject.ProtoAAEP, "courier", "", []byte(`{"type":"aaep:agent.tool.invoked","session_id":"sess_1"}`))
	f := events.Finding{FindingID: "f1", Rule: "executed_without_verdict", Severity: events.SeverityHigh, Source: "courier", Session: "sess_1"}
	tally.AddFinding(f)
	p, who := named(t, agenthook.AdmissionBound), Judged{Publisher: "courier"}
	if l := line(tally.Report(p, who, nil), "waits"); l.Outcome == Broken {
		t.Errorf("an AAEP call breaks it: %+v", l)
	}
	f.Session = "s1"
	tally.AddFinding(f)
	if l := line(tally.Report(p, who, nil), "waits"); l.Outcome != Broken || l.Count != 1 {
		t.Errorf("%+v", l)
	}
}

// TestBounded: a session's memory is bounded, and the report says that it was
// not enough.
func TestBounded(t *testing.T) {
	tally := New()
	for i := range 2 * profile.MaxCalls {
		tally.AddEvent(subject.ProtoAgentHook, "", "", []byte(hookEvent(i, "PreToolUse", fmt.Sprintf(`,"tool_name":"t","evidence_phase":"pre_commit","metadata":{"tool_call_id":"c%d"}`, i))))
	}
	if r := tally.Report(named(t, agenthook.Bronze), Judged{Publisher: "courier"}, nil); !r.Results[0].Partial {
		t.Error("the report does not say so")
	}
}

// TestTenants: a tally is one tenant's, and another's switches do not count.
func TestTenants(t *testing.T) {
	tally := New()
	space := subject.Space{}
	for _, tenant := range []string{"acme", "other"} {
		tally.AddMessage(space, "acme", events.LogMessage{Subject: space.Event(tenant, "rt-"+tenant, "agenthook", "s1", "SessionStart"), Body: []byte(hookEvent(1, "SessionStart", ""))})
		change, _ := events.Encode(events.RulesChange{Tenant: tenant, Rules: map[string]string{"rule-" + tenant: events.RuleOff, "warned": events.RuleWarn}})
		tally.AddMessage(space, "acme", events.LogMessage{Subject: space.Control("GOV", events.ControlRules), Body: change})
	}
	if got := tally.Publishers(subject.ProtoAgentHook); !slices.Equal(got, []Judged{{Publisher: "rt-acme"}}) || !tally.rulesOff["rule-acme"] || len(tally.rulesOff) != 1 {
		t.Errorf("%v, off %v", got, tally.rulesOff)
	}
}

// FuzzEvent: whatever is published is counted, and judged in the same way again.
func FuzzEvent(f *testing.F) {
	f.Add(true, []byte(hookEvent(1, "PreToolUse", `,"metadata":{"tool_call_id":"c1","risk":{},"web":{}}`)))
	f.Add(false, []byte(`{"type":"aaep:agent.tool.invoked","session_id":"sess_1","producer":{"agent_id":"a"},"irreversible":true}`))
	f.Add(false, []byte(`{"type":"confirmation.reply","reply_token":"rpl_1","decision":"accept"}`))
	f.Add(true, []byte(`{"decision":{"verdict":"deny"}}`))
	f.Fuzz(func(t *testing.T, hook bool, b []byte) {
		protocol := subject.ProtoAAEP
		if hook {
			protocol = subject.ProtoAgentHook
		}
		play := func() string {
			tally := TallyRecording(protocol, []json.RawMessage{b, b}, nil)
			out := ""
			for _, p := range Profiles() {
				for _, s := range tally.Publishers(p.Protocol) {
					r, err := json.Marshal(tally.Report(p, s, nil))
					if err != nil {
						t.Fatal(err)
					}
					out += string(r)
				}
			}
			return out
		}
		if once, again := play(), play(); once != again {
			t.Error("not the same again")
		}
	})
}

// TestLacking: what lacks a profile is scored as lacking it, and not as having shown
// nothing of it.
func TestLacking(t *testing.T) {
	const tool = `,"tool_name":"t"`
	plain := []string{hookEvent(1, "PreToolUse", tool+`,"metadata":{}`), hookEvent(2, "PostToolUse", tool+`,"metadata":{}`)}
	observed := []string{hookEvent(1, "PreToolUse", tool+`,"evidence_phase":"observational","metadata":{"tool_call_id":"c1"}`)}
	attested, recorded := hookEvent(4, "SessionStart", `,"metadata":{"runtime_attestation":{"claims":{"tool_calls_are_runtime_gated":true}}}`), `{"decision":{"verdict":"allow","event_id":"00000000-0000-4000-8000-000000000001","session":"s1"}}`
	gated := hookEvent(3, "PreToolUse", tool+`,"evidence_phase":"pre_commit","metadata":{"tool_call_id":"c2","admission_verdict":{"verdict":"allow"}}`)
	for _, tc := range []struct {
		name, profile, id string
		lines             []string
		want              Outcome
	}{
		{"no phase", agenthook.AdmissionBound, "phase", plain, Broken},
		{"no verdict", agenthook.AdmissionBound, "recorded", plain, Broken},
		{"no id", agenthook.AdmissionBound, "call-id", plain, Broken},
		{"no block before", agenthook.ActionGovernance, "before", plain, Broken},
		{"no block after", agenthook.ActionGovernance, "after", plain, Broken},
		{"only observed", agenthook.AdmissionBound, "phase", observed, Broken},
		{"observed beside what waits", agenthook.AdmissionBound, "phase", append([]string{gated}, observed...), Held},
		{"waits, and carries its verdict", agenthook.AdmissionBound, "recorded", []string{gated}, Held},
		{"a risk, and no identity", agenthook.ActionGovernance, "before", []string{hookEvent(1, "PreToolUse", tool+`,"metadata":{"tool_call_id":"c1","risk":{"risk_class":"write"}}`)}, Held}, // the finding says the rest
		{"an execution block", agenthook.ActionGovernance, "after", []string{hookEvent(2, "PostToolUse", tool+`,"metadata":{"tool_call_id":"c1","execution":{"outcome":"succeeded"}}`)}, Held},
		{"a claimed gate, and no verdict on record", agenthook.AdmissionBound, "gate", append([]string{attested}, plain...), NotExercised},
		{"a claimed gate, and a verdict on record", agenthook.AdmissionBound, "gate", append([]string{attested, recorded}, plain...), Held},
		{"no tool calls", agenthook.ActionGovernance, "before", []string{hookEvent(1, "UserPromptSubmit", "")}, NotExercised},
	} {
		r := taken(tc.lines...).Report(named(t, tc.profile), Judged{Publisher: "courier"}, nil)
		l := line(r, tc.id)
		if l.Outcome != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, l.Outcome, tc.want)
		}
		if tc.id == "gate" && tc.want == NotExercised && l.What != "recorded verdicts" {
			t.Errorf("%s: it lacks %q", tc.name, l.What)
		}
		if tc.want == Broken && r.Outcome != NotMet {
			t.Errorf("%s: the profile is %s", tc.name, r.Outcome)
		}
	}
}

// TestRecordingWithoutPublishers: answers alone count for no publisher; the producer that accepts
// a subscription is one.
func TestRecordingWithoutPublishers(t *testing.T) {
	for _, tc := range []struct{ protocol, line, want string }{
		{subject.ProtoAgentHook, `{"decision":{"verdict":"deny","event_id":"e1","tool_call_id":"c1"}}`, ""},
		{subject.ProtoAAEP, `{"decision":{"verdict":"deny","event_id":"e1","tool_call_id":"c1"}}`, ""},
		{subject.ProtoAAEP, `{"type":"subscription.accepted","subscription_id":"sub_1","producer":{"agent_id":"courier"}}`, "courier"},
	} {
		if got := TallyRecording(tc.protocol, []json.RawMessage{[]byte(tc.line)}, nil).Publishers(tc.protocol); len(got) != 1 || got[0].Publisher != tc.want {
			t.Errorf("%s %s: %+v", tc.protocol, tc.line, got)
		}
	}
}
