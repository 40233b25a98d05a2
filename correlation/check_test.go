package correlation

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	hookconformance "github.com/countersign-dev/countersign/correlation/agenthook/conformance"
	"github.com/countersign-dev/countersign/correlation/conformance"
	"github.com/countersign-dev/countersign/correlation/conformance/profile"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

func recording(lines ...any) []json.RawMessage {
	var list []json.RawMessage
	for _, l := range lines {
		if s, ok := l.(string); ok {
			list = append(list, json.RawMessage(s))
		} else {
			list = append(list, encode(l))
		}
	}
	return list
}

func check(t testing.TB, protocol string, lines ...any) []events.Finding {
	t.Helper()
	found, err := Check(protocol, recording(lines...), CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// golden is an AgentHook pair as the action-governance profile wants it: asked,
// approved, executed as admitted.
func golden() (before, after tree) {
	approvalOf := func(status string) tree {
		return tree{"required": true, "status": status, "workflow_id": "wf-7", "action_id": "act-7"}
	}
	before = set(pre(1), "evidence_phase", "pre_commit")
	before = set(before, "metadata.admission_verdict", tree{"verdict": "ask", "policy_id": "payments", "decided_at": stamp(0)})
	pending := approvalOf("pending")
	pending["requested_at"], pending["expires_at"] = stamp(0), stamp(600)
	before = set(before, "metadata.approval", pending)
	after = set(post(2), "evidence_phase", "post_hoc")
	granted := approvalOf("approved")
	granted["decided_at"], granted["decision_ref"] = stamp(0.5), "ref-7"
	after = set(after, "metadata.approval", granted)
	return before, after
}

// sessionPrinted is a session as countersign session --json prints it: a request, a decision and
// events, and what was made of them, with the publisher that the broker knows.
func sessionPrinted(publisher string, before, decision, after tree) []any {
	step := func(seq int, kind string, body tree) tree {
		s := tree{"shard": "GOV@1", "seq": seq, "at": stamp(float64(seq)), "kind": kind, "messages_between": 0, "proved": false, "body": body}
		if kind == "event" || kind == "request" {
			s["publisher"], s["protocol"] = publisher, subject.ProtoAgentHook
		}
		return s
	}
	boxed := tree{"specversion": "1.0", "id": "x", "source": "x", "type": "x", "data": after}
	return []any{
		step(2, "request", before), step(3, "decision", decision), step(4, "event", before), step(5, "call", tree{"call_id": "call_1"}),
		set(step(6, "event", tree{"type": "aaep:agent.session.started"}), "protocol", subject.ProtoAAEP), set(step(7, "event", nil), "body", nil),
		step(8, "event", boxed), step(9, "finding", tree{"finding_id": "fnd_1"}),
	}
}

func decisionLine(d tree) tree { return tree{"decision": d} }

// TestCheckGolden: the golden pair is fine, and every change of it that
// agenthook.md section 4 derives is found.
func TestCheckGolden(t *testing.T) {
	before, after := golden()
	verdict := func(v string) tree {
		return decisionLine(tree{"verdict": v, "event_id": uuid(1), "session": "s1", "tool_call_id": "c1", "decided_at": stamp(0)})
	}
	noClaims := set(set(before, "metadata.admission_verdict", nil), "metadata.approval", nil)
	noApproval := set(after, "metadata.approval", nil)
	for _, tc := range []struct {
		name  string
		lines []any
		want  []string
	}{
		{"golden", []any{before, after}, nil},
		{"golden with its decisions", []any{noClaims, verdict("ask"), before, approvedLine(), after}, nil},
		{"golden, decision first", []any{verdict("ask"), before, approvedLine(), after}, nil},
		{"105 approved by its publisher only", []any{verdict("ask"), before, after}, []string{askPending}},
		{"allowed", []any{set(before, "metadata.admission_verdict.verdict", "allow"), noApproval}, nil},
		{"allowed by the record", []any{noClaims, verdict("allow"), noApproval}, nil},
		{"open at the end", []any{before}, nil},

		{"075 deny, then succeeded", []any{set(before, "metadata.admission_verdict.verdict", "deny"), after}, []string{despiteDeny}},
		{"075 deny, then failed", []any{set(before, "metadata.admission_verdict.verdict", "deny"), set(after, "metadata.execution.outcome", "failed")}, []string{despiteDeny}},
		{"075 deny by the record", []any{noClaims, verdict("deny"), noApproval}, []string{despiteDeny}},
		{"075 deny by a reply", []any{noClaims, tree{"event_id": uuid(1), "decision": "deny", "reason": "no"}, noApproval}, []string{despiteDeny}},
		{"deny, then denied", []any{set(before, "metadata.admission_verdict.verdict", "deny"), set(after, "metadata.execution.outcome", "denied")}, nil},
		{"076 ask, then succeeded without approval", []any{before, noApproval}, []string{askPending}},
		{"076 ask by the record, without approval", []any{noClaims, verdict("ask"), noApproval}, []string{askPending}},
		{"076 approval still pending", []any{before, set(after, "metadata.approval.status", "pending")}, []string{askPending}},
		{"076 approval denied", []any{before, set(after, "metadata.approval.status", "denied")}, []string{askPending}},
		{"approved by an event of its own", []any{before, resumed("approved", "wf-7"), noApproval}, nil},
		{"resumed for another workflow", []any{before, set(resumed("approved", "wf-8"), "metadata.tool_call_id", "c1"), noApproval}, []string{askPending}},
		{"078 nothing before", []any{after}, []string{orphan}},
		{"078 linked by the id it tries again only", []any{before, set(set(after, "metadata.tool_call_id", nil), "metadata.retry", tree{"previous_tool_call_id": "c1"})}, []string{schema}},
		{"078 another id, linked", []any{before, set(set(after, "metadata.tool_call_id", "c2"), "metadata.retry", tree{"previous_tool_call_id": "c1"})}, nil},
		{"080 changed without a reason", []any{before, set(after, "metadata.tool_input_executed.invoice", "B-1")}, []string{driftHigh}},
		{"080 changed with a reason", []any{before, set(set(after, "metadata.tool_input_executed.invoice", "B-1"), "metadata.execution.mutation_reason", "normalised")}, []string{driftReason}},
		{"080 changed though a receipt was bound", []any{noClaims, decisionLine(tree{"verdict": "allow", "event_id": uuid(1), "session": "s1", "tool_call_id": "c1",
			"args_digest": "sha256:" + plainDigest(before), "receipt_hash": "sha256:00"}), set(noApproval, "metadata.tool_input_executed.invoice", "B-1")}, []string{driftReceipt}},
		{"080 changed with a reason though a receipt was bound", []any{noClaims, decisionLine(tree{"verdict": "allow", "event_id": uuid(1), "session": "s1", "tool_call_id": "c1",
			"args_digest": "sha256:" + plainDigest(before), "receipt_hash": "sha256:00"}),
			set(set(noApproval, "metadata.tool_input_executed.invoice", "B-1"), "metadata.execution.mutation_reason", "normalised")}, []string{driftReason}},
		{"082 flipped to allow", []any{set(before, "metadata.admission_verdict.verdict", "allow"), verdict("ask"), after}, []string{forged, askPending}},
		{"082 no decision on record", []any{before, after, decisionLine(tree{"verdict": "allow", "session": "s1", "tool_call_id": "c9"})}, []string{noVerdict}},
		{"083 started before the verdict", []any{set(before, "metadata.admission_verdict.verdict", "allow"), verdictAt(verdict("allow"), 1.5), after}, []string{beforeIt}},
		{"083 started before the claimed verdict", []any{set(set(before, "metadata.admission_verdict.verdict", "allow"), "metadata.admission_verdict.decided_at", stamp(1.5)), after}, []string{beforeIt}},
		{"083 Post before Pre", []any{after, before}, nil},
		{"050 duplicate id, other body", []any{before, set(before, "tool_input.amount", 5), after}, []string{conflicting}},
		{"an older copy comes again", []any{before, set(before, "metadata.admission_verdict.verdict", "allow"), before, noApproval}, nil},
		{"050 the same again", []any{before, before, after, after}, nil},
		{"103 approved too late", []any{before, set(after, "metadata.approval.decided_at", stamp(900))}, []string{askPending}},
		{"103 run after the approval's time", []any{before, set(set(after, "timestamp", stamp(800)), "metadata.execution.started_at", stamp(790))}, []string{afterExpiry}},
		{"103 reported after the approval's time", []any{before, set(set(after, "timestamp", stamp(800)), "metadata.execution", tree{"outcome": "succeeded"})}, []string{afterExpiry0}},
		{"103 approval expired", []any{before, set(after, "metadata.approval.status", "expired")}, []string{askPending}},
		{"104 another action", []any{before, set(after, "metadata.approval.action_id", "act-8")}, []string{askPending}},
		{"104 another workflow", []any{before, set(after, "metadata.approval.workflow_id", "wf-8")}, []string{askPending}},
		{"session ended with the call open", []any{before, set(set(hook(9, "SessionEnd", 5), "tool_name", nil), "metadata", nil)}, []string{missingHook}},
		{"not JSON", []any{before, `{"event_id":`, after}, []string{schema}},
		{"an invalid announcement announces nothing", []any{set(before, "spin", true), after}, []string{schema, orphan}},
		{"an invalid completion completes nothing", []any{before, set(after, "spin", true)}, []string{schema}},
		{"no such verdict", []any{noClaims, verdict("perhaps"), noApproval}, []string{forged, noVerdict}},
		{"decision of the wrong shape", []any{noClaims, decisionLine(tree{"verdict": 7}), noApproval}, []string{forged, noVerdict}},
		{"another source's decision", []any{noClaims, decisionLine(tree{"verdict": "allow", "source": "other", "session": "s1", "tool_call_id": "c1"}), noApproval}, []string{noVerdict}},
		{"a publisher's decision on an event that names another source", []any{noClaims, decisionLine(tree{"verdict": "allow", "source": "rt1", "event_id": uuid(1), "session": "s1", "tool_call_id": "c1"}), noApproval}, nil},
		{"a publisher's denial of such an event", []any{noClaims, decisionLine(tree{"verdict": "deny", "source": "rt1", "event_id": uuid(1), "session": "s1", "tool_call_id": "c1"}), noApproval}, []string{despiteDeny}},
		{"of a session that was printed", sessionPrinted("rt1", noClaims, tree{"verdict": "allow", "source": "rt1", "session": "s1", "tool_call_id": "c1"}, noApproval), nil},
		{"of a session that was printed, denied", sessionPrinted("rt1", noClaims, tree{"verdict": "deny", "source": "rt1", "session": "s1", "tool_call_id": "c1"}, noApproval), []string{despiteDeny}},
		{"of a session that was printed, another publisher's", sessionPrinted("rt2", noClaims, tree{"verdict": "allow", "source": "rt1", "session": "s1", "tool_call_id": "c1"}, noApproval), []string{noVerdict}},
		{"another session's decision", []any{noClaims, decisionLine(tree{"verdict": "allow", "session": "s2", "tool_call_id": "c1"}), noApproval}, []string{noVerdict}},
		{"other arguments' decision", []any{noClaims, decisionLine(tree{"verdict": "allow", "tool_call_id": "c1", "args_digest": "sha256:" + plainDigest(set(before, "tool_input.amount", 5))}), noApproval}, []string{noVerdict, reused}},
		{"decision with an event id alone", []any{noClaims, decisionLine(tree{"verdict": "deny", "event_id": uuid(1)}), noApproval}, []string{despiteDeny}},
		{"decision with a call id alone", []any{noClaims, decisionLine(tree{"verdict": "deny", "tool_call_id": "c1"}), noApproval}, []string{despiteDeny}},
		{"decision after the fact", []any{noClaims, noApproval, verdict("allow")}, []string{afterTheFact}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wantRules(t, check(t, subject.ProtoAgentHook, tc.lines...), tc.want...)
		})
	}
}

// approvedLine is the decision that the golden pair was allowed by.
func approvedLine() tree {
	return decisionLine(tree{"verdict": "allow", "event_id": uuid(1), "session": "s1", "tool_call_id": "c1", "decided_at": stamp(0.6),
		"approval": tree{"workflow_id": "wf-7", "status": "approved", "decision_ref": "ref-7"}})
}

func resumed(status, workflow string) tree {
	e := set(hook(8, "ToolUseResumed", 1), "metadata.tool_call_id", nil)
	return set(e, "metadata.approval", tree{"required": true, "status": status, "workflow_id": workflow})
}

func verdictAt(line tree, seconds float64) tree {
	return set(line, "decision.decided_at", stamp(seconds))
}

func plainDigest(e tree) string {
	b, err := events.Encode(e["tool_input"])
	if err != nil {
		panic(err)
	}
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// TestCheckTime: a recording's time is its own, and --now lets more of it pass.
func TestCheckTime(t *testing.T) {
	before, after := golden()
	later := set(hook(5, "ModelResponse", 4000), "metadata", nil)
	wantRules(t, check(t, subject.ProtoAgentHook, before, later), missingHook)
	wantRules(t, check(t, subject.ProtoAgentHook, before, later, set(after, "timestamp", stamp(10))))
	found, err := Check(subject.ProtoAgentHook, recording(before), CheckOptions{Now: epoch.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	wantRules(t, found, missingHook)
	found, err = Check(subject.ProtoAgentHook, recording(before), CheckOptions{Now: epoch.Add(time.Hour), MissingAfter: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	wantRules(t, found)
	// A decision without a time at the very beginning is not infinitely old.
	wantRules(t, check(t, subject.ProtoAgentHook, decisionLine(tree{"verdict": "ask", "event_id": uuid(1), "session": "s1", "tool_call_id": "c1"}), before, approvedLine(), after))
}

// TestCheckProtocol: what cannot be checked is said.
func TestCheckProtocol(t *testing.T) {
	if _, err := Check("aump", nil, CheckOptions{}); !errors.Is(err, ErrProtocol) {
		t.Errorf("error %v", err)
	}
}

// TestParseRecording: the forms of a recording.
func TestParseRecording(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want []string
		bad  bool
	}{
		"array":           {in: ` [{"a":1}, {"a":2}] `, want: []string{`{"a":1}`, `{"a":2}`}},
		"empty array":     {in: `[]`},
		"nothing":         {in: " \n"},
		"lines":           {in: "{\"a\":1}\r\n\n{\"a\":2}", want: []string{`{"a":1}`, `{"a":2}`}},
		"broken line":     {in: "{\"a\":1}\n{\"a\":", want: []string{`{"a":1}`, `{"a":`}},
		"one, indented":   {in: "{\n \"a\": 1\n}\n", want: []string{"{\n \"a\": 1\n}"}},
		"text":            {in: "hello\nthere", want: []string{"hello", "there"}},
		"byte order mark": {in: "\xef\xbb\xbf{\"a\":1}", want: []string{`{"a":1}`}},
		"duplicate keys":  {in: `[{"a":1,"a":2}]`, want: []string{`{"a":1,"a":2}`}},
		"broken array":    {in: `[{"a":1},`, bad: true},
		"after an array":  {in: `[{"a":1}] x`, bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseRecording([]byte(tc.in))
			if (err != nil) != tc.bad || (err != nil && !errors.Is(err, ErrRecording)) {
				t.Fatalf("error %v", err)
			}
			texts := make([]string, len(got))
			for i, g := range got {
				texts[i] = string(g)
			}
			if !tc.bad && !slices.Equal(texts, tc.want) {
				t.Errorf("got %q, want %q", texts, tc.want)
			}
		})
	}
}

// TestReferenceProducer: a session as AAEP's reference producer emits it pairs cleanly. Its
// defects are that it invokes an irreversible action and asks the user afterwards
// (AAEP-C-100), continues without the answer, and ends with the question open. That no verdict
// is recorded is a finding once the recording has a decision.
func TestReferenceProducer(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(shared(), "upstream", "aaep", "session-from-reference-producer.json"))
	if err != nil {
		t.Skipf("upstream's recorded session is not there: %v", err)
	}
	lines, err := ParseRecording(b)
	if err != nil || len(lines) != 13 {
		t.Fatalf("%d events, %v", len(lines), err)
	}
	found, err := Check(subject.ProtoAAEP, lines, CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantRules(t, found)
	wantChecks(t, found, "AAEP-C-100/high", "AAEP-C-103/medium", "AAEP-C-124/low")
	late := slices.IndexFunc(found, func(f events.Finding) bool { return f.Rule == "AAEP-C-100" })
	if len(found[late].EventIDs) != 2 || !strings.Contains(found[late].Explanation, "late_confirmation") {
		t.Errorf("the finding is %+v", found[late])
	}
	elsewhere := json.RawMessage(`{"decision":{"verdict":"allow","session":"sess_other","tool_call_id":"call_1"}}`)
	found, err = Check(subject.ProtoAAEP, append([]json.RawMessage{elsewhere}, lines...), CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantRules(t, found, noVerdict)
	cut := slices.DeleteFunc(slices.Clone(lines), func(l json.RawMessage) bool { return strings.Contains(string(l), "tool.completed") })
	if found, err = Check(subject.ProtoAAEP, cut, CheckOptions{}); err != nil {
		t.Fatal(err)
	}
	wantRules(t, found, missingAAEP)
	wantChecks(t, found, "AAEP-C-100/high", "AAEP-C-124/low", "AAEP-C-065/medium", "AAEP-C-081/high", "AAEP-C-087/medium")
}

// TestExamples: the sample sessions of the repository that are meant to be fine
// are, and the rogue one is not.
func TestExamples(t *testing.T) {
	for file, want := range map[string][]string{
		"aaep-flight.jsonl": nil, "agenthook-mail.jsonl": nil, "agenthook-rogue.jsonl": {"AH-C-080/high"},
	} {
		b, err := os.ReadFile(filepath.Join("..", "examples", "sessions", file))
		if err != nil {
			t.Fatal(err)
		}
		lines, err := ParseRecording(b)
		if err != nil {
			t.Fatal(err)
		}
		protocol, _, _ := strings.Cut(file, "-")
		found, err := Check(protocol, lines, CheckOptions{})
		if err != nil {
			t.Fatal(err)
		}
		wantChecks(t, found, want...)
	}
}

// TestUpstreamPair: upstream's own golden pair of events is fine.
func TestUpstreamPair(t *testing.T) {
	dir := filepath.Join(shared(), "upstream", "agenthook", "examples")
	var lines []json.RawMessage
	for _, name := range []string{"pre-tool-use-action-governance-email-send.json", "post-tool-use-action-governance-email-send.json"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Skipf("upstream's examples are not there: %v", err)
		}
		lines = append(lines, b)
	}
	found, err := Check(subject.ProtoAgentHook, lines, CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantRules(t, found)
	wantChecks(t, found)
}

func shared() string {
	if dir := os.Getenv("COUNTERSIGN_SHARED"); dir != "" {
		return dir
	}
	return filepath.Join("..", "..", "shared")
}

// TestDriftSaysWhatStood: only what a recorded allow is about was admitted.
func TestDriftSaysWhatStood(t *testing.T) {
	before, after := golden()
	bare := set(set(before, "metadata.admission_verdict", nil), "metadata.approval", nil)
	ran := set(set(after, "metadata.approval", nil), "metadata.tool_input_executed.invoice", "B-1")
	ruling := func(v string) tree {
		return decisionLine(tree{"verdict": v, "event_id": uuid(1), "session": "s1", "tool_call_id": "c1", "decided_at": stamp(0)})
	}
	for _, tc := range []struct {
		name  string
		lines []any
		want  string
	}{
		{"announced", []any{bare, ran}, "with other arguments than were announced."},
		{"an allow that only the publisher claims", []any{set(bare, "metadata.admission_verdict", tree{"verdict": "allow"}), ran}, "with other arguments than were announced."},
		{"a recorded ask", []any{bare, ruling("ask"), ran}, "with other arguments than were requested."},
		{"a recorded allow", []any{bare, ruling("allow"), ran}, "with other arguments than were admitted."},
		{"another tool, announced", []any{bare, set(ran, "tool_name", "other")}, "was announced for one tool and ran \"other\"."},
		{"another tool, admitted", []any{bare, ruling("allow"), set(ran, "tool_name", "other")}, "was admitted for one tool and ran \"other\"."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found := check(t, subject.ProtoAgentHook, tc.lines...)
			i := slices.IndexFunc(found, func(f events.Finding) bool { return f.Rule == InputDrift })
			if i < 0 || !strings.HasSuffix(found[i].Explanation, tc.want) {
				t.Errorf("findings %+v, want one that ends in %q", found, tc.want)
			}
		})
	}
}

// tallied is a case of the corpus, its tally and its findings.
type tallied struct {
	tally *conformance.Tally
	found []events.Finding
}

// tallies tallies a case of the corpus, as a recording and as a log.
func (c corpusCase) tallies(t *testing.T) (list []tallied) {
	if c.only != "live" {
		var lines []json.RawMessage
		for n, short := range c.lines {
			if _, now := short["now"]; now {
				continue
			}
			switch e := complete(c.protocol, short, n).(type) {
			case string:
				lines = append(lines, json.RawMessage(e))
			default:
				lines = append(lines, encode(e))
			}
		}
		found := c.recorded(t)
		list = append(list, tallied{conformance.TallyRecording(c.protocol, lines, found), found})
	}
	if c.only != "recorded" {
		l := c.asLog(t)
		tally := conformance.New()
		for _, m := range l.msgs {
			tally.AddMessage(space, "acme", m)
		}
		for _, o := range l.run().outputs {
			tally.AddMessage(space, "acme", events.LogMessage{Subject: o.Subject, Body: o.Body})
		}
		list = append(list, tallied{tally, c.live(t)})
	}
	return list
}

func reports(tally *conformance.Tally, p profile.Profile) (list []conformance.Report) {
	for _, s := range tally.Publishers(p.Protocol) {
		list = append(list, tally.Report(p, s, nil))
	}
	return list
}

// TestConformanceOverCorpus: a broken check breaks every requirement that uses it, a kept
// check breaks none, and each requirement that a log can decide is held by one case and broken
// by another.
func TestConformanceOverCorpus(t *testing.T) {
	held, broken := map[string]bool{}, map[string]bool{}
	for _, c := range corpusCases(t) {
		for _, f := range c.tallies(t) {
			for _, p := range conformance.Profiles() {
				for _, r := range reports(f.tally, p) {
					for _, l := range r.Results {
						name := p.Name + "/" + l.ID
						held[name] = held[name] || l.Outcome == conformance.Held
						broken[name] = broken[name] || l.Outcome == conformance.Broken
						about := slices.ContainsFunc(l.Checks, func(id string) bool { return slices.Contains(c.checks, id) })
						if about && !c.violates && slices.ContainsFunc(l.Broke, known) {
							t.Errorf("%s %s: %s is broken by %v", c.protocol, c.name, name, l.Broke)
						}
					}
				}
			}
			c.mustBreak(t, f.tally, f.found)
		}
	}
	for _, p := range conformance.Profiles() {
		for _, q := range p.Requirements {
			name := p.Name + "/" + q.ID
			if decided(q) && !held[name] {
				t.Errorf("%s is held by no case", name)
			}
			if decided(q) && !broken[name] && len(q.Checks) > 0 {
				t.Errorf("%s is broken by no case", name)
			}
		}
	}
}

func decided(q profile.Requirement) bool {
	if q.Reason != "" {
		return false
	}
	return len(q.Checks) == 0 || slices.ContainsFunc(q.Checks, func(id string) bool { return known(id) })
}

func known(id string) bool {
	return checkRules[id] != nil || slices.ContainsFunc(ruleList, func(r *Rule) bool { return r.Name == id })
}

// mustBreak: what was found of a requirement's checks shows in the requirement.
func (c corpusCase) mustBreak(t *testing.T, tally *conformance.Tally, found []events.Finding) {
	for _, p := range conformance.Profiles() {
		made := reports(tally, p)
		for _, q := range p.Requirements {
			hit := slices.ContainsFunc(found, func(f events.Finding) bool {
				return slices.Contains(q.Checks, f.Rule) && (q.Hints || f.Severity != events.SeverityInfo)
			})
			shown := slices.ContainsFunc(made, func(r conformance.Report) bool {
				return slices.ContainsFunc(r.Results, func(l conformance.RequirementResult) bool { return l.ID == q.ID && l.Outcome == conformance.Broken })
			})
			if p.Protocol == c.protocol && q.BrokenBy == "" && hit != shown {
				t.Errorf("%s %s: %s/%s broken is %v", c.protocol, c.name, p.Name, q.ID, shown)
			}
		}
	}
}

// bronzeHeld are the requirements of the Bronze tier, beside those of the
// envelope, that the twenty-one scenarios show to be held. The others are not
// exercised, and the order of publication is for no log to decide.
var bronzeHeld = map[string]string{
	"1":  "prompt pre-llm post-llm response clock",
	"2":  "tool-name prompt response pre-tool post-tool clock announced closed",
	"3":  "prompt response clock",
	"4":  "prompt response clock",
	"5":  "prompt response clock",
	"6":  "tool-name response pre-tool post-tool clock announced closed",
	"7":  "tool-name response pre-tool error clock closed",
	"8":  "session-end prompt pre-llm error clock bounds",
	"9":  "tool-name session-end pre-tool post-tool clock bounds announced closed",
	"10": "session-start session-end prompt response clock bounds",
	"11": "session-start session-end prompt handoff clock bounds",
	"12": "session-end prompt response clock bounds",
	"13": "tool-name response pre-tool post-tool error clock announced closed",
	"14": "tool-name session-start session-end pre-tool post-tool clock bounds announced closed",
	"15": "prompt response clock",
	"16": "tool-name session-start session-end pre-tool post-tool clock bounds announced closed",
	"17": "tool-name pre-tool post-tool clock announced closed",
	"18": "pre-llm post-llm response clock",
	"19": "tool-name pre-tool post-tool clock announced closed",
	"20": "session-start session-end error clock bounds",
	"21": "tool-name pre-tool post-tool same-id clock announced closed",
}

// TestBronzeScenarios: the twenty-one scenarios of AgentHook's Bronze tier, each
// through the tier's score.
func TestBronzeScenarios(t *testing.T) {
	profile, _ := conformance.FindProfile(hookconformance.Bronze)
	n := 0
	for _, c := range corpusCases(t) {
		number, _, _ := strings.Cut(strings.TrimPrefix(c.name, "conforms "), " ")
		if c.protocol != subject.ProtoAgentHook || len(c.checks) > 0 || number == "" {
			continue
		}
		n++
		t.Run(c.name, func(t *testing.T) {
			for _, f := range c.tallies(t) {
				r := reports(f.tally, profile)[0]
				var held []string
				for _, l := range r.Results {
					if l.Outcome == conformance.Held && !l.Hard {
						held = append(held, l.ID)
					}
					if l.Hard && l.Outcome != conformance.Held {
						t.Errorf("%s is %s", l.ID, l.Outcome)
					}
				}
				if got := strings.Join(held, " "); got != bronzeHeld[number] {
					t.Errorf("it shows %q, want %q", got, bronzeHeld[number])
				}
				if r.Score.Broken != 0 || r.Score.Undecidable != 1 || r.Outcome != conformance.NotShown {
					t.Errorf("%+v: %s", r.Score, r.Outcome)
				}
			}
		})
	}
	if n != 21 {
		t.Errorf("%d scenarios", n)
	}
}
