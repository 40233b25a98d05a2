package format_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	mandates "github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/compliance/format"
	"github.com/countersign-dev/countersign/compliance/format/encode"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

func TestAANA(t *testing.T) {
	lines, _ := written(t, format.AANADecisionEvents, everything(t), nil)
	type short struct{ route, gate, candidate, blockers, keys, missing string }
	var got []short
	for _, line := range lines {
		o := loose(t, line).(map[string]any)
		got = append(got, short{o["route"].(string), o["gate_decision"].(string), o["candidate_gate"].(string), fmt.Sprint(o["hard_blockers"]), fmt.Sprint(o["proposed_argument_keys"]), fmt.Sprint(o["missing_evidence"])})
		if o["latency_ms"].(float64) != 1.5 || o["authorization_report"] != nil {
			t.Errorf("%s", line)
		}
	}
	const keys, blocker = "[[redacted_sensitive_key] note to]", "[write_missing_validation_or_confirmation]"
	want := []short{
		{"accept", "pass", "pass", "[]", keys, "[]"}, {"ask", "fail", "fail", blocker, keys, blocker}, {"defer", "fail", "fail", blocker, keys, blocker}, {"refuse", "fail", "fail", blocker, keys, blocker},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// A stricter tool policy is the blocker where the contract had none; an event
// that was not valid has the contract's own.
func TestAANABlockers(t *testing.T) {
	for _, tc := range []struct {
		name    string
		reasons []events.Reason
		want    string
	}{
		{"tool policy", []events.Reason{{Evaluator: "aana", Code: "write_has_explicit_confirmation"}, {Evaluator: "tool_policy", Code: "destructive"}}, "[destructive]"},
		{"not valid", []events.Reason{{Evaluator: "aana", Code: "schema_invalid", Path: "/x"}, {Evaluator: "aana", Code: "schema_invalid", Path: "/y"}}, "[schema_validation_failed]"},
		{"only the runtime is stricter", []events.Reason{{Evaluator: "aana", Code: "runtime_recommended_stricter_route"}, {Evaluator: "tool_policy", Code: "fine"}}, "[]"},
		{"a policy that only watches", []events.Reason{{Evaluator: "aana", Code: "evidence_pii_leak"}, {Evaluator: "tool_policy", Code: "x", Action: "warn"}}, "[evidence_pii_leak]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.decided("s", aanaRequest(`{}`), events.Decision{Protocol: "aana", Verdict: events.Deny, NativeVerdict: "refuse", Tool: "x", Reasons: tc.reasons})
			lines, _ := written(t, format.AANADecisionEvents, w.items, nil)
			if got := fmt.Sprint(loose(t, lines[0]).(map[string]any)["hard_blockers"]); got != tc.want {
				t.Errorf("blockers %s, want %s", got, tc.want)
			}
		})
	}
}

// Every class of retention keeps what it allows and no more, and the events of a
// mandate are numbered and chained.
func TestAUMPRetention(t *testing.T) {
	items := everything(t)
	for class, members := range map[string][]string{
		"none": {}, "summary_only": {"action", "paths"}, "hashes": {"action", "metadata", "paths"}, "full_transcript": {"action", "metadata", "paths"},
	} {
		t.Run(class, func(t *testing.T) {
			lines, _ := written(t, format.AUMPEvidence, items, keeps(class))
			previous := ""
			for n, line := range lines {
				o := bodyObject(t, line)
				var has []string
				for _, m := range []string{"action", "metadata", "paths"} {
					if o[m] != nil {
						has = append(has, m)
					}
				}
				if !slices.Equal(has, members) {
					t.Errorf("members %v, want %v: %s", has, members, line)
				}
				e, err := aump.DecodeEvidence(line, strictjson.DefaultLimits)
				ok(t, err)
				hash, err := aump.EventHash(o)
				ok(t, err)
				if e.Sequence != int64(n+1) || e.Hashes.PreviousEvent != previous || e.Hashes.Event != hash || e.Privacy.Retention != class || e.Privacy.ContainsPrivateFields {
					t.Errorf("event %d is not the next of its chain: %s", n, line)
				}
				previous = hash
			}
		})
	}
	unknown, _ := written(t, format.AUMPEvidence, items, nil)
	if o := bodyObject(t, unknown[0]); o["action"] != nil || !strings.Contains(string(unknown[0]), `"retention":"none"`) {
		t.Errorf("of an unknown mandate: %s", unknown[0])
	}
	if _, sum := written(t, format.AUMPEvidence, items, keeps("hashes", "deal_accepted")); sum.Lines != 0 || sum.Skipped[encode.SkippedNotRequired] != 4 {
		t.Errorf("events that the mandate does not want: %+v", sum)
	}
	if lines, _ := written(t, format.AUMPEvidence, items, keeps("hashes", "deal_accepted", "material_action_evaluated")); len(lines) != 4 {
		t.Errorf("%d events that the mandate wants", len(lines))
	}
}

// A mandate gets events of the types that it requires, as far as an evaluation is evidence of them.
func TestAUMPTypes(t *testing.T) {
	const sold = `"disclosures":[{"field":"purpose.summary","content":"tea"}],`
	for _, tc := range []struct {
		action, request string
		verdict         events.Verdict
		want            string
	}{
		{"accept_deal", "", events.Allow, "[deal_accepted]"},
		{"accept_deal", sold, events.Allow, "[disclosure_evaluated deal_accepted]"},
		{"accept_deal", "", events.Deny, "[deal_denied]"},
		{"accept_deal", "", events.Ask, "[escalation_requested]"},
		{"make_offer", "", events.Defer, "[escalation_requested]"},
		{"make_offer", "", events.Allow, "[offer_sent]"},
		{"make_offer", "", events.Deny, "[]"},
		{"counteroffer", "", events.Allow, "[]"}, // not required
		{"search_listings", "", events.Allow, "[]"},
	} {
		t.Run(tc.action+" "+string(tc.verdict), func(t *testing.T) {
			w := newWorld(t)
			w.decided("s", strings.Replace(aumpRequest(tc.action), `"proposed_action":{`, `"proposed_action":{`+tc.request, 1),
				events.Decision{Protocol: "aump", Verdict: tc.verdict, Tool: tc.action, Mandate: &events.MandateRef{ID: mandate, Hash: mandateHash}})
			lines, sum := written(t, format.AUMPEvidence, w.items, keeps("hashes", "offer_sent", "deal_accepted", "deal_denied", "disclosure_evaluated", "escalation_requested"))
			types, ids := []string{}, map[string]bool{}
			for _, line := range lines {
				e, err := aump.DecodeEvidence(line, strictjson.DefaultLimits)
				ok(t, err)
				types, ids[e.ID] = append(types, e.EventType), true
			}
			if fmt.Sprint(types) != tc.want || len(ids) != len(types) {
				t.Errorf("%v %v, want %s", types, ids, tc.want)
			}
			if want := uint64(max(0, 1-len(types))); sum.Skipped[encode.SkippedNotRequired] != want {
				t.Errorf("%+v", sum)
			}
		})
	}
}

// A call of another protocol under a mandate is evidence of the mandate, in the same chain. Its tool is no type of an action.
func TestAUMPOfOtherProtocols(t *testing.T) {
	w, under := newWorld(t), &events.MandateRef{ID: mandate, Hash: mandateHash}
	for _, d := range []events.Decision{
		{Protocol: "agenthook", Verdict: events.Allow, Tool: "accept_deal", ToolCallID: "c1", Mandate: under},
		{Protocol: "aump", Verdict: events.Allow, Tool: "accept_deal", ToolCallID: "c2", Mandate: under},
		{Protocol: "aaep", Verdict: events.Ask, Tool: "accept_deal", ToolCallID: "c3", Mandate: under},
		{Protocol: "agenthook", Verdict: events.Allow, Tool: "accept_deal", ToolCallID: "c4"},
	} {
		w.decided("s", aumpRequest("accept_deal"), d)
	}
	lines, _ := written(t, format.AUMPEvidence, w.items, keeps("hashes", "deal_accepted", "escalation_requested", "material_action_evaluated"))
	var got []string
	for n, line := range lines {
		e, err := aump.DecodeEvidence(line, strictjson.DefaultLimits)
		ok(t, err)
		got = append(got, fmt.Sprint(e.EventType, " ", bodyObject(t, line)["action"] != nil))
		if e.Sequence != int64(n+1) {
			t.Errorf("%d: %s", n, line)
		}
	}
	if want := []string{"material_action_evaluated false", "deal_accepted true", "material_action_evaluated true", "escalation_requested false", "material_action_evaluated false"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// aumpMandates are mandates of our own with the event types that the published sample mandates require, and for each
// type what it takes to get a line of it: an action with its verdict, or nothing for what the runtime reports.
var aumpMandates = map[string]map[string]struct {
	action  string
	verdict events.Verdict
}{
	"marketplace-buyer": {
		"offer_sent": {"make_offer", events.Allow}, "counteroffer_received": {}, "deal_accepted": {"accept_deal", events.Allow}, "deal_denied": {"accept_deal", events.Deny},
		"disclosure_evaluated": {"disclose", events.Allow}, "escalation_requested": {"counteroffer", events.Ask},
	},
	"marketplace-seller": {"listing_created": {"create_listing", events.Allow}, "offer_received": {}, "counteroffer_sent": {"make_counteroffer", events.Allow}, "approval_requested": {"accept_deal", events.Ask}},
	"delegated-shopping": {"cart_created": {"create_cart", events.Allow}, "checkout_presented": {}, "ap2_intent_created": {"create_ap2_intent", events.Allow}, "approval_requested": {"complete_checkout", events.Ask}},
}

// aumpReport is an evidence event that a runtime publishes.
func aumpReport(m *mandates.Mandate, name string) []byte {
	return fmt.Appendf(nil, `{"aump":{"version":"0.1.0","type":"evidence_event"},"id":"aump_ev_1","mandate_ref":{"id":%q,"hash":%q,"version":"0.1.0"},"sequence":1,"created_at":"2026-11-20T06:42:00Z",
		"event_type":%q,"summary":"PLAN-FOR-THE-MERGER","result":"received","actor":{"role":"counterparty","id":"press@newspaper.example"},"privacy":{"retention":"hashes","contains_private_fields":false}}`, m.ID, m.Hash, name)
}

// A mandate that requires the types of a published sample mandate gets a line of each, and of no other.
func TestAUMPSampleMandatesGetTheirLines(t *testing.T) {
	courier, err := os.ReadFile(filepath.Join("..", "..", "examples", "mandates", "courier.json"))
	ok(t, err)
	for name, required := range aumpMandates {
		t.Run(name, func(t *testing.T) {
			list, err := json.Marshal(slices.Sorted(maps.Keys(required)))
			ok(t, err)
			m, err := mandates.Compile(bytes.Replace(courier, []byte(`"events_required": []`), fmt.Appendf(nil, `"events_required": %s`, list), 1), nil)
			ok(t, err)
			if m.Violations != nil || len(m.Evidence.EventsRequired) != len(required) {
				t.Fatalf("not a mandate: %v", m.Violations)
			}
			w := newWorld(t)
			for _, event := range slices.Sorted(maps.Keys(required)) {
				does := required[event]
				if does.action == "" {
					w.log(subject.Space{}.Event(tenant, "runtime-1", "aump", "s", event), nil, aumpReport(m, event))
					continue
				}
				request := strings.NewReplacer(mandate, m.ID, mandateHash, m.Hash).Replace(aumpRequest(does.action))
				if event == "disclosure_evaluated" {
					request = strings.Replace(request, `"proposed_action":{`, `"proposed_action":{"disclosures":[{"field":"purpose.summary","content":"tea"}],`, 1)
				}
				w.decided("s", request, events.Decision{Protocol: "aump", Verdict: does.verdict, Tool: does.action, Mandate: &events.MandateRef{ID: m.ID, Hash: m.Hash}})
			}
			for _, unwanted := range []string{"transcript_kept", "deal_accepted", "material_action_evaluated", ""} { // not required, or known from decisions
				w.log(subject.Space{}.Event(tenant, "runtime-1", "aump", "s", "x"), nil, aumpReport(m, unwanted))
			}
			w.log(subject.Space{}.Event(tenant, "runtime-1", "aump", "s", "x"), nil, []byte(`{"event_type":"offer_received"}`))
			lines, _ := written(t, format.AUMPEvidence, w.items, func(id, hash string) (encode.Mandate, bool) {
				return encode.Mandate{Retention: m.Evidence.Retention, EventsRequired: m.Evidence.EventsRequired}, id == m.ID && hash == m.Hash
			})
			got := map[string]string{}
			for n, line := range lines {
				judge(t, format.AUMPEvidence, line)
				e, err := aump.DecodeEvidence(line, strictjson.DefaultLimits)
				ok(t, err)
				got[e.EventType] = e.Result
				for _, secret := range planted {
					if e.Sequence != int64(n+1) || bytes.Contains(line, []byte(secret)) {
						t.Errorf("%s", line)
					}
				}
			}
			want := map[string]string{}
			for event, does := range required {
				want[event] = map[events.Verdict]string{events.Allow: "allowed", events.Ask: "requires_escalation", events.Deny: "denied", "": "recorded"}[does.verdict]
			}
			if !maps.Equal(got, want) || len(lines) != len(want) {
				t.Errorf("%d lines, %v, want %v", len(lines), got, want)
			}
		})
	}
}

// The types above are those of the published sample mandates.
func TestAUMPSampleMandates(t *testing.T) {
	shared := cmp.Or(os.Getenv("COUNTERSIGN_SHARED"), filepath.Join("..", "..", "..", "shared"))
	for name, required := range aumpMandates {
		text, err := os.ReadFile(filepath.Join(shared, "upstream", "aump", "examples", name+".json"))
		if err != nil {
			t.Skipf("the published mandates are not here (%v); set COUNTERSIGN_SHARED to the folder that holds upstream/", err)
		}
		m, err := aump.DecodeMandate(text, strictjson.DefaultLimits)
		ok(t, err)
		if want := slices.Sorted(slices.Values(m.Evidence.EventsRequired)); !slices.Equal(want, slices.Sorted(maps.Keys(required))) {
			t.Errorf("%s requires %v", name, want)
		}
	}
}

// The verdict in an event is the decision record's, whatever the publisher wrote
// there.
func TestAgentHookStamp(t *testing.T) {
	lines, _ := written(t, format.AgentHookEvidence, everything(t), nil)
	for i, want := range []string{"allow", "ask", "ask", "deny"} {
		o := bodyObject(t, lines[i])
		meta := o["metadata"].(map[string]any)
		v := meta["admission_verdict"].(map[string]any)
		if v["verdict"] != want || v["subscriber"] != "countersign" || v["policy_id"] != "mail" || v["reason"] != "rule_matched" {
			t.Errorf("stamped %v, want %s", v, want)
		}
		if got := fmt.Sprint(meta["redaction"]); !strings.Contains(got, "tool_input.password") || strings.Count(got, "tool_input.to") != 1 {
			t.Errorf("redaction: %s", got)
		}
	}
}

func TestAIOC(t *testing.T) {
	items := everything(t)
	lines, _ := written(t, format.AIOCGovernance, items, nil)
	var types []string
	for _, line := range lines {
		o := loose(t, line).(map[string]any)
		types = append(types, o["type"].(string)+" "+o["severity"].(string)+" "+o["subject"].(map[string]any)["kind"].(string))
	}
	allow, ask, deny := "aioc.policy.allowed info ", "aioc.approval.required warn approval", "aioc.policy.denied warn "
	want := []string{allow + "tool", allow + "handoff", ask, ask, ask, ask, deny + "tool", deny + "handoff", "aioc.run.completed info run"}
	if !slices.Equal(types, want) {
		t.Errorf("types %q", types)
	}
	runs, _ := written(t, format.AIOCRun, items, nil)
	first, second := loose(t, runs[0]).(map[string]any), loose(t, runs[1]).(map[string]any)
	if first["runId"] != "s-tool" || first["status"] != "completed" || first["metadata"].(map[string]any)["derived"] != nil || len(first["policyDecisions"].([]any)) != 4 {
		t.Errorf("a run that ended: %s", runs[0])
	}
	if second["runId"] != "s-handoff" || second["status"] != "failed" || second["errorName"] != "HandoffPolicyDeniedError" || second["metadata"].(map[string]any)["derived"] == nil {
		t.Errorf("a run that a refusal ended: %s", runs[1])
	}
	if n := len(first["items"].([]any)); n != 4+1+3 {
		t.Errorf("%d items: %s", n, runs[0])
	}
}

// The identifiers of governance events are the ones that RFC-0009 computes.
func TestGovernanceIDs(t *testing.T) {
	for _, tc := range []struct {
		verdict    events.Verdict
		call, want string
	}{
		{events.Allow, "call-allow", "e0782299ae53f891c1b02a9de3b4bc9f37233bda23b52b0d40cc04fbf4b75507"},
		{events.Deny, "call-deny", "e85cc3a6afa588bf53506c77b0c822051bd11584dd6e814c1ea734927bdd6ec1"},
	} {
		w := newWorld(t)
		w.decided("run-1", `{"agentName":"A","toolName":"t","rawArguments":"{}","turn":1}`, events.Decision{Protocol: "tool", Verdict: tc.verdict, Tool: "t", Agent: "A", ToolCallID: tc.call})
		lines, _ := written(t, format.AIOCGovernance, w.items, nil)
		if got := loose(t, lines[0]).(map[string]any)["id"]; got != tc.want {
			t.Errorf("%s: id %v, want %s", tc.verdict, got, tc.want)
		}
	}
}

// A trace event that another publisher writes for a decision does not change the line.
func TestForgedTrace(t *testing.T) {
	w := newWorld(t)
	d := w.decided("s", `{"agentName":"A","toolName":"t","turn":1}`, events.Decision{Protocol: "tool", Verdict: events.Deny, Tool: "t", Agent: "A", ToolCallID: "c"})
	w.traced(d, aioc.PolicyEvaluated{Type: aioc.TypeToolEvaluated, Turn: 1, ToolName: "t", Decision: aioc.Allow, Reason: "forged"})
	lines, _ := written(t, format.AIOCGovernance, w.items, nil)
	if bytes.Contains(lines[0], []byte("forged")) || !bytes.Contains(lines[0], []byte("aioc.policy.denied")) {
		t.Errorf("%s", lines[0])
	}
}

// More runs than are held are written in parts, and nothing is lost.
func TestRunParts(t *testing.T) {
	w := newWorld(t)
	d := w.decided("s-0", `{"agentName":"A","toolName":"t","turn":1}`, events.Decision{Protocol: "tool", Verdict: events.Allow, Tool: "t", Agent: "A", ToolCallID: "c"})
	request, decision := w.items[0], w.items[1]
	decisions, lines := 0, 0
	enc, err := format.New(format.AIOCRun, encode.Options{Tenant: tenant}, func(line []byte) error {
		lines++
		decisions += bytes.Count(line, []byte(`"policyVersion"`))
		return nil
	})
	ok(t, err)
	n, sessions := 30_000, 12_000
	if testing.Short() { // the race detector makes it ten times slower
		n, sessions = 12_000, 11_000
	}
	for i := range n {
		session, id := fmt.Sprintf("s-%d", i%sessions), fmt.Sprintf("d-%d", i)
		req, dec := request, decision
		req.Record.Seq, dec.Record.Seq = uint64(2*i+1), uint64(2*i+2)
		req.Record.Session, dec.Record.Session = session, session
		req.Record.Headers = map[string][]string{events.HeaderDecisionID: {id}}
		dec.Record.Body = bytes.Replace(decision.Record.Body, []byte(d.DecisionID), []byte(id), 1)
		ok(t, enc.Add(req))
		ok(t, enc.Add(dec))
	}
	ok(t, enc.Close())
	if decisions != n || lines < sessions || lines > n {
		t.Errorf("%d decisions in %d run records", decisions, lines)
	}
}
