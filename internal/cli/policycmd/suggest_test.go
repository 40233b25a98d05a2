package policycmd

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/admission/replay"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/cli/suggest"
	"github.com/countersign-dev/countersign/internal/recorded"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// requests of three protocols, each with a member that can be changed.
var suggestRequests = map[string][]string{
	"agenthook": {
		`{"event_id":"0d9f8b7a-1c2d-4e3f-8a9b-0c1d2e3f4a5b","event_type":"PreToolUse","timestamp":"2026-11-20T11:59:59Z","source":"x","session_id":"s1","evidence_phase":"pre_commit","tool_name":"Bash","tool_input":{"command":"git status"},"metadata":{"tool_call_id":"c%d"}}`,
		`{"event_id":"0d9f8b7a-1c2d-4e3f-8a9b-0c1d2e3f4a5b","event_type":"PreToolUse","timestamp":"2026-11-20T11:59:59Z","source":"x","session_id":"s1","evidence_phase":"pre_commit","tool_name":"read_file","tool_input":{"path":"/work/f%d.go"},"metadata":{"tool_call_id":"c1"}}`,
	},
	"aaep": {`{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.tool.invoked","event_id":"evt_1","session_id":"sess_1","timestamp":"2026-11-20T11:59:59.000Z","producer":{"agent_id":"bot"},"tool":"fetch_balance","tool_call_id":"call_%d","summary_normal":"Fetching."}`},
	"tool": {`{"agentName":"Desk","toolName":"lookup","rawArguments":"{}","parsedArguments":{},"runContext":{"context":{}},"turn":%d}`}, // evidence hides its arguments
}

func decided(t *testing.T, protocol, body string) replay.Record {
	t.Helper()
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	req := admission.Request{Tenant: "acme", Source: "rt1", Protocol: protocol, Body: []byte(body), ReceivedAt: noon}
	snap := &admission.Config{PolicyErr: policy.ErrNoPolicies, Observed: map[string]bool{"acme": true}}
	out := admission.Decide(req, snap, admission.Inputs{Now: noon, DecisionID: "01939d5e-0000-7000-8000-000000000001", Salt: make([]byte, receipt.SaltSize), Nonce: "n",
		PlainDigests: true, KnownTenant: true})
	if out.Decision.Verdict != events.Allow {
		t.Fatalf("%s: %s %v", protocol, out.Decision.Verdict, out.Decision.Reasons)
	}
	return replay.Record{Decision: out.Decision, Body: []byte(body)}
}

// The proposal that is made of a week in mode observe, without any policy, permits in a simulation
// over the same records each call that ran, and none that differs.
func TestSuggestedPoliciesPermitWhatRan(t *testing.T) {
	view, err := newEvidenceView(recorded.Log{Stream: "GOV"}, redaction.Builtin(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := suggest.New("acme")
	var ran []replay.Record
	for protocol, bodies := range suggestRequests {
		for _, body := range bodies {
			for n := range 3 {
				text := body
				if strings.Contains(body, "%") {
					text = fmt.Sprintf(body, n+1)
				}
				r := decided(t, protocol, text)
				in, seen, missing := replay.PolicyInput(r, replay.KnownState{})
				if !seen || len(missing) > 0 {
					t.Fatalf("%s: seen %v, missing %v", text, seen, missing)
				}
				m := events.LogMessage{Seq: 1, Time: time.Now(), Subject: "gov.events.acme.rt1." + protocol + ".s1.request", Body: r.Body}
				shown, hidden, err := view.show(m, in)
				if err != nil {
					t.Fatal(err)
				}
				c.Add(suggest.Call{Input: in, Shown: shown, Hidden: hidden, At: r.Decision.DecidedAt.Time})
				ran = append(ran, r)
			}
		}
	}
	p, err := c.Propose()
	if err != nil || len(p.LeftOut) > 0 || p.Calls != len(ran) {
		t.Fatalf("%v, left out %v, %d of %d calls", err, p.LeftOut, p.Calls, len(ran))
	}
	then := &admission.Config{PolicyErr: policy.ErrNoPolicies}
	for _, r := range ran {
		base := replay.Decide(r, then, replay.KnownState{})
		out := replay.CandidateOutcome(r.Decision, base, replay.Decide(r.Enforced(), &admission.Config{Policies: p.Set}, replay.KnownState{}))
		if out.Verdict != events.Allow || !out.Changed(r.Decision) {
			t.Errorf("simulated %s: %+v\n%s", r.Body, out, p.Text)
		}
	}
	for protocol, edits := range map[string][]string{
		"agenthook": {`"git status"`, `"git push"`}, "aaep": {"fetch_balance", "transfer_funds"}, "tool": {`"rawArguments":"{}","parsedArguments":{}`, `"rawArguments":"{\"id\":9}","parsedArguments":{"id":9}`},
	} {
		other := strings.Replace(suggestRequests[protocol][0], edits[0], edits[1], 1)
		other = strings.ReplaceAll(other, "%d", "9")
		r := decided(t, protocol, other)
		if d := replay.Decide(r.Enforced(), &admission.Config{Policies: p.Set}, replay.KnownState{}).Decision; d.Verdict != events.Deny {
			t.Errorf("%s gets %s\n%s", other, d.Verdict, p.Text)
		}
	}
}

// What reviewers approved is known by the decision's reason, whatever asked.
func TestApprovedDecisionsAreKnown(t *testing.T) {
	r := decided(t, "agenthook", suggestRequests["agenthook"][0])
	if wasApproved(r.Decision) {
		t.Error("an allow without an approval counts as approved")
	}
	r.Decision.Reasons = append(r.Decision.Reasons, events.Reason{Evaluator: approval.EvaluatorName, Code: approval.ReasonGranted})
	if !wasApproved(r.Decision) {
		t.Error("an approved ask does not count as approved")
	}
}

// No proposal quotes what the tenant's evidence hides: by the built-in rules, its redaction policy or its retention class.
func TestSuggestHidesWhatEvidenceHides(t *testing.T) {
	own, err := redaction.Parse("acme.yaml", []byte("version: 1\nname: acme\nrules:\n  - {name: notes, paths: [tool_input.note, metadata.agent_cwd], action: drop}\n"))
	if err != nil {
		t.Fatal(err)
	}
	const ordinary = `{"command":"psql -c 'select * from wards'"}`
	for name, c := range map[string]struct {
		policy *redaction.Policy
		class  string // members of the retention policy; "" is a tenant without one
		input  string
		shown  bool
	}{
		"a credential":         {redaction.Builtin(), "", `{"command":"curl -H 'Authorization: Bearer ghp_0123456789abcdefghijABCDEFGHIJ012345' https://a.example"}`, false},
		"personal":             {redaction.Builtin(), "", `{"to":"dana@acme.example"}`, false},
		"a field":              {own, "", `{"note":"plain words"}`, false},
		"a directory":          {own, "", `{"command":"ls"}`, false},
		"ordinary":             {redaction.Builtin(), "", ordinary, true},
		"full_transcript":      {redaction.Builtin(), "log: 90d", ordinary, true},
		"summary_only":         {redaction.Builtin(), "retention: summary_only", ordinary, false},
		"hashes":               {redaction.Builtin(), "retention: hashes", ordinary, false},
		"none":                 {redaction.Builtin(), "retention: none", ordinary, false},
		"none of such":         {redaction.Builtin(), "sessions: [{match: s*, retention: none}]", ordinary, false},
		"none of others":       {redaction.Builtin(), "sessions: [{match: med-*, retention: none}]", ordinary, true},
		"none of no arguments": {redaction.Builtin(), "retention: none", `{}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			var retains *retention.Policy
			if c.class != "" {
				if retains, err = retention.Parse("acme.yaml", []byte("version: 1\nname: acme\n"+c.class+"\n")); err != nil {
					t.Fatal(err)
				}
			}
			view, err := newEvidenceView(recorded.Log{Stream: "GOV"}, c.policy, retains)
			if err != nil {
				t.Fatal(err)
			}
			body := strings.Replace(suggestRequests["agenthook"][0], `{"command":"git status"}`, c.input, 1)
			directory := ""
			if c.policy == own {
				directory = `,"agent_cwd":"/srv/dana"`
			}
			body = strings.Replace(body, `"c%d"`, `"c1"`+directory, 1)
			r := decided(t, "agenthook", body)
			in, _, _ := replay.PolicyInput(r, replay.KnownState{})
			shown, hidden, err := view.show(events.LogMessage{Seq: 1, Time: time.Now(), Subject: "gov.events.acme.rt1.agenthook.s1.request", Body: r.Body}, in)
			if err != nil {
				t.Fatal(err)
			}
			col := suggest.New("acme")
			col.Add(suggest.Call{Input: in, Shown: shown, Hidden: hidden})
			p, _ := col.Propose()
			if isShown := p.Calls == 1 && len(p.LeftOut) == 0 && p.Text != ""; isShown != c.shown || !isShown && (len(p.LeftOut) != 1 || p.Text != "") {
				t.Errorf("proposed: %+v", p)
			}
		})
	}
}

// A policy that cannot be read shows nothing: what it hides is not known.
func TestPoliciesInForceOfATenant(t *testing.T) {
	b := bucketOf(t, servicetest.Start(t, streams.Shard{}))
	kv, err := streams.OpenBucket(t.Context(), b.JS, streams.BucketRetention)
	servicetest.OK(t, err)
	key := retention.PolicyKey("acme")
	read := func() (string, error) {
		p, err := policyInForce(t.Context(), recorded.Log{JS: b.JS}, "acme", streams.BucketRetention, key, retention.Parse)
		if p == nil {
			return "", err
		}
		return p.ID(), err
	}
	if id, err := read(); id != "" || err != nil {
		t.Errorf("without one: %q, %v", id, err)
	}
	_, err = kv.Put(t.Context(), key, []byte("version: 1\nname: mine\nretention: none\n"))
	servicetest.OK(t, err)
	if id, err := read(); !strings.HasPrefix(id, "mine@") || err != nil {
		t.Errorf("with one: %q, %v", id, err)
	}
	_, err = kv.Put(t.Context(), key, []byte("version: 9\n"))
	servicetest.OK(t, err)
	if id, err := read(); id != "" || !errors.Is(err, retention.ErrPolicy) || !strings.Contains(err.Error(), "countersign retention push") {
		t.Errorf("with one that cannot be read: %q, %v", id, err)
	}
	servicetest.OK(t, kv.Delete(t.Context(), key))
	if id, err := read(); id != "" || err != nil {
		t.Errorf("removed: %q, %v", id, err)
	}
}
