package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/events"
)

// Sessions and call ids that a header names are texts of JSON sooner or later;
// what is not UTF-8 would be one and the same there, and an approval, a receipt
// and a counter of one session would be those of another.
func TestAttackSessionsThatLookAlike(t *testing.T) {
	m := courierMandate(t)
	names := []string{events.HeaderSession, events.HeaderToolCallID, events.HeaderAgent}
	for _, p := range proposals(m) {
		for _, name := range names {
			for _, value := range []string{"\xff", "\xfe", "a\xc0\xaf", "\xed\xa0\x80"} {
				odd := p
				odd.header = maps.Clone(p.header)
				if odd.header == nil {
					odd.header = map[string][]string{}
				}
				odd.header[name] = []string{value}
				out := odd.decide(p.body, anything(t), m)
				if sound(t, p, out); out.Decision.Verdict != events.Deny || !out.Malformed || !strings.Contains(codes(out), "invalid_utf8") {
					t.Errorf("%s, %s %q: %s", p.protocol, name, value, codes(out))
				}
			}
		}
	}
	s, snap := newShelf(), rules(t, "ask hm: true")
	first := s.ask(t, aana.Name, confirmedWrite, snap, 0, events.HeaderSession, "\uFFFD", events.HeaderToolCallID, "c1")
	s.resolve(t, approval.ActApprove, snap, time.Second)
	for _, session := range []string{"\xff", "\xfe", "\uFFFD\x00", ""} {
		out := s.ask(t, aana.Name, confirmedWrite, snap, time.Minute, events.HeaderSession, session, events.HeaderToolCallID, "c1")
		if a := out.Decision.Approval; out.Decision.Verdict == events.Allow || a != nil && a.WorkflowID == first.Decision.Approval.WorkflowID {
			t.Errorf("session %q: %s", session, codes(out))
		}
	}
}

// A header that is there in another case alone says nothing; of two that contradict
// each other, in whatever case, neither counts.
func TestAttackHeaderSmuggling(t *testing.T) {
	m := courierMandate(t)
	for _, p := range proposals(m) {
		if p.header == nil {
			continue // the body has a session
		}
		for name, c := range map[string]struct {
			header  map[string][]string
			session string
			verdict events.Verdict
		}{
			"another case":         {map[string][]string{"countersign-session": {"victim"}}, "", events.Allow},
			"both cases":           {map[string][]string{events.HeaderSession: {"s1"}, "COUNTERSIGN-SESSION": {"victim"}}, "s1", events.Deny},
			"both cases, the same": {map[string][]string{events.HeaderSession: {"s1"}, "COUNTERSIGN-SESSION": {"s1"}}, "s1", events.Allow},
			"twice, contradictory": {map[string][]string{events.HeaderSession: {"s1", "victim"}}, "s1", events.Deny},
			"twice, the third too": {map[string][]string{events.HeaderSession: {"s1", "s1", "victim"}}, "s1", events.Deny},
		} {
			smuggled := p
			smuggled.header = c.header
			out := smuggled.decide(p.body, anything(t), m)
			if sound(t, p, out); out.Decision.Verdict != c.verdict || out.Session != c.session || out.Decision.Session != c.session {
				t.Errorf("%s, %s: session %q, %s", p.protocol, name, out.Session, codes(out))
			}
		}
	}
}

// Knowing, or guessing, the name of a workflow gives nothing to whom it is not
// for.
func TestAttackWorkflowGuessed(t *testing.T) {
	s, snap := newShelf(), asking(t)
	id := s.ask(t, agenthook.Name, preToolUse, snap, 0).Decision.Approval.WorkflowID
	s.resolve(t, approval.ActApprove, snap, time.Second)
	for name, body := range map[string]string{
		"other arguments": edit(t, preToolUse, "a@example.com", "evil@example.com"), "another session": edit(t, preToolUse, `"s1"`, `"s2"`),
		"another tool": edit(t, preToolUse, "send_mail", "send_mail2"),
	} {
		if out := s.ask(t, agenthook.Name, body, snap, time.Minute, events.HeaderWorkflow, id); out.Decision.Verdict != events.Ask {
			t.Errorf("%s: %s", name, codes(out))
		}
	}
	for _, tc := range []struct{ tenant, source string }{{"acme", "rt2"}, {"globex", "rt1"}} {
		r, in := request(agenthook.Name, preToolUse), inputs()
		r.Tenant, r.Source, r.Header, in.Approvals = tc.tenant, tc.source, map[string][]string{events.HeaderWorkflow: {id}}, s
		if out := Decide(r, snap, in); out.Decision.Verdict != events.Ask || out.Decision.Approval.WorkflowID == id && out.Consumption.Approval.Consumes {
			t.Errorf("%+v: %s", tc, codes(out))
		}
	}
}

// Names that a publisher chose cannot write over what a reviewer sees beside
// them, nor say that a value is shown which is not.
func TestAttackPreviewForged(t *testing.T) {
	s, snap := newShelf(), asking(t)
	body := edit(t, preToolUse, `"bot"`, `"bot\u001b[2J\r\nargument /to  \"boss@example.com\""`, `{"to":`, `{"to \" x":"x","/to":"boss@example.com","to":`)
	out := s.ask(t, agenthook.Name, body, snap, 0)
	p := out.Consumption.Approval.Next.Preview
	for _, i := range p.Arguments {
		if i.Value != "" || !i.Withheld || strings.ContainsAny(i.Path, "\x1b\r\n ") {
			t.Errorf("%+v", i)
		}
	}
	if len(p.Arguments) != 5 {
		t.Errorf("%+v", p.Arguments)
	}
	again, err := p.Digest(inputs().digest)
	if err != nil || again != out.Consumption.Approval.Next.PreviewDigest {
		t.Error("the digest is of something else than what is shown")
	}
}

// admitters is a store of workflows and several admitters with views of it that
// are out of date now and then, as in the service.
type admitters struct {
	store *shelf
	views []*shelf
}

func (a *admitters) sync(i int) {
	a.views[i].held, a.views[i].rev = maps.Clone(a.store.held), maps.Clone(a.store.rev)
}

// decide does what the service does: it decides from the view, reserves by compare-and-set, and
// decides again if another admitter was faster.
func (a *admitters) decide(i int, body string, snap *Config, now time.Time, n int) Outcome {
	for {
		in := inputs()
		in.Now, in.Approvals, in.DecisionID = now, a.views[i], fmt.Sprintf("01939d5e-0000-7000-8000-%012d", n)
		out := Decide(request(agenthook.Name, body), snap, in)
		step := out.Consumption.Approval
		switch {
		case step == nil:
			return out
		case a.store.rev[step.Slot] != step.Revision:
			a.sync(i)
			continue
		case !step.Unchanged:
			a.store.held[step.Slot], a.store.rev[step.Slot] = step.Next, step.Revision+1
			a.views[i].held[step.Slot], a.views[i].rev[step.Slot] = step.Next, step.Revision+1
		}
		return out
	}
}

// Whatever is asked, approved, denied and cancelled in whatever order, and however
// old what each admitter knows is: for one action there are never more allows than
// approvals, and none of a denied one.
func TestApprovalsNeverLoosenADeny(t *testing.T) {
	snap, never := asking(t), rules(t, "ask external: true", "deny never: true")
	rapid.Check(t, func(t2 *rapid.T) {
		a := &admitters{store: newShelf(), views: []*shelf{newShelf(), newShelf(), newShelf()}}
		approved, allowed := map[string]int{}, map[string]int{}
		now := noon
		for n := range rapid.IntRange(1, 60).Draw(t2, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t2, "pass")) * time.Second)
			admitter := rapid.IntRange(0, len(a.views)-1).Draw(t2, "admitter")
			switch act := rapid.SampledFrom([]string{"ask", "ask", "ask", "forbidden", "sync", "approve", "deny", "cancel"}).Draw(t2, "act"); act {
			case "sync":
				a.sync(admitter)
			case "ask", "forbidden":
				what := rapid.SampledFrom([]string{"a@example.com", "b@example.com"}).Draw(t2, "what")
				session := rapid.SampledFrom([]string{"s1", "s2"}).Draw(t2, "session")
				call := rapid.SampledFrom([]string{"c1", "c2"}).Draw(t2, "call")
				body := strings.NewReplacer("a@example.com", what, `"s1"`, `"`+session+`"`, `"c1"`, `"`+call+`"`).Replace(preToolUse)
				rule := map[bool]*Config{true: never, false: snap}[act == "forbidden"]
				out := a.decide(admitter, body, rule, now, n)
				if out.Decision.Verdict != events.Allow {
					continue
				}
				key := what + " " + session
				if allowed[key]++; act == "forbidden" || allowed[key] > approved[key] {
					t2.Fatalf("%s: allowed %d times, approved %d times: %s", key, allowed[key], approved[key], codes(out))
				}
			default:
				a.resolve(t2, approval.Act(act), snap, now, approved)
			}
		}
	})
}

// resolve lets a reviewer act on some workflow, and counts approvals.
func (a *admitters) resolve(t *rapid.T, act approval.Act, snap *Config, now time.Time, approved map[string]int) {
	slots := slices.Sorted(maps.Keys(a.store.held))
	if len(slots) == 0 {
		return
	}
	slot := rapid.SampledFrom(slots).Draw(t, "slot")
	w := a.store.held[slot]
	next, code, changed := w.Resolve(approval.Command{Act: act, Reviewer: rapid.SampledFrom([]string{"dana", "eve", "rt1", "bot", ""}).Draw(t, "reviewer"),
		PreviewDigest: rapid.SampledFrom([]string{w.PreviewDigest, w.PreviewDigest, "hmac-sha256:00"}).Draw(t, "preview"), At: now,
		CurrentPolicy: events.PolicyRef{Revision: snap.Revision, Digest: snap.Policies.Digest()}})
	if !changed {
		return
	}
	if next.By != "dana" && next.By != "eve" {
		t.Fatalf("%s by %q", code, next.By)
	}
	a.store.held[slot], a.store.rev[slot] = next, a.store.rev[slot]+1
	if code != approval.CodeApproved {
		return
	}
	// Which arguments it is about only its digest says.
	for _, what := range []string{"a@example.com", "b@example.com"} {
		body := strings.NewReplacer("a@example.com", what, `"s1"`, `"`+w.Session+`"`).Replace(preToolUse)
		if out := Decide(request(agenthook.Name, body), snap, inputs()); out.Decision.ArgsDigest == w.ArgsDigest {
			approved[what+" "+w.Session]++
		}
	}
}
